"""The functions for PyTorch's tensors: the operators torch.ops.copes.*, or the way around the dispatcher.

Calls that nothing intercepts (no compiler, no transform, no mode, plain tensors) skip the dispatcher, whose Python
operators cost more than a small call does; they share setup and backward with the registered operators. act and lrpe
run in x's type under autocast, as their arithmetic is in float32 anyway; tpa_decode's inputs are cast to autocast's
type, as attention's are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from . import _torch_operators as operators
from ._copes import run
from ._operators import ACT_FORWARD, LRPE_FORWARD, TPA_DECODE
from ._torch_library import is_plain, refuse_out, requires_grad


def _refuse_other_arrays(**inputs) -> None:
    for name, x in inputs.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x)}; beside a PyTorch tensor it must be one, too")


def _run_to(out, inputs, *arguments):
    """run(*arguments), which writes to `out`."""
    refuse_out(out, *inputs)
    result = run(*arguments)
    increment_version(out)
    return result


def act(x, act, dim, out):
    dim = -1 if dim is None else dim
    if out is not None:
        if is_plain(x, out) and not out.is_neg():
            return _run_to(out, (x,), ACT_FORWARD, x, out, act, dim)
        _refuse_other_arrays(out=out)
        torch.ops.copes.act.out(x, act, dim, out=out)
        return out
    if not is_plain(x):
        return torch.ops.copes.act.default(x, act, dim)
    if x.requires_grad and torch.is_grad_enabled():
        return operators.act_with_grad(operators.compute_act, x, act, dim)
    return run(ACT_FORWARD, x, None, act, dim)


def lrpe(x, theta, attributes, out):
    if out is not None:
        if is_plain(x, theta, out) and not out.is_neg():
            return _run_to(out, (x, theta), LRPE_FORWARD, x, theta, out, None, *attributes)
        _refuse_other_arrays(theta=theta, out=out)
        torch.ops.copes.lrpe.out(x, theta, *operators.explicit(*attributes), out=out)
        return out
    plain = is_plain(x, theta)
    if not plain:
        _refuse_other_arrays(theta=theta)
    grad = (x.requires_grad or theta.requires_grad) and torch.is_grad_enabled()
    if plain and not grad:
        return run(LRPE_FORWARD, x, theta, None, None, *attributes)
    keeps_lse = grad and attributes[2] == "softmax" and attributes[3] in operators.SEQUENCE
    if plain:
        if theta.requires_grad:
            operators.refuse_theta((False, True))
        if keeps_lse:
            return operators.lrpe_lse_with_grad(operators.compute_lrpe_lse, x, theta, *attributes)[0]
        return operators.lrpe_with_grad(operators.compute_lrpe, x, theta, *attributes)
    attributes = operators.explicit(*attributes)
    if keeps_lse:
        return torch.ops.copes.lrpe_lse.default(x, theta, *attributes)[0]
    return torch.ops.copes.lrpe.default(x, theta, *attributes)


def tpa_decode(inputs, attributes, return_lse, out):
    plain = is_plain(*operators.given(*inputs, out)) and (out is None or not out.is_neg())
    device = inputs[0].device.type
    autocast = torch.is_autocast_enabled(device)
    if not plain or autocast:
        arrays = dict(zip(operators.TPA_NAMES, inputs), out=out)
        _refuse_other_arrays(
            **{name: x for name, x in arrays.items() if x is not None or name not in ("kv_len", "out")}
        )
    if autocast:
        dtype = torch.get_autocast_dtype(device)
        inputs = (*(x.to(dtype) for x in inputs[:-1]), inputs[-1])
    if plain:
        if requires_grad(*inputs):
            operators.refuse_factors([x is not None and x.requires_grad for x in inputs])
        if out is not None:
            return _run_to(out, inputs, TPA_DECODE, *inputs, out, return_lse, *attributes)
        return run(TPA_DECODE, *inputs, None, return_lse, *attributes)
    if out is None:
        decode = torch.ops.copes.tpa_decode_lse if return_lse else torch.ops.copes.tpa_decode
        return decode.default(*inputs, *attributes)
    if return_lse:
        return out, torch.ops.copes.tpa_decode_lse.out(*inputs, *attributes, out=out)
    torch.ops.copes.tpa_decode.out(*inputs, *attributes, out=out)
    return out
