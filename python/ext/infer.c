/* What a call makes, of descriptions alone. Slots and attributes follow the library's table, as those of call.c do. */
#include "python/ext/infer.h"

#include "bindings/contexts.h"
#include "python/ext/array.h"
#include "python/ext/attributes.h"
#include "python/ext/call.h"
#include "python/ext/dtypes.h"

#include <string.h>

typedef struct description {
    DLTensor tensor;
    int64_t shape[COPES_MAX_RANK];
} description;

typedef struct question {
    const copes_op_info *info;
    copes_op op;
    copes_args args;
    DLDevice device;
    description in[COPES_MAX_INPUTS], out[COPES_MAX_OUTPUTS];
    PyObject *const *next, *const *end; /* arguments not read yet */
    int rank;                           /* of the input that axes are of */
} question;

static PyObject *take(question *call)
{
    if (call->next < call->end)
        return *call->next++;
    PyErr_Format(PyExc_TypeError, "%s: the number of arguments is not the table's", call->info->name);
    return NULL;
}

static int read_description(const question *call, PyObject *pair, const char *slot, description *to)
{
    PyObject *shape, *dtype;
    if (!PyTuple_Check(pair)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a pair of a shape and a dtype's name, or None", slot, pair);
        return -1;
    }
    if (!PyArg_ParseTuple(pair, "O!U", &PyTuple_Type, &shape, &dtype))
        return -1;
    const Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > COPES_MAX_RANK)
        return array_refuse_rank(slot, rank);
    to->tensor = (DLTensor){.device = call->device, .ndim = (int)rank, .shape = to->shape};
    for (Py_ssize_t i = 0; i < rank; i++) {
        to->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (PyErr_Occurred())
            return -1;
    }
    return dtype_of_name(dtype, slot, &to->tensor.dtype);
}

static int read_inputs(question *call)
{
    const int preferred = call->info->out[0]->replaces - 1;
    for (int i = 0; i < COPES_MAX_INPUTS; i++) {
        const copes_slot_info *slot = call->info->in[i];
        if (slot == NULL)
            continue;
        PyObject *pair = take(call);
        if (pair == NULL)
            return -1;
        if (pair == Py_None)
            continue;
        if (read_description(call, pair, slot->name, &call->in[i]) != 0)
            return -1;
        call->args.in[i] = &call->in[i].tensor;
        if (i == preferred || call->rank < 0)
            call->rank = call->in[i].tensor.ndim;
    }
    return 0;
}

static int read_outputs(question *call)
{
    for (int i = 0; i < COPES_MAX_OUTPUTS; i++) {
        const copes_slot_info *slot = call->info->out[i];
        if (slot == NULL)
            continue;
        PyObject *wanted = take(call);
        if (wanted == NULL)
            return -1;
        if (wanted == Py_None || wanted == Py_False)
            continue;
        if (slot->updated && read_description(call, wanted, slot->name, &call->out[i]) != 0)
            return -1;
        call->out[i].tensor.shape = call->out[i].shape;
        call->args.out[i] = &call->out[i].tensor;
    }
    return 0;
}

static int read_attributes(question *call)
{
    for (int i = 0; i < call->info->attribute_count; i++) {
        PyObject *value = take(call);
        if (value == NULL || attribute_set(call->info, i, value, call->rank, &call->op) != 0)
            return -1;
    }
    if (call->next == call->end)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s: the number of arguments is not the table's", call->info->name);
    return -1;
}

static PyObject *integers(const int64_t *from, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *each = PyLong_FromLongLong(from[i]);
        if (each == NULL || PyTuple_SetItem(tuple, i, each) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* The outputs that there are. */
static PyObject *outputs_of(const question *call)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list != NULL && i < COPES_MAX_OUTPUTS; i++) {
        const DLTensor *tensor = call->args.out[i];
        if (tensor == NULL)
            continue;
        PyObject *pair = Py_BuildValue("(Ns)", integers(tensor->shape, tensor->ndim), dtype_name(tensor->dtype));
        if (pair == NULL || PyList_Append(list, pair) != 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

/* How many numbers of a list are more than its default: those that its length counts, or up to the last that is not zero. */
static int length_of(const copes_op *op, const copes_attribute_info *info, const int64_t *numbers)
{
    if (info->rank_offset >= 0)
        return *(const int32_t *)(const void *)((const char *)op + info->rank_offset);
    int length = info->count;
    while (length > 0 && numbers[length - 1] == 0)
        length--;
    return length;
}

static PyObject *enumerator(const copes_attribute_info *info, int32_t index)
{
    const char *name = info->choices;
    for (; index > 0; index--)
        name = strchr(name, '|') + 1;
    return PyUnicode_FromStringAndSize(name, (Py_ssize_t)strcspn(name, "|"));
}

/* The attribute as attribute_set takes it, whatever the input's rank. */
static PyObject *attribute_of(const copes_op *op, const copes_attribute_info *info)
{
    const void *at = (const char *)op + info->offset;
    if (info->type == COPES_ATTRIBUTE_DOUBLE) {
        const double number = *(const double *)at;
        return number != 0 ? PyFloat_FromDouble(number) : Py_NewRef(Py_None);
    }
    if (info->type == COPES_ATTRIBUTE_INT64) {
        const int length = length_of(op, info, at);
        if (length == 0)
            return Py_NewRef(Py_None);
        return info->count > 1 ? integers(at, length) : PyLong_FromLongLong(*(const int64_t *)at);
    }
    const int32_t number = *(const int32_t *)at;
    if (info->type == COPES_ATTRIBUTE_ENUM)
        return enumerator(info, number);
    return number != 0 ? PyLong_FromLong(number) : Py_NewRef(Py_None);
}

static PyObject *attributes_of(const question *call)
{
    PyObject *tuple = PyTuple_New(call->info->attribute_count);
    for (int i = 0; tuple != NULL && i < call->info->attribute_count; i++) {
        PyObject *each = attribute_of(&call->op, call->info->attributes[i]);
        if (each == NULL || PyTuple_SetItem(tuple, i, each) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Of what the device does not run it is 0: the call may be for another, and its own run will tell. */
static int workspace_of(const question *call, size_t *size)
{
    copes_context *context;
    *size = 0;
    copes_status status = contexts_get(call->device, &context);
    if (status == COPES_OK)
        status = copes_workspace_size(context, &call->op, &call->args, size);
    return status == COPES_ERROR_UNSUPPORTED ? 0 : call_status(status);
}

static PyObject *answer(question *call)
{
    size_t workspace;
    if (read_inputs(call) != 0 || read_outputs(call) != 0 || read_attributes(call) != 0 ||
        call_status(copes_infer(&call->op, &call->args)) != 0 || workspace_of(call, &workspace) != 0)
        return NULL;
    return Py_BuildValue("(NNn)", outputs_of(call), attributes_of(call), (Py_ssize_t)workspace);
}

PyObject *infer_call(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    enum { FIRST = 3 }; /* of the slots */
    long numbers[FIRST] = {-1, 0, 0};
    for (int i = 0; i < FIRST && i < count; i++)
        numbers[i] = PyLong_AsLong(arguments[i]);
    if (PyErr_Occurred())
        return NULL;
    if (count < FIRST || numbers[0] < 0 || (size_t)numbers[0] >= copes_op_count()) {
        PyErr_SetString(PyExc_ValueError, "infer: the first arguments must be an operator's index and a device");
        return NULL;
    }
    question call;
    memset(&call, 0, sizeof call);
    call.info = copes_op_at((size_t)numbers[0]);
    call.op.kind = call.info->kind;
    call.device = (DLDevice){(DLDeviceType)numbers[1], (int32_t)numbers[2]};
    call.next = arguments + FIRST;
    call.end = arguments + count;
    call.rank = -1;
    return answer(&call);
}
