"""RoPE by cosines and sines that are given, as transformers hands them to the kernels that it loads.

The library turns by exact angles, which such tables do not tell. So this is PyTorch's arithmetic, on any device: a
result is written once and added to in place, and nothing else of its size is made. torch.compile fuses it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ._torch_library import refuse_constants

__all__ = ["apply_rotary_transformers"]


class _Turn(torch.autograd.Function):
    """left and right are the sines by which a half of x takes the other one. The gradient is the turn back, for which it
    keeps the tables and nothing of x."""

    @staticmethod
    def forward(x, cos, left, right, sign):
        x_left, x_right = x.chunk(2, dim=-1)
        if is_compiling():  # one kernel, which in-place operators would take apart
            others = torch.cat((-x_right * left, x_left * right), dim=-1)
            return torch.add(x * cos, others, alpha=sign).to(x.dtype)
        o = x * cos
        o_left, o_right = o.chunk(2, dim=-1)
        o_left.addcmul_(x_right, left, value=-sign)
        o_right.addcmul_(x_left, right, value=sign)
        return o.to(x.dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, *tables, ctx.sign = inputs
        ctx.save_for_backward(*tables)

    @staticmethod
    def backward(ctx, grad_o):
        cos, left, right = ctx.saved_tensors
        return _Turn.apply(grad_o, cos, right, left, -ctx.sign), None, None, None, None


def _check(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> None:
    dim, features = q.shape[-1], cos.shape[-1]
    if dim % 2 != 0 or k.shape[-1] != dim:
        raise ValueError(f"q and k have {dim} and {k.shape[-1]} features; both must have the same even number")
    if features not in (dim, dim // 2):
        raise ValueError(f"cos has {features} features; it must have {dim}, as q and k, or half as many")
    if sin.shape != cos.shape:
        raise ValueError(f"sin has shape {tuple(sin.shape)}; it must be {tuple(cos.shape)}, as cos")
    if torch.is_grad_enabled():
        refuse_constants("apply_rotary_transformers", ("cos", "sin"), (cos.requires_grad, sin.requires_grad))


def apply_rotary_transformers(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """q and k, (B, H, N, D), turned in halves by cos and sin, (B, N, D) or (B, N, D / 2): what a model of transformers
    calls as apply_rotary_pos_emb, without its copies. The tables get an axis for heads at unsqueeze_dim: 2 for
    (B, N, H, D).

    Results have q's and k's types, and are as exact as the tables: transformers makes them from float32 angles. For
    exact angles use copes.lrpe_rotate, or copes.integrations.transformers.use(model). Derivatives are q's and k's."""
    _check(q, k, cos, sin)
    if cos.shape[-1] != q.shape[-1]:
        cos, sin = (torch.cat((table, table), dim=-1) for table in (cos, sin))
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    turn = _Turn.apply if learns else _Turn.forward  # apply costs a decoding step more than the turn
    left, right = sin.chunk(2, dim=-1)
    return turn(q, cos, left, right, 1), turn(k, cos, left, right, 1)
