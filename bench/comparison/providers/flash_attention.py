"""The rotary kernel in Triton of flash-attn (github.com/Dao-AILab/flash-attention), where importable; it needs
nothing of what that package compiles. Cosines and sines are in the type of x, as its layer keeps them. It takes one
table for all sequences: where each has positions of its own, they are one sequence of all tokens, by a table gathered
beforehand."""

import functools
import importlib

from .base import Provider, missing_kernels, rotates, version_of


class FlashAttention(Provider):
    name = family = "flash-attn"
    module, package, distribution = "flash_attn.ops.triton.rotary", "flash_attn", "flash-attn"
    language = "Triton"

    @functools.cached_property
    def kernels(self):
        return importlib.import_module(self.module)

    def missing(self, device):
        return missing_kernels(device, lambda: self.kernels, self.language)

    def version(self):
        return version_of(self.package, self.distribution)

    def runs(self, case):
        return rotates(case) and case.mode != "backward_theta"

    def rope(self, case, angles, saved):
        cos, sin = (table.reshape(-1, case.dim // 2) for table in angles.tables(case.type))
        settings = {"inplace": case.in_place, "conjugate": case.mode == "backward"}

        def turn(x):
            tokens = x.flatten(0, 1)[None] if case.positions else x
            return self.kernels.apply_rotary(tokens, cos, sin, **settings).view(x.shape)

        return lambda inputs, _: [turn(x) for x in inputs]
