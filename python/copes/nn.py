"""Layers for PyTorch models: RotaryEmbedding, LRPE and TPADecodeCache.

Their frequencies and caches are buffers that no state_dict holds: a checkpoint is the same with and without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from . import _torch  # noqa: F401 - registers the operators, for what loads a compiled or exported model
from ._functions import Act, Pairing, lrpe_cosine, lrpe_rotate, tpa_decode

__all__ = ["LRPE", "RotaryEmbedding", "TPADecodeCache"]


def _parameters(**parameters: object) -> str:
    """As a layer's repr shows them."""
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())


class _Encoding(nn.Module):
    """What encodings share: theta, which stays float32 when a model is cast to a smaller type, as positions need it.

    No checkpoint has theta, so a layer made on the meta device computes it when it gets memory: by to_empty() at once,
    in any other way at the first call."""

    theta: Tensor

    def __init__(self, shape: Sequence[int], base: float, exponents: float, heads_first: bool, device) -> None:
        super().__init__()
        self.register_buffer("theta", torch.empty(shape, dtype=torch.float32, device=device), persistent=False)
        self.base = base
        self.exponents = exponents
        self.heads_first = heads_first
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Computes theta where it lies: base ** (-i / exponents) for i = 0, 1, ..."""
        if self.theta.dtype != torch.float32:
            self.theta = torch.empty_like(self.theta, dtype=torch.float32)
        self._theta_is_due = self.theta.is_meta
        if not self._theta_is_due:
            i = torch.arange(self.theta.numel(), dtype=torch.float64, device="cpu").reshape(self.theta.shape)
            with torch.no_grad():
                self.theta.copy_(self.base ** -(i / self.exponents))

    def _apply(self, fn, recurse=True):
        before = self.theta
        super()._apply(fn, recurse)
        if self.theta.is_meta:
            self._theta_is_due = True
        elif self._theta_is_due:
            self.reset_parameters()
        elif self.theta is not before:  # cast, moved, or without values, as to_empty() leaves it
            self.theta = before.to(self.theta.device)
        return self

    def _encode(self, function: Callable[..., Tensor], x: Tensor, **attributes) -> Tensor:
        if self._theta_is_due and not self.theta.is_meta:
            if torch.compiler.is_exporting():
                raise RuntimeError("theta has memory, but no values yet; call reset_parameters() before exporting")
            self.reset_parameters()
        if self.heads_first:
            return function(x.transpose(1, 2), self.theta, **attributes).transpose(1, 2)
        return function(x, self.theta, **attributes)


class RotaryEmbedding(_Encoding):
    """RoPE (Su et al. 2021): turns pairs of features by position * base ** (-2 i / rotary_dim).

        rope = RotaryEmbedding(head_dim)
        q, k = rope(q), rope(k)                    # (batch, tokens, heads, head_dim)
        q, k = rope(q, offset=n), rope(k, offset=n)  # decoding, with n tokens in the cache

    dim          features of a head
    base         of the frequencies
    rotary_dim   leading features that turn, even; None: all
    pairing      half: feature i with i + rotary_dim / 2 (GPT-NeoX, Llama); interleaved: 2 i with 2 i + 1 (GPT-J)
    heads_first  tensors are (batch, heads, tokens, dim); nothing is copied for it"""

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        *,
        rotary_dim: int | None = None,
        pairing: Pairing = "half",
        heads_first: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        turning = dim if rotary_dim is None else rotary_dim
        super().__init__((1, -(-turning // 2)), base, turning / 2, heads_first, device)
        self.dim = dim
        self.rotary_dim = turning
        self.pairing: Pairing = pairing

    def extra_repr(self) -> str:
        return _parameters(
            dim=self.dim,
            base=self.base,
            rotary_dim=self.rotary_dim,
            pairing=self.pairing,
            heads_first=self.heads_first,
        )

    def forward(self, x: Tensor, offset: int | Sequence[int] = 0) -> Tensor:
        return self._encode(lrpe_rotate, x, offset=offset, rotary_dim=self.rotary_dim, pairing=self.pairing)


class LRPE(_Encoding):
    """Linearized relative positional encoding (Qin et al. 2023) after an activation, with frequencies of each head's
    own: head h's feature i has base ** (-(h E + i) / (H E)).

        encode = LRPE(heads, head_dim, act="silu")
        q, k = encode(q), encode(k)                # (batch, tokens, heads, 2 * head_dim) by cosine

    heads, dim   of the tensors
    variant      cosine, which doubles the features, or rotate
    act          none, relu, sigmoid, silu or softmax
    softmax_dim  softmax's axis: -1 the features, 1 the tokens, with the axes (batch, tokens, heads, dim)
    grid_rank    dimensions of the positions: 1 for text, 2 for images, 3 for video; `grid` then comes with the tensor
    prefix       tokens before the grid that are not encoded
    heads_first  tensors are (batch, heads, tokens, dim)"""

    def __init__(
        self,
        heads: int,
        dim: int,
        base: float = 10000.0,
        *,
        variant: Literal["cosine", "rotate"] = "cosine",
        act: Act = "none",
        softmax_dim: int = -1,
        grid_rank: int = 1,
        prefix: int = 0,
        heads_first: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        if variant not in ("cosine", "rotate"):
            raise ValueError(f"variant is {variant!r}; it must be cosine or rotate")
        angles = dim if variant == "cosine" else dim // 2
        width = -(-angles // grid_rank)
        super().__init__((heads, width), base, heads * width, heads_first, device)
        self.function: Callable[..., Tensor] = lrpe_cosine if variant == "cosine" else lrpe_rotate
        self.heads = heads
        self.dim = dim
        self.variant = variant
        self.act: Act = act
        self.softmax_dim = softmax_dim
        self.grid_rank = grid_rank
        self.prefix = prefix

    def extra_repr(self) -> str:
        return _parameters(
            heads=self.heads,
            dim=self.dim,
            base=self.base,
            variant=self.variant,
            act=self.act,
            softmax_dim=self.softmax_dim,
            grid_rank=self.grid_rank,
            prefix=self.prefix,
            heads_first=self.heads_first,
        )

    def forward(self, x: Tensor, offset: int | Sequence[int] = 0, grid: Sequence[int] | None = None) -> Tensor:
        return self._encode(
            self.function, x, act=self.act, dim=self.softmax_dim, offset=offset, grid=grid, prefix=self.prefix
        )


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
        return _parameters(
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
