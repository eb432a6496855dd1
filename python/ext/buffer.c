/* Memory of the library's own as an array of Python. A consumer's DLPack tensor keeps the buffer alive. */
#include "python/ext/buffer.h"

#include "memory/memory.h"
#include "python/ext/exchange.h"
#include <copes/copes.h>

#include <stdlib.h>

typedef struct buffer {
    PyObject_HEAD DLTensor tensor;
    int64_t shape[COPES_MAX_RANK], strides[COPES_MAX_RANK];
} buffer;

typedef struct exported {
    union {
        DLManagedTensor plain;
        versioned_tensor versioned;
    };
    PyObject *owner;
} exported;

static PyTypeObject *buffer_type;

static const device_memory *memory_of(const buffer *self)
{
    return device_memory_of(self->tensor.device.device_type);
}

static void buffer_dealloc(PyObject *object)
{
    buffer *self = (buffer *)object;
    if (self->tensor.data != NULL)
        memory_of(self)->release(self->tensor.device.device_id, self->tensor.data);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *buffer_new(const DLTensor *description)
{
    buffer *self = PyObject_New(buffer, buffer_type);
    if (self == NULL)
        return NULL;
    self->tensor = (DLTensor){.device = description->device,
                              .ndim = description->ndim,
                              .dtype = description->dtype,
                              .shape = self->shape,
                              .strides = self->strides};
    size_t size = description->dtype.bits / 8;
    for (int i = description->ndim - 1, first = 1; i >= 0; i--, first = 0) {
        self->shape[i] = description->shape[i];
        self->strides[i] = first ? 1 : self->strides[i + 1] * self->shape[i + 1];
        size *= (size_t)self->shape[i];
    }
    const device_memory *memory = memory_of(self);
    self->tensor.data = memory != NULL && size > 0 ? memory->allocate(description->device.device_id, size) : NULL;
    if (size > 0 && self->tensor.data == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

int buffer_view(PyObject *object, DLTensor *tensor)
{
    if (Py_TYPE(object) != buffer_type)
        return 0;
    *tensor = ((buffer *)object)->tensor;
    return 1;
}

static void release_export(exported *export)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(export->owner);
    PyGILState_Release(state);
    free(export);
}

static void delete_plain(DLManagedTensor *self)
{
    release_export((exported *)self);
}

static void delete_versioned(versioned_tensor *self)
{
    release_export((exported *)self);
}

/* A capsule that nobody consumed still has its first name. */
static void drop_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        release_export(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        release_export(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static PyObject *export_as(buffer *self, int versioned)
{
    exported *export = calloc(1, sizeof *export);
    if (export == NULL)
        return PyErr_NoMemory();
    export->owner = Py_NewRef((PyObject *)self);
    if (versioned) {
        export->versioned =
            (versioned_tensor){.version = {VERSIONED_MAJOR, 0}, .deleter = delete_versioned, .tensor = self->tensor};
    } else {
        export->plain = (DLManagedTensor){.dl_tensor = self->tensor, .deleter = delete_plain};
    }
    PyObject *capsule = PyCapsule_New(export, versioned ? "dltensor_versioned" : "dltensor", drop_capsule);
    if (capsule == NULL)
        release_export(export);
    return capsule;
}

/* The consumer's stream is not waited on by events: work on the buffer is finished here, for every stream. */
static int finish_work(const buffer *self)
{
    char byte;
    if (self->tensor.device.device_type == kDLCPU || self->tensor.data == NULL)
        return 0;
    if (memory_of(self)->read(self->tensor.device.device_id, &byte, self->tensor.data, 1) == 0)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "the device failed while it computed");
    return -1;
}

static PyObject *buffer_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    const DLDevice device = ((buffer *)object)->tensor.device;
    return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}

/* Nothing is ever copied: a copy, or the memory of another device, must not be promised. */
static int check_request(PyObject *object, PyObject *copy, PyObject *device)
{
    PyObject *own = buffer_device(object, NULL);
    const int copies = own != NULL && copy != Py_None ? PyObject_IsTrue(copy) : 0;
    const int same = own != NULL && device != Py_None ? PyObject_RichCompareBool(device, own, Py_EQ) : 1;
    if (copies == 1 || same == 0)
        PyErr_Format(PyExc_BufferError, "copy is %R and dl_device %R; the memory is shared, as it is, on device %R",
                     copy, device, own);
    Py_XDECREF(own);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *item_or_none(PyObject *keywords, const char *name)
{
    PyObject *item = keywords != NULL ? PyDict_GetItemString(keywords, name) : NULL;
    return item != NULL ? item : Py_None;
}

/* Of the other keywords only max_version changes what is exported: every stream may use the memory. */
static PyObject *buffer_dlpack(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    (void)arguments;
    if (check_request(object, item_or_none(keywords, "copy"), item_or_none(keywords, "dl_device")) != 0 ||
        finish_work((buffer *)object) != 0)
        return NULL;
    return export_as((buffer *)object, item_or_none(keywords, "max_version") != Py_None);
}

int buffer_start(PyObject *module)
{
    static PyMethodDef methods[] = {{"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack,
                                     METH_VARARGS | METH_KEYWORDS, NULL},
                                    {"__dlpack_device__", buffer_device, METH_NOARGS, NULL},
                                    {0}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)(intptr_t)buffer_dealloc}, {Py_tp_methods, methods}, {0}};
    static PyType_Spec spec = {"copes._copes.Buffer", sizeof(buffer), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    buffer_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return buffer_type != NULL ? PyModule_AddObjectRef(module, "Buffer", (PyObject *)buffer_type) : -1;
}
