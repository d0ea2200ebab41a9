package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueClass records what waits in one class of a pool's queue. Get it from
// Router.Class. It is safe for concurrent use, and Waited, Left and Rejected do
// not allocate.
type QueueClass struct {
	model, name string
	workers     WorkerType

	waiting  share
	wait     prometheus.Observer
	left     lazyCounters
	rejected lazyCounters
}

// Class returns the recorder of a class of the pool's queue, making its series at
// the first call. Names are those configured, so that they are few. It takes a
// lock; keep what it returns.
//
// Close takes what waits out of the sums, as it does with SetQueue; waits, ends
// and rejections are counted further, until DropModel.
func (r *Router) Class(name string) *QueueClass {
	name = labelValue(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.classes[name]
	if c != nil {
		return c
	}
	p := r.shared
	c = &QueueClass{
		model: p.model, name: name, workers: r.workers,
		wait: prometheus.ObserverFunc(func(float64) {}),
	}
	c.left.init(&p.gate, p.fam.queueLeft, len(queueEnds))
	c.rejected.init(&p.gate, p.fam.queueBackpressure, len(queueLimits))
	p.gate.open(func() {
		c.wait = p.fam.queueWait.WithLabelValues(p.model, name)
		if !r.closed {
			c.waiting.gauges = []prometheus.Gauge{
				p.fam.queueRequests.WithLabelValues(p.model, name),
				p.fam.queuePromptTokens.WithLabelValues(p.model, name),
				p.fam.queueCachedTokens.WithLabelValues(p.model, name),
			}
		}
	})
	r.classes[name] = c
	return c
}

// Set states how many requests wait in the class, their prompt tokens, and how
// many of these the worker with most of each prompt has in its cache. The gauges
// show the sum over all pools of the model.
func (c *QueueClass) Set(requests, promptTokens, cachedTokens int) {
	c.waiting.set(requests, promptTokens, cachedTokens)
}

// Waited records how long a request waited that has left the queue for a worker.
func (c *QueueClass) Waited(d time.Duration) { c.wait.Observe(seconds(d)) }

// Left records that a request left the queue without a worker.
func (c *QueueClass) Left(why QueueEnd) {
	if i := index(queueEnds, why); !c.left.incMade(i) {
		c.left.incNew(i, c.model, c.name, string(queueEnds[i]))
	}
}

// Rejected records that a request was not let into the queue, because as much
// waited there as may.
func (c *QueueClass) Rejected(limit QueueLimit) {
	if i := index(queueLimits, limit); !c.rejected.incMade(i) {
		c.rejected.incNew(i, c.model, string(c.workers), c.name, string(queueLimits[i]))
	}
}
