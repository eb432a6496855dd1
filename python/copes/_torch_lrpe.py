"""The operators torch.ops.copes.lrpe and lrpe_lse, and their backward: what computes them, their derivatives in both modes,
and their fake implementations. Backward too goes around the dispatcher where nothing intercepts it (see _torch.py)."""

from __future__ import annotations

import torch

from . import _torch_vmap
from ._copes import run
from ._operators import LRPE_BACKWARD, LRPE_FORWARD
from ._torch_act import act_tangent, refuse_second_derivative
from ._torch_library import OPERATORS, check_devices, define, function, given, is_plain, refuse_constants, wide

SEQUENCE = (1, -3)

ROTATION = (  # AOTInductor hands None to an operator for a list without numbers
    "SymInt[]? grid, SymInt[]? offset, SymInt prefix, SymInt suffix, SymInt[]? sections, SymInt rotary_dim, "
    "SymInt rotary_begin, float? amplitude, bool inverse, bool pad_theta"
)
LRPE = f"str variant, str pairing, str act, int dim, {ROTATION}"
ANGLES = "Tensor theta, Tensor? positions, Tensor? offsets"
_LRPE_GRADIENT = f"Tensor? x, {ANGLES}, Tensor grad_o, Tensor? lse, {LRPE}"
LRPE_NAMES = ("x", "theta", "positions", "offsets")


def explicit(variant, pairing, act, dim, *rotation):
    """The attributes as the operators' schema has them, which knows None for lists and amplitude only."""
    return variant, pairing, act, -1 if dim is None else dim, *explicit_rotation(*rotation)


def explicit_rotation(grid, offset, prefix, suffix, sections, rotary_dim, rotary_begin, amplitude, inverse, pad_theta):
    return (
        None if grid is None else list(grid),
        list(offset) if isinstance(offset, (list, tuple)) else [offset],
        prefix,
        suffix,
        None if sections is None else list(sections),
        rotary_dim or 0,
        rotary_begin,
        amplitude,
        inverse,
        pad_theta,
    )


# Every operator begins with x, theta, positions and offsets.


def compute_lrpe(*arguments):
    return run(LRPE_FORWARD, *arguments[:4], None, None, None, *arguments[4:])


def compute_lrpe_lse(*arguments):
    return run(LRPE_FORWARD, *arguments[:4], None, None, True, *arguments[4:])


def _lrpe_out(*arguments, out):
    run(LRPE_FORWARD, *arguments[:4], None, out, None, *arguments[4:])


def _lrpe_backward(*arguments):
    return run(LRPE_BACKWARD, *arguments[:6], None, None, None, None, *arguments[6:])


def _lrpe_backward_theta(*arguments):
    return run(LRPE_BACKWARD, *arguments[:6], None, None, True, None, *arguments[6:])


def refuse_positions(needed) -> None:
    refuse_constants("lrpe", LRPE_NAMES[2:], needed[2:4])


def _refuse_theta_twice(*_):
    raise NotImplementedError("lrpe: a learned theta has no second derivative; pass theta.detach() for x's alone")


def _refuse_backward(needed) -> None:
    refuse_positions(needed)
    if needed[1]:
        _refuse_theta_twice()


def _setup_lrpe(ctx, inputs, output):
    x, *angles = inputs[:4]
    ctx.attributes = inputs[4:]
    lse = None
    if isinstance(output, tuple):
        lse = output[1]
        ctx.mark_non_differentiable(lse)
    _, _, needs_theta, *_ = ctx.needs_input_grad
    ctx.save_for_backward(x if needs_theta or ctx.attributes[2] != "none" else None, *angles, lse)


def _backward_lrpe(ctx, grad_o, grad_lse=None):
    *inputs, lse = ctx.saved_tensors
    _, _, needs_theta, *_ = ctx.needs_input_grad
    straight = not torch.is_grad_enabled() and is_plain(grad_o, *given(*inputs, lse))
    arguments = (*inputs, grad_o, lse, *(ctx.attributes if straight else explicit(*ctx.attributes)))
    none = (None,) * (2 + len(ctx.attributes))
    if not needs_theta:
        backward = _lrpe_backward if straight else OPERATORS.lrpe_backward.default
        return backward(*arguments), None, *none
    backward = _lrpe_backward_theta if straight else OPERATORS.lrpe_backward_theta.default
    return *backward(*arguments), *none


def _jvp_lrpe(ctx, kept, tangent, theta_tangent, *_):
    if theta_tangent is not None:
        raise NotImplementedError("lrpe: theta has no derivative in forward mode; pass theta.detach()")
    return _lrpe_tangent(kept[:4], tangent, ctx.attributes)


def _jvp_lrpe_lse(ctx, kept, *tangents):
    return _jvp_lrpe(ctx, kept, *tangents), None


def _lrpe_tangent(inputs, tangent, attributes):
    """The Jacobian of o = lrpe(x) by the tangent: the encoding is linear in act(x)."""
    x, *angles = inputs
    variant, pairing, act, dim, *others = attributes
    if act != "none":
        dim = 1 if dim in SEQUENCE else -1
        o = OPERATORS.act.default(x, act, dim) if act == "softmax" else None
        tangent = act_tangent(x, o, tangent, act, dim)
    return OPERATORS.lrpe.default(tangent, *angles, *explicit(variant, pairing, "none", None, *others))


lrpe_with_grad, _autograd_lrpe = function(_setup_lrpe, _backward_lrpe, _jvp_lrpe, refuse_positions)
lrpe_lse_with_grad, _autograd_lrpe_lse = function(_setup_lrpe, _backward_lrpe, _jvp_lrpe_lse, refuse_positions)


# The derivatives of lrpe_backward, which is linear in grad_o. With a gradient of theta it has none.


def _setup_lrpe_backward(ctx, inputs, output):
    ctx.attributes = inputs[6:]
    ctx.save_for_backward(*inputs[:4])


def _backward_lrpe_backward(ctx, grad):
    _, needs_x, _, _, _, _, needs_lse, *_ = ctx.needs_input_grad
    refuse_second_derivative(ctx.attributes[2], needs_x, needs_lse)
    tangent = _lrpe_tangent(ctx.saved_tensors, grad, ctx.attributes)
    return *(None,) * 4, tangent, *(None,) * (1 + len(ctx.attributes))


def _jvp_lrpe_backward(ctx, kept, x_tangent, _theta, _positions, _offsets, tangent, lse_tangent, *_):
    refuse_second_derivative(ctx.attributes[2], x_tangent is not None, lse_tangent is not None)
    lse, grad_x = kept[5], kept[-1]
    if tangent is None:
        return torch.zeros_like(grad_x)
    return OPERATORS.lrpe_backward.default(*kept[:4], tangent, lse, *ctx.attributes)


def _fake_lrpe(x, theta, positions, offsets, variant, *attributes):
    check_devices(LRPE_NAMES, (x, theta, positions, offsets))
    if variant == "rotate":
        return torch.empty_like(x)
    return x.new_empty((*x.shape[:-1], 2 * x.shape[-1]))


def _fake_lrpe_lse(x, *arguments):
    heads = x.shape[2] if x.dim() == 4 else 1
    return _fake_lrpe(x, *arguments), x.new_empty((x.shape[0], heads, x.shape[-1]), dtype=wide(x.dtype))


def _fake_lrpe_backward(x, theta, positions, offsets, grad_o, lse, variant, *attributes):
    if variant == "rotate":
        return torch.empty_like(grad_o)
    return grad_o.new_empty((*grad_o.shape[:-1], grad_o.shape[-1] // 2))


def _fake_lrpe_backward_theta(x, theta, positions, offsets, grad_o, *others):
    grad_x = _fake_lrpe_backward(x, theta, positions, offsets, grad_o, *others)
    return grad_x, theta.new_empty(theta.shape, dtype=wide(grad_o.dtype))


define(
    "lrpe",
    f"Tensor x, {ANGLES}, {LRPE}",
    "Tensor",
    compute_lrpe,
    _fake_lrpe,
    autograd=_autograd_lrpe,
    batched=_torch_vmap.lrpe,
)
define(
    "lrpe_lse",
    f"Tensor x, {ANGLES}, {LRPE}",
    "(Tensor, Tensor)",
    compute_lrpe_lse,
    _fake_lrpe_lse,
    autograd=_autograd_lrpe_lse,
    batched=_torch_vmap.lrpe_lse,
)
define("lrpe.out", f"Tensor x, {ANGLES}, {LRPE}, *, Tensor(a!) out", "()", _lrpe_out, _fake_lrpe)
define(
    "lrpe_backward",
    _LRPE_GRADIENT,
    "Tensor",
    _lrpe_backward,
    _fake_lrpe_backward,
    autograd=function(_setup_lrpe_backward, _backward_lrpe_backward, _jvp_lrpe_backward, _refuse_backward)[1],
    batched=_torch_vmap.lrpe_backward,
)
define(
    "lrpe_backward_theta",
    _LRPE_GRADIENT,
    "(Tensor, Tensor)",
    _lrpe_backward_theta,
    _fake_lrpe_backward_theta,
    autograd=function(lambda *_: None, _refuse_theta_twice, _refuse_theta_twice, refuse_positions)[1],
    batched=_torch_vmap.lrpe_backward_theta,
)
