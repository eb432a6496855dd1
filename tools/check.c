/* copes check: the cases of tests/harness on a device, against the float64 oracle. */
#include "tests/harness/report.h"
#include "tests/harness/variants.h"
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/suggest.h"
#include "tools/terminal.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes check [OP ...] [--device D] [--seed S] [--cases N] [--every N] [--large] [--variants]\n"
    "\n"
    "Runs a table of cases and N random ones (default 200) of each operator on the device, and compares every element with\n"
    "a reference in extended precision, and a GPU's with the CPU's too. OP is one or more of act, lrpe_rotate, lrpe_cosine,\n"
    "tpa_decode, qk_norm_rope and attention_merge; all if left out. Random case i is made from seed S + i (default S 1). --every N runs one case in N.\n"
    "--large adds cases that many blocks of a GPU share. Exits 1 if an error is past the documented bounds.\n"
    "--variants runs one case for each kernel that the device's backend has, forcing those that no case takes by itself, and\n"
    "exits 1 if a kernel has no case.\n";

/* What the command line asks for. */
typedef struct request {
    bool wanted[CHECK_FAMILY_ROOM];
    bool any_wanted;
    DLDevice device;
    int64_t seed, cases, every;
    bool large, variants, help;
} request;

void help_check(FILE *stream, const char *op)
{
    (void)op;
    fputs(help, stream);
}

void operators_of_check(words_visitor *visit, void *to)
{
    for (size_t i = 0; i < check_family_count; i++)
        visit(to, check_families[i].name);
}

static bool want(request *r, const char *name)
{
    for (size_t i = 0; i < check_family_count; i++) {
        if (strcmp(check_families[i].name, name) == 0) {
            r->wanted[i] = r->any_wanted = true;
            return true;
        }
    }
    suggestion nearest = suggest_for(name);
    operators_of_check(suggest_offer, &nearest);
    complain(
        EXIT_USAGE,
        "\"%s\" is not an operator; it must be act, lrpe_rotate, lrpe_cosine, tpa_decode, qk_norm_rope or attention_merge%s",
        name, suggest_text(&nearest, ""));
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
    if (strcmp(walk->flag, "every") == 0)
        return arguments_integer(walk, 1, INT32_MAX, &r->every);
    if (strcmp(walk->flag, "large") == 0) {
        r->large = true;
        return arguments_no_value(walk);
    }
    if (strcmp(walk->flag, "variants") == 0) {
        r->variants = true;
        return arguments_no_value(walk);
    }
    if (strcmp(walk->flag, "help") == 0) {
        r->help = true;
        return arguments_no_value(walk);
    }
    suggestion nearest = suggest_for(walk->flag);
    suggest_flags(&nearest, help_check, NULL);
    complain(EXIT_USAGE, "--%s is not a flag of `copes check`%s", walk->flag, suggest_text(&nearest, "--"));
    return false;
}

static bool read_request(request *r, int argc, char **argv)
{
    *r = (request){.device = {kDLCPU, 0}, .seed = 1, .cases = 200, .every = 1};
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

/* Contexts on the device, and on the CPU to compare with where the device is another. */
typedef struct session {
    const request *wish;
    copes_context *context, *cpu;
    bool runs[CHECK_TYPES]; /* storage types that the device's backend has */
    check_report report;
    check_variants variants;
    progress bar;
    size_t done;
} session;

static bool is_wanted(const session *s, size_t family)
{
    return !s->wish->any_wanted || s->wish->wanted[family];
}

static void check_one(session *s, const check_case *c)
{
    check_problem problem;
    check_values values = {{NULL}}, from_cpu = {{NULL}};
    check_result result = {.failed = true, .message = "no memory for the oracle"};
    char name[CHECK_CASE_TEXT];
    progress_step(&s->bar, s->done++, check_case_text(c, name));
    if (check_prepare(&problem, c) == 0)
        result = check_execute_keeping(&problem, s->context, s->wish->device, &values);
    if (result.failed)
        progress_clear(&s->bar);
    check_report_add(&s->report, c, &result, stdout);
    if (!result.failed)
        check_variants_meet(&s->variants, result.variant);
    if (s->cpu != NULL && !result.failed) {
        check_execute_keeping(&problem, s->cpu, (DLDevice){kDLCPU, 0}, &from_cpu);
        check_report_compare(&s->report, c, check_distance(&problem, &values, &from_cpu));
    }
    check_values_free(&values);
    check_values_free(&from_cpu);
    check_problem_free(&problem);
}

/* The family's table and `random` cases. */
static void list_cases(const session *s, const check_family *family, int64_t random, case_list *list)
{
    *list = (case_list){.cases = NULL};
    family->table(list);
    for (int64_t i = 0; i < random; i++) {
        const check_case c = family->random((uint64_t)(s->wish->seed + i));
        case_list_add(list, &c);
    }
}

static bool wants(const session *s, const check_case *c)
{
    return s->runs[c->type] && (s->wish->large || !c->large);
}

static void check_family_on(session *s, const check_family *family)
{
    case_list list;
    list_cases(s, family, s->wish->cases, &list);
    for (size_t i = 0; i < list.count; i += (size_t)s->wish->every)
        if (wants(s, &list.cases[i]))
            check_one(s, &list.cases[i]);
    case_list_free(&list);
}

/* Runs the cases by which the context takes a variant that no case has met yet. */
static void meet_variants(session *s)
{
    enum { RANDOM = 4000 };
    for (size_t f = 0; f < check_family_count; f++) {
        case_list list;
        list_cases(s, &check_families[f], RANDOM, &list);
        for (size_t i = 0; i < list.count; i++) {
            check_problem described;
            char name[CHECK_VARIANT];
            if (!wants(s, &list.cases[i]))
                continue;
            check_describe(&described, &list.cases[i]);
            check_variant_of(&described, s->context, s->wish->device, name);
            if (check_variants_lack(&s->variants, name))
                check_one(s, &list.cases[i]);
        }
        case_list_free(&list);
    }
}

/* As the planners choose, and then with every method forced that has variants which no case has met. */
static int check_all_variants(session *s)
{
    char method[CHECK_METHOD];
    meet_variants(s);
    for (size_t from = 0; check_variants_next(&s->variants, &from, method);) {
        copes_context_destroy(s->context);
        s->context = NULL;
        if (setenv("COPES_GPU_VARIANT", method, 1) != 0 ||
            copes_context_create(s->wish->device, NULL, &s->context) != COPES_OK)
            return complain(EXIT_FAILED, "%s: %s", method, copes_last_error());
        meet_variants(s);
    }
    return 0;
}

/* Asks about a call on one element of the type. */
static bool runs_type(copes_context *context, DLDevice device, check_type type)
{
    int64_t one = 1;
    size_t size;
    DLTensor tensor = {.device = device, .ndim = 1, .dtype = check_type_of(type)->dlpack, .shape = &one};
    const copes_op op = {.kind = COPES_ACT_FORWARD};
    const copes_args args = {.act_forward = {.x = &tensor, .o = &tensor}};
    return copes_workspace_size(context, &op, &args, &size) != COPES_ERROR_UNSUPPORTED;
}

static int open_session(session *s)
{
    if (copes_context_create(s->wish->device, NULL, &s->context) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    if (check_variants_open(&s->variants, s->wish->device.device_type) != 0)
        return complain(EXIT_FAILED, "no memory");
    const bool elsewhere = s->wish->device.device_type != kDLCPU;
    if (elsewhere && copes_context_create((DLDevice){kDLCPU, 0}, NULL, &s->cpu) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    for (int type = 0; type < CHECK_TYPES; type++)
        s->runs[type] = runs_type(s->context, s->wish->device, (check_type)type);
    return 0;
}

/* Without --variants, which stops when each kernel has met a case. */
static size_t count_cases(const session *s)
{
    size_t count = 0;
    for (size_t f = 0; f < check_family_count && !s->wish->variants; f++) {
        case_list list = {.cases = NULL};
        if (is_wanted(s, f))
            list_cases(s, &check_families[f], s->wish->cases, &list);
        for (size_t i = 0; i < list.count; i += (size_t)s->wish->every)
            count += wants(s, &list.cases[i]);
        case_list_free(&list);
    }
    return count;
}

static int check_all(session *s)
{
    const int status = open_session(s);
    if (status != 0)
        return status;
    s->bar = progress_begin(count_cases(s));
    for (size_t i = 0; i < check_family_count; i++)
        if (!s->wish->variants && is_wanted(s, i))
            check_family_on(s, &check_families[i]);
    const int forced = s->wish->variants ? check_all_variants(s) : 0;
    progress_clear(&s->bar);
    check_report_print(&s->report, s->cpu != NULL, stdout);
    const size_t lacking = s->wish->variants ? check_variants_print(&s->variants, stdout) : 0;
    const int64_t failed = s->report.failed;
    if (failed > 0)
        return complain(EXIT_FAILED, "%lld cases are past the bounds", (long long)failed);
    return lacking == 0 ? forced : complain(EXIT_FAILED, "%zu variants ran in no case", lacking);
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
    if (r.variants && (r.device.device_type == kDLCPU || r.any_wanted))
        return complain(EXIT_USAGE, "--variants takes a GPU, and no OP");
    session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return complain(EXIT_FAILED, "no memory");
    s->wish = &r;
    const int status = check_all(s);
    copes_context_destroy(s->cpu);
    copes_context_destroy(s->context);
    check_variants_free(&s->variants);
    free(s);
    return status;
}
