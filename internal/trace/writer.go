package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
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
	// otherwise, because rows may hold prompts. It may be a link to it. A device, a
	// pipe or the standard output is written to as it is, never put aside.
	Path string
	// MaxBytes is the size on disk beyond which a file is put aside and a new one
	// begun; 0 means never. A file is larger only if a single row is, or as long as
	// it cannot be put aside.
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
	// again. It is called with an [ErrRotate] when a file cannot be put aside, and
	// with nil when that works again; no rows are lost meanwhile. It is called
	// with [ErrBehind] when the queue is full, from the goroutine that has a row
	// too many, and with an [ErrPanic]. It may be nil, and must not block.
	OnError func(error)

	maxLine int // of rows; 0 means [MaxLine]
}

// ErrRotate is behind the errors about files that cannot be put aside. Rows still
// reach the file, which grows beyond its limit; putting it aside is tried again
// each time it has grown by a tenth of that.
var ErrRotate = errors.New("the file grows on")

// ErrPanic is behind the errors about what was to be done for a row and panicked.
// The row is written without it.
var ErrPanic = errors.New("trace: panic")

// ErrBehind says that requests come faster than they are written: rows are dropped,
// or lack what was to be done for them.
var ErrBehind = errors.New("trace: requests come faster than they are written")

// Writer appends rows to a file, one JSON object per line. It is safe for
// concurrent use, and owns a goroutine that ends with [Writer.Close].
//
// Rows reach the file within [FlushEvery], whole lines at a time, so that it can
// be followed with tail -f. A compressed file gets one zstd frame per flush: it
// can be read to its end at any time, and files can be concatenated. Nothing is
// synced to the disk.
//
// Files that are put aside are numbered as logrotate does it: trace.jsonl.1 is
// the newest, and with compression trace.jsonl.1.zst. Where the path is a link,
// they are beside what it leads to. A file that is moved away or truncated by
// someone else is noticed; the next flush begins a new one.
//
// When the disk fails, the rows of that flush are dropped and the file is cut
// back to its last whole line; the next rows are tried as if nothing had been. A
// file that a crash left with half a row is cut back, too, when it is opened. One
// that ends in something else is put aside.
type Writer struct {
	opts   Options
	items  chan item
	queued atomic.Int64 // bytes of the rows in the channel, about
	done   chan struct{}

	behind atomic.Bool // rows were dropped since the last flush that worked

	mu     sync.RWMutex // held for reading while a row is sent
	closed bool

	// The goroutine's own.
	out     output
	batch   []byte
	pending int // rows in batch
	frame   []byte
	encoder *zstd.Encoder // nil without compression
	err     error         // of the last flush; Close reads it when done is closed
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
	opts.maxLine = cmp.Or(opts.maxLine, MaxLine)
	w := &Writer{opts: opts, items: make(chan item, opts.Queue), done: make(chan struct{})}
	w.out = output{
		path:       opts.Path,
		maxBytes:   opts.MaxBytes,
		maxFiles:   opts.MaxFiles,
		compressed: opts.Zstd,
		open:       open,
		rotated:    w.rotated,
	}
	if opts.Zstd {
		var err error
		// A frame is no larger than a batch, and so need not be the window.
		w.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxBatch), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, fmt.Errorf("trace: zstd: %w", err)
		}
	}
	if err := w.out.openFile(); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	go w.run()
	return w, nil
}

// Path returns the name of the file, with what was added to it.
func (w *Writer) Path() string { return w.opts.Path }

// item is something in the queue: a row, or something to do.
type item struct {
	row   *Row
	do    func()
	bytes int64 // about how much memory it takes
}

// Write hands a row over, which then belongs to the writer. It never blocks, and
// reports whether the row was taken; one that was not is counted as dropped.
func (w *Writer) Write(r *Row) bool {
	taken := w.enqueue(item{row: r, bytes: weight(r)})
	if !taken {
		call(w.opts.Dropped, 1)
	}
	return taken
}

// Do has the writer's goroutine call f, before it looks at any row that is written
// after Do. It never blocks, and reports whether f will be called, which is not so
// when the queue is half full: rows come first. Until then f keeps about so many
// bytes alive.
func (w *Writer) Do(f func(), bytes int64) bool {
	return w.enqueue(item{do: f, bytes: bytes})
}

func (w *Writer) enqueue(it item) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return false
	}
	limit, full := int64(maxQueued), false
	if it.do != nil { // rows come first
		limit, full = limit/2, len(w.items) >= cap(w.items)/2
	}
	if w.queued.Add(it.bytes) <= limit && !full {
		select {
		case w.items <- it:
			return true
		default:
		}
	}
	w.queued.Add(-it.bytes)
	if !w.behind.Swap(true) && w.opts.OnError != nil {
		w.opts.OnError(ErrBehind)
	}
	return false
}

// weight is about how much memory a row takes, what everyone has left out. Most
// of it is as large as the client likes.
func weight(r *Row) int64 {
	n := len(r.Text) + 8*len(r.BlockHashes)
	n += len(r.RequestID) + len(r.XRequestID) + len(r.SessionID) + len(r.ParentSessionID)
	if h := r.Hints; h != nil {
		n += int(unsafe.Sizeof(*h)) + length(h.PrefixID) + length(h.CacheTTL)
	}
	if c := r.Constraints; c != nil {
		n += int(unsafe.Sizeof(*c)) + 8*len(c.AllowedWorkerIDs) + len(c.RouterConfigOverride)
		for _, taint := range c.RequiredTaints {
			n += int(unsafe.Sizeof(taint)) + len(taint)
		}
		for taint := range c.PreferredTaints {
			n += 2*int(unsafe.Sizeof(taint)) + len(taint) // with its number and a place in the table
		}
	}
	for i := range r.Attempts {
		routing := r.Attempts[i].Routing
		if routing == nil {
			continue
		}
		n += len(routing.Candidates) * int(unsafe.Sizeof(nvext.Candidate{}))
		for k := range routing.Candidates {
			n += len(routing.Candidates[k].Terms) * int(unsafe.Sizeof(nvext.Term{}))
		}
	}
	return int64(n)
}

func length(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}

// Close writes what is queued and closes the file. It waits for that no longer
// than ctx lasts. The error is that of ctx, or of the disk if it failed the last
// rows. Rows that come after are dropped. Closing again gives the same answer.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.items)
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
		case it, ok := <-w.items:
			if !ok {
				w.flush()
				if err := w.out.close(); err != nil && w.err == nil {
					w.fail(err)
				}
				return
			}
			w.queued.Add(-it.bytes)
			if it.do != nil {
				w.protect(it.do)
				continue
			}
			if w.pending == 0 {
				timer.Reset(FlushEvery)
			}
			w.add(it.row)
			if w.pending == 0 {
				timer.Stop()
			}
		case <-timer.C:
			w.flush()
		}
	}
}

// errLongRow is a row that no reader would take.
var errLongRow = errors.New("longer than a line may be")

// protect calls f for somebody else, whose bug must not end the process.
func (w *Writer) protect(f func()) {
	defer func() {
		if v := recover(); v != nil && w.opts.OnError != nil {
			w.opts.OnError(fmt.Errorf("%w: %v\n%s", ErrPanic, v, debug.Stack()))
		}
	}()
	f()
}

// add puts a row into the batch and writes the batch when it is full.
func (w *Writer) add(r *Row) {
	if r.Prepare != nil {
		w.protect(func() { r.Prepare(r) })
	}
	before := len(w.batch)
	batch, err := r.AppendJSON(w.batch)
	for err == nil && len(batch)-before > w.opts.maxLine {
		if !r.shorten() {
			err = errLongRow
			break
		}
		batch, err = r.AppendJSON(batch[:before])
	}
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
	err := w.out.put(data)
	w.batch, w.pending = w.batch[:0], 0
	if cap(w.batch) > 4*maxBatch { // after a huge row
		w.batch, w.frame = nil, nil
	}
	if err != nil {
		call(w.opts.Dropped, rows)
		w.fail(err)
		return
	}
	if behind := w.behind.Swap(false); behind || w.err != nil {
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

// rotated hears whether files can be put aside.
func (w *Writer) rotated(err error) {
	if err != nil {
		err = fmt.Errorf("trace: %w: %w", err, ErrRotate)
	}
	if w.opts.OnError != nil {
		w.opts.OnError(err)
	}
}

func call(f func(int), n int) {
	if f != nil {
		f(n)
	}
}
