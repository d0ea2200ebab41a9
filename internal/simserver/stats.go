package simserver

import (
	"slices"
	"sort"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// ending is how a sequence ended.
type ending uint8

const (
	endStop   ending = iota // it was complete, or a stop string came
	endLength               // it was as long as allowed
	endAbort                // its client went away
	endings
)

func endingOf(finishReason string) ending {
	if finishReason == "length" {
		return endLength
	}
	return endStop
}

// stats are what a rank has counted since it was made.
type stats struct {
	promptTokens uint64 // of sequences that got a token
	generated    uint64 // tokens
	queries      uint64 // prompt tokens looked for in the cache, at first admission
	hits         uint64 // those found
	preemptions  uint64
	finished     [endings]uint64 // sequences

	ttft, itl, e2e, queued histogram

	hitRate    float64 // of the latest pass that admitted a sequence
	throughput float64 // tokens per second in the latest pass with any
}

func (s *stats) init(kind simengine.Kind) {
	b := &vllmBuckets
	if kind == simengine.SGLang {
		b = &sglangBuckets
	}
	s.ttft, s.itl = newHistogram(b.ttft), newHistogram(b.itl)
	s.e2e, s.queued = newHistogram(b.e2e), newHistogram(b.queued)
}

// clone returns a copy that does not change.
func (s *stats) clone() stats {
	c := *s
	for _, h := range []*histogram{&c.ttft, &c.itl, &c.e2e, &c.queued} {
		h.counts = slices.Clone(h.counts)
	}
	return c
}

// pass counts a pass as a whole.
func (s *stats) pass(p *simengine.Pass) {
	s.preemptions += uint64(p.Preempted)
	var found, wanted int
	for _, a := range p.Admissions {
		found += a.Cached
		wanted += a.Request.Prompt
	}
	if wanted > 0 {
		s.hitRate = float64(found) / float64(wanted)
	}
	tokens := 0
	for i := range p.Outputs {
		tokens += p.Outputs[i].Tokens
	}
	if tokens > 0 && p.Duration > 0 {
		s.throughput = float64(tokens) / p.Duration.Seconds()
	}
}

// admitted counts the first admission of a sequence, at the start of a pass.
func (s *stats) admitted(q *sequence, cached int, at time.Duration) {
	s.queries += uint64(q.request.Prompt)
	s.hits += uint64(cached)
	s.queued.observe(at-q.job.arrived, 1)
}

// output counts what a pass did for a sequence, before the sequence knows.
func (s *stats) output(q *sequence, o *simengine.Output, at time.Duration) {
	if q.due.Load() == 0 {
		s.promptTokens += uint64(q.request.Prompt)
		s.ttft.observe(at-q.job.arrived, 1)
	} else {
		s.itl.observe(at-q.last, 1)
	}
	s.generated += uint64(o.Tokens)
	if o.Done {
		s.finished[q.ending]++
		s.e2e.observe(at-q.job.arrived, 1)
	}
}

// account counts an answer that no engine model knows of, at its end.
func (r *rank) account(a *answer) {
	cfg := &r.server.cfg
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.stats
	for i := range a.choices {
		c := &a.choices[i]
		if !a.complete {
			s.finished[endAbort]++
		} else {
			s.finished[endingOf(c.finish)]++
			s.e2e.observe(cfg.TTFT+time.Duration(c.tokens-1)*cfg.ITL, 1)
		}
		if sent := c.tokens; sent > 0 && (a.complete || a.req.stream) {
			s.promptTokens += uint64(len(c.prompt.ids))
			s.generated += uint64(sent)
			s.queued.observe(0, 1)
			s.ttft.observe(cfg.TTFT, 1)
			s.itl.observe(cfg.ITL, uint64(sent-1))
		}
	}
}

// histogram counts durations in buckets, whose bounds are in seconds.
type histogram struct {
	bounds []float64
	counts []uint64 // the last is for what is above all bounds
	sum    time.Duration
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// observe adds a duration n times.
func (h *histogram) observe(d time.Duration, n uint64) {
	h.counts[sort.SearchFloat64s(h.bounds, d.Seconds())] += n
	h.sum += d * time.Duration(n)
}

// buckets are the bounds of an engine's histograms.
type buckets struct {
	ttft, itl, e2e, queued []float64
}

var vllmBuckets = buckets{
	ttft:   []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560},
	itl:    []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
	e2e:    vllmLatency,
	queued: vllmLatency,
}

var vllmLatency = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}

var sglangBuckets = buckets{
	ttft: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400},
	itl: []float64{0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6,
		0.8, 1, 2, 4, 6, 8},
	e2e: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400},
	queued: []float64{0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100,
		200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000},
}
