"""The operators torch.ops.copes.*: what computes them, their derivatives in both modes, and their fake
implementations. Backward too goes around the dispatcher where nothing intercepts it (see _torch.py)."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _torch_vmap
from ._copes import run
from ._operators import ACT_BACKWARD, ACT_FORWARD, LRPE_BACKWARD, LRPE_FORWARD, TPA_DECODE
from ._torch_library import OPERATORS, define, function, is_plain, without_derivatives

SEQUENCE = (1, -3)
_LINEAR = ("none", "relu")  # what has a second derivative: none

_ACT = "str act, int dim"
ROTATION = (  # AOTInductor hands None to an operator for a list without numbers
    "SymInt[]? grid, SymInt[]? offset, SymInt prefix, SymInt suffix, SymInt[]? sections, SymInt rotary_dim, "
    "SymInt rotary_begin, float? amplitude, bool inverse, bool pad_theta"
)
LRPE = f"str variant, str pairing, str act, int dim, {ROTATION}"
ANGLES = "Tensor theta, Tensor? positions, Tensor? offsets"
_LRPE_GRADIENT = f"Tensor? x, {ANGLES}, Tensor grad_o, Tensor? lse, {LRPE}"
LRPE_NAMES = ("x", "theta", "positions", "offsets")
_TPA_INPUTS = "Tensor aq, Tensor bq, Tensor ak, Tensor bk, Tensor av, Tensor bv, Tensor? kv_len"
_TPA = (
    "float? scale, float? scale_q, float? scale_k, float? scale_v, bool causal, SymInt kv_first, SymInt kv_stride, "
    "SymInt? kv_total"
)
TPA_NAMES = ("aq", "bq", "ak", "bk", "av", "bv", "kv_len")


def given(*tensors: Tensor | None) -> list[Tensor]:
    return [x for x in tensors if x is not None]


# ---- act -------------------------------------------------------------------------------------------------------------


def compute_act(x, act, dim):
    return run(ACT_FORWARD, x, None, None, None, None, act, dim)


def _act_out(x, act, dim, *, out):
    run(ACT_FORWARD, x, None, out, None, None, act, dim)


def act_backward(x, grad_o, o, act, dim):
    return run(ACT_BACKWARD, x, grad_o, o, None, None, None, None, act, dim)


def _kept(act, x, o):
    """What the backward has, of the input and the output: the output where there is one and it is enough, as others may keep
    it anyway."""
    of_output = o is not None and act not in ("none", "silu")
    return (None if of_output or act == "none" else x), (o if of_output else None)


def _setup_act(ctx, inputs, output):
    x, ctx.act, ctx.dim = inputs
    ctx.save_for_backward(*_kept(ctx.act, x, output))


def _backward_act(ctx, grad_o):
    x, o = ctx.saved_tensors
    straight = not torch.is_grad_enabled() and is_plain(grad_o, *given(x, o))
    backward = act_backward if straight else OPERATORS.act_backward.default
    return backward(x, grad_o, o, ctx.act, ctx.dim), None, None


def _jvp_act(ctx, kept, tangent, *_):
    x, *_, o = kept
    return _act_tangent(x, o, tangent, ctx.act, ctx.dim)


def _act_tangent(x, o, tangent, act, dim):
    """The Jacobian of o = act(x) by the tangent. It is symmetric, for softmax too."""
    x, o = _kept(act, x, o)
    return OPERATORS.act_backward.default(x, tangent, o, act, dim)


act_with_grad, _autograd_act = function(_setup_act, _backward_act, _jvp_act)


# The derivatives of act_backward, which is linear in grad_o.


def _refuse_second_derivative(act, *others) -> None:
    """Of `act`, where one of the others (gradients or tangents of what it depends on) is wanted."""
    if act not in _LINEAR and any(others):
        raise NotImplementedError(f"act: {act} has no second derivative; its first is not differentiable")


def _setup_act_backward(ctx, inputs, output):
    x, _, o, ctx.act, ctx.dim = inputs
    ctx.save_for_backward(x, o)


def _backward_act_backward(ctx, grad):
    _, needs_x, _, needs_o, *_ = ctx.needs_input_grad
    _refuse_second_derivative(ctx.act, needs_x, needs_o)
    x, o = ctx.saved_tensors
    return None, OPERATORS.act_backward.default(x, grad, o, ctx.act, ctx.dim), None, None, None


def _jvp_act_backward(ctx, kept, x_tangent, tangent, o_tangent, *_):
    _refuse_second_derivative(ctx.act, x_tangent is not None, o_tangent is not None)
    x, grad_o, o, *_ = kept
    if tangent is None:
        return torch.zeros_like(grad_o)
    return OPERATORS.act_backward.default(x, tangent, o, ctx.act, ctx.dim)


def _fake_act(x, act, dim):
    return torch.empty_like(x)


define(
    "act",
    f"Tensor x, {_ACT}",
    "Tensor",
    compute_act,
    _fake_act,
    autograd=_autograd_act,
    batched=_torch_vmap.act,
)
define("act.out", f"Tensor x, {_ACT}, *, Tensor(a!) out", "()", _act_out, _fake_act)
define(
    "act_backward",
    f"Tensor? x, Tensor grad_o, Tensor? o, {_ACT}",
    "Tensor",
    act_backward,
    lambda x, grad_o, o, act, dim: torch.empty_like(grad_o),
    autograd=function(_setup_act_backward, _backward_act_backward, _jvp_act_backward)[1],
    batched=_torch_vmap.act_backward,
)


# relu with a mask of one bit an element, which is all that its backward needs.


def compute_relu_mask(x):
    return run(ACT_FORWARD, x, None, None, None, True, "relu", -1)


def relu_mask_backward(grad_o, mask):
    return run(ACT_BACKWARD, None, grad_o, None, None, mask, None, None, "relu", -1)


def _setup_relu_mask(ctx, inputs, output):
    _, mask = output
    ctx.mark_non_differentiable(mask)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(mask)


def _backward_relu_mask(ctx, grad_o, _):
    (mask,) = ctx.saved_tensors
    if grad_o is None:
        return (None,)
    straight = not torch.is_grad_enabled() and is_plain(grad_o, mask)
    backward = relu_mask_backward if straight else OPERATORS.relu_mask_backward.default
    return (backward(grad_o, mask),)


def _jvp_relu_mask(ctx, kept, tangent):
    return OPERATORS.relu_mask_backward.default(tangent, kept[-1]), None


def _setup_relu_mask_backward(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])


def _backward_relu_mask_backward(ctx, grad):
    (mask,) = ctx.saved_tensors
    return OPERATORS.relu_mask_backward.default(grad, mask), None


def _jvp_relu_mask_backward(ctx, kept, tangent, _):
    return OPERATORS.relu_mask_backward.default(tangent, kept[1])


def _fake_relu_mask(x):
    return torch.empty_like(x), x.new_empty((*x.shape[:-1], (x.shape[-1] + 7) // 8), dtype=torch.uint8)


relu_with_grad, _autograd_relu = function(_setup_relu_mask, _backward_relu_mask, _jvp_relu_mask)

define(
    "relu_mask",
    "Tensor x",
    "(Tensor, Tensor)",
    compute_relu_mask,
    _fake_relu_mask,
    autograd=_autograd_relu,
    batched=_torch_vmap.relu_mask,
)
define(
    "relu_mask_backward",
    "Tensor grad_o, Tensor mask",
    "Tensor",
    relu_mask_backward,
    lambda grad_o, mask: torch.empty_like(grad_o),
    autograd=function(_setup_relu_mask_backward, _backward_relu_mask_backward, _jvp_relu_mask_backward)[1],
    batched=_torch_vmap.relu_mask_backward,
)


# ---- lrpe ------------------------------------------------------------------------------------------------------------


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


def refuse_constants(operator: str, names, needed) -> None:
    for name, is_needed in zip(names, needed):
        if is_needed:
            raise RuntimeError(f"{operator}: {name} requires grad, but has no gradient; pass {name}.detach()")


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
        tangent = _act_tangent(x, o, tangent, act, dim)
    return OPERATORS.lrpe.default(tangent, *angles, *explicit(variant, pairing, "none", None, *others))


lrpe_with_grad, _autograd_lrpe = function(_setup_lrpe, _backward_lrpe, _jvp_lrpe, refuse_positions)
lrpe_lse_with_grad, _autograd_lrpe_lse = function(_setup_lrpe, _backward_lrpe, _jvp_lrpe_lse, refuse_positions)


# The derivatives of lrpe_backward, which is linear in grad_o. With a gradient of theta it has none.


def _setup_lrpe_backward(ctx, inputs, output):
    ctx.attributes = inputs[6:]
    ctx.save_for_backward(*inputs[:4])


def _backward_lrpe_backward(ctx, grad):
    _, needs_x, _, _, _, _, needs_lse, *_ = ctx.needs_input_grad
    _refuse_second_derivative(ctx.attributes[2], needs_x, needs_lse)
    tangent = _lrpe_tangent(ctx.saved_tensors, grad, ctx.attributes)
    return *(None,) * 4, tangent, *(None,) * (1 + len(ctx.attributes))


def _jvp_lrpe_backward(ctx, kept, x_tangent, _theta, _positions, _offsets, tangent, lse_tangent, *_):
    _refuse_second_derivative(ctx.attributes[2], x_tangent is not None, lse_tangent is not None)
    lse, grad_x = kept[5], kept[-1]
    if tangent is None:
        return torch.zeros_like(grad_x)
    return OPERATORS.lrpe_backward.default(*kept[:4], tangent, lse, *ctx.attributes)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_devices(names, tensors) -> None:
    """All must be where the first is."""
    for name, other in zip(names[1:], tensors[1:]):
        if other is not None and other.device != tensors[0].device:
            raise ValueError(f"{name} is on {other.device}; it must be where {names[0]} is, on {tensors[0].device}")


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


# ---- tpa_decode ------------------------------------------------------------------------------------------------------


def refuse_factors(needed) -> None:
    for name, is_needed in zip(TPA_NAMES, needed):
        if is_needed:
            raise NotImplementedError(
                f"tpa_decode: {name} requires grad, but it is for decoding and has no gradient; use torch.no_grad()"
            )


def _tpa(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, None, *arguments[7:])


def _tpa_lse(*arguments):
    return run(TPA_DECODE, *arguments[:7], None, True, *arguments[7:])


def _tpa_out(*arguments, out):
    run(TPA_DECODE, *arguments[:7], out, None, *arguments[7:])


def _tpa_lse_out(*arguments, out):
    return run(TPA_DECODE, *arguments[:7], out, True, *arguments[7:])[1]


def _fake_tpa(aq, bq, ak, bk, av, bv, *others):
    return aq.new_empty((*aq.shape[:3], bv.shape[-1]))


def _fake_tpa_lse(aq, *others):
    return _fake_tpa(aq, *others), aq.new_empty(aq.shape[:3], dtype=wide(aq.dtype))


define(
    "tpa_decode",
    f"{_TPA_INPUTS}, {_TPA}",
    "Tensor",
    _tpa,
    _fake_tpa,
    autograd=without_derivatives(refuse_factors),
    batched=_torch_vmap.tpa_decode,
)
define(
    "tpa_decode_lse",
    f"{_TPA_INPUTS}, {_TPA}",
    "(Tensor, Tensor)",
    _tpa_lse,
    _fake_tpa_lse,
    autograd=without_derivatives(refuse_factors),
    batched=_torch_vmap.tpa_decode_lse,
)
define("tpa_decode.out", f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out", "()", _tpa_out, _fake_tpa)
define(
    "tpa_decode_lse.out",
    f"{_TPA_INPUTS}, {_TPA}, *, Tensor(a!) out",
    "Tensor",
    _tpa_lse_out,
    _fake_tpa_lse,
)
