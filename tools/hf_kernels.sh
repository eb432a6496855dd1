#!/usr/bin/env bash
# The Python package in the layout that Hugging Face's package kernels loads.
set -euo pipefail

usage() {
    cat <<'END'
usage: tools/hf_kernels.sh --out FOLDER [--cuda VERSION] [MESON-OPTION...]

  --out FOLDER    writes FOLDER/build/VARIANT, anew where it is there; other variants in FOLDER stay
  --cuda VERSION  builds the CUDA backend too, for PyTorch's builds for this version of CUDA and later minor ones, such as 12.8;
                  else the CPU's variant
  MESON-OPTION    such as -Dcuda-archs=90 or -Dcpu-isa=baseline

Needs pip, and what pip needs to build the package (docs/python.md). kernels.get_local_kernel(FOLDER) loads the result.
END
}

die() {
    printf 'hf_kernels.sh: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out='' cuda='' options=()
while [ $# -gt 0 ]; do
    case $1 in
    --out | --cuda)
        [ $# -gt 1 ] || die "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    -D*) options+=("$1") ;;
    -h | --help)
        usage
        exit
        ;;
    *) die "$1 is no option; --help lists them" ;;
    esac
    shift
done
[ -n "$out" ] || die 'which folder? --out FOLDER'
[ -z "$cuda" ] || [[ $cuda =~ ^[0-9]+\.[0-9]+$ ]] || die "--cuda is $cuda; it must be MAJOR.MINOR, such as 12.8"

# The package uses no C++ of PyTorch's: one build serves every PyTorch from 2.10 on.
if [ -n "$cuda" ]; then
    backend=cuda build=cu${cuda/./} feature=enabled options=(-Dcuda-archs=all "${options[@]}")
else
    backend=cpu build=cpu feature=disabled
fi
variant=torch-stable-abi210-$build-$(uname -m)-linux

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without the command, whose files need another library. In a folder beside other builds, for a compiler cache to serve all.
rm -rf "$root/build-hf"
options=(-Dtools=disabled -Dbench=disabled "-Dcuda=$feature" "${options[@]}")
python3 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work" --config-settings=build-dir="$root/build-hf" \
    "${options[@]/#/--config-settings=setup-args=}" "$root"
python3 -m zipfile -e "$work"/copes-*.whl "$work/wheel"
[ -f "$work/wheel/copes/_copes.abi3.so" ] || die 'the build has no stable ABI: there is no copes/_copes.abi3.so in the wheel'

# PyTorch has a libgomp.so.1 of its own, and loads it first; the others are the C library's and the compiler's.
needed=$(readelf -d "$work/wheel/copes/_copes.abi3.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
    case $library in
    libgomp.so.1 | libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux-*.so.* | \
        libstdc++.so.6 | libgcc_s.so.1) ;;
    *) die "the extension needs $library, which neither PyTorch nor the C library brings" ;;
    esac
done

# A package has one identity in a process: that of its content, so that versions go side by side.
digest=$(cd "$work/wheel/copes" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-16)
target=$out/build/$variant
rm -rf "$target"
mkdir -p "$target"
mv "$work/wheel/copes" "$target/copes"
cat >"$target/metadata.json" <<END
{
  "id": "copes_${build}_$digest",
  "name": "copes",
  "version": 0,
  "license": "MIT",
  "python-depends": [],
  "backend": {"type": "$backend"}
}
END
echo "$target"
