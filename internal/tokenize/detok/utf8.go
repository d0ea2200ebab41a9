package detok

import "unicode/utf8"

var replacement = []byte("\uFFFD")

// joiner puts bytes together to characters. Each longest part of the input that
// could begin a character but is not followed by the rest of it, and each byte that
// cannot begin one, becomes one U+FFFD.
type joiner struct {
	pending [utf8.UTFMax]byte // the beginning of a character
	n       int
	prompt  int // how many of the pending bytes are the prompt's
}

// write takes more bytes and appends the characters that are complete to dst.
func (j *joiner) write(dst, b []byte) []byte {
	for len(b) > 0 {
		if j.n == 0 {
			n := validPrefix(b)
			dst = append(dst, b[:n]...)
			if b = b[n:]; len(b) == 0 {
				break
			}
		}
		j.pending[j.n] = b[0]
		char := j.pending[:j.n+1]
		switch {
		case !utf8.FullRune(char):
			j.n++
			b = b[1:]
		case utf8.Valid(char):
			dst = append(dst, char...)
			j.n, j.prompt = 0, 0
			b = b[1:]
		case j.n == 0:
			dst = append(dst, replacement...)
			b = b[1:]
		default: // b[0] is not the continuation; it is looked at again by itself
			dst = j.flush(dst)
		}
	}
	return dst
}

// flush appends what is left of a character that does not go on.
func (j *joiner) flush(dst []byte) []byte {
	if j.n > j.prompt {
		dst = append(dst, replacement...)
	}
	j.n, j.prompt = 0, 0
	return dst
}

// validPrefix returns the length of the longest beginning of b that is UTF-8.
func validPrefix(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	n := 0
	for {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			return n
		}
		n += size
	}
}
