"""Softmax over a sequence that lies on several devices, alone and before an encoding. Of each column ranks exchange one number
each way: its log sum exp, and the sum that the gradient subtracts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from . import _torch_shares as shares
from ._distributed_check import FAILED, agree
from ._distributed_exchange import done, gather, group_of
from ._merge import attention_merge
from ._torch_lrpe import explicit

Order = Literal["contiguous", "zigzag"]


def _lse_of_all(lse: Tensor, group) -> Tensor:
    """Of each rank's, in the order of ranks: the reduction of attention over outputs of no features."""
    every = done(gather(lse, group)).reshape(dist.get_world_size(group), 1, 1, -1)
    return attention_merge(every[..., None][..., :0], every, return_lse=True)[1].reshape(lse.shape)


def _sum_of_all(x: Tensor, group) -> Tensor:
    """In the order of ranks, so that all have the same bits."""
    total, *others = done(gather(x, group)).unbind()
    for each in others:
        total = total + each
    return total


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, dim):
        ctx.group, ctx.dim = group, dim
        o = shares.compute_of_lse(x, _lse_of_all(shares.compute_lse(x, dim), group), dim)
        ctx.save_for_backward(o)
        return o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_o):
        (o,) = ctx.saved_tensors
        delta = _sum_of_all(shares.delta(o, grad_o, ctx.dim), ctx.group)
        return None, shares.of_delta(o, grad_o, delta, ctx.dim), None


class _Lrpe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, x, theta, positions, offsets, *attributes):
        ctx.group, ctx.attributes = group, attributes
        lse = shares.compute_lse(x, 1)
        lse = _lse_of_all(lse[:, 0] if x.dim() == 4 else lse, group)
        ctx.save_for_backward(x, theta, positions, offsets, lse)
        return shares.compute_lrpe_of_lse(x, theta, positions, offsets, lse, *attributes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_o):
        *inputs, lse = ctx.saved_tensors
        delta = _sum_of_all(shares.lrpe_delta(*inputs, grad_o, lse, *ctx.attributes), ctx.group)
        learns = ctx.needs_input_grad[2]
        made = (shares.lrpe_of_delta_theta if learns else shares.lrpe_of_delta)(
            *inputs, grad_o, lse, delta, *ctx.attributes
        )
        grad_x, grad_theta = made if learns else (made, None)
        return None, grad_x, grad_theta, None, None, *(None,) * len(ctx.attributes)


def softmax(
    x: Tensor, dim: int = 1, *, group: dist.ProcessGroup | DeviceMesh | None = None, check: bool = True
) -> Tensor:
    """copes.act(x, "softmax", dim) of a tensor whose axis dim lies on the ranks: x is the rank's share, of any length there,
    0 too, and of the same lengths elsewhere. The order of shares is no matter.

    Returns the rank's share of the result. Gradients are of the sum of all ranks' losses."""
    group = group_of(group)
    if check:
        axis = dim % x.dim() if -x.dim() <= dim < x.dim() else FAILED
        lengths = [*x.shape, *(0,) * (8 - x.dim())]
        sizes = {f"x.shape[{i}]": 0 if i == axis else length for i, length in enumerate(lengths)}
        agree(group, (x,), {"x.dim()": x.dim(), "dim": axis, **sizes})
    return _Softmax.apply(group, x, dim)


def _place(order: Order, rank: int, lengths: list[int]) -> list[range]:
    """Of this rank's tokens among all."""
    if order == "contiguous":
        first = sum(lengths[:rank])
        return [range(first, first + lengths[rank])]
    if len(set(lengths)) > 1 or lengths[0] % 2 != 0:
        raise ValueError(f"ranks have {lengths} tokens; in zigzag order all must have as many, an even number")
    half, world = lengths[0] // 2, len(lengths)
    return [range(chunk * half, (chunk + 1) * half) for chunk in (rank, 2 * world - 1 - rank)]


def _where(x, positions, offsets, offset, order, rank, lengths):
    """positions, offsets and offset of the rank's tokens."""
    places = _place(order, rank, lengths)
    if positions is not None:
        return positions, offsets, offset
    if order == "contiguous":
        return None, offsets, offset + places[0].start
    tokens = torch.cat([torch.arange(each.start, each.stop, device=x.device) for each in places])
    return tokens if offsets is None else tokens + offsets[:, None], None, offset


def lrpe(x, theta, positions, offsets, offset, group, order, check, variant, pairing, attributes):
    group = group_of(group)
    world = dist.get_world_size(group)
    shape = x.shape if x.dim() in (3, 4) else [FAILED] * 3
    lengths = [shape[1]] * world
    if check:
        sizes = {"B": shape[0], "H": shape[2] if len(shape) == 4 else 1, "D": shape[-1]}
        lengths = agree(group, (x,), {"order": order, "x.dim()": x.dim(), **sizes}, shape[1])
    positions, offsets, offset = _where(x, positions, offsets, offset, order, dist.get_rank(group), lengths)
    attributes = explicit(variant, pairing, "softmax", 1, None, offset, 0, 0, *attributes)
    return _Lrpe.apply(group, x, theta, positions, offsets, *attributes)


def lrpe_rotate(
    x: Tensor,
    theta: Tensor,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    order: Order = "contiguous",
    positions: Tensor | None = None,
    offsets: Tensor | None = None,
    offset: int = 0,
    sections: Sequence[int] | None = None,
    rotary_dim: int | None = None,
    rotary_begin: int = 0,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    pairing: Literal["half", "interleaved"] = "half",
    check: bool = True,
) -> Tensor:
    """copes.lrpe_rotate after softmax over a sequence whose tokens lie on the ranks: x, (B, N, H, D) or (B, N, D), has this one's.

    order      contiguous: the shares follow one another in the order of ranks, and may have any lengths; zigzag: the
               sequence is 2 W chunks of one length, of which rank r has r and 2 W - 1 - r, as in ring attention. Without
               `check` all shares must have one length
    positions  of the rank's tokens, in place of those that follow from the order
    offset, offsets  added to the positions of the whole sequence
    check      compare the ranks' arguments first

    Returns the rank's share of the result. Gradients are of the sum of all ranks' losses; that of theta is the rank's
    part, which the caller adds up, as DistributedDataParallel does for a parameter."""
    attributes = (sections, rotary_dim, rotary_begin, amplitude, inverse, pad_theta)
    return lrpe(x, theta, positions, offsets, offset, group, order, check, "rotate", pairing, attributes)


def lrpe_cosine(
    x: Tensor,
    theta: Tensor,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    order: Order = "contiguous",
    positions: Tensor | None = None,
    offsets: Tensor | None = None,
    offset: int = 0,
    sections: Sequence[int] | None = None,
    amplitude: float | None = None,
    inverse: bool = False,
    pad_theta: bool = False,
    check: bool = True,
) -> Tensor:
    """copes.lrpe_cosine after softmax over a sequence whose tokens lie on the ranks; arguments are lrpe_rotate's here."""
    attributes = (sections, None, 0, amplitude, inverse, pad_theta)
    return lrpe(x, theta, positions, offsets, offset, group, order, check, "cosine", "half", attributes)
