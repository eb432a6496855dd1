"""Models of the transformers package that turn by copes, without tables of cosines and sines.

    handle = copes.integrations.transformers.use(model)   # logits, gradients, generate(): as before
    handle.remove()                                       # or: with use(model): ...

A model's rotary modules return the angles' description in place of (cos, sin), and the functions of its modeling file
that apply cosines and sines turn by copes where they are given one. What both compute is measured beforehand
(_measure.py), so that any model is taken whose parts compute what copes does, and any other is refused."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import MethodType, ModuleType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from . import _measure, _norms
from ._measure import Angles, Apply
from ._norms import Norms

__all__ = ["Handle", "use"]


class _Turns(NamedTuple):
    """What goes through a model in place of its cosines, and of its sines."""

    positions: Tensor  # (B, N) or (m, B, N)
    theta: Tensor
    sections: tuple[int, ...] | None
    amplitude: float
    layout: str
    norms: Norms | None = None  # of queries and keys, before they turn
    weights: tuple[Tensor, Tensor] | None = None


# ---- rotary modules --------------------------------------------------------------------------------------------------


def _selection(angles: Angles, count: int) -> Tensor | None:
    """Where neither sections nor theta's order tell which position an angle follows: (dimensions, count, angles), which
    makes a theta of rank 3 of `count` frequencies. None where they do."""
    order = range(len(angles.frequency))
    if angles.frequency == tuple(k % count for k in order) and angles.dimension == tuple(k // count for k in order):
        return None
    if angles.frequency == tuple(order) and angles.dimension == tuple(sorted(angles.dimension)):
        return None
    selection = torch.zeros(3 if angles.positions == "grid" else 2, count, len(order), dtype=torch.bool)
    selection[list(angles.dimension), list(angles.frequency), list(order)] = True
    return selection


def _scaling(rotary: nn.Module, prefix: str) -> float:
    return float(getattr(rotary, f"{prefix}attention_scaling", getattr(rotary, "attention_scaling", 1.0)))


def _prefixes(rotary: nn.Module) -> list[str]:
    """Of the buffers with frequencies: one without a prefix, or one for each type of layer. [] for other modules."""
    names = [name for name, _ in rotary.named_buffers(recurse=False)]
    if names == ["embed_positions"] and "rotary" in type(rotary).__name__.lower():
        return [""]
    return [name[:-8] for name in names if name.endswith("inv_freq") and not name.endswith("original_inv_freq")]


def _turns_of(angles: dict[str, Angles], dynamic: bool) -> Callable[..., tuple[_Turns, _Turns]]:
    """The forward of a rotary module. inv_freq is read at each call, after transformers has adapted it to the length of
    the sequence, and copied, as the next call may write to it before this one's backward reads it."""

    def forward(self, x, position_ids, layer_type=None):
        prefix = f"{layer_type}_" if layer_type else ""
        made = angles[prefix]
        theta, sections = _measure.frequencies(self, prefix).to(x.device, copy=True)[None], None
        selection = getattr(self, f"copes_{prefix}selection", None)
        if selection is not None:
            theta = (theta[..., None] * selection.to(x.device)).sum(1, keepdim=True)
        elif made.positions == "grid":
            sections = tuple(map(made.dimension.count, range(3)))
        positions = _measure.spread(made.positions, position_ids)
        turns = _Turns(positions, theta, sections, _scaling(self, prefix), made.layout)
        return turns, turns

    if not dynamic:
        return forward
    return importlib.import_module("transformers.modeling_rope_utils").dynamic_rope_update(forward)


def _measure_all(rotary: nn.Module) -> dict[str, Angles]:
    name = type(rotary).__name__
    if "forward" in vars(rotary):
        raise ValueError(f"{name}.forward was replaced, by copes or by hooks such as accelerate's; undo that first")
    measured = {}
    for prefix in _prefixes(rotary):
        angles = _measure.measure_rotary(rotary, prefix, _scaling(rotary, prefix))
        if angles is None:
            raise ValueError(
                f"{name} (rope type {getattr(rotary, 'rope_type', 'unknown')!r}) does not return the cosines and "
                "sines of positions times its frequencies; copes does not know it"
            )
        measured[prefix] = angles
    return measured


def _replace(rotary: nn.Module, angles: dict[str, Angles]) -> None:
    for prefix, each in angles.items():
        frequencies = _measure.frequencies(rotary, prefix)
        selection = _selection(each, len(frequencies))
        if selection is not None:
            rotary.register_buffer(f"copes_{prefix}selection", selection.to(frequencies.device), persistent=False)
    forward = _turns_of(angles, dynamic=hasattr(rotary, "rope_type"))
    rotary.forward = MethodType(forward, rotary)  # type: ignore[method-assign]


def _restore(rotary: nn.Module) -> None:
    del rotary.forward
    for name, _ in list(rotary.named_buffers(recurse=False)):
        if name.startswith("copes_"):
            delattr(rotary, name)


# ---- the functions of a modeling file that apply cosines and sines ---------------------------------------------------


class _Patch:
    """A function of a modeling file that also takes _Turns, as long as a model uses it."""

    patches: ClassVar[dict[tuple[str, str], _Patch]] = {}

    def __init__(self, file: ModuleType, name: str) -> None:
        self.file, self.name = file, name
        self.original = getattr(file, name)
        self.users = 0
        self.kinds: dict[str, Apply] = {}  # by the layout of cosines

    @classmethod
    def of(cls, file: ModuleType, name: str) -> _Patch:
        return cls.patches.get((file.__name__, name)) or cls(file, name)

    def learn(self, layout: str, count: int) -> bool:
        """Does it apply cosines in this layout?"""
        if layout not in self.kinds:
            kind = _measure.measure_apply(self.original, layout, count)
            if kind is not None:
                self.kinds[layout] = kind
        return layout in self.kinds

    def add_user(self) -> None:
        self.users += 1
        if self.users == 1:
            self.patches[self.file.__name__, self.name] = self
            setattr(self.file, self.name, self._made())

    def remove_user(self) -> None:
        self.users -= 1
        if self.users == 0:
            del self.patches[self.file.__name__, self.name]
            setattr(self.file, self.name, self.original)

    def _made(self) -> Callable[..., Any]:
        original, kinds = self.original, self.kinds
        names = list(inspect.signature(original).parameters)
        count = _measure.rotated(original)

        @functools.wraps(original)
        def apply(*args, **kwargs):
            given = dict(zip(names, args))
            given.update(kwargs)
            turns = given["cos"]
            if not isinstance(turns, _Turns):
                return original(*args, **kwargs)
            kind = kinds.get(turns.layout)
            if kind is None:
                raise ValueError(
                    f"{original.__name__}: copes does not know how pairs turn by {turns.layout} cosines here"
                )
            tensors = [given.get(name) for name in names[:count]]
            results = iter(_apply([x for x in tensors if x is not None], turns, kind, given.get("unsqueeze_dim")))
            results = tuple(x if x is None else next(results) for x in tensors)
            return results[0] if count == 1 else results

        return apply


def _apply(xs: list[Tensor], turns: _Turns, kind: Apply, heads_axis: int | None) -> tuple[Tensor, ...]:
    axis = kind.heads_axis if heads_axis is None else heads_axis
    axis = axis - xs[0].dim() if axis >= 0 else axis
    norms: dict[str, Any] | None = None
    if turns.norms is not None and turns.weights is not None:
        dim, (wq, wk) = xs[0].shape[-1], turns.weights
        norms = dict(wq=wq, wk=wk, **turns.norms._asdict())
        if turns.norms.norm_over == "all_heads":
            norms.update(wq=wq.unflatten(0, (-1, dim)), wk=wk.unflatten(0, (-1, dim)))
    where = (turns.theta, turns.positions, turns.sections, turns.amplitude)
    return _measure.turn(xs, axis, kind.pairing, *where, norms)


def _called_with_cosines(owner: ast.ClassDef) -> Iterator[str]:
    """The functions that a class hands cos and sin to. It is refused where it does anything else with them."""
    parents = {child: node for node in ast.walk(owner) for child in ast.iter_child_nodes(node)}
    for node, parent in parents.items():
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        known = node.id != "position_embeddings" or not _takes_apart(parent)
        if node.id in ("cos", "sin"):
            call: Any = parents[parent] if isinstance(parent, ast.keyword) else parent
            known = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            if known:
                yield call.func.id
        if not known:
            what = ast.unparse(parent).strip()
            raise ValueError(f"{owner.name} computes with its cosines, which copes would not make: {what}")


def _takes_apart(parent: ast.AST) -> bool:
    """What is done with (cos, sin), or with such pairs by types of layers."""
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, int)
    return isinstance(parent, (ast.Attribute, ast.comprehension))


def _source(file: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(file))
    except OSError as error:
        raise ValueError(f"{file.__name__} has no source, which tells where cosines go") from error


def _patches_of(model: nn.Module, file: ModuleType, rotary_types: set[type]) -> list[_Patch]:
    """Of the classes that this model has from a file."""
    owners = {type(module) for module in model.modules() if type(module).__module__ == file.__name__} - rotary_types
    classes = {owner.__name__ for owner in owners}
    found = (node for node in _source(file).body if isinstance(node, ast.ClassDef) and node.name in classes)
    names = sorted({name for owner in found for name in _called_with_cosines(owner)})
    for name in names:
        parameters = inspect.signature(getattr(file, name)).parameters if hasattr(file, name) else ()
        if "cos" not in parameters or "sin" not in parameters:
            raise ValueError(f"{file.__name__} hands its cosines to {name}(), which copes does not know")
    if not names:
        raise ValueError(f"{file.__name__} has no function that applies cosines and sines to tensors")
    return [_Patch.of(file, name) for name in names]


def _learn(patches: list[_Patch], rotary: nn.Module, angles: Angles) -> None:
    known = [patch for patch in patches if patch.learn(angles.layout, len(angles.frequency))]
    if not known:
        names = " and ".join(patch.name for patch in patches)
        raise ValueError(
            f"{names} of {patches[0].file.__name__}: copes does not know how pairs turn by the cosines of "
            f"{type(rotary).__name__}"
        )


def _measure_norms(model: nn.Module, patches: dict[str, list[_Patch]]) -> list[tuple[nn.Module, Norms]]:
    """The modules whose norms of queries and keys qk_norm_rope can compute."""
    found = []
    for module in model.modules():
        known = patches.get(type(module).__module__, [])
        axes = {patch.name: kind.heads_axis for patch in known for kind in patch.kinds.values()}
        if axes:
            norms = _norms.measure(module, known[0].file, axes)
            found += [] if norms is None else [(module, norms)]
    return found


# ---- the function ----------------------------------------------------------------------------------------------------


class Handle:
    """What use() returns: remove(), or the end of a with block, makes the model what it was."""

    def __init__(self, rotaries: list[nn.Module], patches: list[_Patch], undo_norms: list[Callable[[], None]]) -> None:
        self._rotaries, self._patches, self._undo_norms = rotaries, patches, undo_norms
        for patch in patches:
            patch.add_user()

    def remove(self) -> None:
        """Does nothing the second time."""
        for rotary in self._rotaries:
            _restore(rotary)
        for patch in self._patches:
            patch.remove_user()
        for undo in self._undo_norms:
            undo()
        self._rotaries, self._patches, self._undo_norms = [], [], []

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def use(model: nn.Module) -> Handle:
    """Makes a model, or a part of one, turn by copes.lrpe_rotate, or by copes.qk_norm_rope where it norms queries and keys
    just before. Other models are not touched.

    It needs no other call: weights, caches, attention and the model's interface stay. Raises ValueError, and changes
    nothing, where the model has a rotary module, or does something with its cosines, that copes does not know; a part
    of the model can then be given."""
    rotaries = [module for module in model.modules() if _prefixes(module)]
    if not rotaries:
        raise ValueError(f"{type(model).__name__} has no rotary module (one with a buffer inv_freq) that copes knows")
    measured = [_measure_all(rotary) for rotary in rotaries]
    patches: dict[str, list[_Patch]] = {}
    for rotary, angles in zip(rotaries, measured):
        file = sys.modules[type(rotary).__module__]
        if file.__name__ not in patches:
            patches[file.__name__] = _patches_of(model, file, {type(each) for each in rotaries})
        for each in angles.values():
            _learn(patches[file.__name__], rotary, each)
    norms = _measure_norms(model, patches)
    for rotary, angles in zip(rotaries, measured):
        _replace(rotary, angles)
    undo = [_norms.replace(attention, each) for attention, each in norms]
    return Handle(rotaries, [patch for each in patches.values() for patch in each], undo)
