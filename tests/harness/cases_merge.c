/* The cases of attention_merge: numbers of shares, empty ones, lse of every kind, layouts and ragged sizes in every type. */
#include "tests/harness/case.h"
#include "tests/harness/random.h"

#include <string.h>

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

typedef struct sketch {
    int64_t shape[5]; /* S, B, N, H, E */
    check_lse of_lse;
    bool lse, plain; /* lse: forward asked for, backward given. plain: the backward is of o alone */
    copes_log_base base;
    check_layout in, out;
    bool mixed;
    check_fill fill;
} sketch;

static const sketch sketches[] = {
    {.shape = {2, 2, 3, 4, 64}, .lse = true},
    {.shape = {2, 1, 1, 1, 1}},
    {.shape = {1, 2, 1, 3, 16}, .lse = true},
    {.shape = {3, 2, 1, 5, 128}, .lse = true, .base = COPES_LOG_BASE_2},
    {.shape = {4, 1, 2, 7, 96}, .plain = true},
    {.shape = {5, 2, 1, 3, 33}, .lse = true},
    {.shape = {8, 2, 1, 32, 128}, .lse = true},
    {.shape = {8, 1, 3, 5, 72}, .base = COPES_LOG_BASE_2, .plain = true},
    {.shape = {9, 1, 1, 6, 80}, .lse = true},
    {.shape = {17, 2, 1, 2, 24}, .lse = true, .of_lse = CHECK_LSE_EMPTY},
    {.shape = {300, 1, 1, 3, 16}, .lse = true},
    {.shape = {1000, 1, 1, 1, 9}, .lse = true, .of_lse = CHECK_LSE_EQUAL, .fill = CHECK_EQUAL},
    {.shape = {40000, 1, 1, 1, 2}, .lse = true},
    {.shape = {2, 3, 1, 8, 64}, .lse = true, .of_lse = CHECK_LSE_EMPTY},
    {.shape = {4, 3, 2, 8, 40}, .lse = true, .of_lse = CHECK_LSE_EMPTY, .base = COPES_LOG_BASE_2},
    {.shape = {3, 3, 2, 8, 19}, .lse = true, .of_lse = CHECK_LSE_ODD},
    {.shape = {6, 3, 2, 8, 64}, .lse = true, .of_lse = CHECK_LSE_ODD, .plain = true},
    {.shape = {4, 3, 2, 8, 32}, .lse = true, .of_lse = CHECK_LSE_APART},
    {.shape = {7, 3, 2, 8, 32}, .lse = true, .of_lse = CHECK_LSE_APART, .base = COPES_LOG_BASE_2},
    {.shape = {5, 3, 2, 8, 32}, .lse = true, .of_lse = CHECK_LSE_EXTREME},
    {.shape = {5, 3, 2, 8, 32}, .lse = true, .of_lse = CHECK_LSE_EXTREME, .base = COPES_LOG_BASE_2},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .of_lse = CHECK_LSE_EQUAL, .fill = CHECK_EQUAL},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .fill = CHECK_WIDE},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .fill = CHECK_SUBNORMAL},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .of_lse = CHECK_LSE_APART, .fill = CHECK_SPECIAL},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .of_lse = CHECK_LSE_EQUAL, .fill = CHECK_LARGE},
    {.shape = {4, 2, 2, 3, 64}, .lse = true, .fill = CHECK_FINITE},
    {.shape = {3, 2, 3, 4, 32}, .lse = true, .in = CHECK_SWAPPED, .out = CHECK_SWAPPED},
    {.shape = {3, 2, 3, 4, 32}, .lse = true, .in = CHECK_REVERSED, .out = CHECK_PADDED},
    {.shape = {3, 2, 3, 4, 32}, .lse = true, .in = CHECK_PADDED, .out = CHECK_NEGATIVE, .mixed = true},
    {.shape = {3, 2, 3, 4, 31}, .lse = true, .in = CHECK_NEGATIVE, .out = CHECK_STRIDED, .of_lse = CHECK_LSE_EMPTY},
    {.shape = {3, 2, 3, 4, 32}, .lse = true, .in = CHECK_STRIDED, .out = CHECK_REVERSED},
    {.shape = {6, 2, 3, 4, 40}, .lse = true, .in = CHECK_ODD, .out = CHECK_ODD},
    {.shape = {6, 2, 3, 4, 40}, .lse = true, .in = CHECK_BROADCAST, .out = CHECK_COMPACT},
    {.shape = {2, 1, 1, 3, 5000}, .lse = true},
    {.shape = {4, 1, 1, 2, 4096}, .lse = true, .base = COPES_LOG_BASE_2},
    {.shape = {4, 9, 1, 40, 128}, .lse = true},
    {.shape = {0, 2, 1, 3, 16}, .lse = true},
    {.shape = {3, 0, 1, 3, 16}, .lse = true},
    {.shape = {3, 2, 0, 3, 16}},
    {.shape = {3, 2, 1, 0, 16}, .lse = true},
    {.shape = {3, 2, 1, 3, 0}, .lse = true},
};

static check_case drawn(const sketch *s, check_type type, bool backward)
{
    check_case c = {.family = "attention_merge", .type = type, .rank = 5, .fill = s->fill};
    c.op.kind = backward ? COPES_ATTENTION_MERGE_BACKWARD : COPES_ATTENTION_MERGE_FORWARD;
    c.op.merge.base = s->base;
    memcpy(c.shape, s->shape, sizeof s->shape);
    c.merge = (check_merge){.lse = s->of_lse, .grad_lse_shares = backward && !s->plain};
    c.lse = s->lse;
    c.in_layout = s->in;
    c.out_layout = s->out;
    c.mixed = s->mixed;
    return c;
}

void check_merge_table(case_list *list)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        for (size_t i = 0; i < 2 * sizeof sketches / sizeof *sketches; i++) {
            check_case c = drawn(&sketches[i / 2], float_types[t], i % 2 == 1);
            c.seed = list->count + 1;
            if (check_makes_sense(&c))
                case_list_add(list, &c);
        }
    }
}

check_case check_merge_random(uint64_t seed)
{
    uint64_t state = seed;
    sketch s = {.lse = check_random(&state) & 1, .plain = check_below(&state, 4) == 0};
    s.shape[0] = check_random(&state) & 1 ? 1 + check_below(&state, 8) : 1 + check_below(&state, 40);
    s.shape[1] = 1 + check_below(&state, 3);
    s.shape[2] = 1 + check_below(&state, 3);
    s.shape[3] = 1 + check_below(&state, 6);
    s.shape[4] = check_random(&state) & 1 ? 1 + check_below(&state, 70) : 8 * (1 + check_below(&state, 20));
    s.of_lse = (check_lse)check_below(&state, CHECK_LSE_KINDS);
    s.base = (copes_log_base)(check_random(&state) & 1);
    s.in = (check_layout)check_below(&state, CHECK_LAYOUTS);
    s.out = (check_layout)check_below(&state, CHECK_BROADCAST);
    s.mixed = check_random(&state) & 1;
    s.fill = check_random(&state) & 1 ? CHECK_NORMAL : (check_fill)check_below(&state, CHECK_DRAWN_FILLS);
    check_case c = drawn(&s, float_types[check_below(&state, 4)], check_random(&state) & 1);
    c.seed = seed;
    c.random = true;
    c.fill = check_makes_sense(&c) ? c.fill : CHECK_WIDE;
    return c;
}
