package kvlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// MaxLine is the longest line that a recording may have, in bytes, its end included.
// It also bounds what a batch is put together from.
const MaxLine = 64 << 20

// maxFaults is how many lines that were skipped a [Reader] tells of.
const maxFaults = 10

// LineError is what is wrong with a line of a recording.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Skipped are the lines of a recording that hold no event.
type Skipped struct {
	Lines int
	First []*LineError // what is wrong with the first ten of them
}

// ErrTooLong says that a line is above [MaxLine].
var ErrTooLong = fmt.Errorf("expected at most %d MiB", MaxLine>>20)

// ErrCutOff says that a compressed recording ends in the middle of a frame.
var ErrCutOff = errors.New("cut off")

// Reader reads a recording. It is not safe for concurrent use.
//
// A line that is not an event is skipped and counted, as is what was cut off at the
// end, because a recording may be read while it still grows or after a crash. Blank
// lines are skipped as well.
type Reader struct {
	lines   lineReader
	closers []io.Closer
	skipped Skipped
	err     error

	held record // read already, but no part of the batch before; without a batch if there is none
}

// record is what is read of a line.
type record struct {
	at    time.Duration
	batch *kv.Batch
	size  int // of the line
}

// Open returns a reader of a file. An error is that of opening it, such as
// [io/fs.ErrNotExist]. Close the reader when done.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kvlog: %w", err)
	}
	r := NewReader(f)
	r.closers = append(r.closers, f)
	if r.err != nil { // as of a directory
		_ = r.Close()
		return nil, r.err
	}
	return r, nil
}

// NewReader returns a reader of what in holds: lines, or lines compressed with zstd,
// which it finds out by reading its beginning. Several recordings may follow one
// another, all of them compressed or none. Of compressed ones nothing is read after one
// that ends in the middle of a frame: the frame swallows the beginning of the next, and
// the reader ends there, with an error or with [ErrCutOff] among the lines skipped.
// Close it when done; that does not close in.
func NewReader(in io.Reader) *Reader {
	return newReader(in, MaxLine)
}

func newReader(in io.Reader, maxLine int) *Reader {
	r := &Reader{lines: lineReader{most: maxLine}}
	buffered := bufio.NewReaderSize(in, 64<<10)
	head, err := buffered.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		r.err = fmt.Errorf("kvlog: %w", err)
	case isZstd(head):
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			r.err = fmt.Errorf("kvlog: zstd: %w", err)
			break
		}
		plain := z.IOReadCloser()
		r.closers = append(r.closers, plain)
		buffered = bufio.NewReaderSize(plain, 64<<10)
	}
	r.lines.in = buffered
	return r
}

// isZstd reports whether data begins with a zstd frame, or with one to skip.
func isZstd(data []byte) bool {
	return bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(data) >= 4 && data[0]&0xf0 == 0x50 && data[1] == 0x2a && data[2] == 0x4d && data[3] == 0x18
}

// Batches returns the batches in the order of the recording, each with the time
// since its beginning and owned by the caller. Lines that follow one another and
// tell of the same source, number and epoch are one batch, at the time of the first.
//
// It ends at the end of the recording or when it cannot be read further; [Reader.Err]
// tells which. Breaking off and ranging again goes on with the next batch.
func (r *Reader) Batches() iter.Seq2[time.Duration, *kv.Batch] {
	return func(yield func(time.Duration, *kv.Batch) bool) {
		for {
			at, b := r.next()
			if b == nil || !yield(at, b) {
				return
			}
		}
	}
}

// Err returns why the recording could not be read to its end, or nil.
func (r *Reader) Err() error { return r.err }

// Skipped returns the lines that were skipped so far.
func (r *Reader) Skipped() Skipped { return r.skipped }

// Close releases what the reader holds. There are no batches after it.
func (r *Reader) Close() error {
	var errs []error
	for _, c := range r.closers {
		errs = append(errs, c.Close())
	}
	r.closers = nil
	r.lines.err, r.held = io.EOF, record{}
	return errors.Join(errs...)
}

// next puts the next batch together. It returns nil at the end.
func (r *Reader) next() (time.Duration, *kv.Batch) {
	first := r.held
	r.held = record{}
	if first.batch == nil {
		if first = r.record(); first.batch == nil {
			return 0, nil
		}
	}
	b, size := first.batch, first.size
	for {
		more := r.record()
		if more.batch == nil {
			return first.at, b
		}
		size += more.size
		if m := more.batch; m.Source != b.Source || m.Seq != b.Seq || m.Epoch != b.Epoch || size > r.lines.most {
			r.held = more
			return first.at, b
		}
		b.Events = append(b.Events, more.batch.Events...)
	}
}

// record reads the next line that holds an event. Without a batch there is none.
func (r *Reader) record() record {
	for r.err == nil {
		line, err := r.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return record{}
		case errors.Is(err, io.ErrUnexpectedEOF):
			r.skip(ErrCutOff)
			r.lines.err = io.EOF
			return record{}
		case errors.Is(err, ErrTooLong):
			r.skip(err)
			continue
		case err != nil:
			r.err = fmt.Errorf("kvlog: %w", &LineError{r.lines.number, err})
			return record{}
		}
		at, b, err := parseLine(line)
		if err != nil {
			r.skip(err)
			continue
		}
		return record{at, b, len(line)}
	}
	return record{}
}

func (r *Reader) skip(err error) {
	r.skipped.Lines++
	if len(r.skipped.First) < maxFaults {
		r.skipped.First = append(r.skipped.First, &LineError{r.lines.number, err})
	}
}

// parseLine reads one line.
func parseLine(line []byte) (time.Duration, *kv.Batch, error) {
	const maxMillis = uint64(math.MaxInt64 / time.Millisecond)
	o, err := openai.ParseObject(line)
	if err != nil {
		return 0, nil, err
	}
	millis, ok := o.Get("timestamp").Uint()
	if !ok || millis > maxMillis {
		return 0, nil, errors.New("timestamp: expected a whole number of milliseconds")
	}
	event := o.Get("event")
	if event.Kind() != '{' {
		return 0, nil, fmt.Errorf("event: expected an object, got %s", event.TypeName())
	}
	b, err := kv.ParseJSON(event)
	if err != nil {
		return 0, nil, err
	}
	if v := o.Get("epoch"); v.Present() {
		if b.Epoch, ok = v.Uint(); !ok {
			return 0, nil, errors.New("epoch: expected a whole number that is not negative")
		}
	}
	return time.Duration(millis) * time.Millisecond, b, nil
}

// lineReader cuts a file into lines and skips blank ones.
type lineReader struct {
	in     *bufio.Reader
	buf    []byte
	number int // of the line read last
	most   int // bytes of a line
	err    error
}

// next returns a line without the white space around it, valid until the next call.
// A line that is too long is [ErrTooLong], and reading goes on after it.
func (l *lineReader) next() ([]byte, error) {
	for l.err == nil {
		l.number++
		text, err := l.read()
		if err != nil {
			return nil, err
		}
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
		if len(text) > 0 && (l.err == nil || errors.Is(l.err, io.EOF)) {
			return text, nil
		}
	}
	return nil, l.err
}

// read reads one line; what ended it, if not a line feed, is in l.err.
func (l *lineReader) read() ([]byte, error) {
	text, err := l.in.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		l.buf = l.buf[:0]
		long := false
		for {
			if long = long || len(l.buf)+len(text) > l.most; !long {
				l.buf = append(l.buf, text...)
			}
			if err != bufio.ErrBufferFull {
				break
			}
			text, err = l.in.ReadSlice('\n')
		}
		text = l.buf
		if long {
			l.err = err
			return nil, ErrTooLong
		}
	}
	l.err = err
	return text, nil
}
