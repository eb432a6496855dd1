#!/usr/bin/env python3
"""The `copes` command's results: every flag of attention's operators (tpa_decode, attention_merge and qk_norm_rope) against
the definitions."""
import functools
import math
import unittest

import command_reference as reference
from command_case import CommandTest, flags_of
from command_reference import Tensor, write


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


if __name__ == "__main__":
    unittest.main()
