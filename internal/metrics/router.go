package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Router records the placements of one pool of workers. Get it from Set.Router.
// It is safe for concurrent use.
type Router struct {
	set     *Set
	shared  *poolSeries
	workers WorkerType

	started, requests, nonMax prometheus.Counter
	text                      prometheus.Counter
	ttft, input, output, hits prometheus.Observer
	lost                      prometheus.Observer
	itl                       *histogram
	queue, ledger             share

	mu       sync.Mutex
	closed   bool
	classes  map[string]*QueueClass
	adapters map[string]int // this pool's part of the requests
}

// Router returns a recorder for a pool of workers of one type that serve one
// model. Pools of the same model and type share their series; each asks for a
// recorder of its own, because what it sets is part of a sum over pools. Close
// it when the pool goes.
func (s *Set) Router(model string, t WorkerType) *Router {
	model, t = labelValue(model), t.known()
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := [2]string{t.component(), model}
	return &Router{
		set:      s,
		shared:   s.poolSeriesLocked(model),
		workers:  t,
		started:  s.fam.routerStarted.WithLabelValues(pool[:]...),
		requests: s.fam.routerRequests.WithLabelValues(pool[:]...),
		nonMax:   s.fam.nonMaxOverlap.WithLabelValues(pool[:]...),
		text:     s.fam.textRouted.WithLabelValues(model),
		ttft:     s.fam.routerTTFT.WithLabelValues(pool[:]...),
		input:    s.fam.routerInputTokens.WithLabelValues(pool[:]...),
		output:   s.fam.routerOutputTokens.WithLabelValues(pool[:]...),
		hits:     s.fam.routerHitRate.WithLabelValues(pool[:]...),
		lost:     s.fam.overlapLost.WithLabelValues(pool[:]...),
		itl:      s.fam.routerITL.with(pool[:]...),
		queue: share{gauges: []prometheus.Gauge{
			s.fam.queuePendingRequests.WithLabelValues(string(t)),
			s.fam.queuePendingISLTokens.WithLabelValues(string(t)),
		}},
		ledger: share{gauges: []prometheus.Gauge{
			s.fam.ledgerStretches.WithLabelValues(model),
			s.fam.ledgerBlocks.WithLabelValues(model),
		}},
		classes:  make(map[string]*QueueClass),
		adapters: make(map[string]int),
	}
}

// Started records that a request has come to be placed.
func (r *Router) Started() { r.started.Inc() }

// TextRouted records that a prompt without tokens was placed by hashes of its
// text.
func (r *Router) TextRouted() { r.text.Inc() }

// Overhead is what the steps of one placement took. Time spent waiting in the
// queue belongs to none of them.
type Overhead struct {
	BlockHashing time.Duration
	SeqHashing   time.Duration
	FindMatches  time.Duration
	Scheduling   time.Duration
	Total        time.Duration
}

// Overhead records the durations of one placement; a step that took no time was
// not taken and is not recorded.
func (r *Router) Overhead(o Overhead) {
	fam := r.set.fam
	observeStep(fam.overheadBlockHashing, o.BlockHashing)
	observeStep(fam.overheadSeqHashing, o.SeqHashing)
	observeStep(fam.overheadFindMatches, o.FindMatches)
	observeStep(fam.overheadScheduling, o.Scheduling)
	observeStep(fam.overheadTotal, o.Total)
}

func observeStep(h prometheus.Observer, d time.Duration) {
	if d > 0 {
		h.Observe(milliseconds(d))
	}
}

// Placed records that a request of promptTokens was placed on a worker which is
// expected to hold overlapBlocks of its prompt, a partial last block counting
// as one of the prompt's. A length that is not positive is unknown. A prompt
// without blocks has no hit rate; nor has any where the block size, not positive,
// is unknown.
func (r *Router) Placed(promptTokens, blockSize, overlapBlocks int) {
	r.requests.Inc()
	if promptTokens <= 0 {
		return
	}
	r.input.Observe(float64(promptTokens))
	if blockSize <= 0 {
		return
	}
	blocks := (promptTokens-1)/blockSize + 1
	overlapBlocks = min(max(overlapBlocks, 0), blocks)
	r.hits.Observe(float64(overlapBlocks) / float64(blocks))
}

// Decided records what decided a placement, in the words of a routing report; any
// others are counted as "other". It does not allocate.
func (r *Router) Decided(reason string) {
	p := r.shared
	if i := index(decisionReasons, reason); !p.decisions.incMade(i) {
		p.decisions.incNew(i, p.model, decisionReasons[i])
	}
}

// OverlapLost records by how many blocks of the prompt another worker that could
// have been chosen was ahead of the chosen one. Nothing lost is not recorded.
func (r *Router) OverlapLost(blocks int) {
	if blocks > 0 {
		r.nonMax.Inc()
		r.lost.Observe(float64(blocks))
	}
}

// FirstToken records the time from placement to the first token.
func (r *Router) FirstToken(d time.Duration) { r.ttft.Observe(seconds(d)) }

// Tokens records that the latest n tokens took d.
func (r *Router) Tokens(d time.Duration, n int) {
	if n > 0 {
		r.itl.observe(seconds(d)/float64(n), uint64(n))
	}
}

// Done records that the router was told of the end of a placed request, and the number
// of tokens it generated.
func (r *Router) Done(outputTokens int) {
	r.output.Observe(float64(outputTokens))
	r.set.fam.work.feedback.Inc()
}

// SetQueue states how many requests wait in the pool's queue, and their prompt
// tokens. The gauges show the sum over all pools of the same worker type.
func (r *Router) SetQueue(requests, promptTokens int) { r.queue.set(requests, promptTokens) }

// SetLedger states what the pool's ledger keeps: stretches of blocks that
// requests under way have in common, and the blocks in them. The gauges show the
// sum over all pools of the model.
func (r *Router) SetLedger(stretches, blocks int) { r.ledger.set(stretches, blocks) }

// SetAdapter states how many requests under way in the pool use an adapter. The
// gauge shows the sum over all pools of the model and is there while that is not
// 0. Where a model has more than 1024 adapters in use at once, the later ones are
// counted together as "other". Requests without an adapter are not counted.
func (r *Router) SetAdapter(adapter string, n int) {
	if adapter == "" {
		return
	}
	adapter = labelValue(adapter)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.shared.addAdapter(adapter, n-r.adapters[adapter])
	if n == 0 {
		delete(r.adapters, adapter)
	} else {
		r.adapters[adapter] = n
	}
}

// Close takes the pool's queue, its ledger and its adapters out of the sums; where
// it was the last pool of its model, the series of these by model go. What is
// counted stays until DropModel. Further calls of Close and of what sets gauges
// have no effect.
func (r *Router) Close() {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.queue.close()
	r.ledger.close()
	for _, c := range r.classes {
		c.waiting.close()
	}
	for adapter, n := range r.adapters {
		r.shared.addAdapter(adapter, -n)
	}
	clear(r.adapters)
	r.shared.leaveLocked()
}
