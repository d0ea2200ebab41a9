package trie

import "unicode/utf8"

// maxName is how many bytes a name that a [Builder] writes has at most, except in Compat.
const maxName = 256

// longestName returns how many bytes a name may have. Names that were meant for another
// program are left as they are, as long as they can be read again: each byte that is not
// UTF-8 is written as three.
func (o *Options) longestName() int {
	if o.Compat {
		return maxKept / 3
	}
	return maxName
}

// named returns a name in the form in which it is written.
func (o *Options) named(name string) string {
	if len(name) <= o.longestName() {
		return name
	}
	return string(appendShort(nil, name))
}

// appendShort appends, for a name that is longer than maxName, its beginning and a hash of
// all of it, which together are at most that long.
func appendShort(dst []byte, name string) []byte {
	const digits = 16
	cut := maxName - digits - len("~")
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	dst = append(append(dst, name[:cut]...), '~')
	hash := uint64(0xcbf29ce484222325) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint64(name[i])) * 0x100000001b3
	}
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[hash>>shift&15])
	}
	return dst
}
