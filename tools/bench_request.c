/* Reading the flags of `copes bench`, which `copes explain` has, too. */
#include "tools/bench_request.h"

#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/suggest.h"

#include <string.h>

const char bench_request_help[] =
    "  --device D                       cpu, cuda, hip, or cuda:1 for a second one; default cpu\n"
    "  --mode forward|backward|both     default both\n"
    "  --n N[,N...]                     tokens; tpa_decode: length of the cache; default 256, 512 .. 32768\n"
    "  --batch B --head H --dim D       default 12, 12, 128; tpa_decode 8 and 32, 32, 128\n"
    "  --dtype f64|f32|f16|bf16         default bf16\n"
    "  --act none|relu|sigmoid|silu|softmax   only this one; softmax over the features and over the tokens\n"
    "  --mask                           of act relu: the forward writes a mask of bits, which the backward reads in place of x\n"
    "  --from-output                    of act's backward, relu and sigmoid: it reads the forward's output in place of x\n"
    "  --pass first|second|each         of softmax whose axis lies in shares: the sums of one, the result from those of all, or\n"
    "                                   a call for each, one after the other\n"
    "  --ranks RQ,RK,RV                 of tpa_decode's queries, keys and values; default 16,1,1\n"
    "  --grid N[,N...]                  a position grid, in place of --n\n"
    "  --prefix L                       tokens before the grid; default 0, and 10 for md_lrpe_cosine\n"
    "  --one-theta                      of rotate and cosine: one theta for all heads, not one for each\n"
    "  --positions                      of lrpe_rotate and lrpe_cosine: an int64 tensor of them, not a grid\n"
    "  --interleaved                    of lrpe_rotate and qk_norm_rope: neighbouring features are pairs, not one of each half\n"
    "  --rotary-dim R                   of lrpe_rotate and qk_norm_rope: features of a head that turn; default all\n"
    "  --in-place                       of lrpe_rotate without activation: the result replaces x, or in the backward grad_o\n"
    "  --grad-theta                     of the encodings' backward: theta's gradient, too\n"
    "qk_norm_rope alone; default are several kinds of 256 and 16 sequences of 1 token, of 8 of 256, 4 of 8192 and 1 of 65536:\n"
    "  --kv-head Hk                     heads of the keys; default 8\n"
    "  --norm none|head|all_heads       over what the mean of squares is\n"
    "  --cache none|same|float8         keys and values go to a paged cache of the same type, or of float8\n"
    "  --grad-weights                   of the backward: the gradients of the norms' weights, too\n"
    "attention_merge alone, of one sequence with 32 heads:\n"
    "  --shares S                       default 2, 4 and 8\n";

void operators_of_bench(words_visitor *visit, void *to)
{
    for (int i = 0; i < BENCH_OPERATORS; i++)
        visit(to, bench_operator_name((bench_operator)i));
}

static bool want(bench_wish *wish, const char *name)
{
    for (int i = 0; i < BENCH_OPERATORS; i++)
        if (strcmp(bench_operator_name((bench_operator)i), name) == 0)
            return wish->wanted[i] = wish->any_wanted = true;
    suggestion nearest = suggest_for(name);
    operators_of_bench(suggest_offer, &nearest);
    complain(EXIT_USAGE,
             "\"%s\" is not an operator; it must be act, lrpe_rotate, lrpe_cosine, md_lrpe_cosine, tpa_decode, "
             "qk_norm_rope or attention_merge%s",
             name, suggest_text(&nearest, ""));
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

static bool read_pass(arguments *walk, bench_wish *wish)
{
    static const bench_pass passes[] = {BENCH_PASS_FIRST, BENCH_PASS_SECOND, BENCH_PASS_EACH};
    int32_t index;
    if (!arguments_choice(walk, "first|second|each", &index))
        return false;
    wish->pass = passes[index];
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

static bool read_flag(arguments *walk, bench_request *r)
{
    bench_wish *wish = &r->wish;
    const struct {
        const char *name;
        int64_t *value;
        int64_t low;
    } numbers[] = {{"batch", &wish->batch, 1},          {"head", &wish->head, 1}, {"kv-head", &wish->kv_head, 1},
                   {"shares", &wish->shares, 1},        {"dim", &wish->dim, 1},   {"prefix", &wish->prefix, 0},
                   {"rotary-dim", &wish->rotary_dim, 2}};
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
    if (strcmp(walk->flag, "pass") == 0)
        return read_pass(walk, wish);
    if (strcmp(walk->flag, "norm") == 0)
        return arguments_choice(walk, "none|head|all_heads", &wish->norm);
    if (strcmp(walk->flag, "cache") == 0)
        return arguments_choice(walk, "none|same|float8", &wish->cache);
    if (strcmp(walk->flag, "ranks") == 0)
        return read_ranks(walk, wish);
    if (strcmp(walk->flag, "grid") == 0)
        return read_grid(walk, wish);
    if (strcmp(walk->flag, "json") == 0)
        return (r->json = arguments_value(walk)) != NULL;
    bool *const yes = strcmp(walk->flag, "quick") == 0          ? &wish->quick
                      : strcmp(walk->flag, "mask") == 0         ? &wish->mask
                      : strcmp(walk->flag, "from-output") == 0  ? &wish->from_output
                      : strcmp(walk->flag, "one-theta") == 0    ? &wish->one_theta
                      : strcmp(walk->flag, "positions") == 0    ? &wish->positions
                      : strcmp(walk->flag, "in-place") == 0     ? &wish->in_place
                      : strcmp(walk->flag, "interleaved") == 0  ? &wish->interleaved
                      : strcmp(walk->flag, "grad-theta") == 0   ? &wish->grad_theta
                      : strcmp(walk->flag, "grad-weights") == 0 ? &wish->grad_weights
                      : strcmp(walk->flag, "replay") == 0       ? &r->replay
                      : strcmp(walk->flag, "explain") == 0      ? &r->explain
                      : strcmp(walk->flag, "help") == 0         ? &r->help
                                                                : NULL;
    if (yes != NULL)
        return *yes = arguments_no_value(walk);
    suggestion nearest = suggest_for(walk->flag);
    suggest_flags(&nearest, help_bench, NULL);
    complain(EXIT_USAGE, "--%s is not a flag of `copes bench`; `copes bench --help` lists those it has%s", walk->flag,
             suggest_text(&nearest, "--"));
    return false;
}

/* Flags that exclude each other. */
static bool check_pairs(const bench_wish *wish)
{
    const struct {
        bool both;
        const char *message;
    } pairs[] = {
        {wish->grid_rank > 0 && wish->n_count > 0, "--grid and --n exclude each other"},
        {wish->positions && wish->grid_rank > 0, "--positions and --grid exclude each other"},
        {wish->positions && wish->prefix >= 0, "--positions and --prefix exclude each other"},
        {wish->in_place && wish->act > 0, "--in-place takes no activation, which would change what is timed again"},
        {wish->pass != BENCH_PASS_NONE && wish->act >= 0 && wish->act != COPES_ACT_SOFTMAX,
         "--pass is of softmax, and --act is another"},
        {wish->mask && wish->act >= 0 && wish->act != COPES_ACT_RELU, "--mask is of relu, and --act is another"},
        {wish->from_output && wish->act >= 0 && wish->act != COPES_ACT_RELU && wish->act != COPES_ACT_SIGMOID,
         "--from-output is of relu and sigmoid, and --act is another"},
        {wish->from_output && !wish->backward, "--from-output is of the backward, and --mode is forward"},
        {wish->mask && wish->from_output, "--mask and --from-output exclude each other"},
        {(wish->mask || wish->from_output) && wish->pass != BENCH_PASS_NONE,
         "--pass is of softmax, and --mask and --from-output are of others"},
        {wish->pass != BENCH_PASS_NONE && wish->in_place, "--pass and --in-place exclude each other"},
        {wish->pass == BENCH_PASS_FIRST && wish->grad_theta, "--pass first and --grad-theta exclude each other"},
        {wish->pass == BENCH_PASS_EACH && wish->grad_theta, "--pass each and --grad-theta exclude each other"},
        {wish->grad_theta && !wish->backward, "--grad-theta is of the backward, and --mode is forward"},
        {wish->wanted[BENCH_TPA] && !wish->forward, "tpa_decode has no backward"},
        {wish->grad_weights && !wish->backward, "--grad-weights is of the backward, and --mode is forward"},
        {wish->grad_weights && wish->norm == BENCH_NORM_NONE, "--grad-weights and --norm none exclude each other"},
        {wish->grad_weights && wish->cache > 0, "--grad-weights is of the backward, and --cache of the forward"},
        {wish->cache > 0 && !wish->forward, "--cache is of the forward, and --mode is backward"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].both) {
            complain(EXIT_USAGE, "%s", pairs[i].message);
            return false;
        }
    return true;
}

/* Flags that say nothing of an operator that is asked for. */
static bool check_operators(const bench_wish *wish)
{
    for (int op = 0; op < BENCH_OPERATORS; op++) {
        const char *flag = "ranks";
        if (wish->wanted[op] &&
            ((op != BENCH_TPA && wish->ranks[0] > 0) || !bench_operator_takes((bench_operator)op, wish, &flag))) {
            complain(EXIT_USAGE, "%s takes no --%s", bench_operator_name((bench_operator)op), flag);
            return false;
        }
    }
    return true;
}

bool bench_request_read(int argc, char **argv, bench_request *r)
{
    *r = (bench_request){.device = {kDLCPU, 0},
                         .wish = {.forward = true,
                                  .backward = true,
                                  .prefix = -1,
                                  .act = -1,
                                  .norm = -1,
                                  .cache = -1,
                                  .type = CHECK_BF16}};
    arguments walk = arguments_begin(argc, argv);
    for (arguments_kind kind = arguments_next(&walk); kind != ARGUMENTS_END; kind = arguments_next(&walk))
        if (!(kind == ARGUMENTS_WORD ? want(&r->wish, walk.word) : read_flag(&walk, r)))
            return false;
    return r->help || (check_operators(&r->wish) && check_pairs(&r->wish));
}
