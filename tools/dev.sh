#!/usr/bin/env bash
# The two commands of the README: each sets up what it needs and does its job, from a bare Debian or Ubuntu with git.
set -euo pipefail

usage() {
    cat <<'END'
usage: tools/dev.sh run | test | help

  run   builds a release in build-release/, writes a sample safetensors file, runs lrpe_rotate with silu on it,
        checks the result against the oracle and prints a quick benchmark
  test  builds everything in build-test/ and runs the whole test suite, then installs the Python package in a virtual
        environment in build-python/ and runs its tests there

What is missing is installed with apt-get, through sudo where that is needed; on other systems its names are printed.
END
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '== %s\n' "$*"; }

die() {
    printf 'dev.sh: %s\n' "$*" >&2
    exit 1
}

has_header() { echo "#include <$1>" | cc -E - >/dev/null 2>&1; }

# Of Python 3.10 and newer; the package is not built with an older one.
has_python_headers() {
    python3 -c 'import os, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(sys.version_info >= (3, 10) and not os.path.exists(header))'
}

has_meson() {
    local version
    version=$(meson --version 2>/dev/null) || return 1
    [ "${version%%.*}" -ge 1 ]
}

# need PACKAGE TEST...: notes the Debian package where the test fails.
missing=()
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

list_missing() {
    missing=()
    need gcc command -v cc
    need libc6-dev has_header stdlib.h
    need meson has_meson
    need ninja-build command -v ninja
    need pkg-config command -v pkg-config
    need libcjson-dev pkg-config --exists libcjson
    need libdlpack-dev has_header dlpack/dlpack.h
    [ "$1" = test ] || return 0
    need g++ command -v c++
    need cmake command -v cmake
    need make command -v make
    need check pkg-config --exists check
    need binutils command -v nm
    need python3-dev has_python_headers
    need python3-venv python3 -c 'import ensurepip, venv'
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "not root and no sudo: as root, run apt-get install ${missing[*]}"
    fi
}

# Ubuntu before 24.04 has a Meson that is too old: one from pip, in a folder of its own, stands in for it.
fetch_meson() {
    local packages=()
    python3 -m venv --help >/dev/null 2>&1 && python3 -c 'import ensurepip' 2>/dev/null || packages=(python3-venv)
    [ ${#packages[@]} -eq 0 ] || as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        "${packages[@]}" </dev/null
    say "Meson $(meson --version) is older than 1.0: installing a newer one in $root/build-meson"
    python3 -m venv "$root/build-meson"
    "$root/build-meson/bin/pip" install --quiet 'meson>=1.0'
}

install_missing() {
    PATH=$root/build-meson/bin:$PATH
    list_missing "$1"
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null || die "please install what Debian calls: ${missing[*]} (Meson must be 1.0 or newer)"
    say "installing ${missing[*]}"
    as_root apt-get update -q </dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" </dev/null ||
        die "apt-get could not install ${missing[*]} (on Ubuntu they need the universe component)"
    hash -r
    has_meson || fetch_meson
    list_missing "$1"
    [ ${#missing[@]} -eq 0 ] || die "still missing after apt-get install: ${missing[*]}"
}

# The CUDA backend is built where there is a GPU, and then for that alone.
gpu_option() {
    if command -v nvcc >/dev/null && nvidia-smi >/dev/null 2>&1; then
        echo -Dcuda=enabled
    else
        echo -Dcuda=disabled
    fi
}

# build FOLDER OPTION...
build() {
    local folder=$root/$1
    shift
    say "building in $folder"
    [ -f "$folder/build.ninja" ] || meson setup "$folder" "$root" "$(gpu_option)" "$@"
    ninja -C "$folder"
}

run() {
    install_missing run
    build build-release --buildtype=release -Dtools=enabled -Dbench=enabled
    local copes=$root/build-release/tools/copes x=$root/build-release/x.safetensors o=$root/build-release/o.safetensors
    say "copes sample $x"
    "$copes" sample "$x"
    say "copes run lrpe_rotate --act silu --in $x --out $o"
    "$copes" run lrpe_rotate --act silu --in "$x" --out "$o"
    "$root/build-release/tools/check_file" "$x" "$o"
    say "copes bench --quick"
    "$copes" bench --quick
}

run_suite() { meson test -C "$root/build-test" --print-errorlogs | tee "$1"; }

# The package, built from the checkout into the environment. Fails where a part of it cannot be had. It is compiled in a folder
# beside build-test, so that a compiler cache, which Meson uses where it finds one, serves both.
install_package() {
    local environment=$root/build-python/env
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { say 'Python is older than 3.10'; return 1; }
    [ -x "$environment/bin/pip" ] || python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --upgrade pip || return 1
    "$environment/bin/pip" install --quiet meson-python 'meson>=1.3' ninja "${COPES_TORCH:-torch==2.13.0}" numpy ml_dtypes \
        expecttest hypothesis matplotlib mypy pytest pytest-xdist tqdm transformers==5.24.0 timm==1.0.31 \
        apache-tvm-ffi==0.1.15.post2 kernels==0.17.2 'onednn-cpu-gomp==2023.2.0; platform_machine == "x86_64"' || return 1
    # Before the package is built, which finds XLA's header in it.
    "$environment/bin/pip" install --quiet jax || say 'SKIPPED: the tests of copes.jax, as pip has no jax here'
    PATH=$environment/bin:$PATH "$environment/bin/pip" install --quiet --no-deps --no-build-isolation --force-reinstall \
        --config-settings=build-dir="$root/build-wheel" --config-settings=setup-args="$(gpu_option)" "$root" ||
        die 'the Python package does not build'
}

run_python() {
    say "building the Python package in $root/build-wheel, for $root/build-python/env"
    if install_package; then
        local workers
        workers=$(nproc)
        # Each worker has threads for every processor: they do not spin.
        (cd "$root" && COPES_LIBRARY=build-test/library/libcopes.so OMP_WAIT_POLICY=passive \
            build-python/env/bin/python -m pytest -q -n $((workers < 4 ? workers : 4)) python/tests) | tee "$1"
    else
        say "SKIPPED: the Python tests, as they need Python 3.10, ${COPES_TORCH:-torch==2.13.0} and what else pip names above"
        echo '1 skipped in 0s' >"$1"
    fi
}

# The closing line counts the programs of the suite, as `meson test` summed them up, and the tests of Python.
summarize() {
    awk -v status="$1" '
        /^(Ok|Expected Fail|Fail|Unexpected Pass|Skipped|Timeout):/ {
            count = $NF
            if ($1 == "Ok:" || $1 == "Expected") passed += count
            else if ($1 == "Skipped:") skipped += count
            else failed += count
        }
        / in [0-9.]+s/ {
            for (i = 1; i < NF; i++) {
                if ($(i + 1) ~ /^(passed|xfailed)/) passed += $i
                else if ($(i + 1) ~ /^(failed|error|xpassed)/) failed += $i
                else if ($(i + 1) ~ /^skipped/) skipped += $i
            }
        }
        END {
            if (status != 0 && failed == 0) failed = 1
            printf "%d passed, %d failed", passed, failed
            if (skipped) printf ", %d skipped", skipped
            printf "\n"
            exit failed > 0 || passed == 0
        }' "${@:2}"
}

case ${1-help} in
run) run ;;
test)
    install_missing test
    build build-test --buildtype=release -Dtools=enabled -Dtests=enabled
    status=0
    run_suite "$root/build-test/summary.txt" || status=$?
    run_python "$root/build-test/python.txt" || status=$?
    summarize "$status" "$root/build-test/summary.txt" "$root/build-test/python.txt"
    ;;
help | -h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
