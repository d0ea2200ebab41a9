#!/usr/bin/env bash
# Runs every fuzz target of the module for a while: scripts/fuzz.sh 3s [PATTERN]
# PATTERN is a regular expression on "DIRECTORY NAME" that selects some of them.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:?usage: scripts/fuzz.sh TIME [PATTERN]}
pattern=${2:-.}
go=${GO:-go}

targets=$(grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' . |
	sed -E 's|^(.*)/[^/]*:func (.*)$|\1 \2|' | sort | grep -E -- "$pattern") || {
	echo "fuzz: no target matches $pattern" >&2
	exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
corpus=$("$go" env GOCACHE)/fuzz # where go test keeps inputs worth trying again
module=$("$go" list -m)

# fuzz DIR NAME runs one target. Before Go 1.27 the end of the fuzzing time itself
# may be reported as a failure, without an input (go.dev/issue/75804): then the
# target runs again. A finding always comes with its input.
fuzz() {
	local try
	for try in 1 2 3; do
		(cd "$1" && "$work/test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$time" \
			-test.fuzzcachedir "$corpus/$module/${1#./}") >"$log" 2>&1 && return
		grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic:' "$log" || return 1
		echo "fuzz $1 $2: ended by its own deadline on try $try"
	done
	return 1
}

# The targets of a package share a program: linking takes longer than a second.
failed=0
built=
while read -r dir name; do
	if [ "$dir" != "$built" ]; then
		"$go" test -c -fuzz . -o "$work/test" "$dir"
		built=$dir
	fi
	if fuzz "$dir" "$name"; then
		echo "fuzz $dir $name: $time without a failure"
	else
		failed=1
		cat "$log"
		echo "fuzz $dir $name: failed"
	fi
done <<<"$targets"
exit "$failed"
