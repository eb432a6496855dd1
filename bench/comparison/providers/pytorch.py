"""PyTorch: the operators as one writes them there, run eagerly and through torch.compile."""

import math

import torch

from . import pytorch_prologue, pytorch_rope
from .base import Provider, rotates


def _activate(case, x):
    if case.act == "softmax":
        return torch.softmax(x, case.softmax_axis)
    if case.act == "none":
        return x
    return {"relu": torch.relu, "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu}[case.act](x)


def _angles(case, theta):
    """In float32, laid out to multiply x: (H, N, K) where heads come first, else (N, H, K)."""
    theta = theta.float()
    grid = torch.meshgrid(*(torch.arange(side, device=theta.device) for side in case.grid), indexing="ij")
    parts = [axis.reshape(1, -1, 1) * theta[:, None] for axis in grid]
    angles = torch.cat(parts, -1)[..., : case.angles] if len(parts) > 1 else parts[0]
    return angles if case.heads_first else angles.transpose(0, 1)


def _rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def _cosine(x, cos, sin):
    return torch.cat((x * cos, x * sin), -1)


def _encode(case, x, cos, sin):
    """Tokens of the prefix are those whose angle is 0."""
    encode = _rotate if case.op == "lrpe_rotate" else _cosine
    x = _activate(case, x)
    if case.prefix == 0:
        return encode(x, cos, sin).to(x.dtype)
    head, tail = x[:, :, : case.prefix], x[:, :, case.prefix :]
    return torch.cat((torch.nn.functional.pad(head, (0, case.dim)), encode(tail, cos, sin).to(x.dtype)), 2)


def _decode(aq, ak, av, bq, bk, bv):
    """Neither keys nor values are formed: the factors of the heads go on after the sums over features."""
    q = aq[:, 0] @ bq[:, 0] * (1 / (aq.shape[-1] * math.sqrt(bq.shape[-1])))
    scores = q @ bk.transpose(1, 2) * ak.transpose(1, 2)
    return ((torch.softmax(scores, -1) * av.transpose(1, 2)) @ bv)[:, None]


def _decode_naive(aq, ak, av, bq, bk, bv):
    """Attention over keys and values made first, as xopes' tables have it beside the other."""
    q = aq[:, 0] @ bq[:, 0] * (1 / aq.shape[-1])
    k = ak[..., None] * bk[:, :, None]
    v = av[..., None] * bv[:, :, None]
    scores = torch.einsum("bhd,bmhd->bhm", q, k) * (1 / math.sqrt(bq.shape[-1]))
    return torch.einsum("bhm,bmhe->bhe", torch.softmax(scores, -1), v)[:, None]


def _function(case):
    if case.op == "act":
        return lambda x: _activate(case, x)
    if case.op == "tpa_decode":
        return _decode

    def encode(x, theta):
        angles = _angles(case, theta)
        return _encode(case, x, angles.cos(), angles.sin())

    return encode


def _compile(function, mode=None):
    """For exactly this shape: what is compiled for any length is no faster."""
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False  # else a backward runs only once
    return torch.compile(function, dynamic=False, fullgraph=True, mode=mode)


class Torch(Provider):
    name = family = "torch"

    def runs(self, case):
        """All, but that autograd writes no gradient over another."""
        return not rotates(case) or not case.in_place or case.mode == "forward"

    def function(self, case, inputs):
        return _function(case)

    def rope(self, case, angles, saved):
        return pytorch_rope.rope(case, angles, saved)

    def prologue(self, case, setting):
        return super().prologue(case, setting) if case.rotates else pytorch_prologue.prologue(case, setting)


class CompiledTorch(Torch):
    name = family = "torch.compile"
    compiles = True
    mode = None

    def function(self, case, inputs):
        return _compile(_function(case), self.mode)

    def rope(self, case, angles, saved):
        return pytorch_rope.rope(case, angles, saved, self._wrap)

    def prologue(self, case, setting):
        if case.rotates:
            return super().prologue(case, setting)
        return pytorch_prologue.prologue(case, setting, self._wrap)

    def _wrap(self, function):
        return _compile(function, self.mode)


class TunedTorch(CompiledTorch):
    """Compiled with all the tuning there is."""

    name = "compile-tuned"
    slow = True
    mode = "max-autotune-no-cudagraphs"

    def runs(self, case):
        return case.op != "tpa_decode" and super().runs(case)  # whose products are a library's


class CompiledCached(Provider):
    """The encodings with cosines and sines made beforehand, in the type of x, as most models have them."""

    name = family = "compile-cached"
    compiles = True

    def runs(self, case):
        return "lrpe" in case.op

    def function(self, case, inputs):
        angles = _angles(case, inputs[1])
        cos, sin = angles.cos().to(inputs[0].dtype), angles.sin().to(inputs[0].dtype)
        encode = _compile(lambda x, cos, sin: _encode(case, x, cos, sin))
        return lambda x, theta: encode(x, cos, sin)


class NaiveTorch(Provider):
    """tpa_decode with keys and values formed in memory."""

    def __init__(self, compiled=False):
        self.compiles = compiled
        self.name = "naive-compile" if compiled else "torch-naive"
        self.family = "torch.compile" if compiled else "torch"

    def runs(self, case):
        return case.op == "tpa_decode"

    def function(self, case, inputs):
        return _compile(_decode_naive) if self.compiles else _decode_naive
