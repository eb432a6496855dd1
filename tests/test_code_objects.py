#!/usr/bin/env python3
"""What the HIP compiler made of the kernels, for every architecture in the objects named.

test_code_objects.py --readelf R --objdump D --archs A,... --kernels FILE... --objects OBJECT... [--cuda-objects OBJECT...]

Fails on a kernel that spills registers or has scratch memory, on one that is declared in a source (FILE) or compiled for CUDA
and missing for an architecture, on a main kernel without 16-byte loads and stores of global memory, and on a file beside the
sources that asks which vendor's compiler it is. Prints the counts as tables in Markdown; docs/amd.md quotes them.
"""
import argparse
import os.path
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
NO_MORE_THAN_0 = ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")

# The kernels that memory binds, in their instances for whole vectors, and whether they store vectors too.
VECTORS = {
    r"act_line<": True,
    r"act_mask_line<": True,
    r"act_mask_strided<.*, [48]>": True,
    r"act_strided<.*, [48]>": True,
    r"softmax_(lanes|parts)<.*, 1>": False,  # the first pass alone, which writes a number a row
    r"softmax_(lanes|held|parts)<": True,
    r"lrpe_batch<": True,
    r"lrpe_gradients<": True,
    r"lrpe_tokens<": True,
    r"sequence_columns<.*, [48], .*, 1>": False,  # the first pass alone, which writes a number a column
    r"sequence_columns<.*, [48], ": True,
    r"tpa_(fma|parts)<.*, [48]>": False,
}
BOUNDS = r"(?:__launch_bounds__|LAUNCH_BOUNDS|MOST_REGISTERS)\((?:[^()]|\([^()]*\))*\)\s+"  # which may have parentheses inside
LOAD = re.compile(r"\b(global|flat|buffer)_load_(dwordx4|b128)\b")
STORE = re.compile(r"\b(global|flat|buffer)_store_(dwordx4|b128)\b")
VENDOR = re.compile(r"__HIP|__CUDA|COPES_HIP")


def output(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def code_objects(path):
    """Architecture and bytes of every code object in an object file."""
    data = pathlib.Path(path).read_bytes()
    for found in re.finditer(MAGIC, data):
        begin = found.start()
        (count,) = struct.unpack_from("<Q", data, begin + len(MAGIC))
        at = begin + len(MAGIC) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            target = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if size > 0 and "amdgcn" in target:
                yield target.rsplit("-", 1)[1], data[begin + offset : begin + offset + size]


def metadata(readelf, path):
    """Of each kernel, the numbers that its notes give it."""
    kernels, current = {}, {}
    for line in output(readelf, "--notes", path).splitlines():
        if re.match(r"  - \.", line):
            current = {}
        field = re.match(r"  (?:- |  )\.(\w+): +(\S+)$", line)
        if field:
            current[field[1]] = field[2]
            if field[1] == "symbol":
                kernels[field[2].removesuffix(".kd")] = current
    return kernels


def wide_accesses(objdump, path):
    """Of each function, whether it has 16-byte loads, and stores."""
    found, name = {}, ""
    for line in output(objdump, "-d", "--no-show-raw-insn", path).splitlines():
        start = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if start:
            name = start[1]
            found[name] = [False, False]
        elif name:
            found[name][0] |= LOAD.search(line) is not None
            found[name][1] |= STORE.search(line) is not None
    return found


def plain_name(demangled):
    """A kernel without namespaces, enumerations and its arguments: act_line<float, 0, false>."""
    name = re.sub(r"\([\w:]+\)(?=\d)", "", demangled.removeprefix("void "))
    return re.sub(r"\((?!anonymous).*$", "", re.sub(r"\b(?:\w+::)+", "", name))


def plain_names(mangled):
    return dict(zip(mangled, map(plain_name, output("c++filt", text="\n".join(mangled)).splitlines())))


def declared(sources):
    text = "\n".join(pathlib.Path(path).read_text(encoding="utf-8") for path in sources)
    return set(re.findall(rf"__global__ void\s+(?:{BOUNDS})?(\w+)\(", text))


def spills(numbers):
    return [f"a {field} of {numbers[field]}" for field in NO_MORE_THAN_0 if int(numbers[field]) > 0]


def lacks_wide(name, accesses):
    """None where the kernel need not have 16-byte accesses, else what it lacks of them."""
    for pattern, stores in VECTORS.items():
        if re.match(pattern, name):
            loads_wide, stores_wide = accesses
            return "" if loads_wide and (stores_wide or not stores) else "stores" if loads_wide else "loads"
    return None


def faults_of(arch, kernels, accesses, names):
    for mangled, numbers in kernels.items():
        for spill in spills(numbers):
            yield f"{arch}: {names[mangled]} has {spill}"
        if lack := lacks_wide(names[mangled], accesses[mangled]):
            yield f"{arch}: {names[mangled]} lacks 16-byte {lack}"


def row_of(arch, kernels, accesses, names):
    registers = [int(numbers["vgpr_count"]) for numbers in kernels.values()]
    lacks = [lacks_wide(names[mangled], accesses[mangled]) for mangled in kernels]
    wide = f"{lacks.count('')} of {len(lacks) - lacks.count(None)}"
    spilling = sum(len(spills(numbers)) > 0 for numbers in kernels.values())
    return f"| {arch} | {len(kernels)} | {min(registers)} to {max(registers)} | {spilling} | {wide} |"


TABLE = """\
| architecture | kernels | vector registers a lane | with spills or scratch memory | for whole vectors, with 16-byte accesses |
| --- | ---: | ---: | ---: | ---: |"""


def files_beside(sources):
    """Every file under the folder that has all of the sources, and which of them ask for a vendor."""
    files = [path for path in pathlib.Path(os.path.commonpath(sources)).rglob("*") if path.is_file()]
    return files, [path for path in files if VENDOR.search(path.read_text(encoding="utf-8"))]


def read_all(options):
    """Of each architecture, the kernels of all objects and their accesses."""
    kernels, accesses = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "code"
        for path in options.objects:
            for arch, code in code_objects(path):
                file.write_bytes(code)
                kernels.setdefault(arch, {}).update(metadata(options.readelf, file))
                accesses.setdefault(arch, {}).update(wide_accesses(options.objdump, file))
    return kernels, accesses


def counterpart(name):
    """HIP's name of a kernel of CUDA's: its units of sequence_columns are two vectors wide instead of one."""
    name = re.sub(r"^(sequence_columns<b?f16), 4,", r"\1, 8,", name)
    return re.sub(r"^(sequence_columns<float), 2,", r"\1, 4,", name)


def cuda_kernels(objects, families):
    """The instances that HIP must have, as CUDA's objects have them of the kernels both families share: those that they have
    stubs to launch."""
    stubs = set()
    for path in objects:
        for length, name in re.findall(r"ZL(\d+)__device_stub_(\w+)", output("nm", path)):
            stubs.add(name[: int(length) - len("__device_stub_")])
    return {counterpart(name) for name in plain_names(sorted(stubs)).values() if name.split("<")[0] in families}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--objdump", required=True)
    parser.add_argument("--archs", required=True, help="comma-separated")
    parser.add_argument("--kernels", nargs="+", required=True)
    parser.add_argument("--objects", nargs="+", required=True)
    parser.add_argument("--cuda-objects", nargs="*", default=[])
    options = parser.parse_args()
    families = declared(options.kernels)
    wanted = cuda_kernels(options.cuda_objects, families)
    kernels, accesses = read_all(options)
    faults = []
    if set(kernels) != set(options.archs.split(",")):
        faults.append(f"code for {sorted(kernels)}, not {options.archs}")
    files, vendors = files_beside(options.kernels)
    faults += [f"{path} asks for a vendor" for path in vendors]
    print(TABLE)
    every = {name for found in kernels.values() for name in plain_names(list(found)).values()}
    for arch, found in kernels.items():
        names = plain_names(list(found))
        have = set(names.values())
        faults += faults_of(arch, found, accesses[arch], names)
        faults += [f"{arch}: no {name}" for name in sorted((every | wanted) - have)]
        faults += [f"{arch}: no kernel {name}" for name in sorted(families - {name.split("<")[0] for name in have})]
        faults += [f"{arch}: nothing is like {p}" for p in VECTORS if not any(re.match(p, name) for name in have)]
        print(row_of(arch, found, accesses[arch], names))
    print(f"\n{len(wanted)} of CUDA's kernels to compare with")
    print(f"{len(files)} files of both families, {len(vendors)} of them ask for a vendor")
    print("\n".join(faults))
    return len(faults) > 0


if __name__ == "__main__":
    sys.exit(main())
