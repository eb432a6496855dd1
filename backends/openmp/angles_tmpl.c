/* Sines and cosines of angles: exact phases in integers, then polynomials. The turns per position are found once a thread; each
 * token then costs a multiplication for each dimension and two polynomials an angle, or, for most tokens on a line in 16 bits, a complex
 * product or a sum of phases. It is shared by every head where theta has one row, and else by batch entries with the same positions. */
#include "backends/openmp/angles.h"
#include "common/half.h"

/* theta, or its opposite where angles are. */
static inline float theta_at(const copes_lrpe_problem *problem, int64_t head, int64_t e, int j)
{
    const int64_t at = head * problem->theta.stride[0] + e * problem->theta.stride[1] + j * problem->theta.stride[2];
    const char *base = problem->theta.data;
    const float theta = copes_load_narrow(problem->theta_dtype, base + at * copes_dtype_size(problem->theta_dtype));
    return (float)problem->theta_sign * theta;
}

/* Of angle i, in dimension j. */
static inline float theta_of_angle(const copes_lrpe_problem *problem, int64_t head, int64_t i, int j)
{
    return theta_at(problem, head, problem->segment[j].theta_begin + i - problem->segment[j].begin, j);
}

static inline void angles_set_step(angles *a, int64_t at, float theta)
{
    const copes_step step = copes_phase_step(theta);
    const double turns = (double)theta * 0.15915494309189533577;
#ifdef COPES_TYPE_F64
    a->high[at] = step.high;
    a->low[at] = step.low;
#else
    a->high[at] = (uint32_t)(step.high >> 32);
    a->low[at] = (uint32_t)step.high;
#endif
    a->small = a->small && fabs(turns) < 0x1p30;
    a->whole[at] = fabs(turns) < 0x1p30 ? (int32_t)nearbyint(turns - (double)step.high * 0x1p-64) : 0;
    a->finite = a->finite && isfinite(theta);
}

/* Angles begin .. end - 1 of `count` heads from `head` on turn with dimension j; `more`: besides another's. */
typedef struct turning {
    int64_t head, count, begin, end;
    int j;
    bool more;
} turning;

/* p steps to a phase, in one row. */
static NOINLINE void multiply_row(const phase_word *restrict high, const uint32_t *restrict low,
                                  phase_word *restrict phase, int64_t count, int64_t p, bool more)
{
    const phase_word factor = (phase_word)p, kept = more ? ~(phase_word)0 : 0;
#ifdef COPES_TYPE_F64
    for (int64_t i = 0; i < count; i++)
        phase[i] = (phase[i] & kept) + factor * high[i] + (uint64_t)(p * (int64_t)low[i] >> 32);
#else
    const uint32_t borrow = p < 0 ? UINT32_MAX : 0; /* the factor is p + 2^32 then */
    for (int64_t i = 0; i < count; i++)
        phase[i] =
            (phase[i] & kept) + factor * high[i] + (uint32_t)((uint64_t)factor * low[i] >> 32) - (low[i] & borrow);
#endif
}

static void angles_multiply(const angles *a, const turning *t, int64_t p)
{
    const int64_t length = t->end - t->begin;
    if (a->sets == 1 && length == a->stride) { /* all heads' rows are one */
        multiply_row(a->high + t->head * a->stride, a->low + t->head * a->stride, a->phase + t->head * a->stride,
                     t->count * a->stride, p, t->more);
        return;
    }
    for (int64_t head = t->head; head < t->head + t->count; head++) {
        const int64_t from = (head * a->sets + (a->sets > 1 ? t->j : 0)) * a->stride + t->begin;
        multiply_row(a->high + from, a->low + from, a->phase + head * a->stride + t->begin, length, p, t->more);
    }
}

/* The top of a phase of 2^-64 turn, rounded to nearest, as those of several dimensions add up. */
static inline phase_word phase_top(uint64_t phase)
{
    return (phase_word)((phase + (UINT64_C(1) << (64 - PHASE_BITS) >> 1)) >> (64 - PHASE_BITS));
}

/* The same for positions that 32 bits do not hold: theta by theta, with all of its bits. */
static SELDOM void angles_multiply_slowly(const angles *a, const copes_lrpe_problem *problem, const turning *t,
                                          token_position position)
{
    const int64_t end = t->end < problem->segment[t->j].end ? t->end : problem->segment[t->j].end;
    for (int64_t head = t->head; head < t->head + t->count; head++)
        for (int64_t i = t->begin; i < t->end; i++) {
            phase_word *phase = &a->phase[head * a->stride + i];
            const float theta = i < end ? theta_of_angle(problem, a->first + head, i, t->j) : 0;
            uint64_t turned = isfinite(theta) ? copes_phase_exactly(position.whole, theta) : 0;
            if (isfinite(position.real) && isfinite(theta))
                turned += copes_phase_product(position.real, theta);
            *phase = (t->more ? *phase : 0) + phase_top(turned);
        }
}

#ifndef COPES_TYPE_F64
/* 64 bits of the fraction of a step over 2^shift, whose whole turns reach it. */
static inline uint64_t shorter_step(int64_t whole, uint64_t step, int shift)
{
    if (shift == 0)
        return step;
    if (shift < 64)
        return (uint64_t)whole << (64 - shift) | step >> shift;
    return (uint64_t)(whole >> (shift < 127 ? shift - 64 : 63));
}

/* Phases of an integer and a fraction, which is an integer of 24 bits over 2^shift: that integer times shorter steps. */
static NOINLINE void angles_multiply_fraction(const angles *a, const turning *t, token_position position)
{
    const copes_binary binary = copes_binary_of(position.real);
    const uint64_t whole = (uint64_t)position.whole,
                   part = binary.negative ? 0 - (uint64_t)binary.integer : binary.integer;
    for (int64_t head = t->head; head < t->head + t->count; head++) {
        const int64_t from = (head * a->sets + (a->sets > 1 ? t->j : 0)) * a->stride;
        phase_word *phase = a->phase + head * a->stride;
        const phase_word kept = t->more ? ~(phase_word)0 : 0;
        for (int64_t i = t->begin; i < t->end; i++) {
            const uint64_t step = (uint64_t)a->high[from + i] << 32 | a->low[from + i];
            const uint64_t turned = whole * step + part * shorter_step(a->whole[from + i], step, -binary.exponent);
            phase[i] = (phase[i] & kept) + phase_top(turned);
        }
    }
}
#endif

static void angles_turn(const angles *a, const copes_lrpe_problem *problem, const turning *t, token_position position)
{
    const bool narrow = position.whole == (int32_t)position.whole && position.real == 0;
    if (narrow) {
        angles_multiply(a, t, position.whole);
        return;
    }
#ifndef COPES_TYPE_F64
    if (position.whole == (int32_t)position.whole && a->small && fabsf(position.real) < 0x1p24f) {
        angles_multiply_fraction(a, t, position);
        return;
    }
#endif
    angles_multiply_slowly(a, problem, t, position);
}

/* Where theta or a position is not finite nothing is known of the angle. */
static SELDOM void angles_poison(const angles *a, const copes_lrpe_problem *problem, int64_t head, int64_t row, int j,
                                 token_position position)
{
    const copes_segment *segment = &problem->segment[j];
    for (int64_t i = segment->begin; i < segment->end; i++)
        if (!isfinite(position.real) || !isfinite(theta_of_angle(problem, a->first + head, i, j))) {
            const int64_t at = row * a->stride + (a->split ? split_place(i) : i);
            a->cosine[at] = a->sine[at] = NAN;
        }
}

/* From phases, `length` of them, to sines and cosines. */
static void angles_finish(const angles *a, int64_t from, int64_t to, int64_t length)
{
    const vreal amplitude = vset(a->amplitude);
    for (int64_t i = 0; i < length; i += PAIR) {
        const sincos low = vsincos(load_phase(a->phase + from + i)),
                     high = vsincos(load_phase(a->phase + from + i + LANES));
        const vpair cosine = {low.cosine * amplitude, high.cosine * amplitude};
        const vpair sine = {low.sine * amplitude, high.sine * amplitude};
        store_real_pair(a->cosine + to + i, a->split ? split_of(cosine) : cosine);
        store_real_pair(a->sine + to + i, a->split ? split_of(sine) : sine);
    }
}

/* Phases of `count` heads from `head` on, of a position in each dimension. */
static void angles_phases(const angles *a, const copes_lrpe_problem *problem, const token_position *position,
                          int64_t head, int64_t count)
{
    const bool line = problem->grid_rank == 1; /* all of a row at once: an angle past the segment has a step of 0 */
    for (int j = 0; j < problem->grid_rank; j++) {
        const turning t = {head,
                           count,
                           line ? 0 : problem->segment[j].begin,
                           line || problem->mixed ? a->stride : problem->segment[j].end,
                           j,
                           problem->mixed && j > 0};
        angles_turn(a, problem, &t, position[j]);
    }
}

/* Rows `row` .. `row` + count - 1, of that position. */
static void angles_exactly(const angles *a, const copes_lrpe_problem *problem, const token_position *position,
                           int64_t head, int64_t count, int64_t row)
{
    angles_phases(a, problem, position, head, count);
    angles_finish(a, head * a->stride, row * a->stride, count * a->stride);
    for (int j = 0; j < problem->grid_rank; j++)
        for (int64_t i = 0; i < count && !(a->finite && isfinite(position[j].real)); i++)
            angles_poison(a, problem, head + i, row + i, j, position[j]);
}

/* The row of a head's rotation by a distance of 1 .. SPAN / 2 positions; of its anchor for 0. */
static inline int64_t distance_row(const angles *a, int64_t distance, int64_t head)
{
    return a->rows + distance * a->heads + head;
}

static void angles_open_products(angles *a, const copes_lrpe_problem *problem)
{
    angles plain = *a;
    plain.amplitude = 1; /* the anchor's rotation has the amplitude */
    for (int64_t distance = 1; distance <= SPAN / 2; distance++)
        angles_exactly(&plain, problem, &(token_position){distance, 0}, 0, a->heads, distance_row(a, distance, 0));
}

/* A head's phases of its anchor, or of a distance of 0 .. SPAN - 1 positions. */
static inline phase_word *anchor_phases(const angles *a, int64_t head)
{
    return a->near + head * a->stride;
}

static inline phase_word *distance_phases(const angles *a, int64_t distance, int64_t head)
{
    return a->near + ((1 + distance) * a->heads + head) * a->stride;
}

/* Makes phases of position p for sums: in the order of sines and cosines, with `more` added. */
static void keep_phases(const angles *a, const copes_lrpe_problem *problem, int64_t p, int64_t head, int64_t count,
                        phase_word more, phase_word *to)
{
    const phase_word *from = a->phase + head * a->stride;
    angles_phases(a, problem, &(token_position){p, 0}, head, count);
    for (int64_t i = 0; i < count * a->stride; i += PAIR) {
        const vpair phases = {real_of_bits((vint)(load_phase(from + i) + more)),
                              real_of_bits((vint)(load_phase(from + i + LANES) + more))};
        store_real_pair((real *)(to + i), a->split ? split_of(phases) : phases);
    }
}

static void angles_open_sums(angles *a, const copes_lrpe_problem *problem)
{
    a->near = (phase_word *)(a->anchor + whole_pairs(a->heads));
    for (int64_t distance = 0; distance < SPAN; distance++)
        keep_phases(a, problem, distance, 0, a->heads, 0, distance_phases(a, distance, 0));
}

void TEMPLATE(angles_open)(angles *a, const copes_lrpe_problem *problem, int64_t first, int64_t heads, int64_t rows,
                           bool products, void *memory)
{
    const int64_t stride = whole_pairs(problem->k), sets = step_sets(problem), steps = heads * sets * stride;
    const int64_t all = all_rows(heads, rows, products);
    *a = (angles){.first = first,
                  .heads = heads,
                  .sets = sets,
                  .rows = rows,
                  .count = problem->k,
                  .stride = stride,
                  .split = problem->variant == COPES_LRPE_COSINE || problem->pairing == COPES_LRPE_HALF,
                  .table = load_sincos_table((real)problem->amplitude_as_double),
                  .amplitude = (real)problem->amplitude_as_double,
                  .finite = true,
                  .small = true};
    a->cosine = memory;
    a->sine = a->cosine + all * stride;
    a->high = (phase_word *)(a->sine + all * stride);
    a->phase = a->high + steps;
    a->low = (uint32_t *)(a->phase + heads * stride);
    a->whole = (int32_t *)(a->low + steps);
    a->anchor = by_anchors(problem) ? (int64_t *)(a->whole + steps) : NULL;
    memset(a->high, 0, (size_t)((char *)(a->whole + steps) - (char *)a->high));
    for (int64_t head = 0; head < heads; head++)
        for (int j = 0; j < problem->grid_rank; j++) {
            const copes_segment *segment = &problem->segment[j];
            const int64_t row = (head * sets + (sets > 1 ? j : 0)) * stride;
            for (int64_t i = segment->begin; i < segment->end; i++)
                angles_set_step(a, row + i, theta_of_angle(problem, first + head, i, j));
        }
    for (int64_t head = 0; head < heads && a->anchor != NULL; head++)
        a->anchor[head] = INT64_MIN; /* none yet: no position has this anchor */
    if (products)
        angles_open_products(a, problem);
    else if (a->anchor != NULL)
        angles_open_sums(a, problem);
}

/* Where rotations are. */
typedef struct rotations {
    real *cosine, *sine;
} rotations;

static inline rotations rotations_at(const angles *a, int64_t row)
{
    return (rotations){a->cosine + row * a->stride, a->sine + row * a->stride};
}

/* Turns the rotations `from` by those of `by`; with a sign of -1, back. */
static inline void multiply_rotations(rotations from, rotations by, real sign, rotations to, int64_t length)
{
    for (int64_t i = 0; i < length; i += PAIR) {
        const vpair c = load_real_pair(from.cosine + i), s = load_real_pair(from.sine + i);
        const vpair on = load_real_pair(by.cosine + i), sine = load_real_pair(by.sine + i);
        const vpair across = {sign * sine.low, sign * sine.high};
        store_real_pair(to.cosine + i, (vpair){vfnma(s.low, across.low, c.low * on.low),
                                               vfnma(s.high, across.high, c.high * on.high)});
        store_real_pair(to.sine + i,
                        (vpair){vfma(s.low, on.low, c.low * across.low), vfma(s.high, on.high, c.high * across.high)});
    }
}

/* Makes rows as angles_make does, of position p, which is below 2^62 in magnitude. */
static void angles_multiply_anchor(const angles *a, const copes_lrpe_problem *problem, int64_t p, int64_t head,
                                   int64_t count, int64_t row)
{
    const int64_t anchor = (p + SPAN / 2) & -(int64_t)SPAN, length = count * a->stride;
    const int64_t distance = p < anchor ? anchor - p : p - anchor;
    const rotations from = rotations_at(a, distance_row(a, 0, head)), to = rotations_at(a, row);
    if (a->anchor[head] != anchor)
        angles_exactly(a, problem, &(token_position){anchor, 0}, head, count, distance_row(a, 0, head));
    a->anchor[head] = anchor;
    if (distance != 0) {
        multiply_rotations(from, rotations_at(a, distance_row(a, distance, head)), p < anchor ? -1 : 1, to, length);
        return;
    }
    memcpy(to.cosine, from.cosine, (size_t)length * sizeof(real));
    memcpy(to.sine, from.sine, (size_t)length * sizeof(real));
}

/* The phases that are added, of thetas that are finite. */
static phase_sums find_sums(const angles *a, const copes_lrpe_problem *problem, int64_t p, int64_t head, int64_t count)
{
    const int64_t distance = p & (SPAN - 1), anchor = p - distance;
    phase_word *from = anchor_phases(a, head);
    if (a->anchor[head] != anchor)
        keep_phases(a, problem, anchor, head, count, PHASE_HALF, from);
    a->anchor[head] = anchor;
    return (phase_sums){from, distance_phases(a, distance, head)};
}

/* Makes rows as angles_make does by sums of phases. */
static void angles_add_distance(const angles *a, const copes_lrpe_problem *problem, int64_t p, int64_t head,
                                int64_t count, int64_t row)
{
    add_phases(a, find_sums(a, problem, p, head, count), count * a->stride, row);
}

/* Is it a position near an anchor? */
static inline bool is_near_anchor(const angles *a, token_position position)
{
    const int64_t limit = INT64_C(1) << 62;
    return a->anchor != NULL && position.real == 0 && position.whole < limit && position.whole >= -limit;
}

phase_sums TEMPLATE(angles_sums)(const angles *a, const copes_lrpe_problem *problem, int64_t b, int64_t token,
                                 int64_t head, int64_t count)
{
    token_position position[COPES_MAX_GRID] = {{0, 0}};
    if (a->near == NULL || !a->finite || !find_positions(problem, b, token, position) ||
        !is_near_anchor(a, position[0]))
        return (phase_sums){NULL, NULL};
    return find_sums(a, problem, position[0].whole, head, count);
}

void TEMPLATE(angles_make)(const angles *a, const copes_lrpe_problem *problem, int64_t b, int64_t token, int64_t head,
                           int64_t count, int64_t row)
{
    token_position position[COPES_MAX_GRID] = {{0, 0}};
    if (!find_positions(problem, b, token, position)) {
        const int64_t to = row * a->stride;
        for (int64_t i = 0; i < count * a->stride; i += LANES) {
            store_real(a->cosine + to + i, vset(a->amplitude));
            store_real(a->sine + to + i, vset(0));
        }
        return;
    }
    const int64_t p = position[0].whole;
    const bool near_anchor = is_near_anchor(a, position[0]);
    if (near_anchor && a->near == NULL)
        angles_multiply_anchor(a, problem, p, head, count, row);
    else if (near_anchor && a->finite)
        angles_add_distance(a, problem, p, head, count, row);
    else
        angles_exactly(a, problem, position, head, count, row);
}
