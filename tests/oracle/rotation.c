/* The oracle's rotations: what position a token has, which angles that makes, and pairs of features turned by them. */
#include "tests/oracle/internal.h"

#include <math.h>

copes_lrpe_attributes oracle_rotation_of(const copes_op *op)
{
    if (op->kind != COPES_QK_NORM_ROPE_FORWARD && op->kind != COPES_QK_NORM_ROPE_BACKWARD) {
        return op->lrpe;
    }
    const copes_qk_attributes *qk = &op->qk;
    copes_lrpe_attributes rotation = {.variant = COPES_LRPE_ROTATE,
                                      .pairing = qk->pairing,
                                      .grid_rank = qk->grid_rank,
                                      .pad_theta = qk->pad_theta,
                                      .prefix = qk->prefix,
                                      .suffix = qk->suffix,
                                      .rotary_dim = qk->rotary_dim,
                                      .rotary_begin = qk->rotary_begin,
                                      .amplitude = qk->amplitude,
                                      .inverse = qk->inverse};
    for (int j = 0; j < COPES_MAX_GRID; j++) {
        rotation.grid[j] = qk->grid[j];
        rotation.offset[j] = qk->offset[j];
        rotation.sections[j] = qk->sections[j];
    }
    return rotation;
}

/* Coordinate j of grid token s, counted row-major. */
static int64_t coordinate(const copes_lrpe_attributes *op, int64_t s, int j)
{
    for (int i = op->grid_rank - 1; i > j; i--) {
        s /= op->grid[i];
    }
    return op->grid_rank == 0 ? s : s % op->grid[j];
}

int oracle_dimensions(const oracle_rotation *r)
{
    if (r->positions != NULL) {
        return r->positions->rank == 3 ? (int)r->positions->shape[0] : 1;
    }
    return r->op.grid_rank > 0 ? r->op.grid_rank : 1;
}

/* Which column of theta turns angle i in dimension j; -1: none does. */
static int64_t column_of(const oracle_rotation *r, int64_t i, int j)
{
    int64_t width = r->theta->shape[r->theta->rank - 1], begin = 0;
    if (r->theta->rank == 3) {
        return i;
    }
    for (int before = 0; before < j; before++) {
        begin += r->op.sections[before];
    }
    if (r->op.sections[0] + r->op.sections[1] + r->op.sections[2] + r->op.sections[3] > 0) {
        return i >= begin && i < begin + r->op.sections[j] ? i : -1;
    }
    if (oracle_dimensions(r) > 1) {
        return i / width == j ? i % width : -1;
    }
    return width == 1 && !r->op.pad_theta ? 0 : i < width ? i : -1;
}

int64_t oracle_theta_place(const oracle_rotation *r, int64_t head, int64_t i, int j)
{
    int64_t heads = r->theta->shape[r->theta->rank - 2], width = r->theta->shape[r->theta->rank - 1];
    int64_t column = column_of(r, i, j);
    return column < 0 ? -1 : ((r->theta->rank == 3 ? j : 0) * heads + (heads == 1 ? 0 : head)) * width + column;
}

oracle_position oracle_position_of(const oracle_rotation *r, int64_t b, int64_t token, int j)
{
    int64_t s = token - r->op.prefix, length = r->n - r->op.prefix - r->op.suffix;
    oracle_position p = {r->op.offset[j], 0, r->positions != NULL || (s >= 0 && s < length)};
    const oracle_tensor *given = r->positions != NULL ? r->positions : r->offsets;
    if (!p.inside) {
        return p;
    }
    if (given != NULL) {
        int64_t at =
            r->positions == NULL ? b : ((given->rank == 3 ? j * r->b : 0) + (given->rank > 1 ? b : 0)) * r->n + token;
        double value = given->value[at];
        if (r->positions_are_real) {
            p.real = (float)value;
        } else {
            p.whole = (int64_t)((uint64_t)p.whole + (uint64_t)(int64_t)value);
        }
    }
    if (r->positions == NULL) {
        p.whole = (int64_t)((uint64_t)p.whole + (uint64_t)coordinate(&r->op, s, j));
    }
    return p;
}

real oracle_angle_at(const oracle_rotation *r, int64_t b, int64_t token, int64_t head, int64_t i)
{
    real angle = 0;
    for (int j = 0; j < oracle_dimensions(r); j++) {
        oracle_position p = oracle_position_of(r, b, token, j);
        int64_t place = oracle_theta_place(r, head, i, j);
        if (place < 0 || !p.inside) {
            continue;
        }
        float theta = (float)r->theta->value[place];
        angle += oracle_angle(p.whole, theta) + (p.real == 0 ? 0 : oracle_angle_of_float(p.real, theta));
    }
    return r->op.inverse ? -angle : angle;
}

real oracle_amplitude(const oracle_rotation *r)
{
    return r->op.amplitude != 0 ? (real)r->op.amplitude : 1;
}

oracle_number oracle_turned(const oracle_rotation *r, oracle_number a, real cosine, oracle_number b, real sine)
{
    real factor = oracle_amplitude(r), sum = a.value * cosine + b.value * sine;
    real term = r->by_row ? oracle_larger(a.term, b.term)
                          : oracle_larger(oracle_larger(a.term * fabsl(cosine), b.term * fabsl(sine)), fabsl(sum));
    return (oracle_number){.value = factor * sum,
                           .term = fabsl(factor) * oracle_larger(term, r->tiny),
                           .turn = fabsl(factor) * hypotl(a.value, b.value),
                           .room = fabsl(factor) * (a.room * fabsl(cosine) + b.room * fabsl(sine))};
}

void oracle_rotate_head(const oracle_rotation *r, int64_t b, int64_t token, int64_t head, real direction,
                        oracle_number *y)
{
    y += r->op.rotary_begin;
    for (int64_t i = 0; i < r->angles; i++) {
        real angle = direction * oracle_angle_at(r, b, token, head, i), cosine = cosl(angle), sine = sinl(angle);
        oracle_number *first = r->op.pairing == COPES_LRPE_HALF ? y + i : y + 2 * i;
        oracle_number *second = r->op.pairing == COPES_LRPE_HALF ? y + i + r->angles : first + 1;
        oracle_number one = *first, other = *second;
        *first = oracle_turned(r, one, cosine, other, -sine);
        *second = oracle_turned(r, other, cosine, one, sine);
    }
}
