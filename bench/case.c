/* Titles of cases, and what follows from a case's grid. */
#include "bench/case.h"

#include <stdio.h>
#include <stdlib.h>

const char *bench_operator_name(bench_operator op)
{
    static const char *const names[BENCH_OPERATORS] = {"act",        "lrpe_rotate",  "lrpe_cosine",    "md_lrpe_cosine",
                                                       "tpa_decode", "qk_norm_rope", "attention_merge"};
    return names[op];
}

const char *bench_act_name(copes_act act)
{
    static const char *const names[] = {"none", "relu", "sigmoid", "silu", "softmax"};
    return names[act];
}

const char *bench_norm_name(bench_norm norm)
{
    static const char *const names[] = {"none", "head", "all_heads"};
    return names[norm];
}

const char *bench_pass_name(bench_pass pass)
{
    static const char *const names[] = {"", "first", "second", "each"};
    return names[pass];
}

check_type bench_cache_type(const bench_case *c)
{
    return c->cache == BENCH_CACHE_FLOAT8 ? CHECK_F8 : c->type;
}

int64_t bench_case_tokens(const bench_case *c)
{
    int64_t tokens = c->grid_rank > 0 ? 1 : c->n;
    for (int i = 0; i < c->grid_rank; i++)
        tokens *= c->grid[i];
    return c->prefix + tokens;
}

bool bench_operator_takes(bench_operator op, const bench_wish *wish, const char **flag)
{
    enum {
        ACT = 1 << BENCH_ACT,
        ROTATE = 1 << BENCH_ROTATE,
        COSINE = 1 << BENCH_COSINE,
        GRIDS = 1 << BENCH_MD_COSINE,
        QK = 1 << BENCH_QK,
        MERGE = 1 << BENCH_MERGE
    };
    const struct {
        const char *flag;
        bool given;
        unsigned operators;
    } flags[] = {{"grid", wish->grid_rank > 0, ROTATE | COSINE | GRIDS},
                 {"prefix", wish->prefix >= 0, ROTATE | COSINE | GRIDS},
                 {"one-theta", wish->one_theta, ROTATE | COSINE | GRIDS},
                 {"grad-theta", wish->grad_theta, ROTATE | COSINE | GRIDS},
                 {"positions", wish->positions, ROTATE | COSINE | QK},
                 {"in-place", wish->in_place, ROTATE | QK},
                 {"interleaved", wish->interleaved, ROTATE | QK},
                 {"rotary-dim", wish->rotary_dim > 0, ROTATE | QK},
                 {"act", wish->act >= 0, ACT | ROTATE | COSINE | GRIDS},
                 {"mask", wish->mask, ACT},
                 {"from-output", wish->from_output, ACT},
                 {"pass", wish->pass != BENCH_PASS_NONE, ACT | ROTATE | COSINE},
                 {"kv-head", wish->kv_head > 0, QK},
                 {"norm", wish->norm >= 0, QK},
                 {"cache", wish->cache >= 0, QK},
                 {"grad-weights", wish->grad_weights, QK},
                 {"shares", wish->shares > 0, MERGE}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        *flag = flags[i].flag;
        if (flags[i].given && (flags[i].operators & 1U << op) == 0)
            return false;
    }
    return true;
}

/* The axis of softmax, as the published tables number it for each operator. */
static int softmax_dim(const bench_case *c)
{
    if (!c->over_tokens)
        return -1;
    return c->op == BENCH_ROTATE ? 1 : -2;
}

static void activation_text(const bench_case *c, char *text, size_t size)
{
    const bool silent =
        c->op == BENCH_TPA || c->op == BENCH_MERGE || (c->op == BENCH_MD_COSINE && c->act == COPES_ACT_NONE);
    if (c->op == BENCH_QK)
        snprintf(text, size, "-norm_%s", bench_norm_name(c->norm));
    else if (silent)
        text[0] = '\0';
    else if (c->act == COPES_ACT_SOFTMAX)
        snprintf(text, size, "-act_softmax-dim_%d%s%s", softmax_dim(c), c->pass == BENCH_PASS_NONE ? "" : "-pass_",
                 bench_pass_name(c->pass));
    else
        snprintf(text, size, "-act_%s%s%s", bench_act_name(c->act), c->mask ? "-mask" : "",
                 c->from_output ? "-from_output" : "");
}

int64_t bench_turned(const bench_case *c)
{
    return c->rotary_dim > 0 ? c->rotary_dim : c->dim;
}

static void grid_text(const bench_case *c, char *text, size_t size)
{
    int used = 0;
    text[0] = '\0';
    if (c->square)
        used = snprintf(text, size, "-%dd", (int)c->grid_rank);
    else
        for (int i = 0; i < c->grid_rank; i++)
            used += snprintf(text + used, size - (size_t)used, "%s%lld", i == 0 ? "-grid" : "x", (long long)c->grid[i]);
    if (c->op == BENCH_MD_COSINE || c->prefix > 0)
        used += snprintf(text + used, size - (size_t)used, "-l%lld", (long long)c->prefix);
    if (c->cache != BENCH_CACHE_NONE)
        used += snprintf(text + used, size - (size_t)used, "-cache_%s", check_type_of(bench_cache_type(c))->name);
    if (c->rotary_dim > 0)
        used += snprintf(text + used, size - (size_t)used, "-rotary%lld", (long long)c->rotary_dim);
    snprintf(text + used, size - (size_t)used, "%s%s%s%s%s%s", c->interleaved ? "-interleaved" : "",
             c->one_theta ? "-one_theta" : "", c->positions ? "-positions" : "", c->in_place ? "-in_place" : "",
             c->grad_theta ? "-grad_theta" : "", c->grad_weights ? "-grad_weights" : "");
}

/* Of the queries; of keys and values too, where they are not the published tables' 1. */
static void rank_text(const bench_case *c, char *text, size_t size)
{
    const long long q = (long long)c->ranks[0], k = (long long)c->ranks[1], v = (long long)c->ranks[2];
    if (k == 1 && v == 1)
        snprintf(text, size, "-rank%lld", q);
    else
        snprintf(text, size, "-rank%lldx%lldx%lld", q, k, v);
}

void bench_case_name(const bench_case *c, char name[BENCH_NAME])
{
    char activation[32], grid[112], rank[32] = "", keys[24] = "";
    activation_text(c, activation, sizeof activation);
    grid_text(c, grid, sizeof grid);
    if (c->op == BENCH_TPA)
        rank_text(c, rank, sizeof rank);
    if (c->op == BENCH_MERGE)
        snprintf(rank, sizeof rank, "-shares%lld", (long long)c->shares);
    if (c->op == BENCH_QK)
        snprintf(keys, sizeof keys, "+%lld", (long long)c->kv_head);
    snprintf(name, BENCH_NAME, "%s-speed-%s-batch%lld-head%lld%s-dim%lld%s%s-%s%s", bench_operator_name(c->op),
             c->backward ? "bwd" : "fwd", (long long)c->batch, (long long)c->head, keys, (long long)c->dim, activation,
             rank, check_type_of(c->type)->name, grid);
}
