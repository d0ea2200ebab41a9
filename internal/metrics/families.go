package metrics

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// defaultPrefix begins the names of the families that describe requests and
// models. It can be configured; the prefixes below cannot.
const defaultPrefix = "dynamo_frontend"

const (
	frontendPrefix  = "dynamo_frontend_"
	overheadPrefix  = "dynamo_router_overhead_"
	componentPrefix = "dynamo_component_router_"
	eventPrefix     = "dynamo_component_"
	processorPrefix = "dynamo_component_thompson_"
	kvstatsPrefix   = "dynamo_component_kvstats_"
	thompsonPrefix  = "thompson_router_"
	servicePrefix   = "dynamo_kvindexer_"
	ownPrefix       = "stator_"
)

var (
	stageBuckets       = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2.5, 5}
	tokenizeBuckets    = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1}
	templateBuckets    = []float64{0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05}
	tokenizerMSBuckets = []float64{0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	// inferredRatioBuckets are fine around 1, where a prediction comes true.
	inferredRatioBuckets = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 25, 100}
	queueWaitBuckets     = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}
)

// hitRateBuckets are 0, 0.05, … 1. Dividing gives the float nearest to each
// decimal, which adding up steps would not.
func hitRateBuckets() []float64 {
	b := make([]float64, 21)
	for i := range b {
		b[i] = float64(i) / 20
	}
	return b
}

// families holds every collector. The names are here and, of what belongs together, in
// the file of its recorder.
type families struct {
	parts     map[string]Part   // whose a family is, by its name; the frontend's if it is not here
	catalogue map[string]Family // all of them, by name

	// Requests; the model label is lower-cased.
	requests       *prometheus.CounterVec
	started        *prometheus.CounterVec
	inflight       *prometheus.GaugeVec
	active         *prometheus.GaugeVec
	queued         *prometheus.GaugeVec
	duration       *prometheus.HistogramVec
	inputTokens    *prometheus.HistogramVec
	outputSequence *prometheus.HistogramVec
	cachedTokens   *prometheus.HistogramVec
	ttft           *prometheus.HistogramVec
	itl            *histogramVec
	outputTokens   *prometheus.CounterVec

	// Requests; the model label is verbatim.
	disconnected  prometheus.Gauge
	cancellations *prometheus.CounterVec
	rejections    *prometheus.CounterVec

	// What is known of a model.
	totalKVBlocks       *prometheus.GaugeVec
	maxNumSeqs          *prometheus.GaugeVec
	maxNumBatchedTokens *prometheus.GaugeVec
	contextLength       *prometheus.GaugeVec
	kvCacheBlockSize    *prometheus.GaugeVec
	migrationLimit      *prometheus.GaugeVec

	// Stages of the request path.
	tokenizerLatency     *prometheus.HistogramVec
	tokenizerCacheHits   prometheus.Counter
	tokenizerCacheMisses prometheus.Counter
	tokenizerCached      *prometheus.CounterVec
	tokenizerUncached    *prometheus.CounterVec
	stageDuration        *prometheus.HistogramVec
	tokenize             prometheus.Histogram
	template             prometheus.Histogram

	// Workers.
	activeDecodeBlocks  *prometheus.GaugeVec
	activePrefillTokens *prometheus.GaugeVec
	lastTTFT            *prometheus.GaugeVec
	lastInputTokens     *prometheus.GaugeVec
	lastITL             *prometheus.GaugeVec

	// Router.
	queuePendingRequests  *prometheus.GaugeVec
	queuePendingISLTokens *prometheus.GaugeVec
	overheadBlockHashing  prometheus.Histogram
	overheadSeqHashing    prometheus.Histogram
	overheadFindMatches   prometheus.Histogram
	overheadScheduling    prometheus.Histogram
	overheadTotal         prometheus.Histogram
	routerRequests        *prometheus.CounterVec
	routerTTFT            *prometheus.HistogramVec
	routerITL             *histogramVec
	routerInputTokens     *prometheus.HistogramVec
	routerOutputTokens    *prometheus.HistogramVec
	routerHitRate         *prometheus.HistogramVec
	queueBackpressure     *prometheus.CounterVec
	routerStarted         *prometheus.CounterVec
	nonMaxOverlap         *prometheus.CounterVec
	overlapLost           *prometheus.HistogramVec

	// Our own.
	buildInfo         *prometheus.GaugeVec
	workers           *prometheus.GaugeVec
	retries           *prometheus.CounterVec
	inhibitions       *prometheus.CounterVec
	trips             *prometheus.CounterVec
	hintsIgnored      *prometheus.CounterVec
	hintsInferred     *prometheus.CounterVec
	inferredOSLRatio  *prometheus.HistogramVec
	shed              *prometheus.CounterVec
	inflightBodyBytes prometheus.Gauge
	engineErrors      *prometheus.CounterVec
	authFailures      prometheus.Counter
	traceRows         prometheus.Counter
	traceRowsDropped  prometheus.Counter
	tracePrompts      prometheus.Counter

	tokenizerCacheBytes  prometheus.Gauge
	tokenizationsSkipped *prometheus.CounterVec

	// Scheduling.
	queueRequests     *prometheus.GaugeVec
	queuePromptTokens *prometheus.GaugeVec
	queueCachedTokens *prometheus.GaugeVec
	queueWait         *prometheus.HistogramVec
	queueLeft         *prometheus.CounterVec
	decisions         *prometheus.CounterVec
	textRouted        *prometheus.CounterVec
	ledgerStretches   *prometheus.GaugeVec
	ledgerBlocks      *prometheus.GaugeVec
	adapterRequests   *prometheus.GaugeVec
	leases            prometheus.Gauge
	leasesExpired     prometheus.Counter
	activeRequests    *prometheus.GaugeVec
	cacheTrust        *prometheus.GaugeVec

	// Predictions of caches, and what came of them.
	cacheVerdicts      *prometheus.CounterVec
	cachePredicted     *prometheus.CounterVec
	cacheActual        *prometheus.CounterVec
	cacheOverpredicted *prometheus.CounterVec

	// Indexes and their feeds, sampled when they are scraped.
	indexes        *indexCollector
	eventsApplied  counterDesc
	eventWarnings  counterDesc
	indexRanks     gaugeDesc
	indexBlocks    gaugeDesc
	indexOrphans   gaugeDesc
	indexBytes     gaugeDesc
	indexForgotten counterDesc
	indexExpired   counterDesc
	indexPruned    counterDesc
	eventsSkipped  counterDesc
	feedQueueDepth gaugeDesc
	feedLag        gaugeDesc
	feedGaps       counterDesc
	feedMissed     counterDesc
	feedStale      counterDesc
	feedRestarts   counterDesc
	feedRecoveries counterDesc
	feedDropped    counterDesc

	engines *engineCollector
	learner *learnCollector

	// What Dynamo's components are seen to do.
	work      workFamilies
	processor processorFamilies
	kve       kveFamilies
	thompson  thompsonFamilies

	// The index as a service.
	serviceDuration  *prometheus.HistogramVec
	serviceRequests  *prometheus.CounterVec
	serviceErrors    *prometheus.CounterVec
	serviceModels    *prometheus.GaugeVec // without labels, so that only the service has it
	serviceWorkers   *prometheus.GaugeVec // as well
	serviceListeners *prometheus.GaugeVec
}

// newFamilies registers all families. It panics if two share a name, which the
// choice of prefix cannot bring about: see sanitizePrefix.
func newFamilies(reg *prometheus.Registry, o Options) *families {
	r := registrar{reg: reg, parts: make(map[string]Part), catalogue: make(map[string]Family), part: PartFrontend}
	p := sanitizePrefix(o.Prefix) + "_"

	durations := o.Buckets.RequestDuration.bounds(defaultRequestDuration)
	inputs := o.Buckets.InputSequence.bounds(defaultInputSequence)
	outputs := o.Buckets.OutputSequence.bounds(defaultOutputSequence)
	ttfts := o.Buckets.TTFT.bounds(defaultTTFT)
	itls := o.Buckets.ITL.bounds(defaultITL)

	hashing := prometheus.ExponentialBuckets(0.001, 2, 15)
	placing := prometheus.ExponentialBuckets(0.01, 3, 17)
	router := prometheus.Labels{"router_id": strconv.FormatUint(o.RouterID, 10)}
	component := prometheus.Labels{"router_id": router["router_id"], "dynamo_namespace": o.Namespace}
	pool := []string{"dynamo_component", "model"}
	worker := []string{"worker_id", "dp_rank", "worker_type"}
	feed := []string{"model", "worker_id", "dp_rank"}
	class := []string{"model", "policy_class"}
	cache := []string{"model", "worker_id"}
	x := newIndexCollector(r)

	f := &families{
		parts:     r.parts,
		catalogue: r.catalogue,

		requests:       r.counters(p+"requests_total", "Requests finished, by how they ended.", "model", "endpoint", "request_type", "status", "error_type"),
		started:        r.counters(p+"requests_started_total", "Requests begun, whether or not they have finished.", "model", "endpoint", "request_type"),
		inflight:       r.gauges(p+"inflight_requests", "Requests between arrival and the end of their answer.", "model"),
		active:         r.gauges(p+"active_requests", "The same figure as inflight_requests, under its newer name.", "model"),
		queued:         r.gauges(p+"queued_requests", "Requests between arrival and their first token.", "model"),
		duration:       r.histograms(p+"request_duration_seconds", "Time from arrival to the end of the answer.", durations, nil, "model"),
		inputTokens:    r.histograms(p+"input_sequence_tokens", "Prompt tokens per request.", inputs, nil, "model"),
		outputSequence: r.histograms(p+"output_sequence_tokens", "Generated tokens per request that generated any.", outputs, nil, "model"),
		cachedTokens:   r.histograms(p+"cached_tokens", "Prompt tokens per request that the engine reports to have found in its cache.", inputs, nil, "model"),
		ttft:           r.histograms(p+"time_to_first_token_seconds", "Time from acceptance of a request to its first token.", ttfts, nil, "model"),
		itl:            r.weighted(p+"inter_token_latency_seconds", "Time between tokens; a chunk of n tokens counts n times with its share of the time.", itls, nil, "model"),
		outputTokens:   r.counters(p+"output_tokens_total", "Generated tokens, counted as they arrive.", "model"),

		disconnected:  r.gauge(p+"disconnected_clients", "Clients that went away before their answer ended; it only grows."),
		cancellations: r.counters(p+"model_cancellation_total", "Requests given up because the client went away.", "model", "endpoint", "request_type"),
		rejections:    r.counters(p+"model_rejection_total", "Requests turned away because all workers were busy.", "model", "endpoint"),

		totalKVBlocks:       r.gauges(p+"model_total_kv_blocks", "KV-cache blocks of one worker.", "model"),
		maxNumSeqs:          r.gauges(p+"model_max_num_seqs", "Sequences a worker runs at once.", "model"),
		maxNumBatchedTokens: r.gauges(p+"model_max_num_batched_tokens", "Tokens a worker takes into one batch.", "model"),
		contextLength:       r.gauges(p+"model_context_length", "Longest sequence in tokens, prompt and answer together.", "model"),
		kvCacheBlockSize:    r.gauges(p+"model_kv_cache_block_size", "Tokens in one KV-cache block.", "model"),
		migrationLimit:      r.gauges(p+"model_migration_limit", "How often one request may move to another worker.", "model"),

		tokenizerLatency:     r.histograms(p+"tokenizer_latency_ms", "Milliseconds of tokenizer work per request.", tokenizerMSBuckets, nil, "operation"),
		tokenizerCacheHits:   r.counter(p+"tokenizer_cache_hits_total", "Prompts of which a beginning was found in the tokenizer cache."),
		tokenizerCacheMisses: r.counter(p+"tokenizer_cache_misses_total", "Prompts that were tokenized whole."),
		tokenizerCached:      r.counters(p+"tokenizer_cache_cached_tokens_total", "Prompt tokens found in the tokenizer cache.", "model"),
		tokenizerUncached:    r.counters(p+"tokenizer_cache_uncached_tokens_total", "Prompt tokens made by the tokenizer.", "model"),
		stageDuration:        r.histograms(frontendPrefix+"stage_duration_seconds", "Time a request spends in each stage.", stageBuckets, nil, "stage"),
		tokenize:             r.histogram(frontendPrefix+"tokenize_seconds", "Time to tokenize one prompt.", tokenizeBuckets, nil),
		template:             r.histogram(frontendPrefix+"template_seconds", "Time to render one chat template.", templateBuckets, nil),

		activeDecodeBlocks:  r.gauges(frontendPrefix+"worker_active_decode_blocks", "KV-cache blocks held by requests booked on the rank.", worker...),
		activePrefillTokens: r.gauges(frontendPrefix+"worker_active_prefill_tokens", "Prompt tokens booked on the rank and not yet prefilled.", worker...),
		lastTTFT:            r.gauges(frontendPrefix+"worker_last_time_to_first_token_seconds", "Time to first token of the rank's latest request.", worker...),
		lastInputTokens:     r.gauges(frontendPrefix+"worker_last_input_sequence_tokens", "Prompt tokens of the rank's latest request.", worker...),
		lastITL:             r.gauges(frontendPrefix+"worker_last_inter_token_latency_seconds", "Mean time between tokens of the rank's latest request.", worker...),

		queuePendingRequests:  r.gauges(frontendPrefix+"router_queue_pending_requests", "Requests waiting in the routers' queues.", "worker_type"),
		queuePendingISLTokens: r.gauges(frontendPrefix+"router_queue_pending_isl_tokens", "Prompt tokens of the requests waiting in the routers' queues.", "worker_type"),
		overheadBlockHashing:  r.histogram(overheadPrefix+"block_hashing_ms", "Milliseconds to hash a prompt's blocks.", hashing, router),
		overheadSeqHashing:    r.histogram(overheadPrefix+"seq_hashing_ms", "Milliseconds to chain block hashes into sequence hashes.", hashing, router),
		overheadFindMatches:   r.histogram(overheadPrefix+"indexer_find_matches_ms", "Milliseconds to look a prompt up in the index.", placing, router),
		overheadScheduling:    r.histogram(overheadPrefix+"scheduling_ms", "Milliseconds to choose and book a worker, time in the queue left out.", placing, router),
		overheadTotal:         r.histogram(overheadPrefix+"total_ms", "Milliseconds of the whole placement, time in the queue left out.", placing, router),
		routerRequests:        r.counterVec(componentPrefix+"requests_total", "Requests placed by the router.", component, pool...),
		routerTTFT:            r.histograms(componentPrefix+"time_to_first_token_seconds", "Time from placement to the first token.", LogBuckets(0.001, 480, 18), component, pool...),
		routerITL:             r.weighted(componentPrefix+"inter_token_latency_seconds", "Time between tokens as the router sees them.", LogBuckets(0.001, 2, 13), component, pool...),
		routerInputTokens:     r.histograms(componentPrefix+"input_sequence_tokens", "Prompt tokens per placed request.", LogBuckets(50, 128000, 12), component, pool...),
		routerOutputTokens:    r.histograms(componentPrefix+"output_sequence_tokens", "Generated tokens per placed request.", LogBuckets(50, 32000, 10), component, pool...),
		routerHitRate:         r.histograms(componentPrefix+"kv_hit_rate", "Share of a prompt's blocks expected in the chosen worker's cache.", hitRateBuckets(), component, pool...),
		queueBackpressure:     r.counters(frontendPrefix+"router_queue_backpressure_total", "Requests not let into the queue, by the limit that was reached.", "model", "worker_type", "policy_class", "reason"),
		routerStarted:         r.counterVec(componentPrefix+"requests_started_total", "Requests that came to the router, placed or not.", component, pool...),
		nonMaxOverlap:         r.counterVec(componentPrefix+"non_max_overlap_selections_total", "Requests placed on a worker although another had more of the prompt.", component, pool...),
		overlapLost:           r.histograms(componentPrefix+"overlap_blocks_lost", "Blocks of the prompt that another worker had and the chosen one had not, where there are any.", prometheus.ExponentialBuckets(0.25, 2, 16), component, pool...),

		buildInfo:         r.gauges(ownPrefix+"build_info", "Always 1; the labels say what is running.", "version", "goversion"),
		workers:           r.gauges(ownPrefix+"workers", "Workers of a model by state: discovered counts all, routable those that take requests now. A model that no worker lists any more has zeros for an hour.", "model", "state"),
		retries:           r.counters(ownPrefix+"retries_total", "Requests sent to another worker before any byte reached the client.", "model", "reason"),
		trips:             r.counters(ownPrefix+"circuit_trips_total", "Times a worker was set aside because its requests kept failing although it said that it was well.", "worker_id"),
		inhibitions:       r.counters(ownPrefix+"inhibitions_total", "Times a worker was set aside after failures.", "worker_id"),
		hintsIgnored:      r.counters(ownPrefix+"hints_ignored_total", "Hint values that were not usable and had no effect.", "field"),
		hintsInferred:     r.counters(ownPrefix+"hints_inferred_total", "What requests did not say about themselves and was inferred, by what from.", "model", "field", "source"),
		inferredOSLRatio:  r.histograms(ownPrefix+"inferred_osl_ratio", "Inferred over actual number of generated tokens, of answers that came to their end.", inferredRatioBuckets, nil, "model", "source"),
		shed:              r.counters(ownPrefix+"shed_total", "Requests turned away to protect the fleet or this process.", "model", "reason"),
		inflightBodyBytes: r.gauge(ownPrefix+"inflight_body_bytes", "Bytes of request bodies held in memory."),
		engineErrors:      r.counters(ownPrefix+"engine_errors_total", "Failures of engines while serving a request, retried or not.", "model", "kind"),
		authFailures:      r.counter(ownPrefix+"auth_failures_total", "Requests with a missing, wrong or insufficient key."),
		traceRows:         r.counter(ownPrefix+"trace_rows_total", "Rows written to the request trace."),
		tracePrompts:      r.counter(ownPrefix+"trace_prompts_skipped_total", "Rows of the request trace without hashes, because prompts came faster than they were hashed."),
		traceRowsDropped:  r.counter(ownPrefix+"trace_rows_dropped_total", "Rows missing from the request trace, because the disk failed or could not keep up."),

		tokenizerCacheBytes:  r.gauge(ownPrefix+"tokenizer_cache_bytes", "Bytes of prompts and their tokens in the tokenizer caches."),
		tokenizationsSkipped: r.counters(ownPrefix+"tokenizations_skipped_total", "Prompts whose tokens were wanted and could not be had; their requests went on without.", "model", "reason"),

		queueRequests:     r.gauges(ownPrefix+"queue_requests", "Requests waiting in the queue, by class.", class...),
		queuePromptTokens: r.gauges(ownPrefix+"queue_prompt_tokens", "Prompt tokens of the requests waiting in the queue.", class...),
		queueCachedTokens: r.gauges(ownPrefix+"queue_cached_tokens", "Those of the waiting prompt tokens that a worker has in its cache.", class...),
		queueWait:         r.histograms(ownPrefix+"queue_wait_seconds", "Time in the queue of requests that left it for a worker.", queueWaitBuckets, nil, class...),
		queueLeft:         r.counters(ownPrefix+"queue_left_total", "Requests that left the queue without a worker.", append(class, "reason")...),
		decisions:         r.counters(ownPrefix+"router_decisions_total", "Placements, by what decided them.", "model", "reason"),
		textRouted:        r.counters(ownPrefix+"router_text_routed_total", "Prompts without tokens, placed by hashes of their text.", "model"),
		ledgerStretches:   r.gauges(ownPrefix+"ledger_stretches", "Stretches of blocks that the ledger keeps for the requests under way.", "model"),
		ledgerBlocks:      r.gauges(ownPrefix+"ledger_blocks", "Blocks that the ledger keeps for the requests under way.", "model"),
		adapterRequests:   r.gauges(ownPrefix+"adapter_requests", "Requests under way that use an adapter.", "model", "adapter"),
		leases:            r.gauge(ownPrefix+"router_leases", "Bookings made for other processes, each with a lease."),
		leasesExpired:     r.counter(ownPrefix+"router_leases_expired_total", "Bookings released because nobody renewed their lease or ended them."),
		activeRequests:    r.gauges(ownPrefix+"worker_active_requests", "Requests booked on the rank.", worker...),
		cacheTrust:        r.gauges(ownPrefix+"worker_cache_trust", "How far predictions of the rank's cache are believed; 1 if they come true.", worker...),

		cacheVerdicts:      r.counters(ownPrefix+"cache_verdicts_total", "Requests by how the prediction of their cached tokens came out.", append(cache, "verdict")...),
		cachePredicted:     r.counters(ownPrefix+"cache_predicted_tokens_total", "Prompt tokens predicted to be in the worker's cache, where the engine says how many were.", cache...),
		cacheActual:        r.counters(ownPrefix+"cache_actual_tokens_total", "Prompt tokens that the engine found in the worker's cache, of the requests with a prediction.", cache...),
		cacheOverpredicted: r.counters(ownPrefix+"cache_overpredicted_tokens_total", "Prompt tokens predicted to be in the worker's cache that were not.", cache...),

		indexes:        x,
		eventsApplied:  x.counter(eventPrefix+"kv_cache_events_applied", "Events taken into the indexes, by what they say and how it ended.", "event_type", "status"),
		eventWarnings:  x.counter(eventPrefix+"kv_cache_event_warnings", "Blocks in events that are suspicious and did no harm.", "warning_kind"),
		indexRanks:     x.gauge(ownPrefix+"index_ranks", "Ranks that the index knows.", "model"),
		indexBlocks:    x.gauge(ownPrefix+"index_blocks", "Blocks in the index, one for each rank and tier that holds it.", "model"),
		indexOrphans:   x.gauge(ownPrefix+"index_orphans", "Blocks in the index that no lookup finds, because a block before them is missing.", "model"),
		indexBytes:     x.gauge(ownPrefix+"index_bytes", "Memory that the index takes, about.", "model"),
		indexForgotten: x.counter(ownPrefix+"index_forgotten_total", "Blocks given up because too many lacked a block before them.", "model"),
		indexExpired:   x.counter(ownPrefix+"index_expired_total", "Blocks that left the index because their time was over.", "model"),
		indexPruned:    x.counter(ownPrefix+"index_pruned_total", "Blocks that left the index because there were too many.", "model"),
		eventsSkipped:  x.counter(ownPrefix+"kv_events_skipped_total", "Events of engines that were left out.", "model", "reason"),
		feedQueueDepth: x.gauge(ownPrefix+"feed_queue_depth", "Batches of events that wait to be applied.", feed...),
		feedLag:        x.gauge(ownPrefix+"feed_lag_seconds", "How long the oldest batch of events has been waiting.", feed...),
		feedGaps:       x.counter(ownPrefix+"feed_gaps_total", "Times that numbers of batches were missing.", feed...),
		feedMissed:     x.counter(ownPrefix+"feed_missed_batches_total", "Batches that were missing, recovered or not.", feed...),
		feedStale:      x.counter(ownPrefix+"feed_stale_total", "Batches ignored because they had been seen before.", feed...),
		feedRestarts:   x.counter(ownPrefix+"feed_restarts_total", "Times that a rank began anew.", feed...),
		feedRecoveries: x.counter(ownPrefix+"feed_recoveries_total", "Attempts to recover what was missing, by how they ended.", append(feed, "outcome")...),
		feedDropped:    x.counter(ownPrefix+"feed_dropped_batches_total", "Batches dropped because there was no room for them.", feed...),

		work:      newWorkFamilies(r, o.Namespace),
		processor: newProcessorFamilies(r),
		kve:       newKVEFamilies(r),
		thompson:  newThompsonFamilies(r),

		engines: newEngineCollector(r),
		learner: newLearnCollector(r),

		serviceDuration:  r.histograms(servicePrefix+"request_duration_seconds", "Time to answer a request to the index service.", prometheus.ExponentialBuckets(0.0001, 2, 20), nil, "endpoint"),
		serviceRequests:  r.counters(servicePrefix+"requests_total", "Requests to the index service.", "endpoint", "method"),
		serviceErrors:    r.counters(servicePrefix+"errors_total", "Requests to the index service that were answered with an error.", "endpoint", "status_class"),
		serviceModels:    r.gauges(servicePrefix+"models", "Indexes that the service has."),
		serviceWorkers:   r.gauges(servicePrefix+"workers", "Workers registered with the index service."),
		serviceListeners: r.gauges(servicePrefix+"listeners", "Ranks registered with the index service, by whether anything has come from them.", "status"),
	}
	x.fam = f
	reg.MustRegister(x, f.engines, f.learner)
	return f
}

// takenPrefixes are those under which families that describe requests would take
// the names of others.
var takenPrefixes = []string{
	"dynamo_component", "dynamo_component_router", "dynamo_component_thompson", "dynamo_frontend_worker_last", "dynamo_kvindexer",
	"stator_queue", "stator_worker",
}

// sanitizePrefix turns every character that may not stand in a metric name
// into an underscore. An empty prefix and those that are taken give the default.
func sanitizePrefix(prefix string) string {
	b := []byte(prefix)
	for i, c := range b {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':'
		if !letter && (i == 0 || c < '0' || c > '9') {
			b[i] = '_'
		}
	}
	if p := string(b); p != "" && !slices.Contains(takenPrefixes, p) {
		return p
	}
	return defaultPrefix
}

// registrar makes collectors and registers them, and notes what they expose.
type registrar struct {
	reg       *prometheus.Registry
	parts     map[string]Part   // gets the names of those that are not the frontend's
	catalogue map[string]Family // gets all of them
	part      Part              // whose they are
}

// of returns a registrar of another part's families.
func (r registrar) of(p Part) registrar {
	r.part = p
	return r
}

// note notes a family: whose it is, and what it is like.
func (r registrar) note(t FamilyType, name, help string, constant prometheus.Labels, labels []string) {
	if r.part != PartFrontend {
		r.parts[name] = r.part
	}
	labels = slices.AppendSeq(slices.Clone(labels), maps.Keys(constant))
	slices.Sort(labels)
	r.catalogue[name] = Family{Name: name, Help: help, Type: t, Labels: labels}
}

func (r registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.note(CounterFamily, name, help, nil, nil)
	r.reg.MustRegister(c)
	return c
}

func (r registrar) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return r.counterVec(name, help, nil, labels...)
}

func (r registrar) counterVec(name, help string, constant prometheus.Labels, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: constant}, labels)
	r.note(CounterFamily, name, help, constant, labels)
	r.reg.MustRegister(v)
	return v
}

func (r registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.note(GaugeFamily, name, help, nil, nil)
	r.reg.MustRegister(g)
	return g
}

func (r registrar) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.note(GaugeFamily, name, help, nil, labels)
	r.reg.MustRegister(v)
	return v
}

func (r registrar) histogram(name, help string, upper []float64, constant prometheus.Labels) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: upper, ConstLabels: constant})
	r.note(HistogramFamily, name, help, constant, nil)
	r.reg.MustRegister(h)
	return h
}

func (r registrar) histograms(name, help string, upper []float64, constant prometheus.Labels, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: upper, ConstLabels: constant}, labels)
	r.note(HistogramFamily, name, help, constant, labels)
	r.reg.MustRegister(v)
	return v
}

func (r registrar) weighted(name, help string, upper []float64, constant prometheus.Labels, labels ...string) *histogramVec {
	v := newHistogramVec(name, help, upper, constant, labels...)
	r.note(HistogramFamily, name, help, constant, labels)
	r.reg.MustRegister(v)
	return v
}
