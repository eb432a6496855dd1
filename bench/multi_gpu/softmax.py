"""Softmax over a sequence that lies on the GPUs, alone and before rotate, forward and backward."""

import copes
import torch
import torch.distributed as dist
from measure import LENGTHS, UNITS, median_us, share_of_rank

HEADS, DIM = 12, 128


# ---- What softmax and rotate are to give -----------------------------------------------------------------------------


def frequencies():
    """Those of float32, which copes takes, in float64."""
    exact = 10000 ** -(torch.arange(DIM // 2, device="cuda", dtype=torch.float64) / (DIM // 2))
    return exact.float().double()


def rotate(y, cos, sin):
    a, b = y.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def table(tokens, dtype):
    """Cosines and sines of positions, (N, 1, D / 2) each."""
    angles = tokens.double()[:, None, None] * frequencies()
    return angles.cos().to(dtype), angles.sin().to(dtype)


# ---- Checks ----------------------------------------------------------------------------------------------------------


def zigzag_of(rank, world, tokens):
    chunks = torch.arange(tokens, device="cuda").chunk(2 * world)
    return torch.cat((chunks[rank], chunks[2 * world - 1 - rank]))


def shares_to_check(rank, world):
    """(order, tokens in all, this rank's)"""
    own = share_of_rank(rank)
    yield "contiguous", sum(LENGTHS[:world]), torch.arange(own.start, own.stop, device="cuda")
    yield "zigzag", 48 * world, zigzag_of(rank, world, 48 * world)


def check_softmax(checks, rank, world):
    theta = frequencies().float()[None]
    calls = {
        "softmax": lambda x, order: copes.distributed.softmax(x, 1),
        "lrpe_rotate": lambda x, order: copes.distributed.lrpe_rotate(x, theta, order=order),
    }
    for dtype, unit in UNITS.items():
        for order, tokens, mine in shares_to_check(rank, world):
            made = torch.Generator("cuda").manual_seed(tokens)
            x, slope = (torch.randn(2, tokens, 3, DIM, device="cuda", generator=made).to(dtype) for _ in range(2))
            for name, call in calls.items():
                leaf = x.double().requires_grad_()
                wanted = leaf.softmax(1)
                if name == "lrpe_rotate":
                    wanted = rotate(wanted, *table(torch.arange(tokens, device="cuda"), torch.float64))
                (wanted_grad,) = torch.autograd.grad(wanted, leaf, slope.double())

                def step(call=call, order=order, x=x[:, mine], slope=slope[:, mine]):
                    own = x.clone().requires_grad_()
                    o = call(own, order)
                    return o.detach(), torch.autograd.grad(o, own, slope)[0]

                o, grad = step()
                title = f"{name} {dtype} {order}"
                # A mean element is 1 / tokens.
                checks.near(title, o.double() * tokens, wanted.detach()[:, mine] * tokens, unit)
                checks.near(f"{title}, gradient", grad.double() * tokens, wanted_grad[:, mine] * tokens, unit)
                again = [step() for _ in range(3)]
                same = all(torch.equal(o, each) and torch.equal(grad, other) for each, other in again)
                checks.expect(f"{title}, the same bits again", same)


# ---- Times -----------------------------------------------------------------------------------------------------------


@torch.compile(dynamic=False)
def largest(x):
    return x.amax(1).float()


@torch.compile(dynamic=False)
def sum_of_terms(x, most):
    return (x.float() - most[:, None]).exp().sum(1)


@torch.compile(dynamic=False)
def forward_of_sums(x, most, total, cos, sin):
    return rotate((x.float() - most[:, None]).exp() / total[:, None], cos, sin).to(x.dtype)


def terms_and_gradient(x, most, total, cos, sin, grad):
    return (x.float() - most[:, None]).exp() / total[:, None], rotate(grad.float(), cos, -sin)


@torch.compile(dynamic=False)
def delta_of(x, most, total, cos, sin, grad):
    y, g = terms_and_gradient(x, most, total, cos, sin, grad)
    return (y * g).sum(1)


@torch.compile(dynamic=False)
def backward_of_sums(x, most, total, cos, sin, grad, delta):
    y, g = terms_and_gradient(x, most, total, cos, sin, grad)
    return (y * (g - delta[:, None])).to(x.dtype)


def sums_by_torch(x):
    """The column's largest element and the sum of its terms, of all ranks."""
    most = largest(x)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    total = sum_of_terms(x, most)
    dist.all_reduce(total)
    return most, total


def forward_by_torch(x, cos, sin):
    most, total = sums_by_torch(x)
    return forward_of_sums(x, most, total, cos, sin)


def backward_by_torch(x, most, total, cos, sin, grad):
    delta = delta_of(x, most, total, cos, sin, grad)
    dist.all_reduce(delta)
    return backward_of_sums(x, most, total, cos, sin, grad, delta)


def median_of_gradient(o, x, slope, repeats):
    return median_us(lambda: torch.autograd.grad(o, x, slope, retain_graph=True), repeats)


def time_softmax(tokens, rank, world, repeats):
    """us of softmax over `tokens` tokens before rotate: of all on one GPU, and of a share on each."""
    theta, each = frequencies().float()[None], tokens // world
    row = {"tokens": tokens}
    x, slope = (torch.randn(1, tokens, HEADS, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    x.requires_grad_()
    with torch.no_grad():
        row["one GPU"] = median_us(lambda: copes.lrpe_rotate(x, theta, act="softmax", dim=1), repeats)
    o = copes.lrpe_rotate(x, theta, act="softmax", dim=1)
    row["its backward"] = median_of_gradient(o, x, slope, repeats)
    own = slice(rank * each, rank * each + each)
    x, slope = x.detach()[:, own].clone().requires_grad_(), slope[:, own].clone()
    del o
    with torch.no_grad():
        row["shares"] = median_us(lambda: copes.distributed.lrpe_rotate(x, theta, check=False), repeats)
    o = copes.distributed.lrpe_rotate(x, theta, check=False)
    row["backward"] = median_of_gradient(o, x, slope, repeats)
    with torch.no_grad():
        cos, sin = table(torch.arange(own.start, own.stop, device="cuda"), torch.float32)
        row["PyTorch"] = median_us(lambda: forward_by_torch(x, cos, sin), repeats)
        sums = sums_by_torch(x)
        row["PyTorch, backward"] = median_us(lambda: backward_by_torch(x, *sums, cos, sin, slope), repeats)
    return row


def print_softmax(rows, world):
    columns = [name for name in rows[0] if name != "tokens"]
    print(
        f"\nlrpe_rotate after softmax over the sequence, us: bfloat16, batch 1, {HEADS} heads of {DIM}; shares on {world} GPUs"
    )
    print("| tokens | " + " | ".join(columns) + " | of linear: forward, backward |")
    print("| ---: " * (len(columns) + 2) + "|")
    for row in rows:
        times = " | ".join(f"{row[name]:.1f}" for name in columns)
        linear = [row[one] / world / row[all] for one, all in (("one GPU", "shares"), ("its backward", "backward"))]
        print(f"| {row['tokens']} | {times} | {linear[0]:.2f}, {linear[1]:.2f} |")
