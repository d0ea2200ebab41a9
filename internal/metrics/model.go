package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Model records what concerns one served model. Get it from Set.Model. It is
// safe for concurrent use.
type Model struct {
	set    *Set
	name   string
	series *requestSeries

	gate          gate
	cancellations lazyCounters // endpoint, request type
	rejections    lazyCounters // endpoint
	retries       lazyCounters
	shed          lazyCounters
	engineErrors  lazyCounters
	cachedTokens  lazyCounters
	madeTokens    lazyCounters
	skipped       lazyCounters
	inferred      lazyCounters // field, source
}

// requestSeries are the series in which the model label is lower-cased. Models
// whose names differ only by case share them.
type requestSeries struct {
	label string
	users int // models; guarded by Set.mu

	inflight, active, queued prometheus.Gauge
	duration, ttft           prometheus.Observer
	input, output, cached    prometheus.Observer
	itl                      *histogram
	tokens                   prometheus.Counter
	// overcount is how far tokens is above the truth. It is paid back out of
	// later increments, as a counter must not go down.
	overcount atomic.Int64

	gate     gate
	started  lazyCounters // endpoint, request type
	finished lazyCounters // endpoint, request type, error type
}

// Model returns the recorder of a served model, making its series at the first
// call. It costs a map lookup. Pass UnknownModel for a name that is not served.
func (s *Set) Model(name string) *Model {
	if m := (*s.models.Load())[name]; m != nil {
		return m
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name = labelValue(name)
	models := *s.models.Load()
	if m := models[name]; m != nil {
		return m
	}
	m := &Model{set: s, name: name, series: s.requestSeriesLocked(strings.ToLower(name))}
	m.cancellations.init(&m.gate, s.fam.cancellations, len(endpoints)*len(requestTypes))
	m.rejections.init(&m.gate, s.fam.rejections, len(endpoints))
	m.retries.init(&m.gate, s.fam.retries, len(retryReasons))
	m.shed.init(&m.gate, s.fam.shed, len(shedReasons))
	m.engineErrors.init(&m.gate, s.fam.engineErrors, len(engineErrorKinds))
	m.cachedTokens.init(&m.gate, s.fam.tokenizerCached, 1)
	m.madeTokens.init(&m.gate, s.fam.tokenizerUncached, 1)
	m.skipped.init(&m.gate, s.fam.tokenizationsSkipped, len(skipReasons))
	m.inferred.init(&m.gate, s.fam.hintsInferred, len(inferredFields)*len(inferredSources))

	models = maps.Clone(models)
	models[name] = m
	s.models.Store(&models)
	return m
}

// requestSeriesLocked returns the series under a lower-cased model label for
// one more user.
func (s *Set) requestSeriesLocked(label string) *requestSeries {
	r := s.lowered[label]
	if r == nil {
		r = &requestSeries{
			label:    label,
			inflight: s.fam.inflight.WithLabelValues(label),
			active:   s.fam.active.WithLabelValues(label),
			queued:   s.fam.queued.WithLabelValues(label),
			duration: s.fam.duration.WithLabelValues(label),
			ttft:     s.fam.ttft.WithLabelValues(label),
			input:    s.fam.inputTokens.WithLabelValues(label),
			output:   s.fam.outputSequence.WithLabelValues(label),
			cached:   s.fam.cachedTokens.WithLabelValues(label),
			itl:      s.fam.itl.with(label),
			tokens:   s.fam.outputTokens.WithLabelValues(label),
		}
		r.started.init(&r.gate, s.fam.started, len(endpoints)*len(requestTypes))
		r.finished.init(&r.gate, s.fam.requests, len(endpoints)*len(requestTypes)*len(errorTypes))
		s.lowered[label] = r
	}
	r.users++
	return r
}

// DropModel removes all series of a model that is no longer served; those
// shared with a model whose name differs only by case stay. Requests under way
// may go on with the handles they have, unseen. A later call of Model, Router or
// Truth with the same name begins anew. Of the series of other models it looks only at those
// that are made when something happens.
func (s *Set) DropModel(name string) {
	name = labelValue(name)
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, t := range []WorkerType{WorkerDecode, WorkerPrefill} {
		for _, v := range []*prometheus.MetricVec{
			s.fam.routerTTFT.MetricVec, s.fam.routerInputTokens.MetricVec, s.fam.routerOutputTokens.MetricVec,
			s.fam.routerHitRate.MetricVec, s.fam.overlapLost.MetricVec,
			s.fam.routerRequests.MetricVec, s.fam.routerStarted.MetricVec, s.fam.nonMaxOverlap.MetricVec,
		} {
			v.DeleteLabelValues(t.component(), name)
		}
		s.fam.routerITL.drop(t.component(), name)
	}
	s.fam.textRouted.DeleteLabelValues(name)
	if p := s.pools[name]; p != nil {
		delete(s.pools, name)
		p.drop()
	}
	workers := *s.workers.Load()
	for _, ws := range workers {
		if ws.truths[name] != nil {
			delete(ws.truths, name)
			s.fam.dropTruth(name, ws.id)
		}
	}

	m := (*s.models.Load())[name]
	if m == nil {
		return
	}
	models := maps.Clone(*s.models.Load())
	delete(models, name)
	s.models.Store(&models)
	m.gate.close(func() {
		verbatim := prometheus.Labels{"model": name}
		for _, v := range []*prometheus.MetricVec{
			s.fam.cancellations.MetricVec, s.fam.rejections.MetricVec, s.fam.retries.MetricVec, s.fam.shed.MetricVec,
			s.fam.engineErrors.MetricVec, s.fam.tokenizationsSkipped.MetricVec, s.fam.hintsInferred.MetricVec,
			s.fam.inferredOSLRatio.MetricVec,
		} {
			v.DeletePartialMatch(verbatim)
		}
		for _, ws := range workers {
			ws.gate.open(func() { delete(ws.kve, name) })
		}
		s.fam.kve.drop(verbatim)
		for _, v := range []*prometheus.MetricVec{
			s.fam.tokenizerCached.MetricVec, s.fam.tokenizerUncached.MetricVec,
			s.fam.totalKVBlocks.MetricVec, s.fam.maxNumSeqs.MetricVec, s.fam.maxNumBatchedTokens.MetricVec,
			s.fam.contextLength.MetricVec, s.fam.kvCacheBlockSize.MetricVec, s.fam.migrationLimit.MetricVec,
		} {
			v.DeleteLabelValues(name)
		}
		for _, state := range workerStates {
			s.fam.workers.DeleteLabelValues(name, state)
		}
	})

	r := m.series
	if r.users--; r.users > 0 {
		return
	}
	delete(s.lowered, r.label)
	r.gate.close(func() {
		for _, v := range []*prometheus.MetricVec{
			s.fam.inflight.MetricVec, s.fam.active.MetricVec, s.fam.queued.MetricVec,
			s.fam.duration.MetricVec, s.fam.ttft.MetricVec, s.fam.inputTokens.MetricVec, s.fam.outputSequence.MetricVec,
			s.fam.cachedTokens.MetricVec, s.fam.outputTokens.MetricVec,
		} {
			v.DeleteLabelValues(r.label)
		}
		lower := prometheus.Labels{"model": r.label}
		s.fam.started.DeletePartialMatch(lower)
		s.fam.requests.DeletePartialMatch(lower)
		s.fam.itl.drop(r.label)
	})
}

// Info is what is known of a model's workers. A number that is not positive is
// taken for unknown and not exposed, except MigrationLimit, of which 0 is a
// proper value.
type Info struct {
	TotalKVBlocks       int // blocks of KV cache per worker
	MaxNumSeqs          int // sequences a worker runs at once
	MaxNumBatchedTokens int // tokens a worker takes into one batch
	ContextLength       int // tokens
	KVCacheBlockSize    int // tokens per block
	MigrationLimit      int // moves per request; negative is unknown
}

// SetInfo exposes what is known of the model, in place of what was before.
func (m *Model) SetInfo(i Info) {
	f := m.set.fam
	m.gate.open(func() {
		setKnown(f.totalKVBlocks, m.name, i.TotalKVBlocks, i.TotalKVBlocks > 0)
		setKnown(f.maxNumSeqs, m.name, i.MaxNumSeqs, i.MaxNumSeqs > 0)
		setKnown(f.maxNumBatchedTokens, m.name, i.MaxNumBatchedTokens, i.MaxNumBatchedTokens > 0)
		setKnown(f.contextLength, m.name, i.ContextLength, i.ContextLength > 0)
		setKnown(f.kvCacheBlockSize, m.name, i.KVCacheBlockSize, i.KVCacheBlockSize > 0)
		setKnown(f.migrationLimit, m.name, i.MigrationLimit, i.MigrationLimit >= 0)
	})
}

func setKnown(v *prometheus.GaugeVec, model string, value int, known bool) {
	if known {
		v.WithLabelValues(model).Set(float64(value))
	} else {
		v.DeleteLabelValues(model)
	}
}

// WorkerCounts says how many workers a model has in each state. Discovered
// counts all of them; a worker may be both inhibited and overloaded.
type WorkerCounts struct {
	Discovered, Routable, Inhibited, Overloaded int
}

// workerStates are the states of workers, in the order of the fields of WorkerCounts.
var workerStates = [...]string{"discovered", "routable", "inhibited", "overloaded"}

// SetWorkers exposes the number of the model's workers by state.
func (m *Model) SetWorkers(n WorkerCounts) {
	v := m.set.fam.workers
	m.gate.open(func() {
		for i, count := range [len(workerStates)]int{n.Discovered, n.Routable, n.Inhibited, n.Overloaded} {
			v.WithLabelValues(m.name, workerStates[i]).Set(float64(count))
		}
	})
}

// Retry records that a request was sent to another worker.
func (m *Model) Retry(reason RetryReason) {
	i := index(retryReasons, reason)
	m.retries.inc(i, m.name, string(retryReasons[i]))
}

// Shed records that a request was turned away.
func (m *Model) Shed(reason ShedReason) {
	i := index(shedReasons, reason)
	m.shed.inc(i, m.name, string(shedReasons[i]))
}

// EngineError records that an engine failed a request, whether or not another
// worker then served it.
func (m *Model) EngineError(kind EngineErrorKind) {
	i := index(engineErrorKinds, kind)
	m.engineErrors.inc(i, m.name, string(engineErrorKinds[i]))
}

// Tokens records a prompt that was tokenized here: how many of its tokens were found
// in the cache and how many had to be made.
func (m *Model) Tokens(cached, made int) {
	if cached > 0 {
		m.set.fam.tokenizerCacheHits.Inc()
	} else {
		m.set.fam.tokenizerCacheMisses.Inc()
	}
	m.cachedTokens.add(0, float64(cached), m.name)
	m.madeTokens.add(0, float64(made), m.name)
}

// TokensSkipped records that the tokens of a prompt were wanted and could not be
// had.
func (m *Model) TokensSkipped(reason SkipReason) {
	i := index(skipReasons, reason)
	m.skipped.inc(i, m.name, string(skipReasons[i]))
}

// HintInferred records that something a request does not say was inferred.
func (m *Model) HintInferred(field InferredField, from InferredSource) {
	f, s := index(inferredFields, field), index(inferredSources, from)
	m.inferred.inc(f*len(inferredSources)+s, m.name, string(inferredFields[f]), string(inferredSources[s]))
}

// InferredOSL records how an inferred number of generated tokens compares with the actual
// one. One that is not positive cannot be compared with.
func (m *Model) InferredOSL(from InferredSource, inferred, actual int) {
	if actual <= 0 {
		return
	}
	source := inferredSources[index(inferredSources, from)]
	m.gate.open(func() {
		m.set.fam.inferredOSLRatio.WithLabelValues(m.name, string(source)).Observe(float64(max(inferred, 0)) / float64(actual))
	})
}

// gate keeps a late caller from bringing back series that were dropped.
type gate struct {
	mu     sync.Mutex
	closed bool
}

// open runs f unless the gate is closed.
func (g *gate) open(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		f()
	}
}

// close runs f, which drops the series, and closes the gate.
func (g *gate) close(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	f()
}

// lazyCounters are some children of a CounterVec, by index. A child is made at
// first use, so that combinations which never occur are not exposed.
type lazyCounters struct {
	gate  *gate
	vec   *prometheus.CounterVec
	cells []atomic.Pointer[prometheus.Counter]
}

func (l *lazyCounters) init(g *gate, vec *prometheus.CounterVec, n int) {
	l.gate, l.vec, l.cells = g, vec, make([]atomic.Pointer[prometheus.Counter], n)
}

// add adds n to child i, which has these label values.
func (l *lazyCounters) add(i int, n float64, labels ...string) {
	if c := l.cells[i].Load(); c != nil {
		(*c).Add(n)
		return
	}
	l.gate.open(func() {
		c := l.vec.WithLabelValues(labels...)
		c.Add(n)
		l.cells[i].Store(&c)
	})
}

// inc adds one to child i, which has these label values.
func (l *lazyCounters) inc(i int, labels ...string) {
	if !l.incMade(i) {
		l.incNew(i, labels...)
	}
}

// incMade adds one to child i if there is one. It does not allocate.
func (l *lazyCounters) incMade(i int) bool {
	c := l.cells[i].Load()
	if c == nil {
		return false
	}
	(*c).Inc()
	return true
}

// incNew makes child i, if another caller has not, and adds one to it.
func (l *lazyCounters) incNew(i int, labels ...string) {
	l.gate.open(func() {
		c := l.vec.WithLabelValues(labels...)
		c.Inc()
		l.cells[i].Store(&c)
	})
}
