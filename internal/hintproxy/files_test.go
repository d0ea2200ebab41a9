package hintproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/trie"
)

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var quiet = slog.New(slog.DiscardHandler)

// saveTrie writes a trie that predicts a number of tokens for every call.
func saveTrie(t *testing.T, path string, tokens float64) {
	t.Helper()
	p := trie.Prediction{OutputTokens: trie.Metrics{SampleCount: 1, P90: tokens}}
	if err := (&trie.Trie{Version: trie.Version, Root: &trie.Node{Name: "root", AnyIndex: &p}}).Save(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFollower changes a file and looks what is predicted after the next look at it; 0 is
// nothing.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trie.json")
		f := newFollower(path, quiet)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { f.run(ctx); close(done) }()
		for _, step := range []struct {
			name    string
			do      func()
			tokens  float64
			reloads uint64
			failing bool
		}{
			{"not there", func() {}, 0, 0, true},
			{"made", func() { saveTrie(t, path, 11) }, 11, 0, false},
			{"left alone", func() {}, 11, 0, false},
			{"another", func() { saveTrie(t, path, 22) }, 22, 1, false},
			{"broken", func() { write(t, path, `{"version":`) }, 22, 1, true},
			{"whole again", func() { saveTrie(t, path, 33) }, 33, 2, false},
			{"removed", func() {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}, 33, 2, false},
			{"back", func() { saveTrie(t, path, 4444) }, 4444, 3, false},
		} {
			step.do()
			time.Sleep(followInterval)
			synctest.Wait()
			var tokens, plain float64
			if p, ok := f.Find([]string{"plan"}, 1); ok {
				tokens = p.OutputTokens.P90
			}
			if p, ok := f.FindPlain([]string{"plan"}, 1); ok {
				plain = p.OutputTokens.P90
			}
			s := f.stats()
			if tokens != step.tokens || plain != step.tokens || s.Reloads != step.reloads || (s.Error != "") != step.failing {
				t.Errorf("%s: %v tokens, plainly %v, and %+v, want %v tokens, %d reloads, failing %t", step.name, tokens, plain, s, step.tokens, step.reloads, step.failing)
			}
		}
		stop()
		<-done
	})
}

// TestFollowerThatHangs closes a proxy while its trie is being read from what never answers.
func TestFollowerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "trie.json")
		saveTrie(t, path, 11)
		ctx, stop := context.WithCancel(t.Context())
		p := &Proxy{
			cfg:      Config{Upstream: &url.URL{Scheme: "http", Host: "x"}, Log: quiet},
			upstream: newUpstream(true), trie: newFollower(path, quiet), stop: stop,
		}
		answer := make(chan bool)
		p.trie.read = func(string) (*trie.Trie, error) { <-answer; return nil, errors.New("too late") }
		go p.trie.run(ctx)
		saveTrie(t, path, 2222)
		time.Sleep(followInterval)
		synctest.Wait()
		if s := p.Stats(); s.Trie.Error != "" || s.Trie.Reloads != 0 {
			t.Errorf("while it hangs: %+v", s.Trie)
		}
		began := time.Now()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("Close took %s", took)
		}
		close(answer)
		<-p.trie.done
	})
}

func put(t *testing.T, f *spanFile, line string) {
	t.Helper()
	if n, err := io.WriteString(f, line); n != len(line) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

func TestSpanFileIsFlushedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "spans.jsonl")
		f, err := openSpanFile(path, quiet)
		if err != nil {
			t.Fatal(err)
		}
		check := func(when, want string, written, waiting uint64) {
			t.Helper()
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v, want %q", when, got, err, want)
			}
			if d := cmp.Diff(&RecordStats{Path: path, Written: written, Waiting: waiting}, f.stats()); d != "" {
				t.Errorf("%s: stats (-want +got):\n%s", when, d)
			}
		}
		put(t, f, "1\n")
		check("at once", "", 0, 1)
		time.Sleep(flushInterval)
		synctest.Wait()
		check("after a second", "1\n", 1, 0)
		put(t, f, "2\n")
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		check("at the end", "1\n2\n", 2, 0)
		put(t, f, "3\n")
		if s := f.stats(); s.Dropped != 1 {
			t.Errorf("after the end: %+v", s)
		}
		if err := f.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// disk is a file on one that has room for some bytes, and may take its time.
type disk struct {
	*os.File
	hang chan bool // nil, or closed when it answers

	mu    sync.Mutex
	room  int
	tries int
}

func (d *disk) setRoom(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = n
}

func (d *disk) tried() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries
}

func (d *disk) Write(p []byte) (int, error) {
	if d.hang != nil {
		<-d.hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.File.Write(p[:min(len(p), d.room)])
	d.room -= n
	d.tries++
	if err == nil && n < len(p) {
		err = syscall.ENOSPC
	}
	return n, err
}

// openDisk returns an empty file, and what it holds at any time.
func openDisk(t *testing.T, room int) (d *disk, content func() string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spans.jsonl")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return &disk{File: f, room: room}, func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestSpanFileDoesNotWaitForASecondWhenMuchIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, content := openDisk(t, maxWaiting)
		f := startSpanFile("spans.jsonl", d, quiet)
		line := strings.Repeat("x", 1023) + "\n"
		for range flushBytes / len(line) {
			put(t, f, line)
		}
		synctest.Wait()
		if n := len(content()); n != flushBytes {
			t.Errorf("%d bytes were written", n)
		}
		put(t, f, strings.Repeat("y", maxSpan-1)+"\n")
		put(t, f, strings.Repeat("y", maxSpan)+"\n") // longer than any
		if err := f.Close(); err == nil || err.Error() != "spans.jsonl: missing spans: 1" {
			t.Errorf("close: %v", err)
		}
		if n := len(content()); n != flushBytes+maxSpan {
			t.Errorf("%d bytes were written", n)
		}
	})
}

// TestSpanFileThatHangs has a file that takes nothing and says nothing, as a pipe without a
// reader.
func TestSpanFileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, content := openDisk(t, 3*maxWaiting)
		d.hang = make(chan bool)
		var log logged
		f := startSpanFile("spans.jsonl", d, slog.New(slog.NewTextHandler(&log, nil)))
		put(t, f, "first\n")
		time.Sleep(flushInterval)
		synctest.Wait() // it hangs
		line := strings.Repeat("x", 1023) + "\n"
		const room = maxWaiting / 1024
		began := time.Now()
		for range room + 10 {
			put(t, f, line)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("calls waited for %s", took)
		}
		if d := cmp.Diff(&RecordStats{Path: "spans.jsonl", Waiting: room + 1, Dropped: 10}, f.stats()); d != "" {
			t.Errorf("while it hangs: stats (-want +got):\n%s", d)
		}
		if n := strings.Count(log.String(), "level=ERROR msg=\"the recording stands still, and spans are dropped\" path=spans.jsonl\n"); n != 1 {
			t.Errorf("log: %s", &log)
		}
		close(d.hang)
		time.Sleep(flushInterval)
		synctest.Wait()
		if d := cmp.Diff(&RecordStats{Path: "spans.jsonl", Written: room + 1, Dropped: 10}, f.stats()); d != "" {
			t.Errorf("when it goes on: stats (-want +got):\n%s", d)
		}
		if !strings.HasSuffix(log.String(), "level=INFO msg=\"the recording goes on\" path=spans.jsonl dropped=10\n") {
			t.Errorf("log: %s", &log)
		}

		d.hang = make(chan bool)
		put(t, f, "last\n")
		began = time.Now()
		err := f.Close()
		if want := "spans.jsonl: could not be written within 3s; missing spans: up to 11"; err == nil || err.Error() != want || time.Since(began) != closeTimeout {
			t.Errorf("close: %v after %s, want %s after %s", err, time.Since(began), want, closeTimeout)
		}
		close(d.hang)
		<-f.done
		if !strings.HasSuffix(content(), "last\n") {
			t.Error("the last span was not written")
		}
	})
}

// TestSpanFileOnAFullDisk looks at a recording, second by second, on a disk that is full
// after two spans and a half, and has room again later.
func TestSpanFileOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = `{"run_id":"r"}` + "\n"
		d, content := openDisk(t, 5*len(span)/2)
		var log logged
		f := startSpanFile("spans.jsonl", d, slog.New(slog.NewTextHandler(&log, nil)))
		for range 4 {
			put(t, f, span)
		}
		time.Sleep(flushInterval)
		synctest.Wait()
		if d := cmp.Diff(&RecordStats{Path: "spans.jsonl", Written: 2, Waiting: 2, Error: syscall.ENOSPC.Error()}, f.stats()); d != "" {
			t.Errorf("when it is full: stats (-want +got):\n%s", d)
		}
		if got := content(); got != span+span+span[:len(span)/2] {
			t.Errorf("when it is full: %q", got)
		}
		put(t, f, strings.Repeat("x", flushBytes)+"\n") // which does not make it try sooner
		began, tries := time.Now(), d.tried()
		var at []int
		for range 100 {
			time.Sleep(time.Second)
			synctest.Wait()
			if n := d.tried(); n > tries {
				at, tries = append(at, int(time.Since(began).Seconds())), n
			}
		}
		if d := cmp.Diff([]int{1, 3, 7, 15, 31, 61, 91}, at); d != "" {
			t.Errorf("seconds until it was tried again (-want +got):\n%s", d)
		}
		if got := content(); got != span+span {
			t.Errorf("after the first attempt: %q", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), `level=ERROR msg="the recording cannot be written and will be tried again" path=spans.jsonl error="no space left on device"`) {
			t.Errorf("log: %s", &log)
		}
		d.setRoom(maxWaiting)
		time.Sleep(maxRetry)
		synctest.Wait()
		if d := cmp.Diff(&RecordStats{Path: "spans.jsonl", Written: 5}, f.stats()); d != "" {
			t.Errorf("with room again: stats (-want +got):\n%s", d)
		}
		if !strings.HasSuffix(log.String(), "level=INFO msg=\"the recording goes on\" path=spans.jsonl dropped=0\n") {
			t.Errorf("log: %s", &log)
		}
		if got := content(); !strings.HasPrefix(got, strings.Repeat(span, 4)+"xxx") {
			t.Errorf("with room again: %.80q", got)
		}
		d.setRoom(0)
		put(t, f, span)
		if err := f.Close(); !errors.Is(err, syscall.ENOSPC) || err.Error() != "missing spans: 1: no space left on device" {
			t.Errorf("close: %v", err)
		}
	})
}

// TestSpanFileWithoutANewline has a write end just before one. The span is not written twice.
func TestSpanFileWithoutANewline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = `{"run_id":"r"}` + "\n"
		d, content := openDisk(t, 2*len(span)-1)
		f := startSpanFile("spans.jsonl", d, quiet)
		put(t, f, span)
		put(t, f, span)
		time.Sleep(flushInterval)
		synctest.Wait()
		if got := content(); got != span+strings.TrimSuffix(span, "\n") {
			t.Errorf("when it is full: %q", got)
		}
		d.setRoom(maxWaiting)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if got := content(); got != span+span {
			t.Errorf("at the end: %q", got)
		}
	})
}

func TestSpanFileIsMended(t *testing.T) {
	const span, refused = `{"run_id":"r"}` + "\n", "refused"
	for _, tt := range []struct {
		name, before, after string
		cut                 int // bytes, of which the log tells
	}{
		{"none", "", "new\n", 0},
		{"whole", span, span + "new\n", 0},
		{"without a newline", span + `{"run_id": "r", "a": [1]}`, span + `{"run_id": "r", "a": [1]}` + "\nnew\n", 0},
		{"only one without a newline", `{"run_id":"r"}`, span + "new\n", 0},
		{"torn", span + `{"run_id":"r","start":"20`, span + "new\n", 25},
		{"torn early", span + `{"ru`, span + "new\n", 4},
		{"only a torn one", `{"run_id":`, "new\n", 10},
		{"something else", span + "a note", refused, 0},
		{"another format", `{"model":"m"}`, refused, 0},
		{"a long line", strings.Repeat("x", maxSpan) + `{"run_id":` + strings.Repeat("x", maxSpan-10), refused, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spans.jsonl")
			write(t, path, tt.before)
			var log logged
			f, err := openSpanFile(path, slog.New(slog.NewTextHandler(&log, nil)))
			said := ""
			if tt.cut > 0 {
				said = fmt.Sprintf("level=WARN msg=\"the last span of the recording was not whole and is cut off\" path=%s bytes=%d\n", path, tt.cut)
			}
			if got := log.String(); !strings.HasSuffix(got, said) || (got == "") != (said == "") {
				t.Errorf("log: %q, want %q", got, said)
			}
			want := tt.after
			if want == refused {
				want = tt.before
				if err == nil {
					t.Error("it was taken for a file of spans")
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if err == nil {
				if _, err := io.WriteString(f, "new\n"); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%.80q, %v, want %.80q", got, err, want)
			}
		})
	}
}
