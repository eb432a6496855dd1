#!/usr/bin/env python3
"""What the command shows on a terminal alone: colours, a bar with the time left. Pipes get bytes without either."""
import os
import pty
import re
import subprocess
import unittest

from command_case import COPES, CommandTest, copes

CHECK = ("check", "act", "--cases", "1", "--every", "40")


def on_terminal(*arguments, stdout=subprocess.PIPE, until=None, **variables):
    """The exit status, what came on stdout, and what a terminal as stderr was sent; ended when that has the pattern `until`."""
    leader, follower = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen([*COPES, *map(str, arguments)], stdout=stdout or follower, stderr=follower,
                               env={**environment, "TERM": "xterm", **variables})
    os.close(follower)
    shown = b""
    try:
        while part := os.read(leader, 4096):
            shown += part
            if until is not None and re.search(until, shown.decode(errors="replace")):
                process.terminate()
    except OSError:  # the last writer has gone
        pass
    os.close(leader)
    out = process.communicate(timeout=60)[0]
    return process.returncode, (out or b"").decode(), shown.decode()


class Terminal(CommandTest):
    def test_complaints_are_red(self):
        self.assertEqual(on_terminal("walk")[2], "\033[31mcopes:\033[0m \"walk\" is not a command; `copes --help` lists them\r\n")
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertEqual(on_terminal("walk", **variables)[2][:12], 'copes: "walk')
        self.assertEqual(copes("walk").stderr[:12], 'copes: "walk')

    def test_doctor_is_coloured(self):
        self.assertIn("\033[32mcomputes\033[0m", on_terminal("doctor", stdout=None)[2])
        self.assertNotIn("\033", copes("doctor").stdout + on_terminal("doctor", stdout=None, NO_COLOR="1")[2])

    def test_bar_of_check(self):
        silent = copes(*CHECK)
        if "this build has no check" in silent.stderr:
            self.skipTest("a build without check")
        self.assertEqual((silent.returncode, silent.stderr), (0, ""))
        status, out, shown = on_terminal(*CHECK)
        self.assertEqual((status, out), (0, silent.stdout))
        self.assertRegex(shown, r"\A\r\033\[K\033\[32m\033\[0m\.{20} 1 of \d+: act ")
        self.assertTrue(shown.endswith("\r\033[K"))
        self.assertEqual(on_terminal(*CHECK, TERM="dumb")[2], "")
        self.assertNotIn("\033[3", on_terminal(*CHECK, NO_COLOR="1")[2])

    def test_bench_says_how_long_it_takes(self):
        tiny = ("bench", "act", "--act", "relu", "--n", "4", "--batch", "1", "--head", "2", "--dim", "4", "--mode", "forward")
        status, out, shown = on_terminal(*tiny)
        if "this build has no bench" in shown:
            self.skipTest("a build without bench")
        self.assertEqual(status, 0)
        self.assertRegex(shown, r"\AThis takes about \d+ s for 1 case\. Less: --quick, ")
        self.assertNotIn("takes about", out)
        self.assertNotIn("--quick", on_terminal(*tiny, "--quick")[2])
        self.assertEqual(copes(*tiny, "--quick").stderr, "")

    def test_time_left(self):
        if "this build has no check" in copes(*CHECK).stderr:
            self.skipTest("a build without check")
        left = r"\.+ \d+ (s|min) left, \d+ of \d+: lrpe_rotate "
        shown = on_terminal("check", "lrpe_rotate", until=left)[2]
        self.assertRegex(shown, left)
        bars = [len(bar) for bar in re.findall(r"\033\[32m(#*)\033", shown)]
        self.assertEqual(bars, sorted(bars))


if __name__ == "__main__":
    unittest.main()
