/* Judging one element. */
#include "tests/harness/bounds.h"

#include <math.h>

/* What is allowed of `turn`: the phase's promise, and that of a rotation that is a product. */
static double phase_part(check_bound bound, check_type type, double turn)
{
    return (6.283185307179586 * (type == CHECK_F64 ? 0x1p-60 : 0x1p-30) + bound.rotation_units * 0x1p-24) * turn;
}

static bool is_float8(check_type type)
{
    return type == CHECK_F8 || type == CHECK_U8;
}

static bool stores_short(check_type type)
{
    return type == CHECK_F16 || type == CHECK_BF16 || is_float8(type);
}

/* Of float32, where a sigmoid or its gradient comes of arithmetic that is as fine as 16-bit storage shows. */
static double sigmoid_ulps(check_type type, bool on_cpu)
{
    if (!on_cpu)
        return 15;
    return type == CHECK_F16 ? 64 : 112;
}

/* Sine and cosine times an amplitude are rounded once more, by up to 2^-24 of a term, which may be an ulp of it. By a power of two they
 * are not. */
static double amplitude_ulps(double amplitude)
{
    int exponent;
    const double fraction = fabs(frexp(amplitude, &exponent));
    return fraction == 0 || fraction == 0.5 ? 0 : 1;
}

enum { PLAIN_ULPS = 4 };

/* Ulps of the largest term: 4, but for such a sigmoid, of which docs/numerics.md derives how many. A rotation adds two of them. */
static double term_ulps(const copes_op *op, check_type type, bool on_cpu)
{
    const bool act = op->kind == COPES_ACT_FORWARD || op->kind == COPES_ACT_BACKWARD;
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    const bool backward = op->kind == COPES_ACT_BACKWARD || op->kind == COPES_LRPE_BACKWARD;
    const copes_act by = act ? op->act.act : lrpe ? op->lrpe.act : COPES_ACT_NONE;
    const double plain = PLAIN_ULPS + (lrpe ? amplitude_ulps(op->lrpe.amplitude) : 0);
    if (!stores_short(type) || (by != COPES_ACT_SIGMOID && by != COPES_ACT_SILU))
        return plain;
    if (backward || on_cpu)
        return sigmoid_ulps(type, on_cpu) + (lrpe ? plain : 0);
    return lrpe ? plain + 2 * PLAIN_ULPS : plain;
}

/* In units of 2^-24: what a product of two rotations may be off by, which the CPU makes for 16-bit results of tokens counted along
 * a line. An amplitude is rounded into one of the two. */
static double rotation_units(const copes_op *op, const oracle_args *args, check_type type, bool on_cpu)
{
    const bool lrpe = op->kind == COPES_LRPE_FORWARD || op->kind == COPES_LRPE_BACKWARD;
    const bool given = lrpe && args != NULL && args->in[COPES_LRPE_POSITIONS] != NULL;
    if (!lrpe || given || !on_cpu || !stores_short(type) || op->lrpe.grid_rank > 1)
        return 0;
    return 5.75 + amplitude_ulps(op->lrpe.amplitude);
}

/* Of the largest, by row and by sum. A softmax's terms in bfloat16 are, on the CPU, as fine as the storage shows; docs/numerics.md derives
 * what that comes to. act's gradient is of the terms that it is given. */
static double relative_error(const copes_op *op, oracle_rule rule, check_type type, bool on_cpu)
{
    const bool stored_terms = on_cpu && type == CHECK_BF16 && rule == ORACLE_BY_ROW;
    if (type == CHECK_F64)
        return 1e-14;
    if (stored_terms && (op->kind == COPES_ACT_FORWARD || op->kind == COPES_LRPE_FORWARD))
        return 1e-5;
    return stored_terms && op->kind == COPES_LRPE_BACKWARD ? 3.3e-5 : 1e-6;
}

check_bound check_bound_of(const copes_op *op, const oracle_args *args, int slot, check_type type, DLDevice device)
{
    const bool on_cpu = device.device_type == kDLCPU;
    const oracle_rule rule = oracle_rule_of(op, slot);
    return (check_bound){.rule = rule,
                         .term_ulps = term_ulps(op, type, on_cpu),
                         .relative = relative_error(op, rule, type, on_cpu),
                         .rotation_units = rotation_units(op, args, type, on_cpu)};
}

/* How far from the oracle's value the result may be before it is stored. */
static double slack(check_bound bound, check_type type, double term, double turn)
{
    const oracle_rule rule = bound.rule;
    check_type arithmetic = type == CHECK_F64 ? CHECK_F64 : CHECK_F32;
    if (rule == ORACLE_BY_TERM) {
        return bound.term_ulps * check_ulp(arithmetic, term) + phase_part(bound, type, turn);
    }
    if (rule == ORACLE_BY_ATTENTION && stores_short(type)) {
        return 2 * check_ulp(type, term);
    }
    if (rule == ORACLE_BY_SUM)
        return bound.relative * term + check_ulp(arithmetic, 0) + phase_part(bound, type, turn);
    return bound.relative * term + 4 * check_ulp(arithmetic, 0) + phase_part(bound, type, turn);
}

static bool within(oracle_rule rule, check_type type, double value, double room, double got)
{
    if (stores_short(type) && rule != ORACLE_BY_ATTENTION) {
        return got >= check_round(type, value - room) && got <= check_round(type, value + room);
    }
    if (isinf(got)) {
        return got == check_round(type, got > 0 ? value + room : value - room);
    }
    return fabs(got - value) <= room;
}

/* Bit by bit, but for what is NaN. */
static bool is_copy(check_type type, double value, double got)
{
    const double wanted = check_round(type, value);
    return isnan(wanted) ? isnan(got) : got == wanted && !signbit(got) == !signbit(wanted);
}

/* Infinity, what stands for it, or NaN. */
static bool is_unbounded(check_type type, double got)
{
    return !isfinite(got) || (is_float8(type) && fabs(got) == check_type_of(type)->most);
}

check_verdict check_compare(check_bound bound, check_type type, double value, double term, double turn, double got)
{
    const oracle_rule rule = bound.rule;
    const double most = check_type_of(type)->most;
    check_verdict verdict = {false, 0};
    if (term < 0) {
        verdict.beyond = !is_copy(type, value, got);
    } else if (isinf(turn)) {
        verdict.beyond = !is_unbounded(type, got);
    } else if (isnan(value) || isnan(got)) {
        verdict.beyond = !isnan(value) || !isnan(got);
    } else if (isinf(value)) {
        verdict.beyond = got != check_round(type, value);
    } else {
        verdict.beyond = !within(rule, type, value, slack(bound, type, term, turn) + bound.room, got);
        bool at_value = stores_short(type) && rule == ORACLE_BY_TERM;
        double ulp = at_value ? fmax(check_ulp(type, value), check_ulp(CHECK_F32, term)) : check_ulp(type, term);
        double nearest = is_float8(type) ? fmax(-most, fmin(value, most)) : value;
        double error = fabs(got - nearest) - phase_part(bound, type, turn) - bound.room;
        verdict.ulps = error > 0 && isfinite(got) ? error / ulp : 0;
    }
    if (verdict.beyond && verdict.ulps == 0) {
        verdict.ulps = INFINITY;
    }
    return verdict;
}
