"""copes.tpa_decode against float64 PyTorch."""

import copes
import pytest
import reference
import torch


def make(device, dtype, b=2, n=1, m=37, h=6, d=16, e=16, rq=3, rk=2, rv=2):
    def factor(*shape):
        return torch.randn(*shape, device=device).to(dtype)

    a = factor(b, n, h, rq), factor(b, m, h, rk), factor(b, m, h, rv)
    return *a, factor(b, n, rq, d), factor(b, m, rk, d), factor(b, m, rv, e)


def check(inputs, **attributes):
    o, lse = copes.tpa_decode(*inputs, return_lse=True, **attributes)
    expected_o, expected_lse = reference.tpa_decode(*inputs, **attributes)
    dtype = inputs[0].dtype
    unit = {torch.float64: 1e-9, torch.float32: 4e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}[dtype]
    scale = expected_o.abs().amax(-1, keepdim=True)
    assert ((reference.wide(o) - expected_o).abs() <= unit * scale + 1e-30).all()
    torch.testing.assert_close(reference.wide(lse), expected_lse, rtol=1e-5, atol=1e-5)
    assert o.dtype == dtype and lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(o, copes.tpa_decode(*inputs, **attributes))


@pytest.mark.parametrize("ranks", [(3, 2, 2), (16, 1, 1), (1, 3, 2)])
def test_ranks(device, dtype, ranks):
    check(make(device, dtype, rq=ranks[0], rk=ranks[1], rv=ranks[2]))


def test_rank_axis_left_out(device):
    aq, ak, av, bq, bk, bv = make(device, torch.float32, rk=1, rv=1)
    check((aq, ak[..., 0], av[..., 0], bq, bk[:, :, 0], bv[:, :, 0]))


def test_value_dim_scales_and_layouts(device):
    aq, ak, av, bq, bk, bv = make(device, torch.float32, e=24)
    ak, bk = ak.transpose(1, 2).contiguous().transpose(1, 2), torch.cat((bk, bk), 1)[:, :37]
    check((aq, ak, av, bq, bk, bv), scale=0.3, scale_q=1.5, scale_k=0.7, scale_v=2.0)


@pytest.mark.parametrize("causal", [False, True])
def test_lengths(device, causal):
    lengths = torch.tensor([0, 5, 37, 99, -3], dtype=torch.int32, device=device)
    check(make(device, torch.float32, b=5, n=3), kv_len=lengths, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
def test_shares(device, causal, interleaved, ragged):
    """Three shares of a cache, merged, are the whole of it."""
    inputs = make(device, torch.float32, b=4, n=3)
    aq, ak, av, bq, bk, bv = inputs
    lengths = torch.tensor([37, 20, 2, 0], dtype=torch.int32, device=device) if ragged else None
    shared = dict(kv_len=lengths, causal=causal)
    if interleaved:
        shares = [(slice(r, None, 3), dict(kv_first=r, kv_stride=3)) for r in range(3)]
    else:
        shares = [(slice(a, b), dict(kv_first=a)) for a, b in ((0, 17), (17, 18), (18, 37))]
    parts = []
    for keys, place in shares:
        factors = (aq, ak[:, keys], av[:, keys], bq, bk[:, keys], bv[:, keys])
        check(factors, **shared, **place, kv_total=37)
        parts.append(copes.tpa_decode(*factors, **shared, **place, kv_total=37, return_lse=True))
    merged = copes.attention_merge(*map(torch.stack, zip(*parts)), return_lse=True)
    torch.testing.assert_close(merged, copes.tpa_decode(*inputs, **shared, return_lse=True), rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("h, d", [(6, 16), (32, 128), (47, 64)])
def test_keys_of_minus_infinity(device, dtype, h, d):
    """They weigh nothing, and a head that has no others has no output."""
    aq, ak, av, bq, bk, bv = make(device, dtype, m=300, h=h, d=d, e=d, rk=1, rv=1)
    aq, bq, bk = aq.abs() + 1, bq.abs(), bk.abs() + 1
    ak[:, 7:200] = -torch.inf
    ak[1, :, 2] = -torch.inf
    o, lse = copes.tpa_decode(aq, ak, av, bq, bk, bv, scale=1 / d, return_lse=True)
    expected_o, expected_lse = reference.tpa_decode(aq, ak, av, bq, bk, bv, scale=1 / d)
    expected_o[1, 0, 2] = torch.nan  # 0 / 0; the reference takes it for a head without keys
    torch.testing.assert_close(reference.wide(lse), expected_lse, rtol=1e-3, atol=1e-3)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}.get(dtype, 2e-2)
    torch.testing.assert_close(reference.wide(o), expected_o, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_out(device):
    inputs = make(device, torch.float32)
    out = torch.empty(2, 1, 6, 16, device=device)
    o, lse = copes.tpa_decode(*inputs, out=out, return_lse=True)
    assert o is out and lse.shape == (2, 1, 6)
    assert torch.equal(out, copes.tpa_decode(*inputs))
    assert copes.tpa_decode(*inputs, out=out) is out

