"""Compiles ahead, in several processes, what Triton and torch.compile will be asked for. Nothing is tuned there and none of
their kernels is launched: the caches on disk are filled, and the run that measures, alone on the GPU, finds everything in
them."""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import os
import sys
import typing

import torch

from . import providers, session
from .measure import make_call
from .progress import progress

MOST_PROCESSES = 16  # each has its own PyTorch and CUDA in memory


def default_processes(device):
    """As many as there are cores to run on, but for two; on the CPU, whose cores measure, none."""
    if device != "cuda":
        return 0
    return min(max(1, len(os.sched_getaffinity(0)) - 2), MOST_PROCESSES)


def _compile_variants(kernel, *args, grid, warmup, **kwargs):
    """In place of a self-tuning kernel's launch: every variant is compiled that can be."""
    del warmup
    kernel.nargs = dict(zip(kernel.arg_names, args))
    for config in kernel.prune_configs(kwargs):
        with contextlib.suppress(Exception):
            kernel.fn.warmup(*args, grid=grid, **kwargs, **config.all_kwargs())


def _launch_nothing():
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from triton.runtime.autotuner import Autotuner

    Autotuner.run = _compile_variants
    CachingAutotuner.run = lambda self, *args, **kwargs: None  # compiled when it was made


def _start(device, processes):
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(0.9 / processes)
        _launch_nothing()


def _stream(device):
    """As where it is measured, beside the default stream."""
    return torch.cuda.stream(torch.cuda.Stream()) if device == "cuda" else contextlib.nullcontext()


class Place(typing.NamedTuple):
    """Where a row is made that is not measured."""

    device: str


def _compile(case, index, device):
    """None, or in a line what went wrong. It goes wrong again, and is told, where it is measured."""
    try:
        with _stream(device):
            if case.op in session.REPLAYED:
                return session.REPLAYED[case.op](case, Place(device)).compile_only(providers.ALL[index])
            inputs = tuple(torch.empty(shape, dtype=torch.bfloat16, device=device) for shape in case.input_shapes)
            output = torch.empty(case.output_shape, dtype=torch.bfloat16, device=device)
            make_call(providers.ALL[index], case, inputs, output if case.mode == "backward" else None)()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        inputs = output = None
        if device == "cuda":
            torch.cuda.empty_cache()
    return None


def compile_ahead(cells, device, processes):
    """`cells`: pairs of a case and a provider. Should a process die, what is left is compiled where it is measured."""
    jobs = [(case, providers.ALL.index(provider), device) for case, provider in cells if provider.compiles]
    if processes < 1 or not jobs:
        return
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _start, (device, processes))
    failed = collections.Counter()
    try:
        done = concurrent.futures.as_completed([pool.submit(_compile, *job) for job in jobs])
        for future in progress(done, total=len(jobs), desc="compiling"):
            failed[future.result()] += 1
    except concurrent.futures.BrokenExecutor as error:
        print(f"compiling ahead ended early: {error}", file=sys.stderr)
    finally:
        pool.shutdown(cancel_futures=True)
    del failed[None]
    for reason, count in failed.most_common(3):
        print(f"not compiled ahead, {count} of {len(jobs)}: {reason}", file=sys.stderr)
