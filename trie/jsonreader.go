package trie

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"
)

const (
	// maxKept is the longest name or id that is kept, in bytes.
	maxKept = 64 << 10
	// maxNesting is how deep values may nest: as deep as Python writes them.
	maxNesting = 1000
)

// jsonReader pulls what is wanted out of a stream of JSON values. The rest, prompts above
// all, is passed over in pieces of its buffer and never held as a whole; of that only the
// structure is checked. NaN and the infinities are numbers, as Python writes them.
//
// Errors are *readError, or what the underlying reader returns.
type jsonReader struct {
	r        io.Reader
	buf      []byte
	pos, end int   // what is left in buf
	base     int64 // bytes of the input before buf
	lines    int   // line feeds in those
	failed   error // why there is nothing after buf; io.EOF at the end

	text  []byte // the last string or number
	long  bool   // and text is only its beginning
	depth int
	names interned
}

func newJSONReader(r io.Reader) *jsonReader {
	return &jsonReader{r: r, buf: make([]byte, 64<<10), names: make(interned)}
}

// reset makes it read one line of an input, at an offset, and nothing else.
func (j *jsonReader) reset(line []byte, number int, offset int64) {
	j.r, j.failed = nil, io.EOF
	j.buf, j.pos, j.end = line, 0, len(line)
	j.base, j.lines, j.depth = offset, number-1, 0
}

// interned has strings that were seen, so that names which all steps have are held once.
type interned map[string]string

const (
	maxInterned      = 1 << 14
	maxInternedBytes = 128 // of one; what is longer seldom comes again
)

func (in interned) string(text []byte) string {
	if len(text) > maxInternedBytes {
		return string(text)
	}
	s, known := in[string(text)]
	if !known {
		if len(in) == maxInterned {
			clear(in)
		}
		s = string(text)
		in[s] = s
	}
	return s
}

// readError is what is wrong with an input, and where.
type readError struct {
	line int
	path string // from the value at the top, as "steps[3].payload"; may be empty
	err  error
}

func (e *readError) Error() string {
	if e.path == "" {
		return fmt.Sprintf("line %d: %v", e.line, e.err)
	}
	return fmt.Sprintf("line %d: %s: %v", e.line, shortened(e.path), e.err)
}

// maxShown is how much of a path an error shows, in bytes.
const maxShown = 240

// shortened leaves out the middle of a long path.
func shortened(path string) string {
	if len(path) <= maxShown {
		return path
	}
	head, tail := maxShown/2, len(path)-maxShown/2
	for head > 0 && !utf8.RuneStart(path[head]) {
		head--
	}
	for tail < len(path) && !utf8.RuneStart(path[tail]) {
		tail++
	}
	return path[:head] + "…" + path[tail:]
}

func (e *readError) Unwrap() error { return e.err }

// cutOff is the error of an input that ends inside a value.
type cutOff int64

func (e cutOff) Error() string {
	return fmt.Sprintf("cut off: the input ends here, at byte %d", int64(e))
}

func (cutOff) Unwrap() error { return io.ErrUnexpectedEOF }

// within says in which member or element an error is, if there is one.
func within(name string, err error) error {
	if err == nil {
		return nil
	}
	var e *readError
	if !errors.As(err, &e) {
		return err
	}
	if e.path != "" && e.path[0] != '[' {
		name += "."
	}
	return &readError{e.line, name + e.path, e.err}
}

// errorf returns an error at the present place.
func (j *jsonReader) errorf(format string, args ...any) error {
	return &readError{line: j.line(), err: fmt.Errorf(format, args...)}
}

func (j *jsonReader) line() int {
	return 1 + j.lines + bytes.Count(j.buf[:j.pos], []byte{'\n'})
}

// ended returns the error for the end of the input inside a value.
func (j *jsonReader) ended() error {
	if j.failed != io.EOF && !errors.Is(j.failed, io.ErrUnexpectedEOF) {
		return fmt.Errorf("line %d: %w", j.line(), j.failed)
	}
	return &readError{line: j.line(), err: cutOff(j.base + int64(j.pos))}
}

// fill replaces the buffer, all of which is used, by what follows. It returns false at the
// end.
func (j *jsonReader) fill() bool {
	if j.failed != nil {
		return false
	}
	j.base += int64(j.end)
	j.lines += bytes.Count(j.buf[:j.end], []byte{'\n'})
	j.pos, j.end = 0, 0
	for range 100 {
		n, err := j.r.Read(j.buf)
		j.end, j.failed = n, err
		if n > 0 || err != nil {
			return n > 0
		}
	}
	j.failed = io.ErrNoProgress
	return false
}

// next takes a byte.
func (j *jsonReader) next() (byte, error) {
	if j.pos == j.end && !j.fill() {
		return 0, j.ended()
	}
	j.pos++
	return j.buf[j.pos-1], nil
}

// more reports whether something other than space is left, at which it stands then. The
// error is that of the underlying reader.
func (j *jsonReader) more() (bool, error) {
	const bom = "\ufeff"
	for {
		for j.pos < j.end {
			switch j.buf[j.pos] {
			case ' ', '\t', '\n', '\r':
				j.pos++
				continue
			case bom[0]:
				if j.base == 0 && j.pos == 0 && bytes.HasPrefix(j.buf[:j.end], []byte(bom)) {
					j.pos = len(bom)
					continue
				}
			}
			return true, nil
		}
		if !j.fill() {
			if j.failed != io.EOF {
				return false, j.ended()
			}
			return false, nil
		}
	}
}

// kind returns the byte with which the next value begins, or another that is not space.
func (j *jsonReader) kind() (byte, error) {
	ok, err := j.more()
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, j.ended()
	}
	return j.buf[j.pos], nil
}

// wrong returns the error of a value of the wrong type, which is still to be read.
func (j *jsonReader) wrong(want string) error {
	c, err := j.kind()
	if err != nil {
		return err
	}
	got := ""
	switch c {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case 't', 'f':
		got = "a boolean"
	case 'n':
		got = "null"
	default:
		if c != '-' && c != 'N' && c != 'I' && (c < '0' || c > '9') {
			return j.errorf("expected %s, got %q", want, c)
		}
		got = "a number"
	}
	return j.errorf("expected %s, got %s", want, got)
}

// object calls member with the name of each member, which is to read its value. The name is
// valid until then.
func (j *jsonReader) object(member func(name []byte) error) error {
	return j.list('{', '}', "an object", func(int) error {
		if c, err := j.kind(); err != nil {
			return err
		} else if c != '"' {
			return j.errorf("expected the name of a member, got %q", c)
		}
		if err := j.scanString(true); err != nil {
			return err
		}
		if c, err := j.kind(); err != nil {
			return err
		} else if c != ':' {
			return j.errorf("expected a colon after the name of a member, got %q", c)
		}
		j.pos++
		if j.long {
			return j.skip()
		}
		return member(j.text)
	})
}

// array calls element with the index of each element, which is to read it.
func (j *jsonReader) array(element func(i int) error) error {
	return j.list('[', ']', "an array", element)
}

func (j *jsonReader) list(opening, closing byte, what string, item func(i int) error) error {
	if c, err := j.kind(); err != nil {
		return err
	} else if c != opening {
		return j.wrong(what)
	}
	if j.depth == maxNesting {
		return j.errorf("expected at most %d levels", maxNesting)
	}
	j.depth++
	j.pos++
	c, err := j.kind()
	if err != nil {
		return err
	}
	for i := 0; c != closing; i++ {
		if err := item(i); err != nil {
			return err
		}
		if c, err = j.kind(); err != nil {
			return err
		}
		switch c {
		case closing:
		case ',':
			j.pos++
			if c, err = j.kind(); err != nil {
				return err
			}
			if c == closing {
				return j.errorf("expected another value after a comma, got %q", c)
			}
		default:
			return j.errorf("expected a comma or %q, got %q", closing, c)
		}
	}
	j.pos++
	j.depth--
	return nil
}

// skip passes over a value.
func (j *jsonReader) skip() error {
	c, err := j.kind()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		return j.object(func([]byte) error { return j.skip() })
	case '[':
		return j.array(func(int) error { return j.skip() })
	case '"':
		return j.scanString(false)
	case 't':
		return j.word("true")
	case 'f':
		return j.word("false")
	case 'n':
		return j.word("null")
	default:
		return j.scanNumber()
	}
}

// null passes over a null, if that is what comes next.
func (j *jsonReader) null() (bool, error) {
	c, err := j.kind()
	if err != nil || c != 'n' {
		return false, err
	}
	return true, j.word("null")
}

func (j *jsonReader) word(word string) error {
	for i := range len(word) {
		c, err := j.next()
		if err != nil {
			return err
		}
		if c != word[i] {
			return j.errorf("expected %s, got %q in it", word, c)
		}
	}
	return nil
}

// string reads a string.
func (j *jsonReader) string() (string, error) {
	if c, err := j.kind(); err != nil {
		return "", err
	} else if c != '"' {
		return "", j.wrong("a string")
	}
	if err := j.scanString(true); err != nil {
		return "", err
	}
	if j.long {
		return "", j.errorf("expected at most %d bytes", maxKept)
	}
	return j.names.string(j.text), nil
}

// maybeString reads a string, or null as an empty one.
func (j *jsonReader) maybeString() (string, error) {
	if none, err := j.null(); none || err != nil {
		return "", err
	}
	return j.string()
}

// number reads a number, which may not be finite.
func (j *jsonReader) number() (float64, error) {
	c, err := j.kind()
	if err != nil {
		return 0, err
	}
	if c != '-' && c != 'N' && c != 'I' && (c < '0' || c > '9') {
		return 0, j.wrong("a number")
	}
	if err := j.scanNumber(); err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(j.text), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || j.long {
		return 0, j.errorf("expected a number, got %.40q", j.text)
	}
	return f, nil
}

// maybeNumber reads a number, or null as nil.
func (j *jsonReader) maybeNumber() (*float64, error) {
	if none, err := j.null(); none || err != nil {
		return nil, err
	}
	f, err := j.number()
	return &f, err
}

// maybeCount reads a whole number that is not negative, or null as nil.
func (j *jsonReader) maybeCount() (*int, error) {
	f, err := j.maybeNumber()
	if f == nil || err != nil {
		return nil, err
	}
	n, ok := wholeNumber(*f)
	if !ok {
		return nil, j.errorf("expected a whole number from 0 to %d, got %.40s", math.MaxInt32, j.text)
	}
	return &n, nil
}

// wholeNumber returns a number as how many there are of something.
func wholeNumber(f float64) (int, bool) {
	if !(f >= 0 && f <= math.MaxInt32) || f != math.Trunc(f) {
		return 0, false
	}
	return int(f), true
}
