/* The extension module copes._copes: running operators, the library's table, its devices, and the command. */
#include "python/ext/buffer.h"
#include "python/ext/call.h"
#include "python/ext/frameworks.h"
#include "python/ext/infer.h"
#if COPES_PYTHON_XLA
#include "python/ext/xla.h"
#endif
#include "tools/commands.h"
#include <copes/copes.h>

/* Names of the slots in use, in the order in which run takes them. */
static PyObject *slot_names(const copes_slot_info *const *slots, int capacity)
{
    PyObject *names = PyList_New(0);
    for (int i = 0; i < capacity && names != NULL; i++) {
        PyObject *name = slots[i] != NULL ? PyUnicode_FromString(slots[i]->name) : NULL;
        if (slots[i] != NULL && (name == NULL || PyList_Append(names, name) != 0))
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyObject *attribute_names(const copes_op_info *info)
{
    PyObject *names = PyList_New(info->attribute_count);
    for (int i = 0; names != NULL && i < info->attribute_count; i++) {
        PyObject *name = PyUnicode_FromString(info->attributes[i]->name);
        if (name == NULL || PyList_SetItem(names, i, name) != 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *operators(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < copes_op_count() && list != NULL; i++) {
        const copes_op_info *info = copes_op_at(i);
        PyObject *row = Py_BuildValue("(sNNN)", info->name, slot_names(info->in, COPES_MAX_INPUTS),
                                      slot_names(info->out, COPES_MAX_OUTPUTS), attribute_names(info));
        if (row == NULL || PyList_Append(list, row) != 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *add_device(PyObject *list, const copes_backend_info *backend, int32_t id)
{
    char summary[256];
    const DLDevice device = {backend->device_type, id};
    if (copes_device_summary(device, summary, sizeof summary) != COPES_OK)
        return list;
    PyObject *row = Py_BuildValue("(sis)", backend->name, (int)id, summary);
    if (row == NULL || PyList_Append(list, row) != 0)
        Py_CLEAR(list);
    Py_XDECREF(row);
    return list;
}

static PyObject *devices(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < copes_backend_count() && list != NULL; i++) {
        const copes_backend_info *backend = copes_backend_at(i);
        const int32_t count = copes_device_count(backend->device_type);
        for (int32_t id = 0; id < count && list != NULL; id++)
            list = add_device(list, backend, id);
    }
    return list;
}

#if COPES_PYTHON_COMMAND
/* Runs the command with these arguments (the command's name first) and returns its exit status. */
static PyObject *command(PyObject *module, PyObject *arguments)
{
    (void)module;
    enum { MOST_ARGUMENTS = 256 };
    char *argv[MOST_ARGUMENTS + 1] = {0};
    PyObject *bytes = PySequence_Tuple(arguments);
    const Py_ssize_t count = bytes != NULL ? PyTuple_Size(bytes) : -1;
    if (count > MOST_ARGUMENTS)
        PyErr_Format(PyExc_ValueError, "%zd arguments; there must be at most %d", count, (int)MOST_ARGUMENTS);
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        argv[i] = PyBytes_AsString(PyTuple_GetItem(bytes, i));
    PyObject *status = !PyErr_Occurred() ? PyLong_FromLong(command_copes((int)count, argv)) : NULL;
    Py_XDECREF(bytes);
    return status;
}
#endif

static PyMethodDef methods[] =
    {{"run", (PyCFunction)(void (*)(void))call_run, METH_FASTCALL,
      "run(operator, *inputs, *outputs, *attributes): runs an operator, by its index in operators()."},
     {"infer", (PyCFunction)(void (*)(void))infer_call, METH_FASTCALL,
      "infer(operator, device_type, device_id, *inputs, *outputs, *attributes): what a call makes, of descriptions."},
     {"operators", operators, METH_NOARGS,
      "The operators: (name, inputs, outputs, attributes), in the order of run's arguments."},
     {"devices", devices, METH_NOARGS, "The devices found: (backend, id, summary)."},
#if COPES_PYTHON_XLA
     {"xla_handlers", xla_handlers, METH_NOARGS, "XLA's handlers of the operators, by its name of a platform."},
#endif
#if COPES_PYTHON_COMMAND
     {"command", command, METH_O, "Runs the copes command on a sequence of bytes and returns its exit status."},
#endif
     {0}};

/* A name without a package gets that of the package which imports it. */
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_copes",
                                        .m_doc = "The library, seen from Python.", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__copes(void);

PyMODINIT_FUNC PyInit__copes(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddStringConstant(module, "version", copes_version()) == 0 && buffer_start(module) == 0 &&
        frameworks_start(module) == 0)
        return module;
    Py_DECREF(module);
    return NULL;
}
