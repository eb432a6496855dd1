#!/usr/bin/env python3
"""Compares `copes bench` with PyTorch on the CPU, case by case in one run.

usage: compare_torch.py [--copes build/tools/copes] [--n 1024,8192] [--rounds 3] [--compile]

Both get the same number of threads, the same shapes (batch 12, head 12, dim 128) in bfloat16, and caches that were read
full of other data before each repeat. They take turns, round by round; the medians over the rounds are printed.
PyTorch is given its cosines and sines ready made, in float32; copes computes its own in every call.
--compile adds torch.compile, which needs a C++ compiler. Needs PyTorch (the figures in docs/benchmark.md: 2.13.0)."""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch

BATCH, HEAD, DIM = 12, 12, 128
FLUSH = torch.ones(1 << 26, dtype=torch.uint8)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


def cosine(x, cos, sin):
    wide = x.float()
    return torch.cat((wide * cos, wide * sin), -1).to(x.dtype)


def softmax(x):
    return torch.softmax(x, -1)


# The title of the case in `copes bench`, its flags there, and what PyTorch runs.
CASES = (
    ("act relu", ("act", "--act", "relu"), torch.relu),
    ("act sigmoid", ("act", "--act", "sigmoid"), torch.sigmoid),
    ("act silu", ("act", "--act", "silu"), torch.nn.functional.silu),
    ("act softmax", ("act", "--act", "softmax"), softmax),
    ("lrpe_rotate", ("lrpe_rotate", "--act", "none"), rotate),
    ("lrpe_cosine", ("lrpe_cosine", "--act", "none"), cosine),
)


def arguments_of(function, n):
    """Inputs: (batch, head, n, dim) for activations, (batch, n, head, dim) with cosines and sines for the others."""
    if function not in (rotate, cosine):
        return (torch.randn(BATCH, HEAD, n, DIM, dtype=torch.bfloat16),)
    width = DIM if function is cosine else DIM // 2
    theta = (10000 ** (-torch.arange(width) / width)).expand(HEAD, width)
    angles = torch.arange(n)[:, None, None] * theta
    return torch.randn(BATCH, n, HEAD, DIM, dtype=torch.bfloat16), angles.cos(), angles.sin()


def torch_ms(function, arguments, least=5, budget=0.5):
    """The median of at least five runs, the first of which, where memory is mapped and code is compiled, is left out."""
    times = []
    end = None
    while end is None or len(times) < least or time.perf_counter() < end:
        FLUSH.sum()
        start = time.perf_counter()
        with torch.no_grad():
            function(*arguments)
        times.append((time.perf_counter() - start) * 1e3)
        if end is None:
            times, end = [], time.perf_counter() + budget
    return statistics.median(times)


def copes_ms(command, flags, n):
    """The case over the features, which `copes bench` puts first."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "bench.json"
        line = [command, "bench", *flags, "--n", str(n), "--mode", "forward", "--json", str(path)]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        report = json.loads(path.read_text(encoding="utf-8"))
    return report["cases"][0]["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--copes", default="build/tools/copes", help="the command")
    parser.add_argument("--n", default="1024,8192", help="sequence lengths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    options = parser.parse_args()
    device = subprocess.run([options.copes, "devices"], check=True, capture_output=True, text=True).stdout
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads; {' '.join(device.split())}")
    print(f"{'case':<12} {'n':>6} {'copes ms':>10} {'torch ms':>10} {'ratio':>6}" +
          (f" {'compiled ms':>12} {'ratio':>6}" if options.compile else ""))
    for n in map(int, options.n.split(",")):
        for name, flags, function in CASES:
            arguments = arguments_of(function, n)
            runners = [function] + ([torch.compile(function)] if options.compile else [])
            rounds = [(copes_ms(options.copes, flags, n), *(torch_ms(runner, arguments) for runner in runners))
                      for _ in range(options.rounds)]
            ours, *theirs = map(statistics.median, zip(*rounds))
            line = f"{name:<12} {n:>6} {ours:>10.3f} {theirs[0]:>10.3f} {theirs[0] / ours:>6.2f}"
            print(line + "".join(f" {ms:>12.3f} {ms / ours:>6.2f}" for ms in theirs[1:]), flush=True)


if __name__ == "__main__":
    main()
