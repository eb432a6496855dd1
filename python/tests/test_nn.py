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


def factors(**changes):
    shapes = {"ak": (2, 3, 6, 2), "bk": (2, 3, 2, 16), "av": (2, 3, 6, 1), "bv": (2, 3, 1, 8)}
    return {name: torch.ones(changes.get(name, shape)) for name, shape in shapes.items()}


def cache_of(**options):
    return copes.nn.TPADecodeCache(2, 7, 6, 16, 8, rank_k=2, **options)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("ak", (1, 3, 6, 2)),  # what an assignment would broadcast
        ("bv", (1, 3, 1, 8)),
        ("bk", (2, 1, 2, 16)),
        ("av", (2, 3, 1, 1)),
        ("bk", (2, 3, 1, 16)),
        ("bv", (2, 3, 1, 1)),
        ("ak", (2, 3, 6)),  # and what it would not
        ("ak", (2,)),
        ("av", (2, 3, 6)),
        ("bv", (2, 3, 8)),
        ("bv", (2, 2, 1, 8)),
        ("bv", (3, 3, 1, 8)),
        ("av", (2, 3, 7, 1)),
        ("bk", (2, 3, 2, 17)),
    ],
)
def test_cache_refuses_other_shapes(name, shape):
    cache = cache_of()
    with pytest.raises(ValueError, match=rf"^{name} has shape .*; it must be \(2, (3|tokens), "):
        cache.append(**factors(**{name: shape}))
    assert len(cache) == 0 and not any(buffer.any() for buffer in cache.buffers())


def test_cache_refuses_other_types_and_devices():
    cache, good = cache_of(), factors()
    bv = good["bv"]
    for kind, value in ((TypeError, bv.half()), (ValueError, bv.to("meta")), (TypeError, bv.numpy())):
        with pytest.raises(kind, match="^bv "):
            cache.append(**{**good, "bv": value})
    assert len(cache) == 0 and not any(buffer.any() for buffer in cache.buffers())


def test_cache_keeps_no_history():
    cache, good = cache_of(), {name: value.requires_grad_() for name, value in factors().items()}
    cache.append(**{name: value * 2 for name, value in good.items()})
    cache.append(**good)
    assert len(cache) == 6 and not any(buffer.requires_grad or buffer.grad_fn for buffer in cache.buffers())
    assert cache.bv[:, :3].eq(2).all() and cache.bv[:, 3:6].eq(1).all()


def test_repr():
    assert repr(copes.nn.RotaryEmbedding(8, 500.0, pairing="interleaved")) == (
        "RotaryEmbedding(dim=8, base=500.0, rotary_dim=8, pairing='interleaved', heads_first=False)"
    )
    assert repr(copes.nn.LRPE(3, 8, act="silu", grid_rank=2, prefix=1)) == (
        "LRPE(heads=3, dim=8, base=10000.0, variant='cosine', act='silu', softmax_dim=-1, grid_rank=2, prefix=1, "
        "heads_first=False)"
    )
    cache = cache_of()
    cache.append(**factors())
    assert repr(cache) == (
        "TPADecodeCache(batch=2, capacity=7, heads=6, dim=16, value_dim=8, rank_k=2, rank_v=1, length=3)"
    )


def test_layers_need_no_import_of_their_own():
    code = "import sys, copes; assert 'torch' not in sys.modules; print(copes.nn.RotaryEmbedding(8).dim, hasattr(copes, 'x'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("8 False\n", "")


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
