#!/usr/bin/env python3
"""The `copes` command's results: every flag of lrpe_rotate and lrpe_cosine against the definitions."""
import math
import unittest

import command_reference as reference
from command_case import CommandTest, flags_of
from command_reference import Tensor, write

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


if __name__ == "__main__":
    unittest.main()
