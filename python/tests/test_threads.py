"""Threads and memory: the interpreter's lock is released, results do not mix, references and memory stay level, and a
forked process can go on."""

import gc
import multiprocessing
import os
import signal
import sys
import threading

import copes
import numpy as np
import pytest
import torch

CALLS = 100_000


def test_the_lock_is_released():
    """While a long call runs, this thread goes on counting."""
    x = np.ones(1 << 25, np.float32)
    o = np.empty_like(x)
    copes.act(x, "sigmoid", out=o)
    done = threading.Event()

    def work():
        for _ in range(3):
            copes.act(x, "sigmoid", out=o)
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a held lock would not be taken from its holder
    try:
        thread = threading.Thread(target=work)
        thread.start()
        counted = 0
        while not done.wait(0.0005):
            counted += 1
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert counted >= 3


def test_many_threads():
    inputs = [np.random.default_rng(i).standard_normal((64, 65)) for i in range(8)]
    expected = [copes.act(x, "softmax") for x in inputs]
    wrong = []

    def work(x, o):
        if not all(np.array_equal(copes.act(x, "softmax"), o) for _ in range(50)):
            wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Foreign:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return np


def calls():
    x, theta = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 4), np.float32)
    foreign, tensor, turn = Foreign(x), torch.ones(1, 2, 1, 8), torch.ones(1, 4)

    def refused():
        try:
            copes.act(x, "gelu")
        except ValueError:
            pass

    yield "numpy", (x, theta), lambda: copes.lrpe_rotate(x, theta, offset=3, grid=(2,))
    yield "out", (x,), lambda: copes.act(x, "silu", out=x)
    yield "torch", (tensor, turn), lambda: copes.lrpe_rotate(tensor, turn, act="softmax", dim=1)
    yield "dlpack", (foreign, x), lambda: copes.act(foreign, "relu")
    leaf, once = torch.ones(3, requires_grad=True), torch.ones(3)
    yield "gradient", (leaf, once), lambda: torch.autograd.grad(copes.act(leaf, "silu"), leaf, once)
    yield "refused", (x,), refused


@pytest.mark.parametrize("index", range(6))
def test_references_and_memory_stay_level(index):
    _, objects, call = list(calls())[index]
    for _ in range(1000):
        call()
    gc.collect()
    counts, before = [sys.getrefcount(each) for each in objects], resident()
    none = sys.getrefcount(None)
    for _ in range(CALLS):
        call()
    gc.collect()
    assert [sys.getrefcount(each) for each in objects] == counts
    assert abs(sys.getrefcount(None) - none) < 1000
    assert resident() - before < 8 << 20


def call_fork_and_call():
    x = np.ones((512, 512), np.float32)
    copes.act(x, "silu")
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # threads that are not there are waited for until then
        os._exit(0 if np.isfinite(copes.act(x, "silu")).all() else 1)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_after_a_call():
    """In a process of its own, as threads of other libraries may not stand a fork."""
    process = multiprocessing.get_context("spawn").Process(target=call_fork_and_call)
    process.start()
    process.join()
    assert process.exitcode == 0
