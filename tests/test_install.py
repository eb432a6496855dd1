#!/usr/bin/env python3
"""Installs the build into a folder, then builds and runs tests/consumers against that copy, as its users would:
test_install.py MESON SOURCE BUILD PREFIX CC KIND, with KIND pkg-config, cmake, subproject, exports or readme."""
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
meson, source, build, prefix, cc, kind = sys.argv[1:]
consumers = pathlib.Path(source, 'tests', 'consumers')


def run(*words, **options):
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if result.returncode != 0:
        sys.exit(f'{" ".join(map(str, words))} exited {result.returncode}:\n{result.stdout}')
    return result.stdout


def expected():
    """What example.c prints, from the definition."""
    x = [i / 8 - 1 for i in range(16)]
    y = [v / (1 + math.exp(-v)) for v in x]
    o = []
    for head in (y[:8], y[8:]):
        angles = [4096 * 10000 ** (-2 * i / 8) for i in range(4)]
        o += [head[i] * math.cos(p) - head[i + 4] * math.sin(p) for i, p in enumerate(angles)]
        o += [head[i] * math.sin(p) + head[i + 4] * math.cos(p) for i, p in enumerate(angles)]
    return o


def expect_output(program, library_folder=None):
    environment = dict(os.environ)
    if library_folder is not None:
        environment['LD_LIBRARY_PATH'] = str(library_folder)
    got = [float(line) for line in run(program, env=environment).split()]
    # theta is rounded to float32 in the example: at position 4096 that is up to 1e-4 radians.
    assert len(got) == 16 and max(abs(a - b) for a, b in zip(got, expected())) < 5e-4, (got, expected())


def install(folder):
    """The installed prefix, and its folder of libraries."""
    run(meson, 'install', '-C', build, '--no-rebuild', '--destdir', folder)
    root = pathlib.Path(str(folder) + prefix)
    return root, next(root.rglob('libcopes.so')).parent


def expect_static(program):
    assert 'libcopes' not in run('ldd', program), f'{program} is not linked with the static library'


def try_pkg_config(folder):
    root, libraries = install(folder / 'installed')
    shutil.copytree(consumers, folder / 'consumers')
    here = folder / 'consumers' / 'pkg-config'
    environment = dict(os.environ, PKG_CONFIG_PATH=str(libraries / 'pkgconfig'), CC=cc,
                       PKG_CONFIG_FLAGS=f'--define-variable=prefix={root}')
    run('make', '-e', '-C', here, env=environment)
    expect_output(here / 'example', libraries)
    expect_output(here / 'example_static')
    expect_static(here / 'example_static')


def try_cmake(folder):
    root, libraries = install(folder / 'installed')
    run('cmake', '-S', consumers / 'cmake', '-B', folder / 'build', f'-DCMAKE_PREFIX_PATH={root}',
        f'-DCMAKE_C_COMPILER={cc}', f'-Dcopes_DIR={libraries / "cmake" / "copes"}')
    run('cmake', '--build', folder / 'build')
    expect_output(folder / 'build' / 'example', libraries)
    expect_output(folder / 'build' / 'example_static')
    expect_static(folder / 'build' / 'example_static')


def try_subproject(folder):
    shutil.copytree(consumers / 'subproject', folder / 'example')
    shutil.copy(consumers / 'example.c', folder / 'example')
    (folder / 'example' / 'subprojects').mkdir()
    (folder / 'example' / 'subprojects' / 'copes').symlink_to(source)
    run(meson, 'setup', folder / 'build', folder / 'example', '--buildtype=debug', '-Dcopes:cuda=disabled',
        '-Dcopes:cpu-isa=baseline', env=dict(os.environ, CC=cc))
    run('ninja', '-C', folder / 'build', 'example')
    expect_output(folder / 'build' / 'example')
    assert not list((folder / 'build').rglob('test_act*')), 'a subproject builds no tests'


def try_exports(folder):
    """Only the header's names and, one for each kind, tvm-ffi's leave the shared library, and its soname has the version's
    series: 0.2, or 1 from 1.0 on."""
    library = install(folder)[1] / 'libcopes.so'
    names = [line.split()[-1].split('@')[0] for line in run('nm', '-D', '--defined-only', library).splitlines()]
    header = pathlib.Path(source, 'include', 'copes', 'copes.h').read_text()
    declared = {part.split('(')[0].split()[-1].lstrip('*') for part in header.split('COPES_API')[1:] if '(' in part}
    declared = {name for name in declared if name.startswith('copes_')}
    assert declared
    kinds = re.findall(r'COPES_(\w+)', header.split('typedef enum copes_kind {')[1].split('}')[0])
    declared |= {f'__tvm_ffi_{name}' for name in ['workspace_size', *map(str.lower, kinds)]}
    assert set(names) == declared, set(names) ^ declared
    major, minor = (re.search(rf'COPES_VERSION_{part} (\d+)', header).group(1) for part in ('MAJOR', 'MINOR'))
    series = f'0.{minor}' if major == '0' else major
    assert f'libcopes.so.{series}]' in run('readelf', '-d', library)


def try_readme(_):
    """The README's C code is the example that the other tests compile."""
    readme = pathlib.Path(source, 'README.md').read_text()
    assert readme.split('```c\n')[1].split('```')[0] == (consumers / 'example.c').read_text()


NEEDS = {'pkg-config': ['make', 'pkg-config', 'ldd'], 'cmake': ['cmake', 'ldd'], 'exports': ['nm', 'readelf']}
lacking = [name for name in NEEDS.get(kind, []) if shutil.which(name) is None]
if lacking:
    print('not found:', *lacking)
    sys.exit(SKIPPED)
with tempfile.TemporaryDirectory() as scratch:
    {'pkg-config': try_pkg_config, 'cmake': try_cmake, 'subproject': try_subproject, 'exports': try_exports,
     'readme': try_readme}[kind](pathlib.Path(scratch))
