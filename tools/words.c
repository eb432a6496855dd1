/* The words that a command line may have, read off a command's help text. */
#include "tools/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

static const char letters[] = "abcdefghijklmnopqrstuvwxyz-";

char *words_help(void (*print)(FILE *stream, const char *op), const char *op)
{
    char *text = NULL;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL)
        return NULL;
    print(stream, op);
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

void words_flags(const char *help, words_visitor *visit, void *to)
{
    for (const char *at = strstr(help, "--"); at != NULL; at = strstr(at, "--")) {
        char flag[WORD];
        const size_t length = strspn(at += 2, letters);
        snprintf(flag, sizeof flag, "%.*s", (int)length, at);
        if (length > 0)
            visit(to, flag);
        at += length;
    }
}

void words_choices(const char *choices, words_visitor *visit, void *to)
{
    while (choices != NULL) {
        char word[WORD];
        const size_t length = strcspn(choices, "|");
        snprintf(word, sizeof word, "%.*s", (int)length, choices);
        visit(to, word);
        choices = choices[length] == '|' ? choices + length + 1 : NULL;
    }
}

bool words_values(const char *help, const char *flag, words_visitor *visit, void *to)
{
    const size_t length = strlen(flag);
    const char *at = strstr(help, "--");
    while (at != NULL && (strspn(at + 2, letters) != length || memcmp(at + 2, flag, length) != 0))
        at = strstr(at + 2, "--");
    if (at == NULL)
        return false;
    at += 2 + length; /* the help has one blank before a value, and more before what a flag without one is for */
    if (at[0] != ' ' || at[1] == ' ' || at[1] == '-')
        return false;
    char choices[4 * WORD];
    snprintf(choices, sizeof choices, "%.*s", (int)strcspn(at + 1, " ]\n"), at + 1);
    if (strchr(choices, '|') != NULL)
        words_choices(choices, visit, to);
    return true;
}
