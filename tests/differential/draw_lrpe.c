/* Cases of lrpe: grids and positions of every type, offsets up to the last position, sections, parts of the features, every form of
 * theta, and its gradient. */
#include "tests/differential/draw.h"

#include "tests/harness/random.h"

static const int64_t farthest = INT32_MAX; /* the largest position */

/* The position of the first of `length` tokens, so that all lie within the limits. */
static int64_t draw_offset(int64_t length, uint64_t *state)
{
    const int64_t last = farthest - (length > 0 ? length - 1 : 0);
    switch (check_below(state, 5)) {
    case 0: return last;
    case 1: return -farthest;
    case 2: return draw_between(state, -farthest, last);
    case 3: return 0;
    default: return draw_between(state, -100, 100000);
    }
}

/* Returns the number of tokens. */
static int64_t draw_grid(copes_lrpe_attributes *a, int64_t room, uint64_t *state)
{
    a->grid_rank = (int32_t)check_below(state, COPES_MAX_GRID + 1);
    const int m = a->grid_rank > 0 ? a->grid_rank : 1;
    int64_t tokens = 1;
    for (int j = 0; j < m; j++) {
        const int64_t most = m == 1 ? room : m == 2 ? 9 : 4;
        const int64_t length = draw_chance(state, 300) ? 0 : draw_length(state, room < most ? room : most);
        room = length > 0 ? room / length : room;
        tokens *= length;
        a->grid[j] = a->grid_rank > 0 ? length : 0;
        a->offset[j] = draw_offset(length, state);
    }
    a->prefix = draw_chance(state, 3) ? check_below(state, 4) : 0;
    a->suffix = draw_chance(state, 3) ? check_below(state, 4) : 0;
    return a->prefix + tokens + a->suffix;
}

static void draw_position_values(check_case *c, uint64_t *state)
{
    static const check_type types[] = {CHECK_I32, CHECK_I64, CHECK_F32};
    c->position_type = types[check_below(state, 3)];
    c->positions =
        (check_positions)check_below(state, c->position_type == CHECK_F32 ? CHECK_POSITIONS : CHECK_FRACTION);
}

/* To positions any offset may be added. */
static int64_t draw_any_offset(uint64_t *state)
{
    static const int64_t edges[] = {INT64_MAX, INT64_MIN, INT64_C(1) << 62, -(INT64_C(1) << 31), INT32_MAX};
    switch (check_below(state, 4)) {
    case 0: return edges[check_below(state, sizeof edges / sizeof *edges)];
    case 1: return draw_between(state, -1000, 1000);
    default: return 0;
    }
}

/* Returns the number of tokens. */
static int64_t draw_positions(check_case *c, int64_t room, uint64_t *state)
{
    draw_position_values(c, state);
    c->position_rank = (int)draw_between(state, 1, 3);
    c->dimensions = c->position_rank == 3 ? (int)draw_between(state, 1, COPES_MAX_GRID) : 1;
    for (int j = 0; j < c->dimensions; j++)
        c->op.lrpe.offset[j] = draw_any_offset(state);
    return draw_chance(state, 300) ? 0 : draw_length(state, room);
}

/* Where tokens are. Returns their number. */
static int64_t draw_tokens(check_case *c, int64_t room, uint64_t *state)
{
    if (draw_chance(state, 3))
        return draw_positions(c, room, state);
    const int64_t tokens = draw_grid(&c->op.lrpe, room, state);
    c->dimensions = c->op.lrpe.grid_rank > 1 ? c->op.lrpe.grid_rank : 1;
    c->offsets = c->dimensions == 1 && draw_chance(state, 3);
    if (c->offsets)
        draw_position_values(c, state);
    return tokens;
}

/* The angles of a head. An odd number of features cannot all turn, and what turns may begin past the first one. */
static int64_t draw_angles(copes_lrpe_attributes *a, int64_t *d, uint64_t *state)
{
    if (a->variant == COPES_LRPE_COSINE)
        return *d;
    *d += *d == 1;
    a->pairing = (copes_lrpe_pairing)check_below(state, 2);
    if (*d % 2 != 0 || draw_chance(state, 2))
        a->rotary_dim = 2 * draw_between(state, 1, *d / 2);
    const int64_t left =
        a->rotary_dim > 0 ? *d - a->rotary_dim : *d - 2; /* features that may stay before those that turn */
    if (left > 0 && draw_chance(state, 3))
        a->rotary_begin = a->rotary_dim > 0 ? draw_between(state, 1, left) : left / 2 * 2;
    if (draw_chance(state, 100)) { /* nothing turns */
        a->rotary_dim = 0;
        a->rotary_begin = *d;
    }
    return (a->rotary_dim > 0 ? a->rotary_dim : *d - a->rotary_begin) / 2;
}

/* Cuts the angles into a part for each dimension of the grid, some of them empty. */
static void draw_sections(copes_lrpe_attributes *a, int m, int64_t angles, uint64_t *state)
{
    for (int j = 0; j < m; j++) {
        a->sections[j] = j == m - 1 ? angles : check_below(state, angles + 1);
        angles -= a->sections[j];
    }
}

/* A grid of one dimension takes an angle for all, one each, or a part of them. */
static int64_t draw_width(copes_lrpe_attributes *a, int m, int64_t angles, uint64_t *state)
{
    if (angles == 0)
        return draw_between(state, 1, 3);
    if (draw_chance(state, 3)) {
        draw_sections(a, m, angles, state);
        return angles;
    }
    if (m > 1)
        return draw_between(state, (angles + m - 1) / m, angles);
    switch (check_below(state, 4)) {
    case 0: return 1;
    case 1: a->pad_theta = 1; return draw_between(state, 1, angles);
    default: return angles;
    }
}

static void draw_factors(check_case *c, uint64_t *state)
{
    static const double amplitudes[] = {1.1, -0.5, 3, 0.1, 1, -1, 1e-3, 60};
    c->op.lrpe.inverse = draw_chance(state, 4);
    c->grad_theta = c->op.kind == COPES_LRPE_BACKWARD && draw_chance(state, 2);
    if (draw_chance(state, 3))
        c->op.lrpe.amplitude = check_factor(c, amplitudes[check_below(state, sizeof amplitudes / sizeof *amplitudes)]);
}

static void draw_activation(check_case *c, uint64_t *state)
{
    static const int32_t axes[] = {0, -1, -3};
    c->op.kind = draw_chance(state, 2) ? COPES_LRPE_FORWARD : COPES_LRPE_BACKWARD;
    c->op.lrpe.act = (copes_act)check_below(state, COPES_ACT_SOFTMAX + 1);
    c->op.lrpe.dim = axes[check_below(state, 3)];
    const bool over_sequence = c->op.lrpe.act == COPES_ACT_SOFTMAX && c->op.lrpe.dim == -3;
    c->lse = over_sequence && (c->op.kind == COPES_LRPE_FORWARD || draw_chance(state, 2));
}

/* A length that takes its part of the room. */
static int64_t draw_part(int64_t *room, int64_t most, uint64_t *state)
{
    const int64_t length = draw_length(state, *room < most ? *room : most);
    *room /= length;
    return length;
}

void draw_lrpe(check_case *c, int64_t room, uint64_t *state)
{
    copes_lrpe_attributes *a = &c->op.lrpe;
    draw_activation(c, state);
    int64_t d = draw_part(&room, 300, state);
    const int64_t h = draw_part(&room, draw_chance(state, 8) ? 40 : 5, state);
    const int64_t b = draw_part(&room, draw_chance(state, 8) ? 20 : 4, state);
    const int64_t n = draw_tokens(c, room, state), angles = draw_angles(a, &d, state);
    c->rank = h == 1 && draw_chance(state, 2) ? 3 : 4;
    const int64_t shape[] = {draw_chance(state, 300) ? 0 : b, n, c->rank == 4 ? h : d, d};
    for (int i = 0; i < c->rank; i++)
        c->shape[i] = shape[i];
    c->theta_shape[0] = draw_chance(state, 2) ? 1 : h;
    c->theta_each = draw_chance(state, 4);
    c->theta_shape[1] = c->theta_each ? angles : draw_width(a, c->dimensions, angles, state);
    draw_factors(c, state);
    c->theta_type = (check_type)check_below(state, 3);
    c->angles = draw_chance(state, 2) ? CHECK_ROPE : (check_angles)check_below(state, CHECK_ANGLES);
}
