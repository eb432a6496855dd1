"""copes.nn.QKNormRotary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor, nn

from . import _frequencies
from ._encodings import Device, RotaryEmbedding, show
from ._functions import Pairing
from ._qk import Cache, NormOver, qk_norm_rope

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Norm(nn.Module):
    """RMSNorm's weights, by the name that a checkpoint has."""

    def __init__(self, features: int, initial: float, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.initial = initial
        self.weight = nn.Parameter(torch.empty(features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.initial)

    def extra_repr(self) -> str:
        return str(len(self.weight))


class QKNormRotary(RotaryEmbedding):
    """RMSNorm of queries and keys, RoPE of both, and the writing of a paged cache, in one pass.

        rope = QKNormRotary(head_dim)
        q, k = rope(q, k)                                 # (batch, tokens, heads, head_dim)
        q, k = rope(q, k, positions=position_ids)
        q = rope(q, k, offsets=lengths, v=v, slots=slots, k_cache=k_cache, v_cache=v_cache, return_k=False)  # decoding
        rope = QKNormRotary.from_config(config)           # Qwen3's
        rope = QKNormRotary.from_config(config, weight_offset=1)                # Gemma 3's
        rope = QKNormRotary.from_config(config, norm_over="all_heads")          # OLMo 2's

    Its parameters are q_norm.weight and k_norm.weight, which Hugging Face's models have by these names in their attention:

        rope.load_state_dict({name: checkpoint[f"{attention}.{name}"] for name in ("q_norm.weight", "k_norm.weight")})

    eps            added to the mean of squares
    weight_offset  added to weights: 1 where they are stored as their distance from 1
    norm_over      what the mean of squares is over: the features of a head, or of all_heads of a token
    heads          of queries, for all_heads
    kv_heads       of keys, likewise; None: as many
    round_between  round the norm's result before it turns, as models do that run the two one after the other

    The others are RotaryEmbedding's."""

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        *,
        eps: float = 1e-6,
        weight_offset: float = 0.0,
        norm_over: NormOver = "head",
        heads: int | None = None,
        kv_heads: int | None = None,
        round_between: bool = False,
        rotary_dim: int | None = None,
        rotary_begin: int = 0,
        pairing: Pairing = "half",
        scaling: Mapping[str, Any] | None = None,
        max_position: int | None = None,
        heads_first: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            dim,
            base,
            rotary_dim=rotary_dim,
            rotary_begin=rotary_begin,
            pairing=pairing,
            scaling=scaling,
            max_position=max_position,
            heads_first=heads_first,
            device=device,
        )
        if norm_over not in ("head", "all_heads"):
            raise ValueError(f"norm_over is {norm_over!r}; it must be head or all_heads")
        if norm_over == "all_heads" and heads is None:
            raise ValueError("heads is None; with norm_over='all_heads' it must be their number")
        self.eps = eps
        self.weight_offset = weight_offset
        self.norm_over: NormOver = norm_over
        self.round_between = round_between
        rows = (1, 1) if norm_over == "head" or heads is None else (heads, kv_heads or heads)
        self.q_norm, self.k_norm = (_Norm(each * dim, 1 - weight_offset, device, dtype) for each in rows)

    @classmethod
    def from_config(cls, config: Any, *, layer_type: str | None = None, **options: Any) -> QKNormRotary:
        """As RotaryEmbedding's, with eps and the numbers of heads. The config does not tell weight_offset and norm_over
        either."""
        return cls(**{**_frequencies.read_config(config, layer_type), **_frequencies.read_norm(config), **options})

    def extra_repr(self) -> str:
        more: dict[str, object] = {"round_between": True} if self.round_between else {}
        norm = show(eps=self.eps, weight_offset=self.weight_offset, norm_over=self.norm_over, **more)
        return f"{super().extra_repr()}, {norm}"

    def _weight(self, norm: _Norm) -> Tensor:
        """(dim), or (heads, dim) of all heads."""
        return norm.weight if self.norm_over == "head" else norm.weight.unflatten(0, (-1, self.dim))

    @overload  # type: ignore[override]
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        offset: int | Sequence[int] = ...,
        *,
        positions: Tensor | None = ...,
        offsets: Tensor | None = ...,
        length: int | Tensor | None = ...,
        return_k: Literal[True] = ...,
        **cache: Unpack[Cache],
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        offset: int | Sequence[int] = ...,
        *,
        positions: Tensor | None = ...,
        offsets: Tensor | None = ...,
        length: int | Tensor | None = ...,
        return_k: Literal[False],
        **cache: Unpack[Cache],
    ) -> Tensor: ...
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        offset: int | Sequence[int] = 0,
        *,
        positions: Tensor | None = None,
        offsets: Tensor | None = None,
        length: int | Tensor | None = None,
        return_k: bool = True,
        **cache: Any,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(q, k), normed and turned, or with return_k=False q alone; `cache`, and all but `length`, are arguments of
        copes.qk_norm_rope (v, slots, k_cache, v_cache, k_scale and v_scale), and `length` is RotaryEmbedding's. With
        heads_first q, k and v are (batch, heads, tokens, dim); the caches are as ever."""
        theta = self._theta_for(q, offset, positions, offsets, length)
        if self.heads_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
            if cache.get("v") is not None:
                cache["v"] = cache["v"].transpose(1, 2)
        made = qk_norm_rope(
            q,
            k,
            theta,
            wq=self._weight(self.q_norm),
            wk=self._weight(self.k_norm),
            eps=self.eps,
            weight_offset=self.weight_offset,
            norm_over=self.norm_over,
            round_between=self.round_between,
            return_k=return_k,
            **self._where(offset, positions, offsets),
            **cache,
        )
        if not self.heads_first:
            return made
        return made.transpose(1, 2) if isinstance(made, Tensor) else (made[0].transpose(1, 2), made[1].transpose(1, 2))
