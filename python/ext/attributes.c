/* An operator's attributes, read as the library's table describes them. */
#include "python/ext/attributes.h"

#include "bindings/choice.h"

#include <string.h>

static int set_enum(const copes_attribute_info *info, PyObject *value, void *to)
{
    Py_ssize_t size;
    const char *name = PyUnicode_AsUTF8AndSize(value, &size);
    if (name == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a string, one of %s", info->name, value, info->choices);
        return -1;
    }
    const int32_t index = choice_index(info->choices, name, (size_t)size);
    if (index >= 0) {
        memcpy(to, &index, sizeof index);
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be one of %s", info->name, value, info->choices);
    return -1;
}

static int read_int64(const copes_attribute_info *info, PyObject *value, int64_t *to)
{
    const long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be an integer%s", info->name, value,
                         info->count > 1 ? " or a sequence of integers" : "");
        else if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(PyExc_ValueError, "%s is %R; it must fit 64 bits", info->name, value);
        return -1;
    }
    *to = number;
    return 0;
}

static int set_int32(const copes_attribute_info *info, PyObject *value, void *to)
{
    int64_t number = 0;
    if (read_int64(info, value, &number) != 0)
        return -1;
    const int32_t narrow = (int32_t)number;
    if (narrow != number) {
        PyErr_Format(PyExc_ValueError, "%s is %R; it must fit 32 bits", info->name, value);
        return -1;
    }
    memcpy(to, &narrow, sizeof narrow);
    return 0;
}

/* In Python axes count from the front, too, as PyTorch's do; to the library they count from the end. What it would refuse
 * is refused here where its message would be about another count. */
static int set_axis(const copes_op_info *of, const copes_attribute_info *info, PyObject *value, int rank, void *to)
{
    const int32_t axes = info->axes > 0 ? info->axes : rank;
    int32_t axis = 0;
    if (set_int32(info, value, &axis) != 0)
        return -1;
    if (info->axes == 0 && rank > 0 && (axis < -rank || axis >= rank)) {
        PyErr_Format(PyExc_ValueError, "%s: %s is %d; with tensors of rank %d it must be %d to %d", of->name,
                     info->name, (int)axis, rank, -rank, rank - 1);
        return -1;
    }
    axis -= axis >= 0 && axis < axes ? axes : 0;
    memcpy(to, &axis, sizeof axis);
    return 0;
}

/* What equals True or False, as 1 and NumPy's bools do; other values, such as a string, are true more often than meant. */
static int set_bool(const copes_attribute_info *info, PyObject *value, void *to)
{
    const int is_true = PyObject_RichCompareBool(value, Py_True, Py_EQ);
    const int is_false = is_true == 0 ? PyObject_RichCompareBool(value, Py_False, Py_EQ) : 0;
    if (is_true != 1 && is_false != 1) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be True or False", info->name, value);
        return -1;
    }
    const int32_t truth = is_true;
    memcpy(to, &truth, sizeof truth);
    return 0;
}

/* Zero is how a descriptor asks for the default, so it cannot ask for zero, unless that is the default. */
static int set_double(const copes_attribute_info *info, PyObject *value, void *to)
{
    const double number = PyFloat_AsDouble(value);
    if (number == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", info->name, value);
        return -1;
    }
    if (number == 0 && strcmp(info->fallback, "0") != 0) {
        PyErr_Format(PyExc_ValueError, "%s is 0; it must be another number, or None for %s", info->name,
                     info->fallback);
        return -1;
    }
    memcpy(to, &number, sizeof number);
    return 0;
}

/* A number stands for a list of one, as does an array of rank 0, which says that it is a sequence. */
static int set_list(const copes_attribute_info *info, PyObject *value, copes_op *op, int64_t *to)
{
    const Py_ssize_t length = PySequence_Check(value) ? PySequence_Size(value) : -1;
    if (length < 0) {
        PyErr_Clear();
        if (info->rank_offset >= 0)
            *(int32_t *)((char *)op + info->rank_offset) = 1;
        return read_int64(info, value, to);
    }
    if (length > info->count) {
        PyErr_Format(PyExc_ValueError, "%s has %zd numbers; it must have at most %d", info->name, length,
                     (int)info->count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(value, i);
        const int status = item != NULL ? read_int64(info, item, to + i) : -1;
        Py_XDECREF(item);
        if (status != 0)
            return -1;
    }
    if (info->rank_offset >= 0)
        *(int32_t *)((char *)op + info->rank_offset) = (int32_t)length;
    return 0;
}

int attribute_set(const copes_op_info *of, int index, PyObject *value, int rank, copes_op *op)
{
    const copes_attribute_info *info = of->attributes[index];
    char *to = (char *)op + info->offset;
    if (value == Py_None && info->type != COPES_ATTRIBUTE_ENUM) /* a name has to be said */
        return 0;
    switch (info->type) {
    case COPES_ATTRIBUTE_ENUM: return set_enum(info, value, to);
    case COPES_ATTRIBUTE_BOOL: return set_bool(info, value, to);
    case COPES_ATTRIBUTE_INT32: return set_int32(info, value, to);
    case COPES_ATTRIBUTE_AXIS: return set_axis(of, info, value, rank, to);
    case COPES_ATTRIBUTE_INT64:
        return info->count > 1 ? set_list(info, value, op, (int64_t *)(void *)to)
                               : read_int64(info, value, (int64_t *)(void *)to);
    case COPES_ATTRIBUTE_DOUBLE: return set_double(info, value, to);
    }
    PyErr_Format(PyExc_SystemError, "%s has a type that this binding does not know", info->name);
    return -1;
}
