"""The operators in float64 PyTorch, straight from their formulas, on the CPU; gradients are autograd's."""

import math

import torch

ACTS = ["none", "relu", "sigmoid", "silu", "softmax"]

# One rounding of the storage type, and what float32 arithmetic adds.
TOLERANCE = {
    torch.float64: dict(rtol=1e-9, atol=1e-9),
    torch.float32: dict(rtol=2e-6, atol=2e-6),
    torch.float16: dict(rtol=2**-11, atol=4e-6),
    torch.bfloat16: dict(rtol=2**-8, atol=4e-6),
}


def wide(x):
    return x.detach().double().cpu()


def assert_close(result, expected, dtype=None):
    dtype = result.dtype if dtype is None else dtype
    torch.testing.assert_close(wide(result), expected, **TOLERANCE[dtype])


def act(x, act, dim=-1):
    if act == "none":
        return x * 1
    return x.softmax(dim) if act == "softmax" else getattr(torch.nn.functional, act)(x)


def places(x, positions=None, offsets=None, offset=0, grid=None, prefix=0, suffix=0):
    """Positions (m, B, N), in float64, and which tokens turn, (N)."""
    batch, tokens = x.shape[:2]
    turns = torch.ones(tokens, dtype=torch.bool)
    if positions is None:
        grid = grid or (tokens - prefix - suffix,)
        axes = [torch.arange(length, dtype=torch.float64) for length in grid]
        inner = torch.stack(torch.meshgrid(*axes, indexing="ij")).reshape(len(grid), -1)
        positions = torch.nn.functional.pad(inner, (prefix, suffix))[:, None].expand(-1, batch, -1)
        turns[:prefix] = turns[tokens - suffix :] = False
    positions = wide(positions)
    positions = positions if positions.dim() == 3 else positions.expand(1, batch, tokens)
    offset = [offset] + [0] * (len(positions) - 1) if isinstance(offset, int) else list(offset)
    positions = positions + torch.tensor(offset, dtype=torch.float64)[:, None, None]
    return positions if offsets is None else positions + wide(offsets)[:, None], turns


def angles(x, theta, count, sections=None, pad_theta=False, inverse=False, **where):
    """(B, N, H, count). Theta may have any type, and a gradient."""
    positions, turns = places(x, **where)
    dimensions, heads = len(positions), x.shape[2]
    theta = theta.cpu().double()
    if theta.dim() == 2 and dimensions == 1 and theta.shape[1] == 1 and not pad_theta:
        theta = theta.expand(-1, count)
    if sections:
        dimension = torch.repeat_interleave(torch.arange(dimensions), torch.tensor(sections))
        theta = torch.stack([theta * (dimension == j) for j in range(dimensions)])
    if theta.dim() == 3:
        phi = torch.einsum("mbn,mhk->bnhk", positions, theta.expand(-1, heads, -1))
    else:
        each = positions[..., None, None] * theta.expand(heads, -1)
        phi = torch.cat(list(each), -1)[..., :count]
        phi = torch.nn.functional.pad(phi, (0, count - phi.shape[-1]))
    return torch.where(turns[:, None, None], -phi if inverse else phi, 0)


def lrpe_cosine(x, theta, act_name="none", dim=-1, amplitude=1.0, **where):
    y, phi = act(x, act_name, dim) * amplitude, angles(x, theta, x.shape[-1], **where)
    return torch.cat((y * phi.cos(), y * phi.sin()), -1)


def lrpe_rotate(
    x, theta, act_name="none", dim=-1, rotary_dim=None, pairing="half", rotary_begin=0, amplitude=1.0, **where
):
    y, turning = act(x, act_name, dim), rotary_dim or x.shape[-1] - rotary_begin
    phi = angles(x, theta, turning // 2, **where)
    before, head, rest = y.split((rotary_begin, turning, y.shape[-1] - rotary_begin - turning), -1)
    shape = (2, turning // 2) if pairing == "half" else (turning // 2, 2)
    a, b = (head * amplitude).unflatten(-1, shape).unbind(-2 if pairing == "half" else -1)
    turned = (a * phi.cos() - b * phi.sin(), a * phi.sin() + b * phi.cos())
    return torch.cat((before, torch.stack(turned, -2 if pairing == "half" else -1).flatten(-2), rest), -1)


def rms_norm(x, weight, eps=1e-6, weight_offset=0.0, norm_over="head"):
    """Of (B, N, H, D), by weights (D) or (H, D)."""
    square = x.square().mean(-1 if norm_over == "head" else (-2, -1), keepdim=True)
    return x * (square + eps).rsqrt() * (weight + weight_offset)


def qk_norm_rope(q, k, theta, wq=None, wk=None, norm=None, **rotation):
    """[q_out, k_out]; `norm` are rms_norm's options, `rotation` lrpe_rotate's."""
    pairs = ((q, wq), (k, wk))
    normed = [x if weight is None else rms_norm(x, weight, **(norm or {})) for x, weight in pairs]
    return [lrpe_rotate(x, theta, **rotation) for x in normed]


def write_cache(cache, slots, values):
    """The cache afterwards: (blocks, page, H, D), values (B, N, H, D)."""
    cache = cache.clone()
    places = cache.flatten(0, 1)
    for slot, value in zip(slots.flatten().tolist(), values.flatten(0, 1)):
        if 0 <= slot < len(places):
            places[slot] = value
    return cache


def attention_merge(o_shares, lse_shares, base="e"):
    """(o, lse), of shares of which none is empty. Differentiable."""
    unit = math.log(2) if base == "2" else 1.0
    lse = (lse_shares * unit).logsumexp(0)
    weights = (lse_shares * unit - lse).exp()
    return (weights[..., None] * o_shares).sum(0), lse / unit


def tpa_decode(aq, ak, av, bq, bk, bv, scale=None, scale_q=None, scale_k=None, scale_v=None, kv_len=None, causal=False,
    kv_first=0, kv_stride=1, kv_total=None):
    """(o, lse)."""
    aq, ak, av, bq, bk, bv = map(wide, (aq, ak, av, bq, bk, bv))
    if ak.dim() == 3:
        ak, bk = ak[..., None], bk[:, :, None]
    if av.dim() == 3:
        av, bv = av[..., None], bv[:, :, None]
    q = torch.einsum("bnhr,bnrd->bhnd", aq, bq) * (scale_q or 1 / aq.shape[-1])
    k = torch.einsum("bmhr,bmrd->bhmd", ak, bk) * (scale_k or 1 / ak.shape[-1])
    v = torch.einsum("bmhr,bmrd->bhmd", av, bv) * (scale_v or 1 / av.shape[-1])
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    batch, tokens, keys = q.shape[0], q.shape[2], k.shape[2]
    places = kv_first + kv_stride * torch.arange(keys)
    total = kv_total or kv_first + kv_stride * (keys - 1) + 1
    length = torch.full((batch,), total) if kv_len is None else wide(kv_len).long().clamp(0, total)
    seen = length[:, None, None] - (tokens - 1 - torch.arange(tokens)[:, None] if causal else 0)
    scores = scores.masked_fill((places >= seen)[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp().nan_to_num(0)
    return (weights @ v).transpose(1, 2), lse.transpose(1, 2)
