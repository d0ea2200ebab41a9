package nvext

import (
	"errors"
	"iter"
	"strings"
)

const (
	// MaxMetaEntries is how many metadata headers a request may have.
	MaxMetaEntries = 64
	// MaxMetaBytes is how long their keys and values may be together.
	MaxMetaBytes = 64 << 10
)

// ErrMetaTooLarge is returned for more metadata than [MaxMetaEntries] or
// [MaxMetaBytes] allow. It deserves HTTP status 431.
var ErrMetaTooLarge = errors.New("nvext: x-dynamo-meta-* headers exceed 64 entries or 64 KiB")

// ApplyMeta collects the headers X-Dynamo-Meta-<key> into e.Meta under <key> in
// lower case and returns e, or a new NvExt if e is nil and there are some. all
// yields each name and value of the request's headers, in any spelling of the
// name. Of a repeated header the last value stays; each occurrence counts
// towards the limits.
//
// Credentials are left out: a key that ends in "authorization" and a value of
// the bearer scheme.
//
// With [ErrMetaTooLarge] e is returned unchanged.
func ApplyMeta(e *NvExt, all iter.Seq2[string, string]) (*NvExt, error) {
	var m metadata
	all(m.add)
	switch {
	case m.tooLarge:
		return e, ErrMetaTooLarge
	case m.entries == nil:
		return e, nil
	case e == nil:
		e = new(NvExt)
	}
	e.Meta = m.entries
	return e, nil
}

// metadata is what ApplyMeta has collected so far.
type metadata struct {
	entries      map[string]string
	count, bytes int
	tooLarge     bool
}

// add takes one header, and reports whether to go on.
func (m *metadata) add(name, value string) bool {
	key, ok := metaKey(name)
	if !ok || isCredential(key, value) {
		return true
	}
	m.count++
	m.bytes += len(key) + len(value)
	if m.count > MaxMetaEntries || m.bytes > MaxMetaBytes {
		m.tooLarge = true
		return false
	}
	if m.entries == nil {
		m.entries = make(map[string]string)
	}
	m.entries[strings.ToLower(key)] = value
	return true
}

// metaKey is the part of a metadata header's name that is the client's own.
func metaKey(name string) (string, bool) {
	const n = len(HeaderMetaPrefix)
	if len(name) <= n || !strings.EqualFold(name[:n], HeaderMetaPrefix) {
		return "", false
	}
	return name[n:], true
}

func isCredential(key, value string) bool {
	return hasSuffixFold(key, "authorization") || hasPrefixFold(strings.TrimSpace(value), "bearer ")
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
