#!/usr/bin/env bash
# Makes what a tag ships, tests each part where nothing else is installed, and writes the sums: docs/releasing.md.
set -euo pipefail
exec </dev/null

usage() {
    cat <<'END'
usage: tools/release.sh [--out FOLDER] [--parts PART,...] [--cuda-archs ARCH,...] [--twice] [COMMIT]
       tools/release.sh --checklist VERSION

Makes the artifacts of COMMIT (default HEAD) in FOLDER (default build-release-artifacts) from a clone of its own.

  --parts        of these, in this order (default source,wheel):
                   source         sdist, tarball, Meson wrap, SBOM
                   wheel          the x86-64 wheel for the CPU
                   wheel-aarch64  the same for aarch64, cross-compiled
                   wheel-cuda     the x86-64 wheel with the CUDA backend (needs nvcc; takes long)
                   gpu-test       what tests that wheel, tvm-ffi and Hugging Face's kernels on a machine with a GPU (needs wheel-cuda)
                   debian         Debian packages, from the tarball (needs source and root)
  --cuda-archs   compiles wheel-cuda and gpu-test for these GPUs alone, such as 90 (default all)
  --twice        makes them again in another folder, without a compiler cache, and fails where a byte differs
  --checklist    says what is missing before VERSION can be tagged, and fails if anything is

Needs Debian or Ubuntu on x86-64 with git and Python 3.10 or newer; apt-get and pip install the rest.
END
}

die() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }

say() { printf '== %s\n' "$*"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build-release-artifacts parts=source,wheel cuda_archs=all commit=HEAD twice=0

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        --out | --parts | --cuda-archs) [ $# -gt 1 ] || die "$1 lacks its value" ;;&
        --out) out=$(realpath -m "$2"); shift 2 ;;
        --parts) parts=$2; shift 2 ;;
        --cuda-archs) cuda_archs=$2; shift 2 ;;
        --twice) twice=1; shift ;;
        --help | -h) usage; exit ;;
        --checklist)
            [ $# = 2 ] || die 'usage: tools/release.sh --checklist VERSION'
            exec "$root/tools/release/checklist.sh" "$2"
            ;;
        -*) die "$1 is no option; --help lists them" ;;
        *) commit=$1; shift ;;
        esac
    done
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# need PACKAGE...: installs those Debian packages that are missing.
need() {
    local status
    status=$(dpkg-query -W -f='${db:Status-Status} ' "$@" 2>/dev/null) && [[ ! $status =~ not-installed|config-files ]] && return
    as_root apt-get update -q >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >/dev/null
}

# environment FOLDER PIP-ARGUMENT...: a new virtual environment.
environment() {
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}

# make_parts FOLDER OUT: everything from a clone in FOLDER. The parts are functions make_PART of tools/release/*.sh, and know
# `source`, the clone, `made`, where results go, `version` and `work`.
make_parts() {
    work=$1 made=$2 source=$1/copes
    mkdir -p "$work" "$made"
    git clone -q "$root" "$source"
    git -C "$source" -c advice.detachedHead=false checkout -q "$hash"
    version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$source/meson.build")
    local part begin
    for part in ${parts//,/ }; do
        begin=$SECONDS
        "make_${part//-/_}"
        say "$part: $((SECONDS - begin)) s"
    done
    (cd "$made" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
}

parse "$@"
for part in ${parts//,/ }; do
    [[ $part =~ ^(source|wheel|wheel-aarch64|wheel-cuda|gpu-test|debian)$ ]] || die "--parts: $part is no part; --help lists them"
done
hash=$(git -C "$root" rev-parse --verify --quiet "$commit^{commit}") || die "$commit is no commit"
[ ! -e "$out" ] || [ -z "$(ls -A "$out")" ] || die "$out has files: name another folder by --out"
for file in source wheel gpu debian; do
    . "$root/tools/release/$file.sh"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
umask 022
# Not LC_ALL, by which a compiler cache tells its entries apart.
export LC_COLLATE=C TZ=UTC SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git -C "$root" show -s --format=%ct "$hash")
need gcc make pkgconf python3-dev python3-venv xz-utils
# Their versions are those of the checkout that runs, not of the commit.
environment "$scratch/tools" -r "$root/tools/release/requirements.txt"
PATH=$scratch/tools/bin:$PATH
make_parts "$scratch/first" "$out"
if [ "$twice" = 1 ]; then
    CCACHE_DISABLE=1 make_parts "$scratch/and/again" "$scratch/out"
    diff -r "$out" "$scratch/out" || die 'two builds of one commit differ'
    say 'made twice: the same bytes'
fi
cat "$out/SHA256SUMS"
