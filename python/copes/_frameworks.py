"""How the arrays of each framework are made. The extension asks once for each type that it meets."""

from __future__ import annotations

import importlib
import sys

from ._copes import Buffer

# Masks, units, a matrix's axes: what a subclass of NumPy's array adds would be lost without a word. memmap adds nothing.
_MORE_THAN_NUMBERS = (
    "a subclass of NumPy's array may mean more than its numbers (a mask, a unit), which would be ignored: "
    "pass numpy.asarray(x) for those alone"
)


def describe(cls: type):
    """(framework, is NumPy's, may be written to, empty, scratch, finish, stream, resolve) for a type of arrays; for any
    other type what is wrong with it.

    empty(like, shape, dtype) makes an array of like's framework on its device; a dtype of None is like's, a shape of
    None asks for all that like has, strides included. Where empty is None, results are memory of the library's own that
    finish(buffer, like) turns into an array. scratch(like, size) makes one of bytes. stream(device) is the address of
    the current stream, for types that do not tell it themselves. resolve is a pair, of whether an array's memory is not
    yet what it stands for, and of an array like it whose memory is; None where memory always is."""
    for base in cls.__mro__:
        name = _module(base)
        maker = _MAKERS.get((name, base.__name__))
        if maker is not None and name == "numpy" and cls not in (base, sys.modules[name].memmap):
            return _MORE_THAN_NUMBERS
        if maker is not None:
            return name, *maker(sys.modules[name])
    if cls is not Buffer and hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__"):
        return _module(cls), False, _module(cls) != "jaxlib", None, None, _import, None, None
    return "it must be a NumPy array, a PyTorch tensor or another array with __dlpack__"


def _module(cls: type) -> str:
    """The package that the type comes from."""
    return cls.__module__.partition(".")[0]


def _numpy(numpy):
    def empty(like, shape, dtype):
        if shape is None:
            return numpy.empty_like(like, None, "K", False)
        return numpy.empty(shape, like.dtype if dtype is None else dtype)

    return True, True, empty, None, None, None, None


def _torch(torch):
    def empty(like, shape, dtype):
        if shape is None:
            return torch.empty_like(like)
        return torch.empty(shape, dtype=like.dtype if dtype is None else getattr(torch, dtype), device=like.device)

    def scratch(like, size):
        return torch.empty(size, dtype=torch.uint8, device=like.device)

    # A negative view's memory has the other sign, of which DLPack knows nothing.
    return False, True, empty, scratch, None, None, (torch.Tensor.is_neg, torch.Tensor.resolve_neg)


def _cupy(cupy):
    def empty(like, shape, dtype):
        return cupy.empty(like.shape if shape is None else shape, like.dtype if dtype is None else dtype)

    def scratch(like, size):
        return cupy.empty(size, cupy.uint8)

    def stream(device):
        return cupy.cuda.get_current_stream(device).ptr

    return False, True, empty, scratch, None, stream, None


_MAKERS = {("numpy", "ndarray"): _numpy, ("torch", "Tensor"): _torch, ("cupy", "ndarray"): _cupy}


def _import(buffer, like):
    """The buffer as an array of like's framework, without a copy."""
    if hasattr(like, "__array_namespace__"):
        namespace = like.__array_namespace__()
    else:
        namespace = importlib.import_module(_module(type(like)))
    return namespace.from_dlpack(buffer)
