"""Activations of oneDNN (github.com/uxlfoundation/oneDNN, version 3) through its C interface: of the shared library that
ONEDNN_LIBRARY names, or else that `pip install onednn-cpu-gomp` left in the environment. Its handles live as long as the
process."""

import ctypes
import functools
import os
import pathlib
import sys

import torch

from .base import Provider, import_error

CPU, IN_ORDER, TRAINING, BFLOAT16 = 1, 1, 64, 2
UNIMPLEMENTED = 3  # dnnl_common_types.h: dnnl_status_t
SRC, DST, GRAD_SRC, GRAD_DST = 1, 17, 129, 145  # dnnl_types.h: DNNL_ARG_*
ALGORITHMS = {"relu": 0x100, "sigmoid": 0x104, "silu": 0x2C, "softmax": 0x30000}  # relu and sigmoid: _use_dst_for_bwd
DEFAULT_LIBRARY = pathlib.Path(sys.prefix, "lib", "libdnnl.so.3")


class _Argument(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("memory", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "patch")]


@functools.cache
def _library():
    library = ctypes.CDLL(os.environ.get("ONEDNN_LIBRARY", DEFAULT_LIBRARY))
    library.dnnl_version.restype = ctypes.POINTER(_Version)
    return library


def _call(name, *arguments):
    status = getattr(_library(), f"dnnl_{name}")(*arguments)
    if status:
        why = ", as it has no such kernel for this processor" if status == UNIMPLEMENTED else ""
        raise RuntimeError(f"dnnl_{name} returned {status}{why}")


def _make(name, *arguments):
    handle = ctypes.c_void_p()
    _call(f"{name}_create", ctypes.byref(handle), *arguments)
    return handle


@functools.cache
def _engine():
    return _make("engine", CPU, ctypes.c_size_t(0))


@functools.cache
def _stream():
    return _make("stream", _engine(), IN_ORDER)


def _layout(shape):
    """The descriptor of a contiguous tensor."""
    numbers, strides = ctypes.c_int64 * len(shape), torch.empty(shape, device="meta").stride()
    layout = ctypes.c_void_p()
    sizes = len(shape), numbers(*shape), BFLOAT16, numbers(*strides)
    _call("memory_desc_create_with_strides", ctypes.byref(layout), *sizes)
    return layout


class _Primitive:
    """A function of tensors, one for each slot."""

    def __init__(self, descriptor, layout, slots):
        self.primitive = _make("primitive", descriptor)
        memories = [_make("memory", layout, _engine(), None) for _ in slots]
        self.arguments = (_Argument * len(slots))(*map(_Argument, slots, memories))

    def __call__(self, *tensors):
        for argument, tensor in zip(self.arguments, tensors, strict=True):
            _call("memory_set_data_handle", ctypes.c_void_p(argument.memory), ctypes.c_void_p(tensor.data_ptr()))
        _call("primitive_execute", self.primitive, _stream(), len(tensors), self.arguments)
        _call("stream_wait", _stream())


def _probe():
    """Raises where there is no library, or none for bfloat16, which takes AVX-512."""
    layout, zero = _layout((1,)), ctypes.c_float(0)
    relu = TRAINING, ALGORITHMS["relu"], layout, layout, zero, zero, None
    _make("eltwise_forward_primitive_desc", _engine(), *relu)


def _primitives(case):
    """The forward, from x to its result, and the backward, from what it keeps and the result's gradient to that of x."""
    layout, algorithm = _layout(case.x_shape), ALGORITHMS[case.act]
    slope = ctypes.c_float(case.act == "silu")  # of x in silu's exponent, and of relu below 0
    family, last = "eltwise", (slope, ctypes.c_float(0))
    if case.act == "softmax":
        family, last = "softmax", (case.softmax_axis,)
    family += "_%s_primitive_desc"
    forward = _make(family % "forward", _engine(), TRAINING, algorithm, layout, layout, *last, None)
    backward = _make(family % "backward", _engine(), algorithm, layout, layout, layout, *last, forward, None)
    kept = SRC if case.act == "silu" else DST
    return _Primitive(forward, layout, (SRC, DST)), _Primitive(backward, layout, (kept, GRAD_DST, GRAD_SRC))


class _Act(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, act, forward, backward):
        out = torch.empty_like(x)
        forward(x, out)
        ctx.save_for_backward(x if act == "silu" else out)
        ctx.run = backward
        return out

    @staticmethod
    def backward(ctx, grad):
        grad_x = torch.empty_like(grad)
        ctx.run(*ctx.saved_tensors, grad, grad_x)
        return grad_x, None, None, None


class OneDNN(Provider):
    name = family = "oneDNN"

    def missing(self, device):
        return "its kernels are the CPU's" if device != "cpu" else import_error(_probe)

    def version(self):
        version = _library().dnnl_version().contents
        return f"{version.major}.{version.minor}.{version.patch}"

    def runs(self, case):
        return case.op == "act" and case.act in ALGORITHMS

    def function(self, case, inputs):
        primitives = _primitives(case)
        return lambda x: _Act.apply(x, case.act, *primitives)
