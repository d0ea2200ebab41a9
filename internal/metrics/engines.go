package metrics

import (
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// EngineSample is what is known of an engine at one instant.
type EngineSample struct {
	Worker        uint64
	Up            bool   // it is there, and not set aside
	URL           string // where it is, without user info and query
	Kind, Version string // what it says it is, empty until it did
	// Warnings are the codes of what stands in the way of its best use, each once.
	Warnings []string
	Ranks    []EngineRankSample
}

// EngineRankSample is what an engine says about one rank. Numbers that are counted
// begin anew with each connection to it.
type EngineRankSample struct {
	Rank  uint32
	Model string // one of those that it serves
	// TotalBlocks is the number of blocks of its cache, 0 if unknown, and BookedBlocks of
	// those that requests from here hold.
	TotalBlocks, BookedBlocks int
	// Running, Waiting and Usage, a share from 0 to 1, are what the engine said Age ago;
	// Told is whether it did.
	Told             bool
	Running, Waiting int
	Usage            float64
	Age              time.Duration
	// Link is the state of the connection that its cache events come by, empty without
	// one.
	Link                             string
	Batches, Events, Bytes, Failures uint64
	Misplaced                        uint64        // batches of a rank that the worker does not have
	Lag                              time.Duration // of the latest batch, where the engine says when it made it
}

// WatchEngines exposes engines. The sample function is called whenever metrics are
// scraped, from any goroutine. A later call takes the place of an earlier one.
func (s *Set) WatchEngines(sample func() []EngineSample) { s.fam.engines.sample.Store(&sample) }

// engineCollector exposes what a function tells when it is scraped.
type engineCollector struct {
	descs
	sample atomic.Pointer[func() []EngineSample]

	up, info, warning, link               gaugeDesc
	running, waiting, usage, age, lag     gaugeDesc
	batches, events, bytes                counterDesc
	failures, misplaced                   counterDesc
	cacheUsage, activeBlocks, totalBlocks gaugeDesc
}

var _ prometheus.Collector = (*engineCollector)(nil)

func newEngineCollector(r registrar) *engineCollector {
	c := &engineCollector{descs: descs{r: r}}
	const p = ownPrefix
	rank := []string{labelWorker, "dp_rank"}
	c.up = c.gauge(p+"engine_up", "1 for a configured worker that takes requests, 0 for one that is not there or set aside.", labelWorker)
	c.info = c.gauge(p+"engine_info", "Where a worker is, and what it says it is.", labelWorker, "url", "kind", "version")
	c.warning = c.gauge(p+"engine_warning", "What stands in the way of a worker's best use; see GET /v1/engines for words.", labelWorker, "code")
	c.running = c.gauge(p+"engine_running_requests", "Requests that a worker runs, as it says.", rank...)
	c.waiting = c.gauge(p+"engine_waiting_requests", "Requests that wait at a worker, as it says.", rank...)
	c.usage = c.gauge(p+"engine_kv_usage", "Share of a worker's KV cache in use, as it says.", rank...)
	c.age = c.gauge(p+"engine_report_age_seconds", "How long ago a worker said what its load is.", rank...)
	c.link = c.gauge(p+"event_link", "State of the connection that a worker's cache events come by.", append(rank, "state")...)
	c.batches = c.counter(p+"event_batches_total", "Batches of cache events that came from a worker.", rank...)
	c.events = c.counter(p+"event_received_total", "Cache events that came from a worker and could be used.", rank...)
	c.bytes = c.counter(p+"event_bytes_total", "Bytes of cache events that came from a worker.", rank...)
	c.failures = c.counter(p+"event_link_failures_total", "Connections for cache events that could not be made, or broke.", rank...)
	c.misplaced = c.counter(p+"event_misplaced_batches_total", "Batches of cache events about a rank that the worker does not have.", rank...)
	c.lag = c.gauge(p+"event_lag_seconds", "Age of the latest cache events when they came, by two clocks.", rank...)

	c.r = r.of(PartWorker)
	stats := []string{"model", labelWorker, "dp_rank"}
	c.cacheUsage = c.gauge(kvstatsPrefix+"gpu_cache_usage_percent", "Share of the rank's cache that requests hold, 0 to 100, as the engine says, else as booked.", stats...)
	c.activeBlocks = c.gauge(kvstatsPrefix+"active_blocks", "Blocks of the rank's cache that requests hold, as the engine says, else as booked.", stats...)
	c.totalBlocks = c.gauge(kvstatsPrefix+"total_blocks", "Blocks of the rank's cache.", stats...)
	return c
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(ch chan<- prometheus.Metric) {
	sample := c.sample.Load()
	if sample == nil {
		return
	}
	e := exposer{ch}
	for _, s := range (*sample)() {
		id := strconv.FormatUint(s.Worker, 10)
		up := 0.0
		if s.Up {
			up = 1
		}
		e.gauge(c.up, up, id)
		if s.Kind != "" || s.URL != "" {
			e.gauge(c.info, 1, id, labelValue(s.URL), labelValue(s.Kind), labelValue(s.Version))
		}
		for _, code := range s.Warnings {
			e.gauge(c.warning, 1, id, labelValue(code))
		}
		for i := range s.Ranks {
			c.collectRank(e, id, &s.Ranks[i])
		}
	}
}

func (c *engineCollector) collectRank(e exposer, id string, r *EngineRankSample) {
	rank := strconv.FormatUint(uint64(r.Rank), 10)
	if r.Told {
		e.gauge(c.running, float64(r.Running), id, rank)
		e.gauge(c.waiting, float64(r.Waiting), id, rank)
		e.gauge(c.usage, r.Usage, id, rank)
		e.gauge(c.age, r.Age.Seconds(), id, rank)
	}
	c.collectStats(e, id, rank, r)
	if r.Link == "" {
		return
	}
	e.gauge(c.link, 1, id, rank, labelValue(r.Link))
	e.counter(c.batches, r.Batches, id, rank)
	e.counter(c.events, r.Events, id, rank)
	e.counter(c.bytes, r.Bytes, id, rank)
	e.counter(c.failures, r.Failures, id, rank)
	e.counter(c.misplaced, r.Misplaced, id, rank)
	e.gauge(c.lag, r.Lag.Seconds(), id, rank)
}

// collectStats exposes how full the rank's cache is. What the engine says goes before what
// is booked, as others may use it as well.
func (c *engineCollector) collectStats(e exposer, id, rank string, r *EngineRankSample) {
	if r.TotalBlocks <= 0 {
		return
	}
	total := float64(r.TotalBlocks)
	active := float64(r.BookedBlocks)
	if r.Told {
		active = math.Round(r.Usage * total)
	}
	model := labelValue(r.Model)
	e.gauge(c.cacheUsage, min(100*active/total, 100), model, id, rank)
	e.gauge(c.activeBlocks, active, model, id, rank)
	e.gauge(c.totalBlocks, total, model, id, rank)
}
