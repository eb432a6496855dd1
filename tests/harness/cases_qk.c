/* The cases of qk_norm_rope: a list of sketches, each in every type and direction, and random ones. */
#include "tests/harness/random.h"
#include "tests/harness/sketch_lrpe.h"

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

/* What a case is before it has a type and a direction. */
typedef struct qk_sketch {
    sketch turn; /* of the queries */
    check_qk qk;
    check_type float8;  /* of the caches: CHECK_F8 or CHECK_U8; 0: the case's own */
    bool short_weights; /* of the case's type */
    double eps, weight_offset;
    bool all_heads, round_between;
    bool fixed_weights; /* backward: their gradients are not asked for */
} qk_sketch;

/* What a backward has of it: no caches, and keys' gradients wherever there are keys. */
static void make_backward(check_case *c)
{
    c->qk.k_out = c->qk.k;
    c->qk.k_cache = c->qk.v_cache = false;
    c->qk.grad_weights = true;
}

copes_qk_attributes check_qk_of_rotation(const copes_lrpe_attributes *turn)
{
    copes_qk_attributes qk = {.pairing = turn->pairing,
                              .grid_rank = turn->grid_rank,
                              .pad_theta = turn->pad_theta,
                              .inverse = turn->inverse,
                              .prefix = turn->prefix,
                              .suffix = turn->suffix,
                              .rotary_dim = turn->rotary_dim,
                              .rotary_begin = turn->rotary_begin,
                              .amplitude = turn->amplitude};
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        qk.grid[j] = turn->grid[j];
        qk.offset[j] = turn->offset[j];
        qk.sections[j] = turn->sections[j];
    }
    return qk;
}

static check_case drawn(const qk_sketch *s, check_type type, copes_kind kind)
{
    check_case c = check_draw_sketch(&s->turn, COPES_LRPE_ROTATE);
    c.family = "qk_norm_rope";
    c.type = type;
    c.op = (copes_op){.kind = kind, .qk = check_qk_of_rotation(&c.op.lrpe)};
    c.op.qk.amplitude = check_factor(&c, s->turn.amplitude);
    c.op.qk.eps = check_factor(&c, s->eps);
    c.op.qk.weight_offset = check_factor(&c, s->weight_offset);
    c.op.qk.norm_over = s->all_heads ? COPES_QK_NORM_ALL_HEADS : COPES_QK_NORM_HEAD;
    c.op.qk.round_between = s->round_between;
    c.qk = s->qk;
    c.qk.e = c.qk.e == 0 ? c.shape[3] : c.qk.e;
    c.qk.page = c.qk.page == 0 ? 16 : c.qk.page;
    c.qk.blocks = c.qk.blocks == 0 ? c.shape[0] * c.shape[1] / c.qk.page + 2 : c.qk.blocks;
    c.qk.weight_type = s->short_weights ? type : CHECK_F32;
    c.qk.cache_type = s->float8 == 0 ? type : s->float8;
    if (kind == COPES_QK_NORM_ROPE_BACKWARD)
        make_backward(&c);
    c.qk.grad_weights = c.qk.grad_weights && !s->fixed_weights;
    return c;
}

#define ONE_ROW CHECK_SHARED_WEIGHTS
#define EACH CHECK_WEIGHTS_EACH
#define KEYS(heads) .k = true, .k_out = true, .key_heads = heads
#define CACHES(heads) .k = true, .k_cache = true, .v_cache = true, .key_heads = heads

/* clang-format off */
static const qk_sketch sketches[] = {
    /* what models have: one row of weights, fewer heads of keys, positions, and caches of each type */
    {.turn = {.b = 2, .h = 4, .d = 64, .grid = {9}, .shared = true},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}, .short_weights = true},
    {.turn = {.b = 2, .h = 32, .d = 128, .grid = {3}, .shared = true, .position_rank = 2, .position_type = CHECK_I64},
     .qk = {CACHES(8), .wq = ONE_ROW, .wk = ONE_ROW}, .short_weights = true},
    {.turn = {.b = 1, .h = 32, .d = 128, .grid = {5}, .shared = true, .position_rank = 1, .position_type = CHECK_I64,
              .in_place = true},
     .qk = {KEYS(8), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW, .packed = true,
            .slots = CHECK_SOME_PADDED}, .float8 = CHECK_F8, .short_weights = true},
    {.turn = {.b = 1, .h = 8, .d = 64, .grid = {37}, .shared = true, .positions = CHECK_SCATTERED, .position_rank = 2,
              .position_type = CHECK_I32},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW, .k_scale = CHECK_ONE_SCALE, .v_scale = CHECK_ONE_SCALE,
            .slots = CHECK_SOME_BEYOND}, .float8 = CHECK_U8},
    {.turn = {.b = 3, .h = 7, .d = 80, .grid = {6}, .shared = true},
     .qk = {KEYS(3), .k_cache = true, .v_cache = true, .wq = EACH, .wk = EACH, .k_scale = CHECK_SCALES_EACH,
            .v_scale = CHECK_SCALES_EACH, .e = 48, .slots = CHECK_SOME_BEYOND, .page = 1, .packed = true},
     .float8 = CHECK_F8},
    {.turn = {.b = 1, .h = 8, .d = 256, .grid = {4}, .shared = true, .interleaved = true},
     .qk = {KEYS(4), .wq = ONE_ROW, .wk = ONE_ROW}, .weight_offset = 1, .round_between = true},
    {.turn = {.b = 2, .h = 16, .d = 128, .grid = {3}, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
     .qk = {KEYS(4), .wq = EACH, .wk = EACH}, .all_heads = true, .eps = 1e-5, .short_weights = true},
    {.turn = {.b = 1, .h = 4, .d = 128, .grid = {7}, .shared = true, .in_place = true},
     .qk = {KEYS(4), .wq = ONE_ROW, .wk = ONE_ROW}, .round_between = true, .short_weights = true},
    {.turn = {.b = 1, .h = 3, .d = 512, .grid = {5}, .shared = true},
     .qk = {KEYS(1), .k_cache = true, .wq = ONE_ROW, .wk = ONE_ROW, .blocks = 3, .page = 3}, .round_between = true},
    /* so many tokens that a GPU's thread has several heads, in float32 of two warps each */
    {.turn = {.b = 1, .h = 16, .d = 512, .grid = {90}, .shared = true}, .qk = {KEYS(4), .wq = ONE_ROW, .wk = ONE_ROW}},
    /* decoding steps at positions past 32 bits, with weights and scales for each head, or nothing but a rotation */
    {.turn = {.b = 3, .h = 4, .d = 64, .grid = {1}, .shared = true, .positions = CHECK_FAR, .position_rank = 2,
              .position_type = CHECK_I64},
     .qk = {CACHES(2), .wq = EACH, .wk = EACH, .k_scale = CHECK_SCALES_EACH, .v_scale = CHECK_SCALES_EACH,
            .slots = CHECK_SOME_BEYOND}, .float8 = CHECK_F8},
    {.turn = {.b = 5, .h = 6, .d = 32, .grid = {1}, .shared = true, .positions = CHECK_FAR, .position_rank = 2,
              .position_type = CHECK_I64, .interleaved = true},
     .qk = {KEYS(2)}},
    /* sides of which one has a norm, or neither has, or there is only one; caches for the keys or the values alone */
    {.turn = {.b = 2, .h = 3, .d = 20, .grid = {7}}, .qk = {KEYS(3), .wq = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 20, .grid = {7}, .in_place = true}, .qk = {KEYS(3), .wk = EACH}},
    {.turn = {.b = 2, .h = 5, .d = 64, .grid = {7}, .shared = true}, .qk = {KEYS(1)}},
    {.turn = {.b = 2, .h = 5, .d = 64, .grid = {7}}, .qk = {.wq = EACH}},
    {.turn = {.b = 2, .h = 5, .d = 64, .grid = {7}}, .qk = {.key_heads = 2, .e = 6}},
    {.turn = {.b = 2, .h = 2, .d = 6, .grid = {7}, .shared = true},
     .qk = {.key_heads = 3, .v_cache = true, .e = 5, .wq = ONE_ROW, .slots = CHECK_SOME_PADDED}},
    {.turn = {.b = 2, .h = 2, .d = 6, .grid = {7}, .shared = true},
     .qk = {KEYS(1), .k_cache = true, .wk = ONE_ROW, .k_scale = CHECK_ONE_SCALE}, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 2, .d = 16, .grid = {11}, .shared = true},
     .qk = {CACHES(2), .e = 40, .blocks = 2, .page = 5, .slots = CHECK_SOME_BEYOND}},
    {.turn = {.b = 1, .h = 3, .d = 16, .grid = {7}, .shared = true},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW, .e = 160}},
    /* rows that are whole vectors of 8 bytes alone */
    {.turn = {.b = 2, .h = 6, .d = 72, .grid = {11}, .shared = true, .position_rank = 2, .position_type = CHECK_I64},
     .qk = {CACHES(2), .slots = CHECK_SOME_BEYOND}},
    {.turn = {.b = 2, .h = 3, .d = 96, .grid = {5}, .rotary_dim = 24, .shared = true, .in_place = true},
     .qk = {CACHES(3), .e = 20, .slots = CHECK_SOME_PADDED}, .float8 = CHECK_F8},
    /* parts that turn, grids, offsets, sections, thetas of each dimension and the attributes beside them */
    {.turn = {.b = 2, .h = 3, .d = 96, .grid = {6}, .rotary_dim = 48, .shared = true},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 96, .grid = {6}, .rotary_begin = 64, .rotary_dim = 32, .interleaved = true,
              .shared = true},
     .qk = {CACHES(3), .wq = EACH, .wk = ONE_ROW}, .round_between = true, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 2, .d = 40, .grid_rank = 2, .grid = {3, 4}, .offset = {5, -7}, .prefix = 1, .suffix = 2,
              .width = -2, .amplitude = 1.25},
     .qk = {KEYS(2), .wq = EACH, .wk = EACH}, .all_heads = true, .weight_offset = 1},
    {.turn = {.b = 2, .h = 4, .d = 64, .grid = {9}, .sections = true, .shared = true, .position_rank = 3,
              .dimensions = 3, .position_type = CHECK_I64, .positions = CHECK_SCATTERED, .offset = {4, -5, 6}},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 1, .h = 2, .d = 24, .grid = {8}, .each = true, .position_rank = 3, .dimensions = 2,
              .position_type = CHECK_F32, .positions = CHECK_FRACTION, .angles = CHECK_ANY_ANGLE},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 3, .h = 4, .d = 32, .grid = {5}, .offsets = true, .position_type = CHECK_I32,
              .positions = CHECK_FAR, .shared = true, .inverse = true, .amplitude = -0.5},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}, .eps = 0.5},
    {.turn = {.b = 1, .h = 2, .d = 20, .grid = {9}, .width = 3, .pad = true, .shared = true,
              .theta_type = CHECK_BF16},
     .qk = {KEYS(1), .wq = ONE_ROW, .wk = ONE_ROW}, .eps = 1e-30},
    {.turn = {.b = 1, .h = 2, .d = 16, .grid = {9}, .angles = CHECK_ODD_ANGLE, .shared = true},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}, .float8 = CHECK_U8},
    /* layouts */
    {.turn = {.b = 2, .h = 3, .d = 20, .grid = {7}, .shared = true, .in = CHECK_SWAPPED, .out = CHECK_PADDED},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = EACH, .wk = EACH}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .in = CHECK_ODD, .out = CHECK_ODD},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .in = CHECK_STRIDED, .out = CHECK_REVERSED},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = EACH}, .all_heads = true, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 3, .d = 96, .grid = {7}, .shared = true, .in = CHECK_NEGATIVE, .out = CHECK_SWAPPED},
     .qk = {CACHES(2), .wq = EACH, .wk = EACH, .packed = true}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .in = CHECK_PADDED, .in_place = true},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW, .packed = true}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .in = CHECK_BROADCAST, .out = CHECK_NEGATIVE,
              .mixed = true},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = EACH}},
    /* no tokens, no heads, no places */
    {.turn = {.b = 0, .h = 3, .d = 16, .grid = {5}, .shared = true}, .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 16, .grid = {0}, .shared = true}, .qk = {KEYS(2), .wq = EACH, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 0, .d = 16, .grid = {5}, .shared = true}, .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 16, .grid = {5}, .shared = true},
     .qk = {KEYS(0), .wq = EACH, .wk = EACH}, .all_heads = true},
    /* values: of every size, with means that the smallest eps leaves, zeros and subnormal ones, and those that are not finite */
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .fill = CHECK_WIDE},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .fill = CHECK_WIDE},
     .qk = {KEYS(2), .wq = EACH, .wk = EACH}, .all_heads = true, .weight_offset = 1},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .fill = CHECK_SUBNORMAL},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .fill = CHECK_SUBNORMAL},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}, .eps = 1e-30, .round_between = true},
    {.turn = {.b = 2, .h = 32, .d = 128, .grid = {2}, .shared = true, .fill = CHECK_EQUAL},
     .qk = {KEYS(32), .wq = ONE_ROW, .wk = ONE_ROW}, .all_heads = true},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {7}, .shared = true, .fill = CHECK_RISING},
     .qk = {KEYS(2), .wq = ONE_ROW, .wk = ONE_ROW}, .round_between = true},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_STRAY},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_MASKED},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_LATE},
     .qk = {CACHES(2), .wq = ONE_ROW, .wk = ONE_ROW}, .float8 = CHECK_U8, .all_heads = true},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_SPECIAL},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_SPECIAL},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true}, .float8 = CHECK_F8},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_LARGE},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 2, .h = 3, .d = 64, .grid = {17}, .shared = true, .fill = CHECK_LARGE},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true}},
    {.turn = {.b = 1, .h = 2, .d = 64, .grid = {257}, .shared = true, .fill = CHECK_EVERY},
     .qk = {CACHES(1)}, .float8 = CHECK_F8},
    {.turn = {.b = 1, .h = 2, .d = 64, .grid = {257}, .shared = true, .fill = CHECK_FINITE},
     .qk = {CACHES(1), .wq = ONE_ROW, .wk = ONE_ROW}},
};

/* Long enough to be shared between threads, or between the blocks of a GPU. Two types are enough. */
static const qk_sketch long_sketches[] = {
    {.turn = {.b = 2, .h = 8, .d = 64, .grid = {211}, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW}},
    {.turn = {.b = 1, .h = 4, .d = 128, .grid = {523}, .shared = true, .position_rank = 2,
              .position_type = CHECK_I64},
     .qk = {KEYS(4), .wq = EACH, .wk = EACH}, .all_heads = true},
    /* as many vectors as a GPU's block has threads for, with more tokens than its blocks take at once: rotations of so many angles
     * leave room for few */
    {.turn = {.b = 1, .h = 6, .d = 1024, .grid = {2203}, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE,
              .large = true},
     .qk = {KEYS(4), .wq = EACH, .wk = EACH}, .all_heads = true},
    {.turn = {.b = 2, .h = 32, .d = 128, .grid = {1061}, .shared = true, .position_rank = 2,
              .position_type = CHECK_I64, .in_place = true, .large = true},
     .qk = {KEYS(8), .k_cache = true, .v_cache = true, .wq = ONE_ROW, .wk = ONE_ROW, .packed = true},
     .float8 = CHECK_F8, .short_weights = true},
    {.turn = {.b = 1, .h = 7, .d = 64, .grid = {4099}, .shared = true, .in = CHECK_DENSE, .out = CHECK_DENSE,
              .large = true},
     .qk = {CACHES(3), .wq = EACH, .wk = ONE_ROW, .slots = CHECK_SOME_BEYOND}},
    {.turn = {.b = 1, .h = 16, .d = 72, .grid = {601}, .shared = true, .sections = true, .position_rank = 3,
              .dimensions = 2, .position_type = CHECK_I64},
     .qk = {KEYS(16), .packed = true}},
    /* slots at an odd address */
    {.turn = {.b = 1, .h = 8, .d = 64, .grid = {203}, .shared = true, .in = CHECK_SWAPPED, .mixed = true},
     .qk = {KEYS(2), .k_cache = true, .v_cache = true, .packed = true}},
};
/* clang-format on */

static void add_both(case_list *list, const qk_sketch *s, check_type type)
{
    for (int kind = COPES_QK_NORM_ROPE_FORWARD; kind <= COPES_QK_NORM_ROPE_BACKWARD; kind++) {
        check_case c = drawn(s, type, (copes_kind)kind);
        c.seed = list->count + 1;
        if (check_makes_sense(&c))
            case_list_add(list, &c);
    }
}

/* As many vectors as a GPU's block has threads for, or more: 40 + 40 heads with a norm over all, an odd number of them, and fewer keys than
 * a warp has heads; heads that learn weights of their own, together and each by itself. */
static void add_wide_tokens(case_list *list, check_type type)
{
    static const struct {
        int64_t h, keys, d;
        bool all_heads, fixed;
    } kinds[] = {{40, 40, 128, true, false}, {40, 40, 128, true, true}, {41, 23, 128, true, false},
                 {101, 3, 64, true, false},  {101, 3, 64, true, true},  {67, 6, 128, false, false},
                 {2, 3, 512, false, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            const qk_sketch s = {.turn = {.b = 1,
                                          .h = kinds[i].h,
                                          .d = kinds[i].d,
                                          .grid = {3},
                                          .shared = true,
                                          .interleaved = interleaved != 0},
                                 .qk = {KEYS(kinds[i].keys), .wq = EACH, .wk = EACH},
                                 .all_heads = kinds[i].all_heads,
                                 .fixed_weights = kinds[i].fixed};
            add_both(list, &s, type);
        }
}

/* One for each kind of kernel that GPUs have: by pairing, norm, positions, whether weights learn, and the length of vectors. */
static void add_kinds(case_list *list, check_type type)
{
    enum { INTERLEAVED = 1, NORMS = 2, ALL_HEADS = 4, FRACTIONS = 8, FIXED = 16, NARROW = 32, KINDS = 64 };
    for (int kind = 0; kind < KINDS; kind++) {
        const check_weights weights = kind & NORMS ? ONE_ROW : CHECK_NO_WEIGHTS;
        const qk_sketch s = {.turn = {.b = 1,
                                      .h = 2,
                                      .d = kind & NARROW ? 24 : 64,
                                      .grid = {3},
                                      .shared = true,
                                      .interleaved = (kind & INTERLEAVED) != 0,
                                      .position_rank = kind & FRACTIONS ? 1 : 0,
                                      .position_type = CHECK_F32,
                                      .positions = CHECK_FRACTION},
                             .qk = {KEYS(1), .wq = weights, .wk = weights},
                             .all_heads = (kind & ALL_HEADS) != 0,
                             .fixed_weights = (kind & FIXED) != 0};
        if (kind & NORMS ? (kind & NARROW) == 0 : (kind & (ALL_HEADS | FIXED)) == 0)
            add_both(list, &s, type);
    }
}

void check_qk_table(case_list *list)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t i = 0; i < sizeof sketches / sizeof *sketches; i++)
            add_both(list, &sketches[i], float_types[t]);
    for (size_t i = 0; i < sizeof long_sketches / sizeof *long_sketches; i++) {
        add_both(list, &long_sketches[i], CHECK_F32);
        add_both(list, &long_sketches[i], CHECK_BF16);
    }
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        add_wide_tokens(list, float_types[t]);
        add_kinds(list, float_types[t]);
    }
}

static bool chance(uint64_t *state, int64_t in)
{
    return check_below(state, in) == 0;
}

static void draw_keys(qk_sketch *s, uint64_t *state)
{
    check_qk *qk = &s->qk;
    qk->k = !chance(state, 4);
    qk->key_heads = chance(state, 2) ? s->turn.h : 1 + check_below(state, 3);
    qk->k_cache = qk->k && chance(state, 2);
    qk->k_out = qk->k && (!qk->k_cache || chance(state, 2));
    qk->v_cache = chance(state, 2);
    qk->e = chance(state, 2) ? 0 : 1 + check_below(state, s->turn.d);
    qk->page = 1 + check_below(state, 20);
    qk->blocks = chance(state, 3) ? check_below(state, 4) : 0;
    qk->slots = (check_slots)check_below(state, CHECK_SLOTS);
    s->float8 = chance(state, 2) ? 0 : chance(state, 2) ? CHECK_F8 : CHECK_U8;
    if (s->float8 != 0) {
        qk->k_scale = (check_scales)check_below(state, CHECK_SCALES_EACH + 1);
        qk->v_scale = (check_scales)check_below(state, CHECK_SCALES_EACH + 1);
    }
    qk->packed = chance(state, 3);
    s->turn.shared = s->turn.shared || (qk->k && qk->key_heads != s->turn.h);
}

static void draw_norms(qk_sketch *s, uint64_t *state)
{
    static const double sizes[] = {0, 0, 1e-5, 1e-12, 0.25, 1e-30};
    s->qk.wq = (check_weights)check_below(state, CHECK_WEIGHTS_EACH + 1);
    s->qk.wk = s->qk.k ? (check_weights)check_below(state, CHECK_WEIGHTS_EACH + 1) : CHECK_NO_WEIGHTS;
    s->short_weights = chance(state, 2);
    s->eps = sizes[check_below(state, sizeof sizes / sizeof *sizes)];
    s->weight_offset = chance(state, 3) ? 1 : 0;
    s->all_heads = chance(state, 3);
    s->round_between = chance(state, 3);
}

check_case check_qk_random(uint64_t seed)
{
    uint64_t state = seed;
    qk_sketch s = {.turn = check_random_sketch(&state)};
    s.turn.rank = 4;
    draw_keys(&s, &state);
    draw_norms(&s, &state);
    const check_type type = float_types[check_below(&state, 4)];
    check_case c = drawn(&s, type, chance(&state, 3) ? COPES_QK_NORM_ROPE_BACKWARD : COPES_QK_NORM_ROPE_FORWARD);
    c.qk.grad_weights = c.qk.grad_weights && !chance(&state, 4);
    c.fill = chance(&state, 2) ? CHECK_NORMAL : (check_fill)check_below(&state, CHECK_DRAWN_FILLS);
    c.fill = check_makes_sense(&c) ? c.fill : CHECK_WIDE;
    c.seed = seed;
    c.random = true;
    return c;
}
