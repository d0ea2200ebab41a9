package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Router records the placements of one pool of workers. Get it from Set.Router.
// It is safe for concurrent use.
type Router struct {
	fam *families

	requests                   prometheus.Counter
	ttft, input, output, hits  prometheus.Observer
	itl                        *histogram
	queuedRequests, queuedToks prometheus.Gauge

	queue struct {
		sync.Mutex
		requests, tokens int // this pool's part of the gauges
		closed           bool
	}
}

// Router returns a recorder for a pool of workers of one type that serve one
// model. Pools of the same model and type share their series; each asks for a
// recorder of its own, because the queue gauges are sums over pools. Close it
// when the pool goes.
func (s *Set) Router(model string, t WorkerType) *Router {
	model, t = labelValue(model), t.known()
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Router{
		fam:            s.fam,
		requests:       s.fam.routerRequests.WithLabelValues(t.component(), model),
		ttft:           s.fam.routerTTFT.WithLabelValues(t.component(), model),
		input:          s.fam.routerInputTokens.WithLabelValues(t.component(), model),
		output:         s.fam.routerOutputTokens.WithLabelValues(t.component(), model),
		hits:           s.fam.routerHitRate.WithLabelValues(t.component(), model),
		itl:            s.fam.routerITL.with(t.component(), model),
		queuedRequests: s.fam.queuePendingRequests.WithLabelValues(string(t)),
		queuedToks:     s.fam.queuePendingISLTokens.WithLabelValues(string(t)),
	}
}

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
	observeStep(r.fam.overheadBlockHashing, o.BlockHashing)
	observeStep(r.fam.overheadSeqHashing, o.SeqHashing)
	observeStep(r.fam.overheadFindMatches, o.FindMatches)
	observeStep(r.fam.overheadScheduling, o.Scheduling)
	observeStep(r.fam.overheadTotal, o.Total)
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

// FirstToken records the time from placement to the first token.
func (r *Router) FirstToken(d time.Duration) { r.ttft.Observe(seconds(d)) }

// Tokens records that the latest n tokens took d.
func (r *Router) Tokens(d time.Duration, n int) {
	if n > 0 {
		r.itl.observe(seconds(d)/float64(n), uint64(n))
	}
}

// Done records the number of tokens a placed request generated.
func (r *Router) Done(outputTokens int) { r.output.Observe(float64(outputTokens)) }

// SetQueue states how many requests wait in the pool's queue, and their prompt
// tokens. The gauges show the sum over all pools of the same worker type.
func (r *Router) SetQueue(requests, promptTokens int) {
	r.queue.Lock()
	defer r.queue.Unlock()
	if !r.queue.closed {
		r.setQueueLocked(requests, promptTokens)
	}
}

// Close takes the pool's queue out of the sums. Further calls of SetQueue and
// Close have no effect.
func (r *Router) Close() {
	r.queue.Lock()
	defer r.queue.Unlock()
	r.setQueueLocked(0, 0)
	r.queue.closed = true
}

func (r *Router) setQueueLocked(requests, tokens int) {
	r.queuedRequests.Add(float64(requests - r.queue.requests))
	r.queuedToks.Add(float64(tokens - r.queue.tokens))
	r.queue.requests, r.queue.tokens = requests, tokens
}
