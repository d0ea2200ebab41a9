package trie

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func FuzzParse(f *testing.F) {
	// Small ones, for large ones take long to be made smaller.
	for _, text := range []string{
		`{"version":"1.0","generated_at":"","workflow_name":"\u00e9","root":{"name":"root"}}`,
		`{"root":{"name":"r","children":{"a":{"name":"b","children":{}},"a":{"name":""}}}}`,
		`{"root":{"name":"r","predictions_any_index":{"remaining_calls":{"mean":1e-5,"p50":3},"interarrival_ms":{},"output_tokens":{}}}}`,
		`{"root":{"name":"r","predictions_by_call_index":{"02":{"remaining_calls":{},"interarrival_ms":{},"output_tokens":{},"latency_sensitivity":3}}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := Parse(data)
		if err != nil {
			return
		}
		first := tr.AppendJSON(nil)
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("what was written is not read: %v\n%s", err, first)
		}
		if second := again.AppendJSON(nil); string(first) != string(second) {
			t.Fatalf("written\n%s\nand then\n%s", first, second)
		}
		tr.Lookup([]string{"a", "b", "c"}, 2)
	})
}

// FuzzBuilder compares the builder with one that does everything the long way.
func FuzzBuilder(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, uint8(seed%40), seed%3 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, size uint8, compat bool) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := Options{Sensitivity: new(TunedWeights()), Compat: compat, PathMode: PairPath}
		if seed%2 == 0 {
			o.Sensitivity.Scale = 1000 // shows small differences
		}
		b := NewBuilder(o)
		m := model{o: o, pools: make(map[string]*modelPool)}
		for range 1 + rng.IntN(3) {
			run := randomRun(rng, int(size))
			given := slices.Clone(run)
			b.Add(run)
			if diff := gocmp.Diff(given, run); diff != "" {
				t.Fatalf("Add changed its steps:\n%s", diff)
			}
			m.add(run)
		}
		if diff := gocmp.Diff(m.predictions(), flat(b.Build(at).Root, nil, make(map[string]Prediction))); diff != "" {
			t.Errorf("predictions (-the long way +built):\n%s", diff)
		}
	})
}

// randomRun returns steps with few ids and few times, so that they often meet.
func randomRun(rng *rand.Rand, n int) []Step {
	types := []EventType{LLMStart, LLMEnd, LLMEnd, ToolStart, ToolEnd, FunctionStart, FunctionEnd, SpanStart, SpanEnd, "OTHER"}
	id := func(kind string) string { return kind + strconv.Itoa(rng.IntN(4)) }
	var run []Step
	for range n {
		s := Step{
			Type: types[rng.IntN(len(types))], Time: float64(rng.IntN(12)), OutputTokens: rng.IntN(100),
			UUID: id("u"), ParentID: id("u"),
			Function: Invocation{ID: id("u"), Name: id("f"), ParentID: id("u"), ParentName: id("f")},
		}
		if rng.IntN(3) > 0 {
			s.Began = new(s.Time - float64(rng.IntN(5)))
		}
		switch rng.IntN(12) {
		case 0:
			s.Function.ParentID = ""
		case 1:
			s.Function.ParentName = ""
		case 2:
			s.Time = math.Inf(1)
		case 3:
			s.UUID = id("v")
		}
		run = append(run, s)
	}
	return run
}

// flat returns the predictions below a node by path and index, 0 for any.
func flat(n *Node, path []string, to map[string]Prediction) map[string]Prediction {
	key := func(index int) string { return strconv.Quote(n.Name) + "@" + joined(path) + "#" + strconv.Itoa(index) }
	for _, p := range n.ByCallIndex {
		to[key(p.Index)] = p.Prediction
	}
	if n.AnyIndex != nil {
		to[key(0)] = *n.AnyIndex
	}
	for _, c := range n.Children {
		flat(c, append(path, c.Name), to)
	}
	return to
}

func joined(path []string) string {
	s := ""
	for _, name := range path {
		s += "/" + name
	}
	return s
}

// model builds predictions as the rules say, one call at a time.
type model struct {
	o     Options
	pools map[string]*modelPool
}

type modelPool struct{ remaining, arrival, output, score []float64 }

func (m *model) add(run []Step) {
	run = slices.DeleteFunc(slices.Clone(run), func(s Step) bool { return math.IsInf(s.Time, 0) })
	slices.SortStableFunc(run, func(a, b Step) int { return cmp.Compare(a.Time, b.Time) })
	if len(run) == 0 {
		return
	}
	total := run[len(run)-1].Time - run[0].Time
	var ends []Step
	var starts, durs []float64
	for i, s := range run {
		if s.Type != LLMEnd {
			continue
		}
		start := s.Time
		if s.Began != nil {
			start = *s.Began
		} else if m.o.Compat {
			start = 0
		} else {
			for _, o := range run[:i] {
				if o.Type == LLMStart && o.UUID == s.UUID {
					start = o.Time
				}
			}
		}
		dur := s.Time - start
		if s.Began == nil && m.o.Compat {
			dur = 0
		}
		ends, starts, durs = append(ends, s), append(starts, start), append(durs, dur)
	}
	scores := m.scores(run, ends, starts, durs, total)
	for i, e := range ends {
		index := 0
		for _, o := range ends[:i+1] {
			if o.Function.ID == e.Function.ID {
				index++
			}
		}
		var path []string
		name := "root"
		for depth := range 3 {
			if depth == 1 {
				if e.Function.ParentName == "" {
					continue
				}
				name = e.Function.ParentName
			}
			if depth == 2 {
				name = e.Function.Name
			}
			if depth > 0 {
				path = append(path, name)
			}
			for _, at := range []int{0, index} {
				key := strconv.Quote(name) + "@" + joined(path) + "#" + strconv.Itoa(at)
				p := m.pools[key]
				if p == nil {
					p = new(modelPool)
					m.pools[key] = p
				}
				p.remaining = append(p.remaining, float64(len(ends)-i-1))
				p.output = append(p.output, float64(e.OutputTokens))
				p.score = append(p.score, scores[i])
				for _, s := range run {
					if s.Type == LLMStart && s.Time > e.Time {
						p.arrival = append(p.arrival, 1000*(s.Time-e.Time))
						break
					}
				}
			}
		}
	}
}

func (m *model) scores(run, ends []Step, starts, durs []float64, total float64) []float64 {
	// Positions: those that begin before all that began earlier have ended go together.
	order := make([]int, len(ends))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(starts[a], starts[b]) })
	position, size := make([]int, len(ends)), make(map[int]int)
	at, latest := -1, math.Inf(-1)
	for _, i := range order {
		if at < 0 || starts[i] >= latest {
			at, latest = at+1, ends[i].Time
		}
		latest = max(latest, ends[i].Time)
		position[i] = at
		size[at]++
	}
	w := m.o.Sensitivity
	raw := make([]float64, len(ends))
	for i := range ends {
		crit, fan, pos := 1.0, 0.0, 1.0
		if total > 0 {
			crit = min(durs[i]/total, 1)
		}
		if at > 0 {
			x := float64(position[i]) / float64(at)
			fan, pos = float64(at-position[i])/float64(at), max(1-x, x)
		}
		par := m.slack(run, ends[i], starts[i], durs[i])
		if g := float64(size[position[i]]); g > 1 {
			par = (par + (g-1)/g) / 2
		}
		raw[i] = float64(w.Critical*crit) + float64(w.Fanout*fan) + float64(w.Position*pos) - float64(w.Parallel*par)
	}
	scores := make([]float64, len(raw))
	for i := range raw {
		lo, hi := slices.Min(raw), slices.Max(raw)
		scores[i] = (raw[i] - lo) / (hi - lo)
		if least := float64(0.05 * (w.Critical + w.Fanout + w.Position + w.Parallel)); !m.o.Compat && hi-lo < least {
			scores[i] = (raw[i] - (lo - (least-(hi-lo))/2)) / least
		}
		if hi == lo || !m.o.Compat && hi-lo <= 1e-9*max(math.Abs(lo), math.Abs(hi)) {
			scores[i] = 0.5
		}
	}
	return scores
}

// slack compares a call with everything that may be beside it.
func (m *model) slack(run []Step, e Step, start, dur float64) float64 {
	if dur <= 0 {
		return 0
	}
	type thing struct {
		parent     string
		start, end float64
	}
	begun, whole, ended := make(map[string]thing), make(map[string]thing), make(map[string]float64)
	functions := make(map[string]Invocation)
	for _, s := range run {
		switch s.Type {
		case LLMStart, ToolStart, FunctionStart, SpanStart:
			begun[s.UUID] = thing{s.ParentID, s.Time, 0}
			delete(whole, s.UUID)
		case LLMEnd, ToolEnd, FunctionEnd, SpanEnd:
			ended[s.UUID] = s.Time
			if b, ok := begun[s.UUID]; ok {
				whole[s.UUID] = thing{b.parent, b.start, s.Time}
			}
		}
		if _, ok := functions[s.Function.ID]; !ok {
			functions[s.Function.ID] = s.Function
		}
	}
	if m.o.Compat { // in whatever order
		for id, b := range begun {
			if end, ok := ended[id]; ok {
				whole[id] = thing{b.parent, b.start, end}
			}
		}
	}
	not := map[string]bool{e.UUID: true}
	if !m.o.Compat {
		id := e.ParentID
		for range 20 {
			if b, ok := begun[id]; ok {
				not[id] = true
				id = b.parent
			}
		}
		f := e.Function
		for range 20 {
			not[f.ID] = true
			up, ok := functions[f.ParentID]
			if !ok {
				up = Invocation{ID: f.ParentID}
			}
			f = up
		}
	}
	beside := func(place string) (n int, longest float64) {
		for id, o := range whole {
			if o.parent != place {
				continue
			}
			if m.o.Compat || !not[id] {
				n++
			}
			if !not[id] && o.start < e.Time && o.end > start {
				longest = max(longest, o.end-o.start)
			}
		}
		return n, longest
	}
	n, longest := 0, 0.0
	if e.Function.ParentID != "" {
		n, longest = beside(e.Function.ParentID)
	}
	if n == 0 {
		_, longest = beside(e.ParentID)
	}
	if longest == 0 {
		return 0
	}
	return max(0, 1-dur/longest)
}

func (m *model) predictions() map[string]Prediction {
	all := make(map[string]Prediction)
	for key, p := range m.pools {
		var score mean // a sum that is rounded otherwise may be of another level
		for _, s := range p.score {
			score.add(s)
		}
		scale := float64(m.o.Sensitivity.Scale)
		all[key] = Prediction{
			RemainingCalls: long(p.remaining), InterArrivalMS: long(p.arrival), OutputTokens: long(p.output),
			LatencySensitivity: new(int(min(max(math.RoundToEven(score.value()*(scale-1))+1, 1), scale))),
		}
	}
	return all
}

// long sums values up by definition. They are integers, so the order does not matter.
func long(values []float64) Metrics {
	if len(values) == 0 {
		return Metrics{}
	}
	values = slices.Sorted(slices.Values(values))
	m := Metrics{SampleCount: len(values)}
	for _, v := range values {
		m.Mean += v
	}
	m.Mean /= float64(len(values))
	q := func(q float64) float64 {
		k := float64(len(values)-1) * q / 100
		f, c := math.Floor(k), math.Ceil(k)
		return values[int(f)] + float64((values[int(c)]-values[int(f)])*(k-f))
	}
	m.P50, m.P90, m.P95 = q(50), q(90), q(95)
	return m
}
