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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
while read -r dir name; do
	if "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$dir" >"$log" 2>&1; then
		echo "fuzz $dir $name: $time without a failure"
	else
		failed=1
		cat "$log"
		echo "fuzz $dir $name: failed"
	fi
done <<<"$targets"
exit "$failed"
