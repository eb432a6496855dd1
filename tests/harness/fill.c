/* Values for the tensors of a case: from plain ones to those that break kernels. */
#include "tests/harness/fill.h"

#include "tests/harness/random.h"

#include <math.h>
#include <string.h>

static double plain(uint64_t *state)
{
    return 2 * (check_uniform(state) + check_uniform(state) + check_uniform(state) - 1.5);
}

static double sign(uint64_t *state)
{
    return check_random(state) & 1 ? -1 : 1;
}

static double special(check_type type, bool finite, uint64_t *state)
{
    const check_type_info *info = check_type_of(type);
    const double values[] = {0,
                             -0.0,
                             info->normal,
                             ldexp(1, info->exponent),
                             info->most,
                             info->most / 2,
                             1,
                             88.5,
                             87.25,
                             89,
                             104,
                             17.5,
                             20,
                             700,
                             709.5,
                             -744,
                             0.5,
                             1e-3,
                             100,
                             36.5,
                             INFINITY,
                             NAN};
    int64_t count = (int64_t)(sizeof values / sizeof *values) - (finite ? 2 : 0);
    return check_random(state) & 1 ? plain(state) : sign(state) * values[check_below(state, count)];
}

static double number_of_bits(check_type type, double at)
{
    int size = check_type_of(type)->size;
    uint64_t bits = (uint64_t)ldexp(at, 8 * size);
    uint32_t half = (uint32_t)bits;
    uint16_t quarter = (uint16_t)bits;
    const void *from = size == 8 ? (const void *)&bits : size == 4 ? (const void *)&half : (const void *)&quarter;
    return check_decode(type, from);
}

/* `at` is where the value stands in its entry of the first axis, from 0 to 1. */
static double one_value(check_type type, check_fill fill, double at, uint64_t *state)
{
    const check_type_info *info = check_type_of(type);
    switch (fill) {
    case CHECK_NORMAL:
    case CHECK_STRAY:
    case CHECK_EQUAL:
    case CHECK_FILLS: break;
    case CHECK_WIDE: return sign(state) * exp2(30 * check_uniform(state) - 20);
    case CHECK_SPECIAL: return special(type, false, state);
    case CHECK_FINITE: return special(type, true, state);
    case CHECK_SUBNORMAL: return sign(state) * info->normal * exp2(2 - (info->digits + 2) * check_uniform(state));
    case CHECK_LARGE: return sign(state) * info->most / exp2(3 * check_uniform(state));
    case CHECK_MASKED: return check_random(state) & 1 ? -(double)INFINITY : plain(state);
    case CHECK_LATE: return at < 0.875 ? -(double)INFINITY : plain(state);
    case CHECK_RISING: return 200 * at - 100 + plain(state);
    case CHECK_EVERY: return type == CHECK_BYTE ? (double)check_below(state, 256) : number_of_bits(type, at);
    case CHECK_POSITIVE: return exp2(2 * check_uniform(state) - 1);
    case CHECK_TAIL:
        return check_random(state) & 1 ? 48 * check_uniform(state) - 24
                                       : sign(state) * exp2(-4 - 20 * check_uniform(state));
    }
    return plain(state);
}

/* The value at a place of an entry of the first axis. */
static double value_at(const oracle_tensor *tensor, check_type type, check_fill fill, int64_t place, int64_t entry,
                       uint64_t *state)
{
    const double value = one_value(type, fill, (double)place / (double)entry, state);
    if (fill != CHECK_STRAY || tensor->rank < 3)
        return value;
    int64_t tokens = tensor->shape[1], token = place / (entry / tokens);
    int64_t column = place % tensor->shape[tensor->rank - 1] % 16;
    if (column == 0 && token == tokens / 200)
        return (double)NAN;
    return column != 1 ? value : token == tokens * 7 / 10 ? 59.06 : token == tokens * 9 / 10 ? 59.17 : value;
}

/* The place of the entry that place i repeats: the same but for index 0 along the axes of `repeats`. */
static int64_t original_of(const oracle_tensor *tensor, unsigned repeats, int64_t i)
{
    int64_t from = i, step = 1;
    for (int axis = tensor->rank - 1; axis >= 0 && repeats != 0; axis--) {
        from -= repeats >> axis & 1 ? i / step % tensor->shape[axis] * step : 0;
        step *= tensor->shape[axis];
    }
    return from;
}

void check_fill_values(oracle_tensor *tensor, check_type type, check_fill fill, unsigned repeats, uint64_t *state)
{
    int64_t count = oracle_count(tensor), entry = tensor->rank > 1 && count > 0 ? count / tensor->shape[0] : count;
    for (int64_t i = 0; i < count; i++) {
        const int64_t from = fill == CHECK_EQUAL ? 0 : original_of(tensor, repeats, i);
        tensor->value[i] =
            from < i ? tensor->value[from] : check_round(type, value_at(tensor, type, fill, i % entry, entry, state));
    }
}

void check_fill_finite(oracle_tensor *tensor, check_type type, uint64_t *state)
{
    for (int64_t i = 0; i < oracle_count(tensor); i++) {
        do {
            tensor->value[i] = number_of_bits(type, check_uniform(state));
        } while (!isfinite(tensor->value[i]));
    }
}

static double one_angle(check_angles angles, int64_t i, int64_t width, int64_t head, uint64_t *state)
{
    switch (angles) {
    case CHECK_ROPE: return pow(10000, -(double)i / (double)width) * (1 + 0.125 * (double)head);
    case CHECK_TINY_ANGLE: return sign(state) * exp2(-20 - 130 * check_uniform(state));
    case CHECK_HUGE_ANGLE: return sign(state) * exp2(4 + 124 * check_uniform(state));
    case CHECK_ODD_ANGLE:
        switch (check_below(state, 6)) {
        case 0: return sign(state) * (double)INFINITY;
        case 1: return (double)NAN;
        case 2: return 0;
        default: break;
        }
        break;
    case CHECK_ANY_ANGLE:
    case CHECK_ANGLES: break;
    }
    return sign(state) * 3.141592653589793 * check_uniform(state);
}

void check_fill_angles(oracle_tensor *theta, check_type type, check_angles angles, unsigned repeats, uint64_t *state)
{
    int64_t width = theta->shape[theta->rank - 1];
    for (int64_t i = 0; i < oracle_count(theta); i++) {
        const int64_t from = original_of(theta, repeats, i);
        theta->value[i] =
            from < i ? theta->value[from] : check_round(type, one_angle(angles, i % width, width, i / width, state));
    }
}

static double one_position(check_type type, check_positions positions, double before, uint64_t *state)
{
    const int64_t far[] = {INT32_MAX, INT32_MIN, INT32_MAX - 1, -INT32_MAX};
    const double farther[] = {0x1p31, -0x1p31 - 1, 0x1p52 + 1, -0x1.fffffp61};
    switch (positions) {
    case CHECK_PACKED: return check_below(state, 7) == 0 ? 0 : before + 1;
    case CHECK_FAR:
        return type == CHECK_I32 || check_below(state, 2) == 0 ? (double)far[check_below(state, 4)]
                                                               : farther[check_below(state, 4)];
    case CHECK_FRACTION: return sign(state) * check_uniform(state);
    case CHECK_ODD_POSITION:
        if (check_below(state, 3) == 0)
            return check_below(state, 2) == 0 ? (double)NAN : sign(state) * (double)INFINITY;
        break;
    case CHECK_SCATTERED:
    case CHECK_POSITIONS: break;
    }
    return 101000 * check_uniform(state) - 1000;
}

void check_fill_positions(oracle_tensor *tensor, check_type type, check_positions positions, unsigned repeats,
                          uint64_t *state)
{
    for (int64_t i = 0; i < oracle_count(tensor); i++) {
        const int64_t from = original_of(tensor, repeats, i);
        const double value = one_position(type, positions, i > 0 ? tensor->value[i - 1] : -1, state);
        tensor->value[i] = from < i ? tensor->value[from] : type == CHECK_F32 ? check_round(type, value) : trunc(value);
    }
}

void check_fill_lengths(oracle_tensor *lengths, int64_t m, uint64_t *state)
{
    for (int64_t i = 0; i < oracle_count(lengths); i++) {
        const int64_t edges[] = {0, m, m - 1, m + 1, -1, INT32_MAX, INT32_MIN, 1};
        lengths->value[i] =
            (double)(check_random(state) % 3 == 0 ? edges[check_below(state, 8)] : check_below(state, m + 1));
    }
}
