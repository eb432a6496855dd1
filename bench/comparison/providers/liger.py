"""RoPE of Liger-Kernel (github.com/linkedin/Liger-Kernel), where importable. It turns queries and keys at once and in
place, by cosines and sines in the type of x, as the transformers package gives them."""

import functools
import importlib

import torch

from .base import Provider, missing_kernels, rotates, version_of


@functools.cache
def _module():
    return importlib.import_module("liger_kernel.ops.rope")


class Liger(Provider):
    name = family = "Liger"

    def missing(self, device):
        return missing_kernels(device, _module)

    def version(self):
        return version_of("liger_kernel", "liger-kernel")

    def runs(self, case):
        return rotates(case) and case.part == "both" and case.in_place and case.mode != "backward_theta"

    def rope(self, case, angles, saved):
        cos, sin = (torch.cat((table, table), -1) for table in angles.tables(case.type))
        if not case.positions:
            cos, sin = cos[None], sin[None]
        turn = _module().rope_forward if case.mode == "forward" else _module().rope_backward

        def run(inputs, _):
            q, k = inputs
            turn(q.transpose(1, 2), k.transpose(1, 2), cos, sin)  # it takes heads first and turns them back
            return inputs

        return run
