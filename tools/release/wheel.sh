# Wheels for manylinux_2_28. Sourced by tools/release.sh.
#
# gcc compiles, as everywhere. What makes the binary run with glibc 2.28 is what it is linked with: stubs of that glibc's
# libraries, which zig generates, and a libgomp made for shared libraries, with no symbol of it visible. The compiler's own
# libgomp.a is for programs alone, and its libgomp.so.1 needs the newest glibc.

glibc=2.28

# make_stubs MACHINE FOLDER: libc, libm and so on to link with.
make_stubs() {
    local cache=$work/zig-$1 name library
    mkdir -p "$2"
    echo 'int copes_stub;' >"$2/stub.c"
    (cd "$2" && ZIG_GLOBAL_CACHE_DIR=$cache ZIG_LOCAL_CACHE_DIR=$cache python -m ziglang build-lib -dynamic -lc \
        -fno-compiler-rt -fno-ubsan-rt -OReleaseSmall -target "$1-linux-gnu.$glibc" stub.c -femit-bin="$cache/stub.so")
    find "$cache/o" -name 'lib*.so.*' -exec cp {} "$2" \;
    find "$cache/o" -name 'libc_nonshared.a' -exec cp {} "$2" \;
    for name in m pthread dl rt; do
        library=$(cd "$2" && echo lib$name.so.*)
        ln -s "$library" "$2/lib$name.so"
    done
    echo 'GROUP ( libc.so.6 libc_nonshared.a AS_NEEDED ( libld.so.2 ) )' >"$2/libc.so" # the loader, for CUDA's runtime
}

# make_libgomp COMPILER FOLDER: FOLDER/libgomp.a, from the sources of that very compiler.
make_libgomp() {
    local major unpacked=$work/gcc build=$2/build log=$2/libgomp.log
    major=$("$1" -dumpversion)
    if [ ! -d "$unpacked" ]; then
        need "gcc-$major-source"
        mkdir -p "$unpacked"
        tar xf /usr/src/gcc-"$major"/gcc-"$major"*.tar.xz -C "$unpacked" --strip-components=1 --wildcards \
            'gcc-*/libgomp' 'gcc-*/config' 'gcc-*/include' 'gcc-*/gcc/BASE-VER' 'gcc-*/gcc/DEV-PHASE' 'gcc-*/config.*' \
            'gcc-*/config-ml.in' 'gcc-*/install-sh' 'gcc-*/ltmain.sh' 'gcc-*/missing' 'gcc-*/depcomp' \
            'gcc-*/mkinstalldirs' --exclude='libgomp.*-*'
        # Else libgomp's thread-local variables, and with them those of all that it is linked with, must have a place beside the
        # program's own. CUDA's runtime has 8 KiB of them, for which there is no room: the extension would not load.
        grep -q 'ftls-model=initial-exec' "$unpacked/libgomp/configure.tgt" || die "gcc $major's libgomp has another configure.tgt"
        sed -i 's/-ftls-model=initial-exec -DUSING_INITIAL_EXEC_TLS//' "$unpacked/libgomp/configure.tgt"
    fi
    mkdir -p "$build"
    (cd "$build" && "$unpacked/libgomp/configure" --host="$("$1" -dumpmachine)" --disable-multilib --disable-shared \
        --with-pic CC="$1" CFLAGS="-O2 -ffile-prefix-map=$work=." && make -j"$(nproc)" libgomp.la) >"$log" 2>&1 ||
        { tail -n 30 "$log"; return 1; }
    cp "$build/.libs/libgomp.a" "$2/"
    echo 'GROUP ( libgomp.a libdl.so.2 libpthread.so.0 )' >"$2/libgomp.so" # what a static library cannot say it needs
}

# audit MACHINE ARGUMENT...: auditwheel, which has rules for the machine that it runs on alone, as if that were MACHINE.
audit() {
    AUDITWHEEL_LD_LIBRARY_PATH=/usr/lib/$1-linux-gnu python -c '
import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
from auditwheel.main import main
sys.exit(main())' "$@"
}

# build_wheel PART MACHINE COMPILER PIP-SETTING...: made/$wheel. -s: nothing of the build's folder is left in the binary.
build_wheel() {
    local machine=$2 libraries=$work/$2 raw=$work/$1-raw repaired=$work/$1-repaired
    if [ ! -d "$libraries" ]; then
        make_stubs "$machine" "$libraries"
        make_libgomp "$3" "$libraries"
    fi
    LDFLAGS="-L$libraries -s" _PYTHON_HOST_PLATFORM=linux-$machine python -m build --no-isolation --wheel --outdir "$raw" \
        -Csetup-args=-Dopenmp=enabled -Csetup-args=-Dtools=enabled -Csetup-args=-Dbench=enabled -Csetup-args=-Dhip=disabled \
        -Csetup-args=-Djax=enabled -Cbuild-dir="$source/build-$1" "${@:4}" "$source" >"$raw.log" 2>&1 || { tail -n 30 "$raw.log"; return 1; }
    # The extension is for the stable interface of 3.10, whatever Python made it.
    python -m wheel tags --remove --python-tag cp310 "$raw"/*.whl >/dev/null
    audit "$machine" repair --plat "manylinux_${glibc/./_}_$machine" --only-plat -w "$repaired" "$raw"/*.whl \
        >"$repaired.log" 2>&1 || { cat "$repaired.log"; return 1; }
    cp "$repaired"/*.whl "$made/"
    wheel=$(basename "$repaired"/*.whl)
}

test_wheel() {
    environment "$work/env-${wheel%%-*}" numpy "$made/$wheel"
    (cd "$work" && "env-${wheel%%-*}/bin/python" "$source/tools/release/smoke.py")
}

# In an emulator, by the distribution's Python for aarch64. Its program cannot be installed beside the machine's own, so that
# it is unpacked; a script stands for it, as processes that it starts must be emulated, too.
test_wheel_aarch64() {
    local version site=$work/site-aarch64 python=$work/python-aarch64
    version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    need qemu-user-static "libpython$version-stdlib:arm64" libexpat1:arm64 libstdc++6:arm64 zlib1g:arm64
    mkdir "$work/emulated"
    (cd "$work/emulated" && apt-get download -q -o APT::Sandbox::User=root "python$version-minimal:arm64" >/dev/null &&
        dpkg-deb -x ./*.deb .)
    printf '#!/bin/sh\nexec qemu-aarch64-static -0 "$0" "%s" "$@"\n' "$work/emulated/usr/bin/python$version" >"$python"
    chmod +x "$python"
    pip install --quiet --disable-pip-version-check --target "$site" --python-version "$version" --only-binary=:all: \
        --platform "manylinux_${glibc/./_}_aarch64" --platform manylinux2014_aarch64 numpy "$made/$wheel"
    (cd "$work" && PYTHONPATH=$site "$python" "$source/tools/release/smoke.py")
}

make_wheel() {
    need libcjson-dev libdlpack-dev
    build_wheel wheel x86_64 gcc -Csetup-args=-Dcuda=disabled
    test_wheel
}

make_wheel_aarch64() {
    dpkg --print-foreign-architectures | grep -qx arm64 || as_root dpkg --add-architecture arm64
    need gcc-aarch64-linux-gnu libc6-dev-arm64-cross libcjson-dev:arm64 libdlpack-dev
    build_wheel wheel-aarch64 aarch64 aarch64-linux-gnu-gcc -Csetup-args=-Dcuda=disabled \
        -Csetup-args=--cross-file="$source/tools/cross/aarch64.ini"
    test_wheel_aarch64
}

# A project of its own, by CUDA's major version, as an index has one wheel of a name and platform. What tests it here is that
# it goes on without a driver.
make_wheel_cuda() {
    need libcjson-dev libdlpack-dev
    local cuda
    cuda=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    sed -i "s/^name = \"copes\"$/name = \"copes-cuda$cuda\"/" "$source/pyproject.toml"
    build_wheel wheel-cuda x86_64 gcc -Csetup-args=-Dcuda=enabled -Csetup-args=-Dcuda-archs="$cuda_archs"
    git -C "$source" checkout -q pyproject.toml
    [ "$(stat -c %s "$made/$wheel")" -lt 100000000 ] || die "$wheel is over the index's 100 MB"
    test_wheel
}
