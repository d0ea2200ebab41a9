package monitor

import (
	"errors"
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
)

// alert is a signal that is compared with a limit, and what else has to be so.
type alert struct {
	name     string
	signal   query
	when     string // the comparison, such as "> 5"
	provided []condition
	sparse   bool          // the signal has no series while all is well
	lasting  time.Duration // for how long before it fires
	severity string        // page: somebody has to act now; ticket: soon
	summary  string
	advice   string // what it means and what to do
}

// condition narrows an alert down.
type condition struct {
	op string // and, unless: for the same labels; and on (): for all
	query
}

// firing is the whole condition.
func (a *alert) firing() string {
	text := a.signal.that(a.when).text
	for _, c := range a.provided {
		text += " " + c.op + " " + c.within(bindsCompare)
	}
	return text
}

// checked is the signal with data while all is well: one that has no series then is 0 on
// servers that are up.
func (a *alert) checked(s schema) query {
	if a.sparse {
		return s.orServer(a.signal)
	}
	return a.signal
}

// check returns what is wrong with the alert's expressions.
func (a *alert) check(s schema) error {
	errs := []error{a.signal.that(a.when).err, a.checked(s).err}
	for _, c := range a.provided {
		errs = append(errs, c.err)
		if c.op != "and on ()" && !sameLabels(a.signal.labels, c.labels) {
			errs = append(errs, fmt.Errorf("%s %s: labels differ: %v and %v", c.op, c.text, a.signal.labels, c.labels))
		}
	}
	return errors.Join(errs...)
}

const (
	page   = "page"
	ticket = "ticket"
)

// theEngine names an engine by its id and its address, where that is known.
const theEngine = `{{ $labels.worker_id }}{{ with printf "stator_engine_info{instance='%s',worker_id='%s',url!=''}" $labels.instance $labels.worker_id | query }} ({{ . | first | label "url" }}){{ end }}`

// enough is the number of requests from which on a share of them, or a quantile, says
// something: at night two requests are all there are.
const enough = ">= 20"

// alerts are those about Stator. The window is that of rates, of which some take longer, and
// short that of what is over soon.
func alerts(s schema, short, window, long string) []alert {
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
	reachable := condition{"and", most(s.series("stator_engine_up"), "instance", "worker_id").that("== 1")}
	api := s.series("up", like("job", servers))

	// Of each server and model, by which requests that get nothing are known.
	requests := func(name, over string, where ...matcher) query {
		return sum(increase(s.series(name, append(where, served)...), over), "instance", "model")
	}
	streamed := is("request_type", "stream")
	unanswered := minus(requests("dynamo_frontend_requests_started_total", long, streamed), requests(ttftCount, long))
	givenUp := requests("dynamo_frontend_requests_total", window, like("error_type", string(metrics.ErrCancelled+"|"+metrics.ErrResponseTimeout)))
	progress := orElse(
		requests(ttftCount, window).that("> 0"),
		requests("dynamo_frontend_requests_total", window, is("status", "success")).that("> 0"))

	return []alert{
		{
			name: "StatorDown", signal: api, when: "== 0", lasting: minute, severity: page,
			summary: "Stator at {{ $labels.instance }} does not answer scrapes.",
			advice:  "Clients of this server most likely get nothing. See that the process runs and what its log ends with; GET /live tells whether it is up, GET /health more. If it serves and only scrapes fail, /metrics wants an admin key: see authorization in prometheus.yml.",
		},
		{
			name: "StatorAbsent", signal: orZero(howMany(api)), when: "== 0", lasting: 5 * minute, severity: page,
			summary: "Prometheus scrapes no Stator.",
			advice:  "No target is of a job called stator or dynamo-frontend, by which Stator's API is known here. See the targets of Prometheus, and how the job is called; GET /live at the servers tells whether they are up.",
		},
		{
			name: "StatorMetricsPortDown", signal: most(s.series("up", like("job", allJobs)), "job"), when: "== 0",
			provided: []condition{{"and on ()", most(api).that("== 1")}},
			lasting:  10 * minute, severity: ticket,
			summary: "No target of the job {{ $labels.job }} answers scrapes, and Stator's API does.",
			advice:  "Requests are served; what dashboards for Dynamo show of this part is missing. Stator has these ports with --metrics-ports only: give it, with the ports that the job lists, or take the job out of prometheus.yml.",
		},
		{
			name: "StatorNoEngine", signal: s.orServer(sum(s.series("stator_workers", like("state", "routable|overloaded")), "instance", "model")), when: "== 0", lasting: minute, severity: page,
			summary: "No engine can take requests{{ with $labels.model }} for {{ . }}{{ end }} at {{ $labels.instance }}.",
			advice:  "Requests are refused or wait. GET /v1/engines says of each engine why it is not used: not reachable, not yet identified, or set aside after failures. `stator doctor URL` looks at an engine from outside.",
		},
		{
			name: "StatorNoFirstToken", signal: sum(highest(s.series("dynamo_frontend_queued_requests", served), short), "instance", "model"), when: "> 0",
			provided: []condition{{"and", orElse(unanswered.that("> 1.5"), givenUp.that("> 1.5"))}, {"unless", progress}},
			lasting:  3 * minute, severity: page,
			summary: "Nobody gets a token of {{ $labels.model }} at {{ $labels.instance }}.",
			advice:  "Requests wait or are given up, and none had a first token or an answer in " + window + ". Engines may say that they are well and still hang: send one a request of your own, see its log and its GPUs, and start it anew. GET /v1/engines has the addresses.",
		},
		{
			name: "StatorEngineLost", signal: minus(constant(1), div(
				minus(workers("discovered"), workers("inhibited")),
				most(median(s.series("stator_workers", is("state", "discovered")), "1h"), "instance", "model"))),
			when: ">= 0.5", sparse: true, lasting: 5 * minute, severity: ticket,
			summary: "{{ $value | humanizePercentage }} of the engines of {{ $labels.model }} are gone or set aside at {{ $labels.instance }}.",
			advice:  "They were there for most of the last hour and take no requests now. GET /v1/engines names those that are configured with the reason. After half an hour with fewer, fewer is what is expected.",
		},
		{
			name: "StatorEngineDown", signal: s.series("stator_engine_up"), when: "== 0", lasting: 15 * minute, severity: ticket,
			summary: "Engine " + theEngine + " at {{ $labels.instance }} takes no requests.",
			advice:  "It is configured, and does not answer or was set aside; perhaps it never came up. GET /v1/engines has its address and the reason, `stator doctor URL` looks at it from outside. Take it out of the configuration if it is not to come back.",
		},
		{
			name: "StatorEngineFlapping", signal: plus(grown("stator_inhibitions_total"), grown("stator_circuit_trips_total")), when: "> 3", sparse: true, severity: ticket,
			summary: "Engine " + theEngine + " was set aside {{ printf \"%.0f\" $value }} times in " + long + ".",
			advice:  "It fails, recovers and fails again; each time requests are retried elsewhere and its cache may be lost. Look at the engine's own log for crashes, memory and its watchdog. Take it out of the configuration until it is well.",
		},
		{
			name: "StatorCircuitTripped", signal: grown("stator_circuit_trips_total"), when: "> 0", sparse: true, severity: ticket,
			summary: "Requests at engine " + theEngine + " keep failing although it says that it is well.",
			advice:  "Its health route answers, its requests do not. stator_engine_errors_total tells how they fail. Usually the engine has to be started anew.",
		},
		{
			name: "StatorSlowFirstToken", signal: quantile(0.95, sum(rate(s.series(ttftBuckets, served), window), "model", "le")), when: "> 2",
			provided: []condition{{"and", sum(increase(s.series(ttftCount, served), window), "model").that(enough)}},
			lasting:  5 * minute, severity: ticket,
			summary: "One request in twenty for {{ $labels.model }} waits more than {{ printf \"%.1f\" $value }} s for its first token.",
			advice:  "Row Latency of the dashboard says where the time goes: waiting in the queue, on the way, or at engines. If engines are full (row Workers), add some or set busy thresholds; if KV efficiency fell, see row KV cache; if prompts grew, see row Traffic.",
		},
		{
			name: "StatorErrors", signal: errorRatio(s, window, "model"), when: "> 0.05",
			provided: []condition{{"and", sum(increase(s.series("dynamo_frontend_requests_total"), window), "model").that(enough)}},
			lasting:  5 * minute, severity: page,
			summary: "{{ $value | humanizePercentage }} of the requests for {{ $labels.model }} fail.",
			advice:  "Panel Outcomes tells how: overload and unavailable mean too few engines, internal and response_timeout that engines fail; stator_engine_errors_total has the kind. Requests that are the client's mistake are not counted.",
		},
		{
			name: "StatorQueueWait", signal: quantile(0.95, sum(rate(s.series("stator_queue_wait_seconds_bucket"), window), "instance", "model", "policy_class", "le")), when: "> 5", sparse: true, lasting: 5 * minute, severity: ticket,
			summary: "Requests of class {{ $labels.policy_class }} for {{ $labels.model }} wait {{ printf \"%.0f\" $value }} s in the queue.",
			advice:  "More comes in than the engines compute. Add engines, or give classes limits so that clients are told at once. If engines are idle meanwhile, the queue's threshold is too low.",
		},
		{
			name: "StatorShedding", signal: sum(rate(s.series("stator_shed_total", isNot("reason", string(metrics.ShedDraining))), window), "instance", "reason"), when: "> 0.1", sparse: true, lasting: 5 * minute, severity: ticket,
			summary: "{{ $labels.instance }} turns away {{ printf \"%.1f\" $value }} requests a second: {{ $labels.reason }}.",
			advice:  "busy: all engines are past their threshold; queue_full: a class of the queue is at its limit; inflight and body_budget: this process is at a limit of its own. Add engines, or raise the limit if there is room.",
		},
		{
			name: "StatorIndexStale", signal: div(verdicts(is("verdict", string(metrics.VerdictIndexStale))), verdicts(told)), when: "> 0.2", sparse: true, lasting: 15 * minute, severity: ticket,
			summary: "{{ $value | humanizePercentage }} of the requests at engine " + theEngine + " found less in its cache than was predicted.",
			advice:  "What is known of the cache lags behind what the engine holds: events are lost or late (row Queue and placement), or the engine was started anew unnoticed, or without events it evicts sooner than is assumed. Requests go where they should not.",
		},
		{
			name: "StatorTokensDiffer", signal: div(verdicts(is("verdict", string(metrics.VerdictTokensDiffer))), verdicts(told)), when: "> 0.1", sparse: true, lasting: 15 * minute, severity: ticket,
			summary: "Engine " + theEngine + " counts the prompts of {{ $labels.model }} otherwise than Stator.",
			advice:  "The tokenizer or chat template used here is not the engine's, so blocks cannot match. Compare with `stator tokenize`, and set the model's tokenizer, or `engine` to have engines asked.",
		},
		{
			name: "StatorCacheTrustLow", signal: minus(constant(1), least(s.series("stator_worker_cache_trust"), "instance", "worker_id")), when: "> 0.5", sparse: true, lasting: 10 * minute, severity: ticket,
			summary: "Predictions of what engine " + theEngine + " has in its cache are mostly wrong.",
			advice:  "It gets little credit for cached blocks and so the wrong requests. See StatorIndexStale and StatorTokensDiffer for the cause; an engine without prefix caching shows this as well: `stator doctor URL` tells.",
		},
		{
			name: "StatorEventLinkDown", signal: sum(s.series("stator_event_link", like("state", "dialing|dirty|degraded")), "instance", "worker_id"), when: "> 0",
			provided: []condition{reachable}, sparse: true, lasting: 5 * minute, severity: ticket,
			summary: "The cache events of engine " + theEngine + " do not come, or not all.",
			advice:  "dialing: nothing listens at the address of its event socket; dirty: batches are missing and cannot be asked for; degraded: what was before is not known. See that the engine publishes events, with a replay socket, and that both ports are reachable; GET /v1/engines has the addresses.",
		},
		{
			name: "StatorEventsLate", signal: most(s.series("stator_feed_lag_seconds"), "instance", "worker_id"), when: "> 5", sparse: true, lasting: 2 * minute, severity: ticket,
			summary: "Cache events of engine " + theEngine + " wait {{ printf \"%.0f\" $value }} s before they are applied.",
			advice:  "Either more comes than this process can take in (see its CPU), or something missing is being asked for and the rest is held back. Predictions are as old as this.",
		},
		{
			name: "StatorEventGaps", signal: grown("stator_feed_gaps_total"), when: "> 3", sparse: true, severity: ticket,
			summary: "Batches of cache events of engine " + theEngine + " went missing {{ printf \"%.0f\" $value }} times.",
			advice:  "A slow reader or network loses messages of a PUB socket. A replay socket at the engine lets them be asked for. See also the engine's high-water mark.",
		},
		{
			name: "StatorEngineReportsStale", signal: most(s.series("stator_engine_report_age_seconds"), "instance", "worker_id"), when: "> 60",
			provided: []condition{reachable}, sparse: true, lasting: 2 * minute, severity: ticket,
			summary: "Engine " + theEngine + " has not said for {{ printf \"%.0f\" $value }} s what its load is.",
			advice:  "Placement goes by what is booked here alone, so load that comes from elsewhere is not seen. The engine's /metrics is slow or gone; SGLang and llama.cpp have it only with --enable-metrics and --metrics.",
		},
		{
			name: "StatorCachesFull", signal: least(s.series("dynamo_component_kvstats_gpu_cache_usage_percent"), "instance", "model"), when: "> 95", sparse: true, lasting: 10 * minute, severity: ticket,
			summary: "The KV caches of all engines of {{ $labels.model }} are full.",
			advice:  "Requests wait at engines or push each other out. Add engines, or let fewer in: busy thresholds, a queue, a shorter context.",
		},
		{
			name: "StatorTraceRowsDropped", signal: sum(increase(s.series("stator_trace_rows_dropped_total"), long), "instance"), when: "> 0", sparse: true, severity: ticket,
			summary: "{{ $labels.instance }} lost rows of its request trace.",
			advice:  "The disk is full, failed or cannot keep up. Requests are not held up; evaluations of this trace miss some.",
		},
		{
			name: "StatorPolicyFellBack", signal: sum(increase(s.series("thompson_router_safe_fallbacks_total"), long), "instance"), when: "> 0", sparse: true, severity: ticket,
			summary: "The policy that learns at {{ $labels.instance }} was worse than its baseline and was set aside.",
			advice:  "The cost decides meanwhile; nothing is at risk. If it happens again, GET /debug/thompson shows what was learned; `stator policy eval` on a trace tells whether the policy is worth having, and --thompson-variant shadow tries it without effect.",
		},
	}
}
