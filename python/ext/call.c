/* One call of an operator: views of the arrays, the descriptor, new arrays for the results, scratch memory, and the run
 * itself, without the interpreter's lock. Slots and attributes follow the library's table, so that an operator added
 * there needs nothing here. */
#include "python/ext/call.h"

#include "bindings/contexts.h"
#include "bindings/error_class.h"
#include "python/ext/array.h"
#include "python/ext/attributes.h"
#include "python/ext/buffer.h"
#include "python/ext/dtypes.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_OUT = 0 };

typedef struct invocation {
    const copes_op_info *info;
    copes_op op;
    copes_args args;
    array in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS]; /* open where args has their tensor */
    PyObject *result[COPES_MAX_OUTPUTS];                /* owned; NULL: the call goes without */
    PyObject *const *next, *const *end;                 /* arguments not read yet */
    PyObject *object[COPES_MAX_INPUTS];                 /* the inputs, borrowed; NULL: absent */
    int like;                   /* the input that stands for the call: its first output's, or else the first */
    const framework *framework; /* that of the first input, and so of all */
} invocation;

int call_status(copes_status status)
{
    if (status == COPES_OK)
        return 0;
    PyObject *type = NULL;
    switch (error_class_of(status)) {
    case ERROR_VALUE: type = PyExc_ValueError; break;
    case ERROR_TYPE: type = PyExc_TypeError; break;
    case ERROR_RUNTIME: type = PyExc_RuntimeError; break;
    case ERROR_MEMORY: PyErr_NoMemory(); return -1;
    }
    PyErr_SetString(type, copes_last_error());
    return -1;
}

static PyObject *take(invocation *call)
{
    return call->next < call->end ? *call->next++ : NULL;
}

static int missing_arguments(const invocation *call)
{
    PyErr_Format(PyExc_TypeError, "%s: the number of arguments is not the table's", call->info->name);
    return -1;
}

/* Opens an array of the caller's. A call's are of one framework, so that there is no doubt about what becomes of layouts,
 * streams and gradients, nor about whose the results are. */
static int open_given(invocation *call, PyObject *object, const char *name, array *view)
{
    if (array_open(object, name, view) != 0) {
        array_close(view);
        return -1;
    }
    if (call->framework == NULL)
        call->framework = view->framework;
    if (view->framework->name == call->framework->name)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s is a %R; beside an array of %U it must be one, too", name, Py_TYPE(object),
                 call->framework->name);
    array_close(view);
    return -1;
}

static int open_inputs(invocation *call)
{
    const int preferred = call->info->out[FIRST_OUT]->replaces - 1;
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        const copes_slot_info *slot = call->info->in[i];
        if (slot == NULL)
            continue;
        PyObject *object = take(call);
        if (object == NULL)
            return missing_arguments(call);
        if (object == Py_None && slot->optional)
            continue;
        if (open_given(call, object, slot->name, &call->in[i]) != 0)
            return -1;
        call->args.in[i] = &call->in[i].tensor;
        call->object[i] = object;
        if (i == preferred || call->like < 0)
            call->like = i;
    }
    return 0;
}

/* The output that the caller gives is called out, as in the functions' signatures. */
static int open_output(invocation *call, int slot, PyObject *object)
{
    const char *name = slot == FIRST_OUT ? "out" : call->info->out[slot]->name;
    array *view = &call->out[slot];
    if (open_given(call, object, name, view) != 0)
        return -1;
    call->args.out[slot] = &view->tensor;
    if (view->read_only || !view->framework->writable) {
        PyErr_Format(PyExc_ValueError, "%s: %s is a read-only array; it must be writable", call->info->name, name);
        return -1;
    }
    if (view->resolved) {
        PyErr_Format(PyExc_ValueError, "%s: %s is a negative view; it must be a tensor whose memory has its values",
                     call->info->name, name);
        return -1;
    }
    call->result[slot] = Py_NewRef(object);
    return 0;
}

/* Takes over the reference to what was made; NULL: it could not be. */
static int open_result(invocation *call, int slot, PyObject *made)
{
    array *view = &call->out[slot];
    if (made == NULL)
        return -1;
    call->result[slot] = made;
    if (array_open_made(made, call->info->out[slot]->name, view) != 0) {
        array_close(view);
        return -1;
    }
    call->args.out[slot] = &view->tensor;
    return 0;
}

/* Opens the outputs that are given, and notes in `wanted` those to be made. */
static int open_outputs(invocation *call, copes_args *wanted)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        if (call->info->out[i] == NULL)
            continue;
        PyObject *object = take(call);
        if (object == NULL)
            return missing_arguments(call);
        const int optional = i != FIRST_OUT && call->info->out[i]->optional;
        if (object == Py_False || (object == Py_None && optional))
            continue;
        if (object == Py_None || (object == Py_True && !call->info->out[i]->updated)) {
            call->out[i].tensor.shape = call->out[i].shape;
            wanted->out[i] = &call->out[i].tensor;
        } else if (open_output(call, i, object) != 0) {
            return -1;
        }
    }
    return 0;
}

static int read_attributes(invocation *call)
{
    for (int i = 0; i < call->info->attribute_count; i++) {
        PyObject *value = take(call);
        if (value == NULL)
            return missing_arguments(call);
        if (attribute_set(call->info, i, value, call->in[call->like].tensor.ndim, &call->op) != 0)
            return -1;
    }
    return call->next == call->end ? 0 : missing_arguments(call);
}

static bool same_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static bool same_shape(const DLTensor *a, const DLTensor *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static PyObject *shape_tuple(const DLTensor *tensor)
{
    PyObject *shape = PyTuple_New(tensor->ndim);
    for (int i = 0; shape != NULL && i < tensor->ndim; i++) {
        PyObject *length = PyLong_FromLongLong(tensor->shape[i]);
        if (length == NULL || PyTuple_SetItem(shape, i, length) != 0)
            Py_CLEAR(shape);
    }
    return shape;
}

/* An array of this description by the framework of the call's inputs. Where a result can be an input itself it has its
 * strides, so that a layout stays from operator to operator; else it is contiguous. */
static PyObject *make_result(const invocation *call, int slot, const DLTensor *description)
{
    if (call->framework->empty == Py_None)
        return buffer_new(description);
    const int replaced = call->info->out[slot]->replaces - 1;
    const bool can_replace = replaced >= 0 && call->args.in[replaced] != NULL;
    const int from = can_replace ? replaced : call->like;
    const DLTensor *like = &call->in[from].tensor;
    PyObject *shape = can_replace && same_shape(description, like) ? Py_NewRef(Py_None) : shape_tuple(description);
    PyObject *type = same_type(description->dtype, like->dtype) ? Py_NewRef(Py_None)
                                                                : PyUnicode_FromString(dtype_name(description->dtype));
    PyObject *made = NULL;
    if (shape != NULL && type != NULL)
        made = PyObject_CallFunctionObjArgs(call->framework->empty, call->object[from], shape, type, NULL);
    Py_XDECREF(shape);
    Py_XDECREF(type);
    return made;
}

static int make_results(invocation *call, copes_args *wanted)
{
    bool any = false;
    copes_args described =
        call->args; /* with what is updated, which says what else there must be, and what is wanted */
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        any = any || wanted->out[i] != NULL;
        if (call->info->out[i] != NULL && !call->info->out[i]->updated)
            described.out[i] = wanted->out[i];
    }
    if (!any)
        return 0;
    if (call_status(copes_infer(&call->op, &described)) != 0)
        return -1;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        if (wanted->out[i] == NULL)
            continue;
        if (open_result(call, i, make_result(call, i, wanted->out[i])) != 0)
            return -1;
    }
    return 0;
}

static copes_status run_unlocked(copes_context *context, const invocation *call, void *workspace, size_t size)
{
    copes_status status;
    Py_BEGIN_ALLOW_THREADS status = copes_run(context, &call->op, &call->args, workspace, size);
    Py_END_ALLOW_THREADS return status;
}

/* Scratch memory of a GPU, as an array of bytes by the framework, so that its allocator and stream order serve. */
static PyObject *make_scratch(const invocation *call, size_t size)
{
    const framework *from = call->framework;
    if (from->empty != Py_None)
        return PyObject_CallFunction(from->scratch, "On", call->object[call->like], (Py_ssize_t)size);
    int64_t shape[] = {(int64_t)size};
    return buffer_new(
        &(DLTensor){.device = call->in[call->like].tensor.device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = shape});
}

static int run_with_scratch(copes_context *context, const invocation *call, size_t size)
{
    if (size == 0)
        return call_status(run_unlocked(context, call, NULL, 0));
    if (call->in[call->like].tensor.device.device_type == kDLCPU) {
        void *workspace = malloc(size);
        if (workspace == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        const copes_status status = run_unlocked(context, call, workspace, size);
        free(workspace);
        return call_status(status);
    }
    PyObject *object = make_scratch(call, size);
    array scratch = {0};
    int status = object != NULL ? array_open_made(object, "workspace", &scratch) : -1;
    if (status == 0) {
        char *memory = (char *)scratch.tensor.data + scratch.tensor.byte_offset;
        status = call_status(run_unlocked(context, call, memory, size));
    }
    array_close(&scratch);
    Py_XDECREF(object);
    return status;
}

static int run(invocation *call)
{
    const DLDevice device = call->in[call->like].tensor.device;
    copes_context *context;
    void *stream;
    size_t size;
    if (call_status(contexts_get(device, &context)) != 0 || framework_stream(call->framework, device, &stream) != 0 ||
        call_status(copes_context_set_stream(context, stream)) != 0 ||
        call_status(copes_workspace_size(context, &call->op, &call->args, &size)) != 0)
        return -1;
    return run_with_scratch(context, call, size);
}

/* Outputs that the call makes, not the caller, are in made->out afterwards. */
static int run_call(invocation *call, copes_args *made)
{
    if (open_inputs(call) != 0 || open_outputs(call, made) != 0 || read_attributes(call) != 0)
        return -1;
    return make_results(call, made) != 0 ? -1 : run(call);
}

/* What the caller gets for the array in this slot. */
static PyObject *finish(const invocation *call, int slot, const copes_args *made)
{
    PyObject *finish = call->framework->finish;
    if (made->out[slot] == NULL || finish == Py_None)
        return Py_NewRef(call->result[slot]);
    return PyObject_CallFunctionObjArgs(finish, call->result[slot], call->object[call->like], NULL);
}

/* An output alone, or a tuple of several; those that existed before the call are the caller's anyway. */
static PyObject *take_results(const invocation *call, const copes_args *made)
{
    int slots[COPES_MAX_OUTPUTS], count = 0;
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++)
        if (call->result[i] != NULL && !call->info->out[i]->updated)
            slots[count++] = i;
    if (count == 1)
        return finish(call, slots[0], made);
    PyObject *results = PyTuple_New(count);
    for (int i = 0; i < count && results != NULL; i++) {
        PyObject *each = finish(call, slots[i], made);
        if (each == NULL || PyTuple_SetItem(results, i, each) != 0)
            Py_CLEAR(results);
    }
    return results;
}

static void close_call(invocation *call)
{
    for (int i = 0; i < COPES_MAX_INPUTS; i++)
        if (call->args.in[i] != NULL)
            array_close(&call->in[i]);
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        if (call->args.out[i] != NULL)
            array_close(&call->out[i]);
        Py_XDECREF(call->result[i]);
    }
}

PyObject *call_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    const long index = count > 0 ? PyLong_AsLong(arguments[0]) : -1;
    if (index < 0 || (size_t)index >= copes_op_count()) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "run: the first argument must be an operator's index");
        return NULL;
    }
    invocation call;
    call.info = copes_op_at((size_t)index);
    call.op = (copes_op){.kind = call.info->kind};
    memset(&call.args, 0, sizeof call.args);
    memset(call.result, 0, sizeof call.result);
    call.next = arguments + 1;
    call.end = arguments + count;
    memset(call.object, 0, sizeof call.object);
    call.like = -1;
    call.framework = NULL;
    copes_args made = {0};
    PyObject *results = run_call(&call, &made) == 0 ? take_results(&call, &made) : NULL;
    close_call(&call);
    return results;
}
