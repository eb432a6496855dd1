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

# begin NAME COMMAND...: its output goes to a file. Steps that are begun run side by side, as most of their time is the processor's.
begin() {
    local name=$1
    shift
    { "$@" >"$out/$name.txt" 2>&1 && echo 0 || echo $?; } >"$out/$name.status" &
}

# finish NAME...: waits for steps, and shows the end of what failed.
finish() {
    local name status
    wait
    for name in "$@"; do
        status=$(cat "$out/$name.status")
        if [ "$status" = 0 ]; then
            say "$name: passed"
        else
            failed=$((failed + 1))
            say "$name: FAILED ($status)"
            grep -a -m 20 -e FAILED -e ERROR -e '=========' "$out/$name.txt" || tail -n 20 "$out/$name.txt"
        fi
    done
}

build() {
    programs=$root/build-gpu-$device
    local options=(-Dhip=disabled)
    [ "$device" = cuda ] || options=(-Dcuda=disabled "-Dhip-archs=$(rocminfo | grep -m 1 -o 'gfx[0-9a-f]*')")
    [ -f "$programs/build.ninja" ] || meson setup "$programs" "$root" --buildtype=release "-D$device=enabled" \
        "${options[@]}" -Dtools=enabled -Dtests=enabled -Dbench=enabled
    ninja -C "$programs"
    mkdir -p "$programs/gpu"
    cp "$programs/tools/copes" "$programs/bench/test_gpu_$device" "$programs"/library/libcopes.so.? "$programs/gpu"
    programs=$programs/gpu
}

# How far apart the cases are that a tool of the sanitizer takes from an operator's: a prime, as tables go round in types and
# layouts. tpa_decode has the fewest; of those, 17 leaves racecheck none that float32's tpa_wgmma cuts into parts, where it
# has not come to an end.
step_of() {
    [ "$2" = tpa_decode ] && [ "$1" != racecheck ] && echo 11 || echo 17
}

# Tables and random cases, whole, and some of both under tools of the sanitizer. Each has a core.
check() {
    local -x OMP_NUM_THREADS=1
    local op tool names=()
    for op in act lrpe_rotate lrpe_cosine qk_norm_rope tpa_decode attention_merge; do
        names+=("check-$op")
        begin "check-$op" "$copes" check "$op" --device "$device" --large
        for tool in "$@"; do
            names+=("$tool-$op")
            begin "$tool-$op" compute-sanitizer --tool "$tool" --error-exitcode 9 "$copes" check "$op" \
                --device "$device" --every "$(step_of "$tool" "$op")" --large
        done
    done
    names+=(variants)
    begin variants "$copes" check --device "$device" --variants --large
    finish "${names[@]}"
    grep -a -e '^variants' -e '^not met' "$out/variants.txt" || true
    cat "$out"/check-*.txt | grep -a -e '^act ' -e '^lrpe' -e '^qk' -e '^tpa' -e '^attention' || true
}

test_gpu() {
    local name names=()
    for name in caller gpu refused large part; do
        names+=("test_gpu-$name")
        begin "test_gpu-$name" env CK_RUN_CASE="$name" "$programs/test_gpu_$device"
    done
    finish "${names[@]}"
}

[ -n "$programs" ] || build
export LD_LIBRARY_PATH=$programs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
copes=$programs/copes
tools=()
[ -n "$quick" ] || [ "$device" != cuda ] || ! command -v compute-sanitizer >/dev/null ||
    tools=(memcheck racecheck initcheck synccheck)
"$copes" devices
check "${tools[@]}"
test_gpu
bench() { # one after the other
    "$copes" bench --device "$device" $quick --json "$out/bench.json"
    for pass in first second; do # of a softmax in shares, of which each device has one
        "$copes" bench --device "$device" --pass "$pass" --n 8192 --json "$out/bench_$pass.json"
    done
}
begin bench bench
finish bench
cat "$out/bench.txt"
printf '%d failed\n' "$failed"
exit $((failed > 0))
