"""Fixtures: every test that takes `device` runs on the CPU, and on a GPU where PyTorch finds one."""

import pytest
import torch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(0)
    return request.param


@pytest.fixture(params=["float32", "float16", "bfloat16", "float64"])
def dtype(request, device):
    if device == "cuda" and request.param == "float64":
        pytest.skip("float64 is the CPU's")
    return getattr(torch, request.param)
