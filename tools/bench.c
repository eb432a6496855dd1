/* copes bench: times the operators beside a copy of as many bytes, and prints tables. */
#include "tools/bench.h"
#include "bench/print.h"
#include "tools/arguments.h"
#include "tools/bench_estimate.h"
#include "tools/bench_request.h"
#include "tools/commands.h"
#include "tools/terminal.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: copes bench [OP ...] [FLAG ...]\n"
    "\n"
    "Times operators and prints for each case the median in ms, GB/s, the share of the rate of a copy that moves as many\n"
    "bytes in the same run, and the memory of the call in MiB; for tpa_decode also the share of the peak rate of\n"
    "multiply-adds. OP is one or more of act, lrpe_rotate, lrpe_cosine, md_lrpe_cosine, tpa_decode, qk_norm_rope and attention_merge; all if\n"
    "left out. Cases that take more than 60 % of the free memory are skipped.\n";

static const char explain_help[] =
    "usage: copes explain [OP ...] [FLAG ...]\n"
    "\n"
    "Prints for each call that `copes bench` would time with these flags which kernel it takes, how that is launched, its\n"
    "workspace, and the faster kernels that refuse it, with the reason. Nothing is run.\n";

static const char flags[] =
    "  --replay                         the time of a call in a graph of many that is recorded and replayed (GPUs)\n"
    "  --explain                        print which kernel each call takes, and why, and time nothing\n"
    "  --quick                          one length of a few cases, in less than 20 seconds\n"
    "  --json FILE                      also write the results as JSON\n";

void help_bench(FILE *stream, const char *op)
{
    (void)op;
    fprintf(stream, "%s%s%s", help, bench_request_help, flags);
}

void help_explain(FILE *stream, const char *op)
{
    (void)op;
    fprintf(stream, "%s%s", explain_help, bench_request_help);
}

/* What a run carries from case to case. */
typedef struct session {
    bench_plan plan;
    bench_json *json;
} session;

static void show_progress(progress *bar, const bench_case *c, size_t index)
{
    char name[BENCH_NAME], what[BENCH_NAME + 24];
    bench_case_name(c, name);
    snprintf(what, sizeof what, "%s %lld", name, (long long)c->n);
    progress_step(bar, index, what);
}

static int measure_calls(const session *s, const bench_case *c, int count, bench_result *result)
{
    const bench_calls calls = {calloc((size_t)count, sizeof *calls.calls), count, s->plan.replay};
    bool done = calls.calls != NULL;
    for (int i = 0; i < count && done; i++)
        done = bench_call_plan(&calls.calls[i], c, s->plan.context, s->plan.id) == COPES_OK;
    done = done && bench_measure(s->plan.device, s->plan.state, &calls, s->plan.budget_ms, result) == 0;
    free(calls.calls);
    return done ? 0 : complain(EXIT_FAILED, "the device failed or its memory ran out");
}

static int measure_case(const session *s, const bench_case *c, char *why, size_t why_size, bench_result *result)
{
    bench_call call;
    *result = (bench_result){.skipped = NULL};
    const copes_status status = bench_call_plan(&call, c, s->plan.context, s->plan.id);
    if (status == COPES_ERROR_SIZE) {
        result->skipped = "it has too many bytes to count";
        return 0;
    }
    if (status != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    const int count = s->plan.replay ? bench_replays(&call) : 1;
    const double needed = (double)count * (double)bench_measure_memory(&call);
    const double limit = bench_memory_limit(&s->plan);
    result->mebibytes = (double)bench_call_memory(&call) / 0x1p20;
    if (needed > limit) {
        snprintf(why, why_size, "with the copy it takes %.1f GiB; 60 %% of the free memory are %.1f GiB",
                 needed / 0x1p30, limit / 0x1p30);
        result->skipped = why;
        return 0;
    }
    return measure_calls(s, c, count, result);
}

static int measure_all(const session *s, const bench_list *list)
{
    char table[BENCH_NAME] = "", name[BENCH_NAME], why[160];
    int row = 0;
    progress bar = progress_begin(list->count);
    for (size_t i = 0; i < list->count; i++) {
        const bench_case *c = &list->cases[i];
        bench_result result;
        show_progress(&bar, c, i);
        const int status = measure_case(s, c, why, sizeof why, &result);
        progress_clear(&bar);
        if (status != 0)
            return status;
        bench_case_name(c, name);
        row = strcmp(name, table) == 0 ? row + 1 : 0;
        if (row == 0)
            bench_print_title(stdout, c, i == 0);
        memcpy(table, name, sizeof table);
        bench_print_row(stdout, c, row, &result);
        if (fflush(stdout) != 0)
            return 0; /* the command's end says so */
        if (s->json != NULL && bench_json_add(s->json, c, &result) != 0)
            return complain(EXIT_FAILED, "no memory for the results");
    }
    return 0;
}

/* On a terminal: how long it takes, and how to ask for less. */
static void announce(const session *s, const bench_request *r, const bench_list *list)
{
    char duration[32];
    const double seconds = terminal_shows(stderr) ? bench_estimate(&s->plan, list) : -1;
    if (seconds < 0)
        return;
    terminal_duration(seconds, duration, sizeof duration);
    fprintf(stderr, "This takes about %s for %zu %s. Less: %sone OP, --mode forward, or one length by --n 1024.\n",
            duration, list->count, list->count == 1 ? "case" : "cases", r->wish.quick ? "" : "--quick, ");
}

static int measure_list(session *s, const bench_request *r, const bench_list *list)
{
    char summary[256];
    if (copes_device_summary(r->device, summary, sizeof summary) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    s->json = r->json != NULL ? bench_json_create(summary) : NULL;
    if (r->json != NULL && s->json == NULL)
        return complain(EXIT_FAILED, "no memory for the results");
    announce(s, r, list);
    printf("%s\n\n", summary);
    int status = measure_all(s, list);
    if (status == 0 && s->json != NULL)
        status = bench_json_save(s->json, r->json);
    bench_json_free(s->json);
    return status;
}

static copes_status explain_call(copes_context *context, const copes_op *op, const copes_args *args)
{
    char text[1024];
    const copes_status status = copes_explain(context, op, args, text, sizeof text);
    if (status == COPES_OK)
        printf("%s", text);
    return status;
}

/* The plan of each call, as if its tensors began at multiples of 16 bytes. */
static int explain_list(copes_context *context, const bench_request *r, const bench_list *list)
{
    char name[BENCH_NAME];
    for (size_t i = 0; i < list->count; i++) {
        const bench_case *c = &list->cases[i];
        bench_call call;
        if (bench_call_plan(&call, c, context, r->device) != COPES_OK)
            return complain(EXIT_FAILED, "%s", copes_last_error());
        bench_case_name(c, name);
        printf("%s%s, n %lld\n", i > 0 ? "\n" : "", name, (long long)c->n);
        if ((call.first_too && explain_call(context, &call.op, &call.first) != COPES_OK) ||
            explain_call(context, &call.op, &call.args) != COPES_OK)
            return complain(EXIT_FAILED, "%s", copes_last_error());
    }
    return 0;
}

static int explain_request(const bench_request *r)
{
    copes_context *context;
    bench_list list;
    int status;
    if (copes_context_create(r->device, NULL, &context) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    bench_list_make(&list, &r->wish);
    if (list.failed)
        status = complain(EXIT_FAILED, "no memory for the list of cases");
    else
        status = explain_list(context, r, &list);
    bench_list_free(&list);
    copes_context_destroy(context);
    return status;
}

static int run_request(const bench_request *r)
{
    session s = {.plan = {.device = bench_device_of(r->device.device_type),
                          .id = r->device,
                          .budget_ms = r->wish.quick ? 100 : 500,
                          .replay = r->replay}};
    copes_context_options options = {.threads = 0};
    bench_list list;
    if (s.plan.device == NULL || device_memory_of(r->device.device_type) == NULL)
        return complain(EXIT_FAILED, "this build cannot time that device");
    if (r->replay && !s.plan.device->replays)
        return complain(EXIT_USAGE, "--replay is for GPUs; that device has nothing to record a call with");
    if (r->json != NULL && bench_json_try(r->json) != 0)
        return EXIT_FAILED;
    s.plan.state = s.plan.device->open(r->device.device_id, &options);
    if (s.plan.state == NULL)
        return complain(EXIT_FAILED, "the device could not be opened");
    int status;
    bench_list_make(&list, &r->wish);
    if (list.failed)
        status = complain(EXIT_FAILED, "no memory for the list of cases");
    else if (copes_context_create(r->device, &options, &s.plan.context) != COPES_OK)
        status = complain(EXIT_FAILED, "%s", copes_last_error());
    else
        status = measure_list(&s, r, &list);
    copes_context_destroy(s.plan.context);
    bench_list_free(&list);
    s.plan.device->close(s.plan.state);
    return status;
}

int command_bench(int argc, char **argv)
{
    bench_request r;
    if (!bench_request_read(argc, argv, &r))
        return EXIT_USAGE;
    if (r.help) {
        help_bench(stdout, NULL);
        return 0;
    }
    return r.explain ? explain_request(&r) : run_request(&r);
}

int command_explain(int argc, char **argv)
{
    bench_request r;
    if (!bench_request_read(argc, argv, &r))
        return EXIT_USAGE;
    if (r.help) {
        help_explain(stdout, NULL);
        return 0;
    }
    return explain_request(&r);
}
