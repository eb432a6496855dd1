/* The part of tvm-ffi's binary interface that this folder uses, as its c_api.h lays it out: values, the objects that some of
 * them point to, and the form of a function. The library neither includes nor links tvm-ffi. */
#ifndef COPES_TVM_FFI_ABI_H
#define COPES_TVM_FFI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    TVM_NONE = 0,
    TVM_INTEGER = 1,
    TVM_BOOL = 2,
    TVM_FLOAT = 3,
    TVM_DLTENSOR = 7,      /* a pointer to a DLTensor */
    TVM_RAW_STRING = 8,    /* a pointer to characters that a zero ends */
    TVM_SMALL_STRING = 11, /* up to 7 characters in the value itself */
    TVM_STRING = 65,       /* an object: a tvm_text */
    TVM_SHAPE = 69,        /* an object: a tvm_span of int64 */
    TVM_TENSOR = 70,       /* an object: a DLTensor */
    TVM_ARRAY = 71,        /* an object: a tvm_span of values */
    TVM_LIST = 75          /* likewise */
};

typedef struct tvm_value {
    int32_t type;
    uint32_t small_size; /* of a small string; else 0 */
    union {
        int64_t integer;
        double number;
        void *pointer;
        char small[8];
    };
} tvm_value;

/* What every object begins with; its content follows. */
typedef struct tvm_object {
    uint64_t references;
    int32_t type;
    uint32_t padding;
    union {
        void (*deleter)(void *self, int flags);
        int64_t alignment;
    };
} tvm_object;

typedef struct tvm_text {
    const char *data;
    size_t size;
} tvm_text;

/* A shape, an array or a list; the latter two have further members. */
typedef struct tvm_span {
    const void *data;
    int64_t size;
} tvm_span;

#endif
