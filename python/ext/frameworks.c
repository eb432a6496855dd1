/* The array types met so far. A type is asked once, in copes/_frameworks.py, how its arrays are made; reading is done
 * here. */
#include "python/ext/frameworks.h"

#include <stdlib.h>

static framework *known; /* for the life of the process, as calls hold on to them */

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

/* Asks copes._frameworks.describe for (numpy, writable, empty, scratch, finish, stream, resolve); None: no array's type. */
static const framework *learn(PyTypeObject *type)
{
    PyObject *module = PyImport_ImportModule("copes._frameworks");
    PyObject *answer = module != NULL ? PyObject_CallMethod(module, "describe", "O", type) : NULL;
    Py_XDECREF(module);
    if (answer == NULL || answer == Py_None) {
        Py_XDECREF(answer);
        return NULL;
    }
    framework *made = calloc(1, sizeof *made);
    int numpy, writable;
    PyObject *resolve;
    if (made == NULL || !PyArg_ParseTuple(answer, "ppOOOOO", &numpy, &writable, &made->empty, &made->scratch,
                                          &made->finish, &made->stream, &resolve) ||
        (resolve != Py_None && !PyArg_ParseTuple(resolve, "OO", &made->pending, &made->resolve))) {
        if (made == NULL)
            PyErr_NoMemory();
        Py_DECREF(answer);
        free(made);
        return NULL;
    }
    made->type = type;
    made->numpy = numpy;
    made->writable = writable;
    made->api = find_api(type);
    Py_INCREF(type);
    Py_INCREF(made->empty);
    Py_INCREF(made->scratch);
    Py_INCREF(made->finish);
    Py_INCREF(made->stream);
    Py_XINCREF(made->pending);
    Py_XINCREF(made->resolve);
    Py_DECREF(answer);
    made->next = known;
    known = made;
    return made;
}

const framework *framework_of(PyObject *object, const char *slot)
{
    PyTypeObject *type = Py_TYPE(object);
    for (const framework *each = known; each != NULL; each = each->next)
        if (each->type == type)
            return each;
    const framework *learned = learn(type);
    if (learned == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError,
                     "%s is a %R; it must be a NumPy array, a PyTorch tensor or another array with __dlpack__", slot,
                     type);
    return learned;
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
