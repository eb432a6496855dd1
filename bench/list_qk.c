/* The cases of qk_norm_rope, which are those that models meet: decoding, a chunk of a prompt, and long prompts. */
#include "bench/case.h"

typedef struct size {
    int64_t batch, n, head;
    bool inference; /* tokens at positions of their own, and no backward */
} size;

typedef struct kind {
    bench_norm norm;
    bench_cache cache;
    bool backward, grad_weights;
} kind;

static const size sizes[] = {{256, 1, 32, true},
                             {16, 1, 32, true},
                             {8, 256, 32, true},
                             {4, 8192, 32, false},
                             {1, 65536, 64, false}};
enum { SIZES = sizeof sizes / sizeof *sizes, QUICK = 2 }; /* QUICK: the only one of --quick */

/* With heads of 128, and those of them that other heads have, too. */
static const kind kinds[] = {{BENCH_NORM_NONE, BENCH_CACHE_NONE, false, false},
                             {BENCH_NORM_HEAD, BENCH_CACHE_NONE, false, false},
                             {BENCH_NORM_HEAD, BENCH_CACHE_SAME, false, false},
                             {BENCH_NORM_HEAD, BENCH_CACHE_FLOAT8, false, false},
                             {BENCH_NORM_NONE, BENCH_CACHE_NONE, true, false},
                             {BENCH_NORM_HEAD, BENCH_CACHE_NONE, true, false},
                             {BENCH_NORM_HEAD, BENCH_CACHE_NONE, true, true}};

static bool is_common(const kind *k)
{
    return k->cache == BENCH_CACHE_SAME || k->grad_weights;
}

static void add_kind(bench_list *list, const bench_wish *wish, bench_case c, const kind *k)
{
    if (k->backward ? !wish->backward : !wish->forward)
        return;
    c.norm = k->norm;
    c.cache = k->cache;
    c.backward = k->backward;
    c.grad_weights = k->grad_weights;
    bench_list_add(list, &c);
}

/* The kind that is asked for, in both directions; a cache is the forward's, weights' gradients are the backward's. */
static void add_wished(bench_list *list, const bench_wish *wish, bench_case c)
{
    kind k = {.norm = wish->norm >= 0 ? (bench_norm)wish->norm : BENCH_NORM_HEAD,
              .cache = wish->cache >= 0 ? (bench_cache)wish->cache : BENCH_CACHE_NONE};
    if (!wish->grad_weights)
        add_kind(list, wish, c, &k);
    k.backward = true;
    k.grad_weights = wish->grad_weights;
    if (k.cache == BENCH_CACHE_NONE)
        add_kind(list, wish, c, &k);
}

static void add_kinds(bench_list *list, const bench_wish *wish, bench_case c, bool inference)
{
    if (wish->norm >= 0 || wish->cache >= 0 || wish->grad_weights) {
        add_wished(list, wish, c);
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((c.dim == 128 || wish->dim > 0 || is_common(&kinds[i])) && !(kinds[i].backward && inference))
            add_kind(list, wish, c, &kinds[i]);
}

static void add_size(bench_list *list, const bench_wish *wish, bench_case c, const size *s)
{
    c.batch = s->batch;
    c.n = s->n;
    c.head = wish->head > 0 ? wish->head : s->head;
    c.kv_head = wish->kv_head > 0 ? wish->kv_head : 8;
    c.positions = wish->positions || s->inference;
    for (int64_t dim = 64; dim <= 512; dim *= 2) {
        c.dim = wish->dim > 0 ? wish->dim : dim;
        if (dim == 128 || (wish->dim == 0 && !wish->quick))
            add_kinds(list, wish, c, s->inference);
    }
}

void bench_list_add_qk(bench_list *list, const bench_wish *wish, bench_case c)
{
    const int64_t batch = wish->batch > 0 ? wish->batch : 4;
    if (wish->n_count == 0 && wish->batch > 0)
        add_size(list, wish, c, &(size){batch, 8192, 32, false});
    for (int i = 0; i < wish->n_count; i++)
        add_size(list, wish, c, &(size){batch, wish->n[i], 32, false});
    for (int i = 0; i < SIZES && wish->n_count == 0 && wish->batch == 0; i++)
        if (!wish->quick || i == QUICK)
            add_size(list, wish, c, &sizes[i]);
}
