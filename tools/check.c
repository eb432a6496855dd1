/* copes check: the cases of tests/harness on a device, against the float64 oracle. */
#include "tests/harness/report.h"
#include "tools/arguments.h"
#include "tools/commands.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes check [OP ...] [--device cpu] [--seed S] [--cases N]\n"
    "\n"
    "Runs a table of cases and N random ones (default 200) of each operator on the device, and compares every element with\n"
    "a reference in extended precision. OP is one or more of act, lrpe_rotate, lrpe_cosine and tpa_decode; all if left out.\n"
    "Random case i is made from seed S + i (default S 1). Exits 1 if an error is past the documented bounds.\n";

/* What the command line asks for. */
typedef struct request {
    bool wanted[CHECK_FAMILY_ROOM];
    bool any_wanted;
    DLDevice device;
    int64_t seed, cases;
    bool help;
} request;

static bool want(request *r, const char *name)
{
    for (size_t i = 0; i < check_family_count; i++) {
        if (strcmp(check_families[i].name, name) == 0) {
            r->wanted[i] = r->any_wanted = true;
            return true;
        }
    }
    complain(EXIT_USAGE, "\"%s\" is not an operator; it must be act, lrpe_rotate, lrpe_cosine or tpa_decode", name);
    return false;
}

static bool read_flag(request *r, arguments *walk)
{
    if (strcmp(walk->flag, "device") == 0)
        return arguments_device(walk, &r->device);
    if (strcmp(walk->flag, "seed") == 0)
        return arguments_integer(walk, 0, INT64_MAX / 2, &r->seed);
    if (strcmp(walk->flag, "cases") == 0)
        return arguments_integer(walk, 0, INT32_MAX, &r->cases);
    if (strcmp(walk->flag, "help") == 0) {
        r->help = true;
        return arguments_no_value(walk);
    }
    complain(EXIT_USAGE, "--%s is not a flag of `copes check`", walk->flag);
    return false;
}

static bool read_request(request *r, int argc, char **argv)
{
    *r = (request){.device = {kDLCPU, 0}, .seed = 1, .cases = 200};
    arguments walk = arguments_begin(argc, argv);
    for (;;) {
        switch (arguments_next(&walk)) {
        case ARGUMENTS_END: return true;
        case ARGUMENTS_FLAG:
            if (!read_flag(r, &walk))
                return false;
            break;
        case ARGUMENTS_WORD:
            if (!want(r, walk.word))
                return false;
            break;
        }
    }
}

static void check_family_on(const check_family *family, const request *r, copes_context *context, check_report *report)
{
    case_list list = {.cases = NULL};
    family->table(&list);
    for (int64_t i = 0; i < r->cases; i++) {
        const check_case random = family->random((uint64_t)(r->seed + i));
        case_list_add(&list, &random);
    }
    for (size_t i = 0; i < list.count; i++) {
        const check_result result = check_run(&list.cases[i], context, r->device);
        check_report_add(report, &list.cases[i], &result, stdout);
    }
    case_list_free(&list);
}

int command_check(int argc, char **argv)
{
    request r;
    if (!read_request(&r, argc, argv))
        return EXIT_USAGE;
    if (r.help)
        return fputs(help, stdout) < 0;
    if (device_memory_of(r.device.device_type) == NULL)
        return complain(EXIT_FAILED, "this build cannot check that device");
    copes_context *context;
    if (copes_context_create(r.device, NULL, &context) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    check_report *report = calloc(1, sizeof *report);
    if (report == NULL) {
        copes_context_destroy(context);
        return complain(EXIT_FAILED, "no memory");
    }
    for (size_t i = 0; i < check_family_count; i++)
        if (!r.any_wanted || r.wanted[i])
            check_family_on(&check_families[i], &r, context, report);
    check_report_print(report, stdout);
    const int64_t failed = report->failed;
    free(report);
    copes_context_destroy(context);
    return failed == 0 ? 0 : complain(EXIT_FAILED, "%lld cases are past the bounds", (long long)failed);
}
