"""qk_norm_rope's refusals: the exception's type, and the message that names the argument."""

import copes
import numpy as np
import pytest
import torch
from test_qk import BLOCKS, HK, PAGE, B, D, E, H, N

Q, K, V = (torch.ones(B, N, heads, width) for heads, width in ((H, D), (HK, D), (HK, E)))
THETA, SLOTS = torch.ones(1, D // 2), torch.zeros(B, N, dtype=torch.int64)
K_CACHE, V_CACHE = (torch.zeros(BLOCKS, PAGE, HK, width) for width in (D, E))


def call(q=Q, k=K, theta=THETA, **options):
    return copes.qk_norm_rope(q, k, theta, **options)


def store(**options):
    return call(**{**dict(v=V, slots=SLOTS, k_cache=K_CACHE, v_cache=V_CACHE), **options})


REFUSED = [
    (ValueError, r"q has shape \(2, 5, 64\); it must be \(B, N, H, D\)", lambda: call(q=Q.flatten(2))),
    (ValueError, "k has shape", lambda: call(k=K[:, 1:])),
    (TypeError, "k has type float16; it must be float32", lambda: call(k=K.half())),
    (TypeError, "k is a <class 'numpy.ndarray'>", lambda: call(k=K.numpy())),
    (TypeError, "q is a <class 'NoneType'>", lambda: call(q=None)),
    (TypeError, "theta is a <class 'NoneType'>", lambda: call(theta=None)),
    (ValueError, "theta", lambda: call(theta=torch.ones(H, D // 2))),
    (ValueError, "rotary_dim is 0; .* None", lambda: call(rotary_dim=0)),
    (ValueError, r"wq has shape \(4,\); it must be \(16\) or \(4, 16\)", lambda: call(wq=torch.ones(4))),
    (TypeError, "wk has type float16; it must be float32", lambda: call(wk=torch.ones(D).half())),
    (ValueError, "wk is given; without k it must be NULL", lambda: call(k=None, wk=torch.ones(D))),
    (ValueError, "eps is 0; it must be another number, or None for 1e-6", lambda: call(eps=0)),
    (ValueError, "eps is -1", lambda: call(eps=-1.0)),
    (ValueError, "weight_offset is nan", lambda: call(weight_offset=float("nan"))),
    (ValueError, "norm_over is 'heads'; it must be one of head", lambda: call(norm_over="heads")),
    (TypeError, "round_between is 'no'; it must be True or False", lambda: call(round_between="no")),
    (TypeError, "unexpected keyword argument 'act'", lambda: call(act="silu")),
    (TypeError, r"out is a <class 'torch.Tensor'>; with keys it must be a pair, \(q_out, k_out\)", lambda: call(out=Q)),
    (TypeError, "out is a <class 'numpy.ndarray'>", lambda: call(k=None, out=Q.numpy())),
    (TypeError, "k_out is a <class 'numpy.ndarray'>", lambda: call(out=(Q.clone(), K.numpy()))),
    (ValueError, "k_out has shape", lambda: call(out=(Q.clone(), Q.clone()))),
    (ValueError, "overlap", lambda: call(out=(Q, Q.view(-1)[: K.numel()].view(K.shape)))),
    (TypeError, "k_out and k_cache are NULL; with k one of them must be", lambda: call(return_k=False)),
    (TypeError, "slots is NULL", lambda: store(slots=None)),
    (TypeError, "slots has type int32; it must be int64", lambda: store(slots=SLOTS.int())),
    (ValueError, "slots has shape", lambda: store(slots=SLOTS[0])),
    (ValueError, "slots is given; without k_cache and v_cache", lambda: call(slots=SLOTS)),
    (ValueError, "v is given; without v_cache it must be NULL", lambda: call(v=V)),
    (TypeError, "v is NULL", lambda: store(v=None)),
    (ValueError, "k_cache has shape", lambda: store(k_cache=V_CACHE)),
    (ValueError, "v_cache has shape", lambda: store(v_cache=V_CACHE[1:])),
    (TypeError, "v_cache has type float16", lambda: store(v_cache=V_CACHE.half())),
    (TypeError, "k_cache has type int8", lambda: store(k_cache=K_CACHE.char())),
    (TypeError, "v_cache has type uint8; it must be float32, as k_cache", lambda: store(v_cache=V_CACHE.byte())),
    (ValueError, "k_scale is given; with a cache of float32", lambda: store(k_scale=torch.ones(1))),
    (ValueError, "v_scale is given; without v_cache", lambda: call(v_scale=torch.ones(1))),
    (TypeError, "k_cache is a <class 'bool'>", lambda: store(k_cache=True)),
    (TypeError, "k_cache is a <class 'bool'>", lambda: call(Q.numpy(), None, THETA.numpy(), k_cache=True)),
    (TypeError, "slots has dtype complex64; .* slots: int64", lambda: call(*numpys(), slots=np.ones(1, "complex64"))),
]


def numpys():
    return Q.numpy(), K.numpy(), THETA.numpy()


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_refusal(index):
    kind, message, refused = REFUSED[index]
    with pytest.raises(kind, match=message):
        refused()


def test_nothing_is_written_by_a_refused_call():
    with pytest.raises(ValueError):
        store(v_cache=V_CACHE[1:], out=(Q, K))
    assert (Q == 1).all() and (K == 1).all() and not K_CACHE.any()
