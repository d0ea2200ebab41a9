package kvlog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/kv"
)

const zstdSuffix = ".zst"

// How much is written at once: plain, and as the contents of one zstd frame, which
// compresses the better the more there is.
const (
	plainFlush = 32 << 10
	zstdFlush  = 256 << 10
)

// output is the file that a [Recorder] writes to, and what goes there next. It
// belongs to one goroutine.
type output struct {
	path    string // of the first file
	open    func(path string) (file, error)
	index   int   // of the present one
	file    file  // nil after it was closed
	size    int64 // of what was flushed
	lines   int   // of this file, with those that are pending
	pending int   // lines in buf
	buf     []byte
	frame   []byte
	encoder *zstd.Encoder // nil without compression
}

// file is what an output needs of an *os.File.
type file interface {
	io.WriteCloser
	Truncate(size int64) error
}

func openFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// create begins the first file. If there are to be others, those that an earlier
// recording has left behind are removed.
func (o *output) create(others bool) (err error) {
	if err := os.MkdirAll(filepath.Dir(o.path), 0o755); err != nil {
		return err
	}
	if strings.HasSuffix(o.path, zstdSuffix) {
		// A frame holds hardly more than is flushed at once.
		o.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdFlush), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return err
		}
	}
	if o.file, err = o.open(o.path); err != nil || !others {
		return err
	}
	if err := removeNumbered(o.path); err != nil {
		_ = o.close()
		return err
	}
	return nil
}

// removeNumbered removes the files after the first up to where one is missing.
func removeNumbered(path string) error {
	for n := 1; ; n++ {
		name := numbered(path, n)
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.IsDir() {
			err = &fs.PathError{Op: "remove", Path: name, Err: errors.New("expected a file, got a directory")}
		}
		if err == nil {
			err = os.Remove(name)
		}
		if err != nil {
			return err
		}
	}
}

// next closes the file, of which nothing must be pending, and begins another.
func (o *output) next() error {
	if err := o.close(); err != nil {
		return err
	}
	f, err := o.open(numbered(o.path, o.index+1))
	if err != nil {
		return err
	}
	o.file, o.size, o.lines = f, 0, 0
	o.index++
	return nil
}

// add appends the line of an event. It reports whether the event has one.
func (o *output) add(at time.Duration, b *kv.Batch, ev *kv.Event) bool {
	before := len(o.buf)
	buf, err := appendLine(o.buf, at, b, ev)
	if err != nil || len(buf)-before > MaxLine {
		return false
	}
	o.buf = buf
	o.lines++
	o.pending++
	return true
}

// full reports whether it is time for a flush.
func (o *output) full() bool {
	if o.encoder != nil {
		return len(o.buf) >= zstdFlush
	}
	return len(o.buf) >= plainFlush
}

// flush writes what is pending. Nothing is afterwards, written or not; where it
// fails, the file is cut back to the lines before.
func (o *output) flush() error {
	if o.pending == 0 {
		return nil
	}
	data := o.buf
	if o.encoder != nil {
		o.frame = o.encoder.EncodeAll(data, o.frame[:0])
		data = o.frame
	}
	_, err := o.file.Write(data)
	if err != nil {
		_ = o.file.Truncate(o.size) // what cannot be cut off, the reader skips
	} else {
		o.size += int64(len(data))
	}
	o.buf, o.pending = o.buf[:0], 0
	if cap(o.buf) > 4*zstdFlush { // after a huge event
		o.buf, o.frame = nil, nil
	}
	return err
}

// close closes the file. Closing again does nothing.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	err := o.file.Close()
	o.file = nil
	return err
}

// appendLine appends the line of one event of a batch.
func appendLine(dst []byte, at time.Duration, b *kv.Batch, ev *kv.Event) ([]byte, error) {
	dst = append(dst, `{"timestamp":`...)
	dst = strconv.AppendInt(dst, at.Milliseconds(), 10)
	dst = append(dst, `,"event":`...)
	dst, err := kv.AppendJSON(dst, b.Source, b.Seq, ev)
	if err != nil {
		return dst, err
	}
	if b.Epoch != 0 {
		dst = append(dst, `,"epoch":`...)
		dst = strconv.AppendUint(dst, b.Epoch, 10)
	}
	return append(dst, "}\n"...), nil
}

// numbered returns the name of the n-th file after the first, with the number before
// the extension. A compressed file has two of them.
func numbered(path string, n int) string {
	dir, name := filepath.Split(path)
	stem, compressed := strings.CutSuffix(name, zstdSuffix)
	if dot := strings.LastIndexByte(stem, '.'); dot > 0 {
		stem = stem[:dot]
	}
	ext := name[len(stem):]
	if stem == "" && compressed { // a file whose whole name is .zst
		stem, ext = zstdSuffix, ""
	}
	return dir + stem + strconv.Itoa(n) + ext
}
