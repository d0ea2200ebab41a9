package kvlog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

func TestRecorderMaxDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "run.jsonl")
		r := start(t, Options{Path: path, MaxDuration: 10 * time.Second})
		began := time.Now()
		apply(t, r, stored(1, 0))
		time.Sleep(9 * time.Second)
		apply(t, r, stored(1, 1))
		<-r.Done()
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("ended after %v", got)
		}
		apply(t, r, stored(1, 2))
		closeRecorder(t, r)
		if diff := cmp.Diff([]timed{{0, stored(1, 0)}, {9 * time.Second, stored(1, 1)}}, readAll(t, path)); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

func TestRecorderClock(t *testing.T) {
	var now time.Time
	path := filepath.Join(t.TempDir(), "run.jsonl")
	r := start(t, Options{Path: path, MaxDuration: time.Hour, Now: func() time.Time { return now }})
	apply(t, r, stored(1, 0))
	now = now.Add(time.Hour)
	apply(t, r, stored(1, 1))
	now = now.Add(-time.Minute) // recorded as what was before
	apply(t, r, stored(1, 2))
	now = now.Add(time.Minute + 1)
	apply(t, r, stored(1, 3))
	<-r.Done()
	closeRecorder(t, r)
	if diff := cmp.Diff([]timed{{0, stored(1, 0)}, {time.Hour, stored(1, 1)}, {time.Hour, stored(1, 2)}}, readAll(t, path)); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// fake is a file in memory that can be made to block and to fail.
type fake struct {
	mu       sync.Mutex
	data     []byte
	room     int           // bytes that it takes; what is above fails
	block    chan struct{} // writes wait for it to be closed, unless it is nil
	closeErr error
}

func (f *fake) Write(p []byte) (int, error) {
	if f.block != nil {
		<-f.block
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(p), f.room-len(f.data))
	f.data = append(f.data, p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *fake) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data = f.data[:size]
	return nil
}

func (f *fake) Close() error { return f.closeErr }

// startFake starts a recorder that writes to files of the given function.
func startFake(t *testing.T, opts Options, open func(path string) (file, error)) *Recorder {
	t.Helper()
	opts.Path = filepath.Join(t.TempDir(), "run.jsonl")
	r, err := startOn(opts, open)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecorderNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{room: 1 << 30, block: make(chan struct{})}
		r := startFake(t, Options{Queue: 4}, func(string) (file, error) { return f, nil })
		apply(t, r, stored(1, 0))
		time.Sleep(FlushEvery)
		synctest.Wait() // the disk has it, and does not come back
		for seq := range uint64(10) {
			apply(t, r, several(1, 1+seq, 3))
		}
		if diff := cmp.Diff(Stats{Dropped: 6 * 3}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close while the disk hangs: %v", err)
		}
		close(f.block)
		closeRecorder(t, r)
		if diff := cmp.Diff(Stats{Written: 1 + 4*3, Dropped: 6 * 3}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}

func TestRecorderBoundsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{room: 1 << 30, block: make(chan struct{})}
		r := startFake(t, Options{}, func(string) (file, error) { return f, nil })
		apply(t, r, stored(1, 0))
		time.Sleep(FlushEvery)
		synctest.Wait()
		large := several(1, 1, 1)
		large.Events[0].Blocks = make([]kv.Block, maxQueued/16/4) // a fifth would not fit, nor does the fourth
		apply(t, r, large, large, large, large, large)
		if got := r.Stats().Dropped; got != 2 {
			t.Errorf("%d batches dropped, want 2", got)
		}
		apply(t, r, stored(1, 2)) // there is room for a small one
		close(f.block)
		closeRecorder(t, r)
		if diff := cmp.Diff(Stats{Written: 5, Dropped: 2}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		if got := r.queued.Load(); got != 0 {
			t.Errorf("%d bytes queued at the end", got)
		}
	})
}

func TestRecorderDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{room: 500}
		r := startFake(t, Options{}, func(string) (file, error) { return f, nil })
		apply(t, r, stored(1, 0), stored(1, 1))
		time.Sleep(FlushEvery)
		synctest.Wait()
		apply(t, r, stored(1, 2), stored(1, 3))
		time.Sleep(FlushEvery)
		<-r.Done()
		apply(t, r, stored(1, 4))
		for range 2 {
			if err := r.Close(t.Context()); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("close: %v, want %v", err, syscall.ENOSPC)
			}
		}
		if diff := cmp.Diff(Stats{Written: 2, Dropped: 3}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		if !strings.HasSuffix(string(f.data), "}\n") || strings.Count(string(f.data), "\n") != 2 {
			t.Errorf("not cut back to whole lines: %q", f.data)
		}
	})
}

func TestRecorderDiskFullAtClose(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /dev/full")
	}
	r := start(t, Options{Path: "/dev/full"})
	apply(t, r, stored(1, 0))
	if err := r.Close(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v, want %v", err, syscall.ENOSPC)
	}
	if diff := cmp.Diff(Stats{Dropped: 1}, r.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestRecorderCloseFails(t *testing.T) {
	broken := errors.New("broken")
	r := startFake(t, Options{}, func(string) (file, error) { return &fake{room: 1 << 20, closeErr: broken}, nil })
	apply(t, r, stored(1, 0))
	if err := r.Close(t.Context()); !errors.Is(err, broken) {
		t.Errorf("close: %v, want %v", err, broken)
	}
}

func TestRecorderCannotRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startFake(t, Options{MaxLines: 2}, func(path string) (file, error) {
			if filepath.Base(path) != "run.jsonl" {
				return nil, fs.ErrPermission
			}
			return &fake{room: 1 << 20}, nil
		})
		apply(t, r, stored(1, 0), stored(1, 1), several(1, 2, 2), stored(1, 3))
		<-r.Done()
		if err := r.Close(t.Context()); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("close: %v, want %v", err, fs.ErrPermission)
		}
		if diff := cmp.Diff(Stats{Written: 2, Dropped: 3}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}

func TestRecorderSkipsWhatHasNoForm(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	r := start(t, Options{Path: path})
	bad := several(1, 1, 3)
	bad.Events[1].Kind = 0
	apply(t, r, stored(0, 0), bad)
	closeRecorder(t, r)
	if diff := cmp.Diff(Stats{Written: 2, Dropped: 2}, r.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	readAll(t, path)
}

func TestRecorderConcurrent(t *testing.T) {
	const workers, each = 8, 200
	path := filepath.Join(t.TempDir(), "run.jsonl.zst")
	r := start(t, Options{Path: path, Queue: workers * each})
	var wg sync.WaitGroup
	for w := range kv.WorkerID(workers) {
		wg.Go(func() {
			for seq := range uint64(each) {
				_ = r.Apply(several(w+1, seq, 2))
			}
		})
	}
	wg.Wait()
	closeRecorder(t, r)
	next := make(map[kv.Source]uint64)
	var last time.Duration
	for _, b := range readAll(t, path) {
		if b.At < last {
			t.Fatalf("time goes from %v to %v", last, b.At)
		}
		last = b.At
		if b.Batch.Seq != next[b.Batch.Source] || len(b.Batch.Events) != 2 {
			t.Fatalf("source %v: batch %d of %d events, want %d of 2", b.Batch.Source, b.Batch.Seq, len(b.Batch.Events), next[b.Batch.Source])
		}
		next[b.Batch.Source]++
	}
	for src, n := range next {
		if n != each {
			t.Errorf("source %v: %d batches, want %d", src, n, each)
		}
	}
	if len(next) != workers {
		t.Errorf("%d sources, want %d", len(next), workers)
	}
}

func TestRecorderConcurrentClose(t *testing.T) {
	r := start(t, Options{Path: filepath.Join(t.TempDir(), "run.jsonl"), MaxEvents: 50})
	var wg sync.WaitGroup
	for w := range kv.WorkerID(4) {
		wg.Go(func() {
			for seq := range uint64(100) {
				_ = r.Apply(stored(w+1, seq))
			}
		})
	}
	closeRecorder(t, r)
	wg.Wait()
	closeRecorder(t, r)
}

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]Options{
		"no path":           {},
		"negative lines":    {Path: filepath.Join(dir, "x"), MaxLines: -1},
		"negative events":   {Path: filepath.Join(dir, "x"), MaxEvents: -1},
		"negative duration": {Path: filepath.Join(dir, "x"), MaxDuration: -1},
		"negative queue":    {Path: filepath.Join(dir, "x"), Queue: -1},
		"a directory":       {Path: dir},
		"below a file":      {Path: filepath.Join(blocked, "x")},
	} {
		if r, err := Start(opts); err == nil {
			t.Errorf("%s: no error", name)
			closeRecorder(t, r)
		} else if !strings.HasPrefix(err.Error(), "kvlog: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "file" }) || len(entries) != 1 {
		t.Errorf("directory %v, %v", entries, err)
	}
}
