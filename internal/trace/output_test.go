package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A link stays a link: what it leads to is put aside, in its own directory.
func TestWriterThroughLink(t *testing.T) {
	for name, links := range map[string][][2]string{ // each a name and where it leads
		"absolute":      {{"log/t.jsonl", "DIR/disk/real.jsonl"}},
		"relative":      {{"log/t.jsonl", "../disk/real.jsonl"}},
		"of a link":     {{"log/t.jsonl", "other"}, {"log/other", "../disk/real.jsonl"}},
		"and directory": {{"here", "log"}, {"log/far", "DIR/deep/down"}, {"log/t.jsonl", "far/../../disk/real.jsonl"}},
	} {
		for _, begun := range []bool{false, true} { // or the link leads to nothing yet
			t.Run(fmt.Sprintf("%s/%v", name, begun), func(t *testing.T) {
				dir := t.TempDir()
				for _, d := range []string{"log", "disk", "deep/down"} {
					if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
						t.Fatal(err)
					}
				}
				for _, l := range links {
					if err := os.Symlink(strings.Replace(l[1], "DIR", dir, 1), filepath.Join(dir, l[0])); err != nil {
						t.Fatal(err)
					}
				}
				real := filepath.Join(dir, "disk", "real.jsonl")
				if begun {
					if err := os.WriteFile(real, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				var c tally
				w := mustOpen(t, c.options(Options{Path: filepath.Join(dir, "log", "t.jsonl"), MaxBytes: 1}))
				for i := range 4 {
					w.Write(row(i))
				}
				mustClose(t, w)
				c.check(t, 4, 0)
				for i, name := range []string{real + ".3", real + ".2", real + ".1", real} {
					wantIDs(t, name, i, i+1)
				}
				entries, err := os.ReadDir(filepath.Join(dir, "log"))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if e.Type()&os.ModeSymlink == 0 {
						t.Errorf("%s is no link", e.Name())
					}
				}
			})
		}
	}
}

// A link may be made to lead elsewhere.
func TestWriterLinkMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		link := filepath.Join(dir, "t.jsonl")
		w := (*Writer)(nil)
		for i, name := range []string{"a", "b"} {
			_ = os.Remove(link)
			if err := os.Symlink(name, link); err != nil {
				t.Fatal(err)
			}
			if w == nil {
				w = mustOpen(t, Options{Path: link, MaxBytes: 1})
			}
			w.Write(row(2 * i))
			w.Write(row(2*i + 1))
			time.Sleep(FlushEvery)
			synctest.Wait()
		}
		mustClose(t, w)
		wantIDs(t, filepath.Join(dir, "a.1"), 0, 1)
		wantIDs(t, filepath.Join(dir, "a"), 1, 2)
		wantIDs(t, filepath.Join(dir, "b.1"), 2, 3)
		wantIDs(t, filepath.Join(dir, "b"), 3, 4)
	})
}

// What was handed over open, as the standard output is, may be somebody else's as
// well: it is neither renamed nor cut off.
func TestWriterStandardOutput(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no links to open files here")
	}
	dir := t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, "out.txt"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := string(rowStart) + " and no more"
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "stdout")
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fmt.Sprintf("/dev/fd/%d", f.Fd())} {
		var c tally
		w := mustOpen(t, c.options(Options{Path: path, MaxBytes: 10, MaxFiles: 1}))
		for i := range 3 {
			w.Write(row(i))
		}
		mustClose(t, w)
		c.check(t, 3, 0)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); !strings.HasPrefix(got, text+"{") || strings.Count(got, "\n") != 6 {
		t.Errorf("%q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Only a regular file has a name that can be given away.
func TestOwnName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{path: path, dir: "", os.DevNull: ""} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := ownName(path, info); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// A file that cannot be put aside grows on. That is told once, and so is its end.
func TestWriterCannotRotate(t *testing.T) {
	for _, name := range []string{"trace.jsonl", "trace.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				obstacle := asideName(path, 1)
				if err := os.MkdirAll(filepath.Join(obstacle, "x"), 0o700); err != nil {
					t.Fatal(err)
				}
				var c tally
				w := mustOpen(t, c.options(Options{Path: path, MaxBytes: 2000, MaxFiles: 3}))
				next := 0
				flush := func(rows int) {
					for range rows {
						w.Write(row(next))
						next++
					}
					time.Sleep(FlushEvery)
					synctest.Wait()
				}
				for range 200 {
					flush(1)
				}
				c.check(t, 200, 0)
				if len(c.errs) != 1 || !errors.Is(c.errs[0], ErrRotate) || !strings.Contains(c.errs[0].Error(), obstacle) {
					t.Fatalf("errors %v", c.errs)
				}
				wantIDs(t, path, 0, 200)

				if err := os.RemoveAll(obstacle); err != nil {
					t.Fatal(err)
				}
				for len(c.errs) == 1 && next < 220 {
					flush(1)
				}
				if len(c.errs) != 2 || c.errs[1] != nil {
					t.Fatalf("errors %v", c.errs)
				}
				mustClose(t, w)
				c.check(t, int64(next), 0)
				wantIDs(t, obstacle, 0, next-1)
				wantIDs(t, path, next-1, next)
			})
		})
	}
}

// It is not tried at every flush.
func TestOutputRetries(t *testing.T) {
	o := output{maxBytes: 1000, name: "x"}
	for _, tt := range []struct {
		stuck        bool
		failed, size int64
		want         bool
	}{
		{false, 0, 0, false}, // a large row goes to an empty file
		{false, 0, 900, false},
		{false, 0, 901, true},
		{true, 950, 950, false},
		{true, 950, 1049, false},
		{true, 950, 1050, true},
		{true, 9999, 950, true}, // another file
	} {
		o.stuck, o.failed = tt.stuck, tt.failed
		if got := o.full(tt.size, 100); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A row that no reader would take loses its text, and then its hashes.
func TestWriterLongRows(t *testing.T) {
	const line = 10_000
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	hashes := make(Hashes, line/19+1)
	text := strings.Repeat("\x01", line/6+1) // which are six bytes each
	var c tally
	w := mustOpen(t, c.options(Options{Path: path, maxLine: line}))
	rows := []*Row{
		{Text: text, BlockSize: 16, BlockHashes: hashes[:3]},
		{BlockSize: 16, BlockHashes: hashes},
		{Text: "x", BlockSize: 16, BlockHashes: hashes},
		{Text: text, BlockSize: 16, BlockHashes: hashes},
		{Text: text[:line/6-100], BlockSize: 16, BlockHashes: hashes[:3]},
		{SessionID: text},
		{},
	}
	for i, r := range rows {
		r.RequestID, r.Model = fmt.Sprint(i), "m"
		r.InputTokens, r.OutputTokens = 16*len(r.BlockHashes)+1, new(5)
		w.Write(r)
	}
	mustClose(t, w)
	c.check(t, 6, 1)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := read(f, ReadOptions{}, limits{1 << 24, line})
	if err != nil {
		t.Fatal(err)
	}
	var blocks []int
	for i := range tr.Requests {
		blocks = append(blocks, len(tr.Requests[i].Blocks))
	}
	if got := fmt.Sprint(blocks, tr.Skipped.Rows()); got != "[3 0 0 0 3 0] 0" {
		t.Errorf("blocks and skipped rows: %s", got)
	}
	if rows[4].Text == "" {
		t.Error("a row that is not too long lost its text")
	}
}

// Whatever a client can make large counts.
func TestWeight(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, r := range map[string]*Row{
		"text":      {Text: long},
		"hashes":    {BlockHashes: make(Hashes, 1<<17)},
		"id":        {XRequestID: long},
		"session":   {SessionID: long},
		"parent":    {ParentSessionID: long},
		"prefix":    {Hints: &Hints{PrefixID: &long}},
		"ttl":       {Hints: &Hints{CacheTTL: &long}},
		"override":  {Constraints: &Constraints{RouterConfigOverride: []byte(long)}},
		"workers":   {Constraints: &Constraints{AllowedWorkerIDs: make([]uint64, 1<<17)}},
		"taint":     {Constraints: &Constraints{RequiredTaints: []string{long}}},
		"taints":    {Constraints: &Constraints{RequiredTaints: make([]string, 1<<16)}},
		"preferred": {Constraints: &Constraints{PreferredTaints: map[string]float64{long: 1}}},
	} {
		if n := weight(r); n < 1<<20 || n > 1<<20+1000 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}
