package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/nvext"
)

// FlushEvery is the longest time that a row waits in memory while the disk keeps
// up.
const FlushEvery = time.Second

// maxBatch is how much is written at once. It is also what a zstd frame holds,
// and large enough for one to compress well.
const maxBatch = 256 << 10

// maxQueued bounds the memory of the rows that wait, which may hold prompts.
const maxQueued = 64 << 20

// Options configure a [Writer].
type Options struct {
	// Path is the file. It is appended to if it exists, and created with mode 0600
	// otherwise, because rows may hold prompts.
	Path string
	// MaxBytes is the size on disk beyond which a file is put aside and a new one
	// begun; 0 means never. A file is larger only if a single row is.
	MaxBytes int64
	// MaxFiles is how many files that were put aside are kept; 0 means all.
	MaxFiles int
	// Zstd compresses. A Path that ends in .zst implies it; to one that does not,
	// .zst is added.
	Zstd bool
	// Queue is how many rows may wait for the disk; 0 means 1024.
	Queue int
	// Written is called with the number of rows that have reached the file, and
	// Dropped with the number of those that are lost: to a full queue, to a disk
	// that fails, or because they came after Close. Every row is counted once, by
	// one of them. Dropped may be called from several goroutines at once. Either
	// may be nil.
	Written, Dropped func(rows int)
	// OnError is called when writing begins to fail, and with nil when it works
	// again. It may be nil.
	OnError func(error)
}

// Writer appends rows to a file, one JSON object per line. It is safe for
// concurrent use, and owns a goroutine that ends with [Writer.Close].
//
// Rows reach the file within [FlushEvery], whole lines at a time, so that it can
// be followed with tail -f. A compressed file gets one zstd frame per flush: it
// can be read to its end at any time, and files can be concatenated. Nothing is
// synced to the disk.
//
// Files that are put aside are numbered as logrotate does it: trace.jsonl.1 is
// the newest, and with compression trace.jsonl.1.zst. A file that is moved away
// or truncated by someone else is noticed; the next flush begins a new one.
//
// When the disk fails, the rows of that flush are dropped and the file is cut
// back to its last whole line; the next rows are tried as if nothing had been.
type Writer struct {
	opts   Options
	rows   chan *Row
	queued atomic.Int64 // bytes of the rows in the channel, about
	done   chan struct{}

	mu     sync.RWMutex // held for reading while a row is sent
	closed bool

	// The goroutine's own.
	open    func(path string) (file, error)
	file    file
	batch   []byte
	pending int // rows in batch
	frame   []byte
	encoder *zstd.Encoder // nil without compression
	err     error         // of the last flush; Close reads it when done is closed
}

// file is what a Writer needs of an *os.File.
type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
}

// Open opens the file and starts the writer. An error means that the file cannot
// be written to.
func Open(opts Options) (*Writer, error) {
	return openWriter(opts, func(path string) (file, error) {
		// Not write-only: what is there already is looked at.
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	})
}

func openWriter(opts Options, open func(string) (file, error)) (*Writer, error) {
	if opts.Path == "" {
		return nil, errors.New("trace: expected a path")
	}
	if opts.MaxBytes < 0 || opts.MaxFiles < 0 || opts.Queue < 0 {
		return nil, errors.New("trace: expected limits that are not negative")
	}
	if !strings.HasSuffix(opts.Path, zstdSuffix) {
		if opts.Zstd {
			opts.Path += zstdSuffix
		}
	} else {
		opts.Zstd = true
	}
	opts.Queue = cmp.Or(opts.Queue, 1024)
	w := &Writer{opts: opts, open: open, rows: make(chan *Row, opts.Queue), done: make(chan struct{})}
	if opts.Zstd {
		var err error
		// A frame is no larger than a batch, and so need not be the window.
		w.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxBatch), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, fmt.Errorf("trace: zstd: %w", err)
		}
	}
	if err := w.openFile(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	go w.run()
	return w, nil
}

// Path returns the name of the file, with what was added to it.
func (w *Writer) Path() string { return w.opts.Path }

// Write hands a row over, which then belongs to the writer. It never blocks, and
// reports whether the row was taken; one that was not is counted as dropped.
func (w *Writer) Write(r *Row) bool {
	size := weight(r)
	w.mu.RLock()
	taken := false
	if !w.closed && w.queued.Add(size) <= maxQueued {
		select {
		case w.rows <- r:
			taken = true
		default:
		}
	}
	if !taken && !w.closed {
		w.queued.Add(-size)
	}
	w.mu.RUnlock()
	if !taken {
		call(w.opts.Dropped, 1)
	}
	return taken
}

// weight is about how much memory a row takes, what everyone has left out.
func weight(r *Row) int64 {
	n := len(r.Text) + 8*len(r.BlockHashes)
	for i := range r.Attempts {
		if routing := r.Attempts[i].Routing; routing != nil {
			n += len(routing.Candidates) * int(unsafe.Sizeof(nvext.Candidate{}))
		}
	}
	return int64(n)
}

// Close writes what is queued and closes the file. It waits for that no longer
// than ctx lasts. The error is that of ctx, or of the disk if it failed the last
// rows. Rows that come after are dropped. Closing again gives the same answer.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.rows)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("trace: close %s: %w", w.opts.Path, context.Cause(ctx))
	}
}

// run is the writer's goroutine.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(FlushEvery)
	timer.Stop()
	for {
		select {
		case r, ok := <-w.rows:
			if !ok {
				w.flush()
				if err := w.closeFile(); err != nil && w.err == nil {
					w.fail(err)
				}
				return
			}
			if w.pending == 0 {
				timer.Reset(FlushEvery)
			}
			w.add(r)
			if w.pending == 0 {
				timer.Stop()
			}
		case <-timer.C:
			w.flush()
		}
	}
}

// add puts a row into the batch and writes the batch when it is full.
func (w *Writer) add(r *Row) {
	w.queued.Add(-weight(r))
	before := len(w.batch)
	batch, err := r.AppendJSON(w.batch)
	if err != nil {
		// Not the disk's fault: only this row is lost.
		call(w.opts.Dropped, 1)
		return
	}
	limit := maxBatch
	if w.opts.MaxBytes > 0 {
		limit = int(min(int64(limit), w.opts.MaxBytes))
	}
	if before > 0 && len(batch) > limit {
		// Those before go alone, so that no file gets too large.
		w.batch = batch[:before]
		w.flush()
		batch = append(w.batch, batch[before:]...)
	}
	w.batch = batch
	w.pending++
	if len(w.batch) >= limit {
		w.flush()
	}
}

// flush writes the batch. It is empty afterwards, written or not.
func (w *Writer) flush() {
	if w.pending == 0 {
		return
	}
	rows, data := w.pending, w.batch
	if w.encoder != nil {
		w.frame = w.encoder.EncodeAll(data, w.frame[:0])
		data = w.frame
	}
	err := w.put(data)
	w.batch, w.pending = w.batch[:0], 0
	if cap(w.batch) > 4*maxBatch { // after a huge row
		w.batch, w.frame = nil, nil
	}
	if err != nil {
		call(w.opts.Dropped, rows)
		w.fail(err)
		return
	}
	if w.err != nil {
		w.err = nil
		if w.opts.OnError != nil {
			w.opts.OnError(nil)
		}
	}
	call(w.opts.Written, rows)
}

// fail notes an error, and tells it unless the disk was failing before.
func (w *Writer) fail(err error) {
	known := w.err != nil
	w.err = fmt.Errorf("trace: %w", err)
	if !known && w.opts.OnError != nil {
		w.opts.OnError(w.err)
	}
}

// put appends data to the file, all of it or nothing, after looking whether it is
// time for another file.
func (w *Writer) put(data []byte) error {
	size, err := w.size()
	if err != nil {
		return err
	}
	if limit := w.opts.MaxBytes; limit > 0 && size > 0 && size+int64(len(data)) > limit {
		if err := w.rotate(); err != nil {
			return err
		}
		size = 0
	}
	if _, err := w.file.Write(data); err != nil {
		// What was written of it would spoil what comes after. Where it cannot be
		// cut off, openFile will find it.
		_ = w.file.Truncate(size)
		_ = w.closeFile()
		return err
	}
	return nil
}

// size returns the size of the file, which is open afterwards.
func (w *Writer) size() (int64, error) {
	if w.file != nil {
		ours, err := w.file.Stat()
		if err != nil {
			_ = w.closeFile()
			return 0, err
		}
		theirs, err := os.Stat(w.opts.Path)
		if err == nil && os.SameFile(ours, theirs) {
			return ours.Size(), nil
		}
		// It was moved or removed.
		if err := w.closeFile(); err != nil {
			return 0, err
		}
	}
	if err := w.openFile(); err != nil {
		return 0, err
	}
	info, err := w.file.Stat()
	if err != nil {
		_ = w.closeFile()
		return 0, err
	}
	return info.Size(), nil
}

// openFile opens the file. One that ends in the middle of a row, because a crash
// cut it off, is put aside: nothing may follow that.
func (w *Writer) openFile() error {
	f, err := w.open(w.opts.Path)
	if err != nil {
		return err
	}
	w.file = f
	whole, err := w.whole()
	if err != nil {
		_ = w.closeFile()
		return err
	}
	if !whole {
		return w.rotate()
	}
	return nil
}

// whole reports whether the file can be appended to.
func (w *Writer) whole() (bool, error) {
	info, err := w.file.Stat()
	if err != nil {
		return false, err
	}
	size := info.Size()
	if !info.Mode().IsRegular() || size == 0 {
		return true, nil
	}
	if w.encoder != nil {
		return wholeFrames(w.file, size)
	}
	var last [1]byte
	if _, err := w.file.ReadAt(last[:], size-1); err != nil {
		return false, err
	}
	return last[0] == '\n', nil
}

// rotate puts the file aside and opens a new one.
func (w *Writer) rotate() error {
	if err := w.closeFile(); err != nil {
		return err
	}
	if err := putAside(w.opts.Path, w.opts.MaxFiles); err != nil {
		return fmt.Errorf("put %s aside: %w", w.opts.Path, err)
	}
	f, err := w.open(w.opts.Path)
	if err != nil {
		return err
	}
	w.file = f
	return nil
}

func (w *Writer) closeFile() error {
	if w.file == nil {
		return nil
	}
	f := w.file
	w.file = nil
	return f.Close()
}

func call(f func(int), n int) {
	if f != nil {
		f(n)
	}
}

const zstdSuffix = ".zst"

// asideName returns the name of the nth file that was put aside, 1 the newest.
func asideName(path string, n int) string {
	base, compressed := strings.CutSuffix(path, zstdSuffix)
	if compressed {
		return fmt.Sprintf("%s.%d%s", base, n, zstdSuffix)
	}
	return fmt.Sprintf("%s.%d", path, n)
}

// putAside makes path the newest of the files put aside, and removes those beyond
// keep; 0 keeps all.
func putAside(path string, keep int) error {
	count := 0
	for {
		if _, err := os.Lstat(asideName(path, count+1)); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		count++
	}
	for ; keep > 0 && count >= keep; count-- {
		if err := os.Remove(asideName(path, count)); err != nil {
			return err
		}
	}
	for n := count; n > 0; n-- {
		if err := os.Rename(asideName(path, n), asideName(path, n+1)); err != nil {
			return err
		}
	}
	return os.Rename(path, asideName(path, 1))
}

// wholeFrames reports whether a file is nothing but complete zstd frames. It
// reads their headers only.
func wholeFrames(r io.ReaderAt, size int64) (bool, error) {
	var buf [zstd.HeaderMaxSize]byte
	for at := int64(0); at < size; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		var h zstd.Header
		if h.Decode(buf[:n]) != nil {
			return false, nil
		}
		at += int64(h.HeaderSize)
		if h.Skippable {
			at += int64(h.SkippableSize)
			continue
		}
		for last := false; !last; {
			var b [3]byte
			if at+3 > size {
				return false, nil
			}
			if _, err := r.ReadAt(b[:], at); err != nil {
				return false, err
			}
			const rle = 1
			block := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
			last = block&1 != 0
			length := block >> 3
			if block>>1&3 == rle {
				length = 1
			}
			at += 3 + length
		}
		if h.HasCheckSum {
			at += 4
		}
		if at > size {
			return false, nil
		}
	}
	return true, nil
}
