"""How ranks exchange tensors: what the functions of copes.distributed share."""

from __future__ import annotations

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
