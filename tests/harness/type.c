/* Rounding by the definition: scale so that an ulp is 1, round to an integer, scale back. */
#include "tests/harness/type.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { FLOAT8_E4M3FN = 10 }; /* kDLFloat8_e4m3fn, which the headers in use may be too old for */

static const check_type_info types[CHECK_TYPES] = {
    [CHECK_F32] = {"f32", {kDLFloat, 32, 1}, 4, 24, -149, 0x1p-126, 0x1.fffffep127},
    [CHECK_F16] = {"f16", {kDLFloat, 16, 1}, 2, 11, -24, 0x1p-14, 65504},
    [CHECK_BF16] = {"bf16", {kDLBfloat, 16, 1}, 2, 8, -133, 0x1p-126, 0x1.fep127},
    [CHECK_F64] = {"f64", {kDLFloat, 64, 1}, 8, 53, -1074, DBL_MIN, DBL_MAX},
    [CHECK_I32] = {"i32", {kDLInt, 32, 1}, 4, 31, 0, 1, INT32_MAX},
    [CHECK_I64] = {"i64", {kDLInt, 64, 1}, 8, 53, 0, 1, 0x1p62}, /* those that a double holds */
    [CHECK_F8] = {"f8", {FLOAT8_E4M3FN, 8, 1}, 1, 4, -9, 0x1p-6, 448},
    [CHECK_U8] = {"u8", {kDLUInt, 8, 1}, 1, 4, -9, 0x1p-6, 448},
    [CHECK_BYTE] = {"byte", {kDLUInt, 8, 1}, 1, 8, 0, 1, 255},
};

const check_type_info *check_type_of(check_type type)
{
    return &types[type];
}

/* The exponent of the last place of a finite `value`. By its bits, as most of the tests' time would be frexp's and ldexp's. */
static int last_place(check_type type, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const int biased = (int)(bits >> (DBL_MANT_DIG - 1)) & (2 * DBL_MAX_EXP - 1);
    const int place = biased - (DBL_MAX_EXP - 2) - types[type].digits;
    return place < types[type].exponent ? types[type].exponent : place;
}

static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + DBL_MAX_EXP - 1) << (DBL_MANT_DIG - 1);
    double value;
    memcpy(&value, &bits, sizeof value);
    return exponent < DBL_MIN_EXP - 1 ? ldexp(1, exponent) : value;
}

double check_ulp(check_type type, double value)
{
    return isfinite(value) ? power_of_two(last_place(type, value)) : value * value;
}

static int is_float8(check_type type)
{
    return type == CHECK_F8 || type == CHECK_U8;
}

double check_round(check_type type, double value)
{
    if (is_float8(type) && fabs(value) > types[type].most) {
        return copysign(types[type].most, value);
    }
    if (type == CHECK_F64 || !isfinite(value)) {
        return value;
    }
    int place = last_place(type, value);
    double rounded = nearbyint(value * power_of_two(-place)) * power_of_two(place);
    return fabs(rounded) > types[type].most ? copysign(INFINITY, value) : rounded;
}

/* Sign, exponent and fraction of a 16-bit type. */
static uint16_t encode16(check_type type, double value)
{
    const check_type_info *info = &types[type];
    int fraction_bits = info->digits - 1;
    unsigned sign = signbit(value) ? 0x8000U : 0, all_ones = 0x7fffU >> fraction_bits << fraction_bits;
    if (isnan(value)) {
        return (uint16_t)(sign | all_ones | 1U << (fraction_bits - 1));
    }
    if (isinf(value)) {
        return (uint16_t)(sign | all_ones);
    }
    int place = last_place(type, value);
    unsigned significand =
        (unsigned)(fabs(value) * power_of_two(-place)); /* with the hidden bit, which adds 1 to the exponent */
    return (uint16_t)(sign | (((unsigned)(place - info->exponent) << fraction_bits) + significand));
}

static double decode16(check_type type, uint16_t bits)
{
    const check_type_info *info = &types[type];
    int fraction_bits = info->digits - 1, exponent = (bits & 0x7fff) >> fraction_bits;
    int fraction = bits & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == 0x7fff >> fraction_bits) {
        value = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        value = fraction * power_of_two(info->exponent);
    } else {
        value = (fraction + (1 << fraction_bits)) * power_of_two(info->exponent + exponent - 1);
    }
    return bits & 0x8000 ? -value : value;
}

/* The same without infinities: all ones are NaN, and the exponent of ones has numbers, too. */
static uint8_t encode8(double value)
{
    const int sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) {
        return (uint8_t)(sign | 0x7f);
    }
    const int place = last_place(CHECK_F8, value);
    return (uint8_t)(sign | (((place - types[CHECK_F8].exponent) << 3) + (int)(fabs(value) * power_of_two(-place))));
}

static double decode8(uint8_t bits)
{
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const double value = exponent == 0 ? fraction * power_of_two(types[CHECK_F8].exponent)
                                       : (fraction + 8) * power_of_two(types[CHECK_F8].exponent + exponent - 1);
    return copysign((bits & 0x7f) == 0x7f ? NAN : value, bits & 0x80 ? -1 : 1);
}

void check_encode(check_type type, double value, void *bytes)
{
    switch (type) {
    case CHECK_F64: memcpy(bytes, &value, sizeof value); return;
    case CHECK_F32: memcpy(bytes, &(float){(float)value}, sizeof(float)); return;
    case CHECK_I32: memcpy(bytes, &(int32_t){(int32_t)value}, sizeof(int32_t)); return;
    case CHECK_I64: memcpy(bytes, &(int64_t){value >= 0x1p63 ? INT64_MAX : (int64_t)value}, sizeof(int64_t)); return;
    case CHECK_F8:
    case CHECK_U8: *(uint8_t *)bytes = encode8(value); return;
    case CHECK_BYTE: *(uint8_t *)bytes = (uint8_t)(int)value; return;
    case CHECK_F16:
    case CHECK_BF16:
    case CHECK_TYPES: break;
    }
    memcpy(bytes, &(uint16_t){encode16(type, value)}, sizeof(uint16_t));
}

double check_decode(check_type type, const void *bytes)
{
    double value;
    float single;
    int32_t integer;
    int64_t wide;
    uint16_t half;
    switch (type) {
    case CHECK_F64: memcpy(&value, bytes, sizeof value); return value;
    case CHECK_F32: memcpy(&single, bytes, sizeof single); return (double)single;
    case CHECK_I32: memcpy(&integer, bytes, sizeof integer); return integer;
    case CHECK_I64: memcpy(&wide, bytes, sizeof wide); return (double)wide;
    case CHECK_F8:
    case CHECK_U8: return decode8(*(const uint8_t *)bytes);
    case CHECK_BYTE: return *(const uint8_t *)bytes;
    case CHECK_F16:
    case CHECK_BF16:
    case CHECK_TYPES: break;
    }
    memcpy(&half, bytes, sizeof half);
    return decode16(type, half);
}
