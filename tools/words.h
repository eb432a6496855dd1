/* The words that a command line may have, read off a command's help text: for completion, and to suggest the right one. */
#ifndef COPES_TOOLS_WORDS_H
#define COPES_TOOLS_WORDS_H

#include <stdbool.h>
#include <stdio.h>

typedef void words_visitor(void *to, const char *word);

/* A command's help (tools/commands.h) as a string, which the caller frees; NULL where memory ran out. */
char *words_help(void (*print)(FILE *stream, const char *op), const char *op);

/* Each flag of the help, without its dashes, in order; one that the text has twice is visited twice. */
void words_flags(const char *help, words_visitor *visit, void *to);

/* Each of choices such as "half|interleaved". */
void words_choices(const char *choices, words_visitor *visit, void *to);

/* Does the flag (without dashes) take a value, as the help has it? If that is one of some choices, they are visited. */
bool words_values(const char *help, const char *flag, words_visitor *visit, void *to);

#endif
