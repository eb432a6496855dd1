"""The operators torch.ops.copes.* of a softmax whose axis lies in shares, each of one pass: softmax_lse and softmax_of_lse,
softmax_delta and softmax_of_delta alone, lrpe_of_lse, lrpe_delta and lrpe_of_delta before an encoding over the sequence.

A log sum exp that is given is an input like others: the derivative by it is minus delta, so that chains of these operators
have the derivatives of the whole."""

from __future__ import annotations

import torch

from . import _torch_vmap
from ._copes import run
from ._operators import ACT_BACKWARD, ACT_FORWARD, LRPE_BACKWARD, LRPE_FORWARD
from ._torch_library import OPERATORS, check_devices, define, function, wide, without_derivatives
from ._torch_lrpe import ANGLES, LRPE, LRPE_NAMES, explicit, refuse_positions

_SOFTMAX = "softmax"


def _refuse_twice(_):
    raise NotImplementedError("softmax in shares: it has no second derivative; its first is not differentiable")


# ---- softmax alone ---------------------------------------------------------------------------------------------------


def compute_lse(x, dim):
    return run(ACT_FORWARD, x, None, False, True, None, _SOFTMAX, dim)


def compute_of_lse(x, lse, dim):
    return run(ACT_FORWARD, x, lse, None, None, None, _SOFTMAX, dim)


def _of_lse_out(x, lse, dim, *, out):
    run(ACT_FORWARD, x, lse, out, None, None, _SOFTMAX, dim)


def delta(o, grad_o, dim):
    return run(ACT_BACKWARD, None, grad_o, o, None, None, False, True, _SOFTMAX, dim)


def of_delta(o, grad_o, delta, dim):
    return run(ACT_BACKWARD, None, grad_o, o, delta, None, None, None, _SOFTMAX, dim)


def _setup_lse(ctx, inputs, lse):
    x, ctx.dim = inputs
    ctx.save_for_backward(x, lse)


def _backward_lse(ctx, grad):
    x, lse = ctx.saved_tensors
    return (OPERATORS.softmax_of_lse.default(x, lse, ctx.dim) * grad).to(x.dtype), None


def _jvp_lse(ctx, kept, tangent, _):
    x, _, lse = kept
    return (OPERATORS.softmax_of_lse.default(x, lse, ctx.dim) * tangent).sum(ctx.dim, keepdim=True, dtype=lse.dtype)


def _setup_of_lse(ctx, inputs, o):
    _, _, ctx.dim = inputs
    ctx.save_for_backward(o)


def _backward_of_lse(ctx, grad):
    (o,) = ctx.saved_tensors
    return o * grad, -OPERATORS.softmax_delta.default(o, grad, ctx.dim), None


def _jvp_of_lse(ctx, kept, x_tangent, lse_tangent, _):
    o = kept[-1]
    tangent = o * x_tangent if x_tangent is not None else torch.zeros_like(o)
    return tangent if lse_tangent is None else (tangent - o * lse_tangent).to(o.dtype)


def _fake_lse(x, dim):
    shape = list(x.shape)
    shape[dim] = 1
    return x.new_empty(shape, dtype=wide(x.dtype))


lse_with_grad, _autograd_lse = function(_setup_lse, _backward_lse, _jvp_lse)
of_lse_with_grad, _autograd_of_lse = function(_setup_of_lse, _backward_of_lse, _jvp_of_lse)


def _define(name, arguments, results, compute, fake, autograd, count):
    define(name, arguments, results, compute, fake, autograd=autograd, batched=_torch_vmap.for_each(name, count))


_FINAL = without_derivatives(_refuse_twice)
_define("softmax_lse", "Tensor x, int dim", "Tensor", compute_lse, _fake_lse, _autograd_lse, 1)
_define(
    "softmax_of_lse",
    "Tensor x, Tensor lse, int dim",
    "Tensor",
    compute_of_lse,
    lambda x, lse, dim: torch.empty_like(x),
    _autograd_of_lse,
    2,
)
define(
    "softmax_of_lse.out",
    "Tensor x, Tensor lse, int dim, *, Tensor(a!) out",
    "()",
    _of_lse_out,
    lambda x, lse, dim: torch.empty_like(x),
)
_define(
    "softmax_delta",
    "Tensor o, Tensor grad_o, int dim",
    "Tensor",
    delta,
    lambda o, grad_o, dim: _fake_lse(o, dim),
    _FINAL,
    2,
)
_define(
    "softmax_of_delta",
    "Tensor o, Tensor grad_o, Tensor delta, int dim",
    "Tensor",
    of_delta,
    lambda o, grad_o, delta, dim: torch.empty_like(grad_o),
    _FINAL,
    3,
)


# ---- before an encoding ----------------------------------------------------------------------------------------------

# x, theta, positions and offsets; then lse, or grad_o, lse and delta; then the attributes.


def compute_lrpe_of_lse(*arguments):
    return run(LRPE_FORWARD, *arguments[:5], None, None, *arguments[5:])


def _lrpe_of_lse_out(*arguments, out):
    run(LRPE_FORWARD, *arguments[:5], out, None, *arguments[5:])


def lrpe_delta(*arguments):
    return run(LRPE_BACKWARD, *arguments[:6], None, False, False, True, *arguments[6:])


def lrpe_of_delta(*arguments):
    return run(LRPE_BACKWARD, *arguments[:7], None, None, None, *arguments[7:])


def lrpe_of_delta_theta(*arguments):
    return run(LRPE_BACKWARD, *arguments[:7], None, True, None, *arguments[7:])


def _setup_lrpe(ctx, inputs, output):
    ctx.attributes = inputs[5:]
    ctx.save_for_backward(*inputs[:5])


def _backward_lrpe(ctx, grad_o):
    *inputs, lse = ctx.saved_tensors
    attributes = explicit(*ctx.attributes)
    _, _, needs_theta, *_ = ctx.needs_input_grad
    zero = torch.zeros_like(lse)
    apply = OPERATORS.lrpe_of_delta_theta if needs_theta else OPERATORS.lrpe_of_delta
    made = apply.default(*inputs, grad_o, lse, zero, *attributes)
    grads = made if needs_theta else (made, None)
    grad_lse = -OPERATORS.lrpe_delta.default(*inputs, grad_o, lse, *attributes)
    return *grads, None, None, grad_lse, *(None,) * len(ctx.attributes)


def _jvp_lrpe(ctx, kept, x_tangent, theta_tangent, _positions, _offsets, lse_tangent, *_):
    if theta_tangent is not None:
        raise NotImplementedError("lrpe: theta has no derivative in forward mode; pass theta.detach()")
    x, *angles, lse = kept[:5]
    lse_tangent = None if lse_tangent is None else lse_of_act(lse_tangent, x.dim())
    y = OPERATORS.softmax_of_lse.default(x, lse_of_act(lse, x.dim()), 1)
    tangent = torch.zeros_like(y) if x_tangent is None else y * x_tangent
    tangent = tangent if lse_tangent is None else (tangent - y * lse_tangent).to(y.dtype)
    variant, pairing, _, _, *others = ctx.attributes
    return OPERATORS.lrpe.default(tangent, *angles, *explicit(variant, pairing, "none", None, *others))


def lse_of_act(lse, rank):
    """lrpe's (B, H, D), or lse and delta of x (B, N, D) as they are, as softmax alone over the sequence has them."""
    return lse[:, None] if rank == 4 else lse


def _fake_lrpe_of_lse(x, theta, positions, offsets, lse, variant, *attributes):
    check_devices((*LRPE_NAMES, "lse"), (x, theta, positions, offsets, lse))
    return torch.empty_like(x) if variant == "rotate" else x.new_empty((*x.shape[:-1], 2 * x.shape[-1]))


def _fake_theta(x, theta, *others):
    return torch.empty_like(x), theta.new_empty(theta.shape, dtype=wide(x.dtype))


lrpe_with_grad, _autograd_lrpe = function(_setup_lrpe, _backward_lrpe, _jvp_lrpe, refuse_positions)
_GRADIENT = f"Tensor x, {ANGLES}, Tensor grad_o, Tensor lse"
_define("lrpe_of_lse", f"Tensor x, {ANGLES}, Tensor lse, {LRPE}", "Tensor", compute_lrpe_of_lse, _fake_lrpe_of_lse,
        _autograd_lrpe, 5)  # fmt: skip
define(
    "lrpe_of_lse.out",
    f"Tensor x, {ANGLES}, Tensor lse, {LRPE}, *, Tensor(a!) out",
    "()",
    _lrpe_of_lse_out,
    _fake_lrpe_of_lse,
)
_define(
    "lrpe_delta",
    f"{_GRADIENT}, {LRPE}",
    "Tensor",
    lrpe_delta,
    lambda x, theta, positions, offsets, grad_o, lse, *_: torch.empty_like(lse),
    _FINAL,
    6,
)
_define(
    "lrpe_of_delta",
    f"{_GRADIENT}, Tensor delta, {LRPE}",
    "Tensor",
    lrpe_of_delta,
    lambda x, *_: torch.empty_like(x),
    _FINAL,
    7,
)
_define(
    "lrpe_of_delta_theta",
    f"{_GRADIENT}, Tensor delta, {LRPE}",
    "(Tensor, Tensor)",
    lrpe_of_delta_theta,
    _fake_theta,
    _FINAL,
    7,
)
