/* The types of DLPack by name. */
#include "python/ext/dtypes.h"

static const struct {
    const char *name;
    DLDataType dtype;
} known[] = {{"float32", {kDLFloat, 32, 1}},
             {"float16", {kDLFloat, 16, 1}},
             {"bfloat16", {kDLBfloat, 16, 1}},
             {"float64", {kDLFloat, 64, 1}},
             {"float8_e4m3fn", {DLPACK_FLOAT8_E4M3FN, 8, 1}},
             {"bool", {DLPACK_BOOL, 8, 1}},
             {"int8", {kDLInt, 8, 1}},
             {"int16", {kDLInt, 16, 1}},
             {"int32", {kDLInt, 32, 1}},
             {"int64", {kDLInt, 64, 1}},
             {"uint8", {kDLUInt, 8, 1}},
             {"uint16", {kDLUInt, 16, 1}},
             {"uint32", {kDLUInt, 32, 1}},
             {"uint64", {kDLUInt, 64, 1}}};

int dtype_of_name(PyObject *name, const char *slot, DLDataType *dtype)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (PyUnicode_CompareWithASCIIString(name, known[i].name) == 0) {
            *dtype = known[i].dtype;
            return 0;
        }
    refuse_dtype(slot, name);
    return -1;
}

const char *dtype_name(DLDataType dtype)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].dtype.code == dtype.code && known[i].dtype.bits == dtype.bits)
            return known[i].name;
    return NULL;
}

void refuse_dtype(const char *slot, PyObject *name)
{
    PyErr_Format(
        PyExc_TypeError,
        "%s has dtype %S; it must be float32, float16, bfloat16 or float64 (kv_len: int32; positions "
        "and offsets: int32, int64 or float32; slots: int64; caches also float8_e4m3fn or uint8; masks: uint8), in "
        "native byte order",
        slot, name);
}
