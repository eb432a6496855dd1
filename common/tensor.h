/* DLTensors brought to a checked internal form, and questions about the memory they cover. */
#ifndef COPES_COMMON_TENSOR_H
#define COPES_COMMON_TENSOR_H

#include "common/problem.h"
#include "common/size.h"

#include <stdbool.h>

typedef struct copes_tensor {
    const char *name; /* the slot's; NULL: absent */
    DLDevice device;
    copes_dtype dtype;
    int rank;
    int64_t shape[COPES_MAX_RANK];
    int64_t stride[COPES_MAX_RANK]; /* in elements */
    int64_t count;                  /* elements */
    int64_t low, high;              /* bytes from `data` to the first byte and past the last one of all elements */
    char *data;                     /* the element at index 0, byte_offset added; may be NULL */
} copes_tensor;

/* What stands for a tensor that is not there. */
extern const copes_tensor copes_absent;

/* Shape and type of an output, as inferred. */
typedef struct copes_spec {
    copes_dtype dtype;
    int rank;
    int64_t shape[COPES_MAX_RANK];
} copes_spec;

/* Reads and checks everything of a DLTensor that needs no other tensor. `op`, `slot` and `types`, those that the slot
 * takes, are for the message. */
copes_status copes_tensor_read(const char *op, const char *slot, const char *types, const DLTensor *source,
                               copes_tensor *tensor);

/* STRIDE unless all elements of the tensor have memory of their own. */
copes_status copes_tensor_check_distinct(const char *op, const copes_tensor *tensor);

/* Do two tensors cover the same elements in the same order? */
bool copes_tensor_same(const copes_tensor *a, const copes_tensor *b);

/* May two tensors share a byte? No is certain, and is found for disjoint ranges and for parts of one buffer's rows. */
bool copes_tensor_may_overlap(const copes_tensor *a, const copes_tensor *b);

/* The library's type that this one is, if any. */
bool copes_dtype_read(DLDataType type, copes_dtype *dtype);

DLDataType copes_dtype_dlpack(copes_dtype dtype);
const char *copes_dtype_name(copes_dtype dtype);

/* The name of any type of DLPack's, "int64" or "float8_e4m3fn"; returns text. */
enum { COPES_DTYPE_TEXT = 64 };
const char *copes_dtype_text(DLDataType type, char text[COPES_DTYPE_TEXT]);

/* "(12, 63)", cut to fit; returns text. */
enum { COPES_SHAPE_TEXT = 128 };
const char *copes_shape_text(int rank, const int64_t *shape, char text[COPES_SHAPE_TEXT]);

#endif
