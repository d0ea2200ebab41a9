package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// LearnSample is how much is known of earlier calls at one instant.
type LearnSample struct {
	Conversations, Families int
	// ConversationsEvicted and FamiliesEvicted count those that had to go because there
	// were too many.
	ConversationsEvicted, FamiliesEvicted uint64
}

// WatchLearner exposes what is learned from calls. The sample function is called whenever
// metrics are scraped, from any goroutine. A later call takes the place of an earlier one.
func (s *Set) WatchLearner(sample func() LearnSample) { s.fam.learner.sample.Store(&sample) }

// learnCollector exposes what a function tells when it is scraped.
type learnCollector struct {
	descs
	sample atomic.Pointer[func() LearnSample]

	conversations, families gaugeDesc
	evictions               counterDesc
}

var _ prometheus.Collector = (*learnCollector)(nil)

func newLearnCollector(r registrar) *learnCollector {
	c := &learnCollector{descs: descs{r: r}}
	c.conversations = c.gauge(ownPrefix+"learn_conversations", "Conversations that are remembered because they may go on.")
	c.families = c.gauge(ownPrefix+"learn_families", "Beginnings of conversations of which it is remembered what came of them.")
	c.evictions = c.counter(ownPrefix+"learn_evictions_total", "Conversations and families forgotten because there were too many.", "kind")
	return c
}

// Collect implements prometheus.Collector.
func (c *learnCollector) Collect(ch chan<- prometheus.Metric) {
	sample := c.sample.Load()
	if sample == nil {
		return
	}
	e, s := exposer{ch}, (*sample)()
	e.gauge(c.conversations, float64(s.Conversations))
	e.gauge(c.families, float64(s.Families))
	e.counter(c.evictions, s.ConversationsEvicted, "conversation")
	e.counter(c.evictions, s.FamiliesEvicted, "family")
}
