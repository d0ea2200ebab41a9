package kvlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// stored is a batch that stores one block.
func stored(worker kv.WorkerID, seq uint64) *kv.Batch {
	return &kv.Batch{
		Source: kv.Source{Worker: worker},
		Seq:    seq,
		Events: []kv.Event{{Kind: kv.Stored, Blocks: []kv.Block{{ID: kv.BlockID(100 * seq), Tokens: kv.LocalHash(seq)}}}},
	}
}

// several is a batch of n events that remove a block each.
func several(worker kv.WorkerID, seq uint64, n int) *kv.Batch {
	b := &kv.Batch{Source: kv.Source{Worker: worker, Rank: 1}, Seq: seq}
	for i := range n {
		b.Events = append(b.Events, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: kv.BlockID(i)}}})
	}
	return b
}

func start(t *testing.T, opts Options) *Recorder {
	t.Helper()
	r, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func apply(t *testing.T, to kv.Applier, batches ...*kv.Batch) {
	t.Helper()
	for _, b := range batches {
		if err := to.Apply(b); err != nil {
			t.Fatalf("apply: %v", err)
		}
	}
}

func closeRecorder(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// timed is a batch with its time.
type timed struct {
	At    time.Duration
	Batch *kv.Batch
}

func readAll(t *testing.T, path string) []timed {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []timed
	for at, b := range r.Batches() {
		got = append(got, timed{at, b})
	}
	if err := r.Err(); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	if s := r.Skipped(); s.Lines != 0 {
		t.Fatalf("read %s: %d lines skipped: %v", path, s.Lines, s.First)
	}
	return got
}

func TestRecorderLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "not", "there", "run.jsonl")
		r := start(t, Options{Path: path})
		apply(t, r, &kv.Batch{
			Source: kv.Source{Worker: 7},
			Seq:    42,
			Events: []kv.Event{
				{Kind: kv.Stored, Blocks: []kv.Block{{ID: 100, Tokens: 200}}},
				{Kind: kv.Removed, Blocks: []kv.Block{{ID: 100}}},
			},
		})
		time.Sleep(1250*time.Millisecond + 999*time.Microsecond)
		apply(t, r,
			&kv.Batch{Source: kv.Source{Worker: 7, Rank: 1}, Epoch: 3, Seq: 44, Events: []kv.Event{{Kind: kv.Cleared}}},
			&kv.Batch{Source: kv.Source{Worker: 7, Rank: 1}, Epoch: 3, Seq: 45},
		)
		closeRecorder(t, r)

		want := `{"timestamp":0,"event":{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":200,"mm_extra_info":null}]}},"dp_rank":0}}}
{"timestamp":0,"event":{"worker_id":7,"event":{"event_id":42,"data":{"removed":{"block_hashes":[100]}},"dp_rank":0}}}
{"timestamp":1250,"event":{"worker_id":7,"event":{"event_id":44,"data":"cleared","dp_rank":1}},"epoch":3}
{"timestamp":1250,"event":{"worker_id":7,"event":{"event_id":45,"data":{"removed":{"block_hashes":[]}},"dp_rank":1}},"epoch":3}
`
		if diff := cmp.Diff(want, text(t, path)); diff != "" {
			t.Errorf("file (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Stats{Written: 4}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v", info.Mode())
		}
	})
}

func TestRecorderRoundTrip(t *testing.T) {
	big := several(3, 9, 3000)
	big.Events = append(big.Events, kv.Event{Kind: kv.Stored, HasParent: true, Parent: 1<<64 - 1, Counted: true, Blocks: make([]kv.Block, 5000)})
	for i := range big.Events[3000].Blocks {
		big.Events[3000].Blocks[i] = kv.Block{ID: 1<<63 + kv.BlockID(i), Tokens: 1<<62 + kv.LocalHash(i)}
	}
	batches := []*kv.Batch{
		stored(1, 0), stored(2, 0), stored(1, 1),
		{Source: kv.Source{Worker: 2}, Epoch: 1<<64 - 1, Seq: 0, Events: []kv.Event{
			{Kind: kv.Cleared},
			{Kind: kv.Stored, Tier: kv.Host, Bare: true, Blocks: []kv.Block{{ID: 5}}},
			{Kind: kv.Removed, Tier: kv.External, Counted: true, Blocks: []kv.Block{{ID: 5}}},
		}},
		{Source: kv.Source{Worker: 2}, Seq: 0, Events: []kv.Event{{Kind: kv.Cleared}}},
		big,
	}
	for _, name := range []string{"run.jsonl", "run.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				r := start(t, Options{Path: path})
				var want []timed
				for i, b := range batches {
					apply(t, r, b)
					want = append(want, timed{time.Duration(i) * 700 * time.Millisecond, b})
					time.Sleep(700 * time.Millisecond)
				}
				closeRecorder(t, r)
				if diff := cmp.Diff(want, readAll(t, path), skipEmpty); diff != "" {
					t.Errorf("batches (-recorded +read):\n%s", diff)
				}
			})
		})
	}
}

// skipEmpty takes no blocks for no blocks, made or not.
var skipEmpty = cmp.Transformer("blocks", func(b []kv.Block) string { return fmt.Sprint(b) })

func TestRecorderKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "run.jsonl")
		r := start(t, Options{Path: path})
		b := stored(1, 1)
		apply(t, Tee(r, applierFunc(func(b *kv.Batch) error {
			b.Events[0].Blocks[0].ID = 666
			b.Events[0].Kind = kv.Cleared
			b.Seq = 666
			return nil
		})), b)
		closeRecorder(t, r)
		if diff := cmp.Diff([]timed{{0, stored(1, 1)}}, readAll(t, path)); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

type applierFunc func(*kv.Batch) error

func (f applierFunc) Apply(b *kv.Batch) error { return f(b) }

func TestTeeGivesTheAnswerOfTheOther(t *testing.T) {
	r := start(t, Options{Path: filepath.Join(t.TempDir(), "run.jsonl")})
	defer closeRecorder(t, r)
	refusal := errors.New("refused")
	err := Tee(r, applierFunc(func(*kv.Batch) error { return refusal })).Apply(stored(1, 1))
	if err != refusal {
		t.Errorf("error %v, want %v", err, refusal)
	}
}

func TestRecorderFlushes(t *testing.T) {
	for _, name := range []string{"run.jsonl", "run.zst"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), name)
				r := start(t, Options{Path: path})
				defer closeRecorder(t, r)
				for seq := range uint64(3) {
					apply(t, r, stored(1, seq))
					time.Sleep(FlushEvery)
					synctest.Wait()
					if got := len(readAll(t, path)); got != int(seq)+1 {
						t.Errorf("%d batches in the file, want %d", got, seq+1)
					}
				}
			})
		})
	}
}

func TestRecorderEmptiesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	for range 2 {
		r := start(t, Options{Path: path})
		apply(t, r, stored(1, 1))
		closeRecorder(t, r)
	}
	if got := len(readAll(t, path)); got != 1 {
		t.Errorf("%d batches, want 1", got)
	}
}

// A recording has no files of an earlier one that had more of them, and takes none
// away where it makes none.
func TestRecorderRemovesOldFiles(t *testing.T) {
	for _, ext := range []string{".jsonl", ".jsonl.zst"} {
		t.Run(ext, func(t *testing.T) {
			dir := t.TempDir()
			names := func() (out []string) {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					out = append(out, strings.TrimSuffix(e.Name(), ext))
				}
				return out
			}
			record := func(maxLines, batches int) {
				r := start(t, Options{Path: filepath.Join(dir, "run"+ext), MaxLines: maxLines})
				for i := range batches {
					apply(t, r, stored(1, uint64(i)))
				}
				closeRecorder(t, r)
			}
			if err := os.WriteFile(filepath.Join(dir, "run5"+ext), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			record(1, 4)
			if diff := cmp.Diff([]string{"run", "run1", "run2", "run3", "run5"}, names()); diff != "" {
				t.Errorf("first recording (-want +got):\n%s", diff)
			}
			record(0, 2)
			if diff := cmp.Diff([]string{"run", "run1", "run2", "run3", "run5"}, names()); diff != "" {
				t.Errorf("recording of one file (-want +got):\n%s", diff)
			}
			record(1, 2)
			if diff := cmp.Diff([]string{"run", "run1", "run5"}, names()); diff != "" {
				t.Errorf("shorter recording (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "run")
		if err := os.Mkdir(path+"1", 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Start(Options{Path: path, MaxLines: 1}); err == nil || !strings.Contains(err.Error(), "run1") {
			t.Errorf("error %v, want one about the directory", err)
		}
	})
}

func TestRecorderRotates(t *testing.T) {
	for _, ext := range []string{".jsonl", ".jsonl.zst"} {
		t.Run(ext, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				last := filepath.Join(dir, "run5"+ext)
				if err := os.WriteFile(last, []byte("old\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				r := start(t, Options{Path: filepath.Join(dir, "run"+ext), MaxLines: 3})
				apply(t, r,
					stored(1, 0), stored(1, 1), // run
					several(1, 2, 2),               // run1, because it is not divided
					stored(1, 3),                   // run1
					several(1, 4, 7), stored(1, 5), // run2 to run4, because it must be
					several(1, 6, 3), // run5
				)
				closeRecorder(t, r)
				got := make(map[string][]int) // events of batches
				paths, err := filepath.Glob(filepath.Join(dir, "*"))
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range paths {
					for _, b := range readAll(t, p) {
						name := filepath.Base(p)
						got[name] = append(got[name], len(b.Batch.Events))
					}
				}
				want := map[string][]int{
					"run" + ext:  {1, 1},
					"run1" + ext: {2, 1},
					"run2" + ext: {3},
					"run3" + ext: {3},
					"run4" + ext: {1, 1},
					"run5" + ext: {3},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("files (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(Stats{Written: 16}, r.Stats()); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNumbered(t *testing.T) {
	for in, want := range map[string]string{
		"run.jsonl":           "run12.jsonl",
		"run.jsonl.zst":       "run12.jsonl.zst",
		"run.zst":             "run12.zst",
		"run":                 "run12",
		"a.b/run":             "a.b/run12",
		"a.b/run.x.y":         "a.b/run.x12.y",
		".hidden":             ".hidden12",
		".hidden.jsonl":       ".hidden12.jsonl",
		".jsonl.zst":          ".jsonl12.zst",
		".zst":                ".zst12",
		"/tmp/v1.0/x.jsonl":   "/tmp/v1.0/x12.jsonl",
		"/tmp/v1.0/zst":       "/tmp/v1.0/zst12",
		"./run.2026-11.jsonl": "./run.2026-1112.jsonl",
	} {
		if got := numbered(in, 12); got != want {
			t.Errorf("numbered(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRecorderMaxEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "run.jsonl")
		r := start(t, Options{Path: path, MaxEvents: 4})
		apply(t, r, stored(1, 0), stored(1, 1), several(1, 2, 5), stored(1, 3))
		<-r.Done()
		apply(t, r, stored(1, 4))
		if diff := cmp.Diff([]timed{{0, stored(1, 0)}, {0, stored(1, 1)}, {0, several(1, 2, 2)}}, readAll(t, path)); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
		closeRecorder(t, r)
		if diff := cmp.Diff(Stats{Written: 4}, r.Stats()); diff != "" {
			t.Errorf("stats (-want +got):\n%s", diff)
		}
	})
}
