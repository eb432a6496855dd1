"""A GPU against the CPU, at sizes at which its kernels go from one piece of work to the next: tables of small cases, which a
float64 reference can check, end before that."""

import pytest
import torch

import copes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SHAPES = [(12, 1000, 12, 128), (2, 8192, 12, 128), (1, 70000, 3, 128)]
ULP = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-22}
LEAST = {torch.bfloat16: 0, torch.float16: 2**-24, torch.float32: 0}  # a float16's spacing below its normal range


def theta_of(x, count):
    """Made on the CPU, since the devices' powers differ by an ulp, which at token 70000 is much."""
    return (10000 ** -(torch.arange(count, dtype=torch.float32) / count))[None].to(x.device)


def softmax(x):
    return copes.act(x, "softmax", 1)


def rotate(x):
    return copes.lrpe_rotate(x, theta_of(x, x.shape[-1] // 2), act="softmax", dim=1)


def interleaved(x):
    return copes.lrpe_rotate(x, theta_of(x, x.shape[-1] // 2), act="softmax", dim=1, pairing="interleaved")


def cosine(x):
    return copes.lrpe_cosine(x, theta_of(x, x.shape[-1]), act="softmax", dim=1)


def run(call, x, g):
    x = x.clone().requires_grad_()
    o = call(x)
    return o.detach(), torch.autograd.grad(o, x, g)[0]


def compare(call, x, g):
    wanted = run(call, x, g)
    for got, want in zip(run(call, x.cuda(), g.cuda()), wanted, strict=True):
        # 4 ulp: the softmax's own output goes into its backward, and may have been rounded the other way
        atol = 4e-6 * want.abs().max().item() + LEAST[x.dtype]
        torch.testing.assert_close(got.cpu(), want, rtol=4 * ULP[x.dtype], atol=atol)


@pytest.mark.parametrize("dtype", ULP, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("call", [softmax, rotate, interleaved, cosine])
def test_softmax_over_the_sequence(call, shape, dtype):
    if dtype is torch.float16 and shape[1] > 2**14:
        pytest.skip("such a softmax is below float16's normal range")
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    g = torch.randn(*shape[:-1], shape[-1] * (2 if call is cosine else 1)).to(dtype)
    compare(call, x, g)


@pytest.mark.parametrize("dtype", ULP, ids=str)
@pytest.mark.parametrize("act", ["none", "silu", "sigmoid", "softmax"])
@pytest.mark.parametrize("kind", ["half", "interleaved", "partial", "cosine"])
def test_encodings_at_batch_1(kind, act, dtype):
    torch.manual_seed(0)
    n, d, k = 20011, 128, {"cosine": 128, "partial": 32}.get(kind, 64)
    x = torch.randn(1, n, 3, d)
    x[..., ::7] = 0  # of a pair with a 0 the other's sine or cosine is all there is, however small
    x[:, 100:200] *= 30
    x = x.to(dtype)
    g = torch.randn(1, n, 3, d * (2 if kind == "cosine" else 1)).to(dtype)
    where = {"act": act, "dim": -1 if act == "softmax" else None, "offset": 2**31 - n, "prefix": 5, "suffix": 3}
    if kind == "cosine":
        compare(lambda x: copes.lrpe_cosine(x, theta_of(x, k), **where), x, g)
    else:
        pairing = "interleaved" if kind == "interleaved" else "half"
        compare(lambda x: copes.lrpe_rotate(x, theta_of(x, k), rotary_dim=2 * k, pairing=pairing, **where), x, g)


@pytest.mark.parametrize(
    "act, dtype",
    [("none", torch.bfloat16), ("silu", torch.bfloat16), ("silu", torch.float32), ("softmax", torch.float32)],
    ids=str,
)
@pytest.mark.parametrize("kind", ["rotate", "cosine"])
def test_encodings_of_a_large_tensor_are_those_of_its_parts(kind, act, dtype):
    """Kernels have two, four or six batch entries in a block where tensors are large, and all of these parts."""
    encode = copes.lrpe_rotate if kind == "rotate" else copes.lrpe_cosine
    torch.manual_seed(0)
    x = torch.randn(19, 4501, 12, 128, device="cuda", dtype=dtype)
    theta = theta_of(x, 64 if kind == "rotate" else 128)
    where = {"act": act, "dim": -1 if act == "softmax" else None, "offset": 2**31 - 4501}
    wanted = torch.cat([encode(part, theta, **where) for part in x.split(2)[:-1]])
    assert torch.equal(encode(x, theta, **where)[:-1], wanted)


@pytest.mark.parametrize("dtype", ULP, ids=str)
@pytest.mark.parametrize("lse", [False, True], ids=["", "lse"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 20011, 32, 128, 1),
        (8, 4096, 32, 128, 1),
        (3, 3001, 72, 128, 1),
        (2, 2111, 16, 64, 1),
        (2, 3001, 44, 64, 1),
        (2, 3001, 47, 64, 2),
    ],
    ids=str,
)
def test_decoding(shape, lse, dtype):
    b, m, h, d, rank = shape
    torch.manual_seed(0)
    factors = [
        torch.randn(size)
        for size in ((b, 1, h, 16), (b, m, h, rank), (b, m, h, rank), (b, 1, 16, d), (b, m, rank, d), (b, m, rank, d))
    ]
    factors[0] *= 1 if dtype == torch.float32 else 4  # scores to 4 or 16: float32's bound is for no more than 8
    factors = [factor.to(dtype) for factor in factors]
    lengths = torch.tensor([m - 5 - 700 * i for i in range(b)], dtype=torch.int32).clamp(min=0)
    for kv_len in (None, lengths):
        wanted = copes.tpa_decode(*factors, kv_len=kv_len, return_lse=lse)
        cuda = [factor.cuda() for factor in factors]
        got = copes.tpa_decode(*cuda, kv_len=None if kv_len is None else kv_len.cuda(), return_lse=lse)
        if lse:
            torch.testing.assert_close(got[1].cpu(), wanted[1], rtol=1e-5, atol=1e-5)
            got, wanted = got[0], wanted[0]
        for entry, want in zip(got.cpu(), wanted, strict=True):
            bound = 1e-6 if dtype == torch.float32 else 2 * ULP[dtype]  # of each of the two
            assert ((entry - want).abs() <= 2 * bound * want.abs().amax(-1, keepdim=True) + LEAST[dtype]).all()
