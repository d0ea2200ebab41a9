#!/usr/bin/env bash
# Installs what the TypeScript client is compiled with and tested against, in the versions
# that its package.json names, from npm. Prints the directory, and nothing else, on standard
# output; node_modules is in it.
#
# The directory is node in STATOR_TEST_CACHE, or in stator-test in the user's cache. What is
# there already is checked and left alone.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}/node
name=node
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$here/../../clients/typescript/package.json

. "$here/../install.sh"

begin
need node nodejs
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || die "node $(node --version) is too old: 20 or later is needed"
mapfile -t packages < <(node -p 'Object.entries(require(process.argv[1]).devDependencies).map((p) => p.join("@")).join("\n")' "$package")
[ ${#packages[@]} -gt 0 ] || die "no packages found in $package"

want="${packages[*]}"
if [ "$(cat "$dir/versions" 2>/dev/null)" != "$want" ] || ! "$dir/node_modules/.bin/tsc" --version >/dev/null 2>&1; then
	need npm npm
	say "installing $want from npm into $dir"
	rm -rf "$dir/node_modules" "$dir/versions"
	echo '{"private": true}' >"$dir/package.json"
	npm install --prefix "$dir" --no-audit --no-fund --no-package-lock --loglevel=error "${packages[@]}" >&2
	echo "$want" >"$dir/versions"
fi
echo "$dir"
