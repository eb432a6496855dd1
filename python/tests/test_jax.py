"""copes.jax inside jit: values and gradients beside float64, and what is refused."""

import inspect
import subprocess
import sys

import copes
import numpy as np
import pytest
import reference

jax = pytest.importorskip("jax", "0.8", "JAX 0.8 or newer is not installed: copes.jax is not tested")
if not hasattr(copes._copes, "xla_handlers"):
    pytest.skip("copes was built without XLA's header: copes.jax is not tested", allow_module_level=True)

import copes.jax as cj  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from copes import _jax_call  # noqa: E402
from jax_cases import check, close, make, theta_of, to_torch, tpa_factors  # noqa: E402

KEPT = {"float16": 100, "bfloat16": 1000}  # softmax's gradient is of the result as it was stored
DTYPES = ["float32", "float16", "bfloat16", "float64"]


@pytest.fixture(autouse=True)
def on_the_cpu():
    np.random.seed(0)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.mark.parametrize(
    "name", ["act", "attention_merge", "lrpe_cosine", "lrpe_rotate", "qk_norm_rope", "softmax_lse", "tpa_decode"]
)
def test_arguments_are_those_of_copes(name):
    def arguments(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters if p.name != "out"]

    assert arguments(getattr(cj, name)) == arguments(getattr(copes, name))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("act", reference.ACTS)
def test_act(act, dtype):
    x = make(3, 5, 7, dtype=dtype)
    sums = {0: KEPT.get(dtype, 8) if act in ("sigmoid", "softmax") else 8}
    for dim in (-1, 1):
        check(lambda x: cj.act(x, act, dim), lambda x: reference.act(x, act, dim), [x], [0], sums)


ENCODINGS = {
    "plain": dict(),
    "silu": dict(act="silu"),
    "features": dict(act="softmax"),
    "sequence": dict(act="softmax", dim=1),
    "grid": dict(grid=[2, 2], prefix=1, offset=(3, 5), sections=[3, 5]),
    "inverse": dict(inverse=True, amplitude=0.5, offset=1000),
    "heads": dict(act="relu", heads=3),
}


def expected_lrpe(of, act="none", dim=-1, **options):
    return lambda x, theta, *where: of(x, theta, act, dim, **options, **dict(zip(("positions", "offsets"), where)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_lrpe_rotate(options, dtype):
    options = dict(options)
    x, theta = make(2, 5, 3, 16, dtype=dtype), theta_of(8, options.pop("heads", 1))
    if dtype == "bfloat16":
        theta = theta.astype("bfloat16")
    # theta's gradient is a sum over tokens, each with its position
    sums = {1: 5e4 if "inverse" in options or "grid" in options else 50}
    check(
        lambda x, theta: cj.lrpe_rotate(x, theta, **options),
        expected_lrpe(reference.lrpe_rotate, **options),
        [x, theta],
        [0] if dtype in ("float16", "bfloat16") else [0, 1],
        sums,
    )


@pytest.mark.parametrize("options", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_lrpe_cosine(options):
    options = {name: x for name, x in options.items() if name != "sections"}
    x, theta = make(2, 5, 3, 8, dtype="float64"), theta_of(8, options.pop("heads", 1))
    check(
        lambda x, theta: cj.lrpe_cosine(x, theta, **options),
        expected_lrpe(reference.lrpe_cosine, **options),
        [x, theta],
        [0],
    )


def test_md_lrpe_cosine():
    x, theta = make(2, 7, 3, 8), theta_of(4)
    made = jax.jit(lambda x, theta: cj.md_lrpe_cosine(x, theta, (2, 3), 1, offset=(4, 5)))(x, theta)
    assert np.array_equal(made, copes.md_lrpe_cosine(np.asarray(x), np.asarray(theta), (2, 3), 1, offset=(4, 5)))


@pytest.mark.parametrize("where", ["positions", "offsets"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_positions(where, dtype):
    x, theta = make(2, 5, 3, 16), theta_of(8)
    places = jnp.asarray(np.random.randint(0, 1000, (2, 5) if where == "positions" else 2), dtype)
    check(
        lambda x, theta, places: cj.lrpe_rotate(x, theta, **{where: places}),
        lambda x, theta, places: reference.lrpe_rotate(x, theta, **{where: places}),
        [x, theta, places],
        [0],
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("weights", ["both", "none"])
def test_qk_norm_rope(weights, dtype):
    q, k, theta = make(2, 5, 4, 16, dtype=dtype), make(2, 5, 2, 16, dtype=dtype), theta_of(8)
    wq, wk = (make(16, dtype=dtype) if weights == "both" else None for _ in range(2))
    learned = [0, 1, 3, 4] if weights == "both" and dtype != "bfloat16" else [0, 1]
    made = check(
        lambda q, k, theta, wq, wk: cj.qk_norm_rope(q, k, theta, wq=wq, wk=wk, offset=9),
        lambda q, k, theta, wq, wk: reference.qk_norm_rope(q, k, theta, wq, wk, offset=9),
        [q, k, theta, wq, wk],
        learned,
        {3: 50, 4: 50},
    )
    alone = jax.jit(lambda q: cj.qk_norm_rope(q, None, theta, wq=wq, offset=9))(q)
    assert np.array_equal(alone, made[0])


def test_gradients_of_one_result():
    """Of q_out or k_out alone, and of q or a weight alone."""
    q, k, theta, w = make(2, 5, 4, 16), make(2, 5, 2, 16), theta_of(8), make(16)

    def loss(place, q, k, w):
        return (cj.qk_norm_rope(q, k, theta, wq=w, wk=w)[place] ** 2).sum()

    wide = [to_torch(x).requires_grad_() for x in (q, k, w)]
    for place in (0, 1):
        grads = jax.jit(jax.grad(loss, argnums=(1, 2, 3)), static_argnums=0)(place, q, k, w)
        made = reference.qk_norm_rope(wide[0], wide[1], to_torch(theta), wide[2], wide[2])[place]
        other = 1 - place
        (made**2).sum().backward()
        close(grads[place], wide[place].grad, 8)
        close(grads[2], wide[2].grad, 200)
        assert not grads[other].any()
        for x in wide:
            x.grad = None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tpa_decode(dtype):
    inputs = tpa_factors(dtype=dtype)
    lengths = jnp.asarray([9, 4], "int32")
    made = jax.jit(lambda *inputs: cj.tpa_decode(*inputs[:-1], kv_len=inputs[-1], causal=True, return_lse=True))(
        *inputs, lengths
    )
    wanted = reference.tpa_decode(*map(to_torch, inputs), kv_len=to_torch(lengths), causal=True)
    for each, of in zip(made, wanted):
        close(each, of, 10)
    alone = cj.tpa_decode(*inputs, kv_len=lengths, causal=True)
    assert np.array_equal(alone, made[0])


@pytest.mark.parametrize("base", ["e", "2"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_merge(base, dtype):
    o, lse = make(3, 2, 5, 4, 8, dtype=dtype), make(3, 2, 5, 4, dtype="float64" if dtype == "float64" else "float32")
    both = check(
        lambda o, lse: cj.attention_merge(o, lse, base=base, return_lse=True),
        lambda o, lse: reference.attention_merge(o, lse, base),
        [o, lse],
        [0, 1],
        {1: 100},
    )
    (alone,) = check(
        lambda o, lse: cj.attention_merge(o, lse, base=base),
        lambda o, lse: reference.attention_merge(o, lse, base)[0],
        [o, lse],
        [0, 1],
        {1: 100},
    )
    assert np.array_equal(alone, both[0])


def test_bits_are_those_of_a_call_outside():
    x, theta = make(2, 300, 3, 16), theta_of(8)
    made = jax.jit(lambda x: cj.lrpe_rotate(x, theta, act="softmax", dim=1))(x)
    assert np.array_equal(made, copes.lrpe_rotate(np.asarray(x), np.asarray(theta), act="softmax", dim=1))


def test_on_a_gpu():
    """On XLA's stream, in a workspace of the program's, and again as a command buffer has it."""
    gpus = [device for device in jax.devices() if device.platform == "gpu"]
    if not gpus:
        pytest.skip("JAX has no GPU here")
    x, theta, w = make(2, 300, 4, 64), theta_of(32), make(64)

    def step(x, theta, w):
        o = cj.lrpe_rotate(cj.act(x, "silu"), theta, act="softmax", dim=1)
        return sum((each**3).sum() for each in cj.qk_norm_rope(o, o, jax.lax.stop_gradient(theta), wq=w, wk=w))

    def gradients(device):
        with jax.default_device(device):
            inputs = jax.device_put((x, theta, w), device)
            compiled = jax.jit(jax.value_and_grad(step, argnums=(0, 1, 2)))
            return [jax.tree.leaves(compiled(*inputs)) for _ in range(8)]

    wanted = gradients(jax.devices("cpu")[0])[0]
    for made in gradients(gpus[0]):
        for each, of in zip(made, wanted):
            of = np.asarray(of)
            np.testing.assert_allclose(each, of, rtol=1e-3, atol=1e-4 * np.abs(of).max())


def test_workspace(monkeypatch):
    """Planned in the program, or found too small by a thread that has more threads of its own."""
    x, theta = make(2, 9, 3, 16), theta_of(8)

    def gradient(theta):
        return jax.grad(lambda theta: (cj.lrpe_rotate(x, theta) ** 3).sum())(theta)

    planned = jax.jit(gradient).lower(theta)
    assert "xui8>" in planned.as_text()
    infer = _jax_call.infer
    monkeypatch.setattr(_jax_call, "infer", lambda *arguments: (*infer(*arguments)[:2], 0))
    _jax_call._function.cache_clear()
    unplanned = jax.jit(lambda theta: gradient(theta)).lower(theta)
    assert "xui8>" not in unplanned.as_text()
    assert np.array_equal(unplanned.compile()(theta), planned.compile()(theta))
    monkeypatch.undo()
    _jax_call._function.cache_clear()


X, THETA = np.ones((2, 5, 3, 16), np.float32), np.ones((1, 8), np.float32)


@pytest.mark.parametrize(
    "error, message, function",
    [
        (
            ValueError,
            r"lrpe_forward: theta has shape \(1, 3\); with 8 angles",
            lambda x: cj.lrpe_rotate(x, THETA[:, :3]),
        ),
        (ValueError, "act is 'gelu'; it must be one of none|relu", lambda x: cj.act(x, "gelu")),
        (ValueError, "act_forward: dim is 4; with tensors of rank 4", lambda x: cj.act(x, "softmax", 4)),
        (TypeError, "act_forward: x has type int32; it must be float32", lambda x: cj.act(x.astype("int32"), "relu")),
        (TypeError, "x has dtype complex64; it must be float32", lambda x: cj.act(x.astype("complex64"), "relu")),
        (ValueError, "x has rank 9; it must be at most 8", lambda x: cj.act(x.reshape((1,) * 5 + x.shape), "relu")),
        (TypeError, "x is a <class 'list'>; it must be an array of JAX or NumPy", lambda x: cj.act([1.0], "relu")),
        (
            TypeError,
            "offset is .*Tracer.*it must be an integer",
            lambda x: cj.lrpe_rotate(x, THETA, offset=x.sum().astype(int)),
        ),
        (TypeError, "theta is NULL; it must be a tensor", lambda x: cj.lrpe_rotate(x, None)),
        (ValueError, "rotary_dim is 0; it must be 2 or more", lambda x: cj.lrpe_rotate(x, THETA, rotary_dim=0)),
        (ValueError, "shape is (); it must have 1 to 4", lambda x: cj.md_lrpe_cosine(x, THETA, ())),
        (ValueError, "kv_total is 0; it must be 1 or more", lambda x: cj.tpa_decode(*6 * [x], kv_total=0)),
    ],
)
def test_refusals(error, message, function):
    with pytest.raises(error, match=message.replace("()", r"\(\)").replace("|", r"\|")):
        jax.jit(function)(X)


def test_derivatives_that_do_not_exist():
    with pytest.raises(NotImplementedError, match="tpa_decode: it has no such derivative.*tpa_decode none"):
        jax.grad(lambda aq, *others: cj.tpa_decode(aq, *others).sum())(*tpa_factors())
    with pytest.raises(NotImplementedError, match="it has no such derivative; operators have the first"):
        jax.grad(lambda x: jax.grad(lambda x: cj.act(x, "silu").sum())(x).sum())(X)
    with pytest.raises(NotImplementedError, match=r"lrpe: positions has no gradient; pass jax.lax.stop_gradient"):
        jax.grad(lambda at: cj.lrpe_rotate(X, THETA, positions=at).sum())(np.ones((2, 5), np.float32))
    with pytest.raises(NotImplementedError, match="qk_norm_rope: theta has no gradient"):
        jax.jit(jax.grad(lambda theta: cj.qk_norm_rope(X, None, theta).sum()))(THETA)


@pytest.mark.parametrize(
    "message, attributes",
    [
        ("call of an operator has wrong operator", dict(operator="gelu", inputs="x", outputs="o")),
        ("call of act_forward has wrong inputs", dict(operator="act_forward", inputs="y", outputs="o")),
        ("call of act_forward has wrong inputs", dict(operator="act_forward", inputs="x lse_all", outputs="o")),
        ("call of act_forward has wrong outputs", dict(operator="act_forward", inputs="x", outputs="o o")),
        ("call of act_forward has wrong act", dict(operator="act_forward", inputs="x", outputs="o", act="gelu")),
        ("call of act_forward has wrong dim", dict(operator="act_forward", inputs="x", outputs="o", dim=np.int32(1))),
        ("act_forward: dim is 9", dict(operator="act_forward", inputs="x", outputs="o", dim=np.int64(9))),
    ],
)
def test_programs_of_others(message, attributes):
    """What the handler itself finds wrong, as of a program that another version has stored."""
    foreign = jax.ffi.ffi_call(_jax_call.TARGET, jax.ShapeDtypeStruct(X.shape, X.dtype))
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(foreign(X, **attributes))


def test_wrong_arguments_of_infer():
    described = ((2, 3), "float32")
    with pytest.raises(ValueError, match="the first arguments must be an operator's index and a device"):
        _jax_call.infer(99, 1, 0)
    with pytest.raises(TypeError, match="act_forward: the number of arguments is not the table's"):
        _jax_call.infer(0, 1, 0, described, None, True)
    with pytest.raises(TypeError, match="x is 3; it must be a pair of a shape and a dtype's name, or None"):
        _jax_call.infer(0, 1, 0, 3, None, True, False, False, "silu", None)
    for wrong in (("float32", "float32"), ((2.5,), "float32"), ((2,),)):
        with pytest.raises(TypeError):
            _jax_call.infer(0, 1, 0, wrong, None, True, False, False, "silu", None)


def test_a_build_without_the_header(monkeypatch):
    monkeypatch.delattr(copes._copes, "xla_handlers")
    with pytest.raises(ImportError, match="copes was built without copes.jax, for want of XLA's header"):
        _jax_call.register()


def test_only_copes_jax_loads_jax():
    code = "import sys, copes; assert 'jax' not in sys.modules; copes.jax; assert 'jax' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
