"""The public functions. Tensors of PyTorch go to its operators, everything else straight to the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, overload

from ._copes import run
from ._operators import ACT_BACKWARD, ACT_FORWARD, LRPE_FORWARD, TPA_DECODE


class SupportsDLPack(Protocol):
    """What all arrays have in common."""

    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any: ...


Array = TypeVar("Array", bound=SupportsDLPack)
Act = Literal["none", "relu", "sigmoid", "silu", "softmax"]
Pairing = Literal["half", "interleaved"]

_torch: Any = None


def _load_torch():
    """PyTorch's side of the package, loaded when its first tensor is seen."""
    global _torch
    from . import _torch as loaded

    _torch = loaded
    return loaded


def act(
    x: Array, act: Act, dim: int | None = None, *, lse: SupportsDLPack | None = None, out: Array | None = None
) -> Array:
    """An activation, elementwise or along one axis.

        none     x
        relu     max(x, 0), NaN kept
        sigmoid  1 / (1 + e^-x)
        silu     x / (1 + e^-x)
        softmax  e^(x - max) / sum e^(x - max) along `dim`

    x    any shape of rank 1 to 8; float32, float16, bfloat16, on the CPU float64
    act  one of the names above
    dim  softmax's axis, negative from the end; None: the last
    lse  softmax only, where x is a share of the axis: softmax_lse of all shares; the result is then e^(x - lse)
    out  an array of x's shape and type for the result; may be x itself

    Returns an array like x, or `out`."""
    torch = (_torch or _load_torch()) if hasattr(x, "__torch_function__") else None
    if torch is None:
        return run(ACT_FORWARD, x, lse, out, None, None, act, dim)
    if lse is None:
        return torch.act(x, act, dim, out)
    if act != "softmax":
        raise ValueError(f"lse is given; it must be None but for softmax, and act is {act!r}")
    return torch.softmax_of_lse(x, lse, dim, out)


def softmax_lse(x: Array, dim: int | None = None) -> Array:
    """log sum e^x along `dim`, of a share of softmax's axis as on one of several devices:

        lse = log sum_s e^softmax_lse(x_s), act(x_s, "softmax", dim, lse=lse) a share of the softmax

    x    any shape of rank 1 to 8; float32, float16, bfloat16, on the CPU float64
    dim  the axis, negative from the end; None: the last

    Returns x's shape with 1 along dim, float32 (float64 for float64); -inf of no elements. Before lrpe, over the sequence of
    x (B, N, H, D), lse[:, 0] is what its `lse` takes."""
    if hasattr(x, "__torch_function__"):
        return (_torch or _load_torch()).softmax_lse(x, dim)
    return run(ACT_FORWARD, x, None, False, True, None, "softmax", dim)


def relu_mask(x: Array) -> tuple[Array, Array]:
    """relu and what its backward needs, a bit an element:

        o, mask = relu_mask(x)
        grad_x = act_backward(grad_o, "relu", mask=mask)

    x    any shape of rank 1 to 8; float32, float16, bfloat16, on the CPU float64

    Returns max(x, 0), NaN kept, and the mask: x's shape with ceil(D / 8) in place of D, its last length, of uint8. Bit i % 8 of
    byte i / 8, the least significant first, is 1 where x[..., i] > 0; the bits past D are 0. (Gradients of act of PyTorch's
    tensors go by such a mask.)"""
    if hasattr(x, "__torch_function__"):
        return (_torch or _load_torch()).relu_mask(x)
    return run(ACT_FORWARD, x, None, None, None, True, "relu", None)


def act_backward(
    grad_o: Array,
    act: Act,
    dim: int | None = None,
    *,
    x: SupportsDLPack | None = None,
    o: SupportsDLPack | None = None,
    mask: SupportsDLPack | None = None,
) -> Array:
    """The gradient of x, from that of o = act(x): for arrays that have no automatic differentiation.

    grad_o  x's shape and type
    act     as in act
    dim     softmax's axis, negative from the end; None: the last
    x       the forward's input, which silu needs; relu and sigmoid need it or o
    o       the forward's output, which softmax needs; it is used where relu or sigmoid has both
    mask    relu only: the forward's (relu_mask), which is used in place of both

    Returns an array like grad_o."""
    if hasattr(grad_o, "__torch_function__"):
        return (_torch or _load_torch()).act_backward(grad_o, act, dim, x, o, mask)
    return run(ACT_BACKWARD, x, grad_o, o, None, mask, None, None, act, dim)


def lrpe_rotate(
    x: Array,
    theta: SupportsDLPack,
    *,
    positions: SupportsDLPack | None = None,
    offsets: SupportsDLPack | None = None,
    offset: int | Sequence[int] = 0,
    act: Act = "none",
    dim: int | None = None,
    lse: SupportsDLPack | None = None,
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
    out: Array | None = None,
) -> Array:
    """Rotary positional encoding (RoPE) of act(x): each pair (a, b) of features turns by its token's angle phi,

        (a, b) -> amplitude (a cos phi - b sin phi, a sin phi + b cos phi)

    Token t has a position p_j in each of m dimensions: positions[j, b, t] + offset_j. Without `positions` it is at
    s = t - prefix, unravelled row-major over `grid` (one dimension when None) into (s_1 .. s_m), and p_j = offset_j + s_j;
    in one dimension offsets[b] is added. Tokens of the prefix and suffix do not turn.

    Head h has K = rotary_dim / 2 angles, exact modulo a turn: phi = concat_j(p_j theta_h)[0:K]; with `sections`, angle i of
    section j is p_j theta_h[i]; with a theta of rank 3 it is sum_j p_j theta[j, h, i].

    x            (B, N, H, D), or (B, N, D) with one head, in any layout; N = prefix + prod(grid) + suffix
    theta        (H, K) or (1, K): radians per position; float32, float16 or bfloat16. RoPE's is
                 base ** (-2 i / rotary_dim) for i = 0 .. K - 1. (H, 1) or (1, 1), in one dimension: one angle for all;
                 on m dimensions without sections (H, E) or (1, E) with m E >= K, E <= K. (m, H, K) or (m, 1, K): a
                 frequency of each dimension for each angle (copes.nn.mrope_theta makes M-RoPE's)
    positions    (N), (B, N) or (m, B, N) on x's device, in any layout; int32, int64 or float32. In place of grid, prefix,
                 suffix and offsets
    offsets      (B) on x's device, of the same types: the position of each sequence's first token, in one dimension
    offset       added to the positions, in each dimension: without `positions` that of the grid's first token
    act          what comes first: none, relu, sigmoid, silu or softmax (see copes.act)
    dim          softmax's axis: -1 or 3 the features (None, too), 1 or -3 the sequence
    lse          (B, H, D), softmax over the sequence only, where x is a share of it: the log sum exp of all shares; then
                 act(x) is e^(x - lse)
    grid         lengths of the position grid, the last one fastest
    prefix       tokens before the grid
    suffix       tokens after the grid
    sections     angles of each dimension, summing to K
    rotary_dim   features that turn, even; None: all from rotary_begin on
    rotary_begin the first feature that turns
    amplitude    factor of the features that turn; None: 1
    inverse      turn by the opposite angles
    pad_theta    take a theta of fewer than K angles, on one dimension: those past E are 0
    pairing      half: pair k is (k, k + rotary_dim / 2) of the features that turn; interleaved: (2k, 2k + 1)
    out          an array like x for the result; may be x itself

    Returns an array like x, or `out`. Gradients (PyTorch): of x and theta."""
    if rotary_dim is not None and rotary_dim == 0:  # to the library, 0 is the default
        raise ValueError("rotary_dim is 0; it must be 2 or more, or None for all features")
    turns = (rotary_dim, rotary_begin, amplitude, inverse, pad_theta)
    attributes = ("rotate", pairing, act, dim, grid, offset, prefix, suffix, sections, *turns)
    return _lrpe((x, theta, positions, offsets), attributes, out, lse)


def lrpe_cosine(
    x: Array,
    theta: SupportsDLPack,
    *,
    positions: SupportsDLPack | None = None,
    offsets: SupportsDLPack | None = None,
    offset: int | Sequence[int] = 0,
    act: Act = "none",
    dim: int | None = None,
    lse: SupportsDLPack | None = None,
    grid: Sequence[int] | None = None,
    prefix: int = 0,
    suffix: int = 0,
    sections: Sequence[int] | None = None,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    out: Array | None = None,
) -> Array:
    """Linearized relative positional encoding of y = act(x) by cosines, which doubles the features:

        o = amplitude concat(y cos phi, y sin phi)

    Angles, tokens and arguments are lrpe_rotate's, with an angle for each feature: K = D.

    x      (B, N, H, D), or (B, N, D) with one head
    theta  (H, D) or (1, D), or as lrpe_rotate's with K = D
    out    an array of shape (B, N, H, 2D), or (B, N, 2D), and x's type for the result

    Returns an array of that shape, or `out`. Gradients (PyTorch): of x and theta."""
    turns = (None, 0, amplitude, inverse, pad_theta)
    attributes = ("cosine", "half", act, dim, grid, offset, prefix, suffix, sections, *turns)
    return _lrpe((x, theta, positions, offsets), attributes, out, lse)


def md_lrpe_cosine(
    x: Array,
    theta: SupportsDLPack,
    shape: Sequence[int],
    l: int = 0,
    *,
    offset: int | Sequence[int] = 0,
    act: Act = "none",
    dim: int | None = None,
    suffix: int = 0,
    sections: Sequence[int] | None = None,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    out: Array | None = None,
) -> Array:
    """lrpe_cosine over a grid of tokens, such as an image's or a video's, with `l` tokens before it that do not turn.

    x      (B, l + prod(shape), H, D)
    theta  (H, E) or (1, E), len(shape) E >= D, E <= D; or (len(shape), H, D) or (len(shape), 1, D)
    shape  lengths of the grid, the last one fastest

    Returns an array of shape (B, l + prod(shape), H, 2D), or `out`."""
    if len(shape) == 0:  # to the library, no grid is one of all tokens
        raise ValueError("shape is (); it must have 1 to 4 lengths")
    turns = (None, 0, amplitude, inverse, pad_theta)
    attributes = ("cosine", "half", act, dim, shape, offset, l, suffix, sections, *turns)
    return _lrpe((x, theta, None, None), attributes, out)


def _lrpe(inputs, attributes, out, lse=None):
    torch = (_torch or _load_torch()) if hasattr(inputs[0], "__torch_function__") else None
    if torch is None:
        return run(LRPE_FORWARD, *inputs, lse, out, None, *attributes)
    if lse is None:
        return torch.lrpe(inputs, attributes, out)
    return torch.lrpe_of_lse((*inputs, lse), attributes, out)


@overload
def tpa_decode(
    aq: Array,
    ak: SupportsDLPack,
    av: SupportsDLPack,
    bq: SupportsDLPack,
    bk: SupportsDLPack,
    bv: SupportsDLPack,
    *,
    scale: float | None = ...,
    scale_q: float | None = ...,
    scale_k: float | None = ...,
    scale_v: float | None = ...,
    kv_len: SupportsDLPack | None = ...,
    causal: bool = ...,
    kv_first: int = ...,
    kv_stride: int = ...,
    kv_total: int | None = ...,
    return_lse: Literal[False] = ...,
    out: Array | None = ...,
) -> Array: ...
@overload
def tpa_decode(
    aq: Array,
    ak: SupportsDLPack,
    av: SupportsDLPack,
    bq: SupportsDLPack,
    bk: SupportsDLPack,
    bv: SupportsDLPack,
    *,
    scale: float | None = ...,
    scale_q: float | None = ...,
    scale_k: float | None = ...,
    scale_v: float | None = ...,
    kv_len: SupportsDLPack | None = ...,
    causal: bool = ...,
    kv_first: int = ...,
    kv_stride: int = ...,
    kv_total: int | None = ...,
    return_lse: Literal[True],
    out: Array | None = ...,
) -> tuple[Array, Array]: ...
@overload
def tpa_decode(
    aq: Array,
    ak: SupportsDLPack,
    av: SupportsDLPack,
    bq: SupportsDLPack,
    bk: SupportsDLPack,
    bv: SupportsDLPack,
    *,
    scale: float | None = ...,
    scale_q: float | None = ...,
    scale_k: float | None = ...,
    scale_v: float | None = ...,
    kv_len: SupportsDLPack | None = ...,
    causal: bool = ...,
    kv_first: int = ...,
    kv_stride: int = ...,
    kv_total: int | None = ...,
    return_lse: bool,
    out: Array | None = ...,
) -> Array | tuple[Array, Array]: ...
def tpa_decode(
    aq: Array,
    ak: SupportsDLPack,
    av: SupportsDLPack,
    bq: SupportsDLPack,
    bk: SupportsDLPack,
    bv: SupportsDLPack,
    *,
    scale: float | None = None,
    scale_q: float | None = None,
    scale_k: float | None = None,
    scale_v: float | None = None,
    kv_len: SupportsDLPack | None = None,
    causal: bool = False,
    kv_first: int = 0,
    kv_stride: int = 1,
    kv_total: int | None = None,
    return_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Attention of a few query tokens over a tensor-product (factored) key and value cache, which is never expanded:

        q[n, h] = scale_q sum_r aq[n, h, r] bq[n, r]
        k[m, h] = scale_k sum_r ak[m, h, r] bk[m, r], v likewise
        o[n, h] = sum_m softmax_m(scale q[n, h] . k[m, h]) v[m, h]

    aq          (B, N, H, Rq)                    bq  (B, N, Rq, D)
    ak          (B, M, H, Rk), or (B, M, H)      bk  (B, M, Rk, D), or (B, M, D)
    av          (B, M, H, Rv), or (B, M, H)      bv  (B, M, Rv, E), or (B, M, E)
    scale       None: D^-1/2
    scale_q     None: 1 / Rq; scale_k and scale_v likewise
    kv_len      (B) of int32 on the arrays' device: keys at and past kv_len[b] are ignored; clamped to 0 .. kv_total
    causal      query n sees keys 0 .. L - N + n of the L = kv_len[b], or kv_total, so that the last sees the last
    kv_first    the M keys may be a share of all: key i is key kv_first + i kv_stride of them. kv_len and kv_total count all
    kv_stride   from one key of the share to the next
    kv_total    keys of all shares; None: those up to this share's last, M where it is the whole
    return_lse  also return log sum_m exp(scale q . k), (B, N, H), float32 (float64 for float64)
    out         an array of shape (B, N, H, E) for the result

    Returns o, (B, N, H, E), or (o, lse). With no key to see, o = 0 and lse = -inf. It is for decoding: no gradient."""
    if kv_stride == 0 or kv_total == 0:  # to the library, 0 is the default
        name = "kv_stride" if kv_stride == 0 else "kv_total"
        raise ValueError(f"{name} is 0; it must be 1 or more")
    attributes = (scale, scale_q, scale_k, scale_v, causal, kv_first, kv_stride, kv_total)
    inputs = (aq, bq, ak, bk, av, bv, kv_len)
    if hasattr(aq, "__torch_function__"):
        return (_torch or _load_torch()).tpa_decode(inputs, attributes, return_lse, out)
    return run(TPA_DECODE, *inputs, out, return_lse, *attributes)
