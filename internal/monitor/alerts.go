package monitor

import (
	"time"

	"github.com/stator-ai/stator/internal/metrics"
)

// alert is a signal that is compared with a limit.
type alert struct {
	name     string
	signal   query
	op       string
	limit    float64
	lasting  time.Duration // for how long before it fires
	severity string        // page: somebody has to act now; ticket: soon
	summary  string
	advice   string // what it means and what to do
}

// firing is the whole condition.
func (a *alert) firing() string {
	return a.signal.within(bindsAdd) + " " + a.op + " " + number(a.limit)
}

const (
	page   = "page"
	ticket = "ticket"
)

// alerts are those about Stator. The window is that of rates, of which some take longer.
func alerts(s schema, window, long string) []alert {
	const minute = time.Minute
	grown := func(name string, where ...matcher) query {
		return sum(increase(s.series(name, where...), long), "instance", "worker_id")
	}
	workers := func(state string) query {
		return most(s.series("stator_workers", is("state", state)), "instance", "model")
	}
	verdicts := func(where ...matcher) query {
		return sum(rate(s.series("stator_cache_verdicts_total", where...), long), "instance", "model", "worker_id")
	}
	told := isNot("verdict", string(metrics.VerdictUnknown))

	return []alert{
		{
			"StatorDown", s.series("up", like("job", "stator|dynamo-.+")), "==", 0, minute, page,
			"Stator at {{ $labels.instance }} does not answer scrapes.",
			"Clients of this server most likely get nothing. See that the process runs and what its log ends with; GET /live tells whether it is up, GET /health more. If it serves and only scrapes fail, /metrics wants an admin key: see authorization in prometheus.yml.",
		},
		{
			"StatorNoEngine", s.orServer(sum(s.series("stator_workers", like("state", "routable|overloaded")), "instance", "model")), "==", 0, minute, page,
			"No engine can take requests{{ with $labels.model }} for {{ . }}{{ end }} at {{ $labels.instance }}.",
			"Requests are refused or wait. GET /v1/engines says of each engine why it is not used: not reachable, not yet identified, or set aside after failures. `stator doctor URL` looks at an engine from outside.",
		},
		{
			"StatorEngineLost", s.orServer(plus(minus(
				most(highest(s.series("stator_workers", is("state", "discovered")), "1h"), "instance", "model"),
				workers("discovered")), workers("inhibited"))), ">", 0, 5 * minute, ticket,
			"{{ $value }} engines{{ with $labels.model }} of {{ . }}{{ end }} are gone or set aside at {{ $labels.instance }}.",
			"They were there within the last hour and take no requests now. GET /v1/engines names them with the reason. An engine that was taken away on purpose is forgotten after an hour.",
		},
		{
			"StatorEngineDown", s.series("stator_engine_up"), "==", 0, 15 * minute, ticket,
			"Engine {{ $labels.worker_id }} at {{ $labels.instance }} takes no requests.",
			"It is configured, and does not answer or was set aside; perhaps it never came up. GET /v1/engines has its address and the reason, `stator doctor URL` looks at it from outside. Take it out of the configuration if it is not to come back.",
		},
		{
			"StatorEngineFlapping", s.orServer(plus(grown("stator_inhibitions_total"), grown("stator_circuit_trips_total"))), ">", 3, 0, ticket,
			"Engine {{ $labels.worker_id }} was set aside {{ printf \"%.0f\" $value }} times in " + long + ".",
			"It fails, recovers and fails again; each time requests are retried elsewhere and its cache may be lost. Look at the engine's own log for crashes, memory and its watchdog. Take it out of the configuration until it is well.",
		},
		{
			"StatorCircuitTripped", s.orServer(grown("stator_circuit_trips_total")), ">", 0, 0, ticket,
			"Requests at engine {{ $labels.worker_id }} keep failing although it says that it is well.",
			"Its health route answers, its requests do not. stator_engine_errors_total tells how they fail. Usually the engine has to be started anew.",
		},
		{
			"StatorSlowFirstToken", quantile(0.95, sum(rate(s.series(ttftBuckets, served), window), "model", "le")), ">", 2, 5 * minute, ticket,
			"One request in twenty for {{ $labels.model }} waits more than {{ printf \"%.1f\" $value }} s for its first token.",
			"Row Latency of the dashboard says where the time goes: waiting in the queue, on the way, or at engines. If engines are full (row Workers), add some or set busy thresholds; if KV efficiency fell, see row KV cache; if prompts grew, see row Traffic.",
		},
		{
			"StatorErrors", errorRatio(s, window, "model"), ">", 0.05, 5 * minute, page,
			"{{ $value | humanizePercentage }} of the requests for {{ $labels.model }} fail.",
			"Panel Outcomes tells how: overload and unavailable mean too few engines, internal and response_timeout that engines fail; stator_engine_errors_total has the kind. Requests that are the client's mistake are not counted.",
		},
		{
			"StatorQueueWait", s.orServer(quantile(0.95, sum(rate(s.series("stator_queue_wait_seconds_bucket"), window), "instance", "model", "policy_class", "le"))), ">", 5, 5 * minute, ticket,
			"Requests of class {{ $labels.policy_class }} for {{ $labels.model }} wait {{ printf \"%.0f\" $value }} s in the queue.",
			"More comes in than the engines compute. Add engines, or give classes limits so that clients are told at once. If engines are idle meanwhile, the queue's threshold is too low.",
		},
		{
			"StatorShedding", s.orServer(sum(rate(s.series("stator_shed_total", isNot("reason", string(metrics.ShedDraining))), window), "instance", "reason")), ">", 0.1, 5 * minute, ticket,
			"{{ $labels.instance }} turns away {{ printf \"%.1f\" $value }} requests a second: {{ $labels.reason }}.",
			"busy: all engines are past their threshold; queue_full: a class of the queue is at its limit; inflight and body_budget: this process is at a limit of its own. Add engines, or raise the limit if there is room.",
		},
		{
			"StatorIndexStale", s.orServer(div(
				verdicts(is("verdict", string(metrics.VerdictIndexStale))), verdicts(told))), ">", 0.2, 15 * minute, ticket,
			"{{ $value | humanizePercentage }} of the requests at engine {{ $labels.worker_id }} found less in its cache than was predicted.",
			"What is known of the cache lags behind what the engine holds: events are lost or late (row Queue and placement), or the engine was started anew unnoticed, or without events it evicts sooner than is assumed. Requests go where they should not.",
		},
		{
			"StatorTokensDiffer", s.orServer(div(
				verdicts(is("verdict", string(metrics.VerdictTokensDiffer))), verdicts(told))), ">", 0.1, 15 * minute, ticket,
			"Engine {{ $labels.worker_id }} counts the prompts of {{ $labels.model }} otherwise than Stator.",
			"The tokenizer or chat template used here is not the engine's, so blocks cannot match. Compare with `stator tokenize`, and set the model's tokenizer, or `engine` to have engines asked.",
		},
		{
			"StatorCacheTrustLow", s.orServer(minus(constant(1), least(s.series("stator_worker_cache_trust"), "instance", "worker_id"))), ">", 0.5, 10 * minute, ticket,
			"Predictions of what engine {{ $labels.worker_id }} has in its cache are mostly wrong.",
			"It gets little credit for cached blocks and so the wrong requests. See StatorIndexStale and StatorTokensDiffer for the cause; an engine without prefix caching shows this as well: `stator doctor URL` tells.",
		},
		{
			"StatorEventLinkDown", s.orServer(sum(s.series("stator_event_link", like("state", "dialing|dirty|degraded")), "instance", "worker_id")), ">", 0, 5 * minute, ticket,
			"The cache events of engine {{ $labels.worker_id }} do not come, or not all.",
			"dialing: nothing listens at the address of its event socket; dirty: batches are missing and cannot be asked for; degraded: what was before is not known. See that the engine publishes events, with a replay socket, and that both ports are reachable; GET /v1/engines has the addresses.",
		},
		{
			"StatorEventsLate", s.orServer(most(s.series("stator_feed_lag_seconds"), "instance", "worker_id")), ">", 5, 2 * minute, ticket,
			"Cache events of engine {{ $labels.worker_id }} wait {{ printf \"%.0f\" $value }} s before they are applied.",
			"Either more comes than this process can take in (see its CPU), or something missing is being asked for and the rest is held back. Predictions are as old as this.",
		},
		{
			"StatorEventGaps", s.orServer(grown("stator_feed_gaps_total")), ">", 3, 0, ticket,
			"Batches of cache events of engine {{ $labels.worker_id }} went missing {{ printf \"%.0f\" $value }} times.",
			"A slow reader or network loses messages of a PUB socket. A replay socket at the engine lets them be asked for. See also the engine's high-water mark.",
		},
		{
			"StatorEngineReportsStale", s.orServer(most(s.series("stator_engine_report_age_seconds"), "instance", "worker_id")), ">", 60, 2 * minute, ticket,
			"Engine {{ $labels.worker_id }} has not said for {{ printf \"%.0f\" $value }} s what its load is.",
			"Placement goes by what is booked here alone, so load that comes from elsewhere is not seen. The engine's /metrics is slow or gone; SGLang and llama.cpp have it only with --enable-metrics and --metrics.",
		},
		{
			"StatorCachesFull", s.orServer(least(s.series("dynamo_component_kvstats_gpu_cache_usage_percent"), "instance", "model")), ">", 95, 10 * minute, ticket,
			"The KV caches of all engines of {{ $labels.model }} are full.",
			"Requests wait at engines or push each other out. Add engines, or let fewer in: busy thresholds, a queue, a shorter context.",
		},
		{
			"StatorTraceRowsDropped", s.orServer(sum(increase(s.series("stator_trace_rows_dropped_total"), long), "instance")), ">", 0, 0, ticket,
			"{{ $labels.instance }} lost rows of its request trace.",
			"The disk is full, failed or cannot keep up. Requests are not held up; evaluations of this trace miss some.",
		},
		{
			"StatorPolicyFellBack", s.orServer(sum(increase(s.series("thompson_router_safe_fallbacks_total"), long), "instance")), ">", 0, 0, ticket,
			"The policy that learns at {{ $labels.instance }} was worse than its baseline and was set aside.",
			"The cost decides meanwhile; nothing is at risk. If it happens again, GET /debug/thompson shows what was learned; `stator policy eval` on a trace tells whether the policy is worth having, and --thompson-variant shadow tries it without effect.",
		},
	}
}
