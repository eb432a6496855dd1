/* Sine and cosine for float16 and bfloat16 storage at levels that look numbers up in a register: a rotation of a table in there, times
 * that by what is left of the angle. Both are within 3 units of 2^-24 of themselves, which tests/test_vmath.c holds, and so as close as
 * vsincos. Elsewhere they are vsincos. */
#ifndef COPES_BACKENDS_OPENMP_VMATH_TABLE_H
#define COPES_BACKENDS_OPENMP_VMATH_TABLE_H

#include "backends/openmp/vmath.h"

#if defined(STORES_HALF) && (defined(__AVX512F__) || defined(__AVX2__) || defined(SVE256))

/* The place of an angle in the table leads a phase that PHASE_HALF was added to. */
enum { TABLE_BITS = LANES == 16 ? 4 : 3 };
#define PHASE_HALF ((phase_word)1 << (PHASE_BITS - 1 - TABLE_BITS))

/* Sines of a turn and a quarter: a cosine is the sine a quarter later. Where sine or cosine has a zero it is 0, and the product has all
 * of the rest's bits. Cosine and sine of an eighth are the same number, whose error lengthens the rotation, and does not turn it. A
 * 16th's would turn it: its place has an angle near by, whose cosine and sine float32 has to 0.001 units of 2^-24. */
#if VECTOR_BYTES == 64
#define RISING(sign) sign * 0, sign * 0x1.8732dep-2f, sign * 0x1.69e026p-1f, sign * 0x1.d92a2ep-1f
#define FALLING(sign) sign, sign * 0x1.d92a2ep-1f, sign * 0x1.6a33a2p-1f, sign * 0x1.8732dep-2f
#define QUARTER(begin) begin, begin + 0x0ff89faf, begin + 0x1ffb4d67, begin + 0x30076051
static const phase_word table_phases[] = {QUARTER(0x00000000), QUARTER(0x40000000), QUARTER(0x80000000),
                                          QUARTER(0xc0000000)};
#undef QUARTER
#else
#define RISING(sign) sign * 0, sign * 0x1.6a09e6p-1f
#define FALLING(sign) sign, sign * 0x1.6a09e6p-1f
#endif
static const real table_sines[] = {RISING(1), FALLING(1), RISING(-1), FALLING(-1), RISING(1)};
#undef RISING
#undef FALLING

typedef struct sincos_table {
    vreal sines, cosines;
#if VECTOR_BYTES == 64
    vphase phases;
#endif
} sincos_table;

/* Of rotations that are `amplitude` long. */
static ALWAYS_INLINE sincos_table load_sincos_table(real amplitude)
{
    const vreal scale = vset(amplitude);
    sincos_table table = {.sines = scale * load_real(table_sines),
                          .cosines = scale * load_real(table_sines + LANES / 4)};
#if VECTOR_BYTES == 64
    table.phases = load_phase(table_phases) + PHASE_HALF;
#endif
    return table;
}

#if defined(__AVX512F__)
#define LOOK_UP(table, place) (vreal) _mm512_permutexvar_ps((__m512i)(place), (__m512)(table))
#elif defined(__AVX2__)
#define LOOK_UP(table, place) (vreal) _mm256_permutevar8x32_ps((__m256)(table), (__m256i)(place))
#else
#define LOOK_UP(table, place) (vreal)(sve_real) svtbl_f32((sve_real)(table), (sve_u32)(place))
#endif

/* Of a phase that PHASE_HALF was added to. Polynomials are in turns, minimax for the relative error of the sine and the absolute one of
 * the cosine; 2 pi is in two parts. The sine comes first into each sum, as it rounds the smaller of the two where the result is small. */
static ALWAYS_INLINE sincos vsincos_of_table(sincos_table table, vphase phase)
{
    const vphase place = phase >> (PHASE_BITS - TABLE_BITS);
    const vreal near_sine = LOOK_UP(table.sines, place), near_cosine = LOOK_UP(table.cosines, place);
#if VECTOR_BYTES == 64
    const vint offset = (vint)(phase - (vphase)LOOK_UP((vreal)table.phases, place));
    const vreal t = __builtin_convertvector(offset, vreal) * 0x1p-32f, z = t * t;
    vreal sine = vfma(z, vset(0x1.460092p+6f), vset(-0x1.4abbbep+5f));
    vreal less = vfma(z, vset(0x1.034a96p+6f), vset(-0x1.3bd3a8p+4f)); /* the cosine less 1 */
#else
    const vint offset = (vint)((phase - PHASE_HALF) << TABLE_BITS); /* its leading bits are the table's */
    const vreal t = __builtin_convertvector(offset, vreal) * 0x1p-35f, z = t * t;
    vreal sine = vfma(z, vset(0x1.44bf24p+6f), vset(-0x1.4abac4p+5f));
    vreal less = vfma(z, vset(-0x1.540434p+6f), vset(0x1.03c0e2p+6f));
    less = vfma(z, less, vset(-0x1.3bd3ccp+4f));
#endif
    sine = vfma(t, vset(0x1.921fb6p+2f), t * vfma(z, sine, vset(-0x1.777a5cp-23f)));
    less *= z;
    return (sincos){vfma(near_sine, less, vfma(near_cosine, sine, near_sine)),
                    vfma(near_cosine, less, vfnma(near_sine, sine, near_cosine))};
}
#undef LOOK_UP

#else

#define PHASE_HALF ((phase_word)0)

typedef struct sincos_table {
    vreal amplitude;
} sincos_table;

static ALWAYS_INLINE sincos_table load_sincos_table(real amplitude)
{
    return (sincos_table){vset(amplitude)};
}

static ALWAYS_INLINE sincos vsincos_of_table(sincos_table table, vphase phase)
{
    const sincos plain = vsincos(phase);
    return (sincos){plain.sine * table.amplitude, plain.cosine * table.amplitude};
}

#endif

#endif
