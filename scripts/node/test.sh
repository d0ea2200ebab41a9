#!/usr/bin/env bash
# Compiles the TypeScript client with its tests and runs them with node: the vectors that
# it shares with the Go one, and the openai package through it to a real server.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
client=$root/clients/typescript

say() { echo "typescript: $*" >&2; }

say "setup"
dir=$("$here/setup.sh")
# node finds packages in the directories above a file.
out=$(mktemp -d "$dir/out.XXXXXX")
trap 'rm -rf "$out"' EXIT

say "tsc"
cat >"$out/tsconfig.json" <<JSON
{
  "extends": "$client/tsconfig.json",
  "compilerOptions": {
    "rootDir": "$client",
    "outDir": "$out",
    "declaration": false,
    "inlineSourceMap": true,
    "sourceMap": false,
    "skipLibCheck": true,
    "types": ["node"],
    "typeRoots": ["$dir/node_modules/@types"],
    "paths": {"openai": ["$dir/node_modules/openai/index.d.mts"]}
  },
  "include": ["$client/src", "$client/test"]
}
JSON
"$dir/node_modules/.bin/tsc" -p "$client" --noEmit
"$dir/node_modules/.bin/tsc" -p "$out"
echo '{"type": "module"}' >"$out/package.json"

say "go build"
(cd "$root" && go build -o "$out/stator" ./cmd/stator)

say "node --test"
if ! STATOR_ROOT=$root STATOR_BIN=$out/stator node --enable-source-maps --test --test-reporter=spec "$out"/test/*.test.js >"$out/log" 2>&1; then
	cat "$out/log"
	exit 1
fi
sed -n 's/^. pass /typescript: tests passed: /p' "$out/log" >&2
