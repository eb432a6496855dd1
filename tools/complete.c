/* copes complete: which words may follow on a command line, one on each line. For a shell's completion, so no help lists it. */
#include "tools/commands.h"
#include "tools/operators.h"

#include <stdlib.h>
#include <string.h>

static void print_word(void *to, const char *word)
{
    (void)to;
    puts(word);
}

static void print_flag(void *to, const char *flag)
{
    (void)to;
    printf("--%s\n", flag);
}

/* Does a flag stand before the cursor that takes a value? Its choices are printed; where it has none, files may follow. */
static bool complete_value(const char *help, const char *last)
{
    if (strncmp(last, "--", 2) != 0)
        return false;
    if (strcmp(last, "--device") == 0)
        for (size_t i = 0; i < copes_backend_count(); i++)
            puts(copes_backend_at(i)->name);
    return words_values(help, last + 2, print_word, NULL);
}

/* `words` are those between the command's name and the cursor. */
static void complete_command(const command_entry *entry, int count, char **words)
{
    copes_op op;
    const bool one_operator = entry->run == command_run, file_first = entry->run == command_sample;
    const char *first = count > 0 ? words[0] : "";
    if (one_operator && count == 0)
        entry->operators(print_word, NULL);
    if (entry->help == NULL || (file_first && count == 0) ||
        (one_operator && operators_find(first, false, &op) == NULL))
        return;
    char *help = words_help(entry->help, one_operator ? first : NULL);
    if (help != NULL && (count == 0 || !complete_value(help, words[count - 1]))) {
        words_flags(help, print_flag, NULL);
        if (!one_operator)
            entry->operators(print_word, NULL);
    }
    free(help);
}

int command_complete(int argc, char **argv)
{
    if (argc < 2)
        for (const command_entry *entry = commands; entry->name != NULL; entry++)
            puts(entry->name);
    bool known = argc < 2;
    for (const command_entry *entry = commands; argc >= 2 && entry->name != NULL; entry++) {
        if (strcmp(entry->name, argv[1]) != 0)
            continue;
        known = true;
        complete_command(entry, argc - 2, argv + 2);
    }
    if (known && argc < 3)
        puts("--help");
    return 0;
}
