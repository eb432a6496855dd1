/* Storage types, converted by code of the tests' own: a double to the nearest value of a type and to its bits, and
 * back. */
#ifndef COPES_TESTS_HARNESS_TYPE_H
#define COPES_TESTS_HARNESS_TYPE_H

#include <dlpack/dlpack.h>
#include <stdint.h>

typedef enum check_type {
    CHECK_F32,
    CHECK_F16,
    CHECK_BF16,
    CHECK_F64,
    CHECK_I32,
    CHECK_I64,
    CHECK_F8,   /* e4m3fn */
    CHECK_U8,   /* the bits of CHECK_F8, whose numbers it stands for */
    CHECK_BYTE, /* uint8, as an integer */
    CHECK_TYPES
} check_type;

typedef struct check_type_info {
    const char *name;
    DLDataType dlpack;
    int size;      /* bytes */
    int digits;    /* bits of the significand, the hidden one included */
    int exponent;  /* of the smallest subnormal number, a power of two */
    double normal; /* the smallest normal number */
    double most;   /* the largest finite one */
} check_type_info;

const check_type_info *check_type_of(check_type type);

/* The nearest number of the type, ties to even; past the largest finite one by half an ulp, infinity. float8 has none: what is
 * past its largest number becomes that. */
double check_round(check_type type, double value);

/* The distance between numbers of the type at the size of `value`; of subnormal ones below the normal range. */
double check_ulp(check_type type, double value);

/* `value` must be a number of the type; as int64, 2^63 stands for its largest number, which no double is. */
void check_encode(check_type type, double value, void *bytes);
double check_decode(check_type type, const void *bytes);

#endif
