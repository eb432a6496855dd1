#!/usr/bin/env python3
"""Runs kernels of gfx1100 for fake_hip.c, on tinygrad's emulator of RDNA3's instructions.

emulate.py --tinygrad FOLDER --runner FILE --socket PATH --arena PATH --ready PATH [--ulps N] [--order N] [--log]

FOLDER is a checkout that patch_tinygrad.sh has been run on, FILE is run_grid.c and arithmetic.c as a shared library. One process
that loaded fake_hip.c shares the arena, which is the GPU's memory, and sends what to do through the socket. It may do so once there
is a word in the file --ready; when it ends, this one writes what ran, and ends too, by 1 if a launch failed. --ulps: how far
approximate instructions are off. --order: of a block's waves, 0 one after the other, 1 backwards, 2 by lot with changes after a few
instructions.
"""

import argparse
import collections
import ctypes
import os
import pathlib
import re
import socket
import struct
import sys
import traceback

import code_object

BASE, SIZE = 0x100000000000, 1 << 31  # of the GPU's memory, as in fake_hip.c
SHARED_AT_FREE_PLACE = 0x100001  # MAP_SHARED | MAP_FIXED_NOREPLACE
NO_ACCESS, READ_WRITE = 0, 3
FAILED = 9


def read_arguments():
    parser = argparse.ArgumentParser()
    for name in ("tinygrad", "runner", "socket", "arena", "ready"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--ulps", type=int, default=1)
    parser.add_argument("--order", type=int, choices=(0, 1, 2), default=2)
    parser.add_argument("--log", action="store_true", help="write every launch")
    return parser.parse_args()


def load_runner(path, ulps):
    run = ctypes.CDLL(path)
    run.get_executed.restype = run.get_fault_address.restype = run.get_fault_pc.restype = ctypes.c_uint64
    run.set_ulps(ulps)
    return run


def map_arena(path):
    """Nothing of it may be touched until it is allocated."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, SIZE)
    if code_object.libc.mmap(BASE, SIZE, NO_ACCESS, SHARED_AT_FREE_PLACE, file, 0) != BASE:
        raise OSError("the place of the GPU's memory is taken")


def plain_name(mangled):
    """The function that a kernel is an instance of: the last of its nested names, each behind its length."""
    found = re.match(r"_ZN\d+copes_hip", mangled)
    at, name = found.end() if found else 0, mangled
    while found and (length := re.match(r"\d+", mangled[at:])):
        at += length.end() + int(length[0])
        name = mangled[at - int(length[0]) : at]
    return name


class Client:
    """What the other process asks for, until it closes the socket."""

    def __init__(self, link, run, translate, given):
        self.link, self.run, self.translate, self.given = link, run, translate, given
        self.images, self.of_bundle = {}, {}
        self.launches, self.failed = collections.Counter(), 0

    def take(self, count):
        data = bytearray()
        while len(data) < count:
            part = self.link.recv(min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def serve(self):
        answers = {"A": self.allow, "F": self.forbid, "I": self.take_image, "L": self.launch}
        try:
            while True:
                kind, first, second = struct.unpack("<QQQ", self.take(24))
                answers[chr(kind)](first, second)
        except EOFError:
            return

    def report(self):
        """Of each kernel's instances, how many ran: a table in Markdown, which docs/amd.md quotes."""
        kernels = collections.defaultdict(lambda: [0, 0, 0])
        for image in self.images.values():
            for name in image.kernels:
                counts = kernels[plain_name(name)]
                counts[0] += name in self.launches
                counts[1] += 1
                counts[2] += self.launches[name]
        print("| kernel | instances that ran | of | launches |\n| --- | ---: | ---: | ---: |")
        for name, (ran, count, launches) in sorted(kernels.items()):
            print(f"| `{name}` | {ran} | {count} | {launches} |")
        print(f"\n{self.run.get_executed():,} instructions of waves; {self.failed} launches failed")

    def allow(self, place, size):
        code_object.libc.mprotect(place, size, READ_WRITE)

    def forbid(self, place, size):
        code_object.libc.mprotect(place, size, NO_ACCESS)

    def take_image(self, bundle, size):
        data = self.take(size)
        if data not in self.images:
            self.images[data] = code_object.CodeObject(data, self.translate)
        self.of_bundle[bundle] = self.images[data]

    def launch(self, bundle, name_size):
        name, shape = self.take(name_size).decode(), struct.unpack("<7Q", self.take(56))
        image, values = self.of_bundle[bundle], []
        arguments = image.explicit_arguments(name)
        self.link.sendall(struct.pack("<Q", len(arguments)))
        for argument in arguments:
            self.link.sendall(struct.pack("<Q", argument[".size"]))
            values.append(self.take(argument[".size"]))
        before = self.run.get_executed()
        try:
            status = image.launch(self.run, name, shape, values, self.given.order)
        except Exception:  # is the other process's failure, and not the end of this one
            traceback.print_exc()
            status = FAILED
        self.launches[name] += 1
        if status != 0 or self.given.log:
            print(f"{name} {shape}: status {status}, {self.run.get_executed() - before} instructions", flush=True)
        if status != 0:
            self.failed += 1
            print(
                f"  at {self.run.get_fault_pc():#x} of the code, address {self.run.get_fault_address():#x}", flush=True
            )
        self.link.sendall(struct.pack("<Q", status))


def main():
    given = read_arguments()
    sys.path.insert(0, given.tinygrad)
    import instructions  # which imports tinygrad

    run = load_runner(given.runner, given.ulps)
    instructions.install(run)
    map_arena(given.arena)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(given.socket)
    listener.listen(1)
    pathlib.Path(given.ready).write_text("ready\n")
    link, _ = listener.accept()
    client = Client(link, run, instructions.translator(run), given)
    client.serve()
    client.report()
    return client.failed > 0


sys.exit(main())
