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
name=zmq
packages=(pyzmq==27.1.0)

. "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

begin
environment zmq "${packages[@]}"
echo "$dir"
