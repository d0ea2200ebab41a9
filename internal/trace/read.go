package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/openai"
)

// MaxLine is the longest line that a trace may have, in bytes, its end included.
// Longer ones are skipped in a recording, and an error in other formats.
const MaxLine = 64 << 20

const (
	maxBlockSize = 1 << 20
	maxMillis    = int64(maxTime / time.Millisecond)
)

// limits bound what is read.
type limits struct {
	tokens int // of a prompt or an answer
	line   int // in bytes
}

// readLimits are those of [Read].
var readLimits = limits{tokens: 1 << 24, line: MaxLine}

// ReadOptions say what a trace itself does not.
type ReadOptions struct {
	// BlockSize is the number of tokens that an id of Mooncake's format stands for;
	// 0 means [DefaultBlockSize]. The other formats say it themselves: of those,
	// it leaves out the requests with hashes of blocks of another size, unless it
	// is 0.
	BlockSize int
	// Model leaves out the requests for other models, in formats that name it.
	Model string
}

// ErrBlockSize is behind the errors of traces whose block size has to be chosen
// with [ReadOptions], because it is not what the trace says or because the trace
// says several.
var ErrBlockSize = errors.New("block size")

// blockSizeError says what is wrong and is an [ErrBlockSize].
type blockSizeError string

func (e blockSizeError) Error() string { return string(e) }

func (e blockSizeError) Is(target error) bool { return target == ErrBlockSize }

// LineError is what is wrong with a line of a trace.
type LineError struct {
	Line   int    // from 1
	Member string // of the object; empty when it is the line as a whole
	Err    error
}

func (e *LineError) Error() string {
	if e.Member == "" {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", e.Line, e.Member, e.Err)
}

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Read reads a trace: rows of this package, Mooncake's format, or Dynamo's
// request trace, told apart by the first line; plain, or compressed with gzip or
// zstd. Empty lines are skipped, and so is a byte order mark. A fault in a line is
// a *[LineError]; a trace without requests is [ErrEmpty].
//
// A recording may end in the middle of a row, plain or compressed, because it
// still grows or because of a crash. That row counts as skipped, as do rows which
// [Skipped] lists. Files of rows can be concatenated, such a one included.
func Read(r io.Reader, opts ReadOptions) (*Trace, error) {
	return read(r, opts, readLimits)
}

func read(r io.Reader, opts ReadOptions, limit limits) (*Trace, error) {
	if opts.BlockSize < 0 || opts.BlockSize > maxBlockSize {
		return nil, fmt.Errorf("block size: expected 1 to %d, got %d", maxBlockSize, opts.BlockSize)
	}
	plain, err := decompress(r)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	lines := newLineReader(plain, limit.line)
	var into format
	for lines.next() {
		if into == nil && bytes.HasPrefix(lines.text, rowStart) {
			into = newRecording("stator", opts, limit.tokens) // before it is known whether all of the row is there
		}
		if into, err = add(into, lines, opts, limit); err != nil {
			return nil, lines.fault(err)
		}
	}
	if err := lines.err; err != io.EOF {
		c, ok := into.(*recording)
		if !ok || !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, lines.fault(err)
		}
		c.skipped.CutOff++
	}
	if into == nil {
		return nil, ErrEmpty
	}
	t, err := into.trace()
	if err != nil {
		return nil, err
	}
	if len(t.Requests) == 0 {
		if t.Skipped.Rows() > 0 {
			return nil, fmt.Errorf("%w: %v", ErrEmpty, t.Skipped)
		}
		return nil, ErrEmpty
	}
	return t, nil
}

// add takes a line into the trace, whose format the first one says.
func add(into format, line *lineReader, opts ReadOptions, limit limits) (format, error) {
	c, _ := into.(*recording)
	if line.long {
		if c == nil {
			return into, fmt.Errorf("longer than %d MiB", limit.line>>20)
		}
		c.skipped.TooLong++
		return into, nil
	}
	o, err := openai.ParseObject(line.text)
	var syntax *openai.SyntaxError
	if c != nil && errors.As(err, &syntax) {
		// A crash cut the row off. Either it is the last, or another file begins
		// right after it.
		next := bytes.LastIndex(line.text, rowStart)
		if next <= 0 && !line.cut {
			return into, err
		}
		c.skipped.CutOff += max(1, bytes.Count(line.text[1:], rowStart))
		if next <= 0 {
			return into, nil
		}
		if o, err = openai.ParseObject(line.text[next:]); err != nil && line.cut {
			c.skipped.CutOff++
			return into, nil
		}
	}
	if err != nil {
		return into, err
	}
	if into == nil {
		if into, err = detect(&o, opts, limit.tokens); err != nil {
			return nil, err
		}
	}
	return into, into.add(&o)
}

// format collects the lines of a trace.
type format interface {
	// add takes the object of a line in. It keeps nothing of the object's bytes.
	// Errors are *memberError, or about the line as a whole.
	add(o *openai.Object) error
	trace() (*Trace, error)
}

// detect finds out by the first object what a file holds.
func detect(o *openai.Object, opts ReadOptions, maxTokens int) (format, error) {
	schema, _ := o.Get("schema").Text()
	switch {
	case schema == Schema:
		return newRecording("stator", opts, maxTokens), nil
	case schema == dynamoSchema, o.Get("event").Kind() == '{':
		return newRecording("dynamo", opts, maxTokens), nil
	case o.Get("schema") != nil:
		return nil, &memberError{"schema", fmt.Errorf("expected %s or %s, got %s", Schema, dynamoSchema, brief(o.Get("schema")))}
	}
	for _, key := range []string{"hash_ids", "input_length", "output_length", "timestamp"} {
		if o.Get(key) != nil {
			return newMooncake(opts, maxTokens), nil
		}
	}
	return nil, fmt.Errorf("expected a request, with hash_ids as in Mooncake's traces or with schema %s", Schema)
}

// decompress returns r, decompressed if it begins like a compressed file.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case isZstd(head):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// isZstd reports whether data begins with a zstd frame, or with one to skip.
func isZstd(data []byte) bool {
	return bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(data) >= 4 && data[0]&0xf0 == 0x50 && data[1] == 0x2a && data[2] == 0x4d && data[3] == 0x18
}

// memberError is what is wrong with a member of an object.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return e.member + ": " + e.err.Error() }

func (e *memberError) Unwrap() error { return e.err }

// expected returns the error of a member that is not as it must be.
func expected(member, what string, got openai.Value) error {
	return &memberError{member, fmt.Errorf("expected %s, got %s", what, brief(got))}
}

// brief returns a value for an error message.
func brief(v openai.Value) string {
	if k := v.Kind(); len(v) > 40 || k == '{' || k == '[' || k == 0 {
		return v.TypeName()
	}
	return string(v)
}

// pick returns the first of the members that is there and not null, and its name;
// otherwise nothing and the first name.
func pick(o *openai.Object, names ...string) (string, openai.Value) {
	for _, name := range names {
		if v := o.Get(name); v.Present() {
			return name, v
		}
	}
	return names[0], nil
}

// count reads a whole number from low to high. One with a fraction of zero is
// whole, too.
func count(member string, v openai.Value, low, high int) (int, error) {
	n, ok := v.Uint()
	if !ok && v.Kind() == '0' {
		f, err := strconv.ParseFloat(string(v), 64)
		if err == nil && f >= 0 && f <= math.MaxInt32 && f == math.Trunc(f) {
			n, ok = uint64(f), true
		}
	}
	if !ok || n < uint64(low) || n > uint64(high) {
		return 0, expected(member, fmt.Sprintf("a whole number from %d to %d", low, high), v)
	}
	return int(n), nil
}

// text reads a string, empty if there is none.
func text(member string, v openai.Value) (string, error) {
	if !v.Present() {
		return "", nil
	}
	s, ok := v.Text()
	if !ok || !utf8.ValidString(s) {
		return "", expected(member, "a string in UTF-8", v)
	}
	return s, nil
}

// millis reads a time in milliseconds, to the nanosecond. Plain decimals are read
// without a float in between, so that what [WriteMooncake] writes comes back.
func millis(member string, v openai.Value) (time.Duration, error) {
	d, ok := plainMillis(v)
	if !ok && v.Kind() == '0' {
		f, err := strconv.ParseFloat(string(v), 64)
		if err == nil && f >= 0 && f <= float64(maxMillis) {
			d, ok = time.Duration(math.Round(f*float64(time.Millisecond))), true
		}
	}
	if !ok {
		return 0, expected(member, "a number of milliseconds that is not negative", v)
	}
	return d, nil
}

func plainMillis(v openai.Value) (time.Duration, bool) {
	var whole int64
	i := 0
	for ; i < len(v) && v[i]-'0' <= 9; i++ {
		whole = whole*10 + int64(v[i]-'0')
		if whole > maxMillis {
			return 0, false
		}
	}
	if i == 0 {
		return 0, false
	}
	ns := whole * int64(time.Millisecond)
	if i == len(v) {
		return time.Duration(ns), true
	}
	if v[i] != '.' || len(v)-i-1 > 6 {
		return 0, false
	}
	unit := int64(time.Millisecond)
	for _, c := range v[i+1:] {
		if c-'0' > 9 {
			return 0, false
		}
		unit /= 10
		ns += unit * int64(c-'0')
	}
	return time.Duration(ns), true
}

// appendUints appends the elements of an array of whole numbers.
func appendUints(dst []uint64, member string, v openai.Value) ([]uint64, error) {
	if v.Kind() != '[' {
		return dst, expected(member, "an array", v)
	}
	// The array is well-formed JSON.
	for i := 1; i < len(v)-1; {
		switch v[i] {
		case ' ', '\t', ',', '\r', '\n':
			i++
			continue
		}
		start := i
		var n uint64
		for ; i < len(v) && v[i]-'0' <= 9; i++ {
			digit := uint64(v[i] - '0')
			if n > (math.MaxUint64-digit)/10 {
				return dst, &memberError{fmt.Sprintf("%s[%d]", member, len(dst)), errors.New("expected a number below 2^64")}
			}
			n = n*10 + digit
		}
		if c := v[i]; i == start || c != ',' && c != ']' && c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return dst, &memberError{fmt.Sprintf("%s[%d]", member, len(dst)), errors.New("expected a whole number that is not negative")}
		}
		dst = append(dst, n)
	}
	return dst, nil
}
