package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxAdapters bounds the adapters of a model that have a series of their own.
const maxAdapters = 1024

// poolSeries are the series that the pools of one model share.
type poolSeries struct {
	fam   *families
	model string
	pools int // open recorders; guarded by Set.mu

	gate      gate // closed by DropModel
	decisions lazyCounters

	// The requests of each adapter in all pools, guarded by gate.
	adapters map[string]*adapterSum
	named    int              // adapters with a series of their own
	unnamed  int              // requests of those without
	rest     prometheus.Gauge // their series; nil if there are none
}

// adapterSum is what one adapter has in all pools, never nothing.
type adapterSum struct {
	requests int
	gauge    prometheus.Gauge // nil if it shares the one of the rest
}

// poolSeriesLocked returns the series of a model for one more pool.
func (s *Set) poolSeriesLocked(model string) *poolSeries {
	p := s.pools[model]
	if p == nil {
		p = &poolSeries{fam: s.fam, model: model, adapters: make(map[string]*adapterSum)}
		p.decisions.init(&p.gate, s.fam.decisions, len(decisionReasons))
		s.pools[model] = p
	}
	p.pools++
	return p
}

// leaveLocked takes one pool away. With the last one the gauges go: nothing
// waits and nothing is booked where there is no pool. What was counted stays,
// as some of it is counted because the last pool goes.
func (p *poolSeries) leaveLocked() {
	if p.pools--; p.pools == 0 {
		p.gate.open(p.dropGauges)
	}
}

// drop removes all series for good.
func (p *poolSeries) drop() {
	p.gate.close(func() {
		p.dropGauges()
		match := prometheus.Labels{"model": p.model}
		for _, v := range []*prometheus.CounterVec{p.fam.decisions, p.fam.queueLeft, p.fam.queueBackpressure} {
			v.DeletePartialMatch(match)
		}
		p.fam.queueWait.DeletePartialMatch(match)
	})
}

func (p *poolSeries) dropGauges() {
	match := prometheus.Labels{"model": p.model}
	for _, v := range []*prometheus.GaugeVec{
		p.fam.queueRequests, p.fam.queuePromptTokens, p.fam.queueCachedTokens, p.fam.adapterRequests,
	} {
		v.DeletePartialMatch(match)
	}
	p.fam.ledgerStretches.DeleteLabelValues(p.model)
	p.fam.ledgerBlocks.DeleteLabelValues(p.model)
}

// addAdapter changes the number of an adapter's requests by n.
func (p *poolSeries) addAdapter(adapter string, n int) {
	if n != 0 {
		p.gate.open(func() { p.addAdapterGated(adapter, n) })
	}
}

func (p *poolSeries) addAdapterGated(adapter string, n int) {
	a := p.adapters[adapter]
	if a == nil {
		a = new(adapterSum)
		p.adapters[adapter] = a
		if adapter != other && p.named < maxAdapters {
			a.gauge = p.fam.adapterRequests.WithLabelValues(p.model, adapter)
			p.named++
		}
	}
	a.requests += n
	if a.gauge == nil {
		p.setUnnamed(p.unnamed + n)
	} else {
		a.gauge.Set(float64(a.requests))
	}
	if a.requests != 0 {
		return
	}
	delete(p.adapters, adapter)
	if a.gauge != nil {
		p.fam.adapterRequests.DeleteLabelValues(p.model, adapter)
		p.named--
	}
}

func (p *poolSeries) setUnnamed(n int) {
	p.unnamed = n
	switch {
	case n == 0:
		p.fam.adapterRequests.DeleteLabelValues(p.model, other)
		p.rest = nil
		return
	case p.rest == nil:
		p.rest = p.fam.adapterRequests.WithLabelValues(p.model, other)
	}
	p.rest.Set(float64(n))
}

// share is one pool's part of gauges that show sums over pools. Without gauges it
// does nothing.
type share struct {
	gauges []prometheus.Gauge

	mu     sync.Mutex
	part   [3]int // by gauge
	closed bool
}

// set makes values the pool's part, one for each gauge.
func (s *share) set(values ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.setLocked(values)
	}
}

// close takes the pool's part out of the sums for good.
func (s *share) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(make([]int, len(s.gauges)))
	s.closed = true
}

func (s *share) setLocked(values []int) {
	for i, g := range s.gauges {
		if d := values[i] - s.part[i]; d != 0 {
			g.Add(float64(d))
		}
		s.part[i] = values[i]
	}
}
