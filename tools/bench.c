/* copes bench: times the operators beside a copy of as many bytes, and prints tables. */
#include "tools/bench.h"
#include "bench/print.h"
#include "tools/arguments.h"
#include "tools/commands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: copes bench [OP ...] [FLAG ...]\n"
    "\n"
    "Times operators and prints for each case the median in ms, GB/s, the share of the rate of a copy that moves as many\n"
    "bytes in the same run, and the memory of the call in MiB; for tpa_decode also the share of the peak rate of\n"
    "multiply-adds. OP is one or more of act, lrpe_rotate, lrpe_cosine, md_lrpe_cosine and tpa_decode; all if left out.\n"
    "Cases that take more than 60 % of the free memory are skipped.\n"
    "  --device D                       cpu, cuda, hip, or cuda:1 for a second one; default cpu\n"
    "  --mode forward|backward|both     default both\n"
    "  --n N[,N...]                     tokens; tpa_decode: length of the cache; default 256, 512 .. 32768\n"
    "  --batch B --head H --dim D       default 12, 12, 128; tpa_decode 8 and 32, 32, 128\n"
    "  --dtype f64|f32|f16|bf16         default bf16\n"
    "  --act none|relu|sigmoid|silu|softmax   only this one; softmax over the features and over the tokens\n"
    "  --ranks RQ,RK,RV                 of tpa_decode's queries, keys and values; default 16,1,1\n"
    "  --grid N[,N...]                  a position grid, in place of --n\n"
    "  --prefix L                       tokens before the grid; default 0, and 10 for md_lrpe_cosine\n"
    "  --one-theta                      of rotate and cosine: one theta for all heads, not one for each\n"
    "  --replay                         the time of a call in a graph of many that is recorded and replayed (GPUs)\n"
    "  --quick                          one length of a few cases, in less than 20 seconds\n"
    "  --json FILE                      also write the results as JSON\n";

/* What the command line asks for. */
typedef struct request {
    bench_wish wish;
    DLDevice device;
    const char *json;
    bool replay, help;
} request;

/* What a run carries from case to case. */
typedef struct session {
    const bench_device *device;
    void *state;
    copes_context *context;
    DLDevice id;
    double budget_ms;
    bool replay;
    bench_json *json;
} session;

static bool want(bench_wish *wish, const char *name)
{
    for (int i = 0; i < BENCH_OPERATORS; i++)
        if (strcmp(bench_operator_name((bench_operator)i), name) == 0)
            return wish->wanted[i] = wish->any_wanted = true;
    complain(EXIT_USAGE,
             "\"%s\" is not an operator; it must be act, lrpe_rotate, lrpe_cosine, md_lrpe_cosine or tpa_decode", name);
    return false;
}

static bool read_mode(arguments *walk, bench_wish *wish)
{
    int32_t mode;
    if (!arguments_choice(walk, "forward|backward|both", &mode))
        return false;
    wish->forward = mode != 1;
    wish->backward = mode != 0;
    return true;
}

static bool read_dtype(arguments *walk, bench_wish *wish)
{
    static const check_type types[] = {CHECK_F64, CHECK_F32, CHECK_F16, CHECK_BF16};
    int32_t index;
    if (!arguments_choice(walk, "f64|f32|f16|bf16", &index))
        return false;
    wish->type = types[index];
    return true;
}

/* At most 2^31 - 1 positions, so that they exist and every size below fits 63 bits or is refused by the library. */
static bool read_grid(arguments *walk, bench_wish *wish)
{
    if (!arguments_integers(walk, 1, INT32_MAX, wish->grid, COPES_MAX_GRID, &wish->grid_rank))
        return false;
    int64_t positions = 1;
    for (int i = 0; i < wish->grid_rank && positions <= INT32_MAX; i++)
        positions *= wish->grid[i];
    if (positions <= INT32_MAX)
        return true;
    complain(EXIT_USAGE, "--grid multiplies to more than %d positions", INT32_MAX);
    return false;
}

static bool read_ranks(arguments *walk, bench_wish *wish)
{
    int count;
    if (!arguments_integers(walk, 1, INT32_MAX, wish->ranks, BENCH_RANKS, &count))
        return false;
    if (count == BENCH_RANKS)
        return true;
    complain(EXIT_USAGE, "--ranks has %d integers; it must have 3, of queries, keys and values", count);
    return false;
}

static bool read_flag(arguments *walk, request *r)
{
    bench_wish *wish = &r->wish;
    const struct {
        const char *name;
        int64_t *value;
        int64_t low;
    } numbers[] = {{"batch", &wish->batch, 1},
                   {"head", &wish->head, 1},
                   {"dim", &wish->dim, 1},
                   {"prefix", &wish->prefix, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(walk->flag, numbers[i].name) == 0)
            return arguments_integer(walk, numbers[i].low, INT32_MAX, numbers[i].value);
    if (strcmp(walk->flag, "device") == 0)
        return arguments_device(walk, &r->device);
    if (strcmp(walk->flag, "mode") == 0)
        return read_mode(walk, wish);
    if (strcmp(walk->flag, "n") == 0)
        return arguments_integers(walk, 1, INT32_MAX, wish->n, BENCH_LENGTHS, &wish->n_count);
    if (strcmp(walk->flag, "dtype") == 0)
        return read_dtype(walk, wish);
    if (strcmp(walk->flag, "act") == 0)
        return arguments_choice(walk, "none|relu|sigmoid|silu|softmax", &wish->act);
    if (strcmp(walk->flag, "ranks") == 0)
        return read_ranks(walk, wish);
    if (strcmp(walk->flag, "grid") == 0)
        return read_grid(walk, wish);
    if (strcmp(walk->flag, "json") == 0)
        return (r->json = arguments_value(walk)) != NULL;
    bool *const yes = strcmp(walk->flag, "quick") == 0       ? &wish->quick
                      : strcmp(walk->flag, "one-theta") == 0 ? &wish->one_theta
                      : strcmp(walk->flag, "replay") == 0    ? &r->replay
                      : strcmp(walk->flag, "help") == 0      ? &r->help
                                                             : NULL;
    if (yes != NULL)
        return *yes = arguments_no_value(walk);
    complain(EXIT_USAGE, "--%s is not a flag of `copes bench`; `copes bench --help` lists those it has", walk->flag);
    return false;
}

/* Flags that say nothing of an operator that is asked for, or that contradict each other. */
static bool check_request(const bench_wish *wish)
{
    const struct {
        const char *flag;
        bool given, act;
    } flags[] = {{"grid", wish->grid_rank > 0, false},
                 {"prefix", wish->prefix >= 0, false},
                 {"one-theta", wish->one_theta, false},
                 {"act", wish->act >= 0, true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        for (int op = 0; op < BENCH_OPERATORS; op++)
            if (flags[i].given && wish->wanted[op] && (op == BENCH_TPA || (op == BENCH_ACT && !flags[i].act))) {
                complain(EXIT_USAGE, "%s takes no --%s", bench_operator_name((bench_operator)op), flags[i].flag);
                return false;
            }
    if (wish->grid_rank > 0 && wish->n_count > 0) {
        complain(EXIT_USAGE, "--grid and --n exclude each other");
        return false;
    }
    for (int op = 0; op < BENCH_TPA; op++)
        if (wish->ranks[0] > 0 && wish->wanted[op]) {
            complain(EXIT_USAGE, "%s takes no --ranks", bench_operator_name((bench_operator)op));
            return false;
        }
    if (wish->wanted[BENCH_TPA] && !wish->forward) {
        complain(EXIT_USAGE, "tpa_decode has no backward");
        return false;
    }
    return true;
}

static bool read_request(int argc, char **argv, request *r)
{
    *r = (request){.device = {kDLCPU, 0},
                   .wish = {.forward = true, .backward = true, .prefix = -1, .act = -1, .type = CHECK_BF16}};
    arguments walk = arguments_begin(argc, argv);
    for (arguments_kind kind = arguments_next(&walk); kind != ARGUMENTS_END; kind = arguments_next(&walk))
        if (!(kind == ARGUMENTS_WORD ? want(&r->wish, walk.word) : read_flag(&walk, r)))
            return false;
    return r->help || check_request(&r->wish);
}

/* On a terminal: which case is being measured, until its row is printed. */
static void show_progress(const bench_case *c, size_t index, size_t count)
{
    char name[BENCH_NAME];
    if (!isatty(STDERR_FILENO))
        return;
    bench_case_name(c, name);
    fprintf(stderr, "\r\033[K%zu of %zu: %s %lld", index + 1, count, name, (long long)c->n);
    fflush(stderr);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static int measure_calls(const session *s, const bench_case *c, int count, bench_result *result)
{
    const bench_calls calls = {calloc((size_t)count, sizeof *calls.calls), count, s->replay};
    bool done = calls.calls != NULL;
    for (int i = 0; i < count && done; i++)
        done = bench_call_plan(&calls.calls[i], c, s->context, s->id) == COPES_OK;
    done = done && bench_measure(s->device, s->state, &calls, s->budget_ms, result) == 0;
    free(calls.calls);
    return done ? 0 : complain(EXIT_FAILED, "the device failed or its memory ran out");
}

static int measure_case(const session *s, const bench_case *c, char *why, size_t why_size, bench_result *result)
{
    bench_call call;
    *result = (bench_result){.skipped = NULL};
    const copes_status status = bench_call_plan(&call, c, s->context, s->id);
    if (status == COPES_ERROR_SIZE) {
        result->skipped = "it has too many bytes to count";
        return 0;
    }
    if (status != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    const int count = s->replay ? bench_replays(&call) : 1;
    const double needed = (double)count * (double)bench_measure_memory(&call);
    const double limit = 0.6 * (double)s->device->free_memory(s->state);
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
    for (size_t i = 0; i < list->count; i++) {
        const bench_case *c = &list->cases[i];
        bench_result result;
        show_progress(c, i, list->count);
        const int status = measure_case(s, c, why, sizeof why, &result);
        clear_progress();
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

static int measure_list(session *s, const request *r, const bench_list *list)
{
    char summary[256];
    if (copes_device_summary(r->device, summary, sizeof summary) != COPES_OK)
        return complain(EXIT_FAILED, "%s", copes_last_error());
    s->json = r->json != NULL ? bench_json_create(summary) : NULL;
    if (r->json != NULL && s->json == NULL)
        return complain(EXIT_FAILED, "no memory for the results");
    printf("%s\n\n", summary);
    int status = measure_all(s, list);
    if (status == 0 && s->json != NULL)
        status = bench_json_save(s->json, r->json);
    bench_json_free(s->json);
    return status;
}

static int run_request(const request *r)
{
    session s = {.device = bench_device_of(r->device.device_type),
                 .id = r->device,
                 .budget_ms = r->wish.quick ? 100 : 500,
                 .replay = r->replay};
    copes_context_options options = {.threads = 0};
    bench_list list;
    if (s.device == NULL || device_memory_of(r->device.device_type) == NULL)
        return complain(EXIT_FAILED, "this build cannot time that device");
    if (r->replay && !s.device->replays)
        return complain(EXIT_USAGE, "--replay is for GPUs; that device has nothing to record a call with");
    if (r->json != NULL && bench_json_try(r->json) != 0)
        return EXIT_FAILED;
    s.state = s.device->open(r->device.device_id, &options);
    if (s.state == NULL)
        return complain(EXIT_FAILED, "the device could not be opened");
    int status;
    bench_list_make(&list, &r->wish);
    if (list.failed)
        status = complain(EXIT_FAILED, "no memory for the list of cases");
    else if (copes_context_create(r->device, &options, &s.context) != COPES_OK)
        status = complain(EXIT_FAILED, "%s", copes_last_error());
    else
        status = measure_list(&s, r, &list);
    copes_context_destroy(s.context);
    bench_list_free(&list);
    s.device->close(s.state);
    return status;
}

int command_bench(int argc, char **argv)
{
    request r;
    if (!read_request(argc, argv, &r))
        return EXIT_USAGE;
    return r.help ? fputs(help, stdout) < 0 : run_request(&r);
}
