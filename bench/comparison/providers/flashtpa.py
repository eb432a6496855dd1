"""The decode kernels published with the paper on tensor product attention (github.com/tensorgi/TPA), where importable:
PYTHONPATH=its folder decode. Of its variants the one over blocks of the cache, its fastest but for the smallest."""

import functools
import importlib

from .base import Provider, missing_kernels
from .tuning import narrow


@functools.cache
def _module():
    module = importlib.import_module("flashtpa_decode_triton")
    narrow(module, (2, 4, 8))
    return module


class FlashTPA(Provider):
    name = family = "FlashTPA"
    compiles = True

    def missing(self, device):
        return missing_kernels(device, _module)

    def runs(self, case):
        return case.op == "tpa_decode"

    def function(self, case, inputs):
        return _module().tpa_decode_parallel_bn_triton
