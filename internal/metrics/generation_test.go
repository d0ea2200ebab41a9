package metrics

import (
	"math"
	"strings"
	"testing"
)

const (
	processorLabels = `{dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace="dynamo",worker_id=""}`
	workerOneLabels = `{dynamo_component="backend",dynamo_endpoint="generate",dynamo_namespace="workers",worker_id="1"}`
)

// What is there before the first request, so that rates are right from the first one on.
func TestProcessorFromTheStart(t *testing.T) {
	s := New(Options{})
	want := make(map[string]float64)
	for _, name := range []string{
		"requests_total", "tokens_in_total", "tokens_out_total", "router_errors_total", "engine_errors_total", "active_requests",
		"kve_prompt_tokens_total", "kve_cached_tokens_total", "kve_device_blocks_total", "kve_host_blocks_total", "kve_disk_blocks_total",
		"request_latency_seconds_count",
	} {
		want["dynamo_component_thompson_"+name] = 0
	}
	for _, le := range []string{"0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.25", "0.5", "0.75", "1", "2.5", "5", "7.5", "10", "+Inf"} {
		want[`dynamo_component_thompson_request_latency_seconds_bucket{le="`+le+`"}`] = 0
	}
	wantSamples(t, s, want)
	buckets := 0
	for series := range samples(t, s) {
		if strings.HasPrefix(series, "dynamo_component_thompson_request_latency_seconds_bucket") {
			buckets++
		}
	}
	if buckets != 15 {
		t.Errorf("%d buckets, want 15", buckets)
	}
}

func TestGeneration(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 0)
	m := s.Model("M")
	g := m.Generate(at(0), PrefixSession)
	wantSamples(t, s, map[string]float64{
		"dynamo_component_thompson_requests_total":              1,
		"dynamo_component_thompson_active_requests":             1,
		"dynamo_component_inflight_requests" + processorLabels:  1,
		"dynamo_component_inflight_requests" + workerOneLabels:  0,
		"dynamo_component_thompson_tokens_in_total":             0,
		`dynamo_component_thompson_kve_prompt_tokens_total`:     0,
		"dynamo_component_requests_total" + processorLabels:     1,
		"dynamo_component_requests_total" + workerOneLabels:     0,
		"dynamo_component_thompson_request_latency_seconds_sum": 0,
	})
	g.Sent(at(1), 1, 0)
	g.Usage(90, 10) // a running figure
	wantSamples(t, s, map[string]float64{"dynamo_component_inflight_requests" + workerOneLabels: 1})
	g.Returned(at(2), true)
	g.Sent(at(3), 1, 0)
	g.Usage(100, 40)
	g.Usage(200, 150)
	g.Usage(0, 7) // no reading
	g.Blocks(TierBlocks{1, 2, 3})
	g.Blocks(TierBlocks{4, 5, 6})
	g.Returned(at(5), false)
	g.End(at(5), true, 200, 20)
	g.End(at(6), true, 200, 20)
	g.Returned(at(6), true)
	wantSamples(t, s, map[string]float64{
		"dynamo_component_thompson_requests_total":                                                1,
		"dynamo_component_thompson_active_requests":                                               0,
		`dynamo_component_thompson_routing_decisions_total{worker_id="1"}`:                        2,
		"dynamo_component_thompson_engine_errors_total":                                           1,
		"dynamo_component_thompson_router_errors_total":                                           0,
		"dynamo_component_thompson_request_latency_seconds_count":                                 1,
		"dynamo_component_thompson_request_latency_seconds_sum":                                   2,
		"dynamo_component_thompson_tokens_in_total":                                               200,
		"dynamo_component_thompson_tokens_out_total":                                              20,
		"dynamo_component_thompson_kve_prompt_tokens_total":                                       200,
		"dynamo_component_thompson_kve_cached_tokens_total":                                       150,
		"dynamo_component_thompson_kve_device_blocks_total":                                       4,
		"dynamo_component_thompson_kve_host_blocks_total":                                         5,
		"dynamo_component_thompson_kve_disk_blocks_total":                                         6,
		`stator_kve_prompt_tokens_total{model="M",prefix="session",worker_id="1"}`:                200,
		`stator_kve_cached_tokens_total{model="M",prefix="session",worker_id="1"}`:                150,
		`dynamo_component_kvstats_gpu_prefix_cache_hit_rate{dp_rank="0",model="M",worker_id="1"}`: 0.75,
		"dynamo_component_requests_total" + processorLabels:                                       1,
		"dynamo_component_request_duration_seconds_sum" + processorLabels:                         5,
		"dynamo_component_inflight_requests" + processorLabels:                                    0,
		"dynamo_component_requests_total" + workerOneLabels:                                       2,
		"dynamo_component_request_duration_seconds_sum" + workerOneLabels:                         3,
		"dynamo_component_inflight_requests" + workerOneLabels:                                    0,
	})
	wantAbsent(t, s, `stator_kve_missing_usage_total{model="M",worker_id="1"}`,
		`stator_kve_prompt_tokens_total{model="M",prefix="none",worker_id="1"}`)
}

// What is counted of requests that do not come to a good end: that they came and went.
func TestGenerationWithoutAnAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(g *Generation)
		want map[string]float64
	}{
		{"no worker", func(g *Generation) { g.Unplaced() }, map[string]float64{"router_errors_total": 1}},
		{"the engine fails", func(g *Generation) {
			g.Sent(at(1), 1, 0)
			g.Usage(10, 5)
			g.Returned(at(2), true)
		}, map[string]float64{"engine_errors_total": 1, `routing_decisions_total{worker_id="1"}`: 1}},
		{"the client leaves", func(g *Generation) {
			g.Sent(at(1), 1, 0)
			g.Usage(10, 5)
		}, map[string]float64{`routing_decisions_total{worker_id="1"}`: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{})
			s.Worker(1, 0)
			g := s.Model("M").Generate(at(0), PrefixHinted)
			tt.do(&g)
			g.End(at(3), false, 10, 1)
			for name, v := range samples(t, s) {
				short, ok := strings.CutPrefix(name, "dynamo_component_thompson_")
				if w := tt.want[short]; ok && short != "requests_total" && v != w {
					t.Errorf("%s = %v, want %v", name, v, w)
				}
				if strings.HasPrefix(name, "stator_kve") {
					t.Errorf("%s = %v, want no such series", name, v)
				}
			}
			wantSamples(t, s, map[string]float64{
				"dynamo_component_thompson_requests_total":             1,
				"dynamo_component_inflight_requests" + workerOneLabels: 0,
				"dynamo_component_inflight_requests" + processorLabels: 0,
			})
		})
	}
}

func TestGenerationWithoutUsage(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 0)
	g := s.Model("M").Generate(at(0), PrefixNone)
	g.Sent(at(0), 1, 0)
	g.Blocks(TierBlocks{Device: 9})
	g.End(at(1), true, 12, 3)
	wantSamples(t, s, map[string]float64{
		`stator_kve_missing_usage_total{model="M",worker_id="1"}`: 1,
		"dynamo_component_thompson_kve_prompt_tokens_total":       0,
		"dynamo_component_thompson_kve_device_blocks_total":       0,
		"dynamo_component_thompson_tokens_in_total":               12,
	})
}

// The zero value is for requests that are none of these.
func TestGenerationZero(t *testing.T) {
	var g Generation
	g.Unplaced()
	g.Sent(at(0), 1, 0)
	g.Usage(1, 1)
	g.Blocks(TierBlocks{1, 1, 1})
	g.Returned(at(1), true)
	g.End(at(1), true, 1, 1)
}

// An engine cannot have found more than there is.
func TestUsageIsBounded(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 0)
	for _, cached := range []int{200, -5} {
		g := s.Model("M").Generate(at(0), PrefixClass(77))
		g.Sent(at(0), 1, 0)
		g.Usage(100, cached)
		g.End(at(1), true, 100, 1)
	}
	wantSamples(t, s, map[string]float64{
		"dynamo_component_thompson_kve_prompt_tokens_total":                     200,
		"dynamo_component_thompson_kve_cached_tokens_total":                     100,
		`stator_kve_prompt_tokens_total{model="M",prefix="none",worker_id="1"}`: 200,
	})
}

// Worker and model leave while a request is under way; what it records then goes
// nowhere, and a worker of the same name begins anew.
func TestGenerationAfterADrop(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop func(s *Set)
	}{
		{"worker", func(s *Set) { s.DropWorker(1) }},
		{"model", func(s *Set) { s.DropModel("M") }},
		{"worker that is back", func(s *Set) { s.DropWorker(1); s.Worker(1, 0) }},
		{"model that is back", func(s *Set) { s.DropModel("M"); s.Model("M") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{})
			s.Worker(1, 0)
			answer := func(m *Model) Generation {
				g := m.Generate(at(0), PrefixHinted)
				g.Sent(at(0), 1, 0)
				g.Usage(100, 50)
				return g
			}
			first, late := answer(s.Model("M")), answer(s.Model("M"))
			first.End(at(1), true, 100, 1)
			tt.drop(s)
			late.End(at(1), true, 100, 1)
			for series := range samples(t, s) {
				if strings.HasPrefix(series, "stator_kve") || strings.HasPrefix(series, "dynamo_component_kvstats") {
					t.Errorf("series left: %s", series)
				}
			}
			got := samples(t, s)
			if n := got["dynamo_component_inflight_requests"+workerOneLabels]; n != 0 {
				t.Errorf("%v requests in flight on the worker", n)
			}
			wantSamples(t, s, map[string]float64{
				"dynamo_component_thompson_active_requests":         0,
				"dynamo_component_thompson_kve_prompt_tokens_total": 200,
			})
		})
	}
}

func TestHitRate(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 1)
	m := s.Model("M")
	const series = `dynamo_component_kvstats_gpu_prefix_cache_hit_rate{dp_rank="1",model="M",worker_id="1"}`
	answer := func(prompt, cached int) {
		g := m.Generate(at(0), PrefixNone)
		g.Sent(at(0), 1, 1)
		g.Usage(prompt, cached)
		g.End(at(1), true, prompt, 1)
	}
	answer(100, 0)
	wantSamples(t, s, map[string]float64{series: 0})
	answer(900, 900)
	if got := samples(t, s)[series]; math.Abs(got-0.9) > 0.001 {
		t.Errorf("hit rate %v, want about 0.9", got)
	}
	for range 10 * hitRateWindow {
		answer(100, 25)
	}
	if got := samples(t, s)[series]; math.Abs(got-0.25) > 0.001 {
		t.Errorf("hit rate %v of ten windows later, want about 0.25", got)
	}
}

func TestGenerationDoesNotAllocate(t *testing.T) {
	s := New(Options{})
	s.Worker(1, 0)
	m := s.Model("M")
	run := func() {
		g := m.Generate(at(0), PrefixHinted)
		g.Sent(at(1), 1, 0)
		g.Usage(100, 10)
		g.Returned(at(2), false)
		g.End(at(2), true, 100, 3)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Where an engine is can be seen before it has said what it is.
func TestEngineInfo(t *testing.T) {
	s := New(Options{})
	s.WatchEngines(func() []EngineSample {
		return []EngineSample{{Worker: 8, URL: "http://gpu1:8000"}, {Worker: 9, Up: true, URL: "http://gpu2:8000", Kind: "vllm", Version: "1"}}
	})
	wantSamples(t, s, map[string]float64{
		`stator_engine_up{worker_id="8"}`:                                                  0,
		`stator_engine_info{kind="",url="http://gpu1:8000",version="",worker_id="8"}`:      1,
		`stator_engine_info{kind="vllm",url="http://gpu2:8000",version="1",worker_id="9"}`: 1,
	})
}

func TestEngineCacheStats(t *testing.T) {
	const labels = `{dp_rank="2",model="M",worker_id="9"}`
	for _, tt := range []struct {
		name                 string
		rank                 EngineRankSample
		usage, active, total float64 // total 0 means no series
	}{
		{"told", EngineRankSample{Told: true, Usage: 0.1, TotalBlocks: 30, BookedBlocks: 9}, 10, 3, 30},
		{"booked", EngineRankSample{TotalBlocks: 40, BookedBlocks: 10}, 25, 10, 40},
		{"more booked than there is", EngineRankSample{TotalBlocks: 40, BookedBlocks: 50}, 100, 50, 40},
		{"unknown", EngineRankSample{Told: true, Usage: 0.5, BookedBlocks: 9}, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{})
			tt.rank.Rank, tt.rank.Model = 2, "M"
			s.WatchEngines(func() []EngineSample { return []EngineSample{{Worker: 9, Ranks: []EngineRankSample{tt.rank}}} })
			const p = "dynamo_component_kvstats_"
			if tt.total == 0 {
				wantAbsent(t, s, p+"gpu_cache_usage_percent"+labels, p+"active_blocks"+labels, p+"total_blocks"+labels)
				return
			}
			wantSamples(t, s, map[string]float64{
				p + "gpu_cache_usage_percent" + labels: tt.usage,
				p + "active_blocks" + labels:           tt.active,
				p + "total_blocks" + labels:            tt.total,
			})
		})
	}
}
