package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/trie"
)

// The targets of the trie.
const (
	findLimit    = 8.0 // of one access to a map, for a path of four names
	findKeyLimit = 3.0 // of making the key and that access
	parseLimit   = 1.0 // of decoding by encoding/json
	writeLimit   = 0.5 // of encoding by encoding/json
)

// trieFindDepth is how many names the paths have that are looked up.
const trieFindDepth = 4

// trieScale is how much is measured.
type trieScale struct {
	agents, stages, functions int // each agent has all stages, each stage all functions
	calls                     int // that a function makes in the trie that is looked up in

	runs, shapes int // that a trie is built from, and how many kinds of them there are
}

var trieScaleFull = trieScale{agents: 8, stages: 10, functions: 50, calls: 5, runs: 100_000, shapes: 1000}

// measureTrie measures looking a prediction up, building a trie from the profile of many
// runs, and reading and writing its file.
func measureTrie(ctx context.Context, o options, r *report) error {
	return measureTrieOf(ctx, o, r, trieScaleFull)
}

func measureTrieOf(ctx context.Context, o options, r *report, s trieScale) error {
	o.progress("trie: lookups")
	if err := measureFind(o, r, s); err != nil {
		return err
	}
	o.progress("trie: %d runs", s.runs)
	t, err := measureBuild(ctx, r, s)
	if err != nil {
		return err
	}
	o.progress("trie: file")
	return measureTrieFile(o, r, t)
}

// triePlace is something to look up: a path and the index of a call there.
type triePlace struct {
	path  []string
	index int
	key   string // both in one string; the map has a copy of it
}

// measureFind compares looking predictions up by path and index with looking the same up
// in a map by a string, which finds nothing but what is there. In places that were seen the
// index has a prediction of its own; in others that of all indices is the answer.
func measureFind(o options, r *report, s trieScale) error {
	t, paths := wideTrie(s)
	seen, others := triePlaces(paths, 1, s.calls), triePlaces(paths, s.calls+1, 2*s.calls)
	byKey := make(map[string]*trie.Prediction)
	for _, places := range [][]triePlace{seen, others} {
		for _, p := range places {
			m := t.Lookup(p.path, p.index)
			if m.Prediction == nil || m.Way != trie.WholePath || len(m.Path) != trieFindDepth || m.Exact != (p.index <= s.calls) {
				return fmt.Errorf("%s: expected to be found at its path, got %+v", p.key, m)
			}
			byKey[strings.Clone(p.key)] = m.Prediction
		}
	}
	for _, c := range []struct {
		what   string
		places []triePlace
	}{{"own index", seen}, {"any index", others}} {
		if err := comparePlaces(o, r, t, byKey, c.what, c.places); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
	}
	n := allocations(1000, func() { t.Find(seen[0].path, seen[0].index) })
	r.rows = append(r.rows, row{
		what:   "allocations per lookup in a trie",
		stator: fmt.Sprintf("%.2g", n),
		target: "0",
		ok:     n < 0.01, // the runtime may make one of its own
	})
	r.note("trie: lookups of %d paths of %d names in %d nodes, in random order", len(paths), trieFindDepth, countNodes(t.Root))
	return nil
}

// comparePlaces measures one kind of places. Every pass adds up what was predicted, which
// has to be the same for all.
func comparePlaces(o options, r *report, t *trie.Trie, byKey map[string]*trie.Prediction, what string, places []triePlace) error {
	var want float64
	for _, p := range places {
		want += byKey[p.key].OutputTokens.Mean
	}
	pass := func(find func(p *triePlace) *trie.Prediction) func() error {
		return func() error {
			var sum float64
			for i := range places {
				sum += find(&places[i]).OutputTokens.Mean
			}
			if sum != want {
				return errors.New("what was found differs from what the map has")
			}
			return nil
		}
	}
	buf := make([]byte, 0, 256)
	took, err := inTurns(o.rounds, 1,
		pass(func(p *triePlace) *trie.Prediction { return byKey[p.key] }),
		pass(func(p *triePlace) *trie.Prediction {
			buf = appendPlaceKey(buf[:0], p.path, p.index)
			return byKey[string(buf)]
		}),
		pass(func(p *triePlace) *trie.Prediction {
			found, _ := t.Find(p.path, p.index)
			return found
		}))
	if err != nil {
		return err
	}
	for i, c := range []struct {
		to    string
		limit float64
	}{{"a map access", findLimit}, {"making the key and a map access", findKeyLimit}} {
		ratios := make([]float64, o.rounds)
		for k := range ratios {
			ratios[k] = took[2][k] / took[i][k]
		}
		r.ratio(fmt.Sprintf("lookup in a trie, %d names, %s, to %s", trieFindDepth, what, c.to),
			nanos(took[i], len(places)), nanos(took[2], len(places)), ratios, c.limit)
	}
	return nil
}

// wideTrie returns a trie of paths with four names, and those.
func wideTrie(s trieScale) (*trie.Trie, [][]string) {
	b := trie.NewBuilder(trie.Options{WorkflowName: "bench"})
	var paths [][]string
	for a := range s.agents {
		for g := range s.stages {
			for f := range s.functions {
				path := []string{"workflow", agentName(a), stageName(g), functionName(f)}
				paths = append(paths, path)
				run := make([]trie.Step, s.calls)
				for i := range run {
					run[i] = trie.Step{
						Type: trie.LLMEnd, Time: float64(i), Path: path,
						Function:     trie.Invocation{ID: "1", Name: path[len(path)-1]},
						OutputTokens: len(paths) + i,
					}
				}
				b.Add(run)
			}
		}
	}
	return b.Build(time.Unix(0, 0)), paths
}

// triePlaces returns calls at all paths, with indices from low to high, in random order.
func triePlaces(paths [][]string, low, high int) []triePlace {
	var out []triePlace
	for _, path := range paths {
		for i := low; i <= high; i++ {
			out = append(out, triePlace{path, i, string(appendPlaceKey(nil, path, i))})
		}
	}
	seeded("places").Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// appendPlaceKey appends a call's path and index in one string.
func appendPlaceKey(dst []byte, path []string, index int) []byte {
	for _, name := range path {
		dst = append(dst, name...)
		dst = append(dst, '/')
	}
	return strconv.AppendInt(dst, int64(index), 10)
}

// measureBuild builds a trie, with latency sensitivity, of runs of [callsPerRun] calls each.
// Making up the runs takes time, too, which is measured apart and does not count.
func measureBuild(ctx context.Context, r *report, s trieScale) (*trie.Trie, error) {
	making, err := spent(func() error {
		m := newRunMaker(s.shapes)
		for range s.runs {
			m.next()
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	w := trie.TunedWeights()
	b := trie.NewBuilder(trie.Options{WorkflowName: "bench", Sensitivity: &w})
	var t *trie.Trie
	start := heap()
	var peak uint64
	steps := 0
	took, err := spent(func() error {
		m := newRunMaker(s.shapes)
		for i := range s.runs {
			run := m.next()
			steps += len(run)
			b.Add(run)
			if i%256 == 0 {
				peak = max(peak, heapNow())
			}
		}
		t = b.Build(time.Unix(0, 0))
		peak = max(peak, heapNow())
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	if want := s.runs * callsPerRun; b.Calls() != want || b.Skipped() != 0 {
		return nil, fmt.Errorf("expected a trie of %d calls, got one of %d, with %d steps left out", want, b.Calls(), b.Skipped())
	}
	took -= making
	r.note("trie: built from %s calls in %d runs, %s steps: %.2f s of processor time, %.0f k calls/s, at most %.0f MB of heap, garbage included; %d nodes",
		millions(b.Calls()), s.runs, millions(steps), took, float64(b.Calls())/took/1e3, (float64(peak)-float64(start))/1e6, countNodes(t.Root))
	return t, nil
}

// measureTrieFile compares reading and writing a file with what encoding/json does with it.
func measureTrieFile(o options, r *report, t *trie.Trie) error {
	file := t.AppendJSON(nil)
	back, err := trie.Parse(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(back.AppendJSON(nil), file) {
		return errors.New("the file that was read is written differently")
	}
	var plain map[string]any
	var dst []byte
	took, err := inTurns(o.rounds, 1,
		func() error {
			plain = nil
			return json.Unmarshal(file, &plain)
		},
		func() error { _, err := trie.Parse(file); return err },
		func() error { _, err := json.MarshalIndent(plain, "", "  "); return err },
		func() error {
			if dst = t.AppendJSON(dst[:0]); len(dst) != len(file) {
				return fmt.Errorf("wrote %d bytes, expected %d", len(dst), len(file))
			}
			return nil
		})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what        string
		their, ours []float64
		limit       float64
	}{
		{"reading", took[0], took[1], parseLimit},
		{"writing", took[2], took[3], writeLimit},
	} {
		ratios := make([]float64, len(c.ours))
		for i := range ratios {
			ratios[i] = c.ours[i] / c.their[i]
		}
		r.ratio(fmt.Sprintf("%s a trie of %.1f MB, to encoding/json", c.what, float64(len(file))/1e6),
			speed(len(file), median(c.their)), speed(len(file), median(c.ours)), ratios, c.limit)
	}
	return nil
}

func countNodes(n *trie.Node) int {
	count := 1
	for _, c := range n.Children {
		count += countNodes(c)
	}
	return count
}

// heapNow returns how much of the heap is taken, by what is in use and by garbage.
func heapNow() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// nanos writes the median of the times that passes took, for each of the n things done.
func nanos(passes []float64, n int) string {
	return fmt.Sprintf("%.1f ns", median(passes)/float64(n)*1e9)
}
