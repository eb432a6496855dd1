/* How arrays come in from Python: NumPy's array interface and the parts of DLPack 1.x that the header of DLPack 0.6,
 * which distributions ship, does not have. Both layouts are fixed for good by their specifications. */
#ifndef COPES_PYTHON_EXCHANGE_H
#define COPES_PYTHON_EXCHANGE_H

#include <dlpack/dlpack.h>
#include <stdint.h>

/* What the capsule of __array_struct__ holds; strides are in bytes. */
typedef struct numpy_interface {
    int two;
    int nd;
    char typekind;
    int itemsize;
    int flags;
    intptr_t *shape;
    intptr_t *strides;
    void *data;
    void *descr;
} numpy_interface;

enum { NUMPY_NOT_SWAPPED = 0x200, NUMPY_WRITEABLE = 0x400 };

/* What the capsule "dltensor_versioned" holds. */
typedef struct versioned_tensor {
    struct {
        uint32_t major, minor;
    } version;
    void *owner;
    void (*deleter)(struct versioned_tensor *self);
    uint64_t flags;
    DLTensor tensor;
} versioned_tensor;

enum { VERSIONED_MAJOR = 1, VERSIONED_READ_ONLY = 1 };

/* What the capsule "dlpack_exchange_api" of a type's __dlpack_c_exchange_api__ holds: views and the current stream
 * without going through Python. */
typedef struct exchange_api {
    struct {
        uint32_t major, minor;
        const struct exchange_api *previous;
    } header;
    int (*allocate)(DLTensor *prototype, versioned_tensor **out, void *error_context,
                    void (*set_error)(void *error_context, const char *kind, const char *message));
    int (*to_managed)(void *object, versioned_tensor **out);
    int (*from_managed)(versioned_tensor *tensor, void **object);
    int (*view)(void *object, DLTensor *out); /* may be NULL */
    int (*current_stream)(DLDeviceType type, int32_t device, void **stream);
} exchange_api;

#endif
