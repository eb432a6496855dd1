"""The folder that tools/hf_kernels.sh writes, loaded by Hugging Face's package kernels, beside the installed package.
COPES_KERNELS names such a folder of one variant; else the CPU's is built. A variant with CUDA is run on a GPU too."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import copes
import pytest
import torch
from torch import nn

kernels = pytest.importorskip("kernels")
SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "hf_kernels.sh"
PATH = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # an environment need not be activated
if "COPES_KERNELS" not in os.environ and any(
    shutil.which(program, path=PATH) is None for program in ("meson", "ninja", "readelf")
):
    pytest.skip("the folder needs Meson, Ninja and readelf to be built", allow_module_level=True)


def run(*words):
    environment = {**os.environ, "PATH": PATH}
    return subprocess.run(
        words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if "COPES_KERNELS" in os.environ:
        return pathlib.Path(os.environ["COPES_KERNELS"]).absolute()
    folder = tmp_path_factory.mktemp("kernels")
    written = run(SCRIPT, "--out", folder, "-Dcpu-isa=baseline")
    assert written.returncode == 0, written.stdout
    return folder


@pytest.fixture(scope="module")
def variant(folder):
    (variant,) = (folder / "build").iterdir()
    return variant


@pytest.fixture(scope="module")
def backend(variant):
    return json.loads((variant / "metadata.json").read_text())["backend"]["type"]


@pytest.fixture(scope="module")
def kernel(folder, backend):
    return kernels.get_local_kernel(folder, backend=backend)


@pytest.fixture
def device(device, backend):
    if device not in ("cpu", backend):
        pytest.skip(f"a variant for {backend}")
    return device


def test_variant(variant, kernel, backend):
    build = re.match(r"torch-stable-abi210-(cpu|cu\d+)-", variant.name)[1]
    assert kernel.__name__.startswith(f"copes_{build}_") and build.startswith(backend[:2])
    assert (variant / "copes" / "_copes.abi3.so").exists()
    assert pathlib.Path(kernel.__file__).is_relative_to(variant) and kernel.__version__ == copes.__version__


def test_beside_the_installed_package(kernel, device):
    """Both have operators of their own in PyTorch."""
    assert kernel is not copes
    x = torch.randn(2, 8, 4, 16, device=device, requires_grad=True)
    theta = 10000 ** (-torch.arange(0, 16, 2, device=device) / 16)[None]
    results = []
    for package in (copes, kernel):
        o = package.lrpe_rotate(x, theta, offset=4096, act="silu")
        (gradient,) = torch.autograd.grad(o.square().sum(), x)
        results.append((o, gradient, package.nn.RotaryEmbedding(16, device=device)(x)))
    torch.testing.assert_close(*results)  # the installed one may run by other instructions
    assert hasattr(torch.ops, kernel.__name__) and hasattr(getattr(torch.ops, kernel.__name__), "lrpe")


def test_alone(folder, backend, device):
    """It needs no installed package."""
    program = f"""
import pathlib, sys
sys.modules["copes"] = None
import kernels, torch
kernel = kernels.get_local_kernel(pathlib.Path({str(folder)!r}), backend={backend!r})
print(kernel.act(torch.ones(2, device={device!r}), "relu").tolist())
print(kernel.layers.SiLU(), kernel.integrations.transformers.__name__.partition(".")[2])
"""
    ran = run(sys.executable, "-c", program)
    assert ran.stdout.endswith("[1.0, 1.0]\nSiLU() integrations.transformers\n"), ran.stdout


def test_compile(kernel, device):
    x = torch.randn(3, 5, device=device)
    layer = torch.compile(kernel.layers.SiLU(), fullgraph=True, backend="eager")
    torch.testing.assert_close(layer(x), copes.act(x, "silu"))


@pytest.mark.parametrize("name, layer", [("ReLU", nn.ReLU), ("Sigmoid", nn.Sigmoid), ("SiLU", nn.SiLU)])
def test_layers(variant, kernel, device, name, layer):
    """They take the place of a layer in a model, in training and in a graph of torch.compile too."""

    @kernels.use_kernel_forward_from_hub(name)
    class Layer(layer):
        def forward(self, input):
            return super().forward(input)

    model = nn.Sequential(nn.Linear(8, 8), Layer()).to(device)
    plain = nn.Sequential(model[0], layer())
    mapping = {name: {device: kernels.LocalLayerRepository(variant, layer_name=name)}}
    with kernels.use_kernel_mapping(mapping):
        model = kernels.kernelize(model, mode=kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE, device=device)
    assert model[1].forward.__func__.__module__ == f"{kernel.__name__}.layers"
    x = torch.randn(4, 8, device=device)
    torch.testing.assert_close(model(x), plain(x))
    gradients = [torch.autograd.grad(each(x).square().sum(), model[0].weight)[0] for each in (model, plain)]
    torch.testing.assert_close(*gradients)


def test_transformers(variant, kernel, device):
    """transformers marks its class so itself, where the versions of the two packages suit each other."""
    activations = pytest.importorskip("transformers.activations")
    marked = kernels.use_kernel_forward_from_hub("SiLU")(type("Marked", (activations.SiLUActivation,), {}))
    layer = marked()
    with kernels.use_kernel_mapping({"SiLU": {device: kernels.LocalLayerRepository(variant, layer_name="SiLU")}}):
        layer = kernels.kernelize(layer, mode=kernels.Mode.INFERENCE, device=device)
    assert layer.forward.__func__.__module__ == f"{kernel.__name__}.layers"
    x = torch.randn(4, 8, device=device)
    torch.testing.assert_close(layer(x), copes.act(x, "silu"))


def test_rotary(variant, kernel, device, monkeypatch):
    """By the name that transformers gives its function: logits, gradients and generated tokens are what they were."""
    transformers = pytest.importorskip("transformers")
    file = transformers.models.llama.modeling_llama
    sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=64)
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(device)
    tokens = torch.arange(24, device=device).view(2, 12)

    def results():
        logits = model(tokens).logits
        (gradient,) = torch.autograd.grad(logits.square().sum(), model.model.embed_tokens.weight)
        if device != "cpu":  # its sums have another order, and the largest is 30 beside assert_close's 1e-5
            gradient /= gradient.abs().max()
        return logits, gradient, model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)

    expected, original = results(), file.apply_rotary_pos_emb

    # transformers does so itself, where the versions of the two packages suit each other.
    @kernels.use_kernel_forward_from_hub("rotary_pos_emb")
    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        return original(q, k, cos, sin, unsqueeze_dim)

    monkeypatch.setattr(file, "apply_rotary_pos_emb", apply_rotary_pos_emb)
    model.rotary_function = apply_rotary_pos_emb
    layer = kernels.LocalLayerRepository(variant, layer_name="apply_rotary_transformers")
    with kernels.use_kernel_mapping({"rotary_pos_emb": {device: layer}}, inherit_mapping=False):
        mode = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE
        kernels.kernelize(model, mode=mode, device=device, use_fallback=False)
    assert apply_rotary_pos_emb.forward.__func__ is kernel.layers.apply_rotary_transformers.forward
    torch.testing.assert_close(results(), expected)


def test_rotary_function(kernel, device):
    """Older versions of transformers ask for a function."""
    q, k, cos, sin = (torch.randn(*shape, 5, 8, device=device) for shape in ((2, 4), (2, 2), (2,), (2,)))
    results = [package.apply_rotary_transformers(q, k, cos, sin) for package in (kernel, copes)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "options, message",
    [
        ((), "which folder? --out FOLDER"),
        (("--out",), "--out needs a value"),
        (("--out", "x", "--cuda", "twelve"), "--cuda is twelve; it must be MAJOR.MINOR, such as 12.8"),
        (("--speed",), "--speed is no option; --help lists them"),
    ],
)
def test_errors(options, message):
    refused = run(SCRIPT, *options)
    assert refused.returncode == 1 and refused.stdout == f"hf_kernels.sh: {message}\n"
