/* Types of elements: DLPack's as the library's, and the names of both for messages. */
#include "common/tensor.h"

#include <stdio.h>

enum { FLOAT8_E4M3FN = 10 }; /* kDLFloat8_e4m3fn, which the headers in use may be too old for */

static const struct {
    DLDataType dlpack;
    const char *name;
} types[COPES_DTYPES] = {
    [COPES_F32] = {{kDLFloat, 32, 1}, "float32"},    [COPES_F16] = {{kDLFloat, 16, 1}, "float16"},
    [COPES_BF16] = {{kDLBfloat, 16, 1}, "bfloat16"}, [COPES_F64] = {{kDLFloat, 64, 1}, "float64"},
    [COPES_I32] = {{kDLInt, 32, 1}, "int32"},        [COPES_I64] = {{kDLInt, 64, 1}, "int64"},
    [COPES_U8] = {{kDLUInt, 8, 1}, "uint8"},         [COPES_F8_E4M3] = {{FLOAT8_E4M3FN, 8, 1}, "float8_e4m3fn"},
};

/* By DLPack's code; the headers in use may be older than the later ones. `sized`: the number of bits belongs to the name. */
static const struct {
    const char *name;
    bool sized;
} codes[] = {
    {"int", true},
    {"uint", true},
    {"float", true},
    {"opaque handle", false},
    {"bfloat", true},
    {"complex", true},
    {"bool", false},
    {"float8_e3m4", false},
    {"float8_e4m3", false},
    {"float8_e4m3b11fnuz", false},
    {"float8_e4m3fn", false},
    {"float8_e4m3fnuz", false},
    {"float8_e5m2", false},
    {"float8_e5m2fnuz", false},
    {"float8_e8m0fnu", false},
    {"float6_e2m3fn", false},
    {"float6_e3m2fn", false},
    {"float4_e2m1fn", false},
};

const char *copes_dtype_name(copes_dtype dtype)
{
    return types[dtype].name;
}

DLDataType copes_dtype_dlpack(copes_dtype dtype)
{
    return types[dtype].dlpack;
}

bool copes_dtype_read(DLDataType type, copes_dtype *dtype)
{
    for (int i = 0; i < COPES_DTYPES; i++)
        if (type.lanes == types[i].dlpack.lanes && type.code == types[i].dlpack.code &&
            type.bits == types[i].dlpack.bits) {
            *dtype = (copes_dtype)i;
            return true;
        }
    return false;
}

const char *copes_dtype_text(DLDataType type, char text[COPES_DTYPE_TEXT])
{
    char bits[16] = "", lanes[32] = "";
    const bool known = type.code < sizeof codes / sizeof *codes;
    if (known && codes[type.code].sized)
        snprintf(bits, sizeof bits, "%d", (int)type.bits);
    if (type.lanes != 1)
        snprintf(lanes, sizeof lanes, " in vectors of %d", (int)type.lanes);
    if (known)
        snprintf(text, COPES_DTYPE_TEXT, "%s%s%s", codes[type.code].name, bits, lanes);
    else
        snprintf(text, COPES_DTYPE_TEXT, "%d of DLPack with %d bits%s", (int)type.code, (int)type.bits, lanes);
    return text;
}
