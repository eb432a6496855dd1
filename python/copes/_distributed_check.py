"""What ranks tell each other before they exchange tensors: a disagreement is an error on every rank, and hangs none."""

from __future__ import annotations

import struct

import torch
import torch.distributed as dist
from torch import Tensor

FAILED = -(2**63)  # in place of a size that a tensor does not have, or of no choice

GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"  # its older name

_CHOICES = {
    "exchange": ("auto", "gather", "heads"),
    "shards": ("contiguous", "interleaved"),
    "base": ("e", "2"),
    "order": ("contiguous", "zigzag"),
}


def head_range(heads: int, rank: int, world: int) -> range:
    """The heads of a rank: neighbours, and as many as others have, or one more for the first ranks."""
    each, more = divmod(heads, world)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))


def all_gather(every: Tensor, x: Tensor, group, *, async_op: bool = False):
    """Every rank's x (...) into (W, ...)."""
    return getattr(dist, GATHER)(every.flatten(0, 1) if x.dim() > 0 else every, x, group, async_op=async_op)


def size(x: Tensor, axis: int) -> int:
    """Of an axis that x may not have."""
    return x.shape[axis] if -x.dim() <= axis < x.dim() else FAILED


def _number(name: str, value) -> int:
    """An argument as it is compared, a float by its bits; FAILED where it is none of its choices."""
    choices = _CHOICES.get(name)
    if choices is not None:
        return choices.index(value) if value in choices else FAILED
    return struct.unpack("<q", struct.pack("<d", value))[0] if isinstance(value, float) else int(value)


def _dtypes() -> list[torch.dtype]:
    return [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def _refuse_devices(group, tensors: tuple[Tensor, ...]) -> None:
    taken = sorted({device.type for device in group._device_types})
    for x in tensors:
        if x.device.type not in taken:
            raise ValueError(f"a tensor is on {x.device}; the group's collectives are for {' and '.join(taken)}")


def agree(group, tensors: tuple[Tensor, ...], described: dict, keys: int = 0) -> list[int]:
    """Raises on every rank where one has other arguments or sizes than rank 0, or a bad one. Returns the ranks' `keys`,
    which alone may differ."""
    _refuse_devices(group, tensors)
    dtype = tensors[0].dtype
    names = [*described, "dtype", "keys"]
    numbers = [_number(name, value) for name, value in described.items()]
    numbers.append(_dtypes().index(dtype) if dtype in _dtypes() else FAILED)
    mine = torch.tensor([*numbers, keys], device=tensors[0].device)
    every = mine.new_empty((dist.get_world_size(group), len(mine)))
    all_gather(every, mine, group)
    columns = every.t().tolist()
    for name, column in zip(names, columns):
        value = described.get(name, dtype)
        if FAILED in column:
            raise ValueError(_bad(name, column.index(FAILED), dist.get_rank(group), value))
        if name != "keys" and len(set(column)) > 1:
            raise ValueError(f"{name} differs between ranks: {_said(name, column, value)}; it must be the same on all")
    return columns[-1]


def _bad(name: str, culprit: int, rank: int, value) -> str:
    if culprit != rank:
        return f"{name} is one that rank {culprit} may not pass"
    choices = _CHOICES.get(name)
    if choices is None:
        return f"dtype is {value}; it must be a floating type" if name == "dtype" else f"{name}: a tensor's rank is wrong"
    return f"{name} is {value!r}; it must be one of {', '.join(choices)}"


def _said(name: str, column: list[int], value) -> str:
    words = tuple(map(str, _dtypes())) if name == "dtype" else _CHOICES.get(name)
    said: list = column if words is None else [words[number] for number in column]
    if isinstance(value, float):
        said = [struct.unpack("<d", struct.pack("<q", number))[0] for number in column]
    return ", ".join(f"{each} on rank {rank}" for rank, each in enumerate(said))


def places(shards: str, rank: int, world: int, keys: int, all_keys: list[int] | None, total: int | None) -> dict:
    """kv_first, kv_stride and kv_total of a rank's share; without `all_keys` every rank has as many. Every rank that
    has `all_keys` raises where the shares do not fit together."""
    if all_keys is None:
        all_keys = [keys] * world
    whole = sum(all_keys)
    if total and whole > total:
        raise ValueError(f"kv_total is {total}; the ranks' shares have {' + '.join(map(str, all_keys))} keys")
    if shards == "interleaved":
        wanted = [len(range(each, whole, world)) for each in range(world)]
        if all_keys != wanted:
            raise ValueError(f"ranks have {all_keys} keys; interleaved shares of {whole} must have {wanted}")
        first, stride = rank, world
    else:
        first, stride = sum(all_keys[:rank]), 1
    return {"kv_first": first, "kv_stride": stride, "kv_total": (total or whole) or None}
