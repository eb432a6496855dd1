"""tpa_decode over a cache whose keys lie on the GPUs, and attention_merge."""

import math

import copes
import torch
import torch.distributed as dist
from measure import LENGTHS, UNITS, median_us, share_of_rank

EXCHANGES = ("gather", "heads", "auto")
BATCH, HEADS, DIM, RANKS = 8, 32, 128, (16, 1, 1)


# ---- Factors, and what they are to give ------------------------------------------------------------------------------


def make_factors(keys, dtype, batch=BATCH, tokens=1, heads=HEADS):
    """(aq, ak, av, bq, bk, bv), the same on every rank."""
    made = torch.Generator("cuda").manual_seed(keys)

    def random(*shape):
        return torch.randn(shape, device="cuda", generator=made, dtype=torch.float32).to(dtype)

    q, k, v = RANKS
    lengths = (tokens, q), (keys, k), (keys, v)
    first = [random(batch, n, heads, rank) for n, rank in lengths]
    return *first, *(random(batch, n, rank, DIM) for n, rank in lengths)


def attend(factors, causal):
    """(o, lse) in float64, by PyTorch."""
    aq, ak, av, bq, bk, bv = (x.double() for x in factors)
    q, k, v = (
        torch.einsum("bnhr,bnrd->bhnd", a, b) / rank
        for a, b, rank in zip((aq, ak, av), (bq, bk, bv), RANKS, strict=True)
    )
    scores = q @ k.transpose(-1, -2) * DIM**-0.5
    if causal:
        tokens, keys = scores.shape[-2:]
        seen = keys - tokens + 1 + torch.arange(tokens, device="cuda")
        scores = scores.masked_fill(torch.arange(keys, device="cuda") >= seen[:, None], -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1).transpose(1, 2)


def merge_by_torch(o, lse):
    """(o, lse) of shares, as one writes it in PyTorch."""
    all_lse = lse.logsumexp(0)
    return ((lse - all_lse).exp()[..., None] * o).sum(0), all_lse


def own_heads(x):
    own = copes.distributed.head_range(x.shape[2], dist.get_rank(), dist.get_world_size())
    return x[:, :, own.start : own.stop]


def share_of(factors, keys):
    aq, ak, av, bq, bk, bv = factors
    return aq, *(x[:, keys].contiguous() for x in (ak, av)), bq, *(x[:, keys].contiguous() for x in (bk, bv))


def keys_of(shards, rank, world):
    """The rank's keys, a slice of all that are checked."""
    if shards == "interleaved":
        return slice(rank, sum(LENGTHS[:world]), world)
    return share_of_rank(rank)


# ---- Checks ----------------------------------------------------------------------------------------------------------


def check_decode(checks, rank, world):
    for dtype, unit in UNITS.items():
        for shards in ("contiguous", "interleaved"):
            for tokens, causal in ((1, False), (3, True)):
                factors = make_factors(sum(LENGTHS[:world]), dtype, batch=2, tokens=tokens)
                mine, wanted = share_of(factors, keys_of(shards, rank, world)), attend(factors, causal)
                for exchange in EXCHANGES:
                    name = f"tpa_decode {dtype} {shards} causal={causal} {exchange}"

                    def call(exchange=exchange, mine=mine, shards=shards, causal=causal):
                        return copes.distributed.tpa_decode(
                            *mine, shards=shards, exchange=exchange, causal=causal, return_lse=True
                        )

                    o, lse = call()
                    expected = [own_heads(x) if exchange == "heads" else x for x in wanted]
                    checks.near(name, o, expected[0], unit)
                    checks.near(f"{name}, lse", lse, expected[1], 2e-5)
                    again = [call()[0] for _ in range(3)]
                    checks.expect(f"{name}, the same bits again", all(torch.equal(o, x) for x in again))
                    if exchange != "heads":
                        checks.same_bits(f"{name}, the same bits on every rank", o)


def check_merge(checks, rank, world):
    made = torch.Generator("cuda").manual_seed(1)
    shape = (world, 2, 3, HEADS, DIM)
    o, lse, slope = (torch.randn(each, device="cuda", generator=made) for each in (shape, shape[:-1], shape))
    leaves = [x.double().requires_grad_() for x in (o, lse)]
    merged, _ = merge_by_torch(*leaves)
    for exchange in EXCHANGES:
        loss = merged.new_zeros(())
        for each in range(world):  # gradients are of the sum of the ranks' losses
            own = copes.distributed.head_range(HEADS, each, world)
            part = slice(own.start, own.stop) if exchange == "heads" else slice(None)
            loss = loss + (merged[:, :, part] * slope[each][:, :, part]).sum()
        wanted = torch.autograd.grad(loss, leaves, retain_graph=True)
        mine = [x[rank].clone().requires_grad_() for x in (o, lse)]
        out = copes.distributed.attention_merge(*mine, exchange=exchange)
        part = own_heads(slope[rank]) if exchange == "heads" else slope[rank]
        grads = torch.autograd.grad((out * part).sum(), mine)
        expected = own_heads(merged) if exchange == "heads" else merged
        checks.near(f"attention_merge {exchange}", out, expected, 1e-5)
        for name, grad, want in zip(("o", "lse"), grads, wanted, strict=True):
            checks.near(f"attention_merge {exchange}, gradient of {name}", grad, want[rank], 1e-4)


# ---- Times -----------------------------------------------------------------------------------------------------------


def decode_by_torch(mine, places, world):
    """The same by all-gathers and a merge of PyTorch's."""
    o, lse = copes.tpa_decode(*mine, **places, return_lse=True)
    shares = o.new_empty((world, *o.shape)), lse.new_empty((world, *lse.shape))
    for every, x in zip(shares, (o, lse), strict=True):
        dist.all_gather_into_tensor(every.flatten(0, 1), x)
    return merge_by_torch(shares[0].float(), shares[1])[0].to(o.dtype)


def time_decode(keys, rank, world, repeats):
    """us of a step over a cache of `keys` tokens: on one GPU, and on all."""
    factors = make_factors(keys, torch.bfloat16)
    each = keys // world
    mine = share_of(factors, slice(rank * each, rank * each + each))
    places = dict(kv_first=rank * each, kv_total=keys)
    row = {"keys": keys, "one GPU": median_us(lambda: copes.tpa_decode(*factors), repeats)}
    del factors
    row["local step"] = median_us(lambda: copes.tpa_decode(*mine, **places, return_lse=True), repeats)
    for exchange in EXCHANGES:
        row[exchange] = median_us(
            lambda exchange=exchange: copes.distributed.tpa_decode(*mine, exchange=exchange, check=False), repeats
        )
    row["PyTorch"] = median_us(lambda: decode_by_torch(mine, places, world), repeats)
    return row


def print_decode(rows, collective, world):
    columns = [name for name in rows[0] if name != "keys"]
    print(
        f"\ntpa_decode, us: bfloat16, batch {BATCH}, {HEADS} heads of {DIM}, ranks {RANKS}; an empty all-gather {collective:.1f} us"
    )
    print("| keys | " + " | ".join(columns) + f" | predicted, gather | one GPU / best of {world} |")
    print("| ---: " * (len(columns) + 3) + "|")
    for row in rows:
        best = min(row[exchange] for exchange in EXCHANGES if exchange != "heads")
        times = " | ".join(f"{row[name]:.1f}" for name in columns)
        predicted = row["one GPU"] / world + collective
        print(f"| {row['keys']} | {times} | {predicted:.1f} | {row['one GPU'] / best:.2f} |")
