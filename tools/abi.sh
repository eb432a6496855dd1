#!/usr/bin/env bash
# The shared library's binary interface beside that of its series' first version, in tests/abi/: tools/abi.sh check | freeze.
set -euo pipefail

usage() {
    cat <<'END'
usage: tools/abi.sh check | freeze

  check   builds the CPU's library in build-abi/ and fails where abidiff finds that a program for the first version of this
          series (0.2, or 1 from 1.0 on) would not go on with it
  freeze  makes the header and the library as they are now the first version of their series: before X.Y.0 is released, and
          never after

Needs abidw and abidiff, which Debian has in abigail-tools.
END
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."

version() { sed -n "s/^#define COPES_VERSION_$1 //p" include/copes/copes.h; }

series=$(version MAJOR)
[ "$series" != 0 ] || series=0.$(version MINOR)
frozen=tests/abi/$series

command -v abidiff >/dev/null || { echo 'abi.sh: no abidiff; Debian has it in abigail-tools' >&2; exit 1; }

# Compiled for no speed: only names and types count.
build() {
    [ -f build-abi/build.ninja ] || meson setup build-abi --buildtype=debug -Dcuda=disabled -Dhip=disabled -Dcpu-isa=baseline \
        -Dtests=disabled -Dtools=disabled -Dbench=disabled -Ddefault_library=shared >/dev/null
    ninja -C build-abi --quiet
    library=build-abi/library/libcopes.so.$series
}

case ${1-help} in
check)
    build
    abidiff --no-added-syms --exported-interfaces-only --no-show-locs --headers-dir2 include --drop-private-types \
        --suppressions tests/abi/growth.abignore "$frozen/libcopes.abi" "$library"
    echo "nothing that programs for $series.0 use has changed"
    ;;
freeze)
    [ "$(version PATCH)" = 0 ] || { echo "abi.sh: $series was frozen at $series.0" >&2; exit 1; }
    build
    mkdir -p "$frozen/include/copes"
    cp include/copes/copes.h "$frozen/include/copes/copes.h"
    abidw --exported-interfaces-only --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed \
        --headers-dir include --drop-private-types --out-file "$frozen/libcopes.abi" "$library"
    ;;
*)
    usage
    [ "${1-help}" = help ] || exit 2
    ;;
esac
