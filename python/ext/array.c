/* Views of arrays: NumPy's through __array_struct__, which knows read-only arrays and ml_dtypes' types and costs no
 * Python code, others' through DLPack's function table where their type has one, else through __dlpack__. */
#include "python/ext/array.h"

#include "python/ext/buffer.h"
#include "python/ext/dtypes.h"

#include <stdatomic.h>

/* Of ml_dtypes, whose types are to NumPy voids, as structured types are: the class of the dtype tells. */
typedef struct extension_dtype {
    const char *name;
    int itemsize;
    uint8_t code;
    _Atomic(PyObject *) seen; /* the first dtype that was it, kept for good: there is one object in practice */
} extension_dtype;

static int is_extension_dtype(PyObject *dtype, extension_dtype *of)
{
    if (dtype == atomic_load(&of->seen))
        return 1;
    PyObject *type = PyObject_GetAttrString(dtype, "type");
    PyObject *name = type != NULL ? PyObject_GetAttrString(type, "__name__") : NULL;
    const int found = name != NULL ? PyUnicode_CompareWithASCIIString(name, of->name) == 0 : -1;
    Py_XDECREF(name);
    Py_XDECREF(type);
    PyObject *none = NULL;
    if (found == 1 && atomic_compare_exchange_strong(&of->seen, &none, dtype))
        Py_INCREF(dtype);
    return found;
}

/* Finds the type's code. Returns 0 where it is another, -1 with an exception set. */
static int extension_code(PyObject *object, int itemsize, uint8_t *code)
{
    static extension_dtype known[] = {{.name = "bfloat16", .itemsize = 2, .code = kDLBfloat},
                                      {.name = "float8_e4m3fn", .itemsize = 1, .code = DLPACK_FLOAT8_E4M3FN}};
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    int found = dtype != NULL ? 0 : -1;
    for (size_t i = 0; i < sizeof known / sizeof known[0] && found == 0; i++) {
        found = known[i].itemsize == itemsize ? is_extension_dtype(dtype, &known[i]) : 0;
        *code = known[i].code;
    }
    Py_XDECREF(dtype);
    return found;
}

static int numpy_dtype(PyObject *object, const numpy_interface *from, const char *slot, DLDataType *dtype)
{
    *dtype = (DLDataType){.bits = (uint8_t)(8 * from->itemsize), .lanes = 1};
    int known = from->itemsize <= 8 && (from->flags & NUMPY_NOT_SWAPPED) != 0;
    switch (from->typekind) {
    case 'f': dtype->code = kDLFloat; break;
    case 'i': dtype->code = kDLInt; break;
    case 'u': dtype->code = kDLUInt; break;
    case 'b': dtype->code = DLPACK_BOOL; break;
    case 'V': known = known ? extension_code(object, from->itemsize, &dtype->code) : 0; break;
    default: known = 0;
    }
    if (known == 0) {
        PyObject *name = PyObject_GetAttrString(object, "dtype");
        if (name != NULL)
            refuse_dtype(slot, name);
        Py_XDECREF(name);
    }
    return known == 1 ? 0 : -1;
}

int array_refuse_rank(const char *slot, Py_ssize_t rank)
{
    PyErr_Format(PyExc_ValueError, "%s has rank %zd; it must be at most %d", slot, rank, (int)COPES_MAX_RANK);
    return -1;
}

static int view_numpy_interface(PyObject *object, const numpy_interface *from, const char *slot, array *view)
{
    if (from->nd > COPES_MAX_RANK)
        return array_refuse_rank(slot, from->nd);
    view->tensor = (DLTensor){.data = from->data,
                              .device = {kDLCPU, 0},
                              .ndim = from->nd,
                              .shape = view->shape,
                              .strides = view->strides};
    if (numpy_dtype(object, from, slot, &view->tensor.dtype) != 0)
        return -1;
    for (int i = 0; i < from->nd; i++) {
        view->shape[i] = from->shape[i];
        view->strides[i] = from->strides[i] / from->itemsize;
        if (from->strides[i] % from->itemsize != 0 && from->shape[i] > 1) {
            PyErr_Format(PyExc_ValueError, "%s has a stride of %zd bytes; it must be a multiple of the item's %d", slot,
                         (Py_ssize_t)from->strides[i], from->itemsize);
            return -1;
        }
    }
    view->read_only = (from->flags & NUMPY_WRITEABLE) == 0;
    return 0;
}

static int view_numpy(PyObject *object, const char *slot, array *view)
{
    view->owner = PyObject_GetAttrString(object, "__array_struct__");
    const numpy_interface *from = view->owner != NULL ? PyCapsule_GetPointer(view->owner, NULL) : NULL;
    return from != NULL ? view_numpy_interface(object, from, slot, view) : -1;
}

/* Calls object.__dlpack__ for use on `stream`, and for exporters older than version 1 again in their way. */
static PyObject *export_dlpack(PyObject *object, DLDevice device, void *stream)
{
    const int cpu = device.device_type == kDLCPU;
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0);
    /* CUDA's default stream is 1 here, HIP's 0: 0 means nothing to CUDA. */
    const long long number = stream == NULL && device.device_type == kDLCUDA ? 1 : (long long)(intptr_t)stream;
    PyObject *keywords = cpu ? Py_BuildValue("{s:O,s:(ii)}", "stream", Py_None, "max_version", VERSIONED_MAJOR, 0)
                             : Py_BuildValue("{s:L,s:(ii)}", "stream", number, "max_version", VERSIONED_MAJOR, 0);
    PyObject *capsule = NULL;
    if (method != NULL && none != NULL && keywords != NULL) {
        capsule = PyObject_Call(method, none, keywords);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            if (PyDict_DelItemString(keywords, "max_version") == 0)
                capsule = PyObject_Call(method, none, keywords);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return capsule;
}

static int device_of(PyObject *object, DLDevice *device)
{
    int type, id;
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *plain = pair != NULL ? PySequence_Tuple(pair) : NULL;
    PyObject *values[2] = {NULL, NULL};
    int status = plain != NULL && PyArg_ParseTuple(plain, "OO", &values[0], &values[1]) ? 0 : -1;
    if (status == 0) {
        type = (int)PyLong_AsLong(values[0]); /* often an enum's member */
        id = (int)PyLong_AsLong(values[1]);
        *device = (DLDevice){.device_type = (DLDeviceType)type, .device_id = id};
        status = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(plain);
    Py_XDECREF(pair);
    return status;
}

static int view_dlpack(PyObject *object, array *view)
{
    DLDevice device;
    void *stream;
    if (device_of(object, &device) != 0 || framework_stream(view->framework, device, &stream) != 0)
        return -1;
    PyObject *capsule = export_dlpack(object, device, stream);
    if (capsule == NULL)
        return -1;
    Py_XDECREF(view->owner);
    view->owner = capsule;
    if (PyCapsule_IsValid(view->owner, "dltensor_versioned")) {
        const versioned_tensor *managed = PyCapsule_GetPointer(view->owner, "dltensor_versioned");
        if (managed->version.major != VERSIONED_MAJOR) {
            PyErr_Format(PyExc_BufferError, "an array of DLPack version %u", managed->version.major);
            return -1;
        }
        view->tensor = managed->tensor;
        view->read_only = (managed->flags & VERSIONED_READ_ONLY) != 0;
        return 0;
    }
    const DLManagedTensor *managed = PyCapsule_GetPointer(view->owner, "dltensor");
    if (managed != NULL)
        view->tensor = managed->dl_tensor;
    return managed != NULL ? 0 : -1;
}

/* What the framework raised becomes a TypeError that names the slot, with the first line of its message: the array is
 * sparse, or of a type that DLPack does not have. */
static int no_view(PyObject *object, const char *slot)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = value != NULL ? PyObject_Str(value) : NULL;
    PyObject *lines = text != NULL ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *first = lines != NULL && PyList_Size(lines) > 0 ? PyList_GetItem(lines, 0) : Py_None;
    PyErr_Format(PyExc_TypeError, "%s is a %R that DLPack cannot view: %S", slot, Py_TYPE(object), first);
    Py_XDECREF(lines);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

/* The object, or what it stands for where its own memory is not that, which the view then owns; NULL with an exception
 * set. */
static PyObject *resolve(PyObject *object, array *view)
{
    if (view->framework->pending == NULL)
        return object;
    PyObject *answer = PyObject_CallFunctionObjArgs(view->framework->pending, object, NULL);
    const int pending = answer != NULL ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (pending <= 0)
        return pending == 0 ? object : NULL;
    view->owner = PyObject_CallFunctionObjArgs(view->framework->resolve, object, NULL);
    view->resolved = true;
    return view->owner;
}

int array_open_made(PyObject *object, const char *slot, array *view)
{
    view->owner = NULL;
    view->read_only = false;
    view->resolved = false;
    view->framework = NULL;
    return buffer_view(object, &view->tensor) ? 0 : array_open(object, slot, view);
}

int array_open(PyObject *object, const char *slot, array *view)
{
    view->owner = NULL;
    view->read_only = false;
    view->resolved = false;
    view->framework = framework_of(object, slot);
    if (view->framework == NULL)
        return -1;
    if (view->framework->numpy)
        return view_numpy(object, slot, view);
    object = resolve(object, view);
    if (object == NULL)
        return -1;
    const exchange_api *api = view->framework->api;
    if (api != NULL && api->view(object, &view->tensor) != 0)
        return no_view(object, slot);
    if (api == NULL && view_dlpack(object, view) != 0)
        return PyErr_ExceptionMatches(PyExc_BufferError) ? no_view(object, slot) : -1;
    return view->tensor.ndim <= COPES_MAX_RANK ? 0 : array_refuse_rank(slot, view->tensor.ndim);
}

void array_close(array *view)
{
    Py_CLEAR(view->owner);
}
