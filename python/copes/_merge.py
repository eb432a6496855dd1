"""The function attention_merge."""

from __future__ import annotations

from typing import Literal, overload

from . import _functions
from ._copes import run
from ._functions import Array, SupportsDLPack
from ._operators import MERGE_FORWARD

LogBase = Literal["e", "2"]


@overload
def attention_merge(
    o_shares: Array,
    lse_shares: SupportsDLPack,
    *,
    base: LogBase = ...,
    return_lse: Literal[False] = ...,
    out: Array | None = ...,
) -> Array: ...
@overload
def attention_merge(
    o_shares: Array,
    lse_shares: SupportsDLPack,
    *,
    base: LogBase = ...,
    return_lse: Literal[True],
    out: Array | None = ...,
) -> tuple[Array, Array]: ...
@overload
def attention_merge(
    o_shares: Array,
    lse_shares: SupportsDLPack,
    *,
    base: LogBase = ...,
    return_lse: bool,
    out: Array | None = ...,
) -> Array | tuple[Array, Array]: ...
def attention_merge(
    o_shares: Array,
    lse_shares: SupportsDLPack,
    *,
    base: LogBase = "e",
    return_lse: bool = False,
    out: Array | None = None,
) -> Array | tuple[Array, Array]:
    """Attention over keys in S shares, such as those of several devices, of the attention over each share:

        lse = log sum_s e^lse_s, o = sum_s e^(lse_s - lse) o_s

    o_shares    (S, B, N, H, E): the shares' outputs, in any layout, as an all-to-all leaves them
    lse_shares  (S, B, N, H), float32 (float64 for float64): the log sum exp of the shares' scores
    base        of the logarithms, "e" or "2": FlashInfer's is 2
    return_lse  also return lse, (B, N, H), of lse_shares' type
    out         an array of shape (B, N, H, E) for the result

    A share is empty, of a (batch, token, head), where its lse is -inf or +inf: its o counts for nothing there, whatever
    it holds. Where all are empty, o = 0 and lse = -inf. An lse of NaN makes NaN of both.

    Returns o, or (o, lse). Gradients (PyTorch): of o_shares and lse_shares."""
    if hasattr(o_shares, "__torch_function__"):
        return (_functions._torch or _functions._load_torch()).attention_merge(
            (o_shares, lse_shares), base, return_lse, out
        )
    return run(MERGE_FORWARD, o_shares, lse_shares, out, return_lse, base)
