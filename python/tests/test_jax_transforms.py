"""copes.jax under vmap, under shard_map over four devices of the CPU, and with caches that a program updates."""

import functools
import pathlib

import copes
import numpy as np
import pytest
import reference
import torch

jax = pytest.importorskip("jax", "0.8", "JAX 0.8 or newer is not installed: copes.jax is not tested")
if not hasattr(copes._copes, "xla_handlers"):
    pytest.skip("copes was built without XLA's header: copes.jax is not tested", allow_module_level=True)

import copes.jax as cj  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from jax_cases import as_list, close, make, softmax_shares, theta_of, to_torch, tpa_factors  # noqa: E402

DEVICES = 4


@pytest.fixture(autouse=True)
def on_the_cpu():
    np.random.seed(0)
    with jax.default_device(jax.devices("cpu")[0]):
        yield


# ---- vmap ------------------------------------------------------------------------------------------------------------


def rotate(x, theta, positions=None, **options):
    return cj.lrpe_rotate(x, theta, positions=positions, **options)


def squares(function, places):
    """The gradients of a sum over function's results."""
    return jax.grad(lambda *inputs: sum((o**2).sum() for o in as_list(function(*inputs))), argnums=places)


def places(*shape):
    return jnp.asarray(np.random.randint(0, 99, shape), "int32")


def merge(o, lse):
    return cj.attention_merge(o, lse, return_lse=True)


def prologue(q, k, theta, w, slots=None, k_cache=None):
    return cj.qk_norm_rope(q, k, theta, wq=w, wk=w, slots=slots, k_cache=k_cache)


X, THETA = (3, 2, 5, 4, 16), (1, 8)
SLOTS = [[[0, 1, 2, 3, 4], [5, 6, 7, -1, 9]]] * 3
MAPPED = {
    "act": (lambda x: cj.act(x, "softmax", 0), lambda: [make(*X)], 0),
    "act of a vector": (lambda x: cj.act(x, "silu"), lambda: [make(5, 7)], 0),
    "act of rank 8": (lambda x: cj.act(x, "softmax", 1), lambda: [make(3, 2, 1, 1, 1, 1, 2, 2, 2)], 0),
    "act, another axis": (lambda x: cj.act(x, "softmax", 1), lambda: [make(*X)], 2),
    "share of softmax": (
        lambda x, lse: cj.act(x, "softmax", 1, lse=lse),
        lambda: [make(3, 2, 5), make(2, 1)],
        (0, None),
    ),
    "softmax_lse": (lambda x: cj.softmax_lse(x, 0), lambda: [make(*X)], 0),
    "lrpe": (rotate, lambda: [make(*X), theta_of(8)], (0, None)),
    "lrpe of rank 3": (rotate, lambda: [make(3, 2, 5, 16), theta_of(8)], (0, None)),
    "theta": (rotate, lambda: [make(*X[1:]), make(3, *THETA)], (None, 0)),
    "positions (N)": (rotate, lambda: [make(*X), theta_of(8), places(5)], (0, None, None)),
    "positions (N), mapped": (rotate, lambda: [make(*X[1:]), theta_of(8), places(3, 5)], (None, None, 0)),
    "positions (B, N)": (rotate, lambda: [make(*X), theta_of(8), places(2, 5)], (0, None, None)),
    "positions (m, B, N)": (rotate, lambda: [make(*X), theta_of(4), places(3, 2, 2, 5)], (0, None, 0)),
    "sequence": (lambda x, theta: rotate(x, theta, act="softmax", dim=1), lambda: [make(*X), theta_of(8)], (0, None)),
    "qk": (prologue, lambda: [make(*X), make(*X), theta_of(8), make(16)], (0, 0, None, None)),
    "qk, weights": (prologue, lambda: [make(*X), make(*X), theta_of(8), make(3, 16)], (0, 0, None, 0)),
    "cache": (
        prologue,
        lambda: [make(*X), make(*X), theta_of(8), make(16), jnp.asarray(SLOTS), make(3, 4, 4, 16)],
        (0, 0, None, None, 0, None),
    ),
    "tpa": (lambda *f: cj.tpa_decode(*f, return_lse=True), lambda: [make(3, *x.shape) for x in tpa_factors()], 0),
    "merge": (merge, lambda: [make(3, 2, 2, 5, 4, 8), make(3, 2, 2, 5, 4)], 0),
    "merge, another axis": (merge, lambda: [make(2, 2, 5, 4, 3, 8), make(2, 2, 5, 4, 3)], (4, 4)),
    "empty batch": (rotate, lambda: [make(3, 0, 5, 4, 16), theta_of(8)], (0, None)),
    "gradient": (squares(rotate, 0), lambda: [make(*X), theta_of(8)], (0, None)),
    "gradient of theta": (squares(rotate, (0, 1)), lambda: [make(*X), theta_of(8)], (0, None)),
    "gradient of qk": (
        squares(prologue, (0, 1)),
        lambda: [make(*X), make(*X), theta_of(8), make(16)],
        (0, 0, None, None),
    ),
    "gradient of weights": (
        squares(prologue, 3),
        lambda: [make(*X), make(*X), theta_of(8), make(16)],
        (0, 0, None, None),
    ),
    "gradient of merge": (squares(merge, (0, 1)), lambda: [make(3, 2, 2, 5, 4, 8), make(3, 2, 2, 5, 4)], 0),
}


@pytest.mark.parametrize("case", MAPPED)
def test_vmap(case):
    """The bits of a call for each; sums of gradients may be added up in another order."""
    function, inputs, axes = MAPPED[case]
    inputs = inputs()
    axes = axes if isinstance(axes, tuple) else (axes,) * len(inputs)
    size = next(x.shape[axis] for x, axis in zip(inputs, axes) if axis is not None)
    made = as_list(jax.jit(jax.vmap(function, axes))(*inputs))
    each = [
        as_list(function(*(x if axis is None else jnp.take(x, i, axis) for x, axis in zip(inputs, axes))))
        for i in range(size)
    ]
    for place, o in enumerate(made):
        wanted = np.stack([results[place] for results in each])
        bound = 1e-5 if "gradient" in case else 0
        np.testing.assert_allclose(o, wanted, rtol=2 * bound, atol=bound)


def test_vmap_is_one_call():
    x, theta = make(*X), theta_of(8)
    text = jax.jit(jax.vmap(jax.vmap(rotate, (0, None)), (0, None))).lower(x[:, :, None], theta).as_text()
    assert text.count("stablehlo.custom_call @copes") == 1 and "while" not in text
    text = jax.jit(jax.vmap(rotate)).lower(x, make(3, *THETA)).as_text()
    assert "while" in text


def test_vmap_names_what_is_wrong():
    with pytest.raises(ValueError, match=r"theta has shape \(1, 3\); with 8 angles"):
        jax.vmap(rotate, (0, None))(make(*X), make(1, 3))
    with pytest.raises(ValueError, match="x has rank 0"):
        jax.vmap(lambda x: cj.act(x, "relu"))(make(4))


# ---- shard_map -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mesh():
    if len(jax.devices("cpu")) < DEVICES:
        pytest.skip(f"JAX has {len(jax.devices('cpu'))} devices on the CPU; {DEVICES} are needed")
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:DEVICES]), ("d",))


def over_devices(mesh, function, ins, outs, check=True):
    return jax.shard_map(function, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=check)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("compiled", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_batch_over_devices(mesh, compiled, check):
    """theta is on every device; its gradient is the sum of theirs."""
    x, w, theta = make(8, 5, 3, 16), make(8, 5, 3, 16), theta_of(8)
    sharded = over_devices(mesh, lambda x, theta: rotate(x, theta, act="silu"), (P("d"), P()), P("d"), check)
    assert np.array_equal(compiled(sharded)(x, theta), rotate(x, theta, act="silu"))

    grads = compiled(jax.grad(lambda x, theta: (sharded(x, theta) * w).sum(), argnums=(0, 1)))(x, theta)
    wide = [to_torch(each).requires_grad_() for each in (x, theta)]
    (reference.lrpe_rotate(*wide, "silu") * to_torch(w)).sum().backward()
    close(grads[0], wide[0].grad, 8)
    close(grads[1], wide[1].grad, 200)


def test_gradient_inside(mesh):
    """Of the weights that all devices share, as a training step in shard_map takes it."""
    q, k, theta, w = make(8, 5, 4, 16), make(8, 5, 2, 16), theta_of(8), make(16)

    def step(q, k, w):
        return jax.grad(lambda w: sum((o**3).sum() for o in cj.qk_norm_rope(q, k, theta, wq=w, wk=w)))(w)

    grad = jax.jit(over_devices(mesh, step, (P("d"), P("d"), P()), P()))(q, k, w)
    np.testing.assert_allclose(grad, step(q, k, w), rtol=1e-5)


def test_heads_over_devices(mesh):
    o, lse = make(3, 2, 5, 8, 16), make(3, 2, 5, 8)
    heads = P(None, None, None, "d")
    made = jax.jit(over_devices(mesh, merge, (heads, heads), (P(None, None, "d"), P(None, None, "d"))))(o, lse)
    for each, wanted in zip(made, reference.attention_merge(to_torch(o), to_torch(lse))):
        close(each, wanted)


def test_cache_over_devices(mesh):
    """Each has a share of the keys; their outputs are merged by all_gather."""
    aq, ak, av, bq, bk, bv = tpa_factors(m=16)

    def decode(aq, ak, av, bq, bk, bv):
        first = jax.lax.axis_index("d") * ak.shape[1]
        lengths = jnp.clip(jnp.full(aq.shape[0], 13, "int32") - first.astype("int32"), 0, ak.shape[1])
        o, lse = cj.tpa_decode(aq, ak, av, bq, bk, bv, kv_len=lengths, return_lse=True)
        return cj.attention_merge(jax.lax.all_gather(o, "d"), jax.lax.all_gather(lse, "d"))

    keys = P(None, "d")
    made = jax.jit(over_devices(mesh, decode, (P(), keys, keys, P(), keys, keys), P(), False))(aq, ak, av, bq, bk, bv)
    wanted, _ = reference.tpa_decode(*map(to_torch, (aq, ak, av, bq, bk, bv)), kv_len=torch.tensor([13, 13]))
    close(made, wanted, 10)


@pytest.mark.parametrize("encoded", [False, True])
def test_softmax_over_a_sequence_in_shares(mesh, encoded):
    x, w, theta = make(2, 16, 3, 8), make(2, 16, 3, 8), theta_of(4)
    positions = jnp.arange(16, dtype="int32")

    def softmax(x, positions, theta):
        lse = softmax_shares(cj.softmax_lse(x, 1), "d")
        if not encoded:
            return cj.act(x, "softmax", 1, lse=lse)
        return rotate(x, theta, positions, act="softmax", dim=1, lse=lse[:, 0])

    sharded = over_devices(mesh, softmax, (P(None, "d"), P("d"), P()), P(None, "d"))
    wide = [to_torch(each).requires_grad_() for each in (x, theta)]
    wanted = reference.lrpe_rotate(*wide, "softmax", 1) if encoded else reference.act(wide[0], "softmax", 1)
    close(jax.jit(sharded)(x, positions, theta), wanted)

    grads = jax.jit(jax.grad(lambda x, theta: (sharded(x, positions, theta) * w).sum(), argnums=(0, 1)))(x, theta)
    (wanted * to_torch(w)).sum().backward()
    close(grads[0], wide[0].grad, 8)
    if encoded:
        close(grads[1], wide[1].grad, 50)


# ---- caches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("cache", ["float32", "float8_e4m3fn"])
def test_caches(cache, dtype):
    """Those that are given keep their values, and those that are returned are what copes writes in place."""
    q, k, v, theta, w = make(2, 5, 4, 16), make(2, 5, 2, 16), make(2, 5, 2, 6), theta_of(8), make(16)
    k_cache, v_cache = make(3, 4, 2, 16).astype(cache), make(3, 4, 2, 6).astype(cache)
    with jax.enable_x64(dtype == "int64"):
        slots = jnp.asarray([[0, 1, 2, -1, 11], [5, 12, 7, 8, 9]], dtype)
        made = jax.jit(lambda q, k, **options: cj.qk_norm_rope(q, k, theta, wq=w, wk=w, **options))(
            q, k, v=v, slots=slots, k_cache=k_cache, v_cache=v_cache
        )
    written = np.array(k_cache), np.array(v_cache)
    wanted = copes.qk_norm_rope(
        *map(np.asarray, (q, k, theta)), wq=np.asarray(w), wk=np.asarray(w), v=np.asarray(v),
        slots=np.asarray(slots, np.int64), k_cache=written[0], v_cache=written[1],
    )  # fmt: skip
    for each, of in zip(made, (*wanted, *written), strict=True):
        assert np.array_equal(np.asarray(each, np.float32), np.asarray(of, np.float32))
    assert not np.array_equal(np.asarray(k_cache, np.float32), written[0].astype(np.float32))


def test_a_donated_cache_is_written_in_place():
    q, k, theta, cache = make(1, 2, 4, 16), make(1, 2, 2, 16), theta_of(8), make(64, 4, 2, 16)
    slots = jnp.asarray([[3, 5]])
    step = jax.jit(
        lambda cache: cj.qk_norm_rope(q, k, theta, slots=slots, k_cache=cache, return_k=False)[1], donate_argnums=0
    )
    wanted, address = np.array(step(jnp.array(cache))), cache.unsafe_buffer_pointer()
    made = step(cache)
    assert made.unsafe_buffer_pointer() == address and np.array_equal(made, wanted) and cache.is_deleted()


def test_gradients_beside_a_cache():
    """Through q_out and k_out; what is in the cache has none."""
    q, k, theta, w, cache = make(1, 5, 4, 16), make(1, 5, 2, 16), theta_of(8), make(16), make(3, 4, 2, 16)
    slots = jnp.asarray([[0, 1, 2, 3, 4]])

    def loss(w, **options):
        q_out, k_out, *_ = cj.qk_norm_rope(q, k, theta, wq=w, wk=w, **options)
        return (q_out**3).sum() + (k_out**3).sum()

    assert np.array_equal(jax.grad(loss)(w, slots=slots, k_cache=cache), jax.grad(loss)(w))


# ---- the pages -------------------------------------------------------------------------------------------------------


def example(page):
    """The first code of the page's section about JAX."""
    text = pathlib.Path(__file__).parents[2].joinpath("docs", page).read_text().split("\n## JAX\n")[1]
    return text.split("```python\n")[1].split("```")[0]


def test_documentation():
    q = make(2, 5, 4, 16)
    names = dict(q=q, k=q, v=q, theta=theta_of(8), wq=make(16), wk=make(16))
    exec(example("python.md"), names)
    assert names["attend"](*(names[name] for name in ("q", "k", "v", "theta", "wq", "wk"))).shape == names["grads"].shape


def test_documentation_of_several_devices(mesh):
    names = dict(copes=copes, functools=functools, jax=jax, jnp=jnp, mesh=mesh, P=P)
    exec(example("distributed.md"), names)
    x = make(2, 16, 3)
    close(names["softmax"](x), reference.act(to_torch(x), "softmax", 1))
