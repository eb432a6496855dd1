"""The encodings of copes.nn: RotaryEmbedding, LRPE, and mrope_theta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from . import _frequencies
from ._functions import Act, Pairing, lrpe_cosine, lrpe_rotate

Device: TypeAlias = "torch.device | str | None"


def show(**parameters: object) -> str:
    """Parameters as a layer's repr shows them."""
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())


class _Encoding(nn.Module):
    """What encodings share: theta, which stays float32 when a model is cast to a smaller type, as positions need it.

    Where it is no parameter, a layer made on the meta device computes it when it gets memory: by to_empty() at once, in
    any other way at the first call. A parameter has its values from a checkpoint, to_empty() or reset_parameters()."""

    theta: Tensor

    def __init__(self, heads_first: bool) -> None:
        super().__init__()
        self.heads_first = heads_first

    def frequencies(self) -> Tensor:
        """What theta is at first, in float64 on the CPU."""
        raise NotImplementedError

    def _add_theta(self, device: Device, learnable: bool = False) -> None:
        theta = torch.empty(self.frequencies().shape, dtype=torch.float32, device=device)
        if learnable:
            self.theta = nn.Parameter(theta)
        else:
            self.register_buffer("theta", theta, persistent=False)
        self.reset_parameters()

    def _learns(self) -> bool:
        return isinstance(self.theta, nn.Parameter)

    def reset_parameters(self) -> None:
        """Computes theta where it lies."""
        if self.theta.dtype != torch.float32:
            self.theta.data = torch.empty_like(self.theta, dtype=torch.float32)
        self._theta_is_due = self.theta.is_meta
        if not self._theta_is_due:
            with torch.no_grad():
                self.theta.copy_(self.frequencies().reshape(self.theta.shape))

    def _apply(self, fn, recurse=True):
        before, values = self.theta, self.theta.data
        grad = before.grad.data if self._learns() and before.grad is not None else None
        super()._apply(fn, recurse)
        if self.theta.is_meta:
            self._theta_is_due = True
        elif self._theta_is_due:
            self.reset_parameters()
        elif self._learns():
            if self.theta.dtype != values.dtype:  # cast
                self.theta.data = values.to(self.theta.device)
                self.theta.grad = None if grad is None else grad.to(self.theta.device)
        elif self.theta is not before:  # cast, moved, or without values, as to_empty() leaves it
            self.theta = before.to(self.theta.device)
        return self

    def _theta(self) -> Tensor:
        """Theta with its values."""
        if self._theta_is_due and not self.theta.is_meta and not self._learns():
            if torch.compiler.is_exporting():
                raise RuntimeError("theta has memory, but no values yet; call reset_parameters() before exporting")
            self.reset_parameters()
        return self.theta

    def _encode(self, function: Callable[..., Tensor], x: Tensor, theta: Tensor, **attributes) -> Tensor:
        if self.heads_first:
            return function(x.transpose(1, 2), theta, **attributes).transpose(1, 2)
        return function(x, theta, **attributes)


# ---- RoPE ------------------------------------------------------------------------------------------------------------


def mrope_theta(
    sections: Sequence[int],
    theta: Tensor | None = None,
    *,
    base: float = 10000.0,
    interleaved: bool = False,
    device: Device = None,
) -> Tensor:
    """Theta of multimodal RoPE, (m, 1, K) or (m, H, K): each of the K angles follows one of m positions, in most models
    those of time, height and width, and has 0 for the others.

        theta = mrope_theta((16, 24, 24), base=1e6)                  # Qwen2-VL
        q = copes.lrpe_rotate(q, theta, positions=positions)        # positions (3, batch, tokens)

    sections     angles of each position; their sum is K
    theta        frequencies of plain RoPE, (K) or (H, K); None: base ** (-i / K) in float32
    interleaved  False: one section after another (Qwen2-VL). True: angle i follows position i mod m while that one's
                 section lasts, and the first one otherwise (Qwen3-VL)"""
    count = sum(sections)
    if theta is None:
        rope = _frequencies.Rope(2 * count, base, None)
        theta = torch.tensor(rope.frequencies(), dtype=torch.float64, device="cpu").to(device, torch.float32)
    if theta.shape[-1] != count:
        raise ValueError(f"theta has {theta.shape[-1]} frequencies; with these sections it must have {count}")
    axes = _frequencies.axes(sections, interleaved)
    follows = torch.tensor([[axis == j for axis in axes] for j in range(len(sections))], device=theta.device)  # (m, K)
    return torch.where(follows[:, None], theta.reshape(1, -1, count), 0)


class RotaryEmbedding(_Encoding):
    """RoPE (Su et al. 2021): turns pairs of features by position * base ** (-2 i / rotary_dim).

        rope = RotaryEmbedding(head_dim)
        q, k = rope(q), rope(k)                      # (batch, tokens, heads, head_dim)
        q, k = rope(q, offset=n), rope(k, offset=n)  # decoding, with n tokens in the cache
        q = rope(q, positions=position_ids)          # (tokens), (batch, tokens) or (m, batch, tokens)
        rope = RotaryEmbedding.from_config(config)   # a Hugging Face model's

    dim           features of a head
    base          of the frequencies
    rotary_dim    features that turn, even; None: all from rotary_begin on
    rotary_begin  the first feature that turns
    pairing       half: feature i with i + rotary_dim / 2 (GPT-NeoX, Llama); interleaved: 2 i with 2 i + 1 (GPT-J)
    scaling       None, or what a Hugging Face config has as rope_parameters (before: rope_scaling): a dict of rope_type
                  (default, linear, dynamic, yarn, longrope, llama3 or proportional) and its parameters. With
                  mrope_section (and mrope_interleaved) positions may be of three dimensions (see mrope_theta). Its
                  rope_theta goes before base, and its partial_rotary_factor says how many features turn where rotary_dim
                  is None
    max_position  max_position_embeddings of the config, where the scaling needs it
    heads_first   tensors are (batch, heads, tokens, dim); nothing is copied for it"""

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        *,
        rotary_dim: int | None = None,
        rotary_begin: int = 0,
        pairing: Pairing = "half",
        scaling: Mapping[str, Any] | None = None,
        max_position: int | None = None,
        heads_first: bool = False,
        device: Device = None,
    ) -> None:
        super().__init__(heads_first)
        self.scaling = dict(scaling or {})
        self.scaled_as = _frequencies.kind_of(self.scaling)
        self.dim = dim
        self.base: float = self.scaling.get("rope_theta") or base
        if rotary_dim is None:
            rotary_dim = _frequencies.turning(self.scaling, dim - rotary_begin)
        self.rotary_dim = rotary_dim
        self.rotary_begin = rotary_begin
        self.pairing: Pairing = pairing
        self.max_position = max_position
        self.sections: list[int] | None = self.scaling.get("mrope_section")
        self.amplitude = self._scaled().amplitude
        if self.sections is not None and self.scaled_as == "longrope":
            raise ValueError("scaling longrope: mrope_section is given; it must be absent")
        self._add_theta(device)

    @classmethod
    def from_config(cls, config: Any, *, layer_type: str | None = None, **options: Any) -> RotaryEmbedding:
        """The RoPE of a Hugging Face model, from its config (the text's, of a multimodal model), an object or config.json
        as a dict.

        layer_type  which one, of models that have several: full_attention or the like
        options     RotaryEmbedding's, in place of what the config says. The config does not tell pairing"""
        return cls(**{**_frequencies.read_config(config, layer_type), **options})

    def _scaled(self) -> _frequencies.Scaled:
        return _frequencies.scale(_frequencies.Rope(self.rotary_dim, self.base, self.max_position), self.scaling)

    def frequencies(self) -> Tensor:
        """(1, K), for longrope (2, K) and for M-RoPE (m, 1, K)."""
        theta = torch.tensor(self._scaled().rows, dtype=torch.float64, device="cpu")
        if self.sections is None:
            return theta
        return mrope_theta(self.sections, theta, interleaved=self.scaling.get("mrope_interleaved", False))

    def extra_repr(self) -> str:
        more: dict[str, object] = {"rotary_begin": self.rotary_begin} if self.rotary_begin else {}
        if self.scaling:
            brief = {
                name: value for name, value in self.scaling.items() if not isinstance(value, list) or len(value) < 5
            }
            more.update(scaling=brief, max_position=self.max_position)
        return show(
            dim=self.dim,
            base=self.base,
            rotary_dim=self.rotary_dim,
            pairing=self.pairing,
            heads_first=self.heads_first,
            **more,
        )

    def forward(
        self,
        x: Tensor,
        offset: int | Sequence[int] = 0,
        *,
        positions: Tensor | None = None,
        offsets: Tensor | None = None,
        inverse: bool = False,
        length: int | Tensor | None = None,
    ) -> Tensor:
        """x encoded; the arguments are copes.lrpe_rotate's. `length` is that of the longest sequence, for dynamic and
        longrope, which choose frequencies by it; None: the last position and 1. It may be a tensor of one number, which
        the host does not read. (Each call chooses anew: a cache that was filled before keeps what it has.)"""
        theta = self._theta_for(x, offset, positions, offsets, length)
        where = self._where(offset, positions, offsets)
        return self._encode(lrpe_rotate, x, theta, inverse=inverse, **where)

    def _where(self, offset, positions, offsets) -> dict[str, Any]:
        """What turns, and where: arguments of the functions."""
        return dict(
            positions=positions,
            offsets=offsets,
            offset=offset,
            rotary_dim=self.rotary_dim,
            rotary_begin=self.rotary_begin,
            amplitude=self.amplitude,
            pairing=self.pairing,
        )

    def _theta_for(self, x, offset, positions, offsets, length) -> Tensor:
        """Theta for tokens at these positions."""
        theta = self._theta()
        if self.scaled_as in ("dynamic", "longrope"):
            if length is None:
                length = self._length(x, offset, positions, offsets)
            theta = self._stretched(theta, length) if self.scaled_as == "dynamic" else self._chosen(theta, length)
        if theta.dim() == 3 and (positions is None or positions.dim() < 3):
            theta = theta.sum(0)  # text, whose positions are the same in all dimensions
        return theta

    def _length(self, x, offset, positions, offsets) -> int | Tensor:
        start = max(offset) if isinstance(offset, (list, tuple)) else offset
        if positions is not None:
            return positions.amax() + (1 + start)
        end = start + x.shape[2 if self.heads_first else 1]
        return end if offsets is None else offsets.amax() + end

    def _stretched(self, theta: Tensor, length: int | Tensor) -> Tensor:
        """Dynamic: past max_position the base grows with the length. On theta's device, in float64."""
        most: int = self.max_position or 0  # without one, this layer could not be made
        factor = self.scaling["factor"]
        if not isinstance(length, Tensor):
            if length <= most:
                return theta
            length = torch.full((), length, dtype=torch.float64, device=theta.device)
        growth = factor * length.double().clamp(min=most) / most - (factor - 1)
        i = torch.arange(theta.shape[-1], dtype=torch.float64, device=theta.device)
        return (theta * growth ** (-2 * i / max(self.rotary_dim - 2, 1))).float()

    def _chosen(self, theta: Tensor, length: int | Tensor) -> Tensor:
        """Longrope: the frequencies of short sequences or those of long ones."""
        longer = length > _frequencies.need(self.scaling, "original_max_position_embeddings", self.max_position)
        if isinstance(longer, Tensor):
            return torch.where(longer, theta[1:], theta[:1])
        return theta[1:] if longer else theta[:1]


# ---- LRPE ------------------------------------------------------------------------------------------------------------


class LRPE(_Encoding):
    """Linearized relative positional encoding (Qin et al. 2023) after an activation, with frequencies of each head's own.

        encode = LRPE(heads, head_dim, act="silu")
        q, k = encode(q), encode(k)                # (batch, tokens, heads, 2 * head_dim) by cosine

    By default head h's angle i has the frequency base ** (-2 (h n + i) / (heads dim)), n = dim for cosine and dim / 2 for
    rotate: those of TransNormerLLM and of its authors' other models.

    heads, dim   of the tensors
    variant      cosine, which doubles the features, or rotate
    act          none, relu, sigmoid, silu or softmax
    softmax_dim  softmax's axis: -1 the features, 1 the tokens, with the axes (batch, tokens, heads, dim)
    grid_rank    dimensions of the positions: 1 for text, 2 for images, 3 for video; `grid` or positions then come with the
                 tensor
    prefix       tokens before the grid that are not encoded
    theta        other frequencies: a tensor of a shape that copes.lrpe_cosine takes, or (heads, 1, E) in one dimension, as
                 published checkpoints have it. A parameter is taken as it is
    learnable    theta is a parameter: state_dict has it, by the name theta. A checkpoint's theta is also loaded where it is
                 none; (heads, 1, E) and (heads, E) are the same to it
    pairing      of rotate: half or interleaved (TransNormerLLM's)
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
        theta: Tensor | None = None,
        learnable: bool = False,
        pairing: Pairing = "half",
        heads_first: bool = False,
        device: Device = None,
    ) -> None:
        if variant not in ("cosine", "rotate"):
            raise ValueError(f"variant is {variant!r}; it must be cosine or rotate")
        super().__init__(heads_first)
        self.heads = heads
        self.dim = dim
        self.base = base
        self.variant = variant
        self.act: Act = act
        self.softmax_dim = softmax_dim
        self.grid_rank = grid_rank
        self.prefix = prefix
        self.pairing: Pairing = pairing
        self._given: Tensor | None = None
        if theta is not None and not theta.is_meta:
            self._given = theta.detach().to("cpu", torch.float64, copy=True)
        if isinstance(theta, nn.Parameter):
            self.theta = theta
            self._theta_is_due = theta.is_meta
        else:
            self._add_theta(device if theta is None or device is not None else theta.device, learnable)

    def frequencies(self) -> Tensor:
        if self._given is not None:
            return self._given
        angles = self.dim if self.variant == "cosine" else self.dim // 2
        i = torch.arange(self.heads * angles, dtype=torch.float64, device="cpu").reshape(self.heads, angles)
        return self.base ** (-2 * i[:, : -(-angles // self.grid_rank)] / (self.heads * self.dim))

    def extra_repr(self) -> str:
        more: dict[str, object] = {"learnable": True} if self._learns() else {}
        if self.pairing != "half":
            more["pairing"] = self.pairing
        return show(
            heads=self.heads,
            dim=self.dim,
            base=self.base,
            variant=self.variant,
            act=self.act,
            softmax_dim=self.softmax_dim,
            grid_rank=self.grid_rank,
            prefix=self.prefix,
            heads_first=self.heads_first,
            **more,
        )

    def _load_from_state_dict(self, state_dict, prefix, *others) -> None:
        name = f"{prefix}theta"
        if name not in state_dict:
            return super()._load_from_state_dict(state_dict, prefix, *others)
        given, own = state_dict[name], self.theta.shape
        if self.grid_rank == 1 and {given.dim(), len(own)} == {2, 3} and given.numel() == own.numel():
            state_dict[name] = given.reshape(own)
        hidden = set() if self._learns() else {"theta"}
        self._non_persistent_buffers_set -= hidden
        super()._load_from_state_dict(state_dict, prefix, *others)
        self._non_persistent_buffers_set |= hidden
        self._theta_is_due = self.theta.is_meta

    def forward(
        self,
        x: Tensor,
        offset: int | Sequence[int] = 0,
        grid: Sequence[int] | None = None,
        *,
        positions: Tensor | None = None,
        offsets: Tensor | None = None,
        inverse: bool = False,
    ) -> Tensor:
        """x encoded; the arguments are copes.lrpe_cosine's."""
        theta, attributes = self._theta(), {}
        if theta.dim() == 3 and self.grid_rank == 1:
            theta = theta.squeeze(1)
        if self.variant == "rotate":
            attributes["pairing"] = self.pairing
        return self._encode(
            lrpe_cosine if self.variant == "cosine" else lrpe_rotate,
            x,
            theta,
            positions=positions,
            offsets=offsets,
            act=self.act,
            dim=self.softmax_dim,
            offset=offset,
            grid=grid,
            prefix=self.prefix,
            inverse=inverse,
            **attributes,
        )
