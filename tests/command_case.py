"""What the tests of the `copes` command share: running it on the files of a folder, and comparing what it says."""
import math
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import unittest

import command_reference as reference
from command_reference import Tensor, read

# The command as words: a build for another architecture runs it through an emulator, which Meson names.
COPES = [*shlex.split(os.environ.get("MESON_EXE_WRAPPER", "")), os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "copes"]


def copes(*arguments, **options):
    return subprocess.run([*COPES, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, **options)


def flags_of(attributes):
    """{"rotary_dim": 2, "causal": True} as a command line has it."""
    line = []
    for name, value in attributes.items():
        line.append("--" + name.replace("_", "-"))
        if value is not True:
            line.append(",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
    return line


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.input, self.output = self.folder / "in.safetensors", self.folder / "out.safetensors"
        self.random = random.Random(7)

    def tensor(self, *shape, dtype="F64"):
        values = [self.random.uniform(-2, 2) for _ in range(math.prod(shape))]
        return reference.stored(Tensor(shape, values, dtype))

    def run_ok(self, op, *flags):
        done = copes("run", op, "--in", self.input, "--out", self.output, *flags)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        return read(self.output)

    def expect(self, got, wanted, bound=1e-7):
        self.assertEqual(got.shape, wanted.shape)
        for g, w in zip(got.values, wanted.values, strict=True):
            self.assertTrue(g == w or abs(g - w) <= bound * (1 + abs(w)), f"{g}, not {w}")

    def refuse(self, status, message, *arguments, **options):
        """The command leaves this status and, as its one line, this message (a pattern)."""
        done = copes(*arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertRegex(done.stderr, r"\Acopes: (?:" + message + r")\n\Z")
