/* Picks the subcommand of `copes`; each has a file of its own. */
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/operators.h"
#include "tools/suggest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: copes COMMAND [ARGUMENT ...]\n"
    "\n"
    "  run OP     run an operator on the tensors of a safetensors file\n"
    "  sample     write a safetensors file to try run on\n"
    "  ops        list the operators with their slots, attributes and defaults\n"
    "  devices    list the backends in this build and the devices they find\n"
    "  doctor     tell what was built, what runs here and why, for yourself or an issue\n"
    "  check      compare a device's results with float64 references\n"
    "  bench      time the operators and print tables\n"
    "  explain    tell which kernels calls take, and why\n"
    "\n"
    "`copes COMMAND --help` tells more about each; `copes --version` prints the version.\n";

#if !COPES_TOOLS_CHECK
int command_check(int argc, char **argv)
{
    (void)argc, (void)argv;
    return complain(EXIT_FAILED, "this build has no check (-Dtests=disabled -Dbench=disabled)");
}
#endif

#if !COPES_TOOLS_BENCH
int command_bench(int argc, char **argv)
{
    (void)argc, (void)argv;
    return complain(EXIT_FAILED, "this build has no bench (-Dbench=disabled)");
}

int command_explain(int argc, char **argv)
{
    (void)argc, (void)argv;
    return complain(EXIT_FAILED, "this build has no explain (-Dbench=disabled)");
}
#endif

#if COPES_TOOLS_CHECK
#define CHECK_WORDS help_check, operators_of_check
#else
#define CHECK_WORDS NULL, NULL
#endif
#if COPES_TOOLS_BENCH
#define BENCH_WORDS help_bench, operators_of_bench
#define EXPLAIN_WORDS help_explain, operators_of_bench
#else
#define BENCH_WORDS NULL, NULL
#define EXPLAIN_WORDS NULL, NULL
#endif

const command_entry commands[] = {{"run", command_run, help_run, operators_each},
                                  {"sample", command_sample, help_sample, operators_each},
                                  {"ops", command_ops, NULL, NULL},
                                  {"devices", command_devices, NULL, NULL},
                                  {"doctor", command_doctor, NULL, NULL},
                                  {"check", command_check, CHECK_WORDS},
                                  {"bench", command_bench, BENCH_WORDS},
                                  {"explain", command_explain, EXPLAIN_WORDS},
                                  {NULL, NULL, NULL, NULL}};

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return complain(EXIT_USAGE, "no command given; `copes --help` lists them");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return fputs(help, stdout) < 0;
    if (strcmp(argv[1], "--version") == 0)
        return printf("copes %s\n", copes_version()) < 0;
    if (strcmp(argv[1], "complete") == 0)
        return command_complete(argc - 1, argv + 1);
    suggestion nearest = suggest_for(argv[1]);
    for (const command_entry *entry = commands; entry->name != NULL; entry++) {
        if (strcmp(argv[1], entry->name) == 0)
            return entry->run(argc - 1, argv + 1);
        suggest_offer(&nearest, entry->name);
    }
    return complain(EXIT_USAGE, "\"%s\" is not a command; `copes --help` lists them%s", argv[1],
                    suggest_text(&nearest, ""));
}

int command_copes(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a write past the limit is then an error like any other, and the part is removed */
    const int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout))
        return complain(EXIT_FAILED, "cannot write to standard output: %s", strerror(errno));
    return status;
}
