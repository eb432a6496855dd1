"""What DTensor does about a call of copes, by 2 processes over gloo: what it moves, what it keeps for the next call,
caches that are written in place, what is refused, layers and models; and that nothing of it is loaded without one."""

import copy
import functools
import subprocess
import sys

import copes
import pytest
import torch
from dtensor_cases import B, D, H, N, Spread, decode, factors, flat, merge, norm_rope, qk, random, rotate, x_theta
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Attention(torch.nn.Module):
    def __init__(self, norms):
        super().__init__()
        for name in "qkvo":
            setattr(self, name, torch.nn.Linear(32, 32, bias=False, dtype=torch.float64))
        self.rope = copes.nn.QKNormRotary(D, dtype=torch.float64) if norms else None

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (H, D)) for layer in (self.q, self.k, self.v))
        if self.rope:
            q, k = self.rope(q, k, offset=5)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / D**0.5
        o = copes.act(scores, "softmax") @ v.transpose(1, 2)
        return self.o(o.transpose(1, 2).flatten(2))


PLAN = {**dict.fromkeys("qkv", ColwiseParallel(use_local_output=False)), "o": RowwiseParallel()}


class TestTwo(Spread):
    world_size, shape = 2, (2,)

    def test_moved(self):
        """What an axis does not allow is moved by DTensor: in backward again, as what it keeps lies as it did."""
        self.check(functools.partial(copes.act, act="softmax", dim=2), [random(B, N, H, D)], "2 . .", (1, 0))
        self.check(rotate(), x_theta(), "3. . .-", (1, 0))
        self.check(rotate(), x_theta(), "3. . ..", (1, 1))
        self.check(rotate(act="softmax", dim=1), x_theta(), "1. . ..", (1, 1))
        self.check(rotate(grid=(2, 4)), x_theta(), "1. . ..", (1, 1))
        self.check(rotate(grid=(N - 1,), prefix=1), x_theta(), "1. . ..", (1, 1))
        self.check(functools.partial(norm_rope, norm_over="all_heads"), qk(), "22... .. ..-..", (2, 2))
        self.check(decode, factors(), "..1111 ..", (4, 0))
        self.check(functools.partial(decode, causal=True), factors(), "11.... ..", (2, 0))
        self.check(merge(), [random(4, B, N, H, D), random(4, B, N, H)], "00 . ..", (2, 2))

    def test_answers_differ(self):
        """What DTensor keeps for a call is not taken for another, and an offset is no other."""
        x = distribute_tensor(random(B, N, H, D), self.mesh, [Shard(3)])
        for act, wanted in (("silu", Shard(3)), ("softmax", Replicate()), ("relu", Shard(3))):
            self.assertEqual(copes.act(x, act).placements, (wanted,))
        x, theta = self.spread(x_theta(), "2.")
        copes.lrpe_rotate(x, theta)
        kept = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_info().currsize
        for offset in range(5):
            copes.lrpe_rotate(x, theta, offset=offset)
        now = DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_info().currsize
        self.assertEqual(kept, now)

    def test_cache(self):
        inputs = (*qk()[:3], random(B, N, 2, D), torch.randperm(B * N).reshape(B, N))

        def call(q, k, theta, v, slots, k_cache, v_cache, return_k=True):
            where = dict(v=v, slots=slots, k_cache=k_cache, v_cache=v_cache, return_k=return_k)
            return copes.qk_norm_rope(q, k, theta, **where)

        whole = [torch.zeros(4, N, 2, D, dtype=torch.float64) for _ in range(2)]
        expected = call(*inputs, *whole)
        for signs, cache, moved in (("22.2.", "2", 0), (".....", ".", 0), ("2....", ".", 0), ("00.00", ".", 4)):
            for return_k in (True, False):
                parts, caches = self.spread(inputs, signs), self.spread([torch.zeros_like(x) for x in whole], cache * 2)
                with CommDebugMode() as mode:
                    made = flat(call(*parts, *caches, return_k=return_k))
                self.assertEqual(mode.get_total_counts(), moved)
                for x, y in zip((*made, *caches), (*(expected if return_k else expected[:1]), *whole)):
                    torch.testing.assert_close(x.full_tensor(), y, rtol=0, atol=0)
        caches = self.spread([torch.zeros_like(x) for x in whole], "22")
        made = torch.compile(call, backend="aot_eager", fullgraph=True)(*self.spread(inputs, "22.2."), *caches)
        for x, y in zip((*made, *caches), (*expected, *whole)):
            torch.testing.assert_close(x.full_tensor(), y, rtol=0, atol=0)
        for signs, cache in (("22.2.", "."), (".....", "2"), (".....", "0")):
            with pytest.raises(ValueError, match="k_cache is placed as .*; beside keys placed as .* it must be"):
                call(*self.spread(inputs, signs), *self.spread(whole, cache * 2))
        with pytest.raises(ValueError, match="k_cache is a <class 'torch.Tensor'>"):
            call(*self.spread(inputs, "....."), *whole)

    def test_refused(self):
        x, theta = self.spread(x_theta(), "0.")
        with pytest.raises(NotImplementedError, match="out must be None"):
            copes.act(x, "silu", out=torch.empty_like(x))
        with pytest.raises(NotImplementedError, match="out must be None"):
            copes.lrpe_rotate(x, theta, out=torch.empty_like(x))
        with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
            copes.lrpe_rotate(x, theta.to_local())
        with pytest.raises(ValueError, match="theta has"):
            copes.lrpe_rotate(x, theta[:, :3])

    def test_layer(self):
        rope = copes.nn.RotaryEmbedding(D)
        expected = rope(x := random(B, N, H, D), offset=4)
        distribute_module(rope, self.mesh)
        with torch.inference_mode():
            made = rope(distribute_tensor(x, self.mesh, [Shard(1)]), offset=4)
        torch.testing.assert_close(made.full_tensor(), expected, rtol=0, atol=0)

    def test_model(self):
        """Heads on ranks: the layer adds nothing to what the projections around it communicate."""
        counts = []
        for norms in (True, False):
            torch.manual_seed(0)
            whole, x = Attention(norms), random(B, N, 32)
            model = parallelize_module(copy.deepcopy(whole), self.mesh, PLAN)
            if norms:
                distribute_module(model.rope, self.mesh)
            with CommDebugMode() as mode:
                made = model(x)
                made.square().sum().backward()
            counts.append(mode.get_comm_counts())
            expected = whole(x)
            expected.square().sum().backward()
            torch.testing.assert_close(made, expected, rtol=1e-11, atol=1e-11)
            for y, wanted in zip(model.parameters(), whole.parameters()):
                torch.testing.assert_close(y.grad.full_tensor(), wanted.grad, rtol=1e-10, atol=1e-10)
        self.assertEqual(*counts)


# ---- without DTensor -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
def test_is_not_loaded(before):
    """torch.distributed.tensor is not imported for those who do not, nor the rules before there is one."""
    program = f"""
import sys, torch
if {before}:
    import torch.distributed.tensor
import copes.nn
copes.act(torch.ones(3).requires_grad_(), "silu").sum().backward()
assert ("torch.distributed.tensor" in sys.modules) == {before}
assert "copes._torch_sharding" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_another_dtensor():
    """A PyTorch that lacks what the rules need does without."""
    program = """
import sys, torch, torch.distributed.tensor
sys.modules["torch.distributed.tensor.experimental"] = None
import copes.nn
assert torch.vmap(lambda x: copes.act(x, "relu"))(torch.ones(2, 3)).sum() == 6
"""
    subprocess.run([sys.executable, "-c", program], check=True)
