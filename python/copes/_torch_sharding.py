"""Which axes of the operators' tensors a DeviceMesh may shard: their rules for DTensor.

_torch_library imports this once there may be a DTensor, so that others do not load torch.distributed.tensor. DTensor
chooses among the rules by what it would have to move, and moves it. What it has no public way for is in _run(): an attribute
that differs between ranks, as the position of a shard's first token does, and caches that are written to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor.experimental import register_sharding

from . import _torch_merge, _torch_qk, _torch_shares  # noqa: F401 (they define the operators)
from ._torch_library import OPERATORS
from ._torch_lrpe import SEQUENCE

_TOKENS = 1  # their axis in x and q
_WHOLE = "."  # an axis that no dimension of the mesh shards


class _Rule(NamedTuple):
    """axes      a letter for each axis of the tensor arguments, B batch, N tokens, H heads, G those of keys, S shares;
                 of several, the one of the tensor's rank. None: elementwise but for attribute `dim`, whatever the rank
    results   the argument whose axes a result has, or these; after + those over which a rank's own is a part of the sum
    groups    of the call's arguments: letters that a dimension of the mesh may shard, those of a group together"""

    axes: Mapping[str, str] | None
    results: tuple[str, ...]
    groups: Callable[[Mapping[str, Any]], Iterable[str]]


# ---- which axes ------------------------------------------------------------------------------------------------------

_ANY = "abcdefgh"
_ANGLES = {"theta": "mHK HK", "positions": "mBN BN N", "offsets": "B"}
_X = "BNHD BND"
_LRPE = {"x": _X, "grad_o": _X, "lse": "BHD", "delta": "BHD", **_ANGLES}
_Q, _K, _CACHE = "BNHD", "BNGD", "PSGD"
_QK = {"q": _Q, "k": _K, "wq": "HD D", "wk": "GD D", "grad_q_out": _Q, "grad_k_out": _K, **_ANGLES}
_QK_CACHE = {"v": _K, "slots": "BN", "k_scale": "G", "v_scale": "G", **_QK}
_HEAD, _FEATURE = "BMHR BMH", "BMRD BMD"
_TPA = {"aq": "BNHR", "bq": "BNRD", "ak": _HEAD, "bk": _FEATURE, "av": _HEAD, "bv": _FEATURE, "kv_len": "B"}
_MERGE = {"o_shares": "SBNHE", "lse_shares": "SBNH", "grad_o": "BNHE", "grad_lse": "BNH"}

# What asks for a result that may not be wanted.
_FLAGS = {"k": "return_k", "wq": "weights", "wk": "weights", "lse_shares": "of_lse"}


def _act_groups(a):
    softmax = a.get("act", "softmax") == "softmax"
    x = a["x"] if a.get("x") is not None else a["grad_o"]
    return [letter for letter in _ANY[: x.ndim] if not softmax or letter != _ANY[a["dim"] % x.ndim]]


def _mask_groups(a):
    """A mask's bytes hold elements along the last axis, which is not sharded."""
    return _ANY[: next(iter(a.values())).ndim - 1]


def _all_axes(a):
    return _ANY


def _token_groups(a):
    """A shard of tokens is a line of its own, or knows its positions."""
    line = not a["prefix"] and not a["suffix"] and len(a["grid"] or ()) < 2
    return ["N"] if line or a["positions"] is not None else []


def _lrpe_groups(a):
    along_sequence = a["act"] == "softmax" and a["dim"] in SEQUENCE
    return ["B", "H", *([] if along_sequence else _token_groups(a))]


def _share_groups(a):
    return ["B", "H", *_token_groups(a)]


def _head_groups(a):
    if a["norm_over"] != "head":
        return []
    if a.get("k") is None and a.get("grad_k_out") is None:
        return ["H"]
    own = a["theta"].ndim > 1 and a["theta"].shape[-2] > 1  # a theta for each head of both
    return ["HG"] if own else ["HG", "H", "G"]


def _qk_groups(a):
    return ["B", *_token_groups(a), *_head_groups(a)]


def _tpa_groups(a):
    return "BH" if a["causal"] else "BHN"


def _merge_groups(a):
    """Of lse_shares' gradient a rank's features have a part, but of grad_lse each has the whole."""
    return "BNH" if a.get("of_lse") and a["grad_lse"] is not None else "BNHE"


_RULES = {
    "act": _Rule(None, ("x",), _act_groups),
    "act_backward": _Rule(None, ("grad_o",), _act_groups),
    "relu_mask": _Rule(None, ("x", "x"), _mask_groups),
    "relu_mask_backward": _Rule(None, ("grad_o",), _mask_groups),
    "softmax_lse": _Rule(None, ("x",), _act_groups),
    "softmax_of_lse": _Rule(None, ("x",), _all_axes),
    "softmax_delta": _Rule(None, ("o+dim",), _all_axes),
    "softmax_of_delta": _Rule(None, ("grad_o",), _all_axes),
    "lrpe": _Rule(_LRPE, ("x",), _lrpe_groups),
    "lrpe_lse": _Rule(_LRPE, ("x", "BHD"), _lrpe_groups),
    "lrpe_backward": _Rule(_LRPE, ("grad_o",), _lrpe_groups),
    "lrpe_backward_theta": _Rule(_LRPE, ("grad_o", "theta+BNH"), _lrpe_groups),
    "lrpe_of_lse": _Rule(_LRPE, ("x",), _share_groups),
    "lrpe_delta": _Rule(_LRPE, ("lse+N",), _share_groups),
    "lrpe_of_delta": _Rule(_LRPE, ("x",), _share_groups),
    "lrpe_of_delta_theta": _Rule(_LRPE, ("x", "theta+BNH"), _share_groups),
    "qk_norm_rope": _Rule(_QK, ("q", "k"), _qk_groups),
    "qk_norm_rope_cache": _Rule(_QK_CACHE, ("q", "k"), _head_groups),
    "qk_norm_rope_backward": _Rule(_QK, ("grad_q_out", "grad_k_out", "wq+BNH", "wk+BNG"), _qk_groups),
    "tpa_decode": _Rule(_TPA, ("BNHE",), _tpa_groups),
    "tpa_decode_lse": _Rule(_TPA, ("BNHE", "BNH"), _tpa_groups),
    "attention_merge": _Rule(_MERGE, ("BNHE",), _merge_groups),
    "attention_merge_lse": _Rule(_MERGE, ("BNHE", "BNH"), _merge_groups),
    "attention_merge_backward": _Rule(_MERGE, ("SBNHE", "lse_shares+E"), _merge_groups),
}


# ---- what DTensor asks for -------------------------------------------------------------------------------------------


def _axes(rule: _Rule, a: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, int | None]]:
    """The letters of each tensor's axes, and their lengths: None where tensors differ. Where one has length 1 for others'
    more, as a theta for all heads, it is every rank's."""
    axes: dict[str, str] = {}
    lengths: dict[str, int | None] = {}
    for name, x in a.items():
        if not hasattr(x, "placements"):
            continue
        patterns = {len(each): each for each in (_ANY[: x.ndim] if rule.axes is None else rule.axes[name]).split()}
        axes[name] = patterns.get(x.ndim, _WHOLE * x.ndim)  # of another rank: the library says what is wrong
        for letter, size in zip(axes[name], x.shape):
            known = lengths.get(letter, 1)
            lengths[letter] = size if known == 1 else known if size in (1, known) else None
    for name, letters in axes.items():
        own = zip(letters, a[name].shape)
        axes[name] = "".join(letter if size == lengths[letter] else _WHOLE for letter, size in own)
    return axes, lengths


def _result(rule: _Rule, result: str, a: Mapping[str, Any], axes: Mapping[str, str]) -> tuple[str, str]:
    """The axes of a result, and those that it is a sum over; neither of one that there is not."""
    name, _, sums = result.partition("+")
    if not name.islower():
        return name, sums
    if name not in axes or not a.get(_FLAGS.get(name, ""), True):
        return "", ""
    letters = axes[name]
    if sums == "dim":
        sums = letters[a["dim"]]
        return letters.replace(sums, _WHOLE), sums
    return letters, sums


def _place(group: str, letters: str, sums: str = "") -> Placement:
    for letter in group:
        if letter in letters:
            return Shard(letters.index(letter))
    return Partial() if any(letter in sums for letter in group) else Replicate()


def _placements(rule: _Rule, names: list[str], *values, **caches) -> list[tuple[list, list]]:
    """The results' and the inputs' placements that a dimension of the mesh may have, as register_sharding asks for them."""
    a = dict(zip(names, values))
    axes, lengths = _axes(rule, a)
    results = [_result(rule, each, a, axes) for each in rule.results]
    groups = [group for group in rule.groups(a) if all(lengths.get(letter) is not None for letter in group)]
    return [
        ([_place(group, *each) for each in results], [_place(group, each) for each in axes.values()])
        for group in ["", *groups]
    ]


# ---- what differs between ranks --------------------------------------------------------------------------------------


def _first_token(spec) -> int | None:
    """Of the rank's shard, among all. None: it has all. (PyTorch's own function makes tensors, which torch.compile traces.)"""
    sharded = [i for i, each in enumerate(spec.placements) if each == Shard(_TOKENS)]
    first, count = 0, spec.shape[_TOKENS]
    for i in sharded:
        chunk = -(-count // spec.mesh.size(i))
        begin = torch.sym_min(chunk * spec.mesh.get_coordinate()[i], count)
        first, count = first + begin, torch.sym_min(chunk, count - begin)
    return first if sharded else None


def _local_caches(placements, caches: Mapping[str, Any]) -> dict[str, Any]:
    """They go where the keys' heads are. They are not moved, as what is written would be lost."""
    wanted = tuple(Shard(_CACHE.index("G")) if each.is_shard() else Replicate() for each in placements)
    for name, cache in caches.items():
        if cache is not None and getattr(cache, "placements", None) != wanted:
            where = f"placed as {cache.placements}" if isinstance(cache, DTensor) else f"a {type(cache)}"
            raise ValueError(f"{name} is {where}; beside keys placed as {placements} it must be a DTensor of {wanted}")
    return {name: cache if cache is None else cache._local_tensor for name, cache in caches.items()}


def _run(op, args, kwargs):
    """The operator on shards. As offset is not in what DTensor is asked, its answer serves every step of decoding."""
    a = dict(zip(_names(op), args))
    dispatcher = DTensor._op_dispatcher
    info = dispatcher.unwrap_to_op_info(op, tuple({**a, "offset": None}.values()), dict.fromkeys(kwargs))
    dispatcher.sharding_propagator.propagate(info)
    sharding, schema = info.output_sharding, info.schema
    if info.compute_mesh.get_coordinate() is None:  # this rank is not in the mesh
        return dispatcher.wrap(_nothing(sharding.output_spec), sharding.output_spec)
    if sharding.needs_redistribute:
        schema = sharding.redistribute_schema
        dispatcher.redistribute_local_args(info, schema, False)
    specs = dict(zip((name for name, x in a.items() if isinstance(x, Tensor)), schema.args_spec))
    local = {**dict(zip(a, info.local_args)), "offset": a["offset"]}
    x = next(specs[name] for name in ("x", "grad_o", "q", "grad_q_out") if name in specs)
    first = _first_token(x)
    if first is not None and a["positions"] is None:
        local.update(grid=None, offset=[each + first for each in a["offset"] or (0,)])
    caches = _local_caches(specs.get("k", x).placements, kwargs)
    return dispatcher.wrap(op(*local.values(), **caches), sharding.output_spec)


def _nothing(spec):
    """What DTensor has where the mesh is not."""
    if isinstance(spec, tuple):
        return tuple(map(_nothing, spec))
    return torch.empty(0, dtype=spec.tensor_meta.dtype)


def _refuse_out(op, args, kwargs):
    raise NotImplementedError(f"{op}: a tensor is a DTensor; out must be None, and the result is a new DTensor")


# ---- registration ----------------------------------------------------------------------------------------------------


@functools.cache
def _names(op) -> list[str]:
    return [argument.name for argument in op._schema.arguments if not argument.kwarg_only]


def _register() -> None:
    dispatcher = DTensor._op_dispatcher
    for name, rule in _RULES.items():
        packet = getattr(OPERATORS, name)
        op = packet.default
        register_sharding(op)(functools.partial(_placements, rule, _names(op)))
        # register_sharding keeps an answer for all calls that differ before the first integer only, as in the name of act.
        count = sum("Tensor" in str(argument.type) for argument in op._schema.arguments if not argument.kwarg_only)
        dispatcher.sharding_propagator.op_to_schema_info[op] = RuntimeSchemaInfo(count)
        if "offset" in _names(op):
            dispatcher._custom_op_handlers[op] = _run
        if "out" in packet.overloads():
            dispatcher._custom_op_handlers[packet.out] = _refuse_out


_register()
