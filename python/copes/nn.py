"""Layers for PyTorch models: RotaryEmbedding, QKNormRotary, LRPE and TPADecodeCache, and the function mrope_theta.

Their frequencies and caches are buffers that no state_dict holds: a checkpoint is the same with and without them. Only
QKNormRotary's weights and a theta that LRPE learns are parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import _torch  # noqa: F401 - registers the operators, for what loads a compiled or exported model
from ._encodings import LRPE, RotaryEmbedding, mrope_theta, show
from ._functions import tpa_decode
from ._qk_rotary import QKNormRotary

__all__ = ["LRPE", "QKNormRotary", "RotaryEmbedding", "TPADecodeCache", "mrope_theta"]


class TPADecodeCache(nn.Module):
    """The key and value cache of tensor product attention (Zhang et al. 2025), kept in factors.

        cache = TPADecodeCache(batch, capacity, heads, head_dim, rank_k=2, rank_v=2)
        cache.append(ak, bk, av, bv)  # a: (batch, tokens, heads, rank), b: (batch, tokens, rank, dim); any tokens
        o = cache.decode(aq, bq)      # (batch, tokens, heads, value_dim); the last query sees every key

    batch, capacity, heads  sequences, most tokens of each, heads
    dim, value_dim          features of a key and of a value; None: the same
    rank_k, rank_v          ranks of the factors

    It holds numbers, without their history: no gradient flows through it."""

    ak: Tensor
    bk: Tensor
    av: Tensor
    bv: Tensor

    def __init__(
        self,
        batch: int,
        capacity: int,
        heads: int,
        dim: int,
        value_dim: int | None = None,
        *,
        rank_k: int = 1,
        rank_v: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shapes = {
            "ak": (heads, rank_k),
            "bk": (rank_k, dim),
            "av": (heads, rank_v),
            "bv": (rank_v, dim if value_dim is None else value_dim),
        }
        for name, shape in shapes.items():
            self.register_buffer(
                name, torch.zeros(batch, capacity, *shape, device=device, dtype=dtype), persistent=False
            )
        self.length = 0

    def __len__(self) -> int:
        """Tokens in the cache."""
        return self.length

    def extra_repr(self) -> str:
        batch, capacity, heads, rank_k = self.ak.shape
        return show(
            batch=batch,
            capacity=capacity,
            heads=heads,
            dim=self.bk.shape[3],
            value_dim=self.bv.shape[3],
            rank_k=rank_k,
            rank_v=self.av.shape[3],
            length=self.length,
        )

    def reset(self) -> None:
        """Empties the cache; its memory stays."""
        self.length = 0

    def append(self, ak: Tensor, bk: Tensor, av: Tensor, bv: Tensor) -> None:
        """Adds the factors of new tokens, of the cache's type and on its device; their gradients end here. All four are
        checked before any is written."""
        pairs = {"ak": (self.ak, ak), "bk": (self.bk, bk), "av": (self.av, av), "bv": (self.bv, bv)}
        tokens = ak.shape[1] if isinstance(ak, Tensor) and ak.dim() == 4 else None
        for name, (buffer, factor) in pairs.items():
            self._check(name, buffer, factor, tokens)
        end = self.length + ak.shape[1]
        if end > self.ak.shape[1]:
            raise ValueError(f"{end} tokens do not fit the cache, whose capacity is {self.ak.shape[1]}")
        with torch.no_grad():
            for buffer, factor in pairs.values():
                buffer[:, self.length : end] = factor
        self.length = end

    @staticmethod
    def _check(name: str, buffer: Tensor, factor: Tensor, tokens: int | None) -> None:
        """Refuses what an assignment to the buffer would broadcast, convert or move."""
        if not isinstance(factor, Tensor):
            raise TypeError(f"{name} is a {type(factor)}; it must be a tensor")
        batch, _, *rest = buffer.shape
        if factor.shape != (batch, tokens, *rest):
            wanted = ", ".join(map(str, (batch, "tokens" if tokens is None else tokens, *rest)))
            raise ValueError(f"{name} has shape {tuple(factor.shape)}; it must be ({wanted})")
        if factor.dtype != buffer.dtype:
            raise TypeError(f"{name} has type {factor.dtype}; it must be {buffer.dtype}, as the cache")
        if factor.device != buffer.device:
            raise ValueError(f"{name} is on {factor.device}; it must be on {buffer.device}, as the cache")

    def decode(
        self,
        aq: Tensor,
        bq: Tensor,
        *,
        causal: bool = True,
        scale: float | None = None,
        scale_q: float | None = None,
        scale_k: float | None = None,
        scale_v: float | None = None,
    ) -> Tensor:
        """Attention of the last tokens' queries over the cache: aq (batch, tokens, heads, rank), bq (batch, tokens,
        rank, dim). The scales are copes.tpa_decode's."""
        ak, bk, av, bv = (buffer[:, : self.length] for buffer in (self.ak, self.bk, self.av, self.bv))
        return tpa_decode(
            aq, ak, av, bq, bk, bv, scale=scale, scale_q=scale_q, scale_k=scale_k, scale_v=scale_v, causal=causal
        )
