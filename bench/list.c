/* The list of cases: the published tables', narrowed or changed by what is asked for. */
#include "bench/case.h"

#include <stdlib.h>
#include <string.h>

void bench_list_add(bench_list *list, const bench_case *c)
{
    if (list->count == list->room) {
        const size_t room = list->room > 0 ? 2 * list->room : 64;
        bench_case *cases = realloc(list->cases, room * sizeof *cases);
        list->failed = list->failed || cases == NULL;
        if (cases == NULL)
            return;
        list->cases = cases;
        list->room = room;
    }
    list->cases[list->count++] = *c;
}

static void add_row(bench_list *list, bench_case c, int64_t n)
{
    c.n = n;
    for (int i = 0; i < c.grid_rank; i++)
        c.grid[i] = n;
    bench_list_add(list, &c);
}

/* One table: a row for each length from `first` to `last`, doubling, or for each length asked for. */
static void add_lengths(bench_list *list, const bench_wish *wish, bench_case c, int64_t first, int64_t last,
                        int64_t quick)
{
    if (wish->grid_rank > 0) {
        c.n = bench_case_tokens(&c) - c.prefix;
        bench_list_add(list, &c);
        return;
    }
    for (int i = 0; i < wish->n_count; i++)
        add_row(list, c, wish->n[i]);
    for (int64_t n = first; n <= last && wish->n_count == 0; n *= 2)
        if (!wish->quick || n == quick)
            add_row(list, c, n);
}

/* Both directions, as far as they are asked for. */
static void add_modes(bench_list *list, const bench_wish *wish, bench_case c, int64_t first, int64_t last,
                      int64_t quick)
{
    if (wish->forward && !wish->grad_theta && !wish->from_output)
        add_lengths(list, wish, c, first, last, quick);
    c.backward = true;
    if (wish->backward)
        add_lengths(list, wish, c, first, last, quick);
}

/* May softmax lie in shares? In the encodings over the sequence. */
static bool has_passes(const bench_case *c)
{
    return c->act == COPES_ACT_SOFTMAX && (c->op == BENCH_ACT || c->over_tokens);
}

/* May the backward have something else of the forward? */
static bool has_kept(const bench_wish *wish, const bench_case *c)
{
    return c->act == COPES_ACT_RELU || (c->act == COPES_ACT_SIGMOID && !wish->mask);
}

/* The activations of the published tables. */
static bool is_default(const bench_wish *wish, bench_operator op, copes_act act, bool over_tokens)
{
    if (op == BENCH_MD_COSINE || wish->in_place)
        return act == COPES_ACT_NONE;
    if (wish->quick && (op == BENCH_ACT ? act == COPES_ACT_NONE || act == COPES_ACT_SIGMOID : over_tokens))
        return false;
    return op == BENCH_ACT || (act != COPES_ACT_RELU && act != COPES_ACT_SIGMOID);
}

static void add_activations(bench_list *list, const bench_wish *wish, bench_case c, int64_t first, int64_t last,
                            int64_t quick)
{
    for (int i = COPES_ACT_NONE; i <= COPES_ACT_SOFTMAX + 1; i++) {
        c.over_tokens = i > COPES_ACT_SOFTMAX;
        c.act = c.over_tokens ? COPES_ACT_SOFTMAX : (copes_act)i;
        const bool asked = wish->act < 0 || wish->act == (int32_t)c.act;
        const bool wanted = c.pass != BENCH_PASS_NONE         ? has_passes(&c)
                            : wish->mask || wish->from_output ? asked && has_kept(wish, &c)
                            : wish->act >= 0                  ? asked
                                                              : is_default(wish, c.op, c.act, c.over_tokens);
        if (wanted)
            add_modes(list, wish, c, first, last, quick);
    }
}

/* Grids of one to three dimensions, without and with 10 tokens before them; a length asked for is that of one
 * dimension. */
static void add_grids(bench_list *list, const bench_wish *wish, bench_case c)
{
    static const struct {
        int64_t first, last, quick;
    } sides[] = {{256, 32768, 1024}, {16, 128, 32}, {4, 32, 16}};
    c.square = wish->grid_rank == 0;
    for (int rank = 1; rank <= 3; rank++) {
        if ((wish->grid_rank > 0 || wish->n_count > 0) && rank > 1)
            break;
        if (wish->quick && wish->n_count == 0 && wish->grid_rank == 0 && rank != 2)
            continue;
        if (c.square)
            c.grid_rank = rank;
        for (int64_t prefix = 0; prefix <= 10; prefix += 10) {
            c.prefix = wish->prefix >= 0 ? wish->prefix : prefix;
            if (prefix == 0 || (wish->prefix < 0 && !wish->quick))
                add_activations(list, wish, c, sides[rank - 1].first, sides[rank - 1].last, sides[rank - 1].quick);
        }
    }
}

static void add_tpa(bench_list *list, const bench_wish *wish, bench_case c)
{
    static const int64_t published[BENCH_RANKS] = {16, 1, 1};
    memcpy(c.ranks, wish->ranks[0] > 0 ? wish->ranks : published, sizeof c.ranks);
    c.head = wish->head > 0 ? wish->head : 32;
    for (int64_t batch = 8; batch <= 32 && wish->forward; batch += 24) {
        c.batch = wish->batch > 0 ? wish->batch : batch;
        if (batch == 8 || (wish->batch == 0 && !wish->quick))
            add_lengths(list, wish, c, 256, 32768, 4096);
    }
}

/* Of one sequence, as long as a prompt's or as many sequences' decoding steps. */
static void add_merge(bench_list *list, const bench_wish *wish, bench_case c)
{
    c.batch = wish->batch > 0 ? wish->batch : 1;
    c.head = wish->head > 0 ? wish->head : 32;
    for (int64_t shares = 2; shares <= 8; shares *= 2) {
        c.shares = wish->shares > 0 ? wish->shares : shares;
        if (shares == 2 || wish->shares == 0)
            add_modes(list, wish, c, 256, 32768, 1024);
    }
}

void bench_list_make(bench_list *list, const bench_wish *wish)
{
    *list = (bench_list){.cases = NULL};
    for (int i = 0; i < BENCH_OPERATORS; i++) {
        const char *flag;
        if (wish->any_wanted ? !wish->wanted[i] : !bench_operator_takes((bench_operator)i, wish, &flag))
            continue;
        bench_case c = {.op = (bench_operator)i,
                        .batch = wish->batch > 0 ? wish->batch : 12,
                        .head = wish->head > 0 ? wish->head : 12,
                        .dim = wish->dim > 0 ? wish->dim : 128,
                        .prefix = wish->prefix > 0 ? wish->prefix : 0,
                        .grid_rank = wish->grid_rank,
                        .pass = wish->pass,
                        .mask = wish->mask,
                        .from_output = wish->from_output,
                        .one_theta = wish->one_theta,
                        .positions = wish->positions,
                        .in_place = wish->in_place,
                        .interleaved = wish->interleaved,
                        .rotary_dim = wish->rotary_dim,
                        .grad_theta = wish->grad_theta,
                        .type = wish->type};
        for (int j = 0; j < wish->grid_rank; j++)
            c.grid[j] = wish->grid[j];
        if (i == BENCH_MD_COSINE)
            add_grids(list, wish, c);
        else if (i == BENCH_TPA)
            add_tpa(list, wish, c);
        else if (i == BENCH_QK)
            bench_list_add_qk(list, wish, c);
        else if (i == BENCH_MERGE)
            add_merge(list, wish, c);
        else
            add_activations(list, wish, c, 256, 32768, 1024);
    }
}

void bench_list_free(bench_list *list)
{
    free(list->cases);
    *list = (bench_list){.cases = NULL};
}
