"""The operators in float64, straight from their definitions, on a slice of a case: the first entry of the batch and,
but for tpa_decode, its first head. What the providers compute there is held against it."""

import math

import torch


def slice_of(case, tensor, is_output=False):
    """The part of an input or an output that the reference covers."""
    if case.op == "tpa_decode":
        return tensor[:1]
    if tensor.dim() == 2 and not is_output:  # theta
        return tensor[:1]
    return tensor[:1, :1] if case.heads_first else tensor[:1, :, :1]


def _angles(case, theta):
    """(tokens, features): 0 for the prefix, then a row for each point of the grid, the last dimension fastest."""
    axes = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in case.grid), indexing="ij")
    parts = [axis.reshape(-1, 1).to(theta.device) * theta[0] for axis in axes]
    angles = torch.cat(parts, -1)[:, : case.angles]
    return torch.nn.functional.pad(angles, (0, 0, case.prefix, 0))


def _activate(case, x):
    if case.act == "softmax":
        return torch.softmax(x, case.softmax_axis)
    return {"none": lambda t: t, "relu": torch.relu, "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu}[
        case.act
    ](x)


def _encode(case, x, theta):
    angles = _angles(case, theta)
    if not case.heads_first:
        angles = angles[:, None]
    cos, sin = angles.cos(), angles.sin()
    if case.op != "lrpe_rotate":
        return torch.cat((x * cos, x * sin), -1)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def _decode(aq, ak, av, bq, bk, bv):
    q = torch.einsum("bnhr,bnrd->bnhd", aq, bq) / aq.shape[-1]
    scores = torch.einsum("bnhd,bmd,bmh->bnhm", q, bk, ak) / math.sqrt(bq.shape[-1])
    return torch.einsum("bnhm,bmh,bme->bnhe", torch.softmax(scores, -1), av, bv)


def expected(case, inputs, gradient=None):
    """The slice of the output, or with the gradient that arrives there the gradient at x."""
    x, *others = (slice_of(case, tensor).double() for tensor in inputs)
    if case.op == "tpa_decode":
        return _decode(x, *others)
    x.requires_grad_(gradient is not None)
    out = _activate(case, x)
    if case.op != "act":
        out = _encode(case, out, *others)
    if gradient is None:
        return out
    return torch.autograd.grad(out, x, slice_of(case, gradient, is_output=True).double())[0]
