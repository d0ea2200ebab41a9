package monitor

func caches(s schema) []panel {
	kve := []limit{{0, poor}, {0.2, "orange"}, {0.4, fair}, {0.6, "light-green"}, {0.8, good}}
	verdicts := s.flow("stator_cache_verdicts_total", []matcher{someModel, someWorker}, "verdict")
	inUse := timesOn("model",
		sum(s.series("dynamo_component_kvstats_active_blocks", someModel, someWorker), "model", "worker_id"),
		most(s.series("dynamo_frontend_model_kv_cache_block_size", someModel), "model"))
	room := timesOn("model",
		sum(s.series("dynamo_component_kvstats_total_blocks", someModel, someWorker), "model", "worker_id"),
		most(s.series("dynamo_frontend_model_kv_cache_block_size", someModel), "model"))
	return []panel{
		{
			title: "KV efficiency and score", about: "Share of prompt tokens that engines found in their caches; and a score from 0 to 1 that weighs it with latencies (0.4 efficiency, 0.4 first token within 500 ms, 0.2 between tokens within 50 ms, over all models and servers).",
			kind: lines, unit: share, targets: []target{
				{"{{model}}", efficiency(s, window, models, "model")},
				{"score of all", s.series("stator:optimization_score")},
			},
		},
		{
			title: "KV efficiency by worker", about: "One that is much lower than the others gets requests that others had the beginning of, or caches nothing.",
			kind: lines, unit: share, limits: kve, top: 1, targets: one("{{worker_id}}", efficiency(s, window, []matcher{someModel, someWorker}, "worker_id")),
		},
		{
			title: "KV efficiency by prefix hint", about: "Of requests whose client names a prefix or a session, and of those without.",
			kind: lines, unit: share, top: 1, targets: one("{{prefix}}", efficiency(s, window, models, "prefix")),
		},
		{
			title: "What became of predictions", about: "agreed: as predicted; no_reuse: nobody had any; traded_for_load: another had more, and more to do; index_stale: the engine had less; unforeseen: it had some that was not known; tokens_differ: another tokenizer; unknown: the engine does not say.",
			kind: lines, unit: perSecond, stacked: true, targets: one("{{verdict}}", verdicts),
		},
		{
			title: "KV cache usage by worker", about: "Share of each cache that requests hold, as the engine says, else as booked. Blocks that are only cached do not count.",
			kind: lines, unit: percent, top: 100, limits: rising(70, 90),
			targets: one("{{worker_id}}", most(s.series("dynamo_component_kvstats_gpu_cache_usage_percent", someModel, someWorker), "worker_id")),
		},
		{
			title: "KV cache tokens", about: "Tokens of requests in all chosen caches, and how many there is room for.",
			kind: lines, unit: tokens, targets: []target{
				{"in use", sum(inUse)},
				{"room", sum(room)},
			},
		},
	}
}

func workers(s schema) []panel {
	each := func(name string) query { return most(s.series(name, someWorker), "worker_id") }
	return []panel{
		{
			title: "Workers", about: "The latest of each. Trust is how far predictions of its cache are believed; blocks, use and hit rate are missing of engines that do not say.",
			kind: table, unit: count, width: 24, height: 7,
			targets: []target{
				{"", most(s.series("stator_engine_info", someWorker), "worker_id", "url", "kind", "version")},
				{"booked", sum(s.series("stator_worker_active_requests", someWorker), "worker_id")},
				{"prompt tokens to do", sum(s.series("dynamo_frontend_worker_active_prefill_tokens", someWorker), "worker_id")},
				{"cache in use", each("dynamo_component_kvstats_gpu_cache_usage_percent")},
				{"blocks", sum(most(s.series("dynamo_component_kvstats_total_blocks", someWorker), "worker_id", "dp_rank"), "worker_id")},
				{"hit rate", each("dynamo_component_kvstats_gpu_prefix_cache_hit_rate")},
				{"trust", least(s.series("stator_worker_cache_trust", someWorker), "worker_id")},
				{"last TTFT", each("dynamo_frontend_worker_last_time_to_first_token_seconds")},
				{"last ITL", each("dynamo_frontend_worker_last_inter_token_latency_seconds")},
			},
			columns: []string{"", count, count, percent, count, share, share, seconds, seconds},
		},
		{
			title: "Running requests", about: "Requests sent to each worker and not answered yet; and those that it runs as it says itself, where it does.",
			kind: lines, unit: count, targets: []target{
				{"{{worker_id}}", sum(s.series("dynamo_component_inflight_requests", is("dynamo_namespace", "workers"), someWorker), "worker_id")},
				{"{{worker_id}} says", sum(most(s.series("stator_engine_running_requests", someWorker), "worker_id", "dp_rank"), "worker_id")},
			},
		},
		{
			title: "Queues of workers", about: "Requests that wait at each worker, as it says itself. Waiting here while others are idle is bad placement; waiting everywhere, too few engines. Empty where engines do not say.",
			kind: lines, unit: count, limits: rising(10, 50),
			targets: one("{{worker_id}}", sum(most(s.series("stator_engine_waiting_requests", someWorker), "worker_id", "dp_rank"), "worker_id")),
		},
		{
			title: "Prompt tokens to compute", about: "Prompt tokens booked on each worker and not computed yet: what a new request waits for.",
			kind: lines, unit: tokens, targets: one("{{worker_id}}", sum(s.series("dynamo_frontend_worker_active_prefill_tokens", someWorker), "worker_id")),
		},
		{
			title: "States of workers", about: "inhibited: set aside after failures; overloaded: past its threshold. One that is not discovered any more is gone.",
			kind: lines, unit: count, width: 12, targets: one("{{model}} {{state}}", most(s.series("stator_workers", someModel), "model", "state")),
		},
		{
			title: "Set aside", about: "How often each worker was set aside after a failure, and because its requests kept failing although it said that it was well.",
			kind: lines, unit: count, width: 12, targets: []target{
				{"{{worker_id}} failed", sum(increase(s.series("stator_inhibitions_total", someWorker), window), "worker_id")},
				{"{{worker_id}} tripped", sum(increase(s.series("stator_circuit_trips_total", someWorker), window), "worker_id")},
			},
		},
	}
}

func placement(s schema) []panel {
	step := func(legend, name string) target {
		return target{legend, quantile(0.99, sum(rate(s.series("dynamo_router_overhead_"+name+"_bucket"), window), "le"))}
	}
	wait := func(p float64) query {
		return quantile(p, sum(rate(s.series("stator_queue_wait_seconds_bucket", someModel), window), "policy_class", "le"))
	}
	router := func(name string) query { return s.flow("dynamo_component_router_"+name, models) }
	return []panel{
		{
			title: "Waiting", about: "Requests in the queue here, in all and by class; and all that have no first token yet, wherever they wait. The queue in all is of all models; there are no classes without a queue.",
			kind: lines, unit: count, targets: []target{
				{"in the queue", sum(s.series("dynamo_frontend_router_queue_pending_requests"))},
				{"class {{policy_class}}", sum(s.series("stator_queue_requests", someModel), "policy_class")},
				{"without a first token", sum(s.series("dynamo_frontend_queued_requests", someModel))},
			},
		},
		{
			title: "Time in the queue", about: "Of requests that left it for a worker, by class. Empty without a queue.",
			kind: lines, unit: seconds, targets: []target{{"{{policy_class}} p50", wait(0.5)}, {"{{policy_class}} p95", wait(0.95)}},
		},
		{
			title: "Turned away", about: "Requests refused: all workers busy, the queue full, or this process at a limit of its own. 0 while all is well.",
			kind: lines, unit: perSecond, targets: []target{
				{"all", orZero(s.flow("stator_shed_total", models))},
				{"{{reason}}", s.flow("stator_shed_total", models, "reason")},
			},
		},
		{
			title: "What decided", about: "Placements by what decided them: cost, a policy that learns, a pin, a session, or that there was only one.",
			kind: lines, unit: perSecond, stacked: true, targets: one("{{reason}}", s.flow("stator_router_decisions_total", models, "reason")),
		},
		{
			title: "Cache given up for load", about: "Share of placements on a worker although another had more of the prompt. Much of it with idle workers: the cost's weights are off.",
			kind: lines, unit: share, top: 1, targets: one("given up", div(router("non_max_overlap_selections_total"), router("requests_total"))),
		},
		{
			title: "Time to place, p99", about: "What placing a request takes here, step by step; the queue is not in it. Of all models.",
			kind: lines, unit: millis, targets: []target{
				step("all", "total_ms"), step("look up", "indexer_find_matches_ms"), step("choose and book", "scheduling_ms"),
			},
		},
		{
			title: "Cache events", about: "Events that the index took in, by kind, of all models. None while requests run: engines do not tell, and predictions go by what was sent where.",
			kind: lines, unit: "ops", width: 12,
			targets: one("{{event_type}} {{status}}", sum(rate(s.series("dynamo_component_kv_cache_events_applied"), window), "event_type", "status")),
		},
		{
			title: "Event feeds", about: "How long cache events wait here before they are applied, and how old they were when they came, by the engine's clock. The state of each link is in GET /v1/engines. Empty where engines publish none.",
			kind: lines, unit: seconds, width: 12, targets: []target{
				{"{{worker_id}} waits", most(s.series("stator_feed_lag_seconds", someWorker), "worker_id")},
				{"{{worker_id}} on the way", most(s.series("stator_event_lag_seconds", someWorker), "worker_id")},
			},
		},
	}
}

func learning(s schema) []panel {
	alpha := sum(s.series("thompson_router_beta_alpha", someWorker), "worker_id")
	beta := sum(s.series("thompson_router_beta_beta", someWorker), "worker_id")
	return []panel{
		{
			title: "Decisions", about: "Decisions of the policy that learns, by the worker chosen. Empty without one.",
			kind: lines, unit: perSecond, stacked: true, targets: one("{{worker_id}}", s.flow("thompson_router_decisions_total", theWorkers, "worker_id")),
		},
		{
			title: "Set aside, and left without an answer", about: "Times that the policy was worse than its baseline and the cost took over; and decisions given up because nothing was heard of them. Of all models; 0 without such a policy.",
			kind: lines, unit: count, targets: []target{
				{"fell back", sum(increase(s.series("thompson_router_safe_fallbacks_total"), window))},
				{"no answer", sum(increase(s.series("thompson_router_timeout_penalties_total"), window))},
			},
		},
		{
			title: "Staying and moving", about: "Calls of a prefix that went to the worker it was on, and to another, of all models. 0 without prefix ids, or without a policy that learns.",
			kind: lines, unit: perSecond, targets: []target{
				{"stayed", s.flow("thompson_router_sticky_decisions_total", nil)},
				{"moved", s.flow("thompson_router_switch_decisions_total", nil)},
			},
		},
		{
			title: "What workers are worth", about: "Mean of each worker's Beta distribution, from 0 to 1. Empty but with the variant reference.",
			kind: lines, unit: share, top: 1, targets: one("{{worker_id}}", div(alpha, plus(alpha, beta))),
		},
	}
}

// engines are panels of what engines say when they are scraped themselves: those of one kind
// have no data where there are none.
func engines(s schema) []panel {
	const vllm, sglang, llama = "vLLM {{instance}}", "SGLang {{instance}}", "llama.cpp {{instance}}"
	each := func(name string) query { return sum(s.series(name), "instance") }
	flow := func(name string) query { return s.flow(name, nil, "instance") }
	ttft := func(name string) query {
		return quantile(0.95, sum(rate(s.series(name), window), "instance", "le"))
	}
	return []panel{
		{
			title: "Engines: running", about: "Requests that run on each engine that is scraped itself (job engines). Empty where none is.",
			kind: lines, unit: count, targets: []target{
				{vllm, each("vllm:num_requests_running")}, {sglang, each("sglang:num_running_reqs")}, {llama, each("llamacpp:requests_processing")},
			},
		},
		{
			title: "Engines: waiting", about: "Requests that wait on each engine. Empty where none is scraped.",
			kind: lines, unit: count, limits: rising(10, 50), targets: []target{
				{vllm, each("vllm:num_requests_waiting")}, {sglang, each("sglang:num_queue_reqs")}, {llama, each("llamacpp:requests_deferred")},
			},
		},
		{
			title: "Engines: tokens generated", about: "Tokens a second of each engine, whoever asked for them. Empty where none is scraped.",
			kind: lines, unit: tokenRate, targets: []target{
				{vllm, flow("vllm:generation_tokens_total")}, {sglang, flow("sglang:generation_tokens_total")}, {llama, flow("llamacpp:tokens_predicted_total")},
			},
		},
		{
			title: "Engines: KV cache usage", about: "Share of each engine's cache that requests hold. llama.cpp does not say. Empty where none is scraped.",
			kind: lines, unit: share, top: 1, limits: rising(0.7, 0.9), targets: []target{
				{vllm, most(s.series("vllm:kv_cache_usage_perc"), "instance")}, {sglang, most(s.series("sglang:token_usage"), "instance")},
			},
		},
		{
			title: "Engines: cache hits", about: "Share of prompt tokens found in the cache, as engines count: recorded by the group of Dynamo's rules. 0 when idle, empty where none is scraped.",
			kind: lines, unit: share, top: 1, targets: []target{
				{vllm + " {{model_name}}", s.series("vllm:cache_hit_efficiency")}, {sglang + " {{model_name}}", s.series("sglang:cache_hit_efficiency")},
			},
		},
		{
			title: "Engines: first token, p95", about: "Time to the first token as engines see it: what is above it at clients is spent before. Empty where none is scraped.",
			kind: lines, unit: seconds, targets: []target{
				{vllm, ttft("vllm:time_to_first_token_seconds_bucket")}, {sglang, ttft("sglang:time_to_first_token_seconds_bucket")},
			},
		},
	}
}

func process(s schema) []panel {
	api := []matcher{like("job", servers), someServer}
	each := func(name string) query { return sum(s.series(name, api...), "instance") }
	return []panel{
		{
			title: "CPU", about: "Cores in use by each server.",
			kind: lines, unit: count, targets: one("{{instance}}", sum(rate(s.series("process_cpu_seconds_total", api...), window), "instance")),
		},
		{
			title: "Memory", about: "Of each server in all, of Go's heap, and of request bodies under way.",
			kind: lines, unit: bytesUnit, targets: []target{
				{"{{instance}}", each("process_resident_memory_bytes")},
				{"{{instance}} heap", each("go_memstats_heap_inuse_bytes")},
				{"{{instance}} bodies", sum(s.series("stator_inflight_body_bytes"), "instance")},
			},
		},
		{
			title: "Goroutines and open files", about: "Both grow with open streams, and go back with them.",
			kind: lines, unit: count, targets: []target{
				{"{{instance}} goroutines", each("go_goroutines")},
				{"{{instance}} files", each("process_open_fds")},
			},
		},
		{
			title: "Versions", about: "What runs where, and since when.",
			kind: table, unit: count, width: 24, height: 4, columns: []string{"", "dateTimeAsIso"},
			targets: []target{
				{"", most(s.series("stator_build_info"), "instance", "version", "goversion")},
				{"since", times(constant(1000), most(s.series("process_start_time_seconds", api...), "instance"))},
			},
		},
	}
}
