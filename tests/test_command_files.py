#!/usr/bin/env python3
"""The `copes` command's files: where results go and with which permissions, and which headers are JSON."""
import json
import os
import stat
import struct
import unittest

from command_case import CommandTest, copes
from command_reference import write


class Output(CommandTest):
    def setUp(self):
        super().setUp()
        write(self.input, x=self.tensor(2, 3))

    def permissions(self):
        return stat.S_IMODE(self.output.stat().st_mode)

    def test_links_are_followed(self):
        (self.folder / "there").mkdir()
        self.output.symlink_to("there/result")
        for _ in range(2):  # at first there is no file behind the link
            self.run_ok("act")
            self.assertTrue(self.output.is_symlink())
            self.assertEqual([p.name for p in (self.folder / "there").iterdir()], ["result"])
        self.output.unlink()
        self.output.symlink_to(self.output.name)
        self.refuse(1, f"{self.output}: Too many levels of symbolic links", "run", "act", "--in", self.input, "--out", self.output)

    def test_permissions_are_kept(self):
        self.run_ok("act")
        mask = os.umask(0)
        os.umask(mask)
        self.assertEqual(self.permissions(), 0o666 & ~mask)
        for mode in (0o600, 0o640, 0o666):
            self.output.chmod(mode)
            self.run_ok("act")
            self.assertEqual(self.permissions(), mode)

    def test_names_up_to_the_limit(self):
        for length in (240, 255):
            self.output = self.folder / ("n" * length)
            self.run_ok("act")
        self.output = self.folder / ("n" * 256)
        self.refuse(1, f"{self.output}: File name too long", "run", "act", "--in", self.input, "--out", self.output)

    def test_a_pipe_is_no_input(self):
        self.input = self.folder / "pipe"
        os.mkfifo(self.input)
        self.refuse(1, f"{self.input}: not a regular file", "run", "act", "--in", self.input, "--out", self.output)


def refuse(_):
    raise ValueError


def texts(value):
    """Every string of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from texts(part)


def is_json(header):
    """By Python's parser, which alone also takes NaN and Infinity, a NUL's escape, and half of a surrogate pair."""
    try:
        value = json.loads(header.decode(), parse_constant=refuse)
        return all("\0" not in text and text.encode() is not None for text in texts(value))
    except ValueError:
        return False


class Header(CommandTest):
    PIECES = [b'"', b"\\", b"/", b"[", b"]", b"{", b"}", b",", b":", b" ", b"\t", b"\n", b"\r", b"\f", b"\x00", b"\x1f", b"\x7f",
              b"0", b"1", b"9", b"-", b"+", b".", b"e", b"E", b"00", b"0.5", b"1e3", b"1E+09", b"-0", b"12345678901234567890",
              b"true", b"false", b"null", b"NaN", b"Infinity", b"\\u", b"\\u00e9", b"\\u0000", b"\\ud83d\\ude00", b"\\ud83d",
              b"\\ude00", b"\\n", b"\\x", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xf4\x8f\xbf\xbf", b"\xc3", b"\xa9",
              b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff"]

    def pieces(self, most):
        return b"".join(self.random.choices(self.PIECES, k=self.random.randint(1, most)))

    def fragment(self):
        """What may be a JSON value: most often a string, a number or a list of random pieces."""
        kind = self.random.randrange(4)
        if kind == 0:
            return b'"' + self.pieces(3) + b'"'
        if kind == 1:
            return b"".join(self.random.choices([b"-", b"0", b"1", b"9", b".", b"e", b"E", b"+"], k=self.random.randint(1, 5)))
        if kind == 2:
            return b"[" + self.pieces(1) + b"," + self.pieces(1) + b"]"
        return self.pieces(2)

    def test_headers_are_json_where_python_has_them(self):
        counts = {True: 0, False: 0}
        for _ in range(400):
            header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":' + self.fragment() + b"}}"
            self.input.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
            wanted = is_json(header)
            counts[wanted] += 1
            done = copes("run", "act", "--in", self.input, "--out", self.output)
            self.assertEqual(done.returncode == 0, wanted, (header, done.stderr))
        self.assertGreater(min(counts.values()), 60, counts)

    def test_names_of_any_language(self):
        for name in ("é", "名", "😀", "\x7f", "\U0010ffff", "a\nb\t"):
            header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                                 "x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, ensure_ascii=False).encode()
            self.input.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1, 2))
            self.assertEqual(self.run_ok("act")["o"].values, [2])


if __name__ == "__main__":
    unittest.main()
