package jinja

import (
	"strings"
	"unicode/utf8"
)

// Python's view of strings: sequences of code points, whose whitespace includes
// the separators of Unicode and of ASCII.

func runeLen(s string) int { return utf8.RuneCountInString(s) }

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool {
	switch {
	case r < 0x80:
		return '\t' <= r && r <= '\r' || 0x1c <= r && r <= ' '
	case r == 0x85, r == 0xA0, r == 0x1680, 0x2000 <= r && r <= 0x200A,
		r == 0x2028, r == 0x2029, r == 0x202F, r == 0x205F, r == 0x3000:
		return true
	}
	return false
}

func trimLeftSpace(s string) string  { return strings.TrimLeftFunc(s, isSpace) }
func trimRightSpace(s string) string { return strings.TrimRightFunc(s, isSpace) }
func trimSpace(s string) string      { return trimLeftSpace(trimRightSpace(s)) }

// offset returns the byte offset of the code point i of s, counted from the end
// when i is negative. Beyond an end it is that end.
func offset(s string, i int64) int {
	if i >= 0 {
		p := 0
		for ; i > 0 && p < len(s); i-- {
			if s[p] < utf8.RuneSelf {
				p++
				continue
			}
			_, n := utf8.DecodeRuneInString(s[p:])
			p += n
		}
		return p
	}
	p := len(s)
	for ; i < 0 && p > 0; i++ {
		_, n := utf8.DecodeLastRuneInString(s[:p])
		p -= n
	}
	return p
}

// runeAt returns the code point i of s, counted from the end when i is negative.
func runeAt(s string, i int64) (string, bool) {
	if i >= int64(len(s)) || i < -int64(len(s)) {
		return "", false
	}
	p := offset(s, i)
	if p == len(s) || i < 0 && p == 0 && int64(runeLen(s)) < -i {
		return "", false
	}
	_, n := utf8.DecodeRuneInString(s[p:])
	return s[p : p+n], true
}

// sliceString is s[start:stop:step].
func sliceString(st *state, s string, b *sliceBounds) (string, error) {
	if !b.given[2] || b.val[2] == 1 {
		ends := [2]int{0, len(s)}
		for i := range ends {
			if !b.given[i] {
				continue
			}
			ends[i] = offset(s, b.val[i])
			walked := ends[i]
			if b.val[i] < 0 {
				walked = len(s) - ends[i]
			}
			if err := st.walk(walked); err != nil {
				return "", err
			}
		}
		if ends[0] >= ends[1] {
			return "", nil
		}
		return s[ends[0]:ends[1]], nil
	}
	if err := st.walk(len(s)); err != nil {
		return "", err
	}
	r, err := b.indices(runeLen(s))
	if err != nil {
		return "", err
	}
	n := r.len()
	if err := st.alloc(4 * len(s)); err != nil {
		return "", err
	}
	chars := []rune(s)
	out := make([]rune, n)
	for i := range out {
		out[i] = chars[r.at(i)]
	}
	return string(out), nil
}

func indexString(st *state, s, sub string) (bool, error) {
	if err := st.scan(len(s)); err != nil {
		return false, err
	}
	return strings.Contains(s, sub), nil
}

// splitSpace is s.split(None, max); max is negative for no bound.
func splitSpace(s string, max int) []string {
	var parts []string
	for s = trimLeftSpace(s); s != ""; s = trimLeftSpace(s) {
		if max >= 0 && len(parts) == max {
			return append(parts, s)
		}
		i := strings.IndexFunc(s, isSpace)
		if i < 0 {
			return append(parts, s)
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
	return parts
}

// rsplitSpace is s.rsplit(None, max), last part first.
func rsplitSpace(s string, max int) []string {
	var parts []string
	for s = trimRightSpace(s); s != ""; s = trimRightSpace(s) {
		if max >= 0 && len(parts) == max {
			return append(parts, s)
		}
		i := strings.LastIndexFunc(s, isSpace)
		if i < 0 {
			return append(parts, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		parts = append(parts, s[i+n:])
		s = s[:i]
	}
	return parts
}

// rsplit is s.rsplit(sep, max), last part first.
func rsplit(s, sep string, max int) []string {
	var parts []string
	for max < 0 || len(parts) < max {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	return append(parts, s)
}

// splitLines is s.splitlines(keep).
func splitLines(s string, keep bool) []string {
	var lines []string
	start := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		end := i
		i += n
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		case '\r':
			if i < len(s) && s[i] == '\n' {
				i++
			}
		default:
			continue
		}
		if keep {
			end = i
		}
		lines = append(lines, s[start:end])
		start = i
	}
	if start < len(s) {
		lines = append(lines, s[start:])
	}
	return lines
}

// pad fills s up to width code points with fill, left and right.
func pad(st *state, s string, width int, fill string, left bool, right bool) (string, error) {
	n := width - runeLen(s)
	if n <= 0 {
		return s, nil
	}
	l, r := 0, 0
	switch {
	case left && right:
		// The extra character of an odd margin goes left where the width is odd.
		l = n/2 + n&width&1
		r = n - l
	case left:
		l = n
	default:
		r = n
	}
	before, err := st.repeat(fill, l)
	if err != nil {
		return "", err
	}
	after, err := st.repeat(fill, r)
	if err != nil {
		return "", err
	}
	return st.join(before, s, after)
}

// escapeHTML escapes what HTML gives a meaning.
func escapeHTML(s string) string { return htmlEscaper.Replace(s) }

var htmlEscaper = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")
