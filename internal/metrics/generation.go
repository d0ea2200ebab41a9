package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PrefixClass says how a request tells what it has in common with others: the prefix
// label.
type PrefixClass uint8

// The classes.
const (
	PrefixNone    PrefixClass = iota // it does not
	PrefixHinted                     // it names a prefix
	PrefixSession                    // it names a session
	numPrefixClasses
)

var prefixClasses = [numPrefixClasses]string{"none", "hinted", "session"}

// Generation records one chat or completion on its way from router to worker and back,
// and what the worker had of its prompt. Get it from [Model.Generate]; the zero value
// records nothing. It must not be used by two goroutines at once, and but for the first
// answer of a model on a worker it does not allocate.
type Generation struct {
	model  *Model
	prefix PrefixClass
	start  time.Time
	sent   time.Time
	worker *workerSeries // of the latest attempt; nil if it has left
	rank   uint32
	away   bool // the worker has it

	prompt, cached int
	blocks         TierBlocks
}

// TierBlocks is how many blocks of a prompt were found in each tier of a cache.
type TierBlocks struct{ Device, Host, Disk uint64 }

// Generate records that a chat or completion of the model is to be answered. Every
// Generate needs an End.
func (m *Model) Generate(now time.Time, prefix PrefixClass) Generation {
	if prefix >= numPrefixClasses {
		prefix = PrefixNone
	}
	f := m.set.fam
	f.processor.requests.Inc()
	f.processor.active.Inc()
	f.work.processor.Begin()
	return Generation{model: m, prefix: prefix, start: now}
}

// Unplaced records that the router found no worker.
func (g *Generation) Unplaced() {
	if g.model != nil {
		g.model.set.fam.processor.routerErrors.Inc()
	}
}

// Sent records that the router chose a rank and that the request goes there. What was
// said of an attempt before is forgotten.
func (g *Generation) Sent(now time.Time, worker uint64, rank uint32) {
	if g.model == nil {
		return
	}
	g.sent, g.rank = now, rank
	g.prompt, g.cached, g.blocks = 0, 0, TierBlocks{}
	if g.worker = g.model.set.liveWorker(worker); g.worker != nil {
		g.away = true
		g.worker.decisions.Inc()
		g.worker.work.Begin()
	}
}

// Returned records that the worker is done with the request, and whether it failed.
func (g *Generation) Returned(now time.Time, failed bool) {
	if g.away {
		g.away = false
		g.worker.work.End(now.Sub(g.sent))
	}
	if failed && g.model != nil {
		g.model.set.fam.processor.engineErrors.Inc()
	}
}

// Usage states how many tokens the engine counts in the prompt, and how many of them it
// found in its cache, 0 where it does not say. Of several statements the last one of a
// prompt that is not empty counts.
func (g *Generation) Usage(prompt, cached int) {
	if prompt > 0 {
		g.prompt, g.cached = prompt, min(max(cached, 0), prompt)
	}
}

// Blocks states where the engine found what it had of the prompt. Of several statements
// the last one counts.
func (g *Generation) Blocks(b TierBlocks) { g.blocks = b }

// End records the end of the request; only the first call counts. Where the client got
// the whole answer, its length and that of the prompt are recorded, and what the engine
// had of it.
func (g *Generation) End(now time.Time, complete bool, tokensIn, tokensOut int) {
	m := g.model
	if m == nil {
		return
	}
	g.Returned(now, false)
	g.model = nil
	f := m.set.fam
	p := &f.processor
	p.active.Dec()
	f.work.processor.End(now.Sub(g.start))
	if !complete {
		return
	}
	p.latency.Observe(seconds(now.Sub(g.sent)))
	p.tokensIn.Add(float64(max(tokensIn, 0)))
	p.tokensOut.Add(float64(max(tokensOut, 0)))
	if g.prompt > 0 {
		p.prompt.Add(float64(g.prompt))
		p.cached.Add(float64(g.cached))
		p.device.Add(float64(g.blocks.Device))
		p.host.Add(float64(g.blocks.Host))
		p.disk.Add(float64(g.blocks.Disk))
	}
	if g.worker != nil {
		g.worker.efficiency(m, g)
	}
}

// processorFamilies are the families of what passes between router and workers.
type processorFamilies struct {
	requests            prometheus.Counter
	latency             prometheus.Histogram
	tokensIn, tokensOut prometheus.Counter
	decisions           *prometheus.CounterVec
	routerErrors        prometheus.Counter
	engineErrors        prometheus.Counter
	active              prometheus.Gauge
	prompt, cached      prometheus.Counter
	device, host, disk  prometheus.Counter
}

var processorLatencyBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}

func newProcessorFamilies(r registrar) processorFamilies {
	const p = processorPrefix
	r = r.of(PartProcessor)
	return processorFamilies{
		requests:     r.counter(p+"requests_total", "Chats and completions that came to be placed."),
		latency:      r.histogram(p+"request_latency_seconds", "Time from the send to the chosen worker to the end of the answer, of answers that were complete.", processorLatencyBuckets, nil),
		tokensIn:     r.counter(p+"tokens_in_total", "Prompt tokens of complete answers."),
		tokensOut:    r.counter(p+"tokens_out_total", "Generated tokens of complete answers."),
		decisions:    r.counters(p+"routing_decisions_total", "Chats and completions sent to a worker, by whatever policy.", labelWorker),
		routerErrors: r.counter(p+"router_errors_total", "Chats and completions for which no worker was found."),
		engineErrors: r.counter(p+"engine_errors_total", "Chats and completions that an engine failed, retried or not."),
		active:       r.gauge(p+"active_requests", "Chats and completions between their placement and the end of their answer."),
		prompt:       r.counter(p+"kve_prompt_tokens_total", "Prompt tokens of complete answers, as engines count."),
		cached:       r.counter(p+"kve_cached_tokens_total", "Those of kve_prompt_tokens_total that engines found in their caches."),
		device:       r.counter(p+"kve_device_blocks_total", "Blocks of prompts found in the memory of accelerators, where engines say so."),
		host:         r.counter(p+"kve_host_blocks_total", "Blocks of prompts found in the memory of hosts, where engines say so."),
		disk:         r.counter(p+"kve_disk_blocks_total", "Blocks of prompts found on disk, where engines say so."),
	}
}

// kveFamilies are the families of KV efficiency by model and worker.
type kveFamilies struct {
	prompt, cached, missing *prometheus.CounterVec
	hitRate                 *prometheus.GaugeVec
}

func newKVEFamilies(r registrar) kveFamilies {
	labels := []string{"model", labelWorker}
	return kveFamilies{
		prompt:  r.counters(ownPrefix+"kve_prompt_tokens_total", "Prompt tokens of complete answers, as engines count, by how the request names its prefix.", append(labels, "prefix")...),
		cached:  r.counters(ownPrefix+"kve_cached_tokens_total", "Those of kve_prompt_tokens_total that engines found in their caches.", append(labels, "prefix")...),
		missing: r.counters(ownPrefix+"kve_missing_usage_total", "Complete answers whose engine did not say how long the prompt was.", labels...),
		hitRate: r.of(PartWorker).gauges(kvstatsPrefix+"gpu_prefix_cache_hit_rate", "Share of the prompt tokens of about the latest 1000 answers that the rank found in its cache, 0 to 1.", "model", labelWorker, "dp_rank"),
	}
}

// drop removes the series of a model or a worker.
func (f *kveFamilies) drop(match prometheus.Labels) {
	f.prompt.DeletePartialMatch(match)
	f.cached.DeletePartialMatch(match)
	f.missing.DeletePartialMatch(match)
	f.hitRate.DeletePartialMatch(match)
}

// kveSeries are the series of one model on one worker, made as they are needed.
type kveSeries struct {
	prompt, cached [numPrefixClasses]prometheus.Counter
	missing        prometheus.Counter
	hits           map[uint32]*hitRate // by rank
}

// efficiency counts a complete answer, unless its model or the worker has left.
func (ws *workerSeries) efficiency(m *Model, g *Generation) {
	m.gate.mu.Lock()
	defer m.gate.mu.Unlock()
	ws.gate.mu.Lock()
	defer ws.gate.mu.Unlock()
	if m.gate.closed || ws.gate.closed {
		return
	}
	f := &m.set.fam.kve
	k := ws.kve[m.name]
	if k == nil {
		k = &kveSeries{hits: make(map[uint32]*hitRate)}
		ws.kve[m.name] = k
	}
	if g.prompt == 0 {
		if k.missing == nil {
			k.missing = f.missing.WithLabelValues(m.name, ws.id)
		}
		k.missing.Inc()
		return
	}
	if k.prompt[g.prefix] == nil {
		class := prefixClasses[g.prefix]
		k.prompt[g.prefix] = f.prompt.WithLabelValues(m.name, ws.id, class)
		k.cached[g.prefix] = f.cached.WithLabelValues(m.name, ws.id, class)
	}
	k.prompt[g.prefix].Add(float64(g.prompt))
	k.cached[g.prefix].Add(float64(g.cached))
	h := k.hits[g.rank]
	if h == nil {
		rank := strconv.FormatUint(uint64(g.rank), 10)
		h = &hitRate{gauge: f.hitRate.WithLabelValues(m.name, ws.id, rank)}
		k.hits[g.rank] = h
	}
	h.add(g.prompt, g.cached)
}

// hitRateWindow is about how many answers a hit rate is over.
const hitRateWindow = 1000

// hitRate is the share of tokens found in a cache, in which the latest answers count
// most.
type hitRate struct {
	prompt, cached float64
	gauge          prometheus.Gauge
}

func (h *hitRate) add(prompt, cached int) {
	const keep = 1 - 1.0/hitRateWindow
	h.prompt = h.prompt*keep + float64(prompt)
	h.cached = h.cached*keep + float64(cached)
	h.gauge.Set(h.cached / h.prompt)
}
