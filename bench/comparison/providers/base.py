"""What every provider answers."""

import importlib
import importlib.metadata
import os

import torch


def rotates(case):
    """Is it a row of RoPE alone?"""
    return getattr(case, "rotates", False)


class Provider:
    """`name` heads the column; `family` is whose line and colour it has in the plots, where the best of a family stands
    for it. `compiles`: it compiles for each case, which other processes may do ahead. `slow`: it runs only where it is
    asked for by name."""

    name = family = ""
    compiles = slow = False

    def missing(self, device):
        """Why there is no such column on this device; None where there is one."""
        del device

    def runs(self, case):
        """Whether it has the operator at all."""
        raise NotImplementedError

    def function(self, case, inputs):
        """A function of the inputs that gives the output. What it keeps beside them counts as its memory."""
        raise NotImplementedError

    def rope(self, case, angles, saved):
        """Of a case of the table `rope`: a function of lists of inputs and outputs, q's and k's, that returns a list
        of results, then theta's gradient. The inputs are x, or in the backward the gradients that arrive, and `saved`
        is x. In place the outputs are the inputs; else they are there for those that take them."""
        raise NotImplementedError

    def prologue(self, case, setting):
        """Of a case of the table `prologue`: as rope's. With a cache the inputs are q, k and v, and the outputs and results
        q's, and the caches of keys and values. In the backward with weights' gradients these come last."""
        return self.rope(case, setting.angles, setting.saved)

    def version(self):
        """For the report's header; empty where there is nothing to say."""
        return ""


def version_of(package, distribution):
    """Of a package, as it tells it or as it was installed."""
    known = getattr(importlib.import_module(package), "__version__", None)
    try:
        return known or importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def missing_kernels(device, load, language="Triton"):
    """Why kernels in a language for GPUs do not load for a device; None where they do."""
    if torch.device(device).type != "cuda":
        return f"its kernels are {language}'s and need a GPU"
    return import_error(load)


def missing_library(device, variable, load):
    """Why kernels of a shared library that an environment variable names do not load for a device; None where they do."""
    if torch.device(device).type != "cuda":
        return "its kernels need a GPU"
    if variable not in os.environ:
        return f"{variable} does not name a library of its kernels"
    return import_error(load)


def import_error(load):
    """None, or in a line why a module does not load, whatever its import ran into."""
    try:
        load()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None
