package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/kv"
)

// tally counts what a writer says.
type tally struct {
	written, dropped atomic.Int64
	mu               sync.Mutex
	errs             []error
}

func (c *tally) options(o Options) Options {
	o.Written = func(n int) { c.written.Add(int64(n)) }
	o.Dropped = func(n int) { c.dropped.Add(int64(n)) }
	o.OnError = func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
	return o
}

func (c *tally) check(t *testing.T, written, dropped int64) {
	t.Helper()
	if w, d := c.written.Load(), c.dropped.Load(); w != written || d != dropped {
		t.Errorf("%d written and %d dropped, want %d and %d", w, d, written, dropped)
	}
}

func row(i int) *Row { return &Row{RequestID: fmt.Sprint(i), Model: "m"} }

func mustOpen(t *testing.T, o Options) *Writer {
	t.Helper()
	w, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustClose(t *testing.T, w *Writer) {
	t.Helper()
	if err := w.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// ids returns the request ids in a file, in order; every line must be whole.
func ids(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".zst") {
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if data, err = io.ReadAll(z); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var out []string
	for line := range bytes.Lines(data) {
		var r Row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		out = append(out, r.RequestID)
	}
	return out
}

func wantIDs(t *testing.T, path string, from, to int) {
	t.Helper()
	got := ids(t, path)
	for i := from; i < to; i++ {
		if i-from >= len(got) || got[i-from] != fmt.Sprint(i) {
			t.Fatalf("%s holds %v, want %d to %d", path, got, from, to-1)
		}
	}
	if len(got) != to-from {
		t.Fatalf("%s holds %v, want %d to %d", path, got, from, to-1)
	}
}

func TestWriterWritesAndAppends(t *testing.T) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			for part := range 3 {
				var c tally
				w := mustOpen(t, c.options(Options{Path: path}))
				for i := part * 10; i < part*10+10; i++ {
					if !w.Write(row(i)) {
						t.Fatalf("row %d was not taken", i)
					}
				}
				mustClose(t, w)
				c.check(t, 10, 0)
			}
			wantIDs(t, path, 0, 30)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			data, _ := os.ReadFile(path)
			if isZstd(data) != strings.HasSuffix(name, ".zst") {
				t.Errorf("compressed: %v", isZstd(data))
			}
		})
	}
}

func TestWriterZstdName(t *testing.T) {
	w := mustOpen(t, Options{Path: filepath.Join(t.TempDir(), "trace.jsonl"), Zstd: true})
	defer mustClose(t, w)
	if !strings.HasSuffix(w.Path(), "trace.jsonl.zst") {
		t.Errorf("Path() = %s", w.Path())
	}
}

func TestWriterFlushesEverySecond(t *testing.T) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				w := mustOpen(t, Options{Path: path})
				defer mustClose(t, w)
				w.Write(row(0))
				time.Sleep(FlushEvery - time.Nanosecond)
				w.Write(row(1))
				synctest.Wait()
				wantIDs(t, path, 0, 0)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				wantIDs(t, path, 0, 2) // though the writer is at work
				time.Sleep(time.Hour)
				w.Write(row(2))
				time.Sleep(FlushEvery)
				synctest.Wait()
				wantIDs(t, path, 0, 3)
			})
		})
	}
}

// A large batch does not wait for the second to pass.
func TestWriterFlushesWhatIsLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		w := mustOpen(t, Options{Path: path})
		defer mustClose(t, w)
		r := row(0)
		r.Text = strings.Repeat("x", maxBatch)
		w.Write(r)
		synctest.Wait()
		wantIDs(t, path, 0, 1)
		w.Write(row(1))
		time.Sleep(FlushEvery)
		synctest.Wait()
		wantIDs(t, path, 0, 2)
	})
}

// A disk that hangs fills the queue; rows beyond are dropped, and nobody waits.
func TestWriterFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		disk := &faultyDisk{gate: make(chan struct{})}
		var c tally
		w, err := openWriter(c.options(Options{Path: path, Queue: 4}), disk.open)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(row(0))
		time.Sleep(FlushEvery)
		synctest.Wait() // now it hangs
		for i := 1; i <= 10; i++ {
			if taken := w.Write(row(i)); taken != (i <= 4) {
				t.Errorf("row %d taken: %v", i, taken)
			}
		}
		c.check(t, 0, 6)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close while the disk hangs: %v", err)
		}
		if w.Write(row(11)) {
			t.Error("a row was taken after Close")
		}
		close(disk.gate)
		mustClose(t, w)
		c.check(t, 5, 7)
		wantIDs(t, path, 0, 5)
	})
}

// Rows that wait are bounded in bytes as well.
func TestWriterFullQueueOfText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyDisk{gate: make(chan struct{})}
		var c tally
		w, err := openWriter(c.options(Options{Path: filepath.Join(t.TempDir(), "trace.jsonl")}), disk.open)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(row(0))
		time.Sleep(FlushEvery)
		synctest.Wait()
		text := strings.Repeat("x", maxQueued/4-100)
		taken := 0
		for i := 1; i <= 10; i++ {
			r := row(i)
			r.Text = text
			if w.Write(r) {
				taken++
			}
		}
		if taken != 4 {
			t.Errorf("%d rows of a quarter of the bound were taken", taken)
		}
		close(disk.gate)
		mustClose(t, w)
		c.check(t, 5, 6)
		if n := w.queued.Load(); n != 0 {
			t.Errorf("%d bytes are left in the count", n)
		}
	})
}

// A disk that is full in the middle of a line leaves nothing of it behind.
func TestWriterFailingDisk(t *testing.T) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				disk := &faultyDisk{}
				var c tally
				w, err := openWriter(c.options(Options{Path: path}), disk.open)
				if err != nil {
					t.Fatal(err)
				}
				flush := func(i int) {
					w.Write(row(i))
					time.Sleep(FlushEvery)
					synctest.Wait()
				}
				flush(0)
				disk.full.Store(true)
				flush(9)
				flush(9)
				wantIDs(t, path, 0, 1)
				disk.full.Store(false)
				flush(1)
				flush(2)
				c.check(t, 3, 2)
				if len(c.errs) != 2 || !errors.Is(c.errs[0], errDiskFull) || c.errs[1] != nil {
					t.Errorf("errors %v, want one and its end", c.errs)
				}
				disk.full.Store(true)
				w.Write(row(9))
				if err := w.Close(t.Context()); !errors.Is(err, errDiskFull) {
					t.Errorf("Close: %v", err)
				}
				if err := w.Close(t.Context()); !errors.Is(err, errDiskFull) {
					t.Errorf("second Close: %v", err)
				}
				wantIDs(t, path, 0, 3)
				if disk.opened.Load() != disk.closed.Load() {
					t.Errorf("%d files opened, %d closed", disk.opened.Load(), disk.closed.Load())
				}
			})
		})
	}
}

// A directory that goes away and comes back.
func TestWriterLostDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "logs")
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "trace.jsonl")
		var c tally
		w := mustOpen(t, c.options(Options{Path: path}))
		flush := func(i int) {
			w.Write(row(i))
			time.Sleep(FlushEvery)
			synctest.Wait()
		}
		flush(0)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		flush(1)
		c.check(t, 1, 1)
		if len(c.errs) != 1 || !errors.Is(c.errs[0], fs.ErrNotExist) {
			t.Errorf("errors %v", c.errs)
		}
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		flush(2)
		mustClose(t, w)
		c.check(t, 2, 1)
		wantIDs(t, path, 2, 3)
	})
}

func TestWriterOpenErrors(t *testing.T) {
	for name, o := range map[string]Options{
		"no path":      {},
		"no directory": {Path: filepath.Join(t.TempDir(), "missing", "trace.jsonl")},
		"a directory":  {Path: t.TempDir()},
		"negative":     {Path: filepath.Join(t.TempDir(), "trace.jsonl"), MaxBytes: -1},
	} {
		if w, err := Open(o); err == nil {
			t.Errorf("%s: no error", name)
			mustClose(t, w)
		}
	}
}

// All rows are in the files, in order, whatever the size; no file is larger than
// allowed unless it holds a single row; the newest has the lowest number.
func TestWriterRotation(t *testing.T) {
	line, err := row(1000).AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, compressed := range []bool{false, true} {
		for _, size := range []int{1, len(line) - 1, len(line), len(line) + 1, 3 * len(line), 10*len(line) + 7, 1 << 20} {
			t.Run(fmt.Sprintf("zstd=%v/%d", compressed, size), func(t *testing.T) {
				const rows = 60
				path := filepath.Join(t.TempDir(), "trace.jsonl")
				var c tally
				w := mustOpen(t, c.options(Options{Path: path, MaxBytes: int64(size), Zstd: compressed}))
				for i := range rows {
					w.Write(row(1000 + i))
				}
				mustClose(t, w)
				c.check(t, rows, 0)

				names := []string{w.Path()}
				for n := 1; ; n++ {
					name := asideName(w.Path(), n)
					if _, err := os.Stat(name); err != nil {
						break
					}
					names = append(names, name)
				}
				next := 1000
				for i := len(names) - 1; i >= 0; i-- {
					if compressed != strings.HasSuffix(names[i], ".zst") {
						t.Errorf("a file is called %s", names[i])
					}
					got := ids(t, names[i])
					if len(got) == 0 {
						t.Errorf("%s is empty", names[i])
					}
					for _, id := range got {
						if id != fmt.Sprint(next) {
							t.Fatalf("%s: row %s, want %d", names[i], id, next)
						}
						next++
					}
					info, err := os.Stat(names[i])
					if err != nil {
						t.Fatal(err)
					}
					if info.Size() > int64(size) && len(got) > 1 {
						t.Errorf("%s: %d bytes with %d rows", names[i], info.Size(), len(got))
					}
				}
				if next != 1000+rows {
					t.Errorf("the last row is %d", next-1)
				}
				if whole := size >= rows*len(line); whole != (len(names) == 1) && !compressed {
					t.Errorf("%d files of %d bytes for %d", len(names), size, rows*len(line))
				}
			})
		}
	}
}

func TestWriterKeepsMaxFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "trace.jsonl.zst")
	// Those of an earlier run that kept more.
	for n := 1; n <= 6; n++ {
		if err := os.WriteFile(asideName(path, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := mustOpen(t, Options{Path: path, MaxBytes: 1, MaxFiles: 2})
	for i := range 9 {
		w.Write(row(i))
	}
	mustClose(t, w)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("%v", entries)
	}
	wantIDs(t, path, 8, 9)
	wantIDs(t, filepath.Join(dir, "trace.jsonl.1.zst"), 7, 8)
	wantIDs(t, filepath.Join(dir, "trace.jsonl.2.zst"), 6, 7)
}

// Someone else may move the file away, or empty it.
func TestWriterForeignRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		w := mustOpen(t, Options{Path: path, MaxBytes: 1 << 20})
		flush := func(i int) {
			w.Write(row(i))
			time.Sleep(FlushEvery)
			synctest.Wait()
		}
		flush(0)
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		flush(1)
		wantIDs(t, path+".moved", 0, 1)
		wantIDs(t, path, 1, 2)
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil { // as logrotate may do
			t.Fatal(err)
		}
		flush(2)
		wantIDs(t, path+".moved", 1, 2)
		wantIDs(t, path, 2, 3)
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		flush(3)
		mustClose(t, w)
		wantIDs(t, path, 3, 4)
	})
}

// What a crash left of a row is cut off, and rows follow those before it.
func TestWriterTornFile(t *testing.T) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			for part := range 2 { // of a frame each
				w := mustOpen(t, Options{Path: path})
				for i := range 3 {
					w.Write(row(3*part + i))
				}
				mustClose(t, w)
			}
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for cut := range len(whole) + 1 {
				torn := whole[:len(whole)-cut]
				if err := os.WriteFile(path, torn, 0o600); err != nil {
					t.Fatal(err)
				}
				left := bytes.Count(torn, []byte("\n"))
				if strings.HasSuffix(name, ".zst") {
					end, err := lastFrame(bytes.NewReader(torn), int64(len(torn)))
					if err != nil {
						t.Fatal(err)
					}
					left = 0
					if end > 0 {
						left = 3
					}
					if end == int64(len(whole)) {
						left = 6
					}
				}
				w := mustOpen(t, Options{Path: path})
				w.Write(row(left))
				mustClose(t, w)
				wantIDs(t, path, 0, left+1)
				if _, err := os.Stat(asideName(path, 1)); err == nil {
					t.Fatalf("cut by %d: something was put aside", cut)
				}
			}
		})
	}
}

// What is not the beginning of a row is nobody's to throw away.
func TestWriterForeignFile(t *testing.T) {
	first, err := row(0).AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"trace.jsonl":      "a diary without end",
		"rows.jsonl":       string(first) + "\x00\x00\x00\x00",
		"long.jsonl":       string(rowStart) + strings.Repeat("x", MaxLine),
		"trace.jsonl.zst":  "a diary",
		"skipped.zst":      "\x50\x2a\x4d\x18\x09\x00\x00\x00ab",
		"rows, a line.zst": string(first),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		w := mustOpen(t, Options{Path: path})
		w.Write(row(7))
		mustClose(t, w)
		wantIDs(t, path, 7, 8)
		if aside, err := os.ReadFile(asideName(path, 1)); err != nil || string(aside) != data {
			t.Errorf("%s: %d bytes were put aside, want %d: %v", name, len(aside), len(data), err)
		}
	}
}

func TestLastFrame(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(mix(uint64(i)))
	}
	skippable := []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
	for name, frames := range map[string][][]byte{
		"nothing":           {nil},
		"short":             {enc.EncodeAll([]byte("short"), nil)},
		"runs of a byte":    {enc.EncodeAll(make([]byte, 300<<10), nil)},
		"not compressible":  {enc.EncodeAll(noise, nil)},
		"several":           {enc.EncodeAll([]byte("x"), nil), enc.EncodeAll(noise[:1000], nil)},
		"one to be skipped": {skippable, enc.EncodeAll([]byte("x"), nil)},
		"ends in one":       {enc.EncodeAll([]byte("x"), nil), skippable},
	} {
		data := bytes.Join(frames, nil)
		before := int64(len(data) - len(frames[len(frames)-1]))
		check := func(data []byte, want int64) {
			t.Helper()
			if end, err := lastFrame(bytes.NewReader(data), int64(len(data))); end != want || err != nil {
				t.Errorf("%s, %d bytes: %d, %v, want %d", name, len(data), end, err, want)
			}
		}
		check(data, int64(len(data)))
		for _, cut := range []int{1, 3, 4, 5, 9} {
			if int64(cut) < int64(len(data))-before {
				check(data[:len(data)-cut], before)
			}
		}
		check(append(bytes.Clone(data), "garbage and more"...), int64(len(data)))
	}
}

// Every row is written or dropped, and counted once, whoever writes and closes.
func TestWriterConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl.zst")
	var c tally
	w := mustOpen(t, c.options(Options{Path: path, MaxBytes: 2000, Queue: 8}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				w.Write(row(g*1000 + i))
			}
		})
	}
	wg.Go(func() { _ = w.Close(context.Background()) })
	wg.Wait()
	mustClose(t, w)
	if n := c.written.Load() + c.dropped.Load(); n != 1600 {
		t.Errorf("%d rows are accounted for, want 1600", n)
	}
}

func TestWriterRowThatIsNotJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	var c tally
	w := mustOpen(t, c.options(Options{Path: path}))
	bad := row(0)
	bad.Constraints = &Constraints{RouterConfigOverride: json.RawMessage("{")}
	w.Write(bad)
	w.Write(row(1))
	mustClose(t, w)
	c.check(t, 1, 1)
	wantIDs(t, path, 1, 2)
}

var errDiskFull = errors.New("no space left on device")

// faultyDisk opens real files that fail when told to, half-way through a write.
type faultyDisk struct {
	full           atomic.Bool
	gate           chan struct{} // if not nil, writes wait for it to be closed
	opened, closed atomic.Int64
}

func (d *faultyDisk) open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	d.opened.Add(1)
	return &faultyFile{f, d}, nil
}

type faultyFile struct {
	*os.File
	disk *faultyDisk
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if f.disk.gate != nil {
		<-f.disk.gate
	}
	if f.disk.full.Load() {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, errDiskFull
	}
	return f.File.Write(p)
}

func (f *faultyFile) Close() error {
	f.disk.closed.Add(1)
	return f.File.Close()
}

// BenchmarkWriterWrite is what a row with 750 hashes costs in all, as fast as the
// file takes them. On 2 cores of a shared machine:
//
//	trace.jsonl      106 µs/op  136 MB/s  3 allocs/op
//	trace.jsonl.zst  117 µs/op  124 MB/s  3 allocs/op
func BenchmarkWriterWrite(b *testing.B) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		b.Run(name, func(b *testing.B) {
			w, err := Open(Options{Path: filepath.Join(b.TempDir(), name), MaxBytes: 64 << 20, MaxFiles: 1})
			if err != nil {
				b.Fatal(err)
			}
			hashes := make(Hashes, 750)
			for i := range hashes {
				hashes[i] = kv.BlockID(mix(uint64(i)))
			}
			line, err := (&Row{RequestID: "1", Model: "m", BlockSize: 16, BlockHashes: hashes}).AppendJSON(nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				r := &Row{RequestID: "1", Model: "m", BlockSize: 16, BlockHashes: hashes}
				for !w.Write(r) {
					runtime.Gosched()
				}
			}
			if err := w.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestWriterDo: what is to be done for a row is done before it is written, in
// order, and a panic there costs no more than what it was for.
func TestWriterDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	var c tally
	w := mustOpen(t, c.options(Options{Path: path}))
	tokens := 0
	w.Do(func() { tokens = 7 }, 100)
	w.Do(func() { panic("a bug") }, 0)
	first, second, third := row(1), row(2), row(3)
	first.Prepare = func(r *Row) { r.InputTokens = tokens }
	second.Prepare = func(r *Row) { r.InputTokens = 8; panic("another") }
	for _, r := range []*Row{first, second, third} {
		w.Write(r)
	}
	mustClose(t, w)
	if w.Do(func() { t.Error("done after Close") }, 0) {
		t.Error("taken after Close")
	}
	c.check(t, 3, 0)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"input_tokens":7,`, `"input_tokens":8,`, `"input_tokens":0,`} {
		if line := strings.Split(string(data), "\n")[i]; !strings.Contains(line, want) {
			t.Errorf("row %d has no %s: %s", i+1, want, line)
		}
	}
	if len(c.errs) != 2 || !errors.Is(c.errs[0], ErrPanic) || !strings.Contains(c.errs[0].Error(), "a bug") || !errors.Is(c.errs[1], ErrPanic) {
		t.Errorf("errors %v", c.errs)
	}
	if n := w.queued.Load(); n != 0 {
		t.Errorf("%d bytes count as queued", n)
	}
}

// TestWriterRowsComeFirst: what is to be done for rows leaves half of the queue to
// the rows.
func TestWriterRowsComeFirst(t *testing.T) {
	var c tally
	w := mustOpen(t, c.options(Options{Path: filepath.Join(t.TempDir(), "trace.jsonl"), Queue: 20}))
	busy := make(chan struct{})
	w.Do(func() { <-busy }, 0)
	for len(w.items) > 0 {
		runtime.Gosched()
	}
	taken := 0
	for range 30 {
		if w.Do(func() {}, 1) {
			taken++
		}
	}
	if w.Do(func() {}, maxQueued/2+1) {
		t.Error("more bytes than half of the limit were taken")
	}
	for i := range 10 {
		if !w.Write(row(i)) {
			t.Errorf("row %d was dropped", i)
		}
	}
	close(busy)
	mustClose(t, w)
	c.check(t, 10, 0)
	if taken != 10 || len(c.errs) != 2 || c.errs[0] != ErrBehind || c.errs[1] != nil {
		t.Errorf("%d of 20 places taken, errors %v", taken, c.errs)
	}
}
