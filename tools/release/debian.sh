# Debian packages, made of the tarball that make_source left. Sourced by tools/release.sh.

make_debian() {
    local tarball=$made/copes-$version-source.tar.xz folder=$work/debian
    [ -f "$tarball" ] || die 'debian is made of the tarball: --parts source,debian'
    need debhelper debootstrap dh-python dpkg-dev fakeroot libcjson-dev libdlpack-dev lintian meson ninja-build pkgconf python3-dev
    mkdir -p "$folder"
    cp "$tarball" "$folder/copes_$version.orig.tar.xz"
    tar xf "$tarball" -C "$folder"
    cp -r "$source/debian" "$folder/copes-$version/"
    # By the distribution's Python and Meson, as its own machines do. debhelper hides HOME, and a compiler's cache with it.
    (cd "$folder/copes-$version" && PATH=/usr/sbin:/usr/bin:/sbin:/bin CCACHE_DIR=$(ccache -k cache_dir 2>/dev/null) \
        dpkg-buildpackage -us -uc) >"$folder/log" 2>&1 || { tail -n 30 "$folder/log"; return 1; }
    # The tag suppressed asks for the number of a request to package it, which an upload to Debian has.
    lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$folder"/copes_*.changes
    rm -f "$folder"/*.changes "$folder"/*.buildinfo # which say when and where
    find "$folder" -maxdepth 1 -type f ! -name log ! -name '*-dbgsym_*' -exec cp {} "$made/" \;
    test_debian
}

# Installed by apt in a root that debootstrap makes: the command, the module, and a program built against the library.
test_debian() {
    local clean=$work/root release
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    as_root debootstrap --variant=minbase "$release" "$clean" >"$work/root.log" || { tail -n 10 "$work/root.log"; return 1; }
    as_root mkdir "$clean/test"
    as_root cp "$made"/*.deb "$source/tests/consumers/example.c" "$source/tools/release/smoke.py" "$clean/test/"
    as_root chroot "$clean" sh -ec '
        export DEBIAN_FRONTEND=noninteractive
        cd /test
        apt-get install -q -y --no-install-recommends ./*.deb python3-numpy gcc libc6-dev pkgconf >log 2>&1 || { tail -n 20 log; exit 1; }
        copes --version
        copes devices
        python3 smoke.py
        cc example.c $(pkg-config --cflags --libs copes) -lm -o example
        ./example >/dev/null'
    as_root rm -rf "$clean"
}
