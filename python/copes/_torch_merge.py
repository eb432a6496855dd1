"""The operators torch.ops.copes.attention_merge, attention_merge_lse and attention_merge_backward.

The backward's results are always two: the gradient of lse_shares is an empty tensor where it is not asked for."""

from __future__ import annotations

import math

import torch

from . import _torch_vmap
from ._copes import run
from ._operators import MERGE_BACKWARD, MERGE_FORWARD
from ._torch_library import OPERATORS, check_devices, define, function, given, is_plain, wide

NAMES = ("o_shares", "lse_shares")
_INPUTS = "Tensor o_shares, Tensor lse_shares, str base"


def compute(o_shares, lse_shares, base):
    return run(MERGE_FORWARD, o_shares, lse_shares, None, None, base)


def compute_lse(o_shares, lse_shares, base):
    return run(MERGE_FORWARD, o_shares, lse_shares, None, True, base)


def _merge_out(o_shares, lse_shares, base, *, out):
    run(MERGE_FORWARD, o_shares, lse_shares, out, None, base)


def _merge_lse_out(o_shares, lse_shares, base, *, out):
    return run(MERGE_FORWARD, o_shares, lse_shares, out, True, base)[1]


def _merge_backward(o_shares, lse_shares, grad_o, grad_lse, of_lse, base):
    made = run(MERGE_BACKWARD, o_shares, lse_shares, grad_o, grad_lse, None, of_lse or None, base)
    return made if of_lse else (made, lse_shares.new_empty(0))


def _setup(ctx, inputs, output):
    o_shares, lse_shares, ctx.base = inputs
    ctx.shape, ctx.dtype = o_shares.shape[1:], o_shares.dtype
    ctx.save_for_backward(o_shares if ctx.needs_input_grad[2] else None, lse_shares)


def _backward(ctx, grad_o, grad_lse=None):
    o_shares, lse_shares = ctx.saved_tensors
    if grad_o is None:
        grad_o = lse_shares.new_zeros(ctx.shape, dtype=ctx.dtype)
    of_lse = o_shares is not None
    straight = not torch.is_grad_enabled() and is_plain(grad_o, *given(o_shares, lse_shares, grad_lse))
    backward = _merge_backward if straight else OPERATORS.attention_merge_backward.default
    grads = backward(o_shares, lse_shares, grad_o, grad_lse if of_lse else None, of_lse, ctx.base)
    return grads[0], grads[1] if of_lse else None, None


def _tangents(ctx, kept, o_tangent, lse_tangent, _):
    """do = sum w_s (do_s + ln b o_s (dlse_s - dlse)) with dlse = sum w_s dlse_s: sums of shares, as the operator has.
    dlse is None where it is zero."""
    o_shares, lse_shares, *_ = kept
    merge = OPERATORS.attention_merge.default
    if lse_tangent is None:
        return merge(o_tangent, lse_shares, ctx.base), None
    mean = merge(lse_tangent[..., None], lse_shares, ctx.base)[..., 0]
    slope = math.log(2) if ctx.base == "2" else 1.0
    moved = slope * (lse_tangent - mean)[..., None] * o_shares
    moved = moved if o_tangent is None else moved + o_tangent
    return merge(moved, lse_shares, ctx.base).to(o_shares.dtype), mean


def _jvp(*arguments):
    return _tangents(*arguments)[0]


def _jvp_lse(ctx, kept, *tangents):
    o_tangent, lse_tangent = _tangents(ctx, kept, *tangents)
    return o_tangent, torch.zeros_like(kept[-1]) if lse_tangent is None else lse_tangent


def _refuse_twice(*_):
    raise NotImplementedError("attention_merge: it has no second derivative; its first is not differentiable")


with_grad, _autograd = function(_setup, _backward, _jvp)
lse_with_grad, _autograd_lse = function(_setup, _backward, _jvp_lse)


def _fake(o_shares, lse_shares, base):
    check_devices(NAMES, (o_shares, lse_shares))
    return o_shares.new_empty(o_shares.shape[1:])


def _fake_lse(o_shares, lse_shares, base):
    o = _fake(o_shares, lse_shares, base)
    return o, o.new_empty(o.shape[:-1], dtype=wide(o.dtype))


def _fake_backward(o_shares, lse_shares, grad_o, grad_lse, of_lse, base):
    grad = grad_o.new_empty((lse_shares.shape[0], *grad_o.shape))
    return grad, lse_shares.new_empty(lse_shares.shape if of_lse else 0)


define(
    "attention_merge",
    _INPUTS,
    "Tensor",
    compute,
    _fake,
    autograd=_autograd,
    batched=_torch_vmap.attention_merge,
)
define(
    "attention_merge_lse",
    _INPUTS,
    "(Tensor, Tensor)",
    compute_lse,
    _fake_lse,
    autograd=_autograd_lse,
    batched=_torch_vmap.attention_merge_lse,
)
define("attention_merge.out", f"{_INPUTS}, *, Tensor(a!) out", "()", _merge_out, _fake)
define("attention_merge_lse.out", f"{_INPUTS}, *, Tensor(a!) out", "Tensor", _merge_lse_out, _fake_lse)
define(
    "attention_merge_backward",
    "Tensor? o_shares, Tensor lse_shares, Tensor grad_o, Tensor? grad_lse, bool of_lse, str base",
    "(Tensor, Tensor)",
    _merge_backward,
    _fake_backward,
    autograd=function(lambda *_: None, _refuse_twice, _refuse_twice)[1],
    batched=_torch_vmap.attention_merge_backward,
)
