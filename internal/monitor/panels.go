package monitor

import "fmt"

// window is what Grafana makes four scrapes or more of.
const window = "$__rate_interval"

// Units of Grafana.
const (
	seconds   = "s"
	millis    = "ms"
	share     = "percentunit"
	percent   = "percent"
	count     = "short"
	perSecond = "reqps"
	tokens    = "short"
	tokenRate = "suffix: tok/s"
	bytesUnit = "bytes"
)

// panels are the rows of the dashboard, in the order in which somebody who is called at
// night asks: is it bad, what do clients see, what comes in, and why.
func panels(s schema) []row {
	return []row{
		{"Now", false, now(s)},
		{"Latency", false, latency(s)},
		{"Traffic", false, traffic(s)},
		{"KV cache", false, caches(s)},
		{"Workers", false, workers(s)},
		{"Queue and placement", false, placement(s)},
		{"Learning", true, learning(s)},
		{"Engines", true, engines(s)},
		{"This process", false, process(s)},
	}
}

// speeds are the quantiles of a latency.
func (s schema) speeds(buckets string, where []matcher) []target {
	var out []target
	for _, p := range []float64{0.5, 0.95, 0.99} {
		out = append(out, target{fmt.Sprintf("p%g", 100*p), quantile(p, sum(rate(s.series(buckets, where...), window), "le"))})
	}
	return out
}

// flow is the rate of a counter, as one number or by labels.
func (s schema) flow(name string, where []matcher, by ...string) query {
	return sum(rate(s.series(name, where...), window), by...)
}

// one is a panel with one expression.
func one(legend string, q query) []target { return []target{{legend, q}} }

var (
	models     = []matcher{someModel}
	theWorkers = []matcher{someWorker}
)

func now(s schema) []panel {
	failed := s.flow("dynamo_frontend_requests_total", []matcher{someModel, like("error_type", failures)})
	all := s.flow("dynamo_frontend_requests_total", models)
	stats := []panel{
		{
			title: "Alerts", about: "Alerts about Stator that are firing: those about the chosen servers, and those that are about no server in particular.", unit: count, limits: []limit{{0, good}, {1, poor}},
			targets: one("firing", orZero(howMany(s.series("ALERTS", like("alertname", "Stator.+"), is("alertstate", "firing"), like("instance", "$instance|"))))),
		},
		{
			title: "Engines taking requests", about: "Workers that can be chosen now, of all chosen models.", unit: count, limits: []limit{{0, poor}, {1, good}},
			targets: one("routable", sum(most(s.series("stator_workers", is("state", "routable"), someModel), "model"))),
		},
		{
			title: "Inflight requests", about: "Requests between arrival and the end of their answer.", unit: count, limits: []limit{{0, none}},
			targets: one("in flight", sum(s.series("dynamo_frontend_inflight_requests", someModel))),
		},
		{
			title: "Requests (1m)", about: "Requests that ended within the last minute.", unit: count, limits: []limit{{0, none}},
			targets: one("requests", orZero(sum(increase(s.series("dynamo_frontend_requests_total", someModel), "1m")))),
		},
		{
			title: "First token, p95", about: "Nineteen requests in twenty have their first token sooner.", unit: seconds, ratio: true, limits: rising(0.5, 2),
			targets: one("p95", quantile(0.95, sum(rate(s.series(ttftBuckets, someModel), window), "le"))),
		},
		{
			title: "Between tokens, p95", about: "Nineteen tokens in twenty come sooner after the one before.", unit: seconds, ratio: true, limits: rising(0.05, 0.2),
			targets: one("p95", quantile(0.95, sum(rate(s.series(itlBuckets, someModel), window), "le"))),
		},
		{
			title: "Failing", about: "Share of requests that fail, clients' own mistakes and those who went away left out.", unit: share, ratio: true, limits: rising(0.01, 0.05),
			targets: one("failing", div(orElse(failed, times(constant(0), all)), all)),
		},
		{
			title: "KV efficiency", about: "Share of prompt tokens that engines found in their caches.", unit: share, ratio: true, limits: falling(0.2, 0.5),
			targets: one("cached", efficiency(s, window, models)),
		},
	}
	for i := range stats {
		stats[i].kind, stats[i].width = figure, 3
	}
	return stats
}

func latency(s schema) []panel {
	stage := func(p float64) query {
		return quantile(p, sum(rate(s.series("dynamo_frontend_stage_duration_seconds_bucket"), window), "stage", "le"))
	}
	return []panel{
		{
			title: "Time to first token (TTFT)", about: "From the acceptance of a request to its first token, queue included.",
			kind: lines, unit: seconds, targets: s.speeds(ttftBuckets, models), limits: rising(0.5, 2),
		},
		{
			title: "Inter-token latency (ITL)", about: "Time between tokens. A chunk of several tokens counts as often, each with its share.",
			kind: lines, unit: seconds, targets: s.speeds(itlBuckets, models), limits: rising(0.05, 0.2),
		},
		{
			title: "Request duration", about: "From arrival to the end of the answer; grows with the length of answers. Quantiles are of all models, as their buckets do not tell these apart; the mean is of each.",
			kind: lines, unit: seconds, targets: append(s.speeds(durationBuckets, whole),
				target{"{{model}} mean", s.mean(durations, window, []matcher{someModel, served}, "model")}),
		},
		{
			title: "First token by model, p95", about: "Whether all models are slow, or one.",
			kind: lines, unit: seconds, width: 12,
			targets: one("{{model}}", quantile(0.95, sum(rate(s.series(ttftBuckets, someModel, served), window), "model", "le"))),
		},
		{
			title: "Where the time goes, p95", about: "Stages of a request here: template and tokens, placement, and the way to the engine until it begins to answer. What is missing to the first token is the queue's, or the engine computing. Stages are of all models; the queue is missing where there is none.",
			kind: lines, unit: seconds, width: 12,
			targets: []target{
				{"{{stage}}", stage(0.95)},
				{"in the queue", quantile(0.95, sum(rate(s.series("stator_queue_wait_seconds_bucket", someModel), window), "le"))},
			},
		},
	}
}

func traffic(s schema) []panel {
	work := func(where ...matcher) query { return s.flow("dynamo_component_requests_total", where) }
	return []panel{
		{
			title: "Requests", about: "Requests that ended, by model.",
			kind: lines, unit: perSecond, stacked: true, targets: one("{{model}}", s.flow("dynamo_frontend_requests_total", models, "model")),
		},
		{
			title: "Outcomes", about: "How requests ended: overload was turned away, unavailable had no engine, internal and response_timeout are failures of engines or of Stator.",
			kind: lines, unit: perSecond, targets: one("{{status}} {{error_type}}", s.flow("dynamo_frontend_requests_total", models, "status", "error_type")),
		},
		{
			title: "Token throughput", about: "Tokens of prompts that came in, and tokens that were generated, as they came.",
			kind: lines, unit: tokenRate, targets: []target{
				{"prompt", s.flow("dynamo_frontend_input_sequence_tokens_sum", models)},
				{"generated", s.flow("dynamo_frontend_output_tokens_total", models)},
			},
		},
		{
			title: "Lengths", about: "Tokens of prompts and of answers, on average. Longer prompts take longer to their first token.",
			kind: lines, unit: tokens, targets: []target{
				{"prompt", s.mean("dynamo_frontend_input_sequence_tokens", window, models)},
				{"answer", s.mean("dynamo_frontend_output_sequence_tokens", window, models)},
			},
		},
		{
			title: "Request flow", about: "Requests at each step. Placements above what came in are retries; workers below placements, requests that wait. Of all models.",
			kind: lines, unit: perSecond, targets: []target{
				{"ended", s.flow("dynamo_frontend_requests_total", nil)},
				{"to be answered", work(whole...)},
				{"to be placed", work(is("dynamo_component", "router"), is("dynamo_endpoint", "find_worker"))},
				{"sent to workers", work(is("dynamo_namespace", "workers"), is("dynamo_component", "backend"), is("dynamo_endpoint", "generate"))},
			},
		},
		{
			title: "Retries and failures of engines", about: "Attempts that failed at an engine, by how; and requests that were sent to another one before the client saw anything. 0 while all is well.",
			kind: lines, unit: perSecond, targets: []target{
				{"failures", orZero(s.flow("stator_engine_errors_total", models))},
				{"failures: {{kind}}", s.flow("stator_engine_errors_total", models, "kind")},
				{"retries", orZero(s.flow("stator_retries_total", models))},
			},
		},
	}
}
