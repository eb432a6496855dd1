/* Reading a command line, and saying in one line what is wrong with it. */
#ifndef COPES_TOOLS_ARGUMENTS_H
#define COPES_TOOLS_ARGUMENTS_H

#include <copes/copes.h>
#include <stdbool.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum { ARGUMENTS_FLAG_SIZE = 64 };

typedef enum arguments_kind { ARGUMENTS_END, ARGUMENTS_FLAG, ARGUMENTS_WORD } arguments_kind;

/* A walk along argv: flags are "--name value", "--name=value" or, where the flag takes none, "--name". */
typedef struct arguments {
    int count;
    char **values;
    int next;
    char flag[ARGUMENTS_FLAG_SIZE]; /* of the last step, without the dashes; cut to fit */
    const char *inline_value;       /* what follows its '=', or NULL */
    const char *word;               /* the last step's word that is no flag */
} arguments;

/* Starts after argv[0]. */
arguments arguments_begin(int argc, char **argv);
arguments_kind arguments_next(arguments *walk);

/* The current flag's value; NULL, with the complaint printed, where there is none. */
const char *arguments_value(arguments *walk);

/* False, with the complaint printed, where the current flag was given a value that it does not take. */
bool arguments_no_value(const arguments *walk);

/* The current flag's value as one number or list; false with the complaint printed. */
bool arguments_integer(arguments *walk, int64_t low, int64_t high, int64_t *value);
bool arguments_integers(arguments *walk, int64_t low, int64_t high, int64_t *values, int capacity, int *count);
bool arguments_double(arguments *walk, double *value);

/* The current flag's value as an index into choices such as "half|interleaved". */
bool arguments_choice(arguments *walk, const char *choices, int32_t *index);

/* The current flag's value as a device: "cpu", "cuda", "cuda:1". */
bool arguments_device(arguments *walk, DLDevice *device);

/* For commands that take no arguments but --help: -1 to go on, else the exit status. */
int arguments_none(int argc, char **argv, const char *help);

/* Prints "copes: ..." as one line on stderr, whatever the text holds, and returns `status`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
int complain(int status, const char *format, ...);

#endif
