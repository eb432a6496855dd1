"""copes.nn, the examples and the command."""

import importlib.util
import pathlib
import subprocess
import sys

import copes.nn
import pytest
import reference
import torch
from test_tpa import make

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_rotary_embedding(device, pairing, rotary_dim):
    rope = copes.nn.RotaryEmbedding(8, 500.0, rotary_dim=rotary_dim, pairing=pairing, device=device)
    x, width = torch.randn(2, 5, 3, 8, device=device), rotary_dim or 8
    theta = 500.0 ** -(torch.arange(0, width, 2) / width)
    expected = reference.lrpe_rotate(reference.wide(x), theta[None], offset=7, pairing=pairing, rotary_dim=width)
    reference.assert_close(rope(x, offset=7), expected)
    first = copes.nn.RotaryEmbedding(8, 500.0, rotary_dim=rotary_dim, pairing=pairing, heads_first=True, device=device)
    assert torch.equal(first(x.transpose(1, 2), 7).transpose(1, 2), rope(x, 7))


def test_theta_stays_float32(device):
    rope = copes.nn.RotaryEmbedding(8).to(device, torch.bfloat16)
    assert rope.theta.dtype == torch.float32 and rope.theta.device.type == device
    assert torch.equal(rope.theta.cpu(), copes.nn.RotaryEmbedding(8).theta)
    assert rope(torch.ones(1, 2, 1, 8, device=device, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert not rope.state_dict()


def test_lrpe(device):
    x = torch.randn(2, 10 + 24, 3, 8, device=device)
    for variant in ("cosine", "rotate"):
        layer = copes.nn.LRPE(3, 8, variant=variant, act="silu", grid_rank=2, prefix=10, device=device)
        expected = getattr(reference, f"lrpe_{variant}")(reference.wide(x), layer.theta, "silu", grid=(4, 6), prefix=10)
        reference.assert_close(layer(x, grid=(4, 6)), expected)
    with pytest.raises(ValueError, match="variant"):
        copes.nn.LRPE(3, 8, variant="sine")


def test_cache(device):
    aq, ak, av, bq, bk, bv = make(device, torch.float32)
    cache = copes.nn.TPADecodeCache(2, 40, 6, 16, rank_k=2, rank_v=2, device=device)
    cache.append(ak[:, :30], bk[:, :30], av[:, :30], bv[:, :30])
    cache.append(ak[:, 30:], bk[:, 30:], av[:, 30:], bv[:, 30:])
    assert len(cache) == 37
    assert torch.equal(cache.decode(aq, bq), copes.tpa_decode(aq, ak, av, bq, bk, bv))
    with pytest.raises(ValueError, match="capacity is 40"):
        cache.append(ak, bk, av, bv)
    cache.reset()
    assert len(cache) == 0


def test_example_transformer():
    plain, fused = example("rope_transformer").compare(steps=8)
    assert plain == pytest.approx(fused, abs=2e-4)
    assert fused[-1] < fused[0] - 0.2


def test_example_tpa_decode():
    outputs, expected = example("tpa_decode").decode(tokens=20)
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)


def test_command():
    command = [sys.executable, "-m", "copes"]
    if not hasattr(copes._copes, "command"):
        pytest.skip("built without the command")
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"copes {copes.__version__}\n"
    wrong = subprocess.run([*command, "frobnicate"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "frobnicate" in wrong.stderr
