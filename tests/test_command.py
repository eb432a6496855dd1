#!/usr/bin/env python3
"""The `copes` command's results: every flag of every operator against the definitions."""
import functools
import math
import unittest

import command_reference as reference
from command_case import CommandTest, copes, flags_of
from command_reference import Tensor, read, write


class Act(CommandTest):
    def test_every_activation(self):
        x, grad_o = self.tensor(2, 3, 5), self.tensor(2, 3, 5)
        for name in ("none", "relu", "sigmoid", "silu"):
            write(self.input, x=x, grad_o=grad_o)
            self.expect(self.run_ok("act", "--act", name)["o"], reference.act(x, name))
            wanted = reference.gradient(lambda t, name=name: reference.act(t, name), x, grad_o)
            self.expect(self.run_ok("act", "--act", name, "--backward")["grad_x"], wanted)

    def test_softmax_along_every_axis(self):
        x, grad_o = self.tensor(2, 3, 5), self.tensor(2, 3, 5)
        for dim in (-3, -2, -1, 0, 1, 2):
            o = reference.act(x, "softmax", dim)
            write(self.input, x=x, grad_o=grad_o, o=o)
            self.expect(self.run_ok("act", "--act", "softmax", "--dim", dim)["o"], o)
            wanted = reference.gradient(lambda t, dim=dim: reference.act(t, "softmax", dim), x, grad_o)
            self.expect(self.run_ok("act", "--backward", "--act=softmax", f"--dim={dim}")["grad_x"], wanted)
        write(self.input, x=x)
        self.expect(self.run_ok("act", "--act", "softmax")["o"], reference.act(x, "softmax", -1))

    def test_types(self):
        for dtype, bound in (("F32", 3e-7), ("F16", 1e-3), ("BF16", 8e-3)):
            x = self.tensor(3, 7, dtype=dtype)
            write(self.input, x=x)
            got = self.run_ok("act", "--act", "silu")
            self.assertEqual(list(got), ["o"])
            self.assertEqual(got["o"].dtype, dtype)
            self.expect(got["o"], reference.act(x, "silu"), bound)

    def test_layout_makes_dim_one_the_sequence(self):
        x = self.tensor(2, 5, 3, 4)
        write(self.input, x=x.transposed((0, 2, 1, 3)))
        got = self.run_ok("act", "--act", "softmax", "--dim", 1, "--layout", "bhnd")["o"]
        self.expect(got, reference.act(x, "softmax", 1).transposed((0, 2, 1, 3)))

    def test_empty_tensor(self):
        write(self.input, x=Tensor((2, 0, 3), [], "F32"))
        self.assertEqual(self.run_ok("act")["o"].shape, (2, 0, 3))

    def test_output_over_input(self):
        x = self.tensor(3, 4)
        write(self.input, x=x)
        self.output = self.input
        self.expect(self.run_ok("act", "--act", "relu")["o"], reference.act(x, "relu"))


LRPE_CASES = [
    {},
    {"act": "relu"},
    {"act": "sigmoid", "offset": [7]},
    {"act": "silu", "offset": [-3]},
    {"act": "softmax", "dim": -1},
    {"act": "softmax", "dim": 3},
    {"act": "softmax", "dim": 1},
    {"prefix": 2, "suffix": 1},
    {"grid": [3, 2], "offset": [4, 9]},
    {"grid": [3, 1, 2]},
    {"grid": [2, 2], "prefix": 1, "suffix": 1, "act": "silu"},
    {"amplitude": 1.1, "prefix": 1},
    {"inverse": True, "amplitude": -0.5, "act": "sigmoid"},
]
ROTATE_CASES = [
    {"pairing": "interleaved"},
    {"rotary_dim": 4},
    {"rotary_dim": 4, "pairing": "interleaved", "act": "silu"},
    {"rotary_dim": 4, "pad_theta": True},
    {"grid": [2, 3], "sections": [3, 1]},
    {"rotary_begin": 2},
    {"rotary_begin": 3, "rotary_dim": 4, "pairing": "interleaved", "inverse": True},
]
COSINE_CASES = [{"grid": [2, 3], "sections": [6, 2]}, {"pad_theta": True}]


class Lrpe(CommandTest):
    SHAPE = (2, 6, 2, 8)

    CASES = [("rotate", case) for case in LRPE_CASES + ROTATE_CASES] + [("cosine", case) for case in LRPE_CASES + COSINE_CASES]

    def theta(self, variant, case, rows=2):
        angles = 8 if variant == "cosine" else case.get("rotary_dim", 8 - case.get("rotary_begin", 0)) // 2
        return self.tensor(rows, angles - ("pad_theta" in case), dtype="F32")

    def check_forward(self, variant, case):
        x, theta = self.tensor(*self.SHAPE), self.theta(variant, case)
        write(self.input, x=x, theta=theta)
        got = self.run_ok("lrpe_" + variant, *flags_of(case))
        self.assertEqual(list(got), ["o"])
        self.expect(got["o"], reference.lrpe(x, theta, variant, **case))

    def check_backward(self, variant, case):
        x, theta = self.tensor(1, 6, 2, 8), self.theta(variant, case, 1)
        grad_o = self.tensor(1, 6, 2, 16 if variant == "cosine" else 8)
        write(self.input, theta=theta, grad_o=grad_o, **({"x": x} if "act" in case else {}))
        got = self.run_ok("lrpe_" + variant, "--backward", *flags_of(case))
        self.assertEqual(list(got), ["grad_x"])
        wanted = reference.gradient(lambda t: reference.lrpe(t, theta, variant, **case), x, grad_o)
        self.expect(got["grad_x"], wanted)

    def test_every_case(self):
        for variant, case in self.CASES:
            with self.subTest(variant=variant, case=case):
                self.check_forward(variant, case)
                self.check_backward(variant, case)

    def positions(self, *shape, dtype):
        if dtype == "F32":
            return self.tensor(*shape, dtype=dtype)
        return Tensor(shape, [self.random.randint(-9, 99) for _ in range(math.prod(shape))], dtype)

    def check_places(self, variant, theta, case, given):
        """Forward, and backward with the gradient of theta."""
        x, grad_o = self.tensor(2, 3, 2, 4), self.tensor(2, 3, 2, 8 if variant == "cosine" else 4)
        write(self.input, x=x, theta=theta, **given)
        self.expect(self.run_ok("lrpe_" + variant, *flags_of(case))["o"], reference.lrpe(x, theta, variant, **case, **given))
        write(self.input, x=x, theta=theta, grad_o=grad_o, **given)
        got = self.run_ok("lrpe_" + variant, "--backward", "--grad-theta", *flags_of(case))
        self.assertEqual(sorted(got), ["grad_theta", "grad_x"])
        wanted = reference.gradient(lambda t: reference.lrpe(t, theta, variant, **case, **given), x, grad_o)
        self.expect(got["grad_x"], wanted)
        wanted = reference.gradient(lambda t: reference.lrpe(x, t, variant, **case, **given), theta, grad_o)
        self.expect(got["grad_theta"], wanted, 1e-5)

    def test_positions(self):
        for variant, angles in (("rotate", 2), ("cosine", 4)):
            for dtype in ("I32", "I64", "F32"):
                for shape in ((3,), (2, 3), (1, 2, 3), (3, 2, 3)):
                    with self.subTest(variant=variant, dtype=dtype, shape=shape):
                        given = {"positions": self.positions(*shape, dtype=dtype)}
                        theta = self.tensor(2, angles, dtype="F32")
                        self.check_places(variant, theta, {"act": "silu", "offset": [2]}, given)
                        if len(shape) == 3:
                            each = self.tensor(shape[0], 1, angles, dtype="F32")
                            self.check_places(variant, each, {"amplitude": 1.5, "inverse": True}, given)

    def test_offsets(self):
        for dtype in ("I32", "I64", "F32"):
            given = {"offsets": self.positions(2, dtype=dtype)}
            self.check_places("rotate", self.tensor(1, 2, dtype="F32"), {"prefix": 1, "offset": [3]}, given)

    def test_theta_base_for_positions(self):
        x, places = self.tensor(*self.SHAPE), self.positions(2, 2, 6, dtype="I32")
        made = reference.stored(Tensor((1, 2), [1.0, 0.1], "F32"))
        write(self.input, x=x, positions=places)
        self.expect(self.run_ok("lrpe_rotate", "--theta-base", 100)["o"], reference.lrpe(x, made, "rotate", positions=places))

    def test_a_theta_for_each_dimension_of_a_grid(self):
        self.check_places("cosine", self.tensor(2, 2, 4, dtype="F32"), {"grid": [1, 3], "offset": [1, -4]}, {})

    def test_positions_of_64_bits(self):
        x, theta = self.tensor(*self.SHAPE), self.theta("rotate", {})
        far = Tensor((6,), [2**40 + i for i in range(6)], "I64")
        write(self.input, x=x, theta=theta, positions=far)
        got = self.run_ok("lrpe_rotate")["o"]
        write(self.input, x=x, theta=theta, positions=Tensor((6,), range(6), "I64"))
        self.expect(self.run_ok("lrpe_rotate", "--offset", 2**40)["o"], got)

    def test_layout(self):
        swap = (0, 2, 1, 3)
        for variant, width in (("rotate", 8), ("cosine", 16)):
            x, theta, grad_o = self.tensor(2, 6, 3, 8), self.theta(variant, {}, 3), self.tensor(2, 6, 3, width)
            write(self.input, x=x.transposed(swap), theta=theta, grad_o=grad_o.transposed(swap))
            stored = self.run_ok("lrpe_" + variant, "--act", "silu", "--layout", "bhnd")["o"]
            self.expect(stored, reference.lrpe(x, theta, variant, act="silu").transposed(swap))
            stored = self.run_ok("lrpe_" + variant, "--act", "silu", "--layout", "bhnd", "--backward")["grad_x"]
            write(self.input, x=x, theta=theta, grad_o=grad_o)
            self.expect(self.run_ok("lrpe_" + variant, "--act", "silu", "--backward", "--layout", "bnhd")["grad_x"],
                        stored.transposed(swap))

    def test_shares_are_the_whole(self):
        x, theta, grad_o = self.tensor(*self.SHAPE), self.theta("rotate", {}), self.tensor(*self.SHAPE)
        flags = ("--act", "softmax", "--dim", 1)
        write(self.input, x=x, theta=theta, grad_o=grad_o)
        whole = [self.run_ok("lrpe_rotate", *flags)["o"], self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"]]
        shares = []
        for first, last in ((0, 2), (2, 2), (2, 6)):
            tokens = [[t.at(*i) for i in t.indices() if first <= i[1] < last] for t in (x, grad_o)]
            shape = (x.shape[0], last - first, *x.shape[2:])
            shares.append((first, dict(theta=theta), *(Tensor(shape, values, "F64") for values in tokens)))

        def each(name, total, *more, **slots):
            results = []
            for first, given, share, grad in shares:
                given = given | slots | ({"grad_o": grad} if "--backward" in more else {})
                write(self.input, x=share, **given)
                results.append(self.run_ok("lrpe_rotate", *flags, "--offset", first, *more)[name])
            return results[0].like([total(r) for r in zip(*(r.values for r in results))]) if total else results

        lse = each("lse", reference.log_sum_exp, "--no-o", "--lse")
        self.expect(lse, reference.lse_of_sequence(x))
        delta = each("delta", sum, "--backward", "--no-grad-x", "--delta", lse=lse)
        for got, wanted in zip((each("o", None, lse_all=lse),
                                each("grad_x", None, "--backward", lse=lse, delta_all=delta)), whole):
            for (first, _, share, _), result in zip(shares, got):
                part = [wanted.at(*i) for i in wanted.indices() if first <= i[1] < first + share.shape[1]]
                self.expect(result, share.like(part))

    def test_act_in_shares(self):
        x, grad_o = self.tensor(2, 5, 3), self.tensor(2, 5, 3)
        flags = ("--act", "softmax", "--dim", 1)
        write(self.input, x=x)
        lse = self.run_ok("act", *flags, "--no-o", "--lse")["lse"]
        self.assertEqual(lse.shape, (2, 1, 3))
        write(self.input, x=x, lse_all=lse)
        o = self.run_ok("act", *flags)["o"]
        self.expect(o, reference.act(x, "softmax", 1))
        write(self.input, o=o, grad_o=grad_o)
        whole = self.run_ok("act", "--backward", *flags)["grad_x"]
        delta = self.run_ok("act", "--backward", *flags, "--no-grad-x", "--delta")["delta"]
        write(self.input, o=o, grad_o=grad_o, delta_all=delta)
        self.expect(self.run_ok("act", "--backward", *flags)["grad_x"], whole)

    def test_mask_is_written_and_read(self):
        x, grad_o = self.tensor(2, 3, 9), self.tensor(2, 3, 9)
        write(self.input, x=x)
        got = self.run_ok("act", "--act", "relu", "--mask")
        self.expect(got["o"], reference.act(x, "relu"))
        mask = got["mask"]
        self.assertEqual((mask.shape, mask.dtype), ((2, 3, 2), "U8"))
        bits = [mask.at(i, j, k // 8) >> k % 8 & 1 for i, j, k in x.indices()]
        self.assertEqual(bits, [int(v > 0) for v in x.values])
        wanted = x.like([g * b for g, b in zip(grad_o.values, bits)])
        for kept in ({"mask": mask}, {"o": got["o"]}, {"x": x}):
            write(self.input, grad_o=grad_o, **kept)
            self.expect(self.run_ok("act", "--backward", "--act", "relu")["grad_x"], wanted)

    def test_lse_is_written_and_read(self):
        x, theta, grad_o = self.tensor(*self.SHAPE), self.theta("rotate", {}), self.tensor(*self.SHAPE)
        flags = ("--act", "softmax", "--dim", 1)
        write(self.input, x=x, theta=theta)
        got = self.run_ok("lrpe_rotate", *flags, "--lse", "--layout", "bnhd")
        self.assertEqual(sorted(got), ["lse", "o"])
        self.expect(got["lse"], reference.lse_of_sequence(x))
        write(self.input, x=x, theta=theta, grad_o=grad_o)
        without = self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"]
        write(self.input, x=x, theta=theta, grad_o=grad_o, lse=got["lse"])
        self.expect(self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"], without)
        shifted = got["lse"].like([v + math.log(2) for v in got["lse"].values])  # so that it is seen to be read
        write(self.input, x=x, theta=theta, grad_o=grad_o, lse=shifted)
        self.assertNotEqual(self.run_ok("lrpe_rotate", "--backward", *flags)["grad_x"].values, without.values)

    def test_theta_base(self):
        cases = [("rotate", {}, 4), ("rotate", {"rotary_dim": 4}, 2), ("cosine", {}, 8), ("rotate", {"grid": [3, 2]}, 2),
                 ("rotate", {"grid": [3, 1, 2]}, 2), ("cosine", {"grid": [3, 2]}, 4),
                 ("rotate", {"grid": [2, 3], "sections": [1, 3]}, 4), ("rotate", {"rotary_begin": 2}, 3)]
        for variant, case, count in cases:
            x = self.tensor(*self.SHAPE)
            made = reference.stored(Tensor((1, count), [100.0 ** (-i / count) for i in range(count)], "F32"))
            write(self.input, x=x)
            self.expect(self.run_ok("lrpe_" + variant, "--theta-base", 100, *flags_of(case))["o"],
                        reference.lrpe(x, made, variant, **case))
            grad_o = self.tensor(2, 6, 2, 16 if variant == "cosine" else 8)
            write(self.input, grad_o=grad_o)
            got = self.run_ok("lrpe_" + variant, "--backward", "--theta-base", 100, *flags_of(case))["grad_x"]
            write(self.input, grad_o=grad_o, theta=made)
            self.expect(got, self.run_ok("lrpe_" + variant, "--backward", *flags_of(case))["grad_x"])

    def test_theta_of_the_file_comes_first(self):
        x, theta = self.tensor(*self.SHAPE), self.theta("rotate", {})
        write(self.input, x=x, theta=theta)
        self.expect(self.run_ok("lrpe_rotate", "--theta-base", 100)["o"], reference.lrpe(x, theta, "rotate"))


class TpaDecode(CommandTest):
    def factors(self, rank=3, n=2, m=5):
        lead = () if rank is None else (rank,)
        return {"aq": self.tensor(2, n, 3, 2), "bq": self.tensor(2, n, 2, 4), "ak": self.tensor(2, m, 3, *lead),
                "bk": self.tensor(2, m, *lead, 4), "av": self.tensor(2, m, 3, *lead), "bv": self.tensor(2, m, *lead, 6)}

    def compare(self, factors, case):
        write(self.input, **factors)
        o, lse = reference.tpa(**factors, **case)
        got = self.run_ok("tpa_decode", "--lse", *flags_of(case))
        self.assertEqual(sorted(got), ["lse", "o"])
        self.expect(got["o"], o)
        self.expect(got["lse"], lse)
        self.assertEqual(list(self.run_ok("tpa_decode", *flags_of(case))), ["o"])

    def test_every_flag(self):
        for case in ({}, {"scale": 0.3}, {"scale_q": 0.7}, {"scale_k": 1.5}, {"scale_v": -2}, {"causal": True},
                     {"scale": 0.2, "scale_q": 2, "scale_k": 3, "scale_v": 4, "causal": True},
                     {"kv_first": 3, "kv_stride": 2, "kv_total": 13, "causal": True}):
            for rank in (None, 1, 3):
                with self.subTest(case=case, rank=rank):
                    self.compare(self.factors(rank), case)

    def test_kv_len_of_both_integer_types(self):
        for dtype in ("I32", "I64"):
            for lengths in ((5, 2), (0, 9), (-4, 1)):
                kv_len = Tensor((2,), lengths, dtype)
                self.compare({**self.factors(), "kv_len": kv_len}, {})
                self.compare({**self.factors(), "kv_len": kv_len}, {"causal": True})

    def test_kv_len_past_32_bits(self):
        write(self.input, **self.factors(), kv_len=Tensor((2,), [1, 2**31], "I64"))
        self.refuse(1, f"{self.input}: kv_len has 2147483648 at index 1; it must fit 32 bits", "run", "tpa_decode", "--in",
                    self.input, "--out", self.output)
        self.assertFalse(self.output.exists())


class AttentionMerge(CommandTest):
    def setUp(self):
        super().setUp()
        self.shares, self.lses = self.tensor(3, 2, 1, 2, 4), self.tensor(3, 2, 1, 2)

    def test_forward(self):
        self.lses.values[2:5] = [-math.inf, math.inf, -math.inf]
        write(self.input, o_shares=self.shares, lse_shares=self.lses)
        for base in ("e", "2"):
            o, lse = reference.merge(self.shares, self.lses, base)
            got = self.run_ok("attention_merge", "--lse", "--base", base)
            self.assertEqual(sorted(got), ["lse", "o"])
            self.expect(got["o"], o)
            self.expect(got["lse"], lse)
            self.assertEqual(list(self.run_ok("attention_merge", "--base", base)), ["o"])

    def test_backward(self):
        grad_o, grad_lse = self.tensor(2, 1, 2, 4), self.tensor(2, 1, 2)
        for base in ("e", "2"):
            write(self.input, o_shares=self.shares, lse_shares=self.lses, grad_o=grad_o, grad_lse=grad_lse)
            got = self.run_ok("attention_merge", "--backward", "--grad-lse-shares", "--base", base)
            self.assertEqual(sorted(got), ["grad_lse_shares", "grad_o_shares"])

            def both(shares, lses, base=base):
                o, lse = reference.merge(shares, lses, base)
                return Tensor((20,), o.values + lse.values)

            grad = Tensor((20,), grad_o.values + grad_lse.values)
            self.expect(got["grad_o_shares"], reference.gradient(lambda x: both(x, self.lses), self.shares, grad), 1e-4)
            self.expect(got["grad_lse_shares"], reference.gradient(lambda x: both(self.shares, x), self.lses, grad), 1e-4)
            write(self.input, lse_shares=self.lses, grad_o=grad_o)
            alone = self.run_ok("attention_merge", "--backward", "--base", base)
            self.assertEqual(alone["grad_o_shares"].values, got["grad_o_shares"].values)


class QkNormRope(CommandTest):
    ROTATIONS = ({}, {"pairing": "interleaved"}, {"rotary_dim": 2}, {"rotary_begin": 2, "inverse": True},
                 {"prefix": 1, "offset": [3]}, {"suffix": 1, "amplitude": 1.5}, {"grid": [3, 1], "sections": [1, 1]},
                 {"rotary_dim": 4, "pad_theta": True})
    NORMS = ({}, {"eps": 0.5}, {"weight_offset": 1}, {"norm_over": "all_heads"}, {"round_between": True})

    def tensors(self, *names):
        shapes = {"q": (2, 3, 4, 4), "k": (2, 3, 2, 4), "v": (2, 3, 2, 6), "wq": (4,), "wk": (2, 4)}
        shapes |= {"grad_q_out": shapes["q"], "grad_k_out": shapes["k"], "k_cache": (2, 4, 2, 4), "v_cache": (2, 4, 2, 6)}
        return {name: self.tensor(*shapes[name]) for name in names}

    def theta(self, rotation):
        angles = rotation.get("rotary_dim", 4 - rotation.get("rotary_begin", 0)) // 2
        return self.tensor(1, angles - ("pad_theta" in rotation), dtype="F32")

    def check(self, rotation, norm):
        """Forward and backward, with the weights' gradients."""
        theta, tensors = self.theta(rotation), self.tensors("q", "k", "wq", "wk", "grad_q_out", "grad_k_out")
        write(self.input, theta=theta, **tensors)
        numbers = {name: value for name, value in norm.items() if name != "round_between"}  # float64 has nothing to round
        side = lambda x, w: reference.qk(x, theta, w, rotation, **numbers)
        flags = flags_of({**rotation, **norm})
        got = self.run_ok("qk_norm_rope", "--k-out", *flags)
        self.assertEqual(sorted(got), ["k_out", "q_out"])
        for name in "qk":
            self.expect(got[name + "_out"], side(tensors[name], tensors["w" + name]))
        got = self.run_ok("qk_norm_rope", "--backward", "--grad-k", "--grad-wq", "--grad-wk", *flags)
        self.assertEqual(sorted(got), ["grad_k", "grad_q", "grad_wk", "grad_wq"])
        for name in "qk":
            x, w, arriving = tensors[name], tensors["w" + name], tensors[f"grad_{name}_out"]
            of_x, of_w = functools.partial(side, w=w), functools.partial(side, x)
            self.expect(got["grad_" + name], reference.gradient(of_x, x, arriving), 1e-6)
            self.expect(got["grad_w" + name], reference.gradient(of_w, w, arriving), 1e-6)

    def test_every_flag(self):
        for rotation in self.ROTATIONS:
            with self.subTest(rotation=rotation):
                self.check(rotation, {})
        for norm in self.NORMS:
            with self.subTest(norm=norm):
                self.check({}, norm)

    def test_queries_alone_without_a_norm(self):
        theta, tensors = self.theta({}), self.tensors("q", "grad_q_out")
        write(self.input, theta=theta, **tensors)
        self.expect(self.run_ok("qk_norm_rope")["q_out"], reference.qk(tensors["q"], theta))
        self.expect(self.run_ok("qk_norm_rope", "--backward")["grad_q"],
                    reference.qk(tensors["grad_q_out"], theta, rotation={"inverse": True}))

    def test_positions_and_offsets(self):
        theta, tensors = self.theta({}), self.tensors("q")
        for given in ({"positions": Tensor((2, 3), range(-2, 4), "I64")}, {"offsets": Tensor((2,), [5, -1], "I32")}):
            write(self.input, theta=theta, **tensors, **given)
            self.expect(self.run_ok("qk_norm_rope")["q_out"], reference.qk(tensors["q"], theta, rotation=given))

    def test_caches_are_updated(self):
        """They keep what no slot names, and -1 and what is past them name nothing."""
        theta, tensors = self.theta({}), self.tensors("q", "k", "wk", "v", "k_cache", "v_cache")
        slots = Tensor((2, 3), [7, -1, 0, 3, 8, 2], "I64")
        write(self.input, theta=theta, slots=slots, **tensors)
        keys = reference.qk(tensors["k"], theta, tensors["wk"])
        for flags, names in (((), []), (("--k-out",), ["k_out"])):
            got = self.run_ok("qk_norm_rope", *flags)
            self.assertEqual(sorted(got), ["k_cache", *names, "q_out", "v_cache"])
            self.expect(got["k_cache"], reference.cached(tensors["k_cache"], keys, slots))
            self.expect(got["v_cache"], reference.cached(tensors["v_cache"], tensors["v"], slots))

    def test_caches_of_float8(self):
        theta, tensors = self.theta({}), self.tensors("q", "v")
        slots, scale = Tensor((2, 3), range(6), "I64"), Tensor((2,), [0.5, 0.001], "F32")
        before = reference.stored(Tensor((1, 8, 2, 6), [0.5] * 96, "F8_E4M3"))
        wanted = reference.cached(before, tensors["v"], slots, scale)
        self.assertEqual(max(map(abs, wanted.values)), 448)
        write(self.input, theta=theta, slots=slots, v_cache=before, v_scale=scale, **tensors)
        got = self.run_ok("qk_norm_rope")["v_cache"]
        self.assertEqual((got.dtype, got.values), ("F8_E4M3", wanted.values))
        bits = Tensor(before.shape, map(reference.float8_bits, before.values), "U8")
        write(self.input, theta=theta, slots=slots, v_cache=bits, v_scale=scale, **tensors)
        got = self.run_ok("qk_norm_rope")["v_cache"]
        self.assertEqual((got.dtype, got.values), ("U8", list(map(reference.float8_bits, wanted.values))))

    def test_layout(self):
        """Caches, too, have heads before tokens."""
        theta, tensors = self.theta({}), self.tensors("q", "k", "k_cache")
        slots = Tensor((2, 3), range(6), "I64")
        write(self.input, theta=theta, slots=slots, **tensors)
        plain = self.run_ok("qk_norm_rope")
        swapped = {name: tensor.transposed((0, 2, 1, 3)) for name, tensor in tensors.items()}
        write(self.input, theta=theta, slots=slots, **swapped)
        for name, tensor in self.run_ok("qk_norm_rope", "--layout", "bhnd").items():
            self.expect(tensor, plain[name].transposed((0, 2, 1, 3)))

    def test_theta_base(self):
        for rotation in ({}, {"rotary_dim": 2}, {"rotary_begin": 2}, {"grid": [1, 3]}):
            tensors = self.tensors("q")
            count = 1 if rotation else 2
            made = reference.stored(Tensor((1, count), [100.0 ** (-i / count) for i in range(count)], "F32"))
            write(self.input, **tensors)
            self.expect(self.run_ok("qk_norm_rope", "--theta-base", 100, *flags_of(rotation))["q_out"],
                        reference.qk(tensors["q"], made, rotation=rotation))

    def test_in_place(self):
        theta, tensors = self.theta({}), self.tensors("q", "k", "wq", "grad_q_out", "grad_k_out")
        write(self.input, theta=theta, **tensors)
        for flags in (("--k-out",), ("--backward", "--grad-k")):
            apart, over = (self.run_ok("qk_norm_rope", *flags, *more) for more in ((), ("--in-place",)))
            self.assertEqual({name: t.values for name, t in apart.items()}, {name: t.values for name, t in over.items()})

    def test_what_lacks(self):
        theta, tensors = self.theta({}), self.tensors("q", "k", "k_cache")
        write(self.input, theta=theta, q=tensors["q"], k=tensors["k"])
        fails = lambda message, *flags: self.refuse(1, f"{self.input}: qk_norm_rope_forward: {message}", "run", "qk_norm_rope",
                                                    "--in", self.input, "--out", self.output, *flags)
        fails("k_out and k_cache are NULL; with k one of them must be a tensor")
        write(self.input, theta=theta, **tensors)
        fails("slots .*")


class InPlace(CommandTest):
    def test_act_and_lrpe(self):
        x, theta = self.tensor(2, 3, 2, 4), self.tensor(1, 2, dtype="F32")
        write(self.input, x=x, theta=theta)
        self.expect(self.run_ok("act", "--act", "silu", "--in-place")["o"], reference.act(x, "silu"))
        self.expect(self.run_ok("lrpe_rotate", "--in-place")["o"], reference.lrpe(x, theta, "rotate"))
        write(self.input, x=x, theta=self.tensor(1, 4, dtype="F32"))
        self.refuse(1, f"{self.input}: --in-place: o has another shape than x", "run", "lrpe_cosine", "--in", self.input, "--out",
                    self.output, "--in-place")


class Explain(CommandTest):
    def test_each_call_names_its_variant(self):
        done = copes("explain", "act", "lrpe_rotate", "--n", 64, "--act", "softmax")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        calls = done.stdout.split("\n\n")
        self.assertEqual(len(calls), 8)
        for call in calls:
            self.assertRegex(call, r"^[\w-]+, n 64\nvariant: \w+<bf16, \w+>\nthreads: \d+\nworkspace: \d+ bytes\n?$")
        self.assertEqual(copes("bench", "--explain", "act", "lrpe_rotate", "--n", 64, "--act", "softmax").stdout, done.stdout)

    def test_help_and_refusals(self):
        self.assertIn("usage: copes explain", copes("explain", "--help").stdout)
        self.refuse(2, '"rope" is not an operator; .*', "explain", "rope")


class Sample(CommandTest):
    def test_sample(self):
        for dtype in ("f64", "f32", "f16", "bf16"):
            done = copes("sample", self.input, "--batch", 2, "--n", 50, "--head", 3, "--dim", 8, "--dtype", dtype)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            got = read(self.input)
            x, theta = got["x"], got["theta"]
            self.assertEqual((x.shape, x.dtype, theta.shape, theta.dtype), ((2, 50, 3, 8), dtype.upper(), (1, 4), "F32"))
            wanted = reference.stored(Tensor((1, 4), [10000.0 ** (-i / 4) for i in range(4)], "F32"))
            self.expect(theta, wanted)
            self.assertLess(abs(sum(x.values) / 2400), 0.1)
            self.assertLess(abs(sum(v * v for v in x.values) / 2400 - 1), 0.15)

    def test_types_are_roundings_of_one_sample(self):
        copes("sample", self.input, "--n", 64, "--dtype", "f64")
        exact = read(self.input)["x"]
        for dtype in ("f32", "f16", "bf16"):
            copes("sample", self.input, "--n", 64, "--dtype", dtype)
            got = read(self.input)["x"]
            self.assertEqual(got.values, reference.stored(Tensor(exact.shape, exact.values, dtype.upper())).values)

    def test_seed(self):
        contents = []
        for seed in (0, 0, 1, -1):
            copes("sample", self.input, "--n", 4, "--seed", seed)
            contents.append(self.input.read_bytes())
        self.assertEqual(contents[0], contents[1])
        self.assertEqual(len(set(contents)), 3)

    def test_refusals(self):
        self.refuse(2, "sample needs the file to write", "sample")
        self.refuse(2, '"b" is not an operator; it must be one of act, .*', "sample", "a", "b")
        self.refuse(2, '"c": sample takes one file and one operator', "sample", "a", "act", "c")
        self.refuse(2, "--dim is 7; it must be even", "sample", self.input, "--dim", 7)
        self.refuse(2, '--n is "0"; it must be an integer from 1 to 2147483647', "sample", self.input, "--n", 0)
        self.refuse(2, '--dtype is "i32"; it must be one of .*', "sample", self.input, "--dtype", "i32")
        self.refuse(2, "sample has no flag --act; .*", "sample", self.input, "--act", "silu")
        self.refuse(2, "the size of x in bytes does not fit 63 bits", "sample", self.input, "--n", 2147483647, "--batch",
                    2147483647, "--head", 2147483647)


if __name__ == "__main__":
    unittest.main()
