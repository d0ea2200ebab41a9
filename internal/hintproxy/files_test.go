package hintproxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/trie"
)

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
			var tokens float64
			if p, ok := f.Find([]string{"plan"}, 1); ok {
				tokens = p.OutputTokens.P90
			}
			s := f.stats()
			if tokens != step.tokens || s.Reloads != step.reloads || (s.Error != "") != step.failing {
				t.Errorf("%s: %v tokens and %+v, want %v tokens, %d reloads, failing %t", step.name, tokens, s, step.tokens, step.reloads, step.failing)
			}
		}
		stop()
		<-done
	})
}

func TestSpanFileIsFlushedEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "spans.jsonl")
		f, err := openSpanFile(path, quiet)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { f.run(ctx); close(done) }()
		check := func(when, want string) {
			t.Helper()
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v, want %q", when, got, err, want)
			}
		}
		put := func(line string) {
			t.Helper()
			if _, err := io.WriteString(f, line); err != nil {
				t.Fatal(err)
			}
		}
		put("1\n")
		check("at once", "")
		time.Sleep(flushInterval)
		synctest.Wait()
		check("after a second", "1\n")
		put("2\n")
		stop()
		<-done
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		check("at the end", "1\n2\n")
		if s := f.stats(); s.Spans != 2 || s.Path != path || s.Error != "" {
			t.Errorf("stats: %+v", s)
		}
	})
}

// chunks remembers what was written at a time, until it fails.
type chunks struct {
	all []string
	err error
}

func (c *chunks) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	c.all = append(c.all, string(p))
	return len(p), nil
}

func (c *chunks) Close() error { return nil }

func TestSpanFileWritesWholeLines(t *testing.T) {
	var out chunks
	f := newSpanFile("spans.jsonl", &out, quiet)
	line := strings.Repeat("x", 999) + "\n"
	for range 200 {
		if _, err := io.WriteString(f, line); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(f, strings.Repeat("y", 2*recordBuffer)+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if len(out.all) < 4 {
		t.Errorf("%d writes", len(out.all))
	}
	for i, c := range out.all {
		if !strings.HasSuffix(c, "\n") {
			t.Errorf("write %d ends within a line", i)
		}
	}
	if n := len(strings.Join(out.all, "")); n != 200*1000+2*recordBuffer+1 {
		t.Errorf("%d bytes were written", n)
	}
}

func TestSpanFileEndsWithAnError(t *testing.T) {
	full := errors.New("no space left")
	out := chunks{err: full}
	f := newSpanFile("spans.jsonl", &out, quiet)
	if _, err := io.WriteString(f, "1\n"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.flushLocked()
	f.mu.Unlock()
	out.err = nil
	if _, err := io.WriteString(f, "2\n"); err != full {
		t.Errorf("a write after it: %v", err)
	}
	if s := f.stats(); s.Error != "no space left" || s.Spans != 1 {
		t.Errorf("stats: %+v", s)
	}
	if err := f.Close(); err != full || len(out.all) != 0 {
		t.Errorf("close: %v, written %q", err, out.all)
	}
}

func TestSpanFileIsMended(t *testing.T) {
	const span, refused = `{"run_id":"r"}` + "\n", "refused"
	for _, tt := range []struct{ name, before, after string }{
		{"none", "", "new\n"},
		{"whole", span, span + "new\n"},
		{"torn", span + `{"run_id":"r","start":"20`, span + "new\n"},
		{"torn early", span + `{"ru`, span + "new\n"},
		{"only a torn one", `{"run_id":`, "new\n"},
		{"something else", span + "a note", refused},
		{"another format", `{"model":"m"}`, refused},
		{"a long line", strings.Repeat("x", maxTorn) + `{"run_id":` + strings.Repeat("x", maxTorn-10), refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spans.jsonl")
			write(t, path, tt.before)
			f, err := openSpanFile(path, quiet)
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
