#!/usr/bin/env python3
"""Completion in bash, by the words that the command says may follow, and the manual page, which has every command and flag."""
import pathlib
import re
import shutil
import subprocess
import unittest

from command_case import COPES, CommandTest, copes

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"
COMMANDS = re.findall(r"(?m)^  ([a-z]+) ", copes("--help").stdout)


def words(*before):
    return copes("complete", *before).stdout.split()


def flags_in(text):
    return set(re.findall(r"--[a-z-]+", text)) - {"--help"}


class Complete(CommandTest):
    def test_commands_are_those_of_the_help(self):
        self.assertEqual(words(), [*COMMANDS, "--help"])

    def test_flags_are_those_of_the_help(self):
        operators = [word for word in words("run") if not word.startswith("-")]
        self.assertEqual(len(operators), 6)
        for line in [("run", op) for op in operators] + [("sample", "x"), ("check",), ("bench",), ("explain",)]:
            done = copes(line[0], *(line[1:] if line[0] == "run" else ()), "--help")
            if "this build has no" not in done.stderr:
                self.assertEqual({word for word in words(*line) if word.startswith("--")} - {"--help"}, flags_in(done.stdout), line)

    def test_values(self):
        self.assertEqual(words("run", "act", "--act"), ["none", "relu", "sigmoid", "silu", "softmax"])
        self.assertEqual(words("sample", "x", "--dtype"), ["f64", "f32", "f16", "bf16"])
        self.assertEqual(words("run", "act", "--device"), [line.split()[0] for line in copes("devices").stdout.splitlines()])
        self.assertEqual(words("run", "act", "--in"), [])  # a file
        self.assertIn("--dim", words("run", "act", "--in", "x"))
        for line in (("act", "--backward"), ("act", "--in-place"), ("tpa_decode", "--causal")):  # flags without a value
            self.assertIn("--in", words("run", *line))
        self.assertIn("tpa_decode", words("sample", "x"))
        for line in (("walk",), ("run", "attention"), ("ops", "x")):
            self.assertEqual(words(*line), [])

    def complete_in_bash(self, *line):
        """The words that bash would offer for the last one."""
        script = f'. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _copes "$1"; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", script, TOOLS / "copes.bash", *line], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        if shutil.which("bash") is None or len(COPES) > 1:
            self.skipTest("no bash, or a command of several words")
        self.assertEqual(self.complete_in_bash(*COPES, "do"), ["doctor"])
        self.assertEqual(self.complete_in_bash(*COPES, "run", "lrpe"), ["lrpe_rotate", "lrpe_cosine"])
        self.assertEqual(self.complete_in_bash(*COPES, "run", "act", "--act", "si"), ["sigmoid", "silu"])
        self.assertEqual(self.complete_in_bash(*COPES, "run", "act", "--act", "=", "so"), ["softmax"])
        self.assertEqual(len(self.complete_in_bash(*COPES, "run", "act", "--act", "=")), 5)
        self.assertEqual(self.complete_in_bash(*COPES, "run", "act", "--in", ""), [])


class Manual(unittest.TestCase):
    page = (TOOLS / "copes.1.in").read_text(encoding="utf-8")

    def test_has_every_command_and_flag(self):
        sections = dict(re.findall(r"(?ms)^\.SS copes ([a-z]+)(.*?)(?=^\.S)", self.page))
        self.assertEqual(sorted(sections), sorted(COMMANDS))
        for command in ("sample", "check", "bench"):
            done = copes(command, "--help")
            if "this build has no" not in done.stderr:
                self.assertEqual(flags_in(done.stdout) - {"--device"}, flags_in(sections[command].replace("\\-", "-")), command)

    def test_formats_without_warnings(self):
        if shutil.which("groff") is None:
            self.skipTest("no groff")
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=self.page, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
