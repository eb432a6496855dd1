#!/usr/bin/env python3
"""Writes the seed corpus of the safetensors fuzz target: small files, good and bad, beside this script."""
import json
import pathlib
import struct

folder = pathlib.Path(__file__).parent / "safetensors"


def file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


f32 = entry("F32", [1], 0, 4)
seeds = {
    "empty": b"",
    "short": b"\x01\0\0",
    "no-tensors": file({}),
    "padded": file(b"{}      "),
    "scalar": file({"a": entry("F32", [], 0, 4)}, b"abcd"),
    "no-elements": file({"a": entry("I64", [3, 0], 0, 0)}),
    "metadata": file({"__metadata__": {"format": "pt"}, "x": entry("BF16", [2, 3], 0, 12)}, bytes(12)),
    "every-dtype": file({"a": entry("F64", [1], 0, 8), "b": entry("F32", [1], 8, 12), "c": entry("I32", [1], 12, 16),
                         "d": entry("F16", [1], 16, 18), "e": entry("BF16", [1], 18, 20),
                         "f": entry("I64", [1], 20, 28), "g": entry("F8_E4M3", [3], 28, 31), "h": entry("U8", [1], 31, 32)},
                        bytes(range(32))),
    "escapes": file({"\u00e9\"\\\n\U0001f600/": f32}, b"abcd"),
    "cut-off": file({"a": f32}, b"abcd", 1000),
    "huge-length": file({}, length=2**64 - 1),
    "list": file(b"[]"),
    "trailing": file(b"{} {}"),
    "nul": file(b'{"a\\u0000":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', b"abcd"),
    "deep": file(b'{"a":' + b"[" * 1200),
    "twice": file(b'{"a":%s,"a":%s}' % ((json.dumps(f32).encode(),) * 2), b"abcd"),
    "overlap": file({"a": f32, "b": entry("F32", [1], 2, 6)}, b"abcdef"),
    "hole": file({"a": f32, "b": entry("F32", [1], 6, 10)}, b"abcdefghij"),
    "reversed": file({"a": entry("F32", [1], 4, 0)}, b"abcd"),
    "past-the-end": file({"a": entry("F32", [2], 0, 8)}, b"abcd"),
    "wrong-size": file({"a": entry("F32", [2], 0, 4)}, b"abcd"),
    "overflow": file({"a": entry("F64", [2**52, 2**52], 0, 4)}, b"abcd"),
    "rounded": file({"a": entry("F32", [2**53 + 1], 0, 4)}, b"abcd"),
    "negative": file({"a": entry("F32", [-1], 0, 4)}, b"abcd"),
    "rank-9": file({"a": entry("F32", [1] * 9, 0, 4)}, b"abcd"),
    "unknown-dtype": file({"a": entry("F8_E4M3", [4], 0, 4)}, b"abcd"),
}
folder.mkdir(exist_ok=True)
for name, content in seeds.items():
    (folder / name).write_bytes(content)
