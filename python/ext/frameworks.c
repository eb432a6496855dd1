/* The array types met so far. A type is asked once, in copes/_frameworks.py, how its arrays are made; reading is done
 * here. */
#include "python/ext/frameworks.h"

#include <stdatomic.h>
#include <stdlib.h>

/* For the life of the process, as calls hold on to them. Threads add to the front only; where two meet a type at once it is
 * there twice, which does no harm. */
static _Atomic(framework *) known;

/* The name of the module that tells of types: _frameworks.py, beside the extension. */
static PyObject *describer;

/* The newest table of the chain that this file's layout fits; NULL without an exception where there is none. */
static const exchange_api *find_api(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule == NULL) {
        PyErr_Clear();
        return NULL;
    }
    const exchange_api *api =
        PyCapsule_IsValid(capsule, "dlpack_exchange_api") ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_DECREF(capsule);
    while (api != NULL && api->header.major != VERSIONED_MAJOR)
        api = api->header.previous;
    return api != NULL && api->view != NULL ? api : NULL;
}

/* The answer of describe in copes/_frameworks.py for a type of arrays. */
static framework *make(PyTypeObject *type, PyObject *answer)
{
    framework *made = calloc(1, sizeof *made);
    int numpy, writable;
    PyObject *resolve;
    if (made == NULL ||
        !PyArg_ParseTuple(answer, "UppOOOOO", &made->name, &numpy, &writable, &made->empty, &made->scratch,
                          &made->finish, &made->stream, &resolve) ||
        (resolve != Py_None && !PyArg_ParseTuple(resolve, "OO", &made->pending, &made->resolve))) {
        if (made == NULL)
            PyErr_NoMemory();
        free(made);
        return NULL;
    }
    made->type = type;
    made->numpy = numpy;
    made->writable = writable;
    made->api = find_api(type);
    Py_INCREF(type);
    Py_INCREF(made->name);
    PyUnicode_InternInPlace(&made->name);
    Py_INCREF(made->empty);
    Py_INCREF(made->scratch);
    Py_INCREF(made->finish);
    Py_INCREF(made->stream);
    Py_XINCREF(made->pending);
    Py_XINCREF(made->resolve);
    return made;
}

int frameworks_start(PyObject *module)
{
    PyObject *name = PyModule_GetNameObject(module);
    PyObject *parts = name != NULL ? PyObject_CallMethod(name, "rpartition", "s", ".") : NULL;
    PyObject *package = parts != NULL ? PyTuple_GetItem(parts, 0) : NULL;
    describer = package != NULL ? PyUnicode_FromFormat("%U._frameworks", package) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(name);
    return describer != NULL ? 0 : -1;
}

/* Asks what the type is; of one that is no array's, or whose arrays are more than their numbers, the answer is a string
 * that says so. */
static const framework *learn(PyTypeObject *type, const char *slot)
{
    PyObject *module = PyImport_Import(describer);
    PyObject *answer = module != NULL ? PyObject_CallMethod(module, "describe", "O", type) : NULL;
    framework *made = NULL;
    if (answer != NULL && PyUnicode_Check(answer))
        PyErr_Format(PyExc_TypeError, "%s is a %R; %U", slot, type, answer);
    else if (answer != NULL)
        made = make(type, answer);
    Py_XDECREF(answer);
    Py_XDECREF(module);
    if (made != NULL) {
        made->next = atomic_load(&known);
        while (!atomic_compare_exchange_weak(&known, &made->next, made)) {
        }
    }
    return made;
}

const framework *framework_of(PyObject *object, const char *slot)
{
    PyTypeObject *type = Py_TYPE(object);
    for (const framework *each = atomic_load(&known); each != NULL; each = each->next)
        if (each->type == type)
            return each;
    return learn(type, slot);
}

int framework_stream(const framework *of, DLDevice device, void **stream)
{
    *stream = NULL;
    if (device.device_type == kDLCPU)
        return 0;
    if (of->api != NULL)
        return of->api->current_stream(device.device_type, device.device_id, stream);
    if (of->stream == Py_None)
        return 0;
    PyObject *address = PyObject_CallFunction(of->stream, "i", (int)device.device_id);
    *stream = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}
