/* The subcommands of `copes`. Each takes its own name as argv[0] and returns the exit status: 0, 1 for a failure, 2 for
 * wrong usage. */
#ifndef COPES_TOOLS_COMMANDS_H
#define COPES_TOOLS_COMMANDS_H

#include "tools/words.h"

#include <stddef.h>
#include <stdio.h>

int command_copes(int argc, char **argv); /* the whole: argv[1] names the subcommand */
int command_run(int argc, char **argv);
int command_sample(int argc, char **argv);
int command_ops(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_check(int argc, char **argv); /* builds with tests or bench only */
int command_bench(int argc, char **argv); /* builds with bench only */
int command_explain(int argc, char **argv);
int command_complete(int argc, char **argv);

/* What each prints for --help. `op` is run's operator, or NULL. */
void help_run(FILE *stream, const char *op);
void help_sample(FILE *stream, const char *op);
void help_check(FILE *stream, const char *op);
void help_bench(FILE *stream, const char *op);
void help_explain(FILE *stream, const char *op);

/* The operators' names that a command takes. */
void operators_of_check(words_visitor *visit, void *to);
void operators_of_bench(words_visitor *visit, void *to);

typedef struct command_entry {
    const char *name;
    int (*run)(int argc, char **argv);
    void (*help)(FILE *stream, const char *op);        /* NULL where there are no flags */
    void (*operators)(words_visitor *visit, void *to); /* NULL where there is no help */
} command_entry;

/* All that `copes --help` lists; the last one has no name. */
extern const command_entry commands[];

#endif
