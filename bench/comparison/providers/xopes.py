"""xopes, whose published tables these are (github.com/Doraemonzzz/xopes), where importable: PYTHONPATH=its folder.

Its kernels tune themselves for each length, over up to 30 variants of which most never win. Here they choose among
fewer, those that do win, so that tuning a length takes less than a second."""

import functools
import importlib

import torch

from .base import Provider, missing_kernels
from .tuning import narrow

# Warps, and tokens a block. A block of the cosine kernel does the work of all its tokens once for each of them, hence
# the smallest blocks only.
PLENTY = {"lrpe_rotate": ((2, 4, 8), (4, 8, 16, 32, 64)), "lrpe_cosine": ((2, 4, 8), (4, 8))}
OTHERS = ((1, 2, 4, 8, 16),)
MODULES = {
    "act": "xopes.ops.act",
    "lrpe_rotate": "xopes.ops.lrpe.rotate._1d.lrpe_rotate_1d_sp_triton",
    "lrpe_cosine": "xopes.ops.lrpe.cosine._1d.lrpe_cosine_1d_sp_triton",
    "md_lrpe_cosine": "xopes.ops.lrpe.cosine._md.lrpe_cosine_md_triton",
    "md_cached": "xopes.ops.lrpe.cosine._md.lrpe_cosine_md_cache_triton",
    "tpa_decode": "xopes.ops.flash_attn.tpa.tpa_decode_triton",
}


@functools.cache
def load(name):
    """A module of xopes, its kernels narrowed."""
    module = importlib.import_module(MODULES[name])
    parts = [f"xopes.ops.act._act_triton.{part}" for part in ("act_no_dim_triton", "softmax_triton")]
    for part in parts if name == "act" else [MODULES[name]]:
        narrow(importlib.import_module(part), *PLENTY.get(name, OTHERS))
    return module


def _missing(device):
    return missing_kernels(device, lambda: [load(name) for name in MODULES])


class Xopes(Provider):
    name = family = "xopes"
    compiles = True

    def missing(self, device):
        return _missing(device)

    def runs(self, case):
        return case.op not in ("tpa_decode", "rope")

    def function(self, case, inputs):
        module = load(case.op)
        axis = None if case.act != "softmax" else 1 if case.over_tokens else -1
        if case.op == "act":
            axis = -2 if case.over_tokens else axis
            return lambda x: module.act_triton(x, case.act, axis)
        if case.op == "md_lrpe_cosine":
            return self._grid(module.LrpeCosineMdTriton, case, inputs)
        encode = getattr(module, f"{case.op}_1d_sp_triton")
        return lambda x, theta: encode(x, theta, act=case.act, dim=axis)

    @staticmethod
    def _grid(function, case, inputs):
        """Its public function copies the grid's shape to the GPU in every call; here it is there already."""
        shape = torch.tensor(case.grid, dtype=torch.int32, device=inputs[0].device)
        return lambda x, theta: function.apply(x, theta, shape, case.prefix, case.act, None)


class XopesCached(Xopes):
    """Its encoding on grids that keeps the angles of the forward for the backward."""

    name = "xopes-cached"

    def runs(self, case):
        return case.op == "md_lrpe_cosine"

    def function(self, case, inputs):
        return self._grid(load("md_cached").LrpeCosineMdCacheTriton, case, inputs)


class XopesDecode(Provider):
    """tpa_decode in parallel over the batch (b), its heads (bh) or blocks of the cache (bn)."""

    family = "xopes"
    compiles = True

    def __init__(self, variant):
        self.variant = variant
        self.name = f"xopes-{variant}"

    def missing(self, device):
        return _missing(device)

    def runs(self, case):
        return case.op == "tpa_decode"

    def function(self, case, inputs):
        return getattr(load("tpa_decode"), f"tpa_decode_parallel_{self.variant}_triton")
