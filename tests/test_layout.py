#!/usr/bin/env python3
"""Whether the header still says what an earlier version of it said, as "How this interface grows" promises: test_layout.py
EARLIER LATER COMPILER..., with the folders of the two headers. Every member keeps its place and kind, every struct that
callers fill its size, every enumerator its number, and every function its type. What is new is nobody's concern."""
import pathlib
import re
import subprocess
import sys
import tempfile

earlier, later, *compiler = sys.argv[1:]

PROGRAM = """#include <copes/copes.h>
#include <stdio.h>
#define KIND(value) _Generic((value), double: "double", float: "float", int32_t: "int32", uint32_t: "enum", int64_t: "int64", \\
    uint64_t: "uint64", int32_t *: "int32s", int64_t *: "int64s", DLTensor *: "tensor", void *: "pointer", \\
    const char *: "text", default: "other")
#define MEMBER(type, name) printf(#type "." #name " is at %%zu, %%zu bytes, %%s\\n", offsetof(type, name), \\
    sizeof ((type *)0)->name, KIND(((type *)0)->name))
int main(void)
{
%s
    return 0;
}
"""


def plain(folder):
    """The header without comments and preprocessing."""
    text = pathlib.Path(folder, "copes", "copes.h").read_text(encoding="utf-8")
    return re.sub(r"/\*.*?\*/|^#.*?[^\\]$", "", text, flags=re.S | re.M)


def structs(text):
    """(name, names of members), those of unions and structs without a name among them."""
    for body, name in re.findall(r"typedef (?:struct|union) \w+ (\{(?:[^{}]|\{[^{}]*\})*\}) (\w+);", text):
        declarations = re.sub(r"\w* *(?:union|struct) \{|[{}]", ";", body).split(";")
        members = [re.sub(r"\[.*", "", part).strip(" *\n").split()[-1].lstrip("*")
                   for declaration in declarations for part in declaration.split(",") if part.strip()]
        yield name, [member for member in members if not member.startswith("reserved")]


def enumerators(text):
    for body in re.findall(r"enum (?:\w+ )?\{([^}]*)\}", text):
        yield from re.findall(r"^\s*(\w+)|,\s*(\w+)", body)


def functions(text):
    """(name, its type)"""
    for declaration in re.findall(r"COPES_API ([^;]*);", text):
        name = re.search(r"(\w+)\(", declaration).group(1)
        yield name, declaration.replace(name + "(", "(", 1)


def statements(text):
    for name, members in structs(text):
        yield from (f"MEMBER({name}, {member});" for member in members)
        if not name.endswith("_info"):
            yield f'printf("{name} has %zu bytes\\n", sizeof({name}));'
    for name in (first or second for first, second in enumerators(text)):
        yield f'printf("{name} is %d\\n", (int){name});'
    for name, kind in functions(text):
        kind = " ".join(kind.split())
        yield f'printf("{name} is {kind}: %d\\n", __builtin_types_compatible_p(__typeof__({name}), {kind}));'


def say(program, folder):
    with tempfile.TemporaryDirectory() as scratch:
        source, binary = pathlib.Path(scratch, "layout.c"), pathlib.Path(scratch, "layout")
        source.write_text(program)
        built = subprocess.run([*compiler, "-std=gnu11", "-I", folder, source, "-o", binary], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        if built.returncode != 0:
            sys.exit(f"what {earlier} has, {folder} has not:\n{built.stdout}")
        return subprocess.run([binary], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


lines = list(statements(plain(earlier)))
before, after = (say(PROGRAM % "\n".join("    " + line for line in lines), folder) for folder in (earlier, later))
assert len(before) == len(lines) > 100 and not any(line.endswith(": 0") for line in before), before
changed = [f"{old}; now {new.split(' ', 1)[1]}" for old, new in zip(before, after) if old != new]
print(*changed or [f"{len(lines)} facts hold"], sep="\n")
sys.exit(len(changed) > 0)
