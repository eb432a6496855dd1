/* Elementary functions on vectors: exp by a range reduction to half an octave, sine and cosine by polynomials on an
 * eighth of a turn. Coefficients are Cephes's (Moshier; scaled to turns for sine and cosine) and Taylor's;
 * tests/test_vmath.c holds the bounds. */
#ifndef COPES_BACKENDS_OPENMP_VMATH_H
#define COPES_BACKENDS_OPENMP_VMATH_H

#include "backends/openmp/simd.h"

#include <float.h>

#ifdef COPES_TYPE_F64
typedef uint64_t phase_word;
#else
typedef uint32_t phase_word; /* the top half of a phase: 2^-32 turn is fine enough for float */
#endif
enum { PHASE_BITS = 8 * (int)sizeof(phase_word) };

typedef phase_word vphase __attribute__((vector_size(VECTOR_BYTES)));

/* e^x = (fraction + rest) 2^octaves, for x of moderate size. `shifted` holds the octaves as an integer in its low
 * bits. */
typedef struct scaled {
    vreal fraction, rest, shifted, octaves;
} scaled;

/* value + rest: what the value's last rounding lost goes along, for those who need it. */
typedef struct vexponential {
    vreal value, rest;
} vexponential;

static ALWAYS_INLINE scaled vexp_scaled(vreal above, vreal shifted, vreal octaves)
{
    const vreal fraction = above + 1;
    return (scaled){fraction, above - (fraction - 1), shifted, octaves};
}

#ifdef COPES_TYPE_F64

enum { FRACTION_BITS = 52, EXPONENT_BIAS = 1023, TAIL_OCTAVES = 200 };
static const real exp_least = -746, exp_most = 710, exp_least_normal = -708, real_most = DBL_MAX;
static const real tail_begin = -500, tail_end = -1470; /* past that x e^x times the largest number is 0 */

static ALWAYS_INLINE scaled vexp_reduce(vreal x)
{
    const vreal magic = vset(0x1.8p52), shifted = vfma(x, vset(0x1.71547652b82fep0), magic), octaves = shifted - magic;
    const vreal r = vfma(octaves, vset(-0x1.a39ef35793c76p-33), vfma(octaves, vset(-0x1.62e42fee00000p-1), x));
    static const real c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                             1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                             1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
    vreal p = vset(c[0]);
    for (int i = 1; i < 12; i++)
        p = vfma(p, r, vset(c[i]));
    return vexp_scaled(vfma(p * r, r, r), shifted, octaves);
}

#else

enum { FRACTION_BITS = 23, EXPONENT_BIAS = 127, TAIL_OCTAVES = 40 };
static const real exp_least = -104, exp_most = 89, exp_least_normal = -87, real_most = FLT_MAX;
static const real tail_begin = -64, tail_end = -200; /* past that x e^x times the largest number is 0 */

/* The polynomial is paired (Estrin): its latency, not its operations, is what a loop of exponentials would wait for. */
static ALWAYS_INLINE scaled vexp_reduce(vreal x)
{
    const vreal magic = vset(0x1.8p23f), shifted = vfma(x, vset(0x1.715476p0f), magic), octaves = shifted - magic;
    const vreal r = vfma(octaves, vset(-0x1.7f7d1cp-20f), vfma(octaves, vset(-0x1.62e4p-1f), x)), r2 = r * r;
    const vreal top = vfma(r, vset(1.9875691500e-4f), vset(1.3981999507e-3f));
    const vreal middle = vfma(r, vset(8.3334519073e-3f), vset(4.1665795894e-2f));
    const vreal low = vfma(r, vset(1.6666665459e-1f), vset(5.0000001201e-1f));
    return vexp_scaled(vfma(vfma(vfma(top, r2, middle), r2, low), r2, r), shifted, octaves);
}

#endif

static ALWAYS_INLINE vreal power_of_two(vint exponent)
{
    return real_of_bits((exponent + EXPONENT_BIAS) << FRACTION_BITS);
}

/* For a result in the normal range. A product, so that a NaN stays one. */
static ALWAYS_INLINE vexponential vexp_normal(scaled s)
{
    const vreal scale = real_of_bits((vint)(((vphase)s.shifted + EXPONENT_BIAS) << FRACTION_BITS));
    return (vexponential){s.fraction * scale, s.rest * scale};
}

/* fraction + rest times 2^octaves, given as a number and as an integer, denormal results included. */
static ALWAYS_INLINE vexponential vexp_of_octaves(scaled s, vreal octaves, vint exponent)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
    (void)exponent;
    return (vexponential){(vreal)_mm512_scalef_pd((__m512d)s.fraction, (__m512d)octaves),
                          (vreal)_mm512_scalef_pd((__m512d)s.rest, (__m512d)octaves)};
#elif defined(__AVX512F__)
    (void)exponent;
    return (vexponential){(vreal)_mm512_scalef_ps((__m512)s.fraction, (__m512)octaves),
                          (vreal)_mm512_scalef_ps((__m512)s.rest, (__m512)octaves)};
#elif defined(SVE256)
    (void)octaves;
    return (vexponential){(vreal)(sve_real)svscale_x(EVERY_LANE, (sve_real)s.fraction, (sve_integer)exponent),
                          (vreal)(sve_real)svscale_x(EVERY_LANE, (sve_real)s.rest, (sve_integer)exponent)};
#else
    (void)octaves;
    const vint half = exponent >> 1; /* in two steps, neither of which leaves the normal range */
    const vreal scale = power_of_two(half), again = power_of_two(exponent - half);
    return (vexponential){s.fraction * scale * again, s.rest * scale * again};
#endif
}

static ALWAYS_INLINE vint octaves_of(scaled s)
{
    return bits_of(s.shifted) - bits_of(s.shifted - s.octaves);
}

/* e^x for every x, denormal results included. */
static ALWAYS_INLINE vexponential vexp(vreal x)
{
    const scaled s = vexp_reduce(vmin(vset(exp_most), vmax(vset(exp_least), x)));
    return vexp_of_octaves(s, s.octaves, octaves_of(s));
}

/* Is a lane of x <= 0 so far down that e^x, or what its rounding lost, might be denormal? */
static ALWAYS_INLINE bool vexp_has_tail(vreal x)
{
    return __builtin_expect(any_below(x, tail_begin), 0);
}

/* Without such lanes. */
static ALWAYS_INLINE vexponential vexp_before_tail(vreal x)
{
    return vexp_normal(vexp_reduce(x));
}

/* e^x for x <= 0 is e times 2^octaves. A denormal number has too few bits to be multiplied, though a product with a large
 * one need not be denormal: in the tail e is 2^-TAIL_OCTAVES or so, and results that come of it get the octaves last. They
 * are 0 elsewhere. */
typedef struct vdecay {
    vexponential e;
#if defined(__AVX512F__)
    vreal octaves;
#else
    vreal unit, again; /* 2^octaves in two steps */
#endif
} vdecay;

static ALWAYS_INLINE vreal vexp_in_units(vreal result, vdecay decay)
{
#if defined(__AVX512F__) && defined(COPES_TYPE_F64)
    return (vreal)_mm512_scalef_pd((__m512d)result, (__m512d)decay.octaves);
#elif defined(__AVX512F__)
    return (vreal)_mm512_scalef_ps((__m512)result, (__m512)decay.octaves);
#else
    return result * decay.unit * decay.again;
#endif
}

/* `falls`: lanes whose results shrink with e^x. Past the tail's end those are 0, whatever they are multiplied by. */
static ALWAYS_INLINE vdecay vexp_with_tail(vreal x, vint falls)
{
    const vint tail = (x < tail_begin) & falls;
    const scaled s = vexp_reduce(vmax(vset(tail_end), x));
#if defined(__AVX512F__)
    const vreal octaves = vselect(tail, vset(-TAIL_OCTAVES), s.octaves);
    return (vdecay){vexp_of_octaves(s, vselect(x < tail_end, vset(4 * tail_end), octaves), tail),
                    vselect(tail, s.octaves + TAIL_OCTAVES, vset(0))};
#else
    const vint octaves = octaves_of(s), left = (octaves + TAIL_OCTAVES) & tail, half = left >> 1;
    const integer least = 2 * (1 - EXPONENT_BIAS); /* of what two steps reach; it is below the last denormal number */
    const vint low = octaves < least, of_e = (octaves & ~low) | (least & low);
    vexponential e = vexp_of_octaves(s, s.octaves, (of_e & ~tail) | (-TAIL_OCTAVES & tail));
    e.value = real_of_bits(bits_of(e.value) & ~(x < tail_end));
    e.rest = real_of_bits(bits_of(e.rest) & ~(x < tail_end));
    return (vdecay){e, power_of_two(half), power_of_two(left - half)};
#endif
}

#ifdef STORES_HALF
#include "backends/openmp/vmath_half.h"
#else

/* e^x for x <= 0, where what is below the normal range may as well be 0: a softmax's term beside a largest one of 1. */
static ALWAYS_INLINE vreal vexp_term(vreal x)
{
    const vreal e = vexp_normal(vexp_reduce(vmax(vset(exp_least_normal), x))).value;
    return real_of_bits(bits_of(e) & ~(x < exp_least_normal));
}

enum { STORES_ANY_POWER = false };

static ALWAYS_INLINE vreal vexp_stored(vreal x)
{
    return vexp_term(x);
}

#endif

/* a - b c for a product near a, which is then nearly exact: by a fused multiply-add, or else by products of halves. */
static ALWAYS_INLINE vreal vresidual(vreal a, vreal b, vreal c)
{
#if FUSES
    return vfnma(b, c, a);
#else
    const vint leading = ~(vint){0} << (FRACTION_BITS / 2 + 1);
    const vreal b_high = real_of_bits(bits_of(b) & leading), c_high = real_of_bits(bits_of(c) & leading);
    const vreal b_low = b - b_high, c_low = c - c_high;
    return ((a - b_high * c_high) - b_high * c_low - b_low * c_high) - b_low * c_low;
#endif
}

typedef struct sincos {
    vreal sine, cosine;
} sincos;

static ALWAYS_INLINE vphase load_phase(const phase_word *p)
{
    vphase v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* 2 pi t + tail, for t = offset 2^-PHASE_BITS and a smaller tail, to little more than half an ulp. A fused multiply-add
 * has the product's rounding error; without one the leading half of the offset's bits and of 2 pi's multiply exactly.
 * The halves are split to nearest, so that a small offset is all in the second and nothing cancels. */
static ALWAYS_INLINE vreal vturn(vint offset, vreal t, vreal tail)
{
#ifdef COPES_TYPE_F64
    const real two_pi = 0x1.921fb54442d18p+2, rest = 0x1.1a62633145c07p-52, lead = 0x1.921fb5p+2, unit = 0x1p-64;
    enum { TRAILING = 36 };
#else
    const real two_pi = 0x1.921fb6p+2f, rest = -0x1.777a5cp-23f, lead = 0x1.92p+2f, unit = 0x1p-32f;
    enum { TRAILING = 17 };
#endif
#if FUSES
    (void)offset, (void)lead, (void)unit;
    return vfma(t, vset(two_pi), vfma(t, vset(rest), tail));
#else
    const vint high = ((offset + ((integer)1 << (TRAILING - 1))) >> TRAILING) << TRAILING;
    const vreal top = __builtin_convertvector(high, vreal) * unit;
    const vreal bottom = __builtin_convertvector(offset - high, vreal) * unit;
    (void)rest, (void)t;
    return top * lead + (top * (two_pi - lead + rest) + bottom * two_pi + tail);
#endif
}

#ifdef COPES_TYPE_F64
/* 1 + square z + fourth z^2 + rest, with what the first sum rounds off: the result is rounded last, and once. */
static ALWAYS_INLINE vreal vcosine_sum(vreal z, vreal square, vreal fourth, vreal rest)
{
    const vreal second = square * z, sum = 1 + second, lost = second - (sum - 1);
    return sum + vfma(fourth, z * z, lost + rest);
}
#endif

/* Of an angle given as a phase, in units of 2^-PHASE_BITS turn. */
static ALWAYS_INLINE sincos vsincos(vphase phase)
{
    const vphase quarter = (phase + ((phase_word)1 << (PHASE_BITS - 3))) >> (PHASE_BITS - 2);
    const vint offset = (vint)(phase - (quarter << (PHASE_BITS - 2))); /* from that quarter, an eighth either way */
    /* Polynomials in turns, scaled exactly from the integer: no rounded angle comes first, and 2 pi is in two parts. */
#ifdef COPES_TYPE_F64
    /* `rest` is what t rounds off, as an angle; the cosine of that counts as 1. The offset's last 12 bits, more than a
     * number lacks, are converted by the sum with a number whose ulp is 1. */
    const vint high = (offset + 2048) & -4096;
    const vreal magic = vset(0x1.8p52), top = __builtin_convertvector(high, vreal) * 0x1p-64;
    const vreal bottom = (real_of_bits(offset - high + bits_of(magic)) - magic) * 0x1p-64;
    const vreal t = top + bottom, z = t * t, rest = (bottom - (t - top)) * 0x1.921fb54442d18p+2;
    vreal sine = vfma(z, vset(0x1.e3ff27ba6d6b7p+1), vset(-0x1.e3009897559ebp+3));
    sine = vfma(sine, z, vset(0x1.5078300c42121p+5));
    sine = vfma(sine, z, vset(-0x1.32d2cce324133p+6));
    sine = vfma(sine, z, vset(0x1.466bc67758cb2p+6));
    sine = vfma(sine, z, vset(-0x1.4abbce625be46p+5));
#if FUSES
    sine = vturn(offset, t, vfma(t, sine * z, rest));
#else
    sine = vturn(offset, t, t * (sine * z)); /* which has the whole offset */
#endif
    vreal cosine = vfma(z, vset(-0x1.b2973ce18358fp+0), vset(0x1.f9ccfd2e5169ep+2));
    cosine = vfma(cosine, z, vset(-0x1.a6d1ed8f6cea8p+4));
    cosine = vfma(cosine, z, vset(0x1.e1f50684f4bb7p+5));
    cosine = vfma(cosine, z, vset(-0x1.55d3c7e3ca533p+6));
    cosine = vfma(cosine, z, vset(0x1.03c1f081b5abcp+6));
    cosine = vcosine_sum(z, vset(-0x1.3bd3cc9be45dep+4), cosine, -sine * rest);
#else
    const vreal t = __builtin_convertvector(offset, vreal) * 0x1p-32f, z = t * t;
    vreal sine = vfma(z, vset(0x1.507834p+5f), vset(-0x1.32d2ccp+6f));
    sine = vfma(sine, z, vset(0x1.466bc6p+6f));
    sine = vfma(sine, z, vset(-0x1.4abbcep+5f));
    sine = vturn(offset, t, t * (sine * z));
    vreal cosine = vfma(z, vset(0x1.dacc30p+5f), vset(-0x1.55c9e0p+6f));
    cosine = vfma(cosine, z, vset(0x1.03c1e8p+6f));
    cosine = vfma(vfma(cosine, z, vset(-0x1.3bd3ccp+4f)), z, vset(1));
#ifdef COPES_TYPE_F32
    /* What the conversion of the offset rounded off, as an angle; its cosine counts as 1. */
    const vreal rest =
        __builtin_convertvector(offset - __builtin_convertvector(t * 0x1p32f, vint), vreal) * 0x1.921fb6p-30f;
    cosine = vfnma(sine, rest, cosine);
#if FUSES
    sine += rest; /* vturn has the whole offset without */
#endif
#endif
#endif
    const vint swap = -(vint)(quarter & 1);
    const vphase sine_sign = (quarter & 2) << (PHASE_BITS - 2), cosine_sign = ((quarter + 1) & 2) << (PHASE_BITS - 2);
    return (sincos){real_of_bits(bits_of(vselect(swap, cosine, sine)) ^ (vint)sine_sign),
                    real_of_bits(bits_of(vselect(swap, sine, cosine)) ^ (vint)cosine_sign)};
}

#endif
