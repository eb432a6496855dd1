/* The cases of tpa_decode: ranks, cache lengths, causal queries, scales, layouts and ragged sizes in every type. */
#include "tests/harness/case.h"
#include "tests/harness/random.h"

#include <math.h>
#include <string.h>

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

/* Types that a case with extreme numbers is for: any, those with the exponents of float32, or float64. */
typedef enum ranges { EVERY_RANGE, SINGLE_RANGE, DOUBLE_RANGE } ranges;

typedef struct sketch {
    check_attention_shape shape;
    copes_tpa_attributes attributes;
    bool bare_keys, bare_values, lengths, lse;
    check_layout in, out;
    bool mixed;
    check_fill fill;
    ranges range;
    int powers[COPES_TPA_BV + 1];
} sketch;

static const sketch sketches[] = {
    {.shape = {2, 1, 129, 3, 16, 8, 2, 2, 2}, .lse = true},
    {.shape = {1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {.shape = {1, 1, 1, 2, 5, 7, 3, 1, 1}, .bare_keys = true, .bare_values = true, .lse = true},
    {.shape = {2, 1, 127, 4, 64, 64, 6, 1, 1},
     .bare_keys = true,
     .bare_values = true,
     .attributes = {.scale_k = 1, .scale_v = 1}},
    {.shape = {2, 1, 257, 4, 128, 128, 16, 1, 1}, .bare_keys = true, .lengths = true, .lse = true},
    {.shape = {1, 1, 67, 2, 33, 129, 3, 5, 4}, .in = CHECK_SWAPPED, .out = CHECK_SWAPPED},
    {.shape = {3, 1, 3, 5, 7, 5, 1, 3, 2}, .in = CHECK_PADDED, .out = CHECK_NEGATIVE, .lse = true},
    {.shape = {2, 3, 50, 2, 32, 16, 2, 2, 2}, .attributes = {.causal = 1}, .lse = true},
    {.shape = {2, 4, 31, 3, 16, 32, 2, 2, 2}, .attributes = {.causal = 1}, .lengths = true, .lse = true},
    {.shape = {1, 5, 3, 2, 8, 8, 2, 1, 2}, .attributes = {.causal = 1}, .bare_keys = true, .lse = true},
    {.shape = {4, 2, 40, 2, 16, 16, 2, 2, 2}, .lengths = true, .in = CHECK_ODD, .out = CHECK_ODD},
    {.shape = {2, 2, 40, 2, 24, 16, 3, 2, 1},
     .bare_values = true,
     .in = CHECK_REVERSED,
     .out = CHECK_STRIDED,
     .lse = true},
    {.shape = {3, 1, 35, 2, 16, 16, 2, 2, 2}, .in = CHECK_BROADCAST, .out = CHECK_PADDED, .lengths = true},
    {.shape = {2, 1, 35, 2, 16, 24, 2, 3, 2},
     .in = CHECK_NEGATIVE,
     .mixed = true,
     .out = CHECK_REVERSED,
     .lengths = true},
    {.shape = {2, 1, 35, 2, 16, 24, 2, 3, 2}, .in = CHECK_STRIDED, .mixed = true, .attributes = {.causal = 1}},
    {.shape = {1, 1, 64, 2, 32, 32, 2, 2, 2},
     .attributes = {.scale = 1, .scale_q = -0.5, .scale_k = 2, .scale_v = -3},
     .lse = true},
    {.shape = {1, 1, 64, 2, 32, 32, 2, 2, 2}, .fill = CHECK_EQUAL, .lse = true},
    {.shape = {1, 1, 64, 2, 32, 32, 2, 2, 2}, .fill = CHECK_SUBNORMAL, .lse = true},
    {.shape = {2, 1, 0, 3, 16, 8, 2, 2, 2}, .lse = true},
    {.shape = {0, 1, 9, 3, 16, 8, 2, 2, 2}, .lengths = true, .lse = true},
    {.shape = {2, 0, 9, 3, 16, 8, 2, 2, 2}, .attributes = {.causal = 1}},
    {.shape = {2, 1, 9, 0, 16, 8, 2, 2, 2}, .lse = true},
    {.shape = {2, 1, 9, 3, 16, 0, 2, 2, 2}},
    {.shape = {1, 1, 37, 17, 48, 40, 5, 7, 3}, .lse = true},
    {.shape = {1, 1, 1531, 5, 64, 32, 2, 2, 2}, .lse = true},
    {.shape = {1, 1, 4099, 8, 32, 32, 3, 1, 1}, .bare_keys = true, .bare_values = true, .lse = true},
    {.shape = {3, 1, 700, 3, 40, 24, 2, 1, 2}, .bare_keys = true, .lengths = true, .lse = true},
    {.shape = {1, 8, 129, 33, 8, 8, 1, 1, 1}, .attributes = {.causal = 1}, .lse = true},
    {.shape = {1, 1, 33, 1, 256, 512, 8, 2, 2}, .lse = true},
    {.shape = {9, 1, 2600, 1, 4, 8, 1, 1, 1}, .bare_keys = true, .bare_values = true, .lengths = true, .lse = true},
    {.shape = {1, 3, 2083, 2, 6, 8, 2, 1, 2}, .attributes = {.causal = 1}, .lse = true},
    {.shape = {1, 1, 23, 35, 512, 9, 2, 1, 1}, .lse = true},
    {.shape = {1, 1, 19, 3, 8, 12, 60, 50, 2}, .lse = true},
    {.shape = {1, 2, 19, 3, 8, 12, 2, 2, 51}},
    {.shape = {2, 1, 3, 2, 3, 1, 2, 1, 1}, .lengths = true},
    {.shape = {5, 1, 17, 2, 1, 16, 2, 1, 1}, .attributes = {.scale = 4}},
    {.shape = {3, 1, 1500, 32, 128, 128, 16, 1, 1}, .bare_keys = true, .bare_values = true, .lengths = true},
    {.shape = {2, 1, 320, 64, 128, 64, 20, 1, 1}, .bare_keys = true, .bare_values = true, .lengths = true, .lse = true},
    {.shape = {1, 3, 450, 40, 64, 64, 6, 1, 1},
     .attributes = {.causal = 1},
     .bare_keys = true,
     .lengths = true,
     .lse = true},
    {.shape = {1, 2, 90, 72, 24, 80, 40, 1, 1}, .in = CHECK_PADDED, .out = CHECK_STRIDED, .bare_keys = true},
    {.shape = {1, 1, 200, 8, 128, 128, 3, 1, 1}, .in = CHECK_PADDED, .mixed = true, .fill = CHECK_EQUAL, .lse = true},
    {.shape = {2, 1, 129, 16, 32, 128, 4, 1, 1}, .fill = CHECK_SUBNORMAL, .out = CHECK_PADDED, .lse = true},
    {.shape = {3, 1, 1100, 47, 64, 64, 6, 2, 2}, .lengths = true, .lse = true},
    {.shape = {1, 3, 333, 33, 128, 96, 5, 1, 3}, .attributes = {.causal = 1}, .lse = true},
    {.shape = {4, 1, 131, 5, 32, 128, 2, 3, 1}, .lengths = true},
    {.shape = {2, 2, 190, 90, 48, 64, 3, 2, 2}, .in = CHECK_PADDED, .mixed = true, .out = CHECK_STRIDED},
    {.shape = {1, 1, 95, 1, 64, 64, 1, 1, 1}, .bare_keys = true, .bare_values = true, .lse = true},
    {.shape = {2, 1, 1301, 3, 6, 7, 2, 2, 2}, .lengths = true, .lse = true},
    {.shape = {1, 2, 900, 5, 8, 150, 2, 1, 2}, .attributes = {.causal = 1}, .bare_keys = true, .lse = true},
    /* shares of a cache: the first, one in the middle and the last of neighbours, every third key, and some past what is seen */
    {.shape = {2, 3, 50, 2, 32, 16, 2, 2, 2}, .attributes = {.causal = 1, .kv_total = 130}, .lse = true},
    {.shape = {2, 4, 31, 3, 16, 32, 2, 2, 2},
     .attributes = {.causal = 1, .kv_first = 40, .kv_total = 90},
     .lengths = true,
     .lse = true},
    {.shape = {3, 4, 31, 3, 16, 32, 2, 2, 2},
     .attributes = {.causal = 1, .kv_first = 40},
     .lengths = true,
     .lse = true},
    {.shape = {4, 5, 47, 2, 8, 8, 2, 1, 2},
     .attributes = {.causal = 1, .kv_first = 2, .kv_stride = 3, .kv_total = 142},
     .bare_keys = true,
     .lengths = true,
     .lse = true},
    {.shape = {2, 9, 11, 2, 8, 8, 2, 1, 2}, .attributes = {.causal = 1, .kv_first = 3, .kv_stride = 4}, .lse = true},
    {.shape = {6, 2, 40, 2, 16, 16, 2, 2, 2},
     .attributes = {.kv_stride = 2, .kv_total = 100},
     .lengths = true,
     .lse = true},
    {.shape = {1, 3, 7, 2, 16, 16, 2, 2, 2}, .attributes = {.causal = 1, .kv_first = INT64_C(1) << 40}, .lse = true},
    {.shape = {2, 2, 0, 2, 16, 16, 2, 2, 2}, .attributes = {.causal = 1, .kv_first = 9, .kv_total = 9}, .lse = true},
    {.shape = {3, 2, 700, 40, 64, 64, 6, 1, 1},
     .attributes = {.causal = 1, .kv_first = 1, .kv_stride = 4, .kv_total = 2800},
     .bare_keys = true,
     .bare_values = true,
     .lengths = true,
     .lse = true},
    /* long caches in few parts, of equal values, whose sums round the same way each time */
    {.shape = {1, 64, 50000, 1, 1, 2, 1, 1, 1}, .fill = CHECK_EQUAL, .lse = true},
    {.shape = {64, 1, 2064, 1, 2, 8, 4, 4, 2}, .fill = CHECK_EQUAL, .lse = true},
    {.shape = {1, 1, 66000, 1, 1, 3, 1, 1, 1}, .fill = CHECK_EQUAL, .lse = true},
    /* so few query tokens that a GPU's tensor cores take the cache in parts, in 16 bits too */
    {.shape = {1, 1, 4000, 64, 128, 128, 6, 1, 1}, .bare_keys = true, .bare_values = true, .lse = true},
    {.shape = {1, 2, 4000, 40, 128, 128, 6, 1, 1}, .attributes = {.causal = 1}, .lengths = true, .lse = true},
    {.shape = {1, 1, 1000, 47, 256, 256, 6, 2, 2}, .lse = true},
    {.shape = {1, 3, 1000, 17, 256, 256, 6, 2, 2}, .attributes = {.causal = 1}, .lengths = true, .out = CHECK_STRIDED},
    {.shape = {1, 1, 1000, 5, 256, 256, 6, 2, 2}, .out = CHECK_ODD},
    /* queries of -inf, whose features leave places of tensor cores' operands empty */
    {.shape = {2, 1, 129, 6, 24, 24, 2, 1, 1}, .fill = CHECK_MASKED, .lse = true},
    {.shape = {1, 2, 300, 8, 8, 72, 3, 2, 2}, .fill = CHECK_MASKED, .lse = true},
    {.shape = {2, 1, 200, 32, 40, 56, 5, 1, 1},
     .bare_keys = true,
     .bare_values = true,
     .fill = CHECK_MASKED,
     .lse = true},
    {.shape = {1, 1, 500, 40, 104, 96, 20, 1, 1}, .fill = CHECK_MASKED, .lse = true},
    {.shape = {1, 1, 77, 5, 200, 136, 2, 1, 2}, .fill = CHECK_MASKED, .lse = true},
    {.shape = {1, 1, 77, 5, 6, 7, 2, 1, 2}, .fill = CHECK_MASKED, .lse = true},
    /* values whose sums over keys, but not whose means, pass the largest number */
    {.shape = {1, 1, 8, 1, 1, 1, 1, 1, 1}, .fill = CHECK_EQUAL, .range = SINGLE_RANGE, .powers = {[4] = 62, [5] = 63}},
    {.shape = {2, 1, 300, 3, 6, 7, 2, 1, 1},
     .fill = CHECK_EQUAL,
     .range = SINGLE_RANGE,
     .powers = {[4] = 61, [5] = 62}},
    {.shape = {2, 1, 300, 32, 64, 128, 4, 1, 1},
     .bare_keys = true,
     .bare_values = true,
     .fill = CHECK_EQUAL,
     .range = SINGLE_RANGE,
     .powers = {[4] = 1, [5] = 122},
     .lse = true},
    {.shape = {1, 1, 4000, 40, 64, 64, 4, 2, 2},
     .fill = CHECK_EQUAL,
     .range = SINGLE_RANGE,
     .powers = {[4] = 100, [5] = 22},
     .lse = true},
    {.shape = {1, 1, 4000, 8, 32, 32, 4, 1, 1},
     .fill = CHECK_EQUAL,
     .range = SINGLE_RANGE,
     .powers = {[4] = 22, [5] = 101}},
    {.shape = {2, 1, 700, 32, 128, 128, 4, 1, 1},
     .bare_keys = true,
     .bare_values = true,
     .range = SINGLE_RANGE,
     .powers = {[4] = 62, [5] = 61},
     .lse = true},
    {.shape = {2, 2, 3000, 5, 24, 40, 2, 2, 2}, .range = SINGLE_RANGE, .powers = {[4] = 62, [5] = 61}},
    {.shape = {2, 1, 300, 3, 6, 7, 2, 1, 1},
     .fill = CHECK_EQUAL,
     .range = DOUBLE_RANGE,
     .powers = {[4] = 509, [5] = 510}},
    {.shape = {1, 1, 4000, 20, 6, 7, 2, 2, 2},
     .fill = CHECK_EQUAL,
     .range = DOUBLE_RANGE,
     .powers = {[4] = 509, [5] = 510}},
    /* scales past the range of float32 or float64, alone or where they meet */
    {.shape = {2, 1, 129, 6, 24, 24, 2, 1, 2},
     .attributes = {.scale_v = 1e-30},
     .range = SINGLE_RANGE,
     .powers = {[4] = 83, [5] = 83},
     .lse = true},
    {.shape = {1, 1, 3000, 6, 24, 24, 2, 1, 2},
     .attributes = {.scale_v = 1e-42},
     .range = SINGLE_RANGE,
     .powers = {[4] = 70, [5] = 90}},
    {.shape = {2, 1, 129, 6, 24, 24, 2, 1, 2},
     .attributes = {.scale_v = -1e45},
     .range = SINGLE_RANGE,
     .powers = {[4] = -40, [5] = -30}},
    {.shape = {2, 1, 129, 6, 24, 24, 2, 1, 2}, .attributes = {.scale_v = 1e-50}, .lse = true},
    {.shape = {2, 1, 129, 6, 16, 24, 2, 1, 2},
     .attributes = {.scale = 1e200, .scale_q = 1e130, .scale_k = 1e-300},
     .range = SINGLE_RANGE,
     .powers = {-50, -50, -1, -2},
     .lse = true},
    {.shape = {2, 1, 129, 6, 16, 24, 2, 1, 2},
     .attributes = {.scale = 1e-20, .scale_q = 1e-15, .scale_k = -1e-10},
     .range = SINGLE_RANGE,
     .powers = {70, 45, 15, 16},
     .lse = true},
    {.shape = {2, 1, 129, 6, 16, 24, 2, 1, 2},
     .attributes = {.scale = 1e200, .scale_q = 1e200, .scale_k = 1e-300},
     .range = DOUBLE_RANGE,
     .powers = {-166, -168, -1, -1},
     .lse = true},
    {.shape = {2, 1, 129, 6, 16, 24, 2, 1, 2},
     .attributes = {.scale = 1e-200, .scale_q = 1e-200, .scale_k = -1e-10, .scale_v = 1e-300},
     .range = DOUBLE_RANGE,
     .powers = {662, 340, 350, 8, 900, 600},
     .lse = true},
};

static check_case drawn(const sketch *s, check_type type)
{
    check_case c = {.family = "tpa_decode", .type = type, .attention = s->shape, .fill = s->fill};
    c.op.kind = COPES_TPA_DECODE;
    c.op.tpa = s->attributes;
    c.bare_keys = s->bare_keys;
    c.bare_values = s->bare_values;
    c.lengths = s->lengths;
    c.lse = s->lse;
    c.in_layout = s->in;
    c.out_layout = s->out;
    c.mixed = s->mixed;
    memcpy(c.powers, s->powers, sizeof c.powers);
    return c;
}

static bool is_for(const sketch *s, check_type type)
{
    return s->range == EVERY_RANGE || type == (s->range == DOUBLE_RANGE ? CHECK_F64 : CHECK_F32) ||
           (s->range == SINGLE_RANGE && type == CHECK_BF16);
}

/* Outputs, and the score of an only key, that are small beside what they are summed of. With these values float32 is off by
 * more than 1e-6 of what they are themselves, at one level or another. */
typedef struct cancelling {
    sketch sketch;
    check_type type;
    uint64_t seed;
    unsigned char repeats[COPES_TPA_BV + 1];
} cancelling;

static const cancelling cancelled[] = {
    {.sketch = {.shape = {1, 1, 128, 4, 8, 8, 6, 2, 3},
                .attributes = {.causal = 1, .scale = 0.30618621784789729, .scale_v = 2},
                .lse = true},
     .type = CHECK_F32,
     .seed = 2366041},
    {.sketch = {.shape = {2, 5, 36, 5, 33, 17, 4, 1, 3}, .attributes = {.scale = 0.087038827977848926}, .lse = true},
     .type = CHECK_F32,
     .seed = 2950038,
     .repeats = {[COPES_TPA_AQ] = 1, [COPES_TPA_BQ] = 148}},
    {.sketch = {.shape = {3, 4, 1, 4, 45, 53, 1, 2, 1},
                .attributes = {.scale = 0.21081851067789195, .scale_q = 0.25},
                .lengths = true,
                .lse = true},
     .type = CHECK_BF16,
     .seed = 2942169,
     .repeats = {[COPES_TPA_BQ] = 40, [COPES_TPA_BK] = 139}},
};

static void add_cancelled(case_list *list)
{
    for (size_t i = 0; i < sizeof cancelled / sizeof *cancelled; i++) {
        check_case c = drawn(&cancelled[i].sketch, cancelled[i].type);
        c.seed = cancelled[i].seed;
        memcpy(c.repeats, cancelled[i].repeats, sizeof cancelled[i].repeats);
        case_list_add(list, &c);
    }
}

/* Caches that the tensor-core kernels of a GPU cut into parts. */
static const sketch in_parts[] = {
    {.shape = {1, 1, 12000, 47, 128, 128, 2, 2, 2}, .lse = true},
    {.shape = {1, 1, 20000, 47, 64, 64, 2, 2, 2}},
    {.shape = {1, 1, 16384, 32, 128, 128, 2, 1, 1}},
    {.shape = {1, 1, 32768, 32, 64, 64, 2, 1, 1}},
    {.shape = {1, 1, 32768, 32, 64, 64, 2, 1, 1}, .lse = true},
    {.shape = {1, 1, 16384, 47, 128, 128, 2, 1, 1}},
};

static void add_in_parts(case_list *list)
{
    static const check_type types[] = {CHECK_F32, CHECK_F16, CHECK_BF16};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof in_parts / sizeof *in_parts; i++) {
            check_case c = drawn(&in_parts[i], types[t]);
            c.seed = list->count + 1;
            c.large = true;
            case_list_add(list, &c);
        }
}

void check_tpa_table(case_list *list)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        for (size_t i = 0; i < sizeof sketches / sizeof *sketches; i++) {
            check_case c = drawn(&sketches[i], float_types[t]);
            c.seed = list->count + 1;
            if (is_for(&sketches[i], c.type))
                case_list_add(list, &c);
        }
    }
    add_cancelled(list);
    add_in_parts(list);
}

copes_tpa_attributes check_share_of(copes_tpa_attributes of, int64_t m, uint64_t *state)
{
    of.kv_first = check_below(state, 2 * m + 1);
    of.kv_stride = check_below(state, 5);
    const int64_t end = m > 0 ? of.kv_first + (m - 1) * (of.kv_stride > 0 ? of.kv_stride : 1) + 1 : of.kv_first;
    of.kv_total = check_below(state, 4) == 0 ? 0 : end + check_below(state, m + 1);
    return of;
}

check_case check_tpa_random(uint64_t seed)
{
    uint64_t state = seed;
    sketch s = {.lengths = check_random(&state) & 1, .lse = check_random(&state) & 1};
    check_attention_shape *a = &s.shape;
    a->b = 1 + check_below(&state, 3);
    a->n = check_random(&state) & 1 ? 1 : 1 + check_below(&state, 5);
    a->m = 1 + check_below(&state, 150);
    a->h = 1 + check_below(&state, 5);
    a->d = check_random(&state) & 1 ? 1 + check_below(&state, 70) : 16 * (1 + check_below(&state, 8));
    a->e = check_random(&state) & 1 ? 8 + check_below(&state, 60) : 16 * (1 + check_below(&state, 8));
    a->rq = 1 + check_below(&state, 6);
    a->rk = 1 + check_below(&state, 4);
    a->rv = 1 + check_below(&state, 4);
    s.bare_keys = a->rk == 1 && check_random(&state) & 1;
    s.bare_values = a->rv == 1 && check_random(&state) & 1;
    s.attributes.causal = (int32_t)(check_random(&state) & 1);
    s.attributes.scale = check_below(&state, 4) == 0 ? 0.7 / sqrt((double)a->d) : 0;
    s.in = (check_layout)check_below(&state, CHECK_LAYOUTS);
    s.out = (check_layout)check_below(&state, CHECK_BROADCAST);
    s.mixed = check_random(&state) & 1;
    check_case c = drawn(&s, float_types[check_below(&state, 4)]);
    if (check_below(&state, 3) == 0)
        c.op.tpa = check_share_of(c.op.tpa, a->m, &state);
    c.seed = seed;
    c.random = true;
    return c;
}
