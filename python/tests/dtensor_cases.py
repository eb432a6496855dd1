"""What the tests of DTensors share: calls of the operators, and the check of one by several processes against one of one.

Placements are a sign for each tensor: a digit is the axis that is sharded, "." the whole, "+" a part of a sum, "-" no
gradient. "2. 2 2+" has x sharded by heads beside a whole theta, the result and x's gradient sharded alike, and theta's a sum.
On a mesh of two dimensions it is a sign for each: "02,.. 02 02,++"."""

import functools

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
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
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


def rotate(**attributes):
    return functools.partial(copes.lrpe_rotate, **attributes)


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
