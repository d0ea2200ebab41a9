# What the setup scripts have in common. Whoever sources it sets name, for messages, and
# dir, what is installed into.

say() { echo "$name: $*" >&2; }
die() { say "$*"; exit 1; }

# sum FILE prints the SHA-256 of a file, or nothing if there is none.
sum() {
	[ -f "$1" ] || return 0
	if command -v sha256sum >/dev/null; then sha256sum <"$1"; else shasum -a 256 <"$1"; fi | cut -d' ' -f1
}

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

# venv PYTHON makes an empty Python environment.
venv() {
	rm -rf "$dir/venv"
	if ! "$1" -m venv "$dir/venv" >&2; then
		debian python3-venv || die "$1 -m venv does not work: install it, on Debian with: apt-get install python3-venv"
		"$1" -m venv --clear "$dir/venv" >&2
	fi
}

# environment MODULE PACKAGE... makes the Python environment with packages from PyPI. A
# file with the versions says that it is complete, and that the module can be imported
# that it works.
environment() {
	local module=$1
	shift
	local want="$*"
	[ "$(cat "$dir/venv/versions" 2>/dev/null)" = "$want" ] && "$dir/venv/bin/python" -c "import $module" 2>/dev/null && return
	need python3 python3
	say "installing $want from PyPI into $dir/venv"
	venv python3
	"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
	echo "$want" >"$dir/venv/versions"
}

# begin makes the directory and has one script at a time go on, where the system can
# tell.
begin() {
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	exec 9>"$dir/.lock"
	! command -v flock >/dev/null || flock 9
}
