"""The shared library through tvm-ffi's own package: results beside this package's, memory, streams and errors. COPES_LIBRARY
names the library, libcopes.so of a build, with the GPU's backend where PyTorch finds a GPU."""

import os
import pathlib
import subprocess
import sys
import threading
from itertools import chain

import copes
import numpy as np
import pytest
import torch

tvm_ffi = pytest.importorskip("tvm_ffi")
if "COPES_LIBRARY" not in os.environ:
    pytest.skip("COPES_LIBRARY names no libcopes.so", allow_module_level=True)
LIBRARY = os.path.abspath(os.environ["COPES_LIBRARY"])


@pytest.fixture(scope="module")
def library():
    return tvm_ffi.load_module(LIBRARY)


def call(function, *first, **named):
    return function(*first, *chain.from_iterable(named.items()))


def theta_of(dim, device="cpu"):
    return 10000 ** (-torch.arange(0, dim, 2, device=device) / dim)[None]


def test_act(library, device, dtype):
    x = torch.randn(3, 5, 7, device=device, dtype=dtype)
    for act in ("relu", "sigmoid", "silu", "softmax"):
        o = torch.empty_like(x)
        assert call(library.act_forward, x=x, o=o, act=act, dim=None) is None
        assert torch.equal(o, copes.act(x, act))
    call(library.act_forward, x=x.transpose(0, 2), o=o.transpose(0, 2), act="softmax", dim=-3)
    assert torch.equal(o, copes.act(x, "softmax", dim=2))


def test_numpy(library):
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(2, 3, 4)[:, ::-1]
    o = np.zeros((2, 3, 4), np.float32)
    call(library.act_forward, x=x, o=o, act="silu")
    assert np.array_equal(o, copes.act(x, "silu"))


@pytest.mark.parametrize("grid", [(2, 6), [2, 6], tvm_ffi.Shape((2, 6))], ids=["tuple", "list", "shape"])
def test_lrpe_rotate(library, device, dtype, grid):
    x, theta = torch.randn(2, 12, 3, 16, device=device, dtype=dtype), theta_of(8, device)
    o = torch.empty_like(x)
    call(
        library.lrpe_forward,
        x=x,
        theta=theta,
        o=o,
        act="silu",
        grid=grid,
        offset=(4096, 7),
        amplitude=2,
        pairing="interleaved",
        inverse=True,
    )
    expected = copes.lrpe_rotate(
        x, theta, act="silu", grid=(2, 6), offset=(4096, 7), amplitude=2, pairing="interleaved", inverse=True
    )
    assert torch.equal(o, expected)


def test_positions(library, device):
    x, theta = torch.randn(2, 5, 3, 16, device=device), theta_of(16, device)
    positions = torch.randint(0, 1 << 40, (2, 5), device=device)
    o = torch.empty_like(x)
    call(library.lrpe_forward, x=x, theta=theta, o=o, positions=positions, offsets=None)
    assert torch.equal(o, copes.lrpe_rotate(x, theta, positions=positions))


def test_qk_norm_rope(library, device):
    q, k = (torch.randn(2, 5, heads, 16, device=device) for heads in (4, 2))
    wq, wk = torch.rand(2, 16, device=device)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    call(
        library.qk_norm_rope_forward,
        q=q,
        k=k,
        theta=theta_of(16, device),
        wq=wq,
        wk=wk,
        q_out=q_out,
        k_out=k_out,
        eps=1e-5,
        offset=9,
    )
    expected = copes.qk_norm_rope(q, k, theta_of(16, device), wq=wq, wk=wk, eps=1e-5, offset=9)
    assert torch.equal(q_out, expected[0]) and torch.equal(k_out, expected[1])


def gradient_of_theta(device):
    """The arguments of a call that needs a workspace."""
    x, theta = torch.randn(2, 9, 3, 16, device=device), theta_of(16, device)
    return dict(
        x=x, theta=theta, grad_o=torch.randn_like(x), grad_x=torch.empty_like(x), grad_theta=torch.empty_like(theta)
    )


def test_workspace(library, device):
    named = gradient_of_theta(device)
    size = call(library.workspace_size, "lrpe_backward", **named)
    assert size > 0
    theta = named["theta"].clone().requires_grad_()
    copes.lrpe_rotate(named["x"], theta).backward(named["grad_o"])

    call(library.lrpe_backward, **named)  # in memory of PyTorch's
    assert torch.equal(named["grad_theta"], theta.grad)
    named["grad_theta"].zero_()
    call(library.lrpe_backward, **named, workspace=torch.empty(size, dtype=torch.uint8, device=device))
    assert torch.equal(named["grad_theta"], theta.grad)
    with pytest.raises(RuntimeError, match=f"the workspace has {size - 1} bytes; it must have {size}"):
        call(library.lrpe_backward, **named, workspace=torch.empty(size - 1, dtype=torch.uint8, device=device))
    with pytest.raises(ValueError, match="workspace has stride 2; it must have 1"):
        call(library.lrpe_backward, **named, workspace=torch.empty(2 * size, dtype=torch.uint8, device=device)[::2])
    with pytest.raises(ValueError, match="workspace has 2 dimensions; it must have one"):
        call(library.lrpe_backward, **named, workspace=torch.empty(1, size, dtype=torch.uint8, device=device))


def test_no_allocator(library):
    """NumPy's arrays bring none, so that the library says what it needs."""
    named = {name: tensor.numpy() for name, tensor in gradient_of_theta("cpu").items()}
    size = call(library.workspace_size, "lrpe_backward", **named)
    with pytest.raises(RuntimeError, match=f"the workspace has 0 bytes at NULL; it must have {size}"):
        call(library.lrpe_backward, **named)


def test_threads(library, device):
    """Each has contexts of its own, which end with it."""
    x = torch.randn(64, 64, device=device)
    outputs = [torch.empty_like(x) for _ in range(8)]
    threads = [
        threading.Thread(target=call, args=(library.act_forward,), kwargs=dict(x=x, o=o, act="softmax"))
        for o in outputs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(o, copes.act(x, "softmax")) for o in outputs)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def of_tvm_ffi(tensor):
    return tvm_ffi.from_dlpack(tensor)


@needs_gpu
@pytest.mark.parametrize(
    "enter, convert",
    [(torch.cuda.stream, torch.Tensor.detach), (lambda s: tvm_ffi.use_torch_stream(torch.cuda.stream(s)), of_tvm_ffi)],
    ids=["PyTorch's", "tvm-ffi's"],
)
def test_stream(library, enter, convert):
    """A call waits for what came before it on the stream of the tensors' package, and the caller does not."""
    x = torch.zeros(1 << 20, device="cuda")
    o = torch.empty_like(x)
    call(library.act_forward, x=x, o=o, act="relu")  # the device has loaded its code
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with enter(stream):
        torch.cuda._sleep(1 << 29)  # cycles: a quarter of a second
        x.fill_(3)
        call(library.act_forward, x=convert(x), o=convert(o), act="relu")
        assert not stream.query()
    stream.synchronize()
    assert (o == 3).all()


@needs_gpu
def test_graph(library):
    """A call is captured, its workspace of PyTorch's memory too."""
    named = gradient_of_theta("cuda")
    call(library.lrpe_backward, **named)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(library.lrpe_backward, **named)
    named["x"].normal_()
    graph.replay()
    replayed = named["grad_theta"].clone()
    call(library.lrpe_backward, **named)
    assert torch.equal(named["grad_theta"], replayed)


@needs_gpu
def test_device_errors(library):
    named = gradient_of_theta("cuda")
    workspace = torch.empty(1 << 20, dtype=torch.uint8)
    with pytest.raises(ValueError, match="workspace is on device 1:0; it must be on that of the tensors, 2:0"):
        call(library.lrpe_backward, **named, workspace=workspace)
    with pytest.raises(ValueError, match="theta"):
        call(library.lrpe_backward, **{**named, "theta": named["theta"].cpu()})


X, RESULT = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    "error, message, arguments",
    [
        (TypeError, "act_forward: o is NULL; it must be a tensor", ("x", X)),
        (ValueError, r"act_forward: o has shape \(3,\); it must be \(4,\), as x", ("x", X, "o", RESULT[:3])),
        (TypeError, "act_forward: x is an integer; it must be a tensor or None", ("x", 3)),
        (TypeError, "act_forward: there are 3 arguments; they must be pairs of a name and a value", ("x", X, "o")),
        (
            TypeError,
            "act_forward: argument 2 is a tensor; it must be a name, which a value follows",
            ("x", X, RESULT, "o"),
        ),
        (ValueError, 'act_forward: there is no "y"; names are x, lse_all, o, lse, mask, act, dim, workspace', ("x", X, "y", RESULT)),
        (
            ValueError,
            'act is "tanh, which is longer than eight"; it must be one of none',
            ("act", "tanh, which is longer than eight"),
        ),
        (TypeError, "act_forward: act is an integer; it must be a string, one of none", ("act", 1)),
        (TypeError, "act_forward: dim is a float; it must be an integer", ("dim", 1.5)),
        (ValueError, "act_forward: dim is 4294967296; it must fit 32 bits", ("dim", 1 << 32)),
    ],
)
def test_errors(library, error, message, arguments):
    with pytest.raises(error, match=message):
        library.act_forward(*arguments)


@pytest.mark.parametrize(
    "error, message, arguments",
    [
        (ValueError, "offset has 5 numbers; it must have at most 4", ("offset", [1] * 5)),
        (TypeError, "offset is a list with something else than integers", ("offset", [1, "a"])),
        (TypeError, "offset is an object of another type; it must be an integer or a list of integers", ("offset", {})),
        (TypeError, "prefix is a list; it must be an integer", ("prefix", [1])),
        (TypeError, "amplitude is a string; it must be a number", ("amplitude", "1")),
        (TypeError, "pad_theta is a float; it must be a bool", ("pad_theta", 1.0)),
    ],
)
def test_attribute_errors(library, error, message, arguments):
    with pytest.raises(error, match="lrpe_forward: " + message):
        library.lrpe_forward(*arguments)


def test_workspace_size_errors(library):
    with pytest.raises(ValueError, match='there is no operator "gelu"'):
        library.workspace_size("gelu")
    with pytest.raises(TypeError, match="argument 0 is missing; it must be an operator's name"):
        library.workspace_size()


def test_without_tvm_ffi():
    """An error that no library carries is printed, and the library needs none to load."""
    program = f"""
import ctypes
print(ctypes.CDLL({LIBRARY!r}).__tvm_ffi_act_forward(None, None, 1, (ctypes.c_int64 * 2)()))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "-1\n" and ran.returncode == 0
    assert ran.stderr.startswith("copes: TypeError: act_forward: there are 1 arguments;")
    assert "libtvm_ffi" in ran.stderr


def test_documentation(device):
    """The code of docs/tvm_ffi.md runs, on any device."""
    text = pathlib.Path(__file__).parents[2].joinpath("docs", "tvm_ffi.md").read_text()
    names = {}
    with torch.device(device):
        exec(text.split("```python\n")[1].split("```")[0].replace("libcopes.so", LIBRARY), names)
    assert names["o"].device.type == device
    assert torch.equal(names["o"], copes.lrpe_rotate(names["q"], names["theta"], offset=4096, act="silu"))
