/* The cases of act: every activation, type, rank, axis and layout, ragged sizes, values that break kernels. */
#include "tests/harness/case.h"
#include "tests/harness/random.h"

#include <string.h>

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

/* A shape with its layouts. */
typedef struct form {
    int rank;
    int64_t shape[COPES_MAX_RANK];
    check_layout in, out;
    bool mixed, in_place;
} form;

static const form forms[] = {
    {1, {1}, CHECK_COMPACT, CHECK_COMPACT, false, false},
    {1, {3}, CHECK_ODD, CHECK_ODD, false, false},
    {1, {127}, CHECK_DENSE, CHECK_DENSE, false, true},
    {1, {129}, CHECK_STRIDED, CHECK_NEGATIVE, false, false},
    {2, {3, 129}, CHECK_SWAPPED, CHECK_DENSE, false, false},
    {2, {17, 31}, CHECK_PADDED, CHECK_PADDED, false, true},
    {2, {5, 64}, CHECK_BROADCAST, CHECK_COMPACT, false, false},
    {3, {3, 1, 127}, CHECK_NEGATIVE, CHECK_REVERSED, false, false},
    {3, {5, 7, 11}, CHECK_REVERSED, CHECK_REVERSED, false, true},
    {4, {2, 5, 3, 16}, CHECK_SWAPPED, CHECK_SWAPPED, false, false},
    {4, {2, 3, 4, 33}, CHECK_DENSE, CHECK_STRIDED, true, false},
    {5, {2, 3, 1, 5, 7}, CHECK_SWAPPED, CHECK_ODD, true, true},
    {8, {2, 1, 3, 2, 1, 2, 3, 5}, CHECK_REVERSED, CHECK_PADDED, true, false},
    {1, {2503}, CHECK_STRIDED, CHECK_DENSE, false, false},
    {3, {2, 9, 151}, CHECK_DENSE, CHECK_PADDED, false, false},
    {1, {0}, CHECK_COMPACT, CHECK_COMPACT, false, false},
    {3, {3, 0, 2}, CHECK_DENSE, CHECK_DENSE, false, true},
};

static check_case form_case(const form *f, copes_kind kind, copes_act act, int dim, check_type type)
{
    check_case c = {.family = "act", .type = type, .rank = f->rank, .in_layout = f->in, .out_layout = f->out};
    c.op.kind = kind;
    c.op.act = (copes_act_attributes){.act = act, .dim = dim};
    memcpy(c.shape, f->shape, sizeof c.shape);
    c.mixed = f->mixed;
    c.in_place = f->in_place;
    return c;
}

static void add(case_list *list, check_case c)
{
    c.seed = list->count + 1;
    case_list_add(list, &c);
}

/* A softmax in shares: each pass alone. */
static void add_passes(case_list *list, check_case c)
{
    for (int passes = CHECK_SUMS; passes <= CHECK_APPLY; passes++) {
        c.passes = (check_passes)passes;
        c.in_place = c.in_place && passes == CHECK_APPLY;
        add(list, c);
    }
}

/* Of every shape and axis, of values that break kernels, of rows and columns too long for a cache, and of rows enough to fill a GPU. */
static void add_shares(case_list *list, copes_kind kind, check_type type)
{
    static const form rows = {2, {67, 5}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form long_rows = {2, {3, 30011}, CHECK_DENSE, CHECK_PADDED, false, false};
    static const form many_rows = {2, {1100, 1041}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form columns = {3, {2, 3001, 13}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form vectors = {4, {2, 1025, 3, 64}, CHECK_DENSE, CHECK_DENSE, false, false};
    /* 100 vectors of 16 bytes, which a GPU's lanes hold, 4 each. */
    const form wide = {2, {37, type == CHECK_F32 ? 400 : 800}, CHECK_DENSE, CHECK_DENSE, false, false};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        for (int dim = -forms[i].rank; dim < 0; dim++) {
            add_passes(list, form_case(&forms[i], kind, COPES_ACT_SOFTMAX, dim, type));
        }
    }
    for (int fill = CHECK_NORMAL + 1; fill < CHECK_FILLS; fill++) {
        for (int dim = -2; dim < 0; dim++) {
            check_case c = form_case(&rows, kind, COPES_ACT_SOFTMAX, dim, type);
            c.fill = (check_fill)fill;
            if (check_makes_sense(&c)) {
                add_passes(list, c);
            }
        }
    }
    add_passes(list, form_case(&long_rows, kind, COPES_ACT_SOFTMAX, -1, type));
    add_passes(list, form_case(&many_rows, kind, COPES_ACT_SOFTMAX, -1, type));
    add_passes(list, form_case(&columns, kind, COPES_ACT_SOFTMAX, -2, type));
    add_passes(list, form_case(&vectors, kind, COPES_ACT_SOFTMAX, -3, type));
    add_passes(list, form_case(&wide, kind, COPES_ACT_SOFTMAX, -1, type));
}

static void add_fills(case_list *list, copes_kind kind, copes_act act, check_type type)
{
    static const form row = {1, {257}, CHECK_DENSE, CHECK_DENSE, false, false};
    /* Rows of 5 go through a CPU's buffers; those of 64 its registers hold. */
    static const form rows[] = {{2, {67, 5}, CHECK_DENSE, CHECK_DENSE, false, false},
                                {2, {67, 64}, CHECK_DENSE, CHECK_DENSE, false, false}};
    const bool softmax = act == COPES_ACT_SOFTMAX;
    for (int fill = CHECK_NORMAL + 1; fill < CHECK_FILLS; fill++) {
        for (int i = 0; i < (softmax ? 2 : 1); i++) {
            check_case c = form_case(softmax ? &rows[i] : &row, kind, act, -1, type);
            c.fill = (check_fill)fill;
            if (check_makes_sense(&c)) {
                add(list, c);
            }
        }
    }
}

/* Every number of 16 bits, or a million others, and for gradients eight times over with others. */
static void add_every(case_list *list, copes_kind kind, copes_act act, check_type type)
{
    static const form all = {1, {1 << 16}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form many = {1, {1000003}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form repeated = {2, {8, 1 << 16}, CHECK_DENSE, CHECK_DENSE, false, false};
    const bool is_short = type == CHECK_F16 || type == CHECK_BF16;
    check_case c = form_case(is_short ? &all : &many, kind, act, 0, type);
    c.fill = CHECK_EVERY;
    add(list, c);
    if (kind == COPES_ACT_BACKWARD) {
        c = form_case(&repeated, kind, act, 0, type);
        c.fill = CHECK_EVERY;
        c.any_gradient = true;
        add(list, c);
    }
}

/* Long enough to be shared between threads, and for statistics to be kept along the way. */
static void add_long(case_list *list, copes_kind kind, copes_act act, check_type type)
{
    static const form row = {1, {100003}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form short_rows = {2, {1009, 67}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form long_rows = {2, {3, 30011}, CHECK_DENSE, CHECK_PADDED, false, false};
    static const form columns = {3, {2, 3001, 13}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form vectors = {3, {2, 3001, 64}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form stray_columns = {3, {2, 1024, 64}, CHECK_DENSE, CHECK_DENSE, false, false};
    if (act != COPES_ACT_SOFTMAX) {
        add(list, form_case(&row, kind, act, 0, type));
        return;
    }
    add(list, form_case(&short_rows, kind, act, -1, type));
    add(list, form_case(&long_rows, kind, act, 0, type));
    add(list, form_case(&columns, kind, act, -2, type));
    add(list, form_case(&vectors, kind, act, -2, type));
    for (int fill = CHECK_MASKED; fill <= CHECK_RISING && kind == COPES_ACT_FORWARD; fill++) {
        check_case rows = form_case(&long_rows, kind, act, 0, type), slabs = form_case(&columns, kind, act, -2, type);
        rows.fill = slabs.fill = (check_fill)fill;
        add(list, rows);
        add(list, slabs);
    }
    check_case strays = form_case(&stray_columns, kind, act, -2, type);
    strays.fill = CHECK_STRAY;
    add(list, strays);
}

/* Columns so long that many blocks of a GPU have to share a few, and enough of those for several shares in a row: with
 * normal values, and with those that they cannot agree on at first; more columns, of which they share wider ones; and
 * columns so long that the same blocks go on from one batch entry to the next forward, too. */
static void add_shared_by_many(case_list *list, copes_kind kind, check_type type)
{
    static const form slabs = {3, {3, 24001, 64}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form wide = {3, {2, 4099, 768}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form longer = {3, {2, 32771, 128}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const check_fill other[] = {[CHECK_F32] = CHECK_WIDE, [CHECK_F16] = CHECK_LARGE, [CHECK_BF16] = CHECK_WIDE};
    check_case c = form_case(&slabs, kind, COPES_ACT_SOFTMAX, -2, type);
    c.large = true;
    add(list, c);
    c.fill = other[type];
    add(list, c);
    c = form_case(&wide, kind, COPES_ACT_SOFTMAX, -2, type);
    c.large = true;
    add(list, c);
    c = form_case(&longer, kind, COPES_ACT_SOFTMAX, -2, type);
    c.large = true;
    add(list, c);
    add_passes(list, c);
}

static void add_all(case_list *list, copes_kind kind, copes_act act, check_type type)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const int first = act == COPES_ACT_SOFTMAX ? -forms[i].rank : 0;
        for (int dim = first; dim <= 0; dim += forms[i].rank > 4 ? 3 : 1) {
            add(list, form_case(&forms[i], kind, act, dim, type));
        }
    }
    add_fills(list, kind, act, type);
    if (act == COPES_ACT_SIGMOID || act == COPES_ACT_SILU) {
        add_every(list, kind, act, type);
    }
    if (type == CHECK_F32 || type == CHECK_BF16) {
        add_long(list, kind, act, type);
    }
    if (act == COPES_ACT_SOFTMAX && type != CHECK_F64) {
        add_shared_by_many(list, kind, type);
    }
}

/* Gradients from the forward's output, or a mask in either direction, of every shape and of values that break kernels. */
static void add_kept(case_list *list, copes_kind kind, copes_act act, check_kept kept, check_kept beside,
                     check_type type)
{
    static const form row = {1, {257}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form all = {2, {8, 1 << 16}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form long_row = {1, {100003}, CHECK_DENSE, CHECK_DENSE, false, false};
    check_case c;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        c = form_case(&forms[i], kind, act, 0, type);
        c.kept = i % 4 == 3 ? beside : kept;
        add(list, c);
    }
    for (int fill = CHECK_NORMAL + 1; fill < CHECK_FILLS; fill++) {
        c = form_case(&row, kind, act, 0, type);
        c.kept = kept;
        c.fill = (check_fill)fill;
        add(list, c);
    }
    c = form_case(&all, kind, act, 0, type);
    c.kept = kept;
    c.fill = CHECK_EVERY;
    c.any_gradient = kind == COPES_ACT_BACKWARD;
    add(list, c);
    c = form_case(&long_row, kind, act, 0, type);
    c.kept = kept;
    add(list, c);
}

/* Masks of rows of any number of bits, of rows that merge, which are whole bytes, and of those with gaps between them. */
static void add_masks(case_list *list, copes_kind kind, check_type type)
{
    static const int64_t lengths[] = {1, 7, 8, 9, 16, 40, 63, 64, 65, 200, 1025, 8200};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int layout = CHECK_DENSE; layout < CHECK_BROADCAST; layout++) {
            const form rows = {3,     {3, 5, lengths[i]}, (check_layout)layout, (check_layout)layout,
                               false, layout % 2 != 0};
            check_case c = form_case(&rows, kind, COPES_ACT_RELU, 0, type);
            c.kept = CHECK_KEPT_MASK;
            add(list, c);
        }
    }
}

/* Softmax over rows that threads of a GPU hold: in vectors, of each length that a number of threads, a power of two, has to itself, and of
 * one that 32 have twice as much of; from any element on; of what only a block holds; and of what only a cluster of blocks does, some of
 * which may then have nothing but masked elements. Last of what no cluster holds. */
static void add_rows(case_list *list, copes_kind kind, check_type type)
{
    static const int64_t lengths[] = {8, 16, 32, 56, 128, 248, 512, 800, 197, 577, 24000};
    static const form of_cluster = {2, {2, 70001}, CHECK_DENSE, CHECK_DENSE, false, false};
    static const form longest = {1, {1100003}, CHECK_DENSE, CHECK_DENSE, false, false};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const form rows = {2, {5, lengths[i]}, CHECK_DENSE, CHECK_DENSE, false, false};
        add(list, form_case(&rows, kind, COPES_ACT_SOFTMAX, -1, type));
    }
    for (int fill = CHECK_NORMAL; fill < CHECK_FILLS; fill++) {
        check_case c = form_case(&of_cluster, kind, COPES_ACT_SOFTMAX, -1, type);
        c.fill = (check_fill)fill;
        if (check_makes_sense(&c))
            add(list, c);
    }
    check_case c = form_case(&longest, kind, COPES_ACT_SOFTMAX, -1, type);
    c.large = true;
    add(list, c);
}

void check_act_table(case_list *list)
{
    for (int kind = COPES_ACT_FORWARD; kind <= COPES_ACT_BACKWARD; kind++) {
        for (int act = COPES_ACT_NONE; act <= COPES_ACT_SOFTMAX; act++) {
            for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
                add_all(list, (copes_kind)kind, (copes_act)act, float_types[t]);
            }
        }
    }
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        add_rows(list, COPES_ACT_FORWARD, float_types[t]);
        add_rows(list, COPES_ACT_BACKWARD, float_types[t]);
    }
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        add_shares(list, COPES_ACT_FORWARD, float_types[t]);
        add_shares(list, COPES_ACT_BACKWARD, float_types[t]);
    }
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        const check_type type = float_types[t];
        add_kept(list, COPES_ACT_BACKWARD, COPES_ACT_RELU, CHECK_KEPT_OUTPUT, CHECK_KEPT_BOTH, type);
        add_kept(list, COPES_ACT_BACKWARD, COPES_ACT_SIGMOID, CHECK_KEPT_OUTPUT, CHECK_KEPT_BOTH, type);
        add_kept(list, COPES_ACT_BACKWARD, COPES_ACT_RELU, CHECK_KEPT_MASK, CHECK_KEPT_ALL, type);
        add_kept(list, COPES_ACT_FORWARD, COPES_ACT_RELU, CHECK_KEPT_MASK, CHECK_KEPT_MASK, type);
        add_masks(list, COPES_ACT_BACKWARD, type);
        add_masks(list, COPES_ACT_FORWARD, type);
    }
}

check_case check_act_random(uint64_t seed)
{
    uint64_t state = seed;
    check_case c = {.family = "act", .seed = seed, .random = true};
    c.op.kind = check_random(&state) & 1 ? COPES_ACT_FORWARD : COPES_ACT_BACKWARD;
    c.type = float_types[check_below(&state, 4)];
    c.rank = 1 + (int)check_below(&state, 6);
    int64_t room = 8192;
    for (int i = c.rank - 1; i >= 0; i--) {
        int64_t most = i == c.rank - 1 ? 300 : 20;
        c.shape[i] = 1 + check_below(&state, room < most ? room : most);
        room /= c.shape[i];
    }
    c.op.act.act = (copes_act)check_below(&state, 5);
    c.op.act.dim = -(int32_t)check_below(&state, c.rank + 1);
    c.in_layout = (check_layout)check_below(&state, CHECK_LAYOUTS);
    c.out_layout = (check_layout)check_below(&state, CHECK_BROADCAST);
    c.mixed = check_random(&state) & 1;
    c.in_place = check_below(&state, 4) == 0;
    c.fill = check_random(&state) & 1 ? CHECK_NORMAL : (check_fill)check_below(&state, CHECK_DRAWN_FILLS);
    c.fill = check_makes_sense(&c) ? c.fill : CHECK_WIDE;
    check_draw_passes(&c, &state);
    check_draw_kept(&c, &state);
    return c;
}
