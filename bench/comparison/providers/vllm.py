"""The prologue of vLLM (github.com/vllm-project/vllm): the kernels of its csrc/fused_qknorm_rope_kernel.cu, which norms
and turns in place, and csrc/fused_qknorm_rope_cache_kernel.cu, which also writes keys and values to the paged cache, in
a shared library that VLLM_PROLOGUE names. That has

    const char *vllm_prologue_version(void);
    int vllm_qk_norm_rope(int type, void *qk, void *wq, void *wk, void *cos_sin, int64_t *positions, int64_t tokens,
                          int64_t q_heads, int64_t k_heads, int64_t dim, double eps, void *stream);
    int vllm_qk_norm_rope_cache(int type, void *qkv, void *q_out, void *k_out, void *v_out, void *wq, void *wk,
                                void *cos, void *sin, int64_t *positions, int64_t *slots, void *k_cache,
                                void *v_cache, int64_t tokens, int64_t q_heads, int64_t k_heads, int64_t dim,
                                int64_t page, double eps, void *stream);

type 0 is float16 and 1 bfloat16, also that of weights and tables. Inputs lie in one tensor (tokens, heads, dim), in
half pairs; cos_sin is (positions, dim), cosines before sines, and cos and sin are (positions, dim / 2). Heads in a warp
are as its host function chooses them. The second writes keys and values to k_out and v_out as well, which it cannot
leave out. Each returns 0 or an error's number."""

import ctypes
import functools
import os

import torch

from ..prologue import EPS, OP, PAGE
from .base import Provider, missing_library

TYPES = {"f16": 0, "bf16": 1}
DIMS = (64, 128, 256)


@functools.cache
def _library():
    library = ctypes.CDLL(os.environ["VLLM_PROLOGUE"])
    library.vllm_prologue_version.restype = ctypes.c_char_p
    pointers, numbers, rest = [ctypes.c_void_p], [ctypes.c_int64], [ctypes.c_double, ctypes.c_void_p]
    library.vllm_qk_norm_rope.argtypes = [ctypes.c_int, *pointers * 5, *numbers * 4, *rest]
    library.vllm_qk_norm_rope_cache.argtypes = [ctypes.c_int, *pointers * 12, *numbers * 5, *rest]
    return library


def _call(name, case, tensors, sizes):
    stream = torch.cuda.current_stream().cuda_stream
    pointers = [tensor.data_ptr() for tensor in tensors]
    error = getattr(_library(), name)(TYPES[case.dtype], *pointers, *sizes, EPS, stream)
    if error:
        raise RuntimeError(f"{name} returned {error}")


class VLLM(Provider):
    name = family = "vLLM"

    def missing(self, device):
        return missing_library(device, "VLLM_PROLOGUE", _library)

    def version(self):
        return _library().vllm_prologue_version().decode()

    def runs(self, case):
        kind = case.op == OP and case.packed and case.in_place != case.cache
        return kind and case.dtype in TYPES and case.dim in DIMS

    def prologue(self, case, setting):
        where = setting.angles.where.expand(case.batch, case.n).contiguous()
        cos, sin = setting.angles.tables(case.type, torch.arange(int(where.max()) + 1, device=where.device))
        sizes = where.numel(), case.q_head, case.k_head, case.dim
        if not case.cache:
            table = torch.cat((cos, sin), -1)

            def turn(inputs, _):
                _call("vllm_qk_norm_rope", case, [inputs[0], *setting.weights, table, where], sizes)
                return inputs

            return turn

        def write(inputs, outputs):
            q_out, *caches = outputs
            unasked = [x.new_empty(x.shape) for x in inputs[1:]]
            tensors = [inputs[0], q_out, *unasked, *setting.weights, cos, sin, where, setting.slots, *caches]
            _call("vllm_qk_norm_rope_cache", case, tensors, (*sizes, PAGE))
            return outputs

        return write
