#!/usr/bin/env bash
# Tests a release's CUDA artifacts on a machine with an NVIDIA GPU, whose Python has PyTorch and NumPy. It fetches nothing and
# changes nothing of that Python: what it installs goes to a folder of its own.
set -uo pipefail
exec </dev/null

usage() {
    cat <<'END'
usage: tools/release/gpu_test.sh [--python PYTHON] [--every N] [--out FOLDER] [ARTIFACTS]

  ARTIFACTS  a folder (default: artifacts/ of the archive that tools/release.sh --parts wheel-cuda,gpu-test makes) with
               copes_cuda*.whl  the wheel
               libcopes.so      the C library, for tvm-ffi
               build/           what tools/hf_kernels.sh --cuda wrote, for kernels
               packages/        wheels of Python's packages, of which those are used that PYTHON lacks
  --python   which Python (default python3)
  --every    copes check runs one case in N (default 10)
  --out      where the steps' whole output goes (default gpu-test-results)

The last line counts the steps. Without a GPU those that need one are skipped, and the others run on the CPU.
END
}

die() { printf 'gpu_test.sh: %s\n' "$*" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
artifacts=$root/artifacts python=python3 every=10 out=gpu-test-results
while [ $# -gt 0 ]; do
    case $1 in
    --python | --every | --out)
        [ $# -gt 1 ] || die "$1 lacks its value"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    --help | -h) usage; exit ;;
    -*) die "$1 is no option; --help lists them" ;;
    *) artifacts=$1 ;;
    esac
    shift
done
wheels=("$artifacts"/copes_cuda*.whl)
[ ${#wheels[@]} = 1 ] && [ -f "${wheels[0]}" ] || die "$artifacts must have one copes_cuda*.whl"
artifacts=$(realpath "$artifacts") out=$(realpath -m "$out") wheel=$artifacts/$(basename "${wheels[0]}")
command -v "$python" >/dev/null || die "there is no $python"
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 2
export PYTHONPATH=$scratch/site:$scratch/packages${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

passed=0 failed=0 skipped=0
say() { printf '== %s\n' "$*"; }

# Functions need a shell of their own under timeout.
limited() {
    if [ "$(type -t "$1")" = function ]; then
        timeout --kill-after=10 240 bash -c '"$@"' bash "$@"
    else
        timeout --kill-after=10 240 "$@"
    fi
}

# step NAME LACK COMMAND...: LACK says why the step cannot run here; empty: it can.
step() {
    local name=$1 lack=$2 begin=$SECONDS status
    shift 2
    if [ -n "$lack" ]; then
        skipped=$((skipped + 1))
        say "$name: SKIPPED, $lack"
        return 1
    fi
    limited "$@" >"$out/$name.txt" 2>&1
    status=$?
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        tail -n 40 "$out/$name.txt" | cut -c 1-120
        say "$name: passed ($((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        tail -n 60 "$out/$name.txt" | cut -c 1-200
        say "$name: FAILED ($status, $((SECONDS - begin)) s); all of it is in $out/$name.txt"
    fi
    return "$status"
}

has() { "$python" -c "import $1" 2>/dev/null; }

into() { "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-compile --target "$@"; }

install_packages() {
    local missing
    missing=$("$python" - "$artifacts/packages" <<'END'
import importlib.metadata, pathlib, sys

for name in sorted({wheel.name.split("-")[0] for wheel in pathlib.Path(sys.argv[1]).glob("*.whl")}):
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(name)
END
    )
    [ -z "$missing" ] || into "$scratch/packages" --find-links "$artifacts/packages" $missing
    echo "installed beside $("$python" -VV): ${missing:-nothing}" | tr '\n' ' '
    echo
}

# doctor exits 0 where there is no device: with a GPU it must have computed on it.
doctor() {
    "$python" -m copes doctor >doctor.txt
    local status=$?
    cat doctor.txt
    [ "$status" = 0 ] || return 1
    [ -n "$no_gpu" ] || awk '/^[a-z]/ { cuda = $1 == "cuda" } cuda && $1 == "computes" { found = 1 } END { exit !found }' doctor.txt
}

# tests FILE: with a GPU some must have passed on it.
tests() {
    "$python" -m pytest -v -rs -p no:cacheprovider --rootdir="$root" "$root/python/tests/$1" >pytest.txt
    local status=$? there
    there=$(grep -c -E '((\[|-)cuda(-|\])|::test_stream|::test_graph|::test_device).* PASSED' pytest.txt)
    sed '/ PASSED /d; / SKIPPED /d' pytest.txt
    echo "passed on the GPU: $there"
    [ "$status" = 0 ] && { [ -n "$no_gpu" ] || [ "$there" -gt 0 ]; }
}
export -f into install_packages doctor tests
export root artifacts python scratch

no_torch='' no_gpu=''
has torch || no_torch="$python has no PyTorch"
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || no_gpu='PyTorch finds no GPU'
no_gpu=${no_torch:-$no_gpu}
export no_gpu
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
(cd "$artifacts" && sha256sum ./*.whl libcopes.so build/*/*/*.so 2>/dev/null)

if step install '' into "$scratch/site" "$wheel" && step packages '' install_packages; then
    no_numpy='' no_tests=$no_torch no_library='' no_kernels=''
    has numpy || no_numpy="$python has no NumPy"
    has pytest || no_tests=${no_tests:-"$python has no pytest"}
    [ -f "$artifacts/libcopes.so" ] || no_library="$artifacts has no libcopes.so"
    has tvm_ffi || no_library=${no_library:-"$python has no tvm-ffi"}
    [ -d "$artifacts/build" ] || no_kernels="$artifacts has no build/"
    "$python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null ||
        no_kernels=${no_kernels:-PyTorch is built without CUDA}
    has kernels || no_kernels=${no_kernels:-"$python has no kernels"}
    step doctor '' doctor
    step cpu "$no_numpy" "$python" "$root/tools/release/smoke.py"
    step pytorch "$no_gpu" "$python" "$root/tools/release/smoke_gpu.py"
    step check "$no_gpu" "$python" -m copes check --device cuda --every "$every"
    COPES_LIBRARY=$artifacts/libcopes.so step tvm-ffi "${no_tests:-${no_numpy:-$no_library}}" tests test_tvm_ffi.py
    COPES_KERNELS=$artifacts step kernels "${no_tests:-$no_kernels}" tests test_hf_kernels.py
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
exit $((failed > 0))
