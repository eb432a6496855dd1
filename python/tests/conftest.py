"""Fixtures: every test that takes `device` runs on the CPU, and on a GPU where PyTorch finds one."""

import importlib.util
import os

import pytest
import torch

# JAX reads it when it is first used, in whichever test that is.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

# timm and transformers import torchvision where it is. PyPI's is built for PyTorch with CUDA: beside PyTorch for the CPU its
# library does not load, and without these operators, which no test calls, the package cannot be imported.
if importlib.util.find_spec("torchvision"):
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        torchvision_library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            torchvision_library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

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
