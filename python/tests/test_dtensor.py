"""DTensors in every operator, by 2, 3 and 4 processes over gloo, against the same call of one process: values, gradients,
where results lie, and how many collectives there are.

Placements are a sign for each tensor: a digit is the axis that is sharded, "." the whole, "+" a part of a sum, "-" no
gradient. "2. 2 2+" has x sharded by heads beside a whole theta, the result and x's gradient sharded alike, and theta's a sum.
On a mesh of two dimensions it is a sign for each: "02,.. 02 02,++"."""

import copy
import functools
import subprocess
import sys

import copes
import pytest
import torch
import torch.distributed as dist

pytest.importorskip("expecttest", reason="PyTorch's test utilities need it")
if not dist.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import torch._dynamo
from torch._dynamo.testing import AotEagerAndRecordGraphs
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.common_distributed import MultiProcContinuousTest

B, N, H, D = 4, 8, 4, 8
SIGNS = {".": Replicate(), "+": Partial()}


def placement(sign):
    return SIGNS[sign] if sign in SIGNS else Shard(int(sign))


def placements(signs, rank):
    """Of the signs of one tensor, one for each dimension of the mesh."""
    return tuple(map(placement, signs if len(signs) == rank else signs * rank))


def flat(x):
    return x if isinstance(x, tuple) else (x,)


def collectives(graphs):
    return sum("c10d" in str(node.target) for graph in graphs for node in graph.graph.nodes)


def random(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype)


# ---- calls -----------------------------------------------------------------------------------------------------------


def rotate(**attributes):
    return functools.partial(copes.lrpe_rotate, **attributes)


def cosine(**attributes):
    return functools.partial(copes.lrpe_cosine, **attributes)


def with_positions(x, theta, positions, **attributes):
    return copes.lrpe_rotate(x, theta, positions=positions, **attributes)


def with_offsets(x, theta, offsets):
    return copes.lrpe_rotate(x, theta, offsets=offsets, offset=5)


def of_lse(x, theta, lse):
    return copes.lrpe_rotate(x, theta, act="softmax", dim=1, lse=lse, offset=3)


def relu_mask(x):
    return copes.relu_mask(x)[0]


def softmax_of_lse(x, lse):
    return copes.act(x, "softmax", 1, lse=lse)


def norm_rope(q, k, theta, wq=None, wk=None, **attributes):
    return copes.qk_norm_rope(q, k, theta, wq=wq, wk=wk, **attributes)


def decode(aq, bq, ak, bk, av, bv, kv_len=None, **attributes):
    return copes.tpa_decode(aq, ak, av, bq, bk, bv, kv_len=kv_len, return_lse=True, **attributes)


def merge(**attributes):
    return functools.partial(copes.attention_merge, **attributes)


def x_theta(heads=1, angles=D // 2):
    return random(B, N, H, D), torch.rand(heads, angles)


def qk(heads=1, keys=2, weights=()):
    """q, k, theta, wq, wk, of one head or with their own weights."""
    q, k = random(B, N, H, D), random(B, N, keys, D)
    return q, k, torch.rand(heads, D // 2), random(*weights[:1], D), random(*weights[1:], D)


def factors():
    m = 6
    return (
        random(B, 2, H, 3), random(B, 2, 3, D), random(B, m, H, 2), random(B, m, 2, D), random(B, m, H), random(B, m, D)
    )  # fmt: skip


def shares():
    return random(3, B, N, H, D), random(3, B, N, H)


ACT = [(functools.partial(copes.act, act="silu"), f"{i} {i} {i}") for i in range(4)]
ACT += [(functools.partial(copes.act, act=act), "3 3 3") for act in ("relu", "sigmoid")]
ACT += [(relu_mask, f"{i} {i} {i}") for i in range(3)]
ACT += [(functools.partial(copes.act, act="softmax", dim=2), f"{i} {i} {i}") for i in (0, 1, 3)]
ACT += [(functools.partial(copes.softmax_lse, dim=2), f"{i} {i} {i}") for i in (0, 1, 3)]

LRPE = [
    (call, f"{i}. {i} {i}+")
    for call in (rotate(offset=7), rotate(act="silu", inverse=True), rotate(act="softmax", grid=(N,), offset=1))
    for i in range(3)
]
LRPE += [(rotate(act="softmax", dim=1), f"{i}. {i} {i}+") for i in (0, 2)]
LRPE += [(rotate(grid=(2, 4), offset=(1, 2)), f"{i}. {i} {i}+") for i in (0, 2)]

QK = [
    (norm_rope, "00... 00 00-++"),
    (functools.partial(norm_rope, offset=9), "11... 11 11-++"),
    (norm_rope, "22... 22 22-++"),
    (norm_rope, "2.... 2. 2.-+."),
    (norm_rope, ".2... .2 .2-.+"),
    (functools.partial(norm_rope, norm_over="all_heads"), "11... 11 11-++"),
]

TPA = [(decode, "000000 00"), (decode, "2.2.2. 22"), (decode, "11.... 11")]
TPA += [(functools.partial(decode, causal=True), where) for where in ("000000 00", "2.2.2. 22")]

MERGE = [(merge(return_lse=True), f"{i}{i} {i - 1}{i - 1} {i}{i}") for i in (1, 2, 3)]
MERGE += [(merge(base="2"), f"{i}{i} {i - 1} {i}{i}") for i in (1, 2, 3)] + [(merge(), "4. 3 4+")]


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


class Spread(MultiProcContinuousTest):
    """What the tests below have in common."""

    mesh: DeviceMesh
    shape: tuple[int, ...]

    @classmethod
    def backend_str(cls):
        return "gloo"

    @classmethod
    def device_type(cls):
        return "cpu"

    @classmethod
    def _init_pg(cls, rank, world_size, rdvz_file):
        super()._init_pg(rank, world_size, rdvz_file)
        torch.set_num_threads(1)
        cls.mesh = init_device_mesh("cpu", cls.shape)

    def spread(self, tensors, signs):
        return [distribute_tensor(x.clone(), self.mesh, placements(s, self.mesh.ndim)) for x, s in zip(tensors, signs)]

    def check(self, call, tensors, where, moved=(0, 0), compiled=False):
        """The call of DTensors placed so is that of the tensors; `moved` counts collectives, None any number but 0."""
        signs, results, *gradients = (each.split(",") if self.mesh.ndim > 1 else each for each in where.split())
        gradients = gradients[0] if gradients else "-" * len(tensors)
        whole, parts = [x.clone() for x in tensors], self.spread(tensors, signs)
        learned = [i for i, sign in enumerate(gradients) if sign != "-"]
        for i in learned:
            whole[i].requires_grad_()
            parts[i].requires_grad_()
        expected = flat(call(*whole))
        made, count = self.forward(call, parts, compiled)
        self.placed(made, results)
        for x, y in zip(made, expected):
            torch.testing.assert_close(x.full_tensor(), y, rtol=1e-12, atol=1e-12)
        slopes = [random(*y.shape) for y in expected]
        wanted = torch.autograd.grad(expected, [whole[i] for i in learned], slopes) if learned else ()
        slopes = self.spread(slopes, ["." if sign == "+" else sign for sign in results])
        got, back = self.backward(made, [parts[i] for i in learned], slopes, compiled) if learned else ((), 0)
        self.placed(got, [gradients[i] for i in learned])
        for x, y in zip(got, wanted):
            unit = 1e-12 if y.dtype == torch.float64 else 1e-5
            torch.testing.assert_close(x.full_tensor(), y, rtol=unit, atol=unit)
        for each, wanted_count in zip((count, back), moved):
            assert each > 0 if wanted_count is None else each == wanted_count, (where, count, back)

    def placed(self, tensors, signs):
        self.assertEqual([x.placements for x in tensors], [placements(sign, self.mesh.ndim) for sign in signs])

    def forward(self, call, parts, compiled):
        if compiled:
            torch._dynamo.reset()
            self.graphs = AotEagerAndRecordGraphs()
            made = flat(torch.compile(call, backend=self.graphs, fullgraph=True)(*parts))
            return made, collectives(self.graphs.fw_graphs)
        with CommDebugMode() as mode:
            made = flat(call(*parts))
        return made, mode.get_total_counts()

    def backward(self, made, inputs, slopes, compiled):
        with CommDebugMode() as mode:
            gradients = torch.autograd.grad(made, inputs, slopes)
        return gradients, collectives(self.graphs.bw_graphs) if compiled else mode.get_total_counts()


# ---- two processes ---------------------------------------------------------------------------------------------------


class TestTwo(Spread):
    world_size, shape = 2, (2,)

    def test_act(self):
        for call, where in ACT:
            self.check(call, [random(B, N, H, D)], where)

    def test_act_in_shares(self):
        x, lse = random(B, N, H, D), random(B, 1, H, D)
        for where in ("00 0 00", "1. 1 1+", "22 2 22", "33 3 33"):
            self.check(softmax_of_lse, [x, lse], where)
        o, grad, delta = random(B, N, D), random(B, N, D), random(B, 1, D)
        for where in ("00 0", "11 +", "22 2"):
            self.check(lambda *x: torch.ops.copes.softmax_delta(*x, 1), [o, grad], where)
        for where in ("000 0", "11. 1", "222 2"):
            self.check(lambda *x: torch.ops.copes.softmax_of_delta(*x, 1), [o, grad, delta], where)

    def test_lrpe(self):
        for call, where in LRPE:
            self.check(call, x_theta(), where)
        x, theta = x_theta(H)
        self.check(rotate(offset=2), [x, theta], "20 2 20")
        self.check(rotate(offset=2), [x, theta], "2. 2 20")
        self.check(rotate(act="softmax", dim=1), [x, theta], "2. 2 20")
        self.check(cosine(act="silu", offset=4), x_theta(1, D), "1. 1 1+")
        self.check(rotate(), [random(B, N, D), torch.rand(1, D // 2)], "1. 1 1+")
        self.check(rotate(grid=(2, 4)), [x, torch.rand(2, H, D // 2)], "21 2 21")

    def test_lrpe_positions(self):
        x, theta = x_theta()
        for positions, tokens, batch in (
            (torch.randint(10, (N,)), "0", "."),
            (torch.randint(10, (B, N)), "1", "0"),
        ):
            call = functools.partial(with_positions, offset=3)
            self.check(call, [x, theta, positions], f"1.{tokens} 1 1+-")
            self.check(call, [x, theta, positions], "1.. 1 1+-")
            self.check(call, [x, theta, positions], f"0.{batch} 0 0+-")
            self.check(call, [x, theta, positions], "2.. 2 2+-")
        call, positions = functools.partial(with_positions, sections=(1, 2, 1)), torch.randint(10, (3, B, N))
        for where in ("1.2 1 1+-", "0.1 0 0+-"):
            self.check(call, [x, theta, positions], where)
        for where in ("1.. 1 1+-", "0.0 0 0+-", "0.. 0 0+-"):
            self.check(with_offsets, [x, theta, torch.arange(B)], where)

    def test_lrpe_in_shares(self):
        x, theta = x_theta()
        for where in ("0.0 0 0+0", "1.. 1 1++", "2.1 2 2+1"):
            self.check(of_lse, [x, theta, random(B, H, D)], where)

    def test_qk(self):
        for call, where in QK:
            self.check(call, qk(), where)
        self.check(norm_rope, qk(weights=(H, 2)), "22.00 22 22-00")
        self.check(norm_rope, qk(H, H, (H, H)), "22000 22 22-00")
        self.check(norm_rope, qk(H, H)[:3], "22. 22 22-")
        self.check(lambda q, theta: copes.qk_norm_rope(q, None, theta, offset=2), x_theta(), "1. 1 1-")
        call = lambda q, k, theta, positions: copes.qk_norm_rope(q, k, theta, positions=positions, offset=2)
        self.check(call, [*qk()[:3], torch.randint(10, (N,))], "11.0 11 11--")

    def test_tpa_decode(self):
        for call, where in TPA:
            self.check(call, factors(), where)
        lengths = torch.tensor([6, 0, 3, 5], dtype=torch.int32)
        self.check(functools.partial(decode, causal=True), [*factors(), lengths], "0000000 00")
        self.check(functools.partial(decode, causal=True), [*factors(), lengths], "2.2.2.. 22")

    def test_attention_merge(self):
        for call, where in MERGE:
            self.check(call, shares(), where)
        self.check(merge(return_lse=True), shares(), "4. 3. ..", moved=(0, None))

    def test_compiled(self):
        silu = functools.partial(copes.act, act="silu")
        for i in range(3):
            self.check(silu, [random(B, N, H, D)], f"{i} {i} {i}", compiled=True)
            self.check(rotate(act="silu", offset=3), x_theta(), f"{i}. {i} {i}+", compiled=True)
            self.check(functools.partial(norm_rope, offset=3), qk(), f"{i}{i}... {i}{i} {i}{i}-++", compiled=True)
        self.check(functools.partial(copes.act, act="softmax"), [random(B, N, D)], "2 . .", (None, 0), compiled=True)

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

    def test_one_of_one(self):
        """A batch of one may be sharded by one rank."""
        self.mesh = init_device_mesh("cpu", (1, 2))
        self.check(rotate(offset=3), [random(1, N, H, D), torch.rand(1, D // 2)], "02,.. 02 02,++")
        self.check(decode, [x[:1] for x in factors()], "02,0.,02,0.,02,0. 02,02")

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


# ---- lengths that do not divide, and meshes of two dimensions ---------------------------------------------------------


class TestThree(Spread):
    world_size, shape = 3, (3,)

    def test_uneven(self):
        """8 tokens are 3, 3 and 2, 4 heads 2, 2 and 0."""
        self.check(functools.partial(copes.act, act="silu"), [random(B, N)], "0 0 0")
        self.check(rotate(act="silu", offset=3), x_theta(), "1. 1 1+")
        self.check(rotate(offset=3), x_theta(H), "20 2 20")
        self.check(functools.partial(norm_rope, offset=3), qk(keys=3), "11... 11 11-++")
        self.check(norm_rope, qk(keys=3), "22... 22 22-++")
        self.check(decode, factors(), "2.2.2. 22")
        self.check(merge(), shares(), "22 1 22")
        self.check(rotate(act="silu", offset=3), x_theta(), "1. 1 1+", compiled=True)

    def test_too_few(self):
        """2 of keys' heads are not enough for 3."""
        self.check(norm_rope, qk(keys=2), "2.... 2. 2.-+.")
        self.check(norm_rope, qk(keys=2), "22... 2. 2.-+.", (1, 1))

    def test_a_rank_without(self):
        """The mesh has two of the ranks."""
        mesh = DeviceMesh("cpu", [0, 1])
        x, theta = (distribute_tensor(each, mesh, [Replicate()]) for each in x_theta())
        for made in (copes.act(x, "silu"), copes.lrpe_rotate(x, theta), *copes.qk_norm_rope(x, x, theta)):
            self.assertEqual(made.to_local().numel(), 0 if self.rank == 2 else x.numel())


class TestFour(Spread):
    world_size, shape = 4, (2, 2)

    def test_two_dimensions(self):
        x, theta = x_theta(H)
        self.check(rotate(offset=3), [x, theta], "02,.0 02 02,+0")
        self.check(rotate(offset=3), x_theta(), "12,.. 12 12,++")
        self.check(rotate(offset=3), x_theta(), "01,.. 01 01,++")
        self.check(norm_rope, qk(), "02,02,..,..,.. 02,02 02,02,-,++,++")
        self.check(decode, factors(), "02,0.,02,0.,02,0. 02,02")
        self.check(merge(), shares(), "13,13 02 13,13")
        self.check(functools.partial(copes.act, act="softmax"), [random(B, N, D)], "01 01 01")

    def test_tokens_by_both(self):
        """7 tokens are 2, 2, 2 and 1."""
        x = random(B, 7, H, D)
        self.check(rotate(offset=3), [x, torch.rand(1, D // 2)], "11,.. 11 11,++")
        call = functools.partial(norm_rope, offset=3)
        self.check(call, [x, x[:, :, :2], *qk()[2:]], "11,11,..,..,.. 11,11 11,11,-,++,++")


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
