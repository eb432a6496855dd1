"""The operators for programs of JAX: under jit, grad, vmap and shard_map, on the CPU and on GPUs.

    act, softmax_lse, lrpe_rotate, lrpe_cosine, md_lrpe_cosine, qk_norm_rope, tpa_decode, attention_merge

They are those of copes, with the same arguments but for `out`: JAX's arrays are not written to, and so qk_norm_rope returns
the caches that it is given, with what it has written. A call is one foreign call of XLA, on its stream and in its memory.

Arrays are JAX's or NumPy's. Attributes, such as offset and grid, are part of the program: what changes from call to call
goes in offsets or positions. Gradients, in reverse mode and of first order: of x and theta, of q, k, wq and wk, of o_shares
and lse_shares, and of lse.

What the library refuses raises its ValueError or TypeError while the program is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
from jax.typing import ArrayLike

from . import _jax_operators as operators
from ._functions import Act, Pairing
from ._jax_call import as_array, call, check, register
from ._merge import LogBase
from ._operators import ACT_FORWARD, LRPE_FORWARD, MERGE_FORWARD, QK_FORWARD, TPA_DECODE
from ._qk import NormOver

__all__ = [
    "act",
    "attention_merge",
    "lrpe_cosine",
    "lrpe_rotate",
    "md_lrpe_cosine",
    "qk_norm_rope",
    "softmax_lse",
    "tpa_decode",
]

register()


def act(x: ArrayLike, act: Act, dim: int | None = None, *, lse: ArrayLike | None = None) -> Array:
    """copes.act."""
    inputs, attributes = check(ACT_FORWARD, (x, lse), (True, False, False), (act, dim))
    return operators.act(attributes, *inputs)


def softmax_lse(x: ArrayLike, dim: int | None = None) -> Array:
    """copes.softmax_lse."""
    (x, _), attributes = check(ACT_FORWARD, (x, None), (False, True, False), ("softmax", dim))
    return operators.softmax_lse(attributes, x)


def lrpe_rotate(
    x: ArrayLike,
    theta: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    offset: int | Sequence[int] = 0,
    act: Act = "none",
    dim: int | None = None,
    lse: ArrayLike | None = None,
    grid: Sequence[int] | None = None,
    prefix: int = 0,
    suffix: int = 0,
    sections: Sequence[int] | None = None,
    rotary_dim: int | None = None,
    rotary_begin: int = 0,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    pairing: Pairing = "half",
) -> Array:
    """copes.lrpe_rotate."""
    _refuse_no_rotary_dim(rotary_dim)
    turns = (rotary_dim, rotary_begin, amplitude, inverse, pad_theta)
    attributes = ("rotate", pairing, act, dim, grid, offset, prefix, suffix, sections, *turns)
    return _lrpe((x, theta, positions, offsets, lse), attributes)


def lrpe_cosine(
    x: ArrayLike,
    theta: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    offset: int | Sequence[int] = 0,
    act: Act = "none",
    dim: int | None = None,
    lse: ArrayLike | None = None,
    grid: Sequence[int] | None = None,
    prefix: int = 0,
    suffix: int = 0,
    sections: Sequence[int] | None = None,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
) -> Array:
    """copes.lrpe_cosine."""
    turns = (None, 0, amplitude, inverse, pad_theta)
    attributes = ("cosine", "half", act, dim, grid, offset, prefix, suffix, sections, *turns)
    return _lrpe((x, theta, positions, offsets, lse), attributes)


def md_lrpe_cosine(x: ArrayLike, theta: ArrayLike, shape: Sequence[int], l: int = 0, **options: Any) -> Array:
    """copes.md_lrpe_cosine."""
    if len(shape) == 0:  # to the library, no grid is one of all tokens
        raise ValueError("shape is (); it must have 1 to 4 lengths")
    return lrpe_cosine(x, theta, grid=shape, prefix=l, **options)


def _lrpe(inputs, attributes):
    inputs, attributes = check(LRPE_FORWARD, inputs, (True, False), attributes)
    return operators.lrpe(attributes, *inputs)


def _refuse_no_rotary_dim(rotary_dim):
    if rotary_dim is not None and rotary_dim == 0:  # to the library, 0 is the default
        raise ValueError("rotary_dim is 0; it must be 2 or more, or None for all features")


def qk_norm_rope(
    q: ArrayLike,
    k: ArrayLike | None,
    theta: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    offsets: ArrayLike | None = None,
    wq: ArrayLike | None = None,
    wk: ArrayLike | None = None,
    v: ArrayLike | None = None,
    slots: ArrayLike | None = None,
    k_cache: ArrayLike | None = None,
    v_cache: ArrayLike | None = None,
    k_scale: ArrayLike | None = None,
    v_scale: ArrayLike | None = None,
    eps: float | None = None,
    weight_offset: float = 0.0,
    norm_over: NormOver = "head",
    round_between: bool = False,
    offset: int | Sequence[int] = 0,
    grid: Sequence[int] | None = None,
    prefix: int = 0,
    suffix: int = 0,
    sections: Sequence[int] | None = None,
    rotary_dim: int | None = None,
    rotary_begin: int = 0,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    pairing: Pairing = "half",
    return_k: bool = True,
) -> Any:
    """copes.qk_norm_rope; but the caches, where they are given, are returned after q_out and k_out, as the new ones. They take
    no memory of their own where the program does not use the old ones again and, if they are its arguments, they are
    donated. slots may be int32."""
    _refuse_no_rotary_dim(rotary_dim)
    inputs = (q, k, theta, positions, offsets, wq, wk, v, _wide(slots), k_scale, v_scale)
    rotation = (grid, offset, prefix, suffix, sections, rotary_dim, rotary_begin, amplitude, inverse, pad_theta)
    attributes = (pairing, *rotation, eps, weight_offset, norm_over, round_between)
    return_k = k is not None and return_k
    arrays, attributes = check(QK_FORWARD, inputs, (True, return_k, k_cache, v_cache), attributes)
    results = operators.qk_norm_rope((attributes, return_k), *arrays)
    return tuple(results) if len(results) > 1 else results[0]


def _wide(slots):
    """int32 as int64, which programs without jax_enable_x64 cannot write down."""
    slots = as_array("slots", slots)
    if slots is None or slots.dtype != "int32":
        return slots
    with jax.enable_x64(True):
        return slots.astype("int64")


def tpa_decode(
    aq: ArrayLike,
    ak: ArrayLike,
    av: ArrayLike,
    bq: ArrayLike,
    bk: ArrayLike,
    bv: ArrayLike,
    *,
    scale: float | None = None,
    scale_q: float | None = None,
    scale_k: float | None = None,
    scale_v: float | None = None,
    kv_len: ArrayLike | None = None,
    causal: bool = False,
    kv_first: int = 0,
    kv_stride: int = 1,
    kv_total: int | None = None,
    return_lse: bool = False,
) -> Any:
    """copes.tpa_decode."""
    if kv_stride == 0 or kv_total == 0:  # to the library, 0 is the default
        name = "kv_stride" if kv_stride == 0 else "kv_total"
        raise ValueError(f"{name} is 0; it must be 1 or more")
    attributes = (scale, scale_q, scale_k, scale_v, causal, kv_first, kv_stride, kv_total)
    outputs = (True, bool(return_lse))
    inputs, attributes = check(TPA_DECODE, (aq, bq, ak, bk, av, bv, kv_len), outputs, attributes)
    results = call(TPA_DECODE, inputs, outputs, attributes)
    return tuple(results) if return_lse else results[0]


def attention_merge(
    o_shares: ArrayLike, lse_shares: ArrayLike, *, base: LogBase = "e", return_lse: bool = False
) -> Any:
    """copes.attention_merge."""
    return_lse = bool(return_lse)
    inputs, attributes = check(MERGE_FORWARD, (o_shares, lse_shares), (True, return_lse), (base,))
    results = operators.attention_merge((attributes, return_lse), *inputs)
    return tuple(results) if return_lse else results[0]
