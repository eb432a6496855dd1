"""NumPy, ml_dtypes and DLPack: what comes in is used where it is, and what comes out is the framework's own."""

import subprocess
import sys

import copes
import numpy as np
import pytest
import torch
from copes import _copes
from test_tpa import make

ml_dtypes = pytest.importorskip("ml_dtypes")


def silu(x):
    return (x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_numpy_types(dtype):
    x = np.random.default_rng(0).standard_normal((3, 17)).astype(dtype)
    o = copes.act(x, "silu")
    assert type(o) is np.ndarray and o.dtype == x.dtype
    np.testing.assert_allclose(
        o.astype(np.float64), silu(x).astype(np.float64), rtol=2**-7 if o.itemsize == 2 else 1e-6
    )


def test_numpy_layouts_and_out():
    whole = np.random.default_rng(0).standard_normal((6, 8, 10)).astype(np.float32)
    for x in (whole[::-1], whole[:, ::2, ::-3], whole.T, np.broadcast_to(whole[:1], (4, 8, 10))):
        np.testing.assert_allclose(copes.act(x, "silu"), silu(x), rtol=1e-6)
    out = np.zeros((10, 8, 6), np.float32).T
    assert copes.act(whole, "silu", out=out) is out
    np.testing.assert_allclose(out, silu(whole), rtol=1e-6)


def test_numpy_operators():
    rng = np.random.default_rng(0)
    x, theta = rng.standard_normal((2, 6, 2, 8)).astype(np.float32), rng.random((2, 8)).astype(np.float32)
    torch_x, torch_theta = torch.from_numpy(x), torch.from_numpy(theta)
    assert np.array_equal(
        copes.lrpe_cosine(x, theta, act="softmax", dim=1),
        copes.lrpe_cosine(torch_x, torch_theta, act="softmax", dim=1).numpy(),
    )
    assert np.array_equal(copes.md_lrpe_cosine(x, theta, (2, 3)), copes.md_lrpe_cosine(torch_x, torch_theta, (2, 3)))
    inputs = make("cpu", torch.float32)
    o, lse = copes.tpa_decode(*(t.numpy() for t in inputs), return_lse=True)
    expected = copes.tpa_decode(*inputs, return_lse=True)
    assert np.array_equal(o, expected[0]) and np.array_equal(lse, expected[1])


def test_read_only_arrays_are_read_but_not_written():
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    assert copes.act(x, "relu").tolist() == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        copes.act(x, "relu", out=x)


def test_types_that_only_look_like_numbers():
    for x in (
        np.zeros(4, [("a", "i1"), ("b", "i1")]),
        np.zeros(4, "V2"),
        np.zeros(4, ">f4"),
        np.zeros(4, np.complex64),
    ):
        with pytest.raises(TypeError, match="x has dtype"):
            copes.act(x, "relu")
    field = np.zeros(4, [("a", "i1"), ("b", "f4")])["b"]
    with pytest.raises(ValueError, match="stride of 5 bytes"):
        copes.act(field, "relu")


@pytest.mark.parametrize("cls", [np.ma.MaskedArray, np.matrix, np.recarray])
def test_arrays_that_are_more_than_their_numbers(cls):
    """What a subclass adds would be lost without a word."""
    x = np.ones((4, 8), np.float32)
    special = np.ma.masked_array(x, x == 1) if cls is np.ma.MaskedArray else x.view(cls)
    with pytest.raises(TypeError, match=f"^x is a .*{cls.__name__}.*a mask, a unit.* numpy.asarray"):
        copes.act(special, "relu")
    with pytest.raises(TypeError, match=f"^out is a .*{cls.__name__}"):
        copes.act(x, "relu", out=special)
    assert copes.act(np.asarray(special), "relu").sum() == 32


def test_memory_maps(tmp_path):
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 5))
    x[:] = -1
    assert copes.act(x, "relu").sum() == 0
    assert copes.act(x, "relu", out=x) is x and x.sum() == 0


def test_only_pytorch_loads_pytorch():
    code = "import sys, numpy, copes; copes.act(numpy.ones(3), 'silu'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class Foreign:
    """An array of a framework that only speaks DLPack; it counts how often its memory was asked for."""

    def __init__(self, array):
        self.array, self.exports = array, 0

    def __dlpack__(self, **options):
        self.exports += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def from_dlpack(buffer):
        return Foreign(np.from_dlpack(buffer))


def test_dlpack_without_copies():
    x = Foreign(np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6).T)
    o = copes.act(x, "silu")
    assert isinstance(o, Foreign) and x.exports == 1
    np.testing.assert_allclose(o.array, silu(x.array), rtol=1e-6)
    out = Foreign(np.zeros((6, 4), np.float32))
    address = out.array.ctypes.data
    assert copes.act(x, "silu", out=out) is out and out.array.ctypes.data == address
    np.testing.assert_allclose(out.array, silu(x.array), rtol=1e-6)


def test_old_dlpack_without_versions():
    class Old(Foreign):
        def __dlpack__(self, *, stream=None):
            return super().__dlpack__(stream=stream)

    np.testing.assert_allclose(copes.act(Old(np.ones(3)), "silu").array, silu(np.ones(3)))


def test_what_dlpack_cannot_hold():
    class Strange(Foreign):
        def __dlpack__(self, **options):
            raise BufferError("no such type in DLPack\nsecond line")

    with pytest.raises(TypeError, match="x is a .*Strange.* that DLPack cannot view: no such type in DLPack$"):
        copes.act(Strange(np.ones(3)), "silu")


def test_buffers_outlive_their_makers():
    x = Foreign(np.ones(1000, np.float32))
    array = copes.act(x, "none").array
    del x
    [copes.act(Foreign(np.zeros(1000, np.float32)), "none") for _ in range(10)]
    assert array.sum() == 1000
    torch.from_dlpack(copes.act(Foreign(np.ones(3)), "none").array).add_(1)


def test_buffers_are_the_librarys_own():
    """A framework's from_dlpack sees a Buffer; no call takes one, and none can be made that has no memory."""

    class Keeper(Foreign):
        def __array_namespace__(self):
            return Keeper

        @staticmethod
        def from_dlpack(buffer):
            return buffer

    buffer = copes.act(Keeper(np.ones(5, np.float32)), "none")
    assert type(buffer) is _copes.Buffer and np.from_dlpack(buffer).sum() == 5
    for arguments in ((buffer, *(None,) * 4), (buffer, None, buffer, None, None), (np.ones(5, np.float32), None, buffer, None, None)):
        with pytest.raises(TypeError, match="is a <class 'copes._copes.Buffer'>; it must be a NumPy array"):
            _copes.run(0, *arguments, "silu", -1)
    for wrong in ({"copy": True}, {"dl_device": (2, 0)}, {"dl_device": "cpu"}):
        with pytest.raises(BufferError, match="the memory is shared"):
            buffer.__dlpack__(**wrong)
    buffer.__dlpack__(copy=False, dl_device=buffer.__dlpack_device__(), max_version=(1, 0), stream=None)
    with pytest.raises(TypeError, match="Buffer"):
        _copes.Buffer()
    with pytest.raises(TypeError, match="Buffer"):
        _copes.Buffer.__new__(_copes.Buffer)
    with pytest.raises(TypeError, match="object.__new__|Buffer"):
        object.__new__(_copes.Buffer)


def test_wrong_arguments_of_run():
    x = np.ones(5, np.float32)
    for kinds in ((), (-1,), (99,), (2**70,), ("act",), (None,), (_copes.Buffer,)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            _copes.run(*kinds)
    for index, (_, inputs, outputs, attributes) in enumerate(_copes.operators()):
        most = len(inputs) + len(outputs) + len(attributes)
        for count in [*range(most), most + 1]:
            with pytest.raises(TypeError):
                _copes.run(index, *([x] * count))
        for wrong in (_copes.Buffer, np.ndarray, object(), 3, "x", True, type):
            with pytest.raises(TypeError, match="is a "):
                _copes.run(index, *([wrong] * most))
    with pytest.raises(TypeError, match="the number of arguments"):
        _copes.run(0, x, None, None, None, None, "silu", -1, -1)


def test_torch_memory_is_used_in_place(device):
    x = torch.zeros(8, device=device)
    copes.act(x, "sigmoid", out=x[::2].as_strided((8,), (1,)))
    assert (x == 0.5).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax(dtype):
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.linspace(-2, 2, 24).reshape(4, 6).astype(dtype)
    o = copes.act(x, "silu")
    assert type(o) is type(x) and o.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(o, np.float64), silu(np.asarray(x, np.float64)), rtol=2**-7, atol=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        copes.act(x, "silu", out=x)


def test_cupy():
    cupy = pytest.importorskip("cupy")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    x = cupy.linspace(-2, 2, 24, dtype=cupy.float32).reshape(4, 6).T
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            o = copes.act(x, "softmax", 0)
            np.testing.assert_allclose(cupy.asnumpy(o).sum(0), np.ones(4), rtol=1e-5)


def test_devices():
    assert ("cpu", 0) in [device[:2] for device in copes.devices()]
    assert copes.__version__ == _copes.version
