"""The operators torch.ops.copes.qk_norm_rope, which writes no cache, qk_norm_rope_cache, and qk_norm_rope_backward.

Their results are always as many: one that there is not, such as the keys of a call without, is an empty tensor."""

from __future__ import annotations

import torch

from . import _torch_library, _torch_vmap
from ._copes import run
from ._operators import QK_BACKWARD, QK_FORWARD
from ._torch_library import OPERATORS, check_devices, define, function, given, is_plain, wide
from ._torch_lrpe import ANGLES, ROTATION, explicit_rotation

NAMES = ("q", "k", "theta", "positions", "offsets", "wq", "wk", "v", "slots", "k_scale", "v_scale")
PURE = 7  # of them go to q_out and k_out
CACHES = ("k_cache", "v_cache")
WRITTEN = ("k_out", *CACHES)
OPTIONAL = (*(name for name in NAMES if name not in ("q", "theta")), *WRITTEN)
_CONSTANT = ("theta", "positions", "offsets", "k_scale", "v_scale")

_ATTRIBUTES = f"str pairing, {ROTATION}, float? eps, float weight_offset, str norm_over, bool round_between"
_COUNT = _ATTRIBUTES.count(",") + 1
_INPUTS = f"Tensor q, Tensor? k, {ANGLES}, Tensor? wq, Tensor? wk"
_CACHE_INPUTS = "Tensor? v, Tensor? slots, Tensor? k_scale, Tensor? v_scale"
_CACHES = "Tensor(c!)? k_cache, Tensor(d!)? v_cache"


def explicit(pairing, *others):
    """The attributes as the schema has them."""
    return pairing, *explicit_rotation(*others[:-4]), *others[-4:]


def _filled(results, wanted, like):
    """The results in their places; where none was wanted is an empty tensor."""
    results = iter(results if isinstance(results, tuple) else (results,))
    return tuple(like.new_empty(0) if each is False else next(results) for each in wanted)


# ---- forward ---------------------------------------------------------------------------------------------------------


def compute(outs, *arguments):
    """Of all inputs and attributes; outs are those of run()."""
    inputs, attributes = arguments[: len(NAMES)], arguments[-_COUNT:]
    return run(QK_FORWARD, *inputs, *outs, *attributes)


def _qk(*arguments):
    inputs, attributes = arguments[:PURE], arguments[PURE:]
    outs = (None, inputs[1] is not None)
    made = compute((*outs, None, None), *inputs, *(None,) * (len(NAMES) - PURE), *attributes)
    return _filled(made, outs, inputs[0])


def _qk_cache(*arguments, k_cache, v_cache):
    inputs, return_k, attributes = arguments[: len(NAMES)], arguments[len(NAMES)], arguments[-_COUNT:]
    outs = (None, return_k)
    return _filled(compute((*outs, k_cache, v_cache), *inputs, *attributes), outs, inputs[0])


def _qk_out(*arguments, out, k_out, k_cache, v_cache):
    compute((out, False if k_out is None else k_out, k_cache, v_cache), *arguments)


def refuse_constants(needed) -> None:
    constants = [(name, is_needed) for name, is_needed in zip(NAMES, needed) if name in _CONSTANT]
    _torch_library.refuse_constants("qk_norm_rope", *zip(*constants))


def _refuse_norm(wq, wk, what: str) -> None:
    if wq is not None or wk is not None:
        raise NotImplementedError(f"qk_norm_rope: its norm has no {what}; use PyTorch's rms_norm and copes.lrpe_rotate")


def _setup_qk(ctx, inputs, output):
    q, k, *angles, wq, wk = inputs[:PURE]
    ctx.attributes, ctx.shape = inputs[-_COUNT:], q.shape
    if isinstance(output, tuple) and output[1].dim() == 1:
        ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q if wq is not None else None, k if wk is not None else None, *angles, wq, wk)


def _backward_qk(ctx, grad_q_out, grad_k_out=None):
    q, k, *angles, wq, wk = ctx.saved_tensors
    _, _, _, _, _, _, needs_wq, needs_wk, *others = ctx.needs_input_grad
    if grad_q_out is None:
        grad_q_out = grad_k_out.new_zeros(ctx.shape)
    if grad_k_out is None:
        k = wk = None
    inputs = (q, k, *angles, wq, wk, grad_q_out, grad_k_out)
    straight = not torch.is_grad_enabled() and is_plain(grad_q_out, *given(*inputs))
    backward = _qk_backward if straight else OPERATORS.qk_norm_rope_backward.default
    attributes = ctx.attributes if straight else explicit(*ctx.attributes)
    grads = backward(*inputs, needs_wq or needs_wk, *attributes)
    grad_q, grad_k, grad_wq, grad_wk = (
        grad if there else None
        for grad, there in zip(grads, (True, grad_k_out is not None, needs_wq, needs_wk and wk is not None))
    )
    return grad_q, grad_k, None, None, None, grad_wq, grad_wk, *(None,) * len(others)


def _turned(q, k, shape, angles, attributes):
    """Without a norm it is linear: its own tangent, and the derivative of its backward. None is zero; `shape` is q's."""
    q = k.new_zeros(shape) if q is None else q
    q_out, k_out = OPERATORS.qk_norm_rope.default(q, k, *angles, None, None, *explicit(*attributes))
    return q_out, None if k is None else k_out


def _jvp_qk(ctx, kept, q_tangent, k_tangent, *_):
    *angles, wq, wk = kept[2:PURE]
    _refuse_norm(wq, wk, "derivative in forward mode")
    return _turned(q_tangent, k_tangent, ctx.shape, angles, ctx.attributes)


with_grad, _autograd_qk = function(_setup_qk, _backward_qk, _jvp_qk, refuse_constants)


def _fake_qk(q, k, *others):
    check_devices(NAMES[:PURE], (q, k, *others[: PURE - 2]))
    return torch.empty_like(q), q.new_empty(0) if k is None else torch.empty_like(k)


def _fake_qk_cache(*arguments, k_cache, v_cache):
    inputs, return_k = arguments[: len(NAMES)], arguments[len(NAMES)]
    check_devices((*NAMES, *CACHES), (*inputs, k_cache, v_cache))
    return _fake_qk(inputs[0], inputs[1] if return_k else None)


# ---- backward --------------------------------------------------------------------------------------------------------

_GRADIENTS = PURE + 2  # inputs of the backward


def _qk_backward(*arguments):
    inputs, weights, attributes = arguments[:_GRADIENTS], arguments[_GRADIENTS], arguments[_GRADIENTS + 1 :]
    *_, wq, wk, grad_q_out, grad_k_out = inputs
    outs = (None, grad_k_out is not None, weights and wq is not None, weights and wk is not None)
    return _filled(run(QK_BACKWARD, *inputs, *outs, *attributes), outs, grad_q_out)


def _setup_qk_backward(ctx, inputs, output):
    *angles, wq, wk, grad_q_out, grad_k_out = inputs[2:_GRADIENTS]
    ctx.attributes, ctx.shape = inputs[_GRADIENTS + 1 :], grad_q_out.shape
    if wq is None and wk is None:
        ctx.mark_non_differentiable(*output[1 if grad_k_out is None else 2 :])
    ctx.save_for_backward(*angles, wq, wk)


def _backward_qk_backward(ctx, grad_q, grad_k, *_):
    *angles, wq, wk = ctx.saved_tensors
    _refuse_norm(wq, wk, "second derivative")
    tangents = _turned(grad_q, grad_k, ctx.shape, angles, ctx.attributes)
    return *(None,) * PURE, *tangents, *(None,) * (1 + len(ctx.attributes))


def _jvp_qk_backward(ctx, kept, *tangents):
    *angles, wq, wk, grad_q_out = kept[2 : PURE + 1]
    _refuse_norm(wq, wk, "second derivative")
    q_tangent, k_tangent = tangents[PURE:_GRADIENTS]
    q_tangent = torch.zeros_like(grad_q_out) if q_tangent is None else q_tangent
    inputs = (None, None, *angles, None, None, q_tangent, k_tangent)
    made = OPERATORS.qk_norm_rope_backward.default(*inputs, False, *explicit(*ctx.attributes))
    return made[0], None if k_tangent is None else made[1], None, None


def _fake_qk_backward(*arguments):
    *_, wq, wk, grad_q_out, grad_k_out, weights = arguments[: _GRADIENTS + 1]
    grad_q, grad_k = _fake_qk(grad_q_out, grad_k_out)
    gradients = (
        w.new_empty(w.shape, dtype=wide(grad_q.dtype)) if weights and w is not None else grad_q.new_empty(0)
        for w in (wq, wk)
    )
    return grad_q, grad_k, *gradients


# ---- registration ----------------------------------------------------------------------------------------------------

define(
    "qk_norm_rope",
    f"{_INPUTS}, {_ATTRIBUTES}",
    "(Tensor, Tensor)",
    _qk,
    _fake_qk,
    autograd=_autograd_qk,
    batched=_torch_vmap.qk_norm_rope,
)
define(
    "qk_norm_rope.out",
    f"{_INPUTS}, {_CACHE_INPUTS}, {_ATTRIBUTES}, *, Tensor(a!) out, Tensor(b!)? k_out, {_CACHES}",
    "()",
    _qk_out,
    _fake_qk,
)
define(
    "qk_norm_rope_cache",
    f"{_INPUTS}, {_CACHE_INPUTS}, bool return_k, {_ATTRIBUTES}, *, {_CACHES}",
    "(Tensor, Tensor)",
    _qk_cache,
    _fake_qk_cache,
    autograd=_autograd_qk,
)
define(
    "qk_norm_rope_backward",
    f"Tensor? q, Tensor? k, {ANGLES}, Tensor? wq, Tensor? wk, Tensor grad_q_out, Tensor? grad_k_out, bool weights, "
    f"{_ATTRIBUTES}",
    "(Tensor, Tensor, Tensor, Tensor)",
    _qk_backward,
    _fake_qk_backward,
    autograd=function(_setup_qk_backward, _backward_qk_backward, _jvp_qk_backward, refuse_constants)[1],
    batched=_torch_vmap.qk_norm_rope_backward,
)
