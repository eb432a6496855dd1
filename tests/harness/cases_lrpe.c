/* The cases of lrpe_rotate and lrpe_cosine: a list of sketches, each run with every activation, type and direction. */
#include "tests/harness/random.h"
#include "tests/harness/sketch_lrpe.h"

#include <string.h>

static const check_type float_types[] = {CHECK_F32, CHECK_F16, CHECK_BF16, CHECK_F64};

static void set_angles(check_case *c, const sketch *s, int64_t angles)
{
    copes_lrpe_attributes *a = &c->op.lrpe;
    int m = s->position_rank == 3 ? s->dimensions : s->grid_rank > 0 ? s->grid_rank : 1;
    c->theta_each = s->each;
    c->theta_shape[0] = s->shared ? 1 : s->h;
    c->theta_shape[1] = s->width < 0        ? (angles + m - 1) / m
                        : s->width == 0     ? angles
                        : s->width < angles ? s->width
                                            : angles;
    if (!s->sections) {
        a->pad_theta = !s->each && m == 1 && c->theta_shape[1] < angles && (c->theta_shape[1] > 1 || s->pad);
        return;
    }
    c->theta_shape[1] = angles;
    for (int j = 0, left = (int)angles; j < m; j++) { /* uneven: each but the last has about half of what is left */
        a->sections[j] = j == m - 1 ? left : s->only_last ? 0 : (left + 1) / 2;
        left -= (int)a->sections[j];
    }
}

check_case check_draw_sketch(const sketch *s, copes_lrpe_variant variant)
{
    check_case c = {.family = variant == COPES_LRPE_ROTATE ? "lrpe_rotate" : "lrpe_cosine",
                    .rank = s->rank == 0 ? 4 : s->rank};
    int64_t d = variant == COPES_LRPE_ROTATE && s->d == 1 ? 2 : s->d, rotary = s->rotary_dim;
    c.op.lrpe = (copes_lrpe_attributes){.variant = variant,
                                        .grid_rank = s->grid_rank,
                                        .prefix = s->prefix,
                                        .suffix = s->suffix};
    int64_t length = 1;
    for (int j = 0; j < (s->grid_rank > 0 ? s->grid_rank : 1); j++) {
        length *= s->grid[j];
        c.op.lrpe.grid[j] = s->grid_rank > 0 ? s->grid[j] : 0;
        c.op.lrpe.offset[j] = s->offset[j];
    }
    if (variant == COPES_LRPE_ROTATE) {
        rotary = rotary == 0 && d % 2 == 1 ? d - 1 : rotary;
        c.op.lrpe.rotary_dim = rotary;
        c.op.lrpe.pairing = s->interleaved ? COPES_LRPE_INTERLEAVED : COPES_LRPE_HALF;
    }
    int64_t shape[] = {s->b, s->prefix + length + s->suffix, s->h, d};
    shape[c.rank - 1] = d;
    memcpy(c.shape, shape, sizeof shape);
    c.op.lrpe.rotary_begin = variant == COPES_LRPE_ROTATE ? s->rotary_begin : 0;
    c.op.lrpe.inverse = s->inverse;
    set_angles(&c, s, variant == COPES_LRPE_COSINE ? d : (rotary == 0 ? d - s->rotary_begin : rotary) / 2);
    c.position_rank = s->position_rank;
    c.dimensions = s->dimensions;
    c.offsets = s->offsets;
    c.position_type = s->position_type;
    c.positions = s->positions;
    c.theta_type = s->theta_type;
    c.angles = s->angles;
    c.in_layout = s->in;
    c.out_layout = s->out;
    c.mixed = s->mixed;
    c.in_place = s->in_place && variant == COPES_LRPE_ROTATE;
    c.fill = s->fill;
    c.large = s->large;
    return c;
}

static void add(case_list *list, const sketch *s, check_case c, copes_act act, int dim)
{
    c.op.lrpe.act = act;
    c.op.lrpe.dim = dim;
    c.op.lrpe.amplitude = check_factor(&c, s->amplitude);
    c.lse = s->lse && act == COPES_ACT_SOFTMAX && dim == -3;
    c.seed = list->count + 1;
    if (check_makes_sense(&c)) {
        case_list_add(list, &c);
    }
}

/* A sequence in shares: each pass alone. */
static void add_passes(case_list *list, const sketch *s, check_case c)
{
    sketch share = *s;
    share.lse = c.op.kind == COPES_LRPE_BACKWARD;
    const bool in_place = c.in_place, learns = c.grad_theta;
    for (int passes = CHECK_SUMS; passes <= CHECK_APPLY; passes++) {
        c.passes = (check_passes)passes;
        c.in_place = in_place && passes == CHECK_APPLY;
        c.grad_theta = learns && passes == CHECK_APPLY;
        add(list, &share, c, COPES_ACT_SOFTMAX, -3);
    }
}

static void add_acts(case_list *list, const sketch *s, copes_lrpe_variant variant, check_type type)
{
    check_case c = check_draw_sketch(s, variant);
    c.type = type;
    for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
        c.op.kind = (copes_kind)kind;
        c.grad_theta = s->learns && kind == COPES_LRPE_BACKWARD;
        for (int act = COPES_ACT_NONE; act < COPES_ACT_SOFTMAX; act++) {
            add(list, s, c, (copes_act)act, 0);
        }
        add(list, s, c, COPES_ACT_SOFTMAX, list->count % 2 == 0 ? 0 : -1);
        add(list, s, c, COPES_ACT_SOFTMAX, -3);
    }
}

static void add_table(case_list *list, copes_lrpe_variant variant)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        for (size_t i = 0; i < sketches_on_grids.count; i++) {
            add_acts(list, &sketches_on_grids.at[i], variant, float_types[t]);
        }
        for (size_t i = 0; i < sketches_with_positions.count; i++) {
            add_acts(list, &sketches_with_positions.at[i], variant, float_types[t]);
        }
    }
    for (size_t i = 0; i < sketches_long.count; i++) {
        add_acts(list, &sketches_long.at[i], variant, i % 2 == 0 ? CHECK_F32 : CHECK_BF16);
    }
    for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
        const sketch *s = &sketches_longest.at[kind == COPES_LRPE_BACKWARD];
        check_case c = check_draw_sketch(s, variant);
        c.type = CHECK_F32;
        c.op.kind = (copes_kind)kind;
        add(list, s, c, COPES_ACT_SOFTMAX, -3);
        add_passes(list, s, c);
    }
}

static void add_shared_by_many(case_list *list, copes_lrpe_variant variant)
{
    static const check_type types[] = {CHECK_F32, CHECK_BF16, CHECK_F16};
    for (size_t i = 0; i < sketches_shared_by_many.count; i++) {
        for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
            check_case c = check_draw_sketch(&sketches_shared_by_many.at[i], variant);
            c.type = types[(i + (size_t)kind + (variant == COPES_LRPE_COSINE)) % 3];
            c.op.kind = (copes_kind)kind;
            c.large = true;
            add(list, &sketches_shared_by_many.at[i], c, COPES_ACT_SOFTMAX, -3);
        }
    }
}

static void add_any_sharing(case_list *list, copes_lrpe_variant variant)
{
    static const check_type types[] = {CHECK_F32, CHECK_BF16, CHECK_F16};
    for (size_t i = 0; i < (variant == COPES_LRPE_COSINE ? 1 : 2); i++)
        for (size_t t = 0; t < 3; t++)
            for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
                check_case c = check_draw_sketch(&sketches_of_any_sharing.at[i], variant);
                c.type = types[t];
                c.op.kind = (copes_kind)kind;
                c.large = true;
                add(list, &sketches_of_any_sharing.at[i], c, COPES_ACT_SOFTMAX, -3);
            }
}

static void add_many_rows(case_list *list, copes_lrpe_variant variant)
{
    static const check_type types[] = {CHECK_F32, CHECK_F16, CHECK_BF16};
    for (size_t i = 0; i < sketches_of_many_rows.count; i++)
        for (size_t t = 0; t < 3; t++)
            add_acts(list, &sketches_of_many_rows.at[i], variant, types[t]);
}

static void add_learned(case_list *list, copes_lrpe_variant variant)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++)
        for (size_t i = 0; i < sketches_learned.count; i++)
            add_acts(list, &sketches_learned.at[i], variant, float_types[t]);
}

static void add_shares(case_list *list, const sketch_table *table, copes_lrpe_variant variant, check_type type)
{
    for (size_t i = 0; i < table->count; i++) {
        check_case c = check_draw_sketch(&table->at[i], variant);
        c.type = type;
        for (int kind = COPES_LRPE_FORWARD; kind <= COPES_LRPE_BACKWARD; kind++) {
            c.op.kind = (copes_kind)kind;
            c.grad_theta = table->at[i].learns && kind == COPES_LRPE_BACKWARD;
            add_passes(list, &table->at[i], c);
        }
    }
}

static void add_all_shares(case_list *list, copes_lrpe_variant variant)
{
    for (size_t t = 0; t < sizeof float_types / sizeof *float_types; t++) {
        add_shares(list, &sketches_on_grids, variant, float_types[t]);
        add_shares(list, &sketches_with_positions, variant, float_types[t]);
        add_shares(list, &sketches_of_any_sharing, variant, float_types[t]);
        add_shares(list, &sketches_in_shares, variant, float_types[t]);
    }
    add_shares(list, &sketches_long, variant, CHECK_BF16);
}

void check_rotate_table(case_list *list)
{
    add_table(list, COPES_LRPE_ROTATE);
    add_shared_by_many(list, COPES_LRPE_ROTATE);
    add_many_rows(list, COPES_LRPE_ROTATE);
    add_any_sharing(list, COPES_LRPE_ROTATE);
    add_learned(list, COPES_LRPE_ROTATE);
    add_all_shares(list, COPES_LRPE_ROTATE);
}

void check_cosine_table(case_list *list)
{
    add_table(list, COPES_LRPE_COSINE);
    add_shared_by_many(list, COPES_LRPE_COSINE);
    add_many_rows(list, COPES_LRPE_COSINE);
    add_any_sharing(list, COPES_LRPE_COSINE);
    add_learned(list, COPES_LRPE_COSINE);
    add_all_shares(list, COPES_LRPE_COSINE);
}

static int64_t random_offset(int64_t length, uint64_t *state)
{
    switch (check_below(state, 4)) {
    case 0: return FAR - (length > 0 ? length - 1 : 0);
    case 1: return check_below(state, FAR) * (check_random(state) & 1 ? -1 : 1) - length;
    case 2: return -check_below(state, 100);
    default: return check_below(state, 100000);
    }
}

static void draw_grid(sketch *s, uint64_t *state)
{
    s->grid_rank = (int)check_below(state, 5);
    int m = s->grid_rank > 0 ? s->grid_rank : 1;
    for (int j = 0; j < m; j++) {
        s->grid[j] = 1 + check_below(state, m == 1 ? 60 : m == 2 ? 9 : 4);
        s->offset[j] = random_offset(s->grid[j], state);
        s->offset[j] = s->offset[j] < -FAR ? -FAR : s->offset[j];
    }
    s->prefix = check_below(state, 3) == 0 ? check_below(state, 4) : 0;
    s->suffix = check_below(state, 3) == 0 ? check_below(state, 4) : 0;
    s->sections = check_below(state, 3) == 0;
    s->width = m > 1 ? -m : check_below(state, 3) == 0 ? 1 + check_below(state, 8) : 0;
    s->pad = check_random(state) & 1;
}

/* Positions of a tensor in place of the grid, or beside a line. */
static void draw_positions(sketch *s, uint64_t *state)
{
    static const check_type types[] = {CHECK_I32, CHECK_I64, CHECK_F32};
    s->position_type = types[check_below(state, 3)];
    s->positions =
        (check_positions)check_below(state, s->position_type == CHECK_F32 ? CHECK_POSITIONS : CHECK_FRACTION);
    if (s->grid_rank <= 1 && check_random(state) & 1) {
        s->offsets = true;
        return;
    }
    s->position_rank = 1 + (int)check_below(state, 3);
    s->dimensions = s->position_rank == 3 ? 1 + (int)check_below(state, 4) : 1;
    s->grid_rank = 0;
    s->grid[0] = 1 + check_below(state, 60);
    s->prefix = s->suffix = 0;
    for (int j = s->dimensions; j < COPES_MAX_GRID; j++)
        s->offset[j] = 0;
    s->width = s->dimensions > 1 ? -s->dimensions : s->width;
}

static void draw_factors(sketch *s, uint64_t *state)
{
    static const double amplitudes[] = {0, 0, 1.1, -0.5, 3, 1e-3};
    s->amplitude = amplitudes[check_below(state, sizeof amplitudes / sizeof *amplitudes)];
    s->inverse = check_below(state, 4) == 0;
    s->learns = check_below(state, 3) == 0;
    s->rotary_begin = check_below(state, 3) == 0 ? check_below(state, s->d - s->rotary_dim + 1) : 0;
    s->rotary_dim = s->rotary_dim == 0 && s->rotary_begin > 0 ? (s->d - s->rotary_begin) / 2 * 2 : s->rotary_dim;
    s->rotary_begin = s->rotary_dim == 0 ? 0 : s->rotary_begin;
}

sketch check_random_sketch(uint64_t *state)
{
    sketch s = {.b = 1 + check_below(state, 3), .h = 1 + check_below(state, 4)};
    s.d = check_random(state) & 1 ? 1 + check_below(state, 40) : 8 * (1 + check_below(state, 16));
    s.rank = s.h == 1 ? 3 : 4;
    s.rotary_dim = check_below(state, 3) == 0 ? check_below(state, s.d / 2 + 1) * 2 : 0;
    draw_grid(&s, state);
    if (check_random(state) & 1)
        draw_positions(&s, state);
    s.each = check_below(state, 4) == 0;
    s.sections = s.sections && !s.each;
    s.width = s.each ? 0 : s.width;
    draw_factors(&s, state);
    s.interleaved = check_random(state) & 1;
    s.shared = check_random(state) & 1;
    s.theta_type = (check_type)check_below(state, 3);
    s.angles = check_random(state) & 1 ? CHECK_ROPE : (check_angles)check_below(state, CHECK_ODD_ANGLE);
    s.in = (check_layout)check_below(state, CHECK_LAYOUTS);
    s.out = (check_layout)check_below(state, CHECK_BROADCAST);
    s.mixed = check_random(state) & 1;
    s.in_place = check_below(state, 4) == 0;
    return s;
}

static check_case random_case(uint64_t seed, copes_lrpe_variant variant)
{
    uint64_t state = seed;
    const sketch s = check_random_sketch(&state);
    check_case c = check_draw_sketch(&s, variant);
    c.type = float_types[check_below(&state, 4)];
    c.op.kind = check_random(&state) & 1 ? COPES_LRPE_FORWARD : COPES_LRPE_BACKWARD;
    c.op.lrpe.act = (copes_act)check_below(&state, 5);
    c.op.lrpe.dim = check_random(&state) & 1 ? -3 : -1;
    c.grad_theta = s.learns && c.op.kind == COPES_LRPE_BACKWARD;
    c.op.lrpe.amplitude = check_factor(&c, s.amplitude);
    /* GPUs need it for theta's gradient */
    c.lse = (check_random(&state) & 1 || c.grad_theta) && c.op.lrpe.act == COPES_ACT_SOFTMAX && c.op.lrpe.dim == -3;
    c.fill = check_random(&state) & 1 ? CHECK_NORMAL : (check_fill)check_below(&state, CHECK_DRAWN_FILLS);
    c.fill = check_makes_sense(&c) ? c.fill : CHECK_WIDE;
    check_draw_passes(&c, &state);
    c.seed = seed;
    c.random = true;
    return c;
}

check_case check_rotate_random(uint64_t seed)
{
    return random_case(seed, COPES_LRPE_ROTATE);
}

check_case check_cosine_random(uint64_t seed)
{
    return random_case(seed, COPES_LRPE_COSINE);
}
