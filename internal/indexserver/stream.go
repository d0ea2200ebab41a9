package indexserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
)

// values reads JSON from a stream piece by piece. It holds one value at a time, and
// checks only what is between the values that it hands out: whoever decodes one
// finds what is wrong inside.
type values struct {
	r     io.Reader
	limit int // bytes of one value

	buf     []byte
	at, end int   // buf[at:end] is not used yet
	before  int64 // bytes of the stream before buf
	err     error // of r
}

func newValues(r io.Reader, limit int) *values {
	return &values{r: r, limit: limit, buf: make([]byte, min(limit, 64<<10))}
}

var errValueSize = errors.New("a value is too large")

// fill reads more behind what is there, of which the part from keep on is needed. It
// returns where that part is now, also with an error.
func (v *values) fill(keep int) (int, error) {
	if v.err != nil {
		return keep, v.err
	}
	if keep > 0 {
		copy(v.buf, v.buf[keep:v.end])
		v.at, v.end, v.before = v.at-keep, v.end-keep, v.before+int64(keep)
	}
	if v.end == len(v.buf) {
		if v.end >= v.limit {
			return 0, fmt.Errorf("%w: more than %d bytes at byte %d", errValueSize, v.limit, v.before)
		}
		grown := make([]byte, min(2*len(v.buf), v.limit))
		copy(grown, v.buf[:v.end])
		v.buf = grown
	}
	for range 100 {
		n, err := v.r.Read(v.buf[v.end:])
		v.end += n
		v.err = err
		if n > 0 {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
	}
	v.err = io.ErrNoProgress
	return 0, v.err
}

// next skips white space and returns the byte after it, or io.EOF.
func (v *values) next() (byte, error) {
	for {
		for ; v.at < v.end; v.at++ {
			if c := v.buf[v.at]; !isSpace(c) {
				return c, nil
			}
		}
		if _, err := v.fill(v.at); err != nil {
			return 0, err
		}
	}
}

// expect reads a byte that has to come.
func (v *values) expect(want string) (byte, error) {
	c, err := v.next()
	if err == nil && bytes.IndexByte([]byte(want), c) < 0 {
		err = fmt.Errorf("malformed JSON at byte %d: expected %s, got %q", v.before+int64(v.at), strings.Join(strings.Split(want, ""), " or "), c)
	}
	if err != nil {
		return 0, ended(err)
	}
	v.at++
	return c, nil
}

// ended is an end in the middle of something.
func ended(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// value returns the bytes of the next value, valid until the next call. Brackets
// match by number, strings end; the rest is unchecked.
func (v *values) value() ([]byte, error) {
	if _, err := v.next(); err != nil {
		return nil, ended(err)
	}
	start, depth, quoted := v.at, 0, false
	i := start
	for {
		for ; i < v.end; i++ {
			c := v.buf[i]
			if quoted {
				switch c {
				case '\\':
					i++ // what follows is no end, wherever the buffer ends
				case '"':
					quoted = false
					if depth == 0 {
						v.at = i + 1
						return v.buf[start:v.at], nil
					}
				}
				continue
			}
			switch c {
			case '"':
				if depth == 0 && i > start {
					return nil, v.broken(i, c)
				}
				quoted = true
			case '{', '[':
				if depth == 0 && i > start {
					return nil, v.broken(i, c)
				}
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					v.at = i + 1
					return v.buf[start:v.at], nil
				}
				if depth < 0 {
					return v.scalar(start, i)
				}
			case ',', ':', ' ', '\n', '\r', '\t':
				if depth == 0 {
					return v.scalar(start, i)
				}
			}
		}
		i -= start
		var err error
		start, err = v.fill(start)
		i += start
		switch {
		case err == io.EOF && depth == 0 && !quoted:
			return v.scalar(start, v.end)
		case err != nil:
			return nil, ended(err)
		}
	}
}

// scalar returns a number or a word that ends before end.
func (v *values) scalar(start, end int) ([]byte, error) {
	if start == end {
		return nil, v.broken(start, v.buf[start])
	}
	v.at = end
	return v.buf[start:end], nil
}

func (v *values) broken(i int, c byte) error {
	return fmt.Errorf("malformed JSON at byte %d: expected a value, got %q", v.before+int64(i), c)
}

// object reads an object and calls member with each key; member reads the value.
func (v *values) object(member func(key string) error) error {
	if _, err := v.expect("{"); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := v.next()
		if err != nil {
			return ended(err)
		}
		if c == '}' && first {
			v.at++
			return nil
		}
		raw, err := v.value()
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil || raw[0] != '"' || !utf8.Valid(raw) || openai.LoneSurrogate(raw) >= 0 {
			return fmt.Errorf("malformed JSON at byte %d: expected a key in double quotes", v.before+int64(v.at-len(raw)))
		}
		if _, err := v.expect(":"); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if c, err = v.expect(",}"); err != nil || c == '}' {
			return err
		}
	}
}

// array reads an array and calls element for each of its elements; element reads
// it.
func (v *values) array(element func() error) error {
	if _, err := v.expect("["); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := v.next()
		if err != nil {
			return ended(err)
		}
		if c == ']' && first {
			v.at++
			return nil
		}
		if err := element(); err != nil {
			return err
		}
		if c, err = v.expect(",]"); err != nil || c == ']' {
			return err
		}
	}
}

// finish checks that nothing but white space is left.
func (v *values) finish() error {
	c, err := v.next()
	if err == io.EOF {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("malformed JSON at byte %d: expected the end, got %q", v.before+int64(v.at), c)
	}
	return err
}
