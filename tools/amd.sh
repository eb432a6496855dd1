#!/usr/bin/env bash
# Without an AMD GPU: builds the kernels for gfx1100 and runs AMD's machine code, instruction by instruction, on an emulator.
# tools/amd.sh [--emulator FOLDER] [--build FOLDER] [--ulps N] [CHECK ...]
# FOLDER has tinygrad/, a checkout of github.com/tinygrad/tinygrad at a9069c177a9da9cca18593edf55acd2e6073cca6; the default is
# /opt/amd-emulator. CHECK: operators and flags of `copes check`. Takes Clang 19 (clang-19, lld-19, llvm-19) and Debian's
# hipcc, libamdhip64-dev and rocm-device-libs. Ends with the command and its counts in Markdown, as docs/amd.md quotes them.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ours=$root/tools/amd_emulator
emulator=${AMD_EMULATOR:-/opt/amd-emulator} build=$root/build-amd ulps=1
while [ $# -gt 0 ]; do
    case $1 in
    --emulator) emulator=$2 && shift ;;
    --build) build=$2 && shift ;;
    --ulps) ulps=$2 && shift ;;
    --help) sed -n '2,7s/^# //p' "$0" && exit ;;
    *) break ;;
    esac
    shift
done
command=tools/amd.sh
[ "$ulps" = 1 ] || command+=" --ulps $ulps"
command+=${*:+ $*}
[ -d "$emulator/tinygrad/test/mockgpu/amd" ] || { echo "amd.sh: no checkout of tinygrad in $emulator/tinygrad" >&2; exit 1; }

# The device libraries differ between chips in one number, and Debian's are older than this chip.
write_native_file() {
    local bitcode=$build/bitcode
    mkdir -p "$bitcode"
    ln -sf /usr/lib/x86_64-linux-gnu/amdgcn/bitcode/*.bc "$bitcode/"
    llvm-dis-19 "$bitcode/oclc_isa_version_90a.bc" -o - | sed 's/i32 9010/i32 11000/' |
        llvm-as-19 -o "$bitcode/oclc_isa_version_1100.bc"
    cat >"$build/clang.ini" <<INI
[binaries]
hipcc = ['clang++-19', '--rocm-path=/usr', '--rocm-device-lib-path=$bitcode', '-mcode-object-version=5']
llvm-readelf = 'llvm-readelf-19'
llvm-objdump = 'llvm-objdump-19'
INI
}

build_copes() {
    [ -d "$build/copes" ] ||
        meson setup "$build/copes" "$root" --native-file "$build/clang.ini" -Dhip=enabled -Dhip-archs=gfx1100 \
            -Dcuda=disabled -Dcpu-isa=baseline -Dtests=enabled -Dtools=enabled -Dbench=disabled >"$build/setup.log"
    ninja -C "$build/copes" --quiet tools/copes
}

# tinygrad compiles what it translates by the `clang` that it finds.
build_emulator() {
    mkdir -p "$build/lib" "$build/bin"
    ln -sf "$(command -v clang-19)" "$build/bin/clang"
    if [ ! -d "$build/tinygrad" ]; then
        mkdir "$build/tinygrad.part"
        cp -r "$emulator/tinygrad/tinygrad" "$emulator/tinygrad/test" "$build/tinygrad.part"
        sh "$ours/patch_tinygrad.sh" "$build/tinygrad.part"
        mv "$build/tinygrad.part" "$build/tinygrad"
    fi
    cc -O1 -shared -fPIC -w -o "$build/lib/libamdhip64.so.5" -Wl,-soname,libamdhip64.so.5 "$ours/fake_hip.c"
    cc -O2 -shared -fPIC -ffp-contract=off -o "$build/lib/librunner.so" "$ours/run_grid.c" "$ours/arithmetic.c" -lm
}

server='' private=$(mktemp -d) arena=$(mktemp /dev/shm/amd_emulator.XXXXXX)
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$private" "$arena"
}
trap finish EXIT

start_emulator() {
    mkfifo "$private/ready"
    DEV=CPU PATH=$build/bin:$PATH python3 "$ours/emulate.py" --tinygrad "$build/tinygrad" --runner "$build/lib/librunner.so" \
        --socket "$private/socket" --arena "$arena" --ulps "$ulps" --ready "$private/ready" >"$build/emulator.log" 2>&1 &
    server=$!
    timeout 300 cat "$private/ready" >/dev/null || { tail -n 20 "$build/emulator.log"; exit 1; }
}

# The rows of `copes check`, added up over modes and types.
count_cases() {
    awk 'BEGIN { print "| operator | cases | past the bounds |\n| --- | ---: | ---: |" }
        /^[a-z_]+ +(forward|backward) +[bf]+[0-9]+ / {
            if (!($1 in cases)) order[++operators] = $1
            cases[$1] += $4
            past[$1] += $5
        }
        END { for (i = 1; i <= operators; i++) printf "| `%s` | %d | %d |\n", order[i], cases[order[i]], past[order[i]] }' "$1"
}

mkdir -p "$build"
write_native_file
build_copes
build_emulator
start_emulator
status=0
AMD_EMULATOR_SOCKET=$private/socket AMD_EMULATOR_ARENA=$arena LD_LIBRARY_PATH=$build/lib \
    "$build/copes/tools/copes" check --device hip "$@" 2>"$build/check.err" | tee "$build/check.txt" || status=$?
grep -v 'no version information' "$build/check.err" >&2 || true
wait "$server" || { status=1; echo 'the emulator failed' >&2; }
server=''
printf '\n    %s    # commit %s, gfx1100\n\n' "$command" "$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)"
count_cases "$build/check.txt"
echo
cat "$build/emulator.log"
exit "$status"
