"""Refusals: the exception's type, and the message that names the argument."""

import copes
import numpy as np
import pytest
import torch

X, THETA = torch.ones(1, 4, 2, 8), torch.ones(2, 4)
TPA = [torch.ones(shape) for shape in [(1, 1, 2, 3), (1, 5, 2), (1, 5, 2), (1, 1, 3, 8), (1, 5, 8), (1, 5, 8)]]

REFUSED = [
    (ValueError, "act is 'gelu'; it must be one of none", lambda: copes.act(X, "gelu")),
    (TypeError, "act is 3", lambda: copes.act(X, 3)),
    (ValueError, "dim", lambda: copes.act(X, "softmax", 4)),
    (ValueError, "dim .* 32 bits", lambda: copes.act(X.numpy(), "softmax", 2**40)),
    (TypeError, "x has type int32", lambda: copes.act(X.int(), "silu")),
    (TypeError, "x is a <class 'list'>", lambda: copes.act([1.0], "silu")),
    (TypeError, "x is a <class 'NoneType'>; it must be a NumPy array", lambda: copes.act(None, "silu")),
    (TypeError, "act is None; it must be a string, one of none", lambda: copes.act(X, None)),
    (ValueError, "dim is 99; with tensors of rank 4", lambda: copes.act(X, "silu", dim=99)),
    (ValueError, "dim is -5; with tensors of rank 4", lambda: copes.act(X.numpy(), "relu", -5)),
    (ValueError, "dim is -2; .* -1 for the features or -3", lambda: copes.lrpe_rotate(X, THETA, dim=2)),
    (ValueError, "dim is -4; .* -1 for the features or -3", lambda: copes.lrpe_rotate(X.numpy(), THETA.numpy(), dim=0)),
    (TypeError, "x has type int64; it must be float32, float16 or bfloat16", lambda: copes.act(X.long(), "silu")),
    (TypeError, "x has type bool; it must be float32", lambda: copes.act(X.bool().numpy(), "silu")),
    (TypeError, "x has type float8_e4m3fn; it must be", lambda: copes.act(X.to(torch.float8_e4m3fn), "silu")),
    (TypeError, "x has type complex64; it must be float32", lambda: copes.act(X.cfloat(), "silu")),
    (ValueError, "rank", lambda: copes.act(torch.ones([1] * 9), "silu")),
    (ValueError, "rank", lambda: copes.act(np.ones([1] * 9), "silu")),
    (ValueError, "theta has shape", lambda: copes.lrpe_rotate(X, torch.ones(2, 5))),
    (ValueError, "theta", lambda: copes.lrpe_rotate(X, torch.ones(3, 4))),
    (TypeError, "theta", lambda: copes.lrpe_rotate(X, THETA.double())),
    (ValueError, "grid", lambda: copes.lrpe_rotate(X, THETA, grid=(3, 2))),
    (ValueError, "grid has 5 numbers", lambda: copes.lrpe_rotate(X.numpy(), THETA.numpy(), grid=(1, 1, 1, 2, 2))),
    (
        TypeError,
        "offset is 'a'|offset is 1.5|must be an integer",
        lambda: copes.lrpe_rotate(X.numpy(), THETA.numpy(), offset=1.5),
    ),
    (ValueError, "offset .* 64 bits", lambda: copes.lrpe_rotate(X.numpy(), THETA.numpy(), offset=2**70)),
    (ValueError, r"shape is \(\); it must", lambda: copes.md_lrpe_cosine(X, torch.ones(1, 8), ())),
    (ValueError, "offset|position", lambda: copes.lrpe_rotate(X, THETA, offset=2**31)),
    (ValueError, "sections", lambda: copes.lrpe_rotate(X, THETA, grid=(2, 2), sections=(1, 2))),
    (ValueError, "rotary_dim is 7", lambda: copes.lrpe_rotate(X, THETA, rotary_dim=7)),
    (ValueError, "rotary_dim is 0; .* None", lambda: copes.lrpe_rotate(X, THETA, rotary_dim=0)),
    (TypeError, "pad_theta is 'no'; it must be True or False", lambda: copes.lrpe_rotate(X, THETA, pad_theta="no")),
    (TypeError, "causal is 'False'; it must be True or False", lambda: copes.tpa_decode(*TPA, causal="False")),
    (TypeError, "causal is 2; it must be True or False", lambda: copes.tpa_decode(*TPA, causal=2)),
    (ValueError, "pairing is 'third'", lambda: copes.lrpe_rotate(X, THETA, pairing="third")),
    (ValueError, "prefix", lambda: copes.lrpe_rotate(X, THETA, prefix=-1)),
    (ValueError, "out|o has shape", lambda: copes.lrpe_cosine(X, torch.ones(2, 8), out=torch.empty_like(X))),
    (
        ValueError,
        "overlap",
        lambda: copes.act(X, "silu", out=X.view(-1).expand(4, -1)[0].as_strided(X.shape, (0, 1, 1, 1))),
    ),
    (ValueError, "bk", lambda: copes.tpa_decode(*TPA[:4], torch.ones(1, 5, 7), TPA[5])),
    (
        ValueError,
        r"aq, bq, ak, bk, av and bv have batches \(2, 1, 1, 1, 1, 1\)",
        lambda: copes.tpa_decode(torch.ones(2, 1, 2, 3), *TPA[1:]),
    ),
    (ValueError, "kv_stride is 0", lambda: copes.tpa_decode(*TPA, kv_stride=0)),
    (ValueError, "kv_first is -1", lambda: copes.tpa_decode(*TPA, kv_first=-1)),
    (ValueError, "kv_total is 6; .* the last of 5 keys is key 6", lambda: copes.tpa_decode(*TPA, kv_first=2, kv_total=6)),
    (ValueError, "scale is 0", lambda: copes.tpa_decode(*TPA, scale=0.0)),
    (ValueError, "scale", lambda: copes.tpa_decode(*TPA, scale=float("nan"))),
    (TypeError, "scale is 'a'; it must be a number", lambda: copes.tpa_decode(*TPA, scale="a")),
    (TypeError, "theta is a <class 'numpy.ndarray'>", lambda: copes.lrpe_rotate(X, THETA.numpy())),
    (TypeError, "theta is a <class 'torch.Tensor'>", lambda: copes.lrpe_rotate(X.numpy(), THETA)),
    (TypeError, "theta is a <class 'float'>", lambda: copes.lrpe_rotate(X, 10000.0)),
    (TypeError, "theta is a <class 'float'>", lambda: copes.lrpe_rotate(X.numpy(), 10000.0)),
    (TypeError, "theta is a <class 'NoneType'>", lambda: copes.lrpe_rotate(X, None)),
    (TypeError, "theta is a <class 'NoneType'>", lambda: copes.lrpe_rotate(X.numpy(), None)),
    (TypeError, "bv is a <class 'numpy.ndarray'>", lambda: copes.tpa_decode(*TPA[:5], TPA[5].numpy())),
    (TypeError, "av is a <class 'NoneType'>", lambda: copes.tpa_decode(*TPA[:2], None, *TPA[3:])),
    (
        TypeError,
        "out is a <class 'numpy.ndarray'>",
        lambda: copes.act(X, "silu", out=np.empty((1, 4, 2, 8), np.float32)),
    ),
    (TypeError, "out is a <class 'numpy.ndarray'>", lambda: copes.lrpe_rotate(X, THETA, out=X.numpy().copy())),
    (TypeError, "out is a <class 'numpy.ndarray'>", lambda: copes.tpa_decode(*TPA, out=np.ones((1, 1, 2, 8), "f4"))),
    (TypeError, "out is a <class 'torch.Tensor'>", lambda: copes.act(X.numpy(), "silu", out=torch.empty_like(X))),
    (TypeError, "kv_len is a <class 'numpy.ndarray'>", lambda: copes.tpa_decode(*TPA, kv_len=np.ones(1, np.int32))),
    (TypeError, "x is a .* DLPack cannot view: .*[^\\n]$", lambda: copes.act(torch.eye(3).to_sparse(), "silu")),
    (
        TypeError,
        "kv_len has type int64; it must be int32",
        lambda: copes.tpa_decode(*TPA, kv_len=torch.ones(1, dtype=torch.int64)),
    ),
    (ValueError, "lengths must be such that the size of the workspace fits 63 bits", lambda: decode_of_rank(2**58)),
]


def decode_of_rank(rank):
    """One element for all, so that no memory bounds the rank."""
    one = np.float16(1)
    shapes = [(1, 1, 1, 1), (1, 1, 1, rank), (1, 1, 1, 1), (1, 1, 1, 8), (1, 1, rank, 8), (1, 1, 1, 8)]
    return copes.tpa_decode(*(np.broadcast_to(one, shape) for shape in shapes))


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_refusal(index):
    kind, message, call = REFUSED[index]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("out", [False, True])
def test_arrays_of_two_frameworks_under_a_mode(out):
    """Where the dispatcher takes part the same is refused, with the same words."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            return function(*arguments, **keywords or {})

    with Mode():
        if out:
            with pytest.raises(
                TypeError, match="^out is a <class 'numpy.ndarray'>; beside a PyTorch tensor it must be one"
            ):
                copes.act(X, "silu", out=np.empty((1, 4, 2, 8), np.float32))
            return
        with pytest.raises(
            TypeError, match="^theta is a <class 'numpy.ndarray'>; beside a PyTorch tensor it must be one"
        ):
            copes.lrpe_rotate(X, THETA.numpy())
        with pytest.raises(
            TypeError, match="^kv_len is a <class 'numpy.ndarray'>; beside a PyTorch tensor it must be one"
        ):
            copes.tpa_decode(*TPA, kv_len=np.ones(1, np.int32))


def test_nothing_is_written_by_a_refused_call():
    out = torch.full_like(X, 7)
    with pytest.raises(ValueError):
        copes.lrpe_rotate(X, torch.ones(2, 5), out=out)
    assert (out == 7).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_devices_are_not_mixed():
    with pytest.raises(ValueError, match="device"):
        copes.lrpe_rotate(X.cuda(), THETA)
