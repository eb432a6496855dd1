"""Compiles ahead, in several processes, what Triton and torch.compile will be asked for. Nothing is launched or tuned
there: the caches on disk are filled, and the run that measures, alone on the GPU, finds everything in them."""

import contextlib
import multiprocessing
import os

import torch

from . import providers
from .measure import make_call
from .progress import progress


def _launch_nothing():
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from triton.runtime.autotuner import Autotuner

    def compile_all(self, *args, grid, warmup, **kwargs):
        del warmup
        self.warmup(*args, grid=grid, **kwargs)

    Autotuner.run = compile_all
    CachingAutotuner.run = lambda self, *args, **kwargs: None


def _start(device, processes):
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.9 / processes)
        _launch_nothing()


def _compile(job):
    """What fails here fails again, and is told, where it is measured."""
    case, index, device = job
    with contextlib.suppress(Exception):
        inputs = tuple(torch.empty(shape, dtype=torch.bfloat16, device=device) for shape in case.input_shapes)
        output = torch.empty(case.output_shape, dtype=torch.bfloat16, device=device)
        make_call(providers.ALL[index], case, inputs, output if case.mode == "backward" else None)()
    if device == "cuda":
        torch.cuda.empty_cache()


def compile_ahead(cells, device, processes):
    """`cells`: pairs of a case and a provider."""
    jobs = [(case, providers.ALL.index(provider), device) for case, provider in cells if provider.compiles]
    if processes < 1 or not jobs:
        return
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _start, (device, processes)) as pool:
        done = pool.imap_unordered(_compile, jobs)
        for _ in progress(done, total=len(jobs), desc="compiling"):
            pass
