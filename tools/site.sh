#!/usr/bin/env bash
# The web page, built from docs/ as files that need no network: a browser opens OUT/index.html from the disk or from a server.
set -euo pipefail
exec </dev/null

usage() {
    cat <<'END'
usage: tools/site.sh [--out FOLDER]

  --out FOLDER   where the pages go; default build-site/html

Builds the C library into the Python package, as the pages of the Python interface and of exactness run it, in a virtual
environment in build-site/. Doxygen and a font for formulas are installed with apt-get where they are missing, through sudo
where that is needed; a C compiler and Python's headers must be there, as for `pip install .`. Warnings of Sphinx and Doxygen are errors, and so is a link within the pages that leads nowhere.
END
}

die() {
    printf 'site.sh: %s\n' "$*" >&2
    exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build-site
out=$build/html
font=/usr/share/fonts/opentype/stix-word/STIXMath-Regular.otf

while [ $# -gt 0 ]; do
    case $1 in
    --out)
        [ $# -ge 2 ] || die '--out is the last argument; it must be followed by a folder'
        out=$(realpath -m "$2")
        shift 2
        ;;
    -h | --help)
        usage
        exit
        ;;
    *) die "the argument is $1; it must be --out or --help" ;;
    esac
done

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Doxygen, and a font that has what browsers need to lay out formulas: phones mostly have none.
install_packages() {
    command -v doxygen >/dev/null && [ -f "$font" ] && return
    command -v apt-get >/dev/null || die 'please install doxygen and what Debian calls fonts-stix'
    as_root apt-get update -q >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends doxygen fonts-stix >/dev/null
}

# The package without its command and without GPUs, at the baseline level: enough to run and to describe.
install_environment() {
    [ -x "$build/env/bin/pip" ] || python3 -m venv "$build/env"
    "$build/env/bin/pip" install --quiet -r "$root/docs/requirements.txt"
    local options=(-Dcuda=disabled -Dhip=disabled -Dtools=disabled -Dbench=disabled -Dcpu-isa=baseline)
    "$build/env/bin/pip" install --quiet --no-deps --force-reinstall "$root" --config-settings=build-dir="$build/package" \
        "${options[@]/#/--config-settings=setup-args=}"
}

mkdir -p "$build"
install_packages
install_environment
COPES_MATH_FONT=$font "$build/env/bin/sphinx-build" -q -W --keep-going -E -b html -d "$build/doctrees" "$root/docs" "$out"
"$build/env/bin/python" "$root/docs/site/check_links.py" "$out"
printf '%s\n' "$out/index.html"
