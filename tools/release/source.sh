# The parts without machine code: sdist, tarball, Meson wrap, SBOM. Sourced by tools/release.sh.

make_source() {
    local tarball=copes-$version-source.tar.xz
    # Debian asks that what it packages has no debian/.
    git -C "$source" archive --prefix="copes-$version/" HEAD -- . ':!debian' | xz -T1 -9 >"$made/$tarball"
    python -m build --quiet --no-isolation --sdist --outdir "$made" -Csetup-args=-Dcuda=disabled "$source"
    cat >"$made/copes.wrap" <<END
[wrap-file]
directory = copes-$version
source_url = ${COPES_RELEASE_URL:-https://example.invalid/copes}/$version/$tarball
source_filename = $tarball
source_hash = $(sha256sum "$made/$tarball" | cut -d ' ' -f 1)

[provide]
copes = copes_dep
END
    python "$source/tools/release/sbom.py" "$source" "$version" "$made/$tarball" >"$made/copes-$version.cdx.json"
    test_source "$tarball"
}

# The sdist builds in an environment of its own; the wrap builds the tarball for a program, from where a download would lie.
test_source() {
    environment "$work/sdist" numpy
    "$work/sdist/bin/pip" install --quiet --disable-pip-version-check "$made/copes-$version.tar.gz" \
        -Csetup-args=-Dcuda=disabled -Csetup-args=-Dcpu-isa=baseline
    (cd "$work" && sdist/bin/python "$source/tools/release/smoke.py")
    local program=$work/wrapped
    mkdir -p "$program/subprojects/packagecache"
    cp "$source/tests/consumers/example.c" "$source/tests/consumers/subproject/meson.build" "$program/"
    cp "$made/copes.wrap" "$program/subprojects/"
    cp "$made/$1" "$program/subprojects/packagecache/"
    meson setup "$program/build" "$program" --force-fallback-for=copes -Dcopes:cpu-isa=baseline -Dcopes:cuda=disabled >"$work/wrap.log" ||
        { tail -n 30 "$work/wrap.log"; return 1; }
    ninja -C "$program/build" --quiet
    "$program/build/example" >/dev/null
}
