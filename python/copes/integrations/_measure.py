"""What a modeling file of transformers computes, found by calling it on small tensors.

The files differ in how cosines and sines are laid out, in the pairs that turn and in the position that each angle
follows. Names do not tell: Cohere's apply_rotary_pos_emb has the signature of Llama's and other pairs. What fits nothing
that copes computes is refused, with None."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._functions import lrpe_rotate
from .._qk import qk_norm_rope

_TOKENS = 6
_TOLERANCE = 1e-4  # of cosines at these positions in float32; another formula is off by far more


class Angles(NamedTuple):
    """How a rotary module makes its angles: angle k is the position in dimension[k] times frequency number
    frequency[k]."""

    positions: str  # tokens: position_ids (B, N); grid: (3, B, N), or (B, N) for all three; patches: (N, 2)
    layout: str  # of the columns of cos: half (angles twice), interleaved (each twice), single
    frequency: tuple[int, ...]
    dimension: tuple[int, ...]


class Apply(NamedTuple):
    """How a function turns its tensors."""

    pairing: str  # copes's half or interleaved; split: interleaved, and the result has all first features first
    heads_axis: int


# ---- rotary modules --------------------------------------------------------------------------------------------------


def _position_ids() -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """What a rotary module may take, the shape of cosines for it but for the columns; (m, N) is Angles' dimensions."""
    numbers = torch.tensor([[0, 3, 1, 7, 2, 5], [0, 1, 6, 2, 4, 3], [0, 2, 4, 1, 3, 7]], device="cpu")
    yield "grid", numbers[:, None], (1, _TOKENS)
    yield "tokens", numbers[:1], (1, _TOKENS)
    yield "patches", numbers[:2].T, (_TOKENS,)


def spread(positions: str, position_ids: Tensor) -> Tensor:
    """position_ids as (m, B, N), or (B, N) in one dimension."""
    if positions == "grid":
        return position_ids.expand(3, -1, -1)
    return position_ids if positions == "tokens" else position_ids.T[:, None]


def frequencies(rotary: torch.nn.Module, prefix: str) -> Tensor:
    """In float32. GPT-J's module has a table of sines and cosines in their place, always of this base."""
    table = getattr(rotary, "embed_positions", None)
    if table is None:
        return getattr(rotary, f"{prefix}inv_freq").float()
    width = table.shape[1]
    return 1.0 / 10000 ** (torch.arange(0, width, 2, dtype=torch.int64, device=table.device) / width)


def _distinct(count: int) -> Tensor:
    return torch.linspace(0.3, 1, count, dtype=torch.float32, device="cpu")


def _probe(rotary: torch.nn.Module, prefix: str) -> torch.nn.Module:
    """A copy, so that the module's state stays as it is, with frequencies that are easily told apart."""
    try:
        probe = copy.deepcopy(rotary).to("cpu")
    except NotImplementedError as error:  # on the meta device
        raise ValueError(f"{type(rotary).__name__} is on the meta device; load the model first") from error
    for name in (f"{prefix}inv_freq", f"{prefix}original_inv_freq"):  # longrope takes the original
        if hasattr(probe, name):
            setattr(probe, name, _distinct(getattr(probe, name).numel()))
    return probe


@torch.no_grad()
def measure_rotary(rotary: torch.nn.Module, prefix: str, scaling: float) -> Angles | None:
    """For one type of layer, where the module has buffers for several."""
    probe = _probe(rotary, prefix)
    theta = frequencies(probe, prefix)
    layer = {"layer_type": prefix[:-1]} if prefix else {}
    x = torch.zeros(1, _TOKENS, 4, dtype=torch.float32, device="cpu")
    for positions, position_ids, shape in _position_ids():
        try:
            cos, sin = probe(x, position_ids, **layer)
        except Exception:  # whatever a module raises where it does not take these
            continue
        if isinstance(cos, Tensor) and isinstance(sin, Tensor) and cos.shape[:-1] == shape == sin.shape[:-1]:
            phi = spread(positions, position_ids)[..., None] * theta
            if not cos.flatten(0, -2)[0].any():  # at position 0; GPT-J returns the sines first
                cos, sin = sin, cos
            return _match(positions, phi.reshape(-1, _TOKENS, len(theta)), scaling, cos, sin)
    return None


def _match(positions: str, phi: Tensor, scaling: float, cos: Tensor, sin: Tensor) -> Angles | None:
    """Finds the dimension and the frequency of each column: phi is (m, N, E), cos and sin are (N, C)."""
    differences = [
        (table.reshape(_TOKENS, 1, -1, 1) - (scaling * made).transpose(0, 1)[:, :, None]).abs().amax(0)  # (m, C, E)
        for table, made in ((cos, phi.cos()), (sin, phi.sin()))
    ]
    error, place = torch.maximum(*differences).transpose(0, 1).flatten(1).min(1)
    if error.max() > _TOLERANCE:
        return None
    columns = [divmod(each, phi.shape[2]) for each in place.tolist()]
    half = len(columns) // 2
    if columns[:half] == columns[half:]:
        layout, columns = "half", columns[:half]
    elif columns[::2] == columns[1::2]:
        layout, columns = "interleaved", columns[::2]
    else:
        layout = "single"
    return Angles(positions, layout, tuple(i for _, i in columns), tuple(j for j, _ in columns))


# ---- functions that apply cosines and sines --------------------------------------------------------------------------


def split_pairs(o: Tensor, rotary_dim: int) -> Tensor:
    """The features that turned with the first of all pairs first."""
    return torch.cat((o[..., :rotary_dim:2], o[..., 1:rotary_dim:2], o[..., rotary_dim:]), -1)


def rotated(function: Callable[..., Any]) -> int:
    """How many tensors a function turns: those before cos and sin."""
    names = list(inspect.signature(function).parameters)
    return min(names.index("cos"), names.index("sin"))


def _axes(function: Callable[..., Any]) -> Iterator[tuple[int, int]]:
    """Where heads may be, from the start, and a tensor's rank."""
    parameters = inspect.signature(function).parameters
    if "unsqueeze_dim" in parameters:
        yield parameters["unsqueeze_dim"].default, 4
    else:
        yield from ((1, 4), (2, 4), (1, 3))


@torch.no_grad()
def measure_apply(function: Callable[..., Any], layout: str, angles: int) -> Apply | None:
    """Of a function that takes cosines in this layout. It must agree where more features follow, too, or refuse them."""
    theta, positions = _distinct(angles)[None], torch.arange(_TOKENS, device="cpu")[None]
    for axis, rank in _axes(function):
        phi = positions[0, :, None] * theta
        phi = phi if rank == 3 else phi[None]
        if layout != "single":
            phi = torch.cat((phi, phi), -1) if layout == "half" else phi.repeat_interleave(2, -1)
        for pairing in ("half", "interleaved", "split"):
            turned = functools.partial(turn, heads_axis=axis - rank, pairing=pairing, theta=theta, positions=positions)
            agrees = [_agrees(function, turned, axis, rank, phi, 2 * angles + more) for more in (0, 4)]
            if agrees[0] and agrees[1] is not False:
                return Apply(pairing, axis - rank)
    return None


def _agrees(function, turned, axis: int, rank: int, phi: Tensor, features: int) -> bool | None:
    """None where the function refuses the tensors."""
    numbers = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(1, _TOKENS, 3, features, generator=numbers, dtype=torch.float32, device="cpu")
    given = x[0] if rank == 3 else x if axis == 2 else x.transpose(1, 2)
    try:
        result = function(*(given,) * rotated(function), cos=phi.cos(), sin=phi.sin())
    except Exception:
        return None
    (expected,) = turned((given,))
    results = result if isinstance(result, tuple) else (result,)
    return all(o.shape == expected.shape and (o - expected).abs().max() < _TOLERANCE for o in results)


def turn(
    xs: Sequence[Tensor],
    heads_axis: int,
    pairing: str,
    theta: Tensor,
    positions: Tensor,
    sections: Sequence[int] | None = None,
    amplitude: float | None = None,
    norms: Mapping[str, Any] | None = None,
) -> tuple[Tensor, ...]:
    """Tensors of rank 4, or of rank 3 without a batch, by copes. With `norms`, what qk_norm_rope takes for them, they are
    queries and keys, which are normed before."""
    heads_first, batched = heads_axis == -3, xs[0].dim() == 4
    ys = [x.transpose(-2, -3) if heads_first else x for x in xs]
    ys = [y if batched else y[None] for y in ys]
    rotary_dim = 2 * theta.shape[-1]
    if theta.dim() == 2 and positions.dim() == 3 and sections is None:
        rotary_dim *= len(positions)
    rotation: dict[str, Any] = dict(
        positions=positions.expand(*positions.shape[:-2], len(ys[0]), -1),
        sections=sections,
        rotary_dim=rotary_dim,
        amplitude=amplitude,
        pairing="half" if pairing == "half" else "interleaved",
    )
    if norms is None:
        os = [lrpe_rotate(y, theta, **rotation) for y in ys]
    else:
        q, k = ys
        os = [*qk_norm_rope(q, k, theta, **rotation, **norms)]
    os = [split_pairs(o, rotary_dim) if pairing == "split" else o for o in os]
    os = [o if batched else o[0] for o in os]
    return tuple(o.transpose(-2, -3) if heads_first else o for o in os)
