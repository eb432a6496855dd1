#!/usr/bin/env bash
# What must hold before a version is tagged: tools/release.sh --checklist VERSION. Says each point, and fails if one does not hold.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$1 failed=0

# point TEXT COMMAND...
point() {
    if "${@:2}" >/dev/null 2>&1; then
        printf 'yes  %s\n' "$1"
    else
        printf 'NO   %s\n' "$1"
        failed=1
    fi
}

clean() { [ -z "$(git status --porcelain)" ]; }
semantic() { [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; }
in_meson() { grep -q "^  version: '$version',$" meson.build; }
in_header() {
    local part numbers
    IFS=. read -ra numbers <<<"$version"
    for part in MAJOR MINOR PATCH; do
        grep -qx "#define COPES_VERSION_$part ${numbers[0]}" include/copes/copes.h || return 1
        numbers=("${numbers[@]:1}")
    done
}
in_debian() { head -n 1 debian/changelog | grep -q "^copes ($version-"; }
reachable() { ! grep -rq '@example\.' debian; }
has_url() { [[ ${COPES_RELEASE_URL-} =~ ^https://[^/]+ && ! ${BASH_REMATCH[0]} =~ \.(example|invalid)$ ]]; }
in_recipe() { grep -q "^  version: \"$version\"$" recipe/recipe.yaml; }
in_changelog() { grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md; }
untagged() { ! git rev-parse --verify --quiet "refs/tags/v$version"; }

point "$version is MAJOR.MINOR.PATCH" semantic
point 'the tree is clean' clean
point "meson.build has $version" in_meson
point "include/copes/copes.h has $version" in_header
point "debian/changelog begins with $version" in_debian
point 'debian/ has no address at example.org: people will write to it' reachable
point 'COPES_RELEASE_URL says where VERSION/tarball will lie, for copes.wrap' has_url
point "recipe/recipe.yaml has $version" in_recipe
point "CHANGELOG.md has \"## $version, YEAR-MONTH-DAY\"" in_changelog
point "the interface is that of its series' first version (tools/abi.sh check)" tools/abi.sh check
point "v$version is no tag yet" untagged
[ "$failed" = 0 ] || exit 1
cat <<END
now:
  .ci/run
  git tag -s v$version -m 'copes $version'
  tools/release.sh --parts source,wheel,wheel-aarch64,wheel-cuda,debian --twice v$version
END
