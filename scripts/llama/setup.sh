#!/usr/bin/env bash
# Installs a llama.cpp server for the suites that want a real engine. Prints the
# directory that has it as bin/llama-server, and nothing else, on standard output:
#
#   STATOR_LLAMA=$(scripts/llama/setup.sh) go test ./internal/llamatest
#
# The directory is llama in STATOR_TEST_CACHE, or in stator-test in the user's cache.
# What is there already and runs is left alone; remove the directory for another
# version. Otherwise it is, in this order:
#
# - the llama-server in PATH;
# - the package of this system's release, as root and if it has one;
# - the packages of Debian unstable, unpacked into the directory and run with their own
#   C library. That leaves the system as it is, works for any user and needs apt-get,
#   dpkg-deb and Debian's keyring, which every Debian has.
set -euo pipefail

dir=${STATOR_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stator-test}/llama
name=llama
package=llama.cpp-tools

. "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

runs() { [ -x "$dir/bin/llama-server" ] && "$dir/bin/llama-server" --version >/dev/null 2>&1; }

# wrap LINE makes bin/llama-server a script that runs LINE with its arguments. It has no
# child, so that a signal reaches the server.
wrap() {
	mkdir -p "$dir/bin"
	printf '#!/bin/sh\nexec %s "$@"\n' "$1" >"$dir/bin/llama-server.new"
	chmod +x "$dir/bin/llama-server.new"
	mv "$dir/bin/llama-server.new" "$dir/bin/llama-server"
}

# installed takes the server in PATH.
installed() {
	local path
	path=$(command -v llama-server) && "$path" --version >/dev/null 2>&1 || return 1
	say "taking $path"
	wrap "'$path'"
}

# release installs the package of this system's release.
release() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
	apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]' || return 1
	say "installing $package with apt-get"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
	installed
}

# quiet COMMAND... shows what a command says only if it fails: the hooks of apt complain
# where they may not clean up.
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }; }

# unstable unpacks the packages of Debian unstable. All that is loaded at run time lies
# in one directory, the loader included: beside it the server looks for the libraries
# with the code for this processor.
unstable() {
	local tool
	for tool in apt-get apt-cache dpkg-deb; do
		command -v "$tool" >/dev/null || die "there is no llama-server in PATH, and no $tool to get one from Debian with: install llama.cpp and put llama-server into PATH"
	done
	local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -e "$keyring" ] || keyring=${keyring%.gpg}.pgp
	[ -e "$keyring" ] || die "there is no llama-server in PATH, and Debian's keys are missing to get one with: apt-get install debian-archive-keyring"
	rm -rf "$work"
	mkdir -p "$work"/{lists/partial,cache/archives/partial,debs,root,lib}
	local mirror
	mirror=$(sed -n 's/^URIs: *\([^ ]*\/debian\)\/\? *$/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
	mirror=${mirror:-http://deb.debian.org/debian}
	say "unpacking $package and its libraries from $mirror unstable into $dir"
	echo "deb [signed-by=$keyring] $mirror sid main" >"$work/sources.list"
	cat >"$work/apt.conf" <<EOF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "";
Acquire::Retries "3";
Acquire::Languages "none";
EOF
	export APT_CONFIG=$work/apt.conf
	quiet apt-get update -qq || die "the lists of Debian unstable cannot be fetched from $mirror"
	# The package, the libraries that it needs, and those that they need.
	local wanted
	mapfile -t wanted < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$package" |
		awk -v first="$package" '
			/^[^ ]/ { name = $1 }
			$1 == "Depends:" && $2 ~ /^z?lib/ { needs[name] = needs[name] " " $2 }
			END {
				list[n = 1] = first
				for (i = 1; i <= n; i++) {
					print list[i]
					k = split(needs[list[i]], more)
					for (j = 1; j <= k; j++) if (!seen[more[j]]++) list[++n] = more[j]
				}
			}')
	(cd "$work/debs" && quiet apt-get download -qq "${wanted[@]}") || die "not all of ${wanted[*]} can be fetched from $mirror"
	local deb libraries=("$work/root/usr/lib" \( -name '*.so' -o -name '*.so.[0-9]*' \) -not -name '*.py' -not -path '*/gconv/*' -not -path '*/engines-*')
	for deb in "$work"/debs/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
	find "${libraries[@]}" -type f -exec cp {} "$work/lib/" \;
	find "${libraries[@]}" -type l -exec cp -a -n {} "$work/lib/" \;
	cp "$work/root/usr/bin/llama-server" "$work/lib/"
	local loader
	loader=$(cd "$work/lib" && ls ld-*.so.* | head -n 1)
	rm -rf "$dir/lib"
	mv "$work/lib" "$dir/lib"
	wrap "'$dir/lib/$loader' --library-path '$dir/lib' '$dir/lib/llama-server'"
	runs || die "what was unpacked does not run: $("$dir/bin/llama-server" --version 2>&1 | tail -n 1)"
}

begin
work=$dir/.unpack
trap 'rm -rf "$work"' EXIT
if ! runs; then
	installed || release || unstable
	say "$("$dir/bin/llama-server" --version 2>&1 | head -n 1)"
fi
echo "$dir"
