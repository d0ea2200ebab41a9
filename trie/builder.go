package trie

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// PathMode is by which names a [Builder] files a call.
type PathMode uint8

const (
	// FullPath files it under all functions from the workflow's entry on.
	FullPath PathMode = iota
	// PairPath files it under its function's caller and its function, as NeMo Agent
	// Toolkit does.
	PairPath
)

// DefaultMaxSamples is what an [Options.MaxSamples] of 0 means.
const DefaultMaxSamples = 65536

// Options are how a [Builder] builds. The zero value builds full paths without latency
// sensitivity.
type Options struct {
	// WorkflowName is what the trie says it is of; "unknown" if empty.
	WorkflowName string
	// PathMode is by which names calls are filed.
	PathMode PathMode
	// Sensitivity is how to rate how much a run waits for a call; nil for not at all.
	Sensitivity *Weights
	// MaxSamples is how many values are kept for each metric of each prediction; 0 is
	// [DefaultMaxSamples], or all with Compat. Percentiles over more are those of a sample of
	// that many, drawn the same way every time. Counts and means are always over all.
	MaxSamples int
	// Compat builds what NeMo Agent Toolkit builds from the same steps: pairs, whatever
	// PathMode says, a function with an empty name included; a call whose beginning was not
	// recorded began at time 0; an answer whose length is not known is empty; a call's own
	// function counts as something that ran beside it; any difference between the calls of a
	// run, however small, is spread over the whole scale of levels; and the trie may become
	// as large as it will. The numbers are those of Python 3.12 and later: older ones round
	// sums otherwise.
	Compat bool
}

// Builder builds a [Trie] from runs. It is not safe for concurrent use.
//
// What it builds is bounded, except with Options.Compat: of the calls of an invocation only
// the first 256 have an index of their own, the others count in the aggregates alone; a
// node has at most 4096 children, and the trie 65,536 nodes: calls in others are filed as
// deep as there are nodes, and counted in [Builder.FiledHigher]; and of a name of more than
// 256 bytes the end is replaced by a hash, which lookups know about.
type Builder struct {
	o                    Options
	root                 *tally
	runs, calls, skipped int
	nodes, higher        int

	// What one run needs, kept for the next.
	steps   []*Step
	run     []call
	starts  []float64
	indices map[string]int
	names   []string
	slack   slackFinder
}

// tally is what was seen at a node.
type tally struct {
	name     string
	children []*tally
	byName   map[string]*tally
	any      bucket
	byIndex  map[int]*bucket
	own      bool // byIndex is of the calls that were made right here, not deeper
}

// bucket is what was seen of the calls that one prediction is for.
type bucket struct {
	remaining, arrival, output samples
	score                      mean
}

// call is an LLM call that has ended.
type call struct {
	*Step
	start, end, dur float64
	index           int
	next            float64 // milliseconds until the next call began; negative for none
	score           float64
}

// NewBuilder returns a Builder without runs.
func NewBuilder(o Options) *Builder {
	if o.WorkflowName == "" {
		o.WorkflowName = unnamed
	}
	o.WorkflowName = o.named(o.WorkflowName)
	if o.MaxSamples <= 0 {
		o.MaxSamples = DefaultMaxSamples
		if o.Compat {
			o.MaxSamples = math.MaxInt
		}
	}
	if o.Compat {
		o.PathMode = PairPath
	}
	if o.Sensitivity != nil {
		w := *o.Sensitivity
		if w.Scale < 1 {
			w.Scale = DefaultWeights().Scale
		}
		o.Sensitivity = &w
	}
	return &Builder{o: o, root: new(tally), indices: make(map[string]int)}
}

// Runs returns how many runs were added, those without calls included.
func (b *Builder) Runs() int { return b.runs }

// Calls returns how many LLM calls they had.
func (b *Builder) Calls() int { return b.calls }

// Skipped returns how many steps were left out because their time made no sense: one that
// is not a number, or too far from 0 to be in seconds.
func (b *Builder) Skipped() int { return b.skipped }

// FiledHigher returns how many calls were filed under fewer names than their paths have,
// because a node had too many children or the trie too many nodes.
func (b *Builder) FiledHigher() int { return b.higher }

// Sampled reports whether some percentiles are those of a sample.
func (b *Builder) Sampled() bool { return b.calls > b.o.MaxSamples }

// Add adds the steps of one run, in any order; those of the same time are taken to be in
// the order in which they are given. It changes nothing of them and keeps nothing. The cost
// is that of sorting them.
func (b *Builder) Add(run []Step) {
	b.runs++
	b.order(run)
	if len(b.steps) == 0 {
		return
	}
	invocations := b.invocations()
	b.collect(invocations)
	if w := b.o.Sensitivity; w != nil && len(b.run) > 0 {
		b.rate(*w, invocations)
	}
	for i := range b.run {
		c := &b.run[i]
		b.names = b.path(b.names[:0], c.Step, invocations)
		b.file(c, b.names, len(b.run)-i-1)
	}
	b.calls += len(b.run)
	// Hold on to nothing of the caller's.
	clear(b.steps)
	clear(b.run)
	clear(b.names)
	b.indices = emptied(b.indices)
}

// rate scores the run's calls.
func (b *Builder) rate(w Weights, invocations map[string]Invocation) {
	if !slices.ContainsFunc(b.steps, func(s *Step) bool { return s.ParentID != "" || s.Path != nil }) {
		w.Parallel = 0 // nothing says what ran beside what
	}
	var slack []float64
	if w.Parallel > 0 {
		slack = b.slack.find(b.steps, b.run, invocations, b.o.Compat)
	}
	w.rate(b.run, b.steps[len(b.steps)-1].Time-b.steps[0].Time, slack, b.o.Compat)
}

// file counts a call in the nodes of its path.
func (b *Builder) file(c *call, path []string, remaining int) {
	full := b.o.PathMode == FullPath
	n := b.root
	n.add(c, remaining, full && len(path) == 0, &b.o)
	for i, name := range path {
		if n = b.child(n, name); n == nil {
			b.higher++
			return
		}
		n.add(c, remaining, full && i == len(path)-1, &b.o)
	}
}

// emptied returns a map without entries: m, unless it was so large that every run to come
// would take the time to clear it.
func emptied[V any](m map[string]V) map[string]V {
	const large = 1024
	if len(m) > large {
		return make(map[string]V)
	}
	clear(m)
	return m
}

// maxTime is the latest time that can be meant, some three thousand years from 1970. Times
// in milliseconds are later.
const maxTime = 1e11

// sane reports whether t can be a time in seconds.
func sane(t float64) bool { return math.Abs(t) <= maxTime } // false for NaN

// order sets b.steps to the steps that can be used, by time.
func (b *Builder) order(run []Step) {
	b.steps = b.steps[:0]
	for i := range run {
		if s := &run[i]; sane(s.Time) {
			b.steps = append(b.steps, s)
		} else {
			b.skipped++
		}
	}
	byTime := func(a, b *Step) int { return cmp.Compare(a.Time, b.Time) }
	if !slices.IsSortedFunc(b.steps, byTime) {
		slices.SortStableFunc(b.steps, byTime)
	}
}

// collect sets b.run to the run's calls, by when they ended.
func (b *Builder) collect(invocations map[string]Invocation) {
	b.run, b.starts = b.run[:0], b.starts[:0]
	var began map[string]float64 // by UUID, as far as needed
	if !b.o.Compat && slices.ContainsFunc(b.steps, func(s *Step) bool { return s.Type == LLMEnd && !hasBegan(s) }) {
		began = make(map[string]float64)
	}
	for _, s := range b.steps {
		switch s.Type {
		case LLMStart:
			b.starts = append(b.starts, s.Time)
			if began != nil && s.UUID != "" {
				began[s.UUID] = s.Time
			}
		case LLMEnd:
			c := call{Step: s, next: -1}
			c.measure(began, b.o.Compat)
			key := s.Function.ID
			if key == "" && !b.o.Compat {
				// Calls of which nobody said the invocation are told apart by where they were
				// made.
				b.names = b.path(b.names[:0], s, invocations)
				key = "\x00" + strings.Join(b.names, "\x00")
			}
			b.indices[key]++
			c.index = b.indices[key]
			b.run = append(b.run, c)
		}
	}
	next := 0
	for i := range b.run {
		c := &b.run[i]
		for next < len(b.starts) && b.starts[next] <= c.end {
			next++
		}
		if next < len(b.starts) {
			c.next = 1000 * (b.starts[next] - c.end)
		}
	}
}

// hasBegan reports whether a step says, believably, when what it ends began.
func hasBegan(s *Step) bool { return s.Began != nil && sane(*s.Began) && *s.Began <= s.Time }

// measure sets when a call began and how long it took. Without a word about it in the step,
// it began when a step with the same UUID says it started, or else when it ended.
func (c *call) measure(began map[string]float64, compat bool) {
	c.end = c.Time
	switch t, started := began[c.UUID]; {
	case hasBegan(c.Step), compat && c.Began != nil && sane(*c.Began):
		c.start = *c.Began
	case compat:
		return // at 0, and took no time
	case started:
		c.start = t
	default:
		c.start = c.end
	}
	c.dur = c.end - c.start
}

// How large a trie may become, except with Options.Compat.
const (
	maxIndex    = 256
	maxChildren = 4096
	maxNodes    = 1 << 16
)

// child returns the child with a name, a new one if need be; nil if there can be no more.
func (b *Builder) child(t *tally, name string) *tally {
	name = b.o.named(name)
	c, ok := t.byName[name]
	if ok {
		return c
	}
	if !b.o.Compat && (len(t.children) == maxChildren || b.nodes == maxNodes) {
		return nil
	}
	b.nodes++
	c = &tally{name: strings.Clone(name)}
	if t.byName == nil {
		t.byName = make(map[string]*tally)
	}
	t.byName[c.name] = c
	t.children = append(t.children, c)
	return c
}

// add counts a call that was made right here, if own is set, or deeper. By their indices
// only those made here are counted, once there are some: the indices of the others count
// calls of other functions.
func (t *tally) add(c *call, remaining int, own bool, o *Options) {
	t.any.add(c, remaining, o)
	if own && !t.own {
		t.own, t.byIndex = true, nil
	}
	if own != t.own || c.index > maxIndex && !o.Compat {
		return
	}
	indexed, ok := t.byIndex[c.index]
	if !ok {
		indexed = new(bucket)
		if t.byIndex == nil {
			t.byIndex = make(map[int]*bucket)
		}
		t.byIndex[c.index] = indexed
	}
	indexed.add(c, remaining, o)
}

func (b *bucket) add(c *call, remaining int, o *Options) {
	b.remaining.add(float64(remaining), o.MaxSamples)
	if c.OutputTokens >= 0 || o.Compat {
		b.output.add(float64(max(c.OutputTokens, 0)), o.MaxSamples)
	}
	if c.next >= 0 {
		b.arrival.add(c.next, o.MaxSamples)
	}
	if o.Sensitivity != nil {
		b.score.add(c.score)
	}
}

// Build returns the trie of the runs that were added so far, and says that it was generated
// now. More runs may be added afterwards, which does not change what was returned.
func (b *Builder) Build(now time.Time) *Trie {
	var scratch []float64
	root := b.root.node(&b.o, &scratch)
	root.Name = rootName
	return &Trie{
		Version:      Version,
		GeneratedAt:  now.UTC().Format("2006-01-02T15:04:05.000000+00:00"),
		WorkflowName: b.o.WorkflowName,
		Root:         root,
	}
}

func (t *tally) node(o *Options, scratch *[]float64) *Node {
	n := &Node{Name: t.name}
	indices := make([]int, 0, len(t.byIndex))
	for i := range t.byIndex {
		indices = append(indices, i)
	}
	slices.Sort(indices)
	n.ByCallIndex = slices.Grow(n.ByCallIndex, len(indices))
	for _, i := range indices {
		n.addIndexed(Indexed{Index: i, Prediction: t.byIndex[i].prediction(o, scratch)})
	}
	if t.any.remaining.mean.n > 0 {
		p := t.any.prediction(o, scratch)
		n.AnyIndex = &p
	}
	for _, c := range t.children {
		n.addChild(c.node(o, scratch))
	}
	return n
}

func (b *bucket) prediction(o *Options, scratch *[]float64) (p Prediction) {
	p.RemainingCalls, *scratch = b.remaining.metrics(*scratch)
	p.InterArrivalMS, *scratch = b.arrival.metrics(*scratch)
	p.OutputTokens, *scratch = b.output.metrics(*scratch)
	if o.Sensitivity != nil && b.score.n > 0 {
		level := level(b.score.value(), o.Sensitivity.Scale)
		p.LatencySensitivity = &level
	}
	return p
}
