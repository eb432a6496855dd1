# What tests the CUDA artifacts on a machine with a GPU, in one archive. Sourced by tools/release.sh.

# fetch_packages FOLDER: wheels for every Python that the wheel serves, as it is not known which one will run them.
fetch_packages() {
    local python
    for python in 3.10 3.11 3.12 3.13; do
        pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version "$python" \
            --platform "manylinux_${glibc/./_}_x86_64" --platform manylinux_2_24_x86_64 --platform manylinux2014_x86_64 \
            --dest "$1" -r "$root/tools/release/gpu_packages.txt"
    done
}

# make_library FILE: the C library, which tvm-ffi loads as it is, linked as the wheel is.
make_library() {
    local build=$source/build-gpu-test
    LDFLAGS="-L$work/x86_64 -s" meson setup "$build" "$source" -Ddefault_library=shared -Dopenmp=enabled -Dtools=disabled \
        -Dbench=disabled -Dtests=disabled -Dhip=disabled -Dcuda=enabled -Dcuda-archs="$cuda_archs" >"$build.log" ||
        { tail -n 30 "$build.log"; return 1; }
    meson compile -C "$build" >"$build.log" || { tail -n 30 "$build.log"; return 1; }
    cp "$build/library/libcopes.so.$version" "$1"
}

make_gpu_test() {
    local name=copes-$version-gpu-test archive wheels artifacts cuda
    archive=$made/$name.tar.xz artifacts=$work/$name/artifacts wheels=("$made"/copes_cuda*.whl)
    [ -f "${wheels[0]}" ] || die 'gpu-test holds the wheel with CUDA: --parts wheel-cuda,gpu-test'
    git -C "$source" archive --prefix="$name/" HEAD -- LICENSE pyproject.toml docs/tvm_ffi.md tools/hf_kernels.sh tools/release \
        python/tests/conftest.py python/tests/test_hf_kernels.py python/tests/test_tvm_ffi.py | tar x -C "$work"
    mkdir "$artifacts"
    cp "${wheels[0]}" "$artifacts/"
    make_library "$artifacts/libcopes.so"
    cuda=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p').0
    "$source/tools/hf_kernels.sh" --out "$artifacts" --cuda "$cuda" -Dhip=disabled -Dcuda-archs="$cuda_archs" >/dev/null
    fetch_packages "$artifacts/packages"
    # The largest dictionary: it meets the same kernels in the library and in the package.
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" | xz -T1 -9 >"$archive"
    test_gpu_test "$archive"
}

# Without PyTorch, and most likely without a GPU: it says what it leaves out.
test_gpu_test() {
    environment "$work/env-gpu-test" numpy
    mkdir "$work/unpacked"
    tar xf "$1" -C "$work/unpacked"
    "$work/unpacked"/*/tools/release/gpu_test.sh --python "$work/env-gpu-test/bin/python" --out "$work/gpu-test-results"
}
