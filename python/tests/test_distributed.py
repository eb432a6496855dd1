"""copes.distributed by 2, 3 and 4 processes over gloo, against the reference of one process in float64: values,
gradients, the same bits on every rank, how many collectives there are, and what becomes of ranks that disagree or fail."""

import collections
import datetime
import functools
import time

import copes
import pytest
import reference
import torch
import torch.distributed as dist
import torch.multiprocessing
from test_tpa import make

LENGTHS = (7, 0, 12, 3)  # of contiguous shares: unequal ones, and an empty one
WORLDS = [2, 3, 4]

# Ranks are forks of a process that has imported these once.
torch.multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "copes.distributed", "pytest"])


def start(rank, world, folder, task, timeout):
    """In a process of its own."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=limit)
    task(rank, world)
    dist.destroy_process_group()


def run(tmp_path, world, task, timeout=60):
    torch.multiprocessing.start_processes(
        start, (world, tmp_path, task, timeout), nprocs=world, start_method="forkserver"
    )


def pieces(shards, world, total=None):
    """The keys of each rank, as slices of all."""
    if shards == "interleaved":
        return [slice(rank, total, world) for rank in range(world)]
    ends = [sum(LENGTHS[: rank + 1]) for rank in range(world)]
    return [slice(end - length, end) for end, length in zip(ends, LENGTHS)]


def share_of(factors, keys):
    aq, ak, av, bq, bk, bv = factors
    return aq, ak[:, keys], av[:, keys], bq, bk[:, keys], bv[:, keys]


def same_everywhere(x):
    """Are the bits those of every rank?"""
    bits = x.contiguous().flatten().view(torch.uint8)
    every = bits.new_empty((dist.get_world_size(), len(bits)))
    dist.all_gather(list(every), bits)
    return bool((every == bits).all())


def own_heads(x, rank, world):
    own = copes.distributed.head_range(x.shape[2], rank, world)
    return x[:, :, own.start : own.stop]


# ---- values ----------------------------------------------------------------------------------------------------------


def decode(rank, world, dtype, heads, shards, **options):
    total = sum(LENGTHS[:world])
    factors = make("cpu", dtype, n=3, m=total, h=heads)
    mine = share_of(factors, pieces(shards, world, total)[rank])
    expected = reference.tpa_decode(*factors, **options)
    ways = {}
    for exchange in ("gather", "heads", "auto"):
        made = copes.distributed.tpa_decode(*mine, shards=shards, exchange=exchange, return_lse=True, **options)
        wanted = [own_heads(x, rank, world) if exchange == "heads" else x for x in expected]
        unit = 2**-6 if dtype == torch.bfloat16 else 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(made[0].double(), wanted[0], rtol=unit, atol=unit)
        torch.testing.assert_close(made[1].double(), wanted[1], rtol=1e-5, atol=1e-5)
        ways[exchange] = made
    assert all(map(same_everywhere, ways["gather"]))
    for gathered, own, auto in zip(*ways.values()):
        assert torch.equal(gathered, auto) and torch.equal(own_heads(gathered, rank, world), own)


def decode_all(rank, world):
    lengths = torch.tensor([sum(LENGTHS[:world]), 5], dtype=torch.int32)
    for shards in ("contiguous", "interleaved"):
        for dtype, heads in ((torch.float32, 8), (torch.bfloat16, 5), (torch.float64, 3)):
            decode(rank, world, dtype, heads, shards)
            decode(rank, world, dtype, heads, shards, causal=True, kv_len=lengths)
    decode(rank, world, torch.float32, 4, "contiguous", causal=True, scale=0.2, kv_total=40)
    decode(rank, world, torch.float32, 4, "interleaved", kv_total=0)


def decode_on_a_mesh(rank, world):
    mesh = dist.device_mesh.init_device_mesh("cpu", (world, 1), mesh_dim_names=("cache", "other"))
    total = 6 * world
    factors = make("cpu", torch.float32, m=total)
    mine = share_of(factors, slice(6 * rank, 6 * rank + 6))
    o = copes.distributed.tpa_decode(*mine, group=mesh["cache"])
    torch.testing.assert_close(o.double(), reference.tpa_decode(*factors)[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(o, copes.distributed.tpa_decode(*mine, check=False))
    with pytest.raises(ValueError, match="group is a mesh of 2 dimensions"):
        copes.distributed.tpa_decode(*mine, group=mesh)


# ---- gradients -------------------------------------------------------------------------------------------------------


def gradients(rank, world, exchange, base):
    torch.manual_seed(1)
    shape = (world, 2, 3, 5, 8)
    o, lse = (torch.randn(each, dtype=torch.float64) for each in (shape, shape[:-1]))
    lse[0, 0] = -torch.inf
    slopes = torch.randn(shape, dtype=torch.float64), torch.randn(shape[:-1], dtype=torch.float64)
    leaves = [x.requires_grad_() for x in (o, lse)]
    merged = reference.attention_merge(*leaves, base)
    loss = 0
    for each in range(world):  # the ranks' losses differ, and gradients are of their sum
        parts = [own_heads(x[each], each, world) if exchange == "heads" else x[each] for x in slopes]
        outs = [own_heads(x, each, world) if exchange == "heads" else x for x in merged]
        loss = loss + sum((x * slope).sum() for x, slope in zip(outs, parts))
        if each == rank:
            own_slopes, own_outs = parts, outs
    wanted = [grad[rank].nan_to_num(0) for grad in torch.autograd.grad(loss, leaves)]
    mine = [x[rank].detach().clone().requires_grad_() for x in (o, lse)]
    made = copes.distributed.attention_merge(*mine, exchange=exchange, base=base, return_lse=True)
    for x, expected in zip(made, own_outs):
        torch.testing.assert_close(x, expected, rtol=1e-12, atol=1e-12)
    got = torch.autograd.grad(sum((x * slope).sum() for x, slope in zip(made, own_slopes)), mine)
    torch.testing.assert_close(got, tuple(wanted), rtol=1e-11, atol=1e-11)


def all_gradients(rank, world):
    for exchange in ("gather", "heads", "auto"):
        for base in ("e", "2"):
            gradients(rank, world, exchange, base)


# ---- collectives -----------------------------------------------------------------------------------------------------


def counted(call):
    """How often each collective begins."""
    counts, gather = collections.Counter(), copes._distributed_check.GATHER
    names = (gather, "all_gather", "all_to_all_single", "all_reduce")
    kept = {name: getattr(dist, name) for name in names}

    def counting(name, *arguments, **keywords):
        counts[name] += 1
        return kept[name](*arguments, **keywords)

    for name in names:
        setattr(dist, name, functools.partial(counting, name))
    try:
        call()
    finally:
        for name, function in kept.items():
            setattr(dist, name, function)
    return {"gather" if name == gather else name: count for name, count in counts.items()}


def collectives(rank, world):
    mine = make("cpu", torch.float32, m=6, h=4 * world)
    decode = functools.partial(copes.distributed.tpa_decode, *mine)
    assert counted(lambda: decode(exchange="gather", check=False)) == {"gather": 1}
    assert counted(lambda: decode(exchange="gather")) == {"gather": 2}
    assert counted(lambda: decode(exchange="heads", check=False)) == {"all_to_all_single": 1}
    few = {"gather": 1}
    assert counted(lambda: decode(check=False)) == (few if world == 2 else {"all_to_all_single": 1, **few})
    o, lse = torch.randn(2, 1, 4, 8, requires_grad=True), torch.randn(2, 1, 4)
    made = copes.distributed.attention_merge(o, lse, exchange="gather", check=False)
    assert counted(lambda: made.sum().backward()) == {"all_reduce": 2}


# ---- bad input -------------------------------------------------------------------------------------------------------


def disagreements(rank, world):
    """Every rank raises, and the group goes on."""
    odd = rank == world - 1
    good = functools.partial(make, "cpu", m=6)
    decode, f32 = copes.distributed.tpa_decode, torch.float32

    def refuses(message, factors, **options):
        with pytest.raises(ValueError, match=message):
            decode(*factors, **options)
        decode(*good(f32))

    refuses(r"H differs between ranks: 6 on rank 0, .*8 on rank", good(f32, h=8 if odd else 6))
    refuses("dtype differs between ranks: torch.float32 on rank 0", good(torch.bfloat16 if odd else f32))
    refuses("exchange is", good(f32), exchange="ring" if odd else "auto")
    refuses("causal differs between ranks: 0 on rank 0", good(f32), causal=odd)
    aq, *others = good(f32)
    refuses("B: a tensor's rank is wrong|B is one that rank", [aq[0] if odd else aq, *others])
    aq, ak, av, bq, bk, bv = good(f32)
    refuses("E: a tensor's rank is wrong|E is one that rank", [aq, ak, av, bq, bk, bv[0, 0, 0, 0] if odd else bv])
    refuses("keys: a tensor's rank is wrong|keys is one that rank", [aq, ak[0, :, 0, 0] if odd else ak, av, bq, bk, bv])
    refuses(r"scale_k differs between ranks: 0\.5 on rank 0, .*0\.25 on rank", good(f32), scale_k=0.25 if odd else 0.5)
    refuses("kv_total is 11; the ranks' shares have 6", good(f32), kv_total=11)
    refuses("kv_total is -1; the ranks' shares have 6", good(f32), kv_total=-1)
    refuses("interleaved shares of", good(f32) if odd else make("cpu", f32, m=5), shards="interleaved")
    refuses("a tensor is on meta; the group's collectives are for ", [x.to("meta") for x in good(f32)])
    with pytest.raises(ValueError, match="E differs between ranks: 8 on rank 0"):
        copes.distributed.attention_merge(torch.randn(1, 1, 2, 9 if odd else 8), torch.randn(1, 1, 2))


def failing(rank, world):
    """One rank never comes to the call: the others end within the group's timeout."""
    began = time.monotonic()
    for exchange, check in (("gather", True), ("heads", False)):
        group = dist.new_group(timeout=datetime.timedelta(seconds=2))
        began = time.monotonic()
        if rank == 1:
            time.sleep(4)
            continue
        with pytest.raises(RuntimeError):
            copes.distributed.tpa_decode(*make("cpu", torch.float32), group=group, exchange=exchange, check=check)
        assert time.monotonic() - began < 4
        time.sleep(max(0, 4 - (time.monotonic() - began)))


# ---- tests -----------------------------------------------------------------------------------------------------------


def everything(rank, world):
    decode_all(rank, world)
    decode_on_a_mesh(rank, world)
    all_gradients(rank, world)
    collectives(rank, world)
    disagreements(rank, world)


@pytest.mark.skipif(not dist.is_available(), reason="this PyTorch has no torch.distributed")
@pytest.mark.parametrize("world", WORLDS)
def test_over_gloo(tmp_path, world):
    run(tmp_path, world, everything)


@pytest.mark.skipif(not dist.is_available(), reason="this PyTorch has no torch.distributed")
def test_a_rank_that_fails(tmp_path):
    run(tmp_path, 3, failing)


# ---- softmax over a sequence -----------------------------------------------------------------------------------------


def tokens_of(order, rank, world):
    """Which tokens of all a rank has."""
    if order == "zigzag":
        return torch.cat([torch.arange(4) + 4 * chunk for chunk in (rank, 2 * world - 1 - rank)])
    return torch.arange(100)[pieces("contiguous", world)[rank]]


def close(result, expected, dtype):
    unit = 2**-7 if dtype == torch.bfloat16 else 1e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(result.double(), expected.double(), rtol=unit, atol=unit)


def encode_share(rank, world, name, order, dtype, heads):
    torch.manual_seed(2)
    total = 8 * world if order == "zigzag" else sum(LENGTHS[:world])
    shape = (2, total, 8) if heads is None else (2, total, heads, 8)
    x, theta = torch.randn(shape, dtype=torch.float64).to(dtype), torch.rand(heads or 1, 8 if name == "lrpe_cosine" else 4)
    offsets = torch.tensor([5, 1000])
    whole = [each.clone().requires_grad_() for each in (x.double(), theta)]
    expected = getattr(copes, name)(*whole, act="softmax", dim=1, offsets=offsets, offset=3)
    slope = torch.randn(expected.shape, dtype=torch.float64).to(dtype)
    expected.backward(slope.double())
    tokens = tokens_of(order, rank, world)
    own = [each.clone().requires_grad_() for each in (x[:, tokens], theta)]
    made = getattr(copes.distributed, name)(*own, order=order, offsets=offsets, offset=3)
    close(made, expected[:, tokens], dtype)
    made.backward(slope[:, tokens])
    close(own[0].grad, whole[0].grad[:, tokens], dtype)
    dist.all_reduce(own[1].grad)
    torch.testing.assert_close(own[1].grad.double(), whole[1].grad.double(), rtol=1e-2, atol=0.1)


def encode_all(rank, world):
    for name in ("lrpe_rotate", "lrpe_cosine"):
        for order in ("contiguous", "zigzag"):
            for dtype, heads in ((torch.float32, 3), (torch.bfloat16, 2), (torch.float64, None)):
                encode_share(rank, world, name, order, dtype, heads)


def softmax_all(rank, world):
    for dim in (0, 1, -1):
        torch.manual_seed(3)
        shape = [3, 4, 5]
        shape[dim] = sum(LENGTHS[:world])
        x = torch.randn(shape, dtype=torch.float64)
        x.select(dim, 0)[0] = -torch.inf
        slope, tokens = torch.randn_like(x), pieces("contiguous", world)[rank]
        whole = x.clone().requires_grad_()
        whole.softmax(dim).backward(slope)
        own = x.narrow(dim, tokens.start, tokens.stop - tokens.start).clone().requires_grad_()
        made = copes.distributed.softmax(own, dim)
        close(made, whole.softmax(dim).narrow(dim, tokens.start, tokens.stop - tokens.start), torch.float64)
        made.backward(slope.narrow(dim, tokens.start, tokens.stop - tokens.start))
        close(own.grad, whole.grad.narrow(dim, tokens.start, tokens.stop - tokens.start), torch.float64)


def softmax_of_copies(rank, world):
    """Ranks with the same share have the same bits, of the result and of the gradient."""
    torch.manual_seed(4)
    x = torch.randn(2, 6, 2, 8).requires_grad_()
    positions = torch.arange(6)
    o = copes.distributed.lrpe_rotate(x, torch.rand(2, 4), positions=positions)
    o.backward(torch.randn_like(o))
    assert same_everywhere(o.detach()) and same_everywhere(x.grad)


def softmax_refused(rank, world):
    x, theta = torch.randn(2, 5 + rank, 2, 8), torch.rand(1, 4)
    with pytest.raises(ValueError, match="in zigzag order all must have as many"):
        copes.distributed.lrpe_rotate(x, theta, order="zigzag")
    with pytest.raises(ValueError, match="order differs between ranks"):
        copes.distributed.lrpe_rotate(x, theta, order="zigzag" if rank == 1 else "contiguous")
    with pytest.raises(ValueError, match="H differs between ranks"):
        copes.distributed.lrpe_rotate(torch.randn(2, 5, 2 + rank, 8), theta)
    with pytest.raises(ValueError, match="differs between ranks"):
        copes.distributed.softmax(torch.randn(2, 5, 2 + rank), 1)
    with pytest.raises(ValueError, match="a tensor's rank is wrong|may not pass"):
        copes.distributed.lrpe_rotate(torch.randn(2, 5), theta)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("task", [encode_all, softmax_all, softmax_of_copies, softmax_refused])
def test_softmax(tmp_path, world, task):
    run(tmp_path, world, task)
