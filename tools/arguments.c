/* Reading a command line. */
#include "tools/arguments.h"

#include "bindings/choice.h"
#include "tools/suggest.h"
#include "tools/terminal.h"
#include "tools/words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int complain(int status, const char *format, ...)
{
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    for (char *c = line; *c != '\0'; c++) /* paths and names may hold anything */
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "%scopes:%s %s\n", terminal_style(stderr, TERMINAL_RED), terminal_style(stderr, TERMINAL_PLAIN),
            line);
    return status;
}

arguments arguments_begin(int argc, char **argv)
{
    return (arguments){.count = argc, .values = argv, .next = 1};
}

arguments_kind arguments_next(arguments *walk)
{
    if (walk->next >= walk->count)
        return ARGUMENTS_END;
    const char *text = walk->values[walk->next++];
    walk->inline_value = NULL;
    walk->word = text;
    if (strncmp(text, "--", 2) != 0)
        return ARGUMENTS_WORD;
    const char *equals = strchr(text, '=');
    if (equals != NULL)
        walk->inline_value = equals + 1;
    snprintf(walk->flag, sizeof walk->flag, "%.*s", equals != NULL ? (int)(equals - text - 2) : (int)strlen(text + 2),
             text + 2);
    return ARGUMENTS_FLAG;
}

const char *arguments_value(arguments *walk)
{
    if (walk->inline_value != NULL)
        return walk->inline_value;
    if (walk->next < walk->count && strncmp(walk->values[walk->next], "--", 2) != 0)
        return walk->values[walk->next++];
    complain(EXIT_USAGE, "--%s needs a value", walk->flag);
    return NULL;
}

bool arguments_no_value(const arguments *walk)
{
    if (walk->inline_value == NULL)
        return true;
    complain(EXIT_USAGE, "--%s takes no value, but was given \"%s\"", walk->flag, walk->inline_value);
    return false;
}

/* An integer at *text, which is moved past it. strtoll by itself would take leading blanks. */
static bool read_integer(const char **text, int64_t low, int64_t high, int64_t *value)
{
    char *end;
    const char *digit = **text == '-' || **text == '+' ? *text + 1 : *text;
    if (*digit < '0' || *digit > '9')
        return false;
    errno = 0;
    const long long number = strtoll(*text, &end, 10);
    if (errno != 0 || number < low || number > high)
        return false;
    *value = number;
    *text = end;
    return true;
}

bool arguments_integers(arguments *walk, int64_t low, int64_t high, int64_t *values, int capacity, int *count)
{
    const char *text = arguments_value(walk);
    if (text == NULL)
        return false;
    const char *at = text;
    *count = 0;
    while (*count < capacity && read_integer(&at, low, high, &values[*count])) {
        ++*count;
        if (*at == '\0')
            return true;
        if (*at++ != ',')
            break;
    }
    if (capacity == 1)
        complain(EXIT_USAGE, "--%s is \"%s\"; it must be an integer from %lld to %lld", walk->flag, text,
                 (long long)low, (long long)high);
    else
        complain(EXIT_USAGE, "--%s is \"%s\"; it must be 1 to %d integers from %lld to %lld, with commas between",
                 walk->flag, text, capacity, (long long)low, (long long)high);
    return false;
}

bool arguments_integer(arguments *walk, int64_t low, int64_t high, int64_t *value)
{
    int count;
    return arguments_integers(walk, low, high, value, 1, &count);
}

bool arguments_double(arguments *walk, double *value)
{
    const char *text = arguments_value(walk);
    if (text == NULL)
        return false;
    char *end;
    *value = strtod(text, &end);
    if (end != text && *end == '\0' && strchr(" \t\n\v\f\r", *text) == NULL)
        return true;
    complain(EXIT_USAGE, "--%s is \"%s\"; it must be a number", walk->flag, text);
    return false;
}

bool arguments_choice(arguments *walk, const char *choices, int32_t *index)
{
    const char *text = arguments_value(walk);
    if (text == NULL)
        return false;
    *index = choice_index(choices, text, strlen(text));
    if (*index >= 0)
        return true;
    suggestion nearest = suggest_for(text);
    words_choices(choices, suggest_offer, &nearest);
    complain(EXIT_USAGE, "--%s is \"%s\"; it must be one of %s%s", walk->flag, text, choices,
             suggest_text(&nearest, ""));
    return false;
}

/* Does `text` name a device of this backend? "cuda" is its first one. */
static bool match_device(const char *text, const copes_backend_info *backend, int32_t *id)
{
    const size_t length = strlen(backend->name);
    int64_t number = 0;
    if (strncmp(text, backend->name, length) != 0 || (text[length] != '\0' && text[length] != ':'))
        return false;
    const char *at = text + length + 1;
    if (text[length] == ':' && (!read_integer(&at, 0, INT32_MAX, &number) || *at != '\0'))
        return false;
    *id = (int32_t)number;
    return true;
}

bool arguments_device(arguments *walk, DLDevice *device)
{
    const char *text = arguments_value(walk);
    if (text == NULL)
        return false;
    char names[256] = "";
    suggestion nearest = suggest_for(text);
    for (size_t i = 0, used = 0; i < copes_backend_count(); i++) {
        const copes_backend_info *backend = copes_backend_at(i);
        if (match_device(text, backend, &device->device_id)) {
            device->device_type = backend->device_type;
            return true;
        }
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", backend->name);
        suggest_offer(&nearest, backend->name);
    }
    complain(EXIT_USAGE, "--%s is \"%s\"; this build has %s, and \":1\" after a name picks its second device%s",
             walk->flag, text, names, suggest_text(&nearest, ""));
    return false;
}

int arguments_none(int argc, char **argv, const char *help)
{
    if (argc < 2)
        return -1;
    if (strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    return complain(EXIT_USAGE, "\"%s\": `copes %s` takes no arguments", argv[1], argv[0]);
}
