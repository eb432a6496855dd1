"""The function qk_norm_rope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, overload

from . import _functions
from ._copes import run
from ._functions import Array, Pairing, SupportsDLPack
from ._operators import QK_FORWARD

if TYPE_CHECKING:
    from typing_extensions import Unpack

NormOver = Literal["head", "all_heads"]


class Cache(TypedDict, total=False):
    """What is written to a paged cache, and where."""

    v: SupportsDLPack | None
    slots: SupportsDLPack | None
    k_cache: SupportsDLPack | None
    v_cache: SupportsDLPack | None
    k_scale: SupportsDLPack | None
    v_scale: SupportsDLPack | None


class _Options(Cache, total=False):
    """What the overloads share."""

    positions: SupportsDLPack | None
    offsets: SupportsDLPack | None
    wq: SupportsDLPack | None
    wk: SupportsDLPack | None
    eps: float | None
    weight_offset: float
    norm_over: NormOver
    round_between: bool
    offset: int | Sequence[int]
    grid: Sequence[int] | None
    prefix: int
    suffix: int
    sections: Sequence[int] | None
    rotary_dim: int | None
    rotary_begin: int
    amplitude: float | None
    inverse: bool
    pad_theta: bool
    pairing: Pairing


@overload
def qk_norm_rope(
    q: Array,
    k: None,
    theta: SupportsDLPack,
    *,
    return_k: bool = ...,
    out: Array | None = ...,
    **options: Unpack[_Options],
) -> Array: ...
@overload
def qk_norm_rope(
    q: Array,
    k: SupportsDLPack,
    theta: SupportsDLPack,
    *,
    return_k: Literal[True] = ...,
    out: tuple[Array, Array] | None = ...,
    **options: Unpack[_Options],
) -> tuple[Array, Array]: ...
@overload
def qk_norm_rope(
    q: Array,
    k: SupportsDLPack,
    theta: SupportsDLPack,
    *,
    return_k: Literal[False],
    out: Array | None = ...,
    **options: Unpack[_Options],
) -> Array: ...
@overload
def qk_norm_rope(
    q: Array,
    k: SupportsDLPack | None,
    theta: SupportsDLPack,
    *,
    return_k: bool,
    out: Array | tuple[Array, Array] | None = ...,
    **options: Unpack[_Options],
) -> Array | tuple[Array, Array]: ...
def qk_norm_rope(
    q: Array,
    k: SupportsDLPack | None,
    theta: SupportsDLPack,
    *,
    positions: SupportsDLPack | None = None,
    offsets: SupportsDLPack | None = None,
    wq: SupportsDLPack | None = None,
    wk: SupportsDLPack | None = None,
    v: SupportsDLPack | None = None,
    slots: SupportsDLPack | None = None,
    k_cache: SupportsDLPack | None = None,
    v_cache: SupportsDLPack | None = None,
    k_scale: SupportsDLPack | None = None,
    v_scale: SupportsDLPack | None = None,
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
    out: Array | tuple[Array, Array] | None = None,
) -> Array | tuple[Array, Array]:
    """What stands between a projection and attention, in one pass: RMSNorm of the queries and the keys, RoPE of both, and
    the writing of keys and values into a paged cache.

        q_out = rotate(norm(q; wq)), k_out = rotate(norm(k; wk))
        norm(x; w) = x (mean(x^2) + eps)^-1/2 (w + weight_offset)
        k_cache[slot // page, slot % page] = k_out[b, n], and v_cache so with v, where slot = slots[b, n] is inside

    rotate and its arguments, from positions to pairing, are copes.lrpe_rotate's, without an activation; keys have the
    angles of queries.

    q              (B, N, H, D), in any layout, a view of a packed projection included
    k              (B, N, Hk, D), of q's type; None: queries alone
    theta          as lrpe_rotate's; of one row where Hk is not H
    wq             (D) or (H, D): RMSNorm's weights of q, of q's type or float32; None: no norm
    wk             (D) or (Hk, D): of k, likewise
    v              (B, N, Hk, E): values, for v_cache
    slots          (B, N), int64, on q's device: each token's place in the caches. One below 0 or past their end is written
                   nowhere: -1 is padding
    k_cache        (blocks, page, Hk, D), of q's type, or float8_e4m3fn or its bits as uint8; written in place
    v_cache        (blocks, page, Hk, E), likewise
    k_scale        (1) or (Hk), float32: what keys of float8 are divided by; None: 1
    v_scale        of values, likewise
    eps            added to the mean of squares; None: 1e-6
    weight_offset  added to weights: 1 where they are stored as their distance from 1 (Gemma)
    norm_over      what the mean of squares is over: the features of a head, or of all_heads of a token (OLMo 2)
    round_between  round the norm's result to q's type before it turns, as models do that run the two one after the other
    return_k       False: keys go to k_cache alone
    out            an array like q for q_out, or where keys are returned (q_out, k_out); may be q and k themselves

    Returns (q_out, k_out), or q_out alone where there are no keys to return; arrays like q and k, or `out`. Gradients
    (PyTorch): of q, k, wq and wk, through q_out and k_out; what is in a cache has no history."""
    if rotary_dim is not None and rotary_dim == 0:  # to the library, 0 is the default
        raise ValueError("rotary_dim is 0; it must be 2 or more, or None for all features")
    inputs = (q, k, theta, positions, offsets, wq, wk, v, slots, k_scale, v_scale)
    rotation = (grid, offset, prefix, suffix, sections, rotary_dim, rotary_begin, amplitude, inverse, pad_theta)
    attributes = (pairing, *rotation, eps, weight_offset, norm_over, round_between)
    outs = (*_outs(out, k is not None and return_k), k_cache, v_cache)
    if hasattr(q, "__torch_function__"):
        return (_functions._torch or _functions._load_torch()).qk_norm_rope(inputs, outs, attributes)
    return run(QK_FORWARD, *inputs, *outs, *attributes)


def _outs(out, keys: bool):
    """What is to become of q_out and k_out: an array to write to, None for a new q_out, True for a new k_out, or False."""
    if not keys:
        return out, False
    if out is None:
        return None, True
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"out is a {type(out)}; with keys it must be a pair, (q_out, k_out)")
    return tuple(out)
