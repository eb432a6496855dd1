"""The operators in programs of JAX, with the derivatives that they have, in reverse mode."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from ._jax_call import call
from ._operators import (
    ACT_BACKWARD,
    ACT_FORWARD,
    LRPE_BACKWARD,
    LRPE_FORWARD,
    MERGE_BACKWARD,
    MERGE_FORWARD,
    QK_BACKWARD,
    QK_FORWARD,
)

_SEQUENCE = -3


def _differentiable(name, compute, backward, constants=None):
    """The operator as apply(attributes, *inputs), of arrays or None.

    compute(attributes, inputs, needed) returns the results and what backward is to have; needed says of each input whether its
    gradient may be asked for. backward(attributes, needed, kept, *gradients) returns the inputs' gradients, None for
    zero; gradients are those of the results, not all of them zero. `constants` names the inputs that have no gradient, by place."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def apply(attributes, *inputs):
        return compute(attributes, inputs, (False,) * len(inputs))[0]

    def forward(attributes, *inputs):
        needed = [x is not None and x.perturbed for x in inputs]
        for place, constant in (constants or {}).items():
            if needed[place]:
                raise NotImplementedError(f"{name}: {constant} has no gradient; pass jax.lax.stop_gradient({constant})")
        results, kept = compute(attributes, [None if x is None else x.value for x in inputs], needed)
        return results, (kept, [() if each else None for each in needed])  # flags as structure, which is static

    def back(attributes, residuals, gradients):
        kept, needed = residuals
        gradients = gradients if isinstance(gradients, (list, tuple)) else (gradients,)
        if all(map(_is_zero, gradients)):
            return (None,) * len(needed)
        return backward(attributes, [each is not None for each in needed], kept, *gradients)

    apply.defvjp(forward, back, symbolic_zeros=True)
    return jax.jit(apply, static_argnums=0, inline=True)  # shard_map outside jit knows no symbolic zeros


def _is_zero(gradient):
    return isinstance(gradient, jax.custom_derivatives.SymbolicZero)


def _dense(gradient):
    return jnp.zeros(gradient.shape, gradient.dtype) if _is_zero(gradient) else gradient


# ---- act -------------------------------------------------------------------------------------------------------------


def _act(attributes, inputs, needed):
    x, lse = inputs
    act = attributes[0]
    o, *mask = call(ACT_FORWARD, (x, lse), (True, False, act == "relu" and needed[0]), attributes)
    kept_x, kept_o = x if act == "silu" else None, o if act in ("sigmoid", "softmax") else None
    return o, (kept_x, kept_o, mask[0] if mask else None, None if lse is None else ())


def _act_backward(attributes, needed, kept, grad):
    x, o, mask, of_share = kept
    if of_share is None:
        return call(ACT_BACKWARD, (x, grad, o, None, mask), (True, False), attributes)[0], None
    grad_lse = -call(ACT_BACKWARD, (None, grad, o, None, None), (False, True), attributes)[0] if needed[1] else None
    return (o * grad).astype(o.dtype), grad_lse


def _softmax_lse(attributes, inputs, needed):
    (x,) = inputs
    (lse,) = call(ACT_FORWARD, (x, None), (False, True, False), attributes)
    return lse, (x, lse)


def _softmax_lse_backward(attributes, needed, kept, grad):
    x, lse = kept
    (o,) = call(ACT_FORWARD, (x, lse), (True, False, False), attributes)
    return ((o * grad).astype(x.dtype),)


act = _differentiable("act", _act, _act_backward)
softmax_lse = _differentiable("softmax_lse", _softmax_lse, _softmax_lse_backward)


# ---- lrpe ------------------------------------------------------------------------------------------------------------


def _lrpe(attributes, inputs, needed):
    x, *angles, lse = inputs
    _, _, act, dim, *_ = attributes
    keeps_lse = any(needed) and lse is None and act == "softmax" and dim == _SEQUENCE
    o, *made = call(LRPE_FORWARD, inputs, (True, keeps_lse), attributes)
    kept_x = x if needed[1] or act != "none" else None
    return o, (kept_x, *angles, made[0] if keeps_lse else lse, None if lse is None else ())


def _lrpe_backward(attributes, needed, kept, grad):
    *inputs, lse, of_share = kept
    arguments = (*inputs, grad, lse)
    delta_all = None if of_share is None else jnp.zeros_like(lse)
    grad_x, *learned = call(LRPE_BACKWARD, (*arguments, delta_all), (True, needed[1], False), attributes)
    grad_theta = learned[0].astype(inputs[1].dtype) if needed[1] else None
    grad_lse = None
    if needed[4]:
        grad_lse = -call(LRPE_BACKWARD, (*arguments, None), (False, False, True), attributes)[0]
    return grad_x, grad_theta, None, None, grad_lse


lrpe = _differentiable("lrpe", _lrpe, _lrpe_backward, {2: "positions", 3: "offsets"})


# ---- qk_norm_rope ----------------------------------------------------------------------------------------------------

_QK_INPUTS = 11  # the caches follow


def _qk(static, inputs, needed):
    attributes, return_k = static
    made = call(QK_FORWARD, inputs[:_QK_INPUTS], (True, return_k, *inputs[_QK_INPUTS:]), attributes)
    q, k, theta, positions, offsets, wq, wk, *_ = inputs
    kept = (q if wq is not None else None, k if wk is not None else None, theta, positions, offsets, wq, wk)
    return made, kept


def _qk_backward(static, needed, kept, grad_q_out, *others):
    attributes, return_k = static
    q, k, *angles, wq, wk = kept
    grad_k_out = others[0] if return_k and not _is_zero(others[0]) else None
    if grad_k_out is None:
        k = wk = None
    wants = (True, grad_k_out is not None, needed[5], needed[6] and wk is not None)
    made = iter(call(QK_BACKWARD, (q, k, *angles, wq, wk, _dense(grad_q_out), grad_k_out), wants, attributes))
    grad_q, grad_k, grad_wq, grad_wk = (next(made) if wanted else None for wanted in wants)
    weights = (None if grad is None else grad.astype(w.dtype) for grad, w in ((grad_wq, wq), (grad_wk, wk)))
    return grad_q, grad_k, None, None, None, *weights, *(None,) * (len(needed) - 7)


qk_norm_rope = _differentiable(
    "qk_norm_rope",
    _qk,
    _qk_backward,
    {2: "theta", 3: "positions", 4: "offsets", 9: "k_scale", 10: "v_scale"},
)


# ---- attention_merge -------------------------------------------------------------------------------------------------


def _merge(static, inputs, needed):
    attributes, return_lse = static
    o_shares, lse_shares = inputs
    made = call(MERGE_FORWARD, inputs, (True, return_lse), attributes)
    return made, (o_shares if needed[1] else None, lse_shares)


def _merge_backward(static, needed, kept, grad_o, grad_lse=None):
    attributes, _ = static
    of_lse = needed[1]
    grad_lse = None if grad_lse is None or _is_zero(grad_lse) or not of_lse else grad_lse
    inputs = (*kept, _dense(grad_o), grad_lse)
    made = call(MERGE_BACKWARD, inputs, (True, of_lse), attributes)
    return made[0], made[1] if of_lse else None


attention_merge = _differentiable("attention_merge", _merge, _merge_backward)
