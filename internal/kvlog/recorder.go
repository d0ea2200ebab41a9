package kvlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stator-ai/stator/internal/kv"
)

// FlushEvery is the longest time that an event waits in memory while the disk keeps
// up.
const FlushEvery = time.Second

// maxQueued bounds the memory of the batches that wait, of which one may be large.
const maxQueued = 64 << 20

// Options configure a [Recorder].
type Options struct {
	// Path is the file. It is emptied if it exists, and created with mode 0600
	// otherwise, together with the directories above it. One that ends in .zst is
	// compressed with zstd.
	Path string
	// MaxLines is how many lines a file may have; 0 means any number. The ones after
	// run.jsonl are run1.jsonl, run2.jsonl and so on, after run.jsonl.zst comes
	// run1.jsonl.zst. If there may be such, those that an earlier recording left are
	// removed at the start, up to where one is missing. A batch that has room in one
	// file is not divided between two.
	MaxLines int
	// MaxEvents and MaxDuration end the recording after so many events and so much
	// time; 0 means never.
	MaxEvents   int
	MaxDuration time.Duration
	// Queue is how many batches may wait for the disk; 0 means 2048.
	Queue int
	// Now is the clock that events are stamped by; nil means [time.Now]. It is called
	// by several goroutines at once. With a clock of its own, MaxDuration ends the
	// recording at the first batch that is beyond it.
	Now func() time.Time
}

// Stats counts events of a [Recorder].
type Stats struct {
	// Written events have reached the file.
	Written uint64
	// Dropped events are missing from it: because the queue was full, because the
	// disk failed, or because they have no form in JSON or one above [MaxLine].
	Dropped uint64
}

// Recorder writes events to a file. It is safe for concurrent use, and owns a
// goroutine that ends when the recording does: with [Recorder.Close], at a limit of
// [Options], or when the disk fails. Batches of one source are recorded in the order
// in which they come.
//
// Events reach the file within [FlushEvery], whole lines at a time. A compressed
// file gets one zstd frame per flush, so that it can be read to its end at any time
// and files can be concatenated. Nothing is synced to the disk.
type Recorder struct {
	opts   Options
	start  time.Time
	items  chan item
	queued atomic.Int64 // bytes of the batches in the channel, about
	done   chan struct{}

	written, dropped atomic.Uint64
	failed           atomic.Bool // the recording ended with an error

	mu    sync.RWMutex // held for reading while a batch is sent
	ended bool         // items is closed

	// The goroutine's own.
	out   output
	last  time.Duration // the latest timestamp
	taken int           // events that went into the output
	full  bool          // a limit was reached: what is left in the queue came too late
	err   error         // read by others when done is closed
}

// item is a batch in the queue.
type item struct {
	batch *kv.Batch
	at    time.Duration // since the start
	bytes int64
}

var _ kv.Applier = (*Recorder)(nil)

// Start creates the file and begins to record. An error means that the options
// make no sense or that the file cannot be created.
func Start(opts Options) (*Recorder, error) { return startOn(opts, openFile) }

func startOn(opts Options, open func(path string) (file, error)) (*Recorder, error) {
	if opts.Path == "" {
		return nil, errors.New("kvlog: expected a path")
	}
	if opts.MaxLines < 0 || opts.MaxEvents < 0 || opts.MaxDuration < 0 || opts.Queue < 0 {
		return nil, errors.New("kvlog: expected limits that are not negative")
	}
	opts.Queue = cmp.Or(opts.Queue, 2048)
	r := &Recorder{opts: opts, items: make(chan item, opts.Queue), done: make(chan struct{})}
	r.out = output{path: opts.Path, open: open}
	if err := r.out.create(opts.MaxLines > 0); err != nil {
		return nil, fmt.Errorf("kvlog: %w", err)
	}
	r.start = r.now()
	go r.run()
	return r, nil
}

func (r *Recorder) now() time.Time {
	if r.opts.Now != nil {
		return r.opts.Now()
	}
	return time.Now()
}

// Apply records a batch. It keeps nothing of it, so that the batch can be handed on.
// It never blocks and always returns nil: a batch that there is no room for is
// dropped and counted, and one that comes after the end of the recording is ignored,
// which is counted only where a failure was the end.
func (r *Recorder) Apply(b *kv.Batch) error {
	at := r.now().Sub(r.start)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.ended && !r.failed.Load() {
		return nil
	}
	if r.ended || !r.enqueue(b, at) {
		r.dropped.Add(lines(b))
	}
	return nil
}

// enqueue reports whether there was room for a copy of the batch.
func (r *Recorder) enqueue(b *kv.Batch, at time.Duration) bool {
	if len(r.items) == cap(r.items) {
		return false // before it is copied in vain
	}
	bytes := weight(b)
	if r.queued.Add(bytes) <= maxQueued {
		select {
		case r.items <- item{batch: clone(b), at: at, bytes: bytes}:
			return true
		default:
		}
	}
	r.queued.Add(-bytes)
	return false
}

// Stats returns the counts so far.
func (r *Recorder) Stats() Stats {
	return Stats{Written: r.written.Load(), Dropped: r.dropped.Load()}
}

// Done returns a channel that is closed when the recording has ended and the file is
// closed.
func (r *Recorder) Done() <-chan struct{} { return r.done }

// Close writes what is queued and closes the file. It waits for that no longer than
// ctx lasts. The error is that of ctx, or the failure that ended the recording.
// Closing again gives the same answer.
func (r *Recorder) Close(ctx context.Context) error {
	r.end()
	select {
	case <-r.done:
		return r.err
	default:
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("kvlog: close %s: %w", r.opts.Path, context.Cause(ctx))
	}
}

// end lets nothing more into the queue.
func (r *Recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.ended = true
		close(r.items)
	}
}

// run is the recorder's goroutine.
func (r *Recorder) run() {
	defer close(r.done)
	flush := time.NewTimer(FlushEvery)
	flush.Stop()
	var limit <-chan time.Time
	if r.opts.MaxDuration > 0 && r.opts.Now == nil {
		t := time.NewTimer(r.opts.MaxDuration)
		defer t.Stop()
		limit = t.C
	}
	for {
		select {
		case it, ok := <-r.items:
			if !ok {
				r.flush()
				if err := r.out.close(); err != nil {
					r.fail(err)
				}
				return
			}
			r.queued.Add(-it.bytes)
			waiting := r.out.pending > 0
			r.add(it)
			if r.out.pending == 0 {
				flush.Stop()
			} else if !waiting {
				flush.Reset(FlushEvery)
			}
		case <-flush.C:
			r.flush()
		case <-limit:
			r.end() // what is in the queue came before
		}
	}
}

// add puts a batch into the output.
func (r *Recorder) add(it item) {
	switch {
	case r.err != nil:
		r.dropped.Add(lines(it.batch))
		return
	case r.full:
		return
	case r.opts.MaxDuration > 0 && it.at > r.opts.MaxDuration:
		r.full = true
		r.end()
		return
	}
	// Sources do not wait for each other between the clock and the queue.
	r.last = max(r.last, it.at)
	events := it.batch.Events
	if len(events) == 0 {
		events = nothing
	}
	limit := r.opts.MaxLines
	if limit > 0 && r.out.lines+len(events) > limit && len(events) <= limit {
		r.rotate()
	}
	for i := range events {
		if limit > 0 && r.out.lines == limit {
			r.rotate()
		}
		if r.err != nil {
			r.dropped.Add(uint64(len(events) - i))
			return
		}
		if !r.out.add(r.last, it.batch, &events[i]) {
			r.dropped.Add(1)
			continue
		}
		if r.out.full() {
			r.flush()
		}
		if r.taken++; r.taken == r.opts.MaxEvents {
			r.full = true
			r.end()
			return
		}
	}
}

// nothing is what a batch without events is recorded as.
var nothing = []kv.Event{{Kind: kv.Removed}}

// lines is the number of lines that a batch takes.
func lines(b *kv.Batch) uint64 { return uint64(max(1, len(b.Events))) }

// rotate goes on in the next file.
func (r *Recorder) rotate() {
	if r.flush(); r.err != nil {
		return
	}
	if err := r.out.next(); err != nil {
		r.fail(err)
	}
}

// flush writes what is in the output, and counts it.
func (r *Recorder) flush() {
	n := uint64(r.out.pending)
	if err := r.out.flush(); err != nil {
		r.dropped.Add(n)
		r.fail(err)
		return
	}
	r.written.Add(n)
}

// fail ends the recording with its first error.
func (r *Recorder) fail(err error) {
	if r.err == nil {
		r.err = fmt.Errorf("kvlog: %w", err)
	}
	r.failed.Store(true)
	r.end()
}

// clone copies a batch.
func clone(b *kv.Batch) *kv.Batch {
	c := *b
	c.Events = slices.Clone(b.Events)
	blocks := make([]kv.Block, 0, countBlocks(b))
	for i := range c.Events {
		first := len(blocks)
		blocks = append(blocks, c.Events[i].Blocks...)
		c.Events[i].Blocks = blocks[first:]
	}
	return &c
}

// weight is how much memory a copy of a batch takes.
func weight(b *kv.Batch) int64 {
	const batch, event, block = unsafe.Sizeof(kv.Batch{}), unsafe.Sizeof(kv.Event{}), unsafe.Sizeof(kv.Block{})
	return int64(batch) + int64(event)*int64(len(b.Events)) + int64(block)*int64(countBlocks(b))
}

func countBlocks(b *kv.Batch) int {
	n := 0
	for i := range b.Events {
		n += len(b.Events[i].Blocks)
	}
	return n
}

// Tee returns an Applier that records each batch with r and hands it on to next,
// whose answer it gives.
func Tee(r *Recorder, next kv.Applier) kv.Applier { return tee{r, next} }

type tee struct {
	recorder *Recorder
	next     kv.Applier
}

func (t tee) Apply(b *kv.Batch) error {
	_ = t.recorder.Apply(b) // it has nothing to say
	return t.next.Apply(b)
}
