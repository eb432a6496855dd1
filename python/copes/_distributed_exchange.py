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


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Records (n, bytes) of tensors (n, ...), one after another, as one collective takes less time than two."""
    parts = []
    for x in tensors:
        data = x.flatten(1).contiguous().view(torch.uint8)
        parts += [data, data.new_empty((len(x), _room(x.shape[1:], x.dtype) - data.shape[1]))]
    return torch.cat(parts, dim=1)


def unpack(records: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of records (..., bytes): (..., shape) for tensors (n, shape) that were packed."""
    views, begin = [], 0
    for x in like:
        shape = x.shape[1:]
        data = records[..., begin : begin + shape.numel() * x.element_size()]
        views.append(data.view(x.dtype).unflatten(-1, shape) if shape else data.view(x.dtype)[..., 0])
        begin += _room(shape, x.dtype)
    return tuple(views)
