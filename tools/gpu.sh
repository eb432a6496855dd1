#!/usr/bin/env bash
# On a machine with a GPU: checks every operator on it and prints the benchmark's tables.
# tools/gpu.sh [--device cuda|hip] [--programs FOLDER] [--quick] [--out FOLDER]
# Without --programs it builds for the GPU it finds. --quick leaves out the sanitizers and most of the benchmark.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
device=cuda programs='' quick='' out=$PWD/gpu-results failed=0
while [ $# -gt 0 ]; do
    case $1 in
    --device) device=$2 && shift ;;
    --programs) programs=$2 && shift ;;
    --quick) quick=--quick ;;
    --out) out=$2 && shift ;;
    *) sed -n '2,4s/^# //p' "$0" && exit 2 ;;
    esac
    shift
done
mkdir -p "$out"

say() { printf '== %s\n' "$*"; }

# step NAME COMMAND...: its output goes to a file, of which the end is shown.
step() {
    local name=$1 status=0
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=$?
    if [ "$status" = 0 ]; then
        say "$name: passed"
    else
        failed=$((failed + 1))
        say "$name: FAILED ($status)"
        grep -a -m 20 -e FAILED -e ERROR -e '=========' "$out/$name.txt" || tail -n 20 "$out/$name.txt"
    fi
}

build() {
    programs=$root/build-gpu-$device
    local arch other=hip
    if [ "$device" = hip ]; then
        other=cuda
        arch=$(rocminfo | grep -m 1 -o 'gfx[0-9a-f]*')
    else
        arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    fi
    [ -f "$programs/build.ninja" ] || meson setup "$programs" "$root" --buildtype=release "-D$device=enabled" \
        "-D$device-archs=$arch" "-D$other=disabled" -Dtools=enabled -Dtests=enabled -Dbench=enabled
    ninja -C "$programs"
    mkdir -p "$programs/gpu"
    cp "$programs/tools/copes" "$programs/bench/test_gpu_$device" "$programs"/library/libcopes.so.? "$programs/gpu"
    programs=$programs/gpu
}

# Every eighth case of the tables, every tool of the sanitizer.
sanitize() {
    local tool
    for tool in memcheck racecheck initcheck synccheck; do
        step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$copes" check --device "$device" --every 8 --cases 20 --large
    done
}

[ -n "$programs" ] || build
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
copes=$programs/copes
"$copes" devices
step check "$copes" check --device "$device" --large
grep -a -e '^act' -e '^lrpe' -e '^tpa' -e '^operator' "$out/check.txt" || true
step test_gpu "$programs/test_gpu_$device"
[ -n "$quick" ] || [ "$device" != cuda ] || ! command -v compute-sanitizer >/dev/null || sanitize
step bench "$copes" bench --device "$device" $quick --json "$out/bench.json"
cat "$out/bench.txt"
printf '%d failed\n' "$failed"
exit $((failed > 0))
