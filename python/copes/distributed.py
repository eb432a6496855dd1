"""Attention over a cache, and softmax over a sequence, that lie on several devices, by torch.distributed.

    tpa_decode       copes.tpa_decode of a cache sharded along its tokens
    attention_merge  copes.attention_merge of shares that each are a rank's
    softmax          copes.act's, along an axis of which each rank has a share
    lrpe_rotate, lrpe_cosine  copes.lrpe_rotate and lrpe_cosine after softmax over a sequence sharded along its tokens

The group is a ProcessGroup, or a DeviceMesh of one dimension (mesh["name"]). Each rank computes on its share, and
what ranks exchange are outputs and their log sum exp, never keys:

    exchange="gather"  every rank gets all shares and merges them: all heads on every rank
    exchange="heads"   every rank gets all shares of its own heads, which an all-to-all brings, and keeps those alone:
                       of H heads and W ranks, heads head_range(H, rank, W)
    exchange="auto"    all heads on every rank, by whichever way has a rank receive fewer bytes of outputs: "gather",
                       W - 1 of them, or "heads" and then a gather of what was merged, 2 (W - 1) / W

Shares are merged in the order of the ranks, so that all ranks end with the same bits, whatever the exchange and in
every run. Collectives begin on the current stream and run on their group's, which the current stream awaits; nothing
waits on the host. With check=True (the default) one small exchange before tells whether the ranks' arguments agree,
which does wait on the host; where they do not, every rank raises, and none is left waiting."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from . import _functions
from ._distributed_check import FAILED, agree, head_range, places, size
from ._distributed_exchange import done, gather, group_of, kinds_of, new_records, pack, unpack
from ._distributed_softmax import lrpe_cosine, lrpe_rotate, softmax
from ._merge import attention_merge as _merge

__all__ = ["attention_merge", "head_range", "lrpe_cosine", "lrpe_rotate", "softmax", "tpa_decode"]

Exchange = Literal["auto", "gather", "heads"]
Shards = Literal["contiguous", "interleaved"]


def _to_owners(x: Tensor, group) -> tuple[Tensor, dist.Work]:
    """Of x (H, ...), each rank's own heads from every rank: (W, own, ...), once the work is done."""
    world, rank, heads = dist.get_world_size(group), dist.get_rank(group), x.shape[0]
    ranges = [head_range(heads, each, world) for each in range(world)]
    own = len(ranges[rank])
    shares = x.new_empty((world, own, *x.shape[1:]))
    sent = [len(each) for each in ranges]
    work = dist.all_to_all_single(shares.flatten(0, 1), x.contiguous(), [own] * world, sent, group, async_op=True)
    return shares, work


def _from_owners(x: Tensor, heads: int, group) -> tuple[Tensor, dist.Work]:
    """The way back of (W, own, ...) to (H, ...): every rank gets what others have for its share."""
    world, own = x.shape[:2]
    got = [len(head_range(heads, each, world)) for each in range(world)]
    back = x.new_empty((heads, *x.shape[2:]))
    work = dist.all_to_all_single(back, x.flatten(0, 1).contiguous(), got, [own] * world, group, async_op=True)
    return back, work


def _all_heads(x: Tensor, heads: int, group) -> Tensor:
    """Of every rank's own heads (own, ...): (H, ...). Ranks that have a head less than others send room for it."""
    world = dist.get_world_size(group)
    lengths = [len(head_range(heads, each, world)) for each in range(world)]
    if lengths[-1] == lengths[0]:
        return done(gather(x, group)).flatten(0, 1)
    padded = x.new_empty((lengths[0], *x.shape[1:]))
    padded[: len(x)] = x
    every = done(gather(padded, group))
    return torch.cat([each[:length] for each, length in zip(every, lengths)])


class _Gathered(torch.autograd.Function):
    """Shares of all ranks. What comes back is the share's own part: _Summed has added up what the ranks had."""

    @staticmethod
    def forward(ctx, group, records, *shares):
        ctx.rank = dist.get_rank(group)
        rows = [x[None] for x in shares]
        records = pack(rows) if records is None else records
        return unpack(done(gather(records[0], group)), kinds_of(rows))

    @staticmethod
    def backward(ctx, *grads):
        return None, None, *(grad[ctx.rank] for grad in grads)


class _Summed(torch.autograd.Function):
    """The merged tensors as they are; back, the sums of all ranks' gradients."""

    @staticmethod
    def forward(ctx, group, *merged):
        ctx.group = group
        return tuple(x.view_as(x) for x in merged)

    @staticmethod
    def backward(ctx, *grads):
        sums = [grad.clone(memory_format=torch.contiguous_format) for grad in grads]
        for work in [dist.all_reduce(each, group=ctx.group, async_op=True) for each in sums]:
            work.wait()
        return None, *sums


class _Exchanged(torch.autograd.Function):
    """(H, ...) of each rank becomes (W, own, ...)."""

    @staticmethod
    def forward(ctx, group, records, *shares):
        ctx.group, ctx.heads = group, shares[0].shape[0]
        records = pack(shares) if records is None else records
        return unpack(done(_to_owners(records, group)), kinds_of(shares))

    @staticmethod
    def backward(ctx, *grads):
        rows = [grad.flatten(0, 1) for grad in grads]
        records = pack(rows).unflatten(0, grads[0].shape[:2])
        return None, None, *unpack(done(_from_owners(records, ctx.heads, ctx.group)), kinds_of(rows))


def _merge_gathered(records, o, lse, group, base):
    o_shares, lse_shares = _Gathered.apply(group, records, o, lse)
    return _Summed.apply(group, *_merge(o_shares, lse_shares, base=base, return_lse=True))


def _merge_own(records, o, lse, group, base):
    """The rank's own heads."""
    o_shares, lse_shares = _Exchanged.apply(group, records, o.movedim(2, 0), lse.movedim(2, 0))
    return _merge(o_shares.movedim(1, 3), lse_shares.movedim(1, 3), base=base, return_lse=True)


class _Assembled(torch.autograd.Function):
    """Every rank's own heads (B, N, own, ...) become all heads; back, the sums of all ranks' gradients of its own."""

    @staticmethod
    def forward(ctx, group, heads, *merged):
        ctx.group, ctx.own = group, head_range(heads, dist.get_rank(group), dist.get_world_size(group))
        own = [x.movedim(2, 0) for x in merged]
        return tuple(x.movedim(0, 2) for x in unpack(_all_heads(pack(own), heads, group), kinds_of(own)))

    @staticmethod
    def backward(ctx, *grads):
        sums = _Summed.backward(ctx, *grads)[1:]
        return None, None, *(grad[:, :, ctx.own.start : ctx.own.stop] for grad in sums)


def _by_heads(exchange: Exchange, heads: int, world: int) -> bool:
    return exchange == "heads" or (exchange == "auto" and world > 2 and heads >= world)


def _exchange(records, o, lse, group, exchange, base, return_lse):
    """`records`: what o and lse are views of, or None where they lie elsewhere."""
    heads, world = o.shape[2], dist.get_world_size(group)
    if not _by_heads(exchange, heads, world):
        merged = _merge_gathered(records, o, lse, group, base)
    else:
        merged = _merge_own(records, o, lse, group, base)
        if exchange == "auto":
            merged = _Assembled.apply(group, heads, *merged)
    return merged if return_lse else merged[0]


def attention_merge(
    o: Tensor,
    lse: Tensor,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    exchange: Exchange = "auto",
    base: Literal["e", "2"] = "e",
    return_lse: bool = False,
    check: bool = True,
):
    """copes.attention_merge of the shares of all ranks: this one's o (B, N, H, E) and lse (B, N, H).

    Returns o, or (o, lse), of all heads or with exchange="heads" of the rank's own. Gradients are of the sum of all
    ranks' losses: where every rank has all heads and the same loss, that is W times it."""
    group = group_of(group)
    if check:
        agree(group, (o, lse), dict(exchange=exchange, base=base, **_sizes("BNHE", o)))
    return _exchange(None, o, lse, group, exchange, base, return_lse)


def _sizes(names: str, x: Tensor) -> dict[str, int]:
    """Of a tensor of another rank, none of them are."""
    return dict(zip(names, x.shape if x.dim() == len(names) else [FAILED] * len(names)))


def _room_of(aq, bv, by_heads):
    """Records, one or one for each head, and in them o (B, N, H, E) and lse (B, N, H)."""
    b, n, h = aq.shape[:3]
    logarithm = torch.float64 if aq.dtype == torch.float64 else torch.float32
    if by_heads:
        kinds = [((b, n, bv.shape[-1]), aq.dtype), ((b, n), logarithm)]
        records = new_records(aq, h, kinds)
        o, lse = (x.movedim(0, 2) for x in unpack(records, kinds))
    else:
        kinds = [((b, n, h, bv.shape[-1]), aq.dtype), ((b, n, h), logarithm)]
        records = new_records(aq, 1, kinds)
        o, lse = (x[0] for x in unpack(records, kinds))
    return records, o, lse


def tpa_decode(
    aq: Tensor,
    ak: Tensor,
    av: Tensor,
    bq: Tensor,
    bk: Tensor,
    bv: Tensor,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    shards: Shards = "contiguous",
    exchange: Exchange = "auto",
    scale: float | None = None,
    scale_q: float | None = None,
    scale_k: float | None = None,
    scale_v: float | None = None,
    kv_len: Tensor | None = None,
    causal: bool = False,
    kv_total: int | None = None,
    return_lse: bool = False,
    check: bool = True,
):
    """copes.tpa_decode over the caches of all ranks: the queries aq and bq are the same on each, ak, av, bk and bv are
    the rank's share of the keys.

    shards    contiguous: the shares follow one another in the order of the ranks, and may have any lengths;
              interleaved: key i of rank r is key r + i W of all, so that lengths differ by one at most
    kv_len    (B), the same on every rank: keys of the whole sequences
    kv_total  keys of all ranks; None or 0: the sum of the shares' lengths. Without `check` all shares must have one length
    check     compare the ranks' arguments first

    Returns o, or (o, lse), of all heads or with exchange="heads" of the rank's own. No gradient."""
    group = group_of(group)
    scales = dict(scale=scale, scale_q=scale_q, scale_k=scale_k, scale_v=scale_v)
    described = dict(
        exchange=exchange,
        shards=shards,
        causal=causal,
        kv_total=kv_total or 0,
        kv_len=kv_len is not None,
        **{name: float(value or 0) for name, value in scales.items()},
        **_sizes("BNHR", aq),
        E=size(bv, -1),
    )
    keys = size(ak, 1)
    table = agree(group, (aq, ak, av, bq, bk, bv), described, keys) if check else None
    where = places(shards, dist.get_rank(group), dist.get_world_size(group), keys, table, kv_total)
    options: dict[str, Any] = dict(kv_len=kv_len, **scales)
    by_heads = _by_heads(exchange, aq.shape[2], dist.get_world_size(group))
    records, o, lse = _room_of(aq, bv, by_heads)
    lse.copy_(
        _functions.tpa_decode(aq, ak, av, bq, bk, bv, causal=causal, return_lse=True, out=o, **options, **where)[1]
    )
    return _exchange(records, o, lse, group, exchange, "e", return_lse)
