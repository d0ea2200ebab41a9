#!/usr/bin/env bash
# Installs a Prometheus for the suite that wants a real one. Prints the directory that has
# it as bin/prometheus and bin/promtool, and nothing else, on standard output:
#
#   STATOR_PROMETHEUS=$(scripts/prometheus/setup.sh) go test ./internal/promtest
#
# The directory is prometheus in STATOR_TEST_CACHE, or in stator-test in the user's cache.
# What is there already and runs is left alone; remove the directory for another version.
# Otherwise it is, in this order:
#
# - the prometheus and promtool in PATH;
# - those of the package of this system's release, unpacked into the directory. That
#   leaves the system as it is, where installing would start a server that stays. It works
#   for any user and needs apt-get and dpkg-deb.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}/prometheus
name=prometheus
package=prometheus
programs=(prometheus promtool)

. "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

runs() {
	local program
	for program in "${programs[@]}"; do
		[ -x "$dir/bin/$program" ] && "$dir/bin/$program" --version >/dev/null 2>&1 || return 1
	done
}

# installed takes the programs in PATH.
installed() {
	local program path
	for program in "${programs[@]}"; do
		path=$(command -v "$program") && "$path" --version >/dev/null 2>&1 || return 1
	done
	mkdir -p "$dir/bin"
	for program in "${programs[@]}"; do
		path=$(command -v "$program")
		say "taking $path"
		ln -sfn "$(cd "$(dirname "$path")" && pwd)/$program" "$dir/bin/$program"
	done
}

# quiet COMMAND... shows what a command says only if it fails.
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }; }

# download fetches the package by the lists that the system has, or else, because there
# are none or they are old, by lists of its own from the same sources.
download() {
	mkdir -p "$work"/{lists/partial,cache/archives/partial}
	cat >"$work/apt.conf" <<CONF
Dir::Cache "$work/cache";
APT::Sandbox::User "";
Acquire::Retries "3";
Acquire::Languages "none";
CONF
	export APT_CONFIG=$work/apt.conf
	(cd "$work" && apt-get download -qq "$package" >/dev/null 2>&1) && return
	echo "Dir::State::Lists \"$work/lists\";" >>"$work/apt.conf"
	quiet apt-get update -qq || die "the lists of this system's packages cannot be fetched"
	(cd "$work" && quiet apt-get download -qq "$package") || die "the package $package cannot be fetched: install Prometheus and put prometheus and promtool into PATH"
}

# unpacked takes the programs of the package, which need no library but the system's own.
unpacked() {
	local tool program
	for tool in apt-get dpkg-deb; do
		command -v "$tool" >/dev/null || die "there are no prometheus and promtool in PATH, and no $tool to get them with: install Prometheus, see https://prometheus.io/download, and put both into PATH"
	done
	say "unpacking the package $package into $dir"
	rm -rf "$work"
	mkdir -p "$work/root" "$dir/bin"
	download
	dpkg-deb -x "$work"/*.deb "$work/root"
	for program in "${programs[@]}"; do mv "$work/root/usr/bin/$program" "$dir/bin/$program"; done
	runs || die "what was unpacked does not run: $("$dir/bin/prometheus" --version 2>&1 | tail -n 1)"
}

begin
work=$dir/.unpack
trap 'rm -rf "$work"' EXIT
if ! runs; then
	installed || unpacked
	say "$("$dir/bin/prometheus" --version 2>&1 | head -n 1)"
fi
echo "$dir"
