"""Attention that norms queries and keys before they turn: which modules of transformers do what copes.qk_norm_rope does,
found by calling them, and how it takes their place.

The norms of such a module hand on what they are given, and the cosines' stand-in says by which weights to norm."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_TOKENS = 6
_TOLERANCE = 1e-4  # relative, in float32; another formula is off by far more
_NAMES = ("q_norm", "k_norm")
_COSINES = "position_embeddings"  # the argument of attention


class Norms(NamedTuple):
    """How a module norms: what copes.qk_norm_rope takes, but for the weights, which its q_norm and k_norm have."""

    eps: float
    weight_offset: float
    norm_over: str


# ---- one norm --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _measure_norm(norm: nn.Module) -> tuple[float, float] | None:
    """(eps, what it adds to its weights), where it is RMSNorm over the last axis by weights of that length."""
    weight = getattr(norm, "weight", None)
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if not isinstance(weight, Tensor) or weight.dim() != 1 or not isinstance(eps, float) or "forward" in vars(norm):
        return None
    probe: Any = copy.deepcopy(norm).to("cpu", torch.float32)
    probe.weight.copy_(torch.linspace(0.3, 1, len(weight)))
    numbers = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(2, _TOKENS, len(weight), generator=numbers) * torch.tensor([eps**0.5, 1])[:, None, None]
    normed = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    for offset in (0.0, 1.0):
        if torch.allclose(probe(x), normed * (probe.weight + offset), rtol=_TOLERANCE, atol=_TOLERANCE * 1e-2):
            return eps, offset
    return None


# ---- from the norms to the turn --------------------------------------------------------------------------------------


class _Reached(Exception):
    """A function that turns was called, with these tensors that have heads on this axis."""

    def __init__(self, q: Tensor, k: Tensor, heads_axis: int) -> None:
        super().__init__()
        self.q, self.k, self.heads_axis = q, k, heads_axis


def _input(attention: Any) -> Tensor:
    like = next(attention.parameters())
    return torch.zeros(1, _TOKENS, attention.config.hidden_size, dtype=like.dtype, device=like.device)


def _always_turns(attention: Any) -> bool:
    """It cannot do without cosines; what can then needs its norms for themselves."""
    try:
        attention(hidden_states=_input(attention), attention_mask=None, **{_COSINES: None})
    except TypeError as error:
        return "unpack" in str(error)
    except Exception:  # whatever a module raises where it takes something else
        return False
    return False


def _reach(attention: Any, file: ModuleType, axes: dict[str, int]) -> _Reached | None:
    """What the first of the file's functions by these names is given, where each norm returns numbers that tell its
    elements apart: the keys' follow the queries'."""
    first = 0

    def number(self, x):
        nonlocal first
        first += x.numel()
        return torch.arange(first - x.numel(), first, dtype=torch.float64, device=x.device).reshape(x.shape)

    def reached(axis, q, k, *_, unsqueeze_dim=None, **__):
        raise _Reached(q, k, axis if unsqueeze_dim is None else unsqueeze_dim)

    norms = [getattr(attention, name) for name in _NAMES]
    originals = {name: getattr(file, name) for name in axes}
    x = _input(attention)
    try:
        for norm in norms:
            norm.forward = MethodType(number, norm)
        for name, axis in axes.items():
            setattr(file, name, functools.partial(reached, axis))
        attention(hidden_states=x, attention_mask=None, **{_COSINES: (x, x)})
    except _Reached as seen:
        return seen
    except Exception:  # whatever a module raises where it takes something else
        return None
    finally:
        for norm in norms:
            del norm.forward
        for name, original in originals.items():
            setattr(file, name, original)
    return None


def _is_whole(x: Tensor, first: int, width: int, over: str, heads_axis: int) -> bool:
    """Are these all numbers from `first` on, in the rows that a norm of this width has, and qk_norm_rope will have?"""
    if x.dim() != 4:
        return False
    x = x.transpose(-2, -3) if heads_axis in (1, -3) else x
    if width != (x.shape[-1] if over == "head" else x.shape[-1] * x.shape[-2]):
        return False
    rows = x.reshape(-1, width)
    steps = torch.arange(width, dtype=x.dtype, device=x.device)
    starts = torch.arange(first, first + x.numel(), width, dtype=x.dtype, device=x.device)
    return torch.equal(rows, rows[:, :1] + steps) and torch.equal(rows[:, 0].sort().values, starts)


@torch.no_grad()
def measure(attention: nn.Module, file: ModuleType, axes: dict[str, int]) -> Norms | None:
    """Of a module with q_norm and k_norm: None where they are not what copes computes, or something lies between them and
    the file's functions that turn, of which `axes` says where each has the heads."""
    norms: list[Any] = [getattr(attention, name, None) for name in _NAMES]
    if None in norms or _COSINES not in inspect.signature(attention.forward).parameters:
        return None
    kinds = {_measure_norm(norm) for norm in norms}
    kind = kinds.pop() if len(kinds) == 1 else None
    seen = None if kind is None else _reach(attention, file, axes)
    if kind is None or seen is None or not _always_turns(attention):
        return None
    q, k, widths = seen.q, seen.k, [len(norm.weight) for norm in norms]
    over = "head" if q.shape[-1] == widths[0] else "all_heads"
    parts = zip((q, k), (0, q.numel()), widths)
    if not all(_is_whole(x, first, width, over, seen.heads_axis) for x, first, width in parts):
        return None
    return Norms(*kind, over)


# ---- in their place --------------------------------------------------------------------------------------------------


def _hand_on(self, x):
    return x


def replace(attention: nn.Module, norms: Norms) -> Callable[[], None]:
    """Makes the module's norms part of its turn; returns what undoes it."""
    place = list(inspect.signature(attention.forward).parameters).index(_COSINES)

    def tell(attention, args, kwargs):
        given = args[place] if place < len(args) else kwargs[_COSINES]
        weights = (attention.q_norm.weight, attention.k_norm.weight)
        told = tuple(turns._replace(norms=norms, weights=weights) for turns in given)
        if place < len(args):
            return (*args[:place], told, *args[place + 1 :]), kwargs
        return args, {**kwargs, _COSINES: told}

    hook = attention.register_forward_pre_hook(tell, with_kwargs=True)
    for name in _NAMES:
        norm = getattr(attention, name)
        norm.forward = MethodType(_hand_on, norm)

    def undo() -> None:
        hook.remove()
        for name in _NAMES:
            del getattr(attention, name).forward

    return undo
