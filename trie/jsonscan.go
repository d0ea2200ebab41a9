package trie

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

var notFinite = []string{"NaN", "Infinity", "-Infinity"}

// scanNumber reads a number, or one of the words for those that are not finite, into text.
func (j *jsonReader) scanNumber() error {
	j.text, j.long = j.text[:0], false
	for j.pos < j.end || j.fill() {
		c := j.buf[j.pos]
		if !isNumeric(c) {
			break
		}
		j.pos++
		if len(j.text) == maxKept {
			j.long = true
			continue
		}
		j.text = append(j.text, c)
	}
	if j.pos == j.end && j.failed != io.EOF {
		return j.ended()
	}
	switch {
	case len(j.text) == 0:
		return j.errorf("expected a value, got %q", j.buf[j.pos])
	case j.pos == j.end && slices.ContainsFunc(notFinite, func(word string) bool {
		return len(j.text) < len(word) && strings.HasPrefix(word, string(j.text))
	}):
		return j.ended()
	case isDigit(j.text[0]), len(j.text) > 1 && j.text[0] == '-' && isDigit(j.text[1]):
		if bytes.ContainsFunc(j.text, func(r rune) bool { return r != 'e' && r >= 'A' && r != 'E' }) {
			break
		}
		return nil
	case slices.Contains(notFinite, string(j.text)):
		return nil
	}
	return j.errorf("expected a value, got %.40q", j.text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isNumeric reports whether c may be in a number, or in NaN or Infinity.
func isNumeric(c byte) bool {
	return isDigit(c) || c == '-' || c == '+' || c == '.' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// scanString reads a string, and if it is to be kept, the first maxKept bytes of it into
// text. What is not UTF-8 becomes U+FFFD.
func (j *jsonReader) scanString(keep bool) error {
	j.text, j.long = j.text[:0], false
	j.pos++ // the quote
	for {
		start := j.pos
		for j.pos < j.end && j.buf[j.pos] != '"' && j.buf[j.pos] != '\\' && j.buf[j.pos] >= ' ' {
			j.pos++
		}
		if keep {
			j.keep(j.buf[start:j.pos]...)
		}
		c, err := j.next()
		switch {
		case err != nil:
			return err
		case c == '"':
			if keep && !utf8.Valid(j.text) {
				j.text = bytes.ToValidUTF8(j.text, []byte("\ufffd"))
			}
			return nil
		case c == '\\':
			if err := j.escape(keep); err != nil {
				return err
			}
		case c < ' ':
			return j.errorf("expected an escape in a string, got the control character %q", c)
		default: // the first of another buffer
			j.pos--
		}
	}
}

func (j *jsonReader) keep(text ...byte) {
	if room := maxKept - len(j.text); len(text) > room {
		text, j.long = text[:room], true
	}
	j.text = append(j.text, text...)
}

// escape reads what comes after a backslash.
func (j *jsonReader) escape(keep bool) error {
	c, err := j.next()
	if err != nil {
		return err
	}
	if c == 'u' {
		return j.unicode(keep)
	}
	i := bytes.IndexByte([]byte(`"\/bfnrt`), c)
	if i < 0 {
		return j.errorf("expected an escape such as \\n, got \\%c", c)
	}
	if keep {
		j.keep("\"\\/\b\f\n\r\t"[i])
	}
	return nil
}

// unicode reads what comes after \u, and the second half of a pair.
func (j *jsonReader) unicode(keep bool) error {
	r, err := j.hex()
	if err != nil || !keep {
		return err
	}
	if utf16.IsSurrogate(r) && j.follows(`\u`) {
		j.pos += 2
		second, err := j.hex()
		if err != nil {
			return err
		}
		if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
			r = pair
		} else { // two that do not belong together
			j.keep(utf8.AppendRune(nil, utf8.RuneError)...)
			r = second
		}
	}
	j.keep(utf8.AppendRune(nil, r)...)
	return nil
}

// follows reports whether text comes next, unless the buffer ends in it.
func (j *jsonReader) follows(text string) bool {
	if j.end-j.pos < len(text) {
		j.compact()
	}
	return bytes.HasPrefix(j.buf[j.pos:j.end], []byte(text))
}

// compact moves what is left to the beginning of the buffer and reads more behind it.
func (j *jsonReader) compact() {
	j.base += int64(j.pos)
	j.lines += bytes.Count(j.buf[:j.pos], []byte{'\n'})
	j.end = copy(j.buf, j.buf[j.pos:j.end])
	j.pos = 0
	for range 100 {
		if j.failed != nil || j.end >= 2 {
			return
		}
		n, err := j.r.Read(j.buf[j.end:])
		j.end += n
		j.failed = err
	}
}

func (j *jsonReader) hex() (rune, error) {
	var r rune
	for range 4 {
		c, err := j.next()
		if err != nil {
			return 0, err
		}
		d, err := strconv.ParseUint(string(c), 16, 4)
		if err != nil {
			return 0, j.errorf("expected four hexadecimal digits after \\u, got %q", c)
		}
		r = r<<4 | rune(d)
	}
	return r, nil
}
