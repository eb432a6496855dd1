"""Every operator of DTensors, sharded by each of its axes, by 2, 3 and 4 processes over gloo, against the same call of
one process: values, gradients, where results lie, and that an axis which needs no exchange has none."""

import functools

import copes
import torch
from dtensor_cases import B, D, H, N, Spread, decode, factors, merge, norm_rope, qk, random, rotate, x_theta
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor


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

    def test_one_of_one(self):
        """A batch of one may be sharded by one rank."""
        self.mesh = init_device_mesh("cpu", (1, 2))
        self.check(rotate(offset=3), [random(1, N, H, D), torch.rand(1, D // 2)], "02,.. 02 02,++")
        self.check(decode, [x[:1] for x in factors()], "02,0.,02,0.,02,0. 02,02")


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
