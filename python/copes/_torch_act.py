"""The operators torch.ops.copes.act and relu_mask, and their backward: what computes them, their derivatives in both modes,
and their fake implementations. Backward too goes around the dispatcher where nothing intercepts it (see _torch.py)."""

from __future__ import annotations

import torch

from . import _torch_vmap
from ._copes import run
from ._operators import ACT_BACKWARD, ACT_FORWARD
from ._torch_library import OPERATORS, define, function, given, is_plain

_LINEAR = ("none", "relu")  # what has a second derivative: none

_ACT = "str act, int dim"


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
    return act_tangent(x, o, tangent, ctx.act, ctx.dim)


def act_tangent(x, o, tangent, act, dim):
    """The Jacobian of o = act(x) by the tangent. It is symmetric, for softmax too."""
    x, o = _kept(act, x, o)
    return OPERATORS.act_backward.default(x, tangent, o, act, dim)


act_with_grad, _autograd_act = function(_setup_act, _backward_act, _jvp_act)


# The derivatives of act_backward, which is linear in grad_o.


def refuse_second_derivative(act, *others) -> None:
    """Of `act`, where one of the others (gradients or tangents of what it depends on) is wanted."""
    if act not in _LINEAR and any(others):
        raise NotImplementedError(f"act: {act} has no second derivative; its first is not differentiable")


def _setup_act_backward(ctx, inputs, output):
    x, _, o, ctx.act, ctx.dim = inputs
    ctx.save_for_backward(x, o)


def _backward_act_backward(ctx, grad):
    _, needs_x, _, needs_o, *_ = ctx.needs_input_grad
    refuse_second_derivative(ctx.act, needs_x, needs_o)
    x, o = ctx.saved_tensors
    return None, OPERATORS.act_backward.default(x, grad, o, ctx.act, ctx.dim), None, None, None


def _jvp_act_backward(ctx, kept, x_tangent, tangent, o_tangent, *_):
    refuse_second_derivative(ctx.act, x_tangent is not None, o_tangent is not None)
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
