package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stick says whether a decision kept to the worker that the prefix was on before.
type Stick uint8

// What there is to say.
const (
	NoPrevious Stick = iota // it was on none
	Stayed
	Switched
)

// Thompson records what the bandit policies decide and learn. Get it from
// [Set.Thompson]. It is safe for concurrent use and, but for the first record of a
// worker, does not allocate.
//
// What is labelled by worker is recorded for workers that are there: those that
// [Set.Worker] was called for and [Set.DropWorker] was not. Of others the rest is
// recorded.
type Thompson struct {
	set *Set
	fam *thompsonFamilies

	mu    sync.Mutex
	pools map[string]poolState // those with anything in them
	sum   poolState
}

// poolState is what the policy of one pool keeps.
type poolState struct{ pending, prefixes int }

// Thompson returns the recorder of the bandit policies, always the same one.
func (s *Set) Thompson() *Thompson { return s.thompson }

// Decision records that a worker was chosen which has the share overlap of the prompt,
// with so many calls of the same prefix expected afterwards.
func (t *Thompson) Decision(worker uint64, overlap float64, promptTokens, budget int, stick Stick) {
	t.fam.tokens.Observe(float64(max(promptTokens, 0)))
	t.fam.budget.Observe(float64(max(budget, 0)))
	switch stick {
	case Stayed:
		t.fam.stayed.Inc()
	case Switched:
		t.fam.switched.Inc()
	}
	if ws := t.set.liveWorker(worker); ws != nil {
		inc(&ws.thompson.decisions, ws.id)
		set(&ws.thompson.overlap, ws.id, overlap)
	}
}

// Feedback records what became of a decision: how long the answer took, and what that
// was worth.
func (t *Thompson) Feedback(worker uint64, latency time.Duration, reward float64) {
	ws := t.set.liveWorker(worker)
	if ws == nil {
		return
	}
	if h, ok := ws.thompson.latency.get(ws.id); ok {
		h.Observe(seconds(latency))
	}
	set(&ws.thompson.reward, ws.id, reward)
}

// Timeouts records that n decisions were given up because nothing was heard of them.
func (t *Thompson) Timeouts(n int) { t.fam.timeouts.Add(float64(max(n, 0))) }

// Fallback records that the policy was found to be worse than its baseline and is set
// aside for a while.
func (t *Thompson) Fallback() { t.fam.fallbacks.Inc() }

// Beta exposes the counts of the worker's Beta distribution.
func (t *Thompson) Beta(worker uint64, alpha, beta float64) {
	if ws := t.set.liveWorker(worker); ws != nil {
		set(&ws.thompson.alpha, ws.id, alpha)
		set(&ws.thompson.beta, ws.id, beta)
	}
}

// Gauges states how many decisions of a pool's policy wait for feedback, and how many
// prefixes it knows. The gauges show the sum over pools. A pool with neither is
// forgotten: that is how one leaves.
func (t *Thompson) Gauges(pool string, pending, prefixes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, is := t.pools[pool], poolState{pending, prefixes}
	if was == is {
		return
	}
	if is == (poolState{}) {
		delete(t.pools, pool)
	} else {
		t.pools[pool] = is
	}
	t.sum.pending += is.pending - was.pending
	t.sum.prefixes += is.prefixes - was.prefixes
	t.fam.pending.Set(float64(t.sum.pending))
	t.fam.prefixes.Set(float64(t.sum.prefixes))
}

// thompsonFamilies are the families of the bandit policies.
type thompsonFamilies struct {
	decisions         *prometheus.CounterVec
	overlap, reward   *prometheus.GaugeVec
	alpha, beta       *prometheus.GaugeVec
	latency           *prometheus.HistogramVec
	pending, prefixes prometheus.Gauge
	timeouts          prometheus.Counter
	stayed, switched  prometheus.Counter
	fallbacks         prometheus.Counter
	budget, tokens    prometheus.Histogram
}

var (
	thompsonLatencyBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
	thompsonBudgetBuckets  = []float64{0, 1, 2, 5, 10, 20, 50, 100}
	thompsonTokensBuckets  = []float64{32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
)

func newThompsonFamilies(r registrar) thompsonFamilies {
	const p = thompsonPrefix
	r = r.of(PartRouter)
	return thompsonFamilies{
		decisions: r.counters(p+"decisions_total", "Decisions of the bandit policy, by the worker chosen.", labelWorker),
		overlap:   r.gauges(p+"kv_overlap", "Share of the prompt that the worker had when it was chosen last.", labelWorker),
		latency:   r.histograms(p+"feedback_latency_seconds", "Time that answers took, as the policy was told.", thompsonLatencyBuckets, nil, labelWorker),
		reward:    r.gauges(p+"reward", "What the worker's latest answer was worth to the policy.", labelWorker),
		pending:   r.gauge(p+"pending_decisions", "Decisions of which the policy has heard nothing yet."),
		prefixes:  r.gauge(p+"prefix_state_size", "Prefixes that the policy remembers."),
		timeouts:  r.counter(p+"timeout_penalties_total", "Decisions given up because nothing was heard of them."),
		stayed:    r.counter(p+"sticky_decisions_total", "Decisions for the worker that the prefix was on."),
		switched:  r.counter(p+"switch_decisions_total", "Decisions for another worker than the one the prefix was on."),
		alpha:     r.gauges(p+"beta_alpha", "First count of the worker's Beta distribution.", labelWorker),
		beta:      r.gauges(p+"beta_beta", "Second count of the worker's Beta distribution.", labelWorker),
		budget:    r.histogram(p+"reuse_budget", "Calls of the same prefix expected after the one decided on.", thompsonBudgetBuckets, nil),
		tokens:    r.histogram(p+"tokens_per_request", "Prompt tokens per decision.", thompsonTokensBuckets, nil),
		fallbacks: r.counter(p+"safe_fallbacks_total", "Times the policy was set aside because its baseline was better."),
	}
}

// drop removes the series of a worker.
func (f *thompsonFamilies) drop(match prometheus.Labels) {
	f.decisions.DeletePartialMatch(match)
	f.latency.DeletePartialMatch(match)
	for _, v := range []*prometheus.GaugeVec{f.overlap, f.reward, f.alpha, f.beta} {
		v.DeletePartialMatch(match)
	}
}

// thompsonSeries are the series of one worker, each made at first use: what is not
// known yet has no value.
type thompsonSeries struct {
	decisions                    lazy[prometheus.Counter]
	overlap, reward, alpha, beta lazy[prometheus.Gauge]
	latency                      lazy[prometheus.Observer]
}

func (s *thompsonSeries) init(g *gate, f *thompsonFamilies) {
	s.decisions.init(g, f.decisions.WithLabelValues)
	s.overlap.init(g, f.overlap.WithLabelValues)
	s.reward.init(g, f.reward.WithLabelValues)
	s.alpha.init(g, f.alpha.WithLabelValues)
	s.beta.init(g, f.beta.WithLabelValues)
	s.latency.init(g, f.latency.WithLabelValues)
}

// lazy is a child of a family that is made at first use.
type lazy[T any] struct {
	gate *gate
	make func(labels ...string) T
	cell atomic.Pointer[T]
}

func (l *lazy[T]) init(g *gate, make func(labels ...string) T) { l.gate, l.make = g, make }

// get returns the child with this label, or false if its gate is closed and nobody has
// made it before.
func (l *lazy[T]) get(label string) (child T, ok bool) {
	if c := l.cell.Load(); c != nil {
		return *c, true
	}
	return l.getNew(label)
}

func (l *lazy[T]) getNew(label string) (child T, ok bool) {
	l.gate.open(func() {
		child, ok = l.make(label), true
		l.cell.Store(&child)
	})
	return child, ok
}

func inc(l *lazy[prometheus.Counter], label string) {
	if c, ok := l.get(label); ok {
		c.Inc()
	}
}

func set(l *lazy[prometheus.Gauge], label string, v float64) {
	if g, ok := l.get(label); ok {
		g.Set(v)
	}
}
