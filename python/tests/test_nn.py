"""copes.nn and the examples."""

import copy
import importlib.util
import pathlib
import shutil
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


LAYERS = {
    "RotaryEmbedding": lambda **options: copes.nn.RotaryEmbedding(8, 500.0, **options),
    "LRPE": lambda **options: copes.nn.LRPE(3, 8, 500.0, **options),
    "yarn": lambda **options: copes.nn.RotaryEmbedding(
        8, scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64), **options
    ),
    "M-RoPE": lambda **options: copes.nn.RotaryEmbedding(8, scaling=dict(mrope_section=[1, 1, 2]), **options),
}


def garbage(layer):
    """What to_empty() may leave in memory."""
    return torch.full_like(layer.theta, 7.0, device="cpu")


def by_setting(layer, device):
    layer.theta = garbage(layer).to(device)


def by_setting_the_buffer(layer, device):
    layer._buffers["theta"] = garbage(layer).to(device, torch.bfloat16)


def by_reset_parameters(layer, device):
    by_setting(layer, device)
    layer.reset_parameters()


MATERIALIZE = {
    "to_empty": lambda layer, device: layer.to_empty(device=device),
    "to_empty of a model": lambda layer, device: torch.nn.Sequential(layer).to_empty(device=device),
    "to_empty of a smaller type": lambda layer, device: layer.bfloat16().to_empty(device=device),
    "apply": lambda layer, device: layer._apply(lambda t: torch.full_like(t, 7.0, device=device)),
    "setting": by_setting,
    "setting the buffer": by_setting_the_buffer,
    "reset_parameters": by_reset_parameters,
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("how", MATERIALIZE)
def test_theta_of_a_layer_without_memory(device, name, how):
    """No checkpoint has theta; it must not stay what the memory held."""
    expected = LAYERS[name](device=device)
    x = torch.randn(2, 5, 3, 8, device=device)
    with torch.device("meta"):
        made_in_context = LAYERS[name]()
    for layer in (LAYERS[name](device="meta"), made_in_context, LAYERS[name]().to("meta")):
        assert layer.theta.is_meta
        assert layer(x.to("meta")).shape == expected(x).shape
        MATERIALIZE[how](layer, device)
        layer.load_state_dict({}, assign=True)
        assert torch.equal(layer(x), expected(x))
        assert torch.equal(layer.theta, expected.theta) and layer.theta.dtype == torch.float32
        layer.theta.mul_(2)  # what is set once theta has values stays
        assert torch.equal(layer.to(device).theta, expected.theta * 2) and not torch.equal(layer(x), expected(x))


@pytest.mark.parametrize("name", LAYERS)
def test_theta_outlives_to_empty(device, name):
    layer, expected = LAYERS[name](), LAYERS[name]()
    layer._apply(lambda t: torch.full_like(t, 7.0, device=device))
    assert torch.equal(layer.theta.cpu(), expected.theta) and layer.theta.device.type == device
    layer.to_empty(device=device)
    assert torch.equal(layer.theta.cpu(), expected.theta)


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_layers_without_memory(device, name):
    torch.compiler.reset()
    layer, x = LAYERS[name](device="meta"), torch.randn(2, 5, 3, 8, device=device)
    by_setting(layer, device)
    with pytest.raises(RuntimeError, match="reset_parameters"):
        torch.export.export(layer, (x,))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        assert torch.equal(compiled(x), LAYERS[name](device=device)(x))
    assert torch.equal(layer.theta, LAYERS[name](device=device).theta)


def test_skip_init(device):
    layer = torch.nn.utils.skip_init(copes.nn.RotaryEmbedding, 8, device=device)
    assert torch.equal(layer.theta, copes.nn.RotaryEmbedding(8, device=device).theta)


class Model(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.rope = copes.nn.RotaryEmbedding(8, device=device)
        self.encode = copes.nn.LRPE(3, 8, act="silu", device=device)

    def forward(self, x):
        return self.encode(self.rope(x))


def test_export(device, tmp_path):
    model, x = Model(device), torch.randn(2, 5, 3, 8, device=device)
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    code = (
        "import copes.nn, sys, torch\n"
        "program, x, expected = torch.export.load(sys.argv[1]), *torch.load(sys.argv[2])\n"
        "assert torch.equal(program.module()(x), expected)"
    )
    x = torch.randn(3, 5, 3, 8, device=device)
    torch.save((x, model(x)), tmp_path / "tensors.pt")
    arguments = [str(tmp_path / name) for name in ("model.pt2", "tensors.pt")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, cwd=tmp_path)


@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="needs a C++ compiler")
def test_ahead_of_time(device, tmp_path):
    """AOTInductor hands None to an operator for an empty list."""
    model, x = Model(device), torch.randn(2, 5, 3, 8, device=device)
    program = torch.export.export(model, (x,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), model(x))


def test_lrpe(device):
    x = torch.randn(2, 10 + 24, 3, 8, device=device)
    for variant in ("cosine", "rotate"):
        layer = copes.nn.LRPE(3, 8, variant=variant, act="silu", grid_rank=2, prefix=10, device=device)
        expected = getattr(reference, f"lrpe_{variant}")(reference.wide(x), layer.theta, "silu", grid=(4, 6), prefix=10)
        reference.assert_close(layer(x, grid=(4, 6)), expected)
    with pytest.raises(ValueError, match="variant"):
        copes.nn.LRPE(3, 8, variant="sine")


@pytest.mark.parametrize("variant, angles", [("cosine", 8), ("rotate", 4)])
def test_lrpes_frequencies(variant, angles):
    """Those of TransNormerLLM's Lrpe: 10000 ** (-2 / d * arange(...)).reshape(heads, 1, -1), d = heads * dim."""
    theirs = 10000 ** (-2 / (3 * 8) * torch.arange(3 * angles, dtype=torch.float64)).reshape(3, 1, -1)
    layer = copes.nn.LRPE(3, 8, variant=variant)
    torch.testing.assert_close(layer.theta, theirs[:, 0].float(), rtol=1e-6, atol=0)
    grid = copes.nn.LRPE(3, 8, variant=variant, grid_rank=2)
    torch.testing.assert_close(grid.theta, theirs[:, 0, : angles // 2].float(), rtol=1e-6, atol=0)


class Published(torch.nn.Module):
    """TransNormerLLM's Lrpe, as its checkpoints have it: (batch, heads, tokens, dim)."""

    def __init__(self, heads, dim):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.rand(heads, 1, dim))

    def forward(self, x):
        angles = torch.arange(x.shape[2]).reshape(1, -1, 1).to(x) * self.theta
        return torch.cat((x * angles.cos(), x * angles.sin()), -1)


def test_lrpe_learns(device):
    published = Published(3, 8).to(device)
    x, target = torch.randn(2, 3, 5, 8, device=device), torch.randn(2, 3, 5, 16, device=device)
    options = dict(heads_first=True, device=device)
    own = torch.nn.Parameter(published.theta.detach().clone())
    layers = {
        "learnable": copes.nn.LRPE(3, 8, learnable=True, **options),
        "parameter": copes.nn.LRPE(3, 8, theta=own, **options),
        "copy": copes.nn.LRPE(3, 8, theta=published.theta.detach(), learnable=True, **options),
        "(H, E)": copes.nn.LRPE(3, 8, theta=published.theta.detach()[:, 0], learnable=True, **options),
    }
    assert layers["parameter"].theta is own
    (published(x) - target).square().sum().backward()
    for layer in layers.values():
        assert isinstance(layer.theta, torch.nn.Parameter) and list(layer.state_dict()) == ["theta"]
        layer.load_state_dict(published.state_dict())
        o = layer(x)
        torch.testing.assert_close(o, published(x), rtol=1e-5, atol=1e-5)
        (o - target).square().sum().backward()
        gradient = layer.theta.grad.reshape(3, 1, 8)
        torch.testing.assert_close(gradient, published.theta.grad, rtol=1e-4, atol=1e-3)
    published.load_state_dict(layers["parameter"].state_dict())
    assert torch.equal(copes.nn.LRPE(3, 8, theta=own, **options).theta, own)


def test_lrpe_of_a_tensor(device):
    """Which is no parameter: state_dict does not have it, but a checkpoint may set it."""
    theta, x = torch.rand(3, 1, 8, device=device), torch.randn(2, 5, 3, 8, device=device)
    layer, default = copes.nn.LRPE(3, 8, theta=theta), copes.nn.LRPE(3, 8, device=device)
    assert layer.theta.device == theta.device and not layer.state_dict() and not list(layer.parameters())
    assert torch.equal(layer(x), copes.lrpe_cosine(x, theta[:, 0]))
    default.load_state_dict({"theta": theta})
    assert torch.equal(default(x), layer(x)) and not default.state_dict()
    layer.theta.zero_()
    layer.reset_parameters()
    assert torch.equal(layer.theta, theta)
    with pytest.raises(RuntimeError, match="size mismatch for theta"):
        default.load_state_dict({"theta": theta[:2]})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        default.load_state_dict({"theta": theta, "eta": theta})
    mixed = torch.rand(2, 3, 8, device=device)
    grid = copes.nn.LRPE(3, 8, theta=mixed, grid_rank=2)
    assert torch.equal(grid(x[:, :4], grid=(2, 2)), copes.lrpe_cosine(x[:, :4], mixed, grid=(2, 2)))


def test_learned_theta_stays_float32(device):
    layer = copes.nn.LRPE(3, 8, learnable=True, device=device)
    parameter, values = layer.theta, layer.theta.detach().clone()
    layer(torch.ones(1, 4, 3, 8, device=device)).sum().backward()
    for cast in (layer.bfloat16, layer.double, layer.half):
        cast()
        assert layer.theta is parameter and layer.theta.dtype == layer.theta.grad.dtype == torch.float32
        assert torch.equal(layer.theta, values)
    o = layer(torch.ones(1, 4, 3, 8, device=device, dtype=torch.bfloat16))
    o.sum().backward()
    assert o.dtype == torch.bfloat16


@pytest.mark.parametrize("how, learnable", [("to_empty", True), ("assign", True), ("assign", False), ("setting", True)])
def test_theta_from_a_checkpoint_of_a_layer_without_memory(device, how, learnable):
    """The first call must not undo it."""
    layer, x = copes.nn.LRPE(3, 8, learnable=learnable, device="meta"), torch.randn(1, 4, 3, 8, device=device)
    checkpoint = {"theta": torch.rand(3, 1, 8, device=device)}
    expected = copes.lrpe_cosine(x, checkpoint["theta"][:, 0].clone())  # the layer may share the checkpoint's memory
    if how == "to_empty":
        layer.to_empty(device=device)
        assert torch.equal(layer.theta, copes.nn.LRPE(3, 8, device=device).theta)
        layer.load_state_dict(checkpoint)
    elif how == "assign":
        layer.load_state_dict(checkpoint, assign=True)
    else:
        layer.theta = torch.nn.Parameter(checkpoint["theta"][:, 0].clone())
    assert torch.equal(layer(x), expected)


def test_lrpe_at_positions(device):
    x, positions = torch.randn(2, 5, 3, 8, device=device), torch.randint(0, 99, (2, 2, 5), device=device)
    layer = copes.nn.LRPE(3, 8, variant="rotate", pairing="interleaved", act="silu", grid_rank=2, device=device)
    where = dict(positions=positions, inverse=True)
    expected = copes.lrpe_rotate(x, layer.theta, act="silu", pairing="interleaved", **where)
    assert torch.equal(layer(x, **where), expected)
    line, offsets = copes.nn.LRPE(3, 8, device=device), positions[0, :, 0]
    assert torch.equal(line(x, offsets=offsets), copes.lrpe_cosine(x, line.theta, offsets=offsets))


@pytest.mark.parametrize("learnable", [False, True])
def test_layers_are_copied_and_saved(device, tmp_path, learnable):
    layer, x = copes.nn.LRPE(3, 8, learnable=learnable, device=device), torch.randn(1, 4, 3, 8, device=device)
    torch.save(layer, tmp_path / "layer.pt")
    for other in (copy.deepcopy(layer), torch.load(tmp_path / "layer.pt", weights_only=False)):
        assert torch.equal(other(x), layer(x))


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
    assert repr(copes.nn.LRPE(3, 8, pairing="interleaved", learnable=True)).endswith(
        "heads_first=False, learnable=True, pairing='interleaved')"
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
