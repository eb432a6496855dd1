"""RoPE of FlashInfer (github.com/flashinfer-ai/flashinfer): the kernels of its include/flashinfer/pos_enc.cuh, which
serve inference, in a shared library that FLASHINFER_ROPE names. That has

    const char *flashinfer_rope_version(void);
    int flashinfer_rope(int type, void *q, void *k, void *q_out, void *k_out, float *cos_sin, int64_t *positions,
                        int64_t tokens, int64_t q_heads, int64_t k_heads, int64_t dim, double base, void *stream);

type 0 is float16 and 1 bfloat16; q and k are contiguous (tokens, heads, dim), in half pairs. With cos_sin, of shape
(positions, dim) and cosines before sines, it calls BatchQKApplyRotaryPosIdsCosSinCache, else BatchQKApplyRotaryPosIds,
whose angles are made on the fly. It returns 0 or an error's number."""

import ctypes
import functools
import os

import torch

from ..rope import BASE
from .base import Provider, missing_library, rotates

TYPES = {"f16": 0, "bf16": 1}


@functools.cache
def _library():
    library = ctypes.CDLL(os.environ["FLASHINFER_ROPE"])
    library.flashinfer_rope_version.restype = ctypes.c_char_p
    pointers, numbers = [ctypes.c_void_p] * 6, [ctypes.c_int64] * 4
    library.flashinfer_rope.argtypes = [ctypes.c_int, *pointers, *numbers, ctypes.c_double, ctypes.c_void_p]
    return library


class FlashInfer(Provider):
    """By its table of cosines and sines in float32, or with `angles` without one."""

    family = "FlashInfer"

    def __init__(self, angles=False):
        self.angles = angles
        self.name = "FlashInfer-angles" if angles else "FlashInfer"

    def missing(self, device):
        return missing_library(device, "FLASHINFER_ROPE", _library)

    def version(self):
        return _library().flashinfer_rope_version().decode()

    def runs(self, case):
        return rotates(case) and case.mode == "forward" and case.dtype in TYPES

    def rope(self, case, angles, saved):
        where = angles.where.expand(case.batch, case.n).contiguous()
        table = None
        if not self.angles:
            table = torch.cat(angles.tables(torch.float32, torch.arange(int(where.max()) + 1, device=where.device)), -1)

        def run(inputs, outputs):
            tensors = [[t.data_ptr() for t in each] + [None] * (2 - len(each)) for each in (inputs, outputs)]
            heads = [t.shape[2] for t in inputs] + [0] * (2 - len(inputs))
            cache = table.data_ptr() if table is not None else None
            stream = torch.cuda.current_stream().cuda_stream
            sizes = where.numel(), *heads, case.dim
            error = _library().flashinfer_rope(
                TYPES[case.dtype], *tensors[0], *tensors[1], cache, where.data_ptr(), *sizes, BASE, stream
            )
            if error:
                raise RuntimeError(f"flashinfer_rope returned {error}")
            return outputs

        return run
