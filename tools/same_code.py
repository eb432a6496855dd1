#!/usr/bin/env python3
"""Compares the machine code of GPU kernels in two build folders: tools/same_code.py BEFORE AFTER

For work that is to move no instruction. Kernels are told apart by what they are made of, not by name or file: their
instructions with encodings, and for CUDA their registers, stack and shared memory. Prints how many are the same, how
many are so but for the numbers of their registers, and names those of one side alone. Exits 1 if there are any. Takes cuobjdump for CUDA objects, llvm-objdump (or LLVM_OBJDUMP)
and clang-offload-bundler (or OFFLOAD_BUNDLER) for HIP's.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cuda_kernels(path):
    """Yields (name, code) of every kernel for every architecture in a CUDA object."""
    resources = {}
    architecture = name = None
    for line in output_of("cuobjdump", "-res-usage", path).splitlines():
        if match := re.match(r"\s*arch = (\S+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            name = match[1]
        elif "REG:" in line:
            resources[architecture, name] = line.strip()
    name, code = None, []
    for line in output_of("cuobjdump", "-sass", path).splitlines():
        if match := re.match(r"\s*(arch = \S+|Function : (\S+))", line):
            if name and code:
                yield name, "\n".join([architecture, resources.get((architecture, name), ""), *code])
            name, code = match[2], []
            if match[2] is None:
                architecture = match[1].removeprefix("arch = ")
        elif name and line.strip() and ".headerflags" not in line:  # which name the front end's architecture
            code.append(" ".join(line.split()))  # columns are as wide as the longest line of a file
    if name and code:
        yield name, "\n".join([architecture, resources.get((architecture, name), ""), *code])


def hip_code_objects(path, folder):
    """The code objects, one for each architecture, that a HIP object carries."""
    bundler = os.environ.get("OFFLOAD_BUNDLER", "clang-offload-bundler")
    for target in output_of(bundler, "--list", "--type=o", f"--input={path}").split():
        if "amdgcn" in target:
            to = os.path.join(folder, re.sub(r"\W", "_", target))
            output_of(bundler, "--unbundle", "--type=o", f"--targets={target}", f"--input={path}", f"--output={to}")
            yield to


def hip_kernels(path):
    objdump = os.environ.get("LLVM_OBJDUMP", "llvm-objdump")
    with tempfile.TemporaryDirectory() as folder:
        for code_object in hip_code_objects(path, folder):
            name, code = None, []
            for line in output_of(objdump, "-d", code_object).splitlines():
                if match := re.match(r"[0-9a-f]+ <(.+)>:", line):
                    if name:
                        yield name, "\n".join(code)
                    name, code = match[1], []
                elif name and "//" in line:  # the instruction and its encoding, without its address
                    text, encoding = line.split("//")
                    code.append(re.sub(r"<[^>]*>", "", text).strip() + encoding.split(":", 1)[1])
            if name:
                yield name, "\n".join(code)


def without_registers(code):
    """The code with registers and predicates unnumbered, and so without encodings: ptxas may number them otherwise where
    nothing but the file of a kernel, or a name, is another."""
    return re.sub(r"\b(U?[RP])\d+", r"\1", re.sub(r"/\* 0x[0-9a-f]+ \*/", "", code))


def kernels_of(folder):
    found = collections.defaultdict(list)
    for path in sorted(pathlib.Path(folder, "backends").rglob("*.o")):
        kernels = {".cuda": cuda_kernels, ".hip": hip_kernels}.get(path.with_suffix("").suffix)
        for name, code in kernels(str(path)) if kernels else ():
            found[code].append(name)
    return found


def take_out(left, right, form):
    """Takes the kernels out of both whose code is the same in that form, and returns how many they are."""
    forms = collections.defaultdict(list)
    for code in right:
        forms[form(code)].append(code)
    same = 0
    for code in list(left):
        for twin in forms[form(code)]:
            count = min(len(left[code]), len(right[twin]))
            del left[code][:count], right[twin][:count]
            same += count
    return same


def main(before, after):
    left, right = kernels_of(before), kernels_of(after)
    same = take_out(left, right, lambda code: code)
    renumbered = take_out(left, right, without_registers)
    alone = 0
    for label, kernels in (("before", left), ("after", right)):
        for name in sorted(name for names in kernels.values() for name in names):
            alone += 1
            print(f"only {label}: {name}")
    print(f"{same} kernels are the same, {renumbered} but for the numbers of registers, {alone} are of one side alone")
    return alone > 0 or same + renumbered == 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
