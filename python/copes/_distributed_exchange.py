"""How ranks exchange tensors: what the functions of copes.distributed share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ._distributed_check import all_gather


def group_of(group: dist.ProcessGroup | DeviceMesh | None) -> dist.ProcessGroup:
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(f"group is a mesh of {group.ndim} dimensions; it must have 1: mesh[name]")
        return group.get_group()
    return dist.distributed_c10d._get_default_group() if group is None else group


def gather(x: Tensor, group) -> tuple[Tensor, dist.Work]:
    """(W, *x.shape), once the work is done."""
    shares = x.new_empty((dist.get_world_size(group), *x.shape))
    return shares, all_gather(shares, x.contiguous(), group, async_op=True)


def done(pending: tuple[Tensor, dist.Work]) -> Tensor:
    """The tensor, for what is enqueued on the current stream after this."""
    pending[1].wait()
    return pending[0]


RECORD = 16  # bytes that a record's tensors begin at a multiple of, so that kernels read whole vectors of them


def _room(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Bytes of a tensor and what follows it in a record."""
    return -(-torch.Size(shape).numel() * dtype.itemsize // RECORD) * RECORD


def unpack(records: Tensor, kinds: Sequence[tuple[Sequence[int], torch.dtype]]) -> tuple[Tensor, ...]:
    """Views (..., *shape) of records (..., bytes) that have a tensor of each shape and type, one after another."""
    views, begin = [], 0
    for shape, dtype in kinds:
        data = records[..., begin : begin + torch.Size(shape).numel() * dtype.itemsize].view(dtype)
        views.append(data.unflatten(-1, shape) if len(shape) > 0 else data[..., 0])
        begin += _room(shape, dtype)
    return tuple(views)


def new_records(like: Tensor, count: int, kinds: Sequence[tuple[Sequence[int], torch.dtype]]) -> Tensor:
    """Records on the device of `like`, of one collective, which takes less time than one for each tensor."""
    return like.new_empty((count, sum(_room(*kind) for kind in kinds)), dtype=torch.uint8)


def kinds_of(tensors: Sequence[Tensor]) -> list[tuple[Sequence[int], torch.dtype]]:
    """Of tensors (n, *shape), which have a part in each of n records."""
    return [(x.shape[1:], x.dtype) for x in tensors]


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Records (n, bytes) of tensors (n, *shape)."""
    kinds = kinds_of(tensors)
    records = new_records(tensors[0], len(tensors[0]), kinds)
    for room, x in zip(unpack(records, kinds), tensors, strict=True):
        room.copy_(x)
    return records
