#!/usr/bin/env bash
# Installs what our ZeroMQ sockets are tested against: libzmq, as it comes with pyzmq
# from PyPI, in a Python environment of its own. Prints the directory, and nothing else,
# on standard output:
#
#   STATOR_ZMQ=$(scripts/zmq/setup.sh) go test ./internal/zmtp
#
# The directory is zmq in STATOR_TEST_CACHE, or in stator-test in the user's cache. What
# is there already is checked and left alone.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}/zmq
packages=(pyzmq==27.1.0)

say() { echo "zmq: $*" >&2; }
die() { say "$*"; exit 1; }

# need COMMAND PACKAGE installs a Debian package where that can be done.
need() {
	command -v "$1" >/dev/null && return
	debian "$2" || die "$1 is missing: install it, on Debian with: apt-get install $2"
}

debian() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	say "installing $* with apt-get"
	apt-get install -y -qq "$@" >&2 || { apt-get update -qq >&2 && apt-get install -y -qq "$@" >&2; }
}

# environment makes the Python environment. A file with the versions says that it is
# complete.
environment() {
	local want="${packages[*]}"
	[ "$(cat "$dir/venv/versions" 2>/dev/null)" = "$want" ] && "$dir/venv/bin/python" -c 'import zmq' 2>/dev/null && return
	need python3 python3
	say "installing $want from PyPI into $dir/venv"
	rm -rf "$dir/venv"
	if ! python3 -m venv "$dir/venv" >&2; then
		debian python3-venv || die "python3 -m venv does not work: install it, on Debian with: apt-get install python3-venv"
		python3 -m venv --clear "$dir/venv" >&2
	fi
	"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" >&2
	echo "$want" >"$dir/venv/versions"
}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# One at a time, where the system can tell.
exec 9>"$dir/.lock"
! command -v flock >/dev/null || flock 9
environment
echo "$dir"
