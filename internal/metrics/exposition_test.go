package metrics

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// scenario is a short life of a server: every family gets a series.
func scenario() *Set {
	s := New(Options{Version: "1.2.3", RouterID: 42})
	m := s.Model("Qwen/Qwen3-8B")
	m.SetInfo(Info{TotalKVBlocks: 2048, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ContextLength: 40960, KVCacheBlockSize: 16})
	m.SetWorkers(WorkerCounts{Discovered: 3, Routable: 1, Inhibited: 1, Overloaded: 1})
	w := s.Worker(1, 0)
	rt := s.Router("Qwen/Qwen3-8B", WorkerDecode)

	// A streamed chat that succeeds.
	s.AddBodyBytes(4096)
	r := m.Start(at(0), EndpointChatCompletions, true)
	s.HintIgnored("nvext.agent_hints.iat")
	s.Templated(60 * time.Microsecond)
	s.Tokenized(700 * time.Microsecond)
	m.Tokens(0, 100)
	m.Tokens(96, 12)
	m.TokensSkipped(SkipTemplate)
	m.TokensSkipped("unheard of")
	m.HintInferred(InferredOSL, InferredFromFamily)
	m.HintInferred(InferredRemainingCalls, InferredFromFamily)
	m.HintInferred(InferredIAT, InferredFromSession)
	m.HintInferred("unheard of", "unheard of")
	m.InferredOSL(InferredFromFamily, 240, 200)
	m.InferredOSL(InferredFromSession, 20, 200)
	m.InferredOSL(InferredFromSession, 20, 0) // which nothing is a multiple of
	s.SetTokenizerCacheBytes(4096)
	s.Stage(StagePreprocess, 900*time.Microsecond)
	r.Ready(at(0.001))
	r.Prompt(100)
	rt.SetQueue(1, 100)
	rt.SetQueue(0, 0)
	rt.Overhead(Overhead{10 * time.Microsecond, 3 * time.Microsecond, 25 * time.Microsecond, 8 * time.Microsecond, 46 * time.Microsecond})
	rt.Started()
	rt.Placed(100, 16, 5)
	rt.Decided("cost")
	rt.OverlapLost(1)
	rt.TextRouted()
	rt.SetLedger(2, 7)
	rt.SetAdapter("poet", 1)
	w.SetLoad(7, 20)
	w.SetRequests(1)
	s.Stage(StageRoute, 50*time.Microsecond)
	s.Stage(StageTransportRoundtrip, 80*time.Millisecond)
	r.Tokens(at(0.101), 2)
	rt.FirstToken(100 * time.Millisecond)
	r.Tokens(at(0.161), 3)
	rt.Tokens(60*time.Millisecond, 3)
	r.CorrectTokens(1)
	r.Cached(80)
	rt.Done(6)
	r.End(at(0.2), ErrNone)
	w.SetLoad(0, 0)
	w.SetRequests(0)
	w.Last(100*time.Millisecond, 20*time.Millisecond, 100)
	truth := s.Truth("Qwen/Qwen3-8B", 1)
	truth.Record(VerdictAgreed, 80, 80)
	truth.Record(VerdictIndexStale, 80, 48)
	w.SetTrust(0.8)

	// A queue of two classes, and bookings for another process.
	batch := rt.Class("batch")
	batch.Set(2, 2000, 512)
	batch.Waited(1500 * time.Millisecond)
	batch.Left(QueueTimeout)
	batch.Rejected(QueueLimitRequests)
	rt.Class("latency")
	s.SetLeases(3)
	s.LeaseExpired()

	// One whose first worker fails and whose client leaves.
	r = m.Start(at(1), EndpointChatCompletions, true)
	r.Ready(at(1))
	m.EngineError(EngineConnect)
	m.Retry(RetryConnect)
	w.Inhibited()
	w.Tripped()
	r.Cancelled()
	r.End(at(2), ErrCancelled)

	// One that is turned away, one still waiting, one for no model at all.
	r = m.Start(at(3), EndpointCompletions, false)
	r.Rejected()
	m.Shed(ShedBusy)
	r.End(at(3), ErrOverload)
	m.Start(at(4), EndpointCompletions, false)
	s.AuthFailure()
	s.TraceRows(4)
	s.TraceRowsDropped(1)
	s.TracePromptSkipped()
	s.Model(UnknownModel).Start(at(5), EndpointEmbeddings, false).End(at(5), ErrNotFound)

	// Three chats as they pass between router and worker: one after a worker that fails,
	// one for which there is none, and one whose engine says nothing about it.
	find := s.FindWorker()
	find.Begin()
	find.End(46 * time.Microsecond)
	s.Worker(3, 0)
	g := m.Generate(at(6), PrefixHinted)
	g.Sent(at(6), 1, 0)
	g.Returned(at(6.01), true)
	g.Sent(at(6.02), 3, 0)
	g.Usage(100, 80)
	g.Blocks(TierBlocks{Device: 4, Host: 1})
	g.Returned(at(6.2), false)
	g.End(at(6.2), true, 100, 6)
	g = m.Generate(at(7), PrefixNone)
	g.Unplaced()
	g.End(at(7), false, 0, 0)
	g = m.Generate(at(8), PrefixSession)
	g.Sent(at(8), 1, 0)
	g.End(at(9), true, 10, 5)
	g = m.Generate(at(10), PrefixNone)
	g.Sent(at(10), 3, 0)

	bandit := s.Thompson()
	bandit.Decision(3, 0.75, 100, 4, Switched)
	bandit.Decision(3, 0.5, 100, 3, Stayed)
	bandit.Feedback(3, 180*time.Millisecond, 0.625)
	bandit.Beta(3, 1.625, 1.375)
	bandit.Gauges("pool", 1, 1)
	bandit.Timeouts(1)
	bandit.Fallback()

	s.WatchEngines(func() []EngineSample {
		return []EngineSample{{
			Worker: 1, Up: true, URL: "http://gpu1:8000", Kind: "vllm", Version: "0.26.0", Warnings: []string{"priority_ignored"},
			Ranks: []EngineRankSample{{
				Model: "Qwen/Qwen3-8B", TotalBlocks: 2048, BookedBlocks: 7,
				Told: true, Running: 3, Waiting: 1, Usage: 0.25, Age: 500 * time.Millisecond,
				Link: "live", Batches: 10, Events: 40, Bytes: 4096, Failures: 1, Lag: 2 * time.Millisecond,
			}},
		}}
	})

	s.WatchLearner(func() LearnSample {
		return LearnSample{Conversations: 12, Families: 3, ConversationsEvicted: 2, FamiliesEvicted: 1}
	})

	// An index that hears of one rank, and is asked over HTTP.
	s.WatchIndex("Qwen/Qwen3-8B", func() IndexSample {
		return IndexSample{
			Ranks: 1, Blocks: 700, Orphans: 3, Bytes: 44800,
			Stored: EventCounts{800, 2, 0, 1}, Removed: EventCounts{90, 0, 4, 0}, Cleared: EventCounts{1},
			Duplicates: 5, Forgotten: 6, Expired: 7, Pruned: 8,
			Skipped: map[string]uint64{"unknown_medium": 9, "unheard of": 1},
			Feeds: []FeedSample{{
				Worker: 1, Queue: 2, Lag: 30 * time.Millisecond,
				Gaps: 1, Missed: 4, Stale: 3, Restarts: 1, Dropped: 2,
				Recoveries: map[string]uint64{"events": 1, "failed": 2},
			}},
		}
	})
	x := s.IndexService()
	x.SetSize(1, 2)
	x.SetListeners(ListenerCounts{Active: 1})
	x.Request("/query", http.MethodPost, http.StatusOK, 150*time.Microsecond)
	x.Request("/query", http.MethodPost, http.StatusBadRequest, 50*time.Microsecond)

	// A model and a worker that came and went.
	useAll(s, s.Model("Gone"), s.Router("Gone", WorkerDecode))
	s.DropModel("Gone")
	s.Worker(2, 0).Last(1, 1, 1)
	s.DropWorker(2)
	return s
}

func TestExpositionGolden(t *testing.T) {
	got := strings.ReplaceAll(expose(t, scenario()), runtime.Version(), "GOVERSION")
	path := filepath.Join("testdata", "exposition.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("exposition (-want +got; -update rewrites):\n%s", diff)
	}
}

// The names, types and labels that dashboards and collectors rely on.
func TestFamilies(t *testing.T) {
	want := []string{
		"dynamo_component_inflight_requests GAUGE dynamo_component dynamo_endpoint dynamo_namespace worker_id",
		"dynamo_component_kv_cache_event_warnings COUNTER warning_kind",
		"dynamo_component_kv_cache_events_applied COUNTER event_type status",
		"dynamo_component_kvstats_active_blocks GAUGE dp_rank model worker_id",
		"dynamo_component_kvstats_gpu_cache_usage_percent GAUGE dp_rank model worker_id",
		"dynamo_component_kvstats_gpu_prefix_cache_hit_rate GAUGE dp_rank model worker_id",
		"dynamo_component_kvstats_total_blocks GAUGE dp_rank model worker_id",
		"dynamo_component_request_duration_seconds HISTOGRAM dynamo_component dynamo_endpoint dynamo_namespace worker_id",
		"dynamo_component_requests_total COUNTER dynamo_component dynamo_endpoint dynamo_namespace worker_id",
		"dynamo_component_router_input_sequence_tokens HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_inter_token_latency_seconds HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_kv_hit_rate HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_non_max_overlap_selections_total COUNTER dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_output_sequence_tokens HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_overlap_blocks_lost HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_requests_started_total COUNTER dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_requests_total COUNTER dynamo_component dynamo_namespace model router_id",
		"dynamo_component_router_time_to_first_token_seconds HISTOGRAM dynamo_component dynamo_namespace model router_id",
		"dynamo_component_thompson_active_requests GAUGE",
		"dynamo_component_thompson_engine_errors_total COUNTER",
		"dynamo_component_thompson_kve_cached_tokens_total COUNTER",
		"dynamo_component_thompson_kve_device_blocks_total COUNTER",
		"dynamo_component_thompson_kve_disk_blocks_total COUNTER",
		"dynamo_component_thompson_kve_host_blocks_total COUNTER",
		"dynamo_component_thompson_kve_prompt_tokens_total COUNTER",
		"dynamo_component_thompson_request_latency_seconds HISTOGRAM",
		"dynamo_component_thompson_requests_total COUNTER",
		"dynamo_component_thompson_router_errors_total COUNTER",
		"dynamo_component_thompson_routing_decisions_total COUNTER worker_id",
		"dynamo_component_thompson_tokens_in_total COUNTER",
		"dynamo_component_thompson_tokens_out_total COUNTER",
		"dynamo_frontend_active_requests GAUGE model",
		"dynamo_frontend_cached_tokens HISTOGRAM model",
		"dynamo_frontend_disconnected_clients GAUGE",
		"dynamo_frontend_inflight_requests GAUGE model",
		"dynamo_frontend_input_sequence_tokens HISTOGRAM model",
		"dynamo_frontend_inter_token_latency_seconds HISTOGRAM model",
		"dynamo_frontend_model_cancellation_total COUNTER endpoint model request_type",
		"dynamo_frontend_model_context_length GAUGE model",
		"dynamo_frontend_model_kv_cache_block_size GAUGE model",
		"dynamo_frontend_model_max_num_batched_tokens GAUGE model",
		"dynamo_frontend_model_max_num_seqs GAUGE model",
		"dynamo_frontend_model_migration_limit GAUGE model",
		"dynamo_frontend_model_rejection_total COUNTER endpoint model",
		"dynamo_frontend_model_total_kv_blocks GAUGE model",
		"dynamo_frontend_output_sequence_tokens HISTOGRAM model",
		"dynamo_frontend_output_tokens_total COUNTER model",
		"dynamo_frontend_queued_requests GAUGE model",
		"dynamo_frontend_request_duration_seconds HISTOGRAM model",
		"dynamo_frontend_requests_started_total COUNTER endpoint model request_type",
		"dynamo_frontend_requests_total COUNTER endpoint error_type model request_type status",
		"dynamo_frontend_router_queue_backpressure_total COUNTER model policy_class reason worker_type",
		"dynamo_frontend_router_queue_pending_isl_tokens GAUGE worker_type",
		"dynamo_frontend_router_queue_pending_requests GAUGE worker_type",
		"dynamo_frontend_stage_duration_seconds HISTOGRAM stage",
		"dynamo_frontend_template_seconds HISTOGRAM",
		"dynamo_frontend_time_to_first_token_seconds HISTOGRAM model",
		"dynamo_frontend_tokenize_seconds HISTOGRAM",
		"dynamo_frontend_tokenizer_cache_cached_tokens_total COUNTER model",
		"dynamo_frontend_tokenizer_cache_hits_total COUNTER",
		"dynamo_frontend_tokenizer_cache_misses_total COUNTER",
		"dynamo_frontend_tokenizer_cache_uncached_tokens_total COUNTER model",
		"dynamo_frontend_tokenizer_latency_ms HISTOGRAM operation",
		"dynamo_frontend_worker_active_decode_blocks GAUGE dp_rank worker_id worker_type",
		"dynamo_frontend_worker_active_prefill_tokens GAUGE dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_input_sequence_tokens GAUGE dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_inter_token_latency_seconds GAUGE dp_rank worker_id worker_type",
		"dynamo_frontend_worker_last_time_to_first_token_seconds GAUGE dp_rank worker_id worker_type",
		"dynamo_kvindexer_errors_total COUNTER endpoint status_class",
		"dynamo_kvindexer_listeners GAUGE status",
		"dynamo_kvindexer_models GAUGE",
		"dynamo_kvindexer_request_duration_seconds HISTOGRAM endpoint",
		"dynamo_kvindexer_requests_total COUNTER endpoint method",
		"dynamo_kvindexer_workers GAUGE",
		"dynamo_router_overhead_block_hashing_ms HISTOGRAM router_id",
		"dynamo_router_overhead_indexer_find_matches_ms HISTOGRAM router_id",
		"dynamo_router_overhead_scheduling_ms HISTOGRAM router_id",
		"dynamo_router_overhead_seq_hashing_ms HISTOGRAM router_id",
		"dynamo_router_overhead_total_ms HISTOGRAM router_id",
		"stator_adapter_requests GAUGE adapter model",
		"stator_auth_failures_total COUNTER",
		"stator_build_info GAUGE goversion version",
		"stator_cache_actual_tokens_total COUNTER model worker_id",
		"stator_cache_overpredicted_tokens_total COUNTER model worker_id",
		"stator_cache_predicted_tokens_total COUNTER model worker_id",
		"stator_cache_verdicts_total COUNTER model verdict worker_id",
		"stator_circuit_trips_total COUNTER worker_id",
		"stator_engine_errors_total COUNTER kind model",
		"stator_engine_info GAUGE kind url version worker_id",
		"stator_engine_kv_usage GAUGE dp_rank worker_id",
		"stator_engine_report_age_seconds GAUGE dp_rank worker_id",
		"stator_engine_running_requests GAUGE dp_rank worker_id",
		"stator_engine_up GAUGE worker_id",
		"stator_engine_waiting_requests GAUGE dp_rank worker_id",
		"stator_engine_warning GAUGE code worker_id",
		"stator_event_batches_total COUNTER dp_rank worker_id",
		"stator_event_bytes_total COUNTER dp_rank worker_id",
		"stator_event_lag_seconds GAUGE dp_rank worker_id",
		"stator_event_link GAUGE dp_rank state worker_id",
		"stator_event_link_failures_total COUNTER dp_rank worker_id",
		"stator_event_misplaced_batches_total COUNTER dp_rank worker_id",
		"stator_event_received_total COUNTER dp_rank worker_id",
		"stator_feed_dropped_batches_total COUNTER dp_rank model worker_id",
		"stator_feed_gaps_total COUNTER dp_rank model worker_id",
		"stator_feed_lag_seconds GAUGE dp_rank model worker_id",
		"stator_feed_missed_batches_total COUNTER dp_rank model worker_id",
		"stator_feed_queue_depth GAUGE dp_rank model worker_id",
		"stator_feed_recoveries_total COUNTER dp_rank model outcome worker_id",
		"stator_feed_restarts_total COUNTER dp_rank model worker_id",
		"stator_feed_stale_total COUNTER dp_rank model worker_id",
		"stator_hints_ignored_total COUNTER field",
		"stator_hints_inferred_total COUNTER field model source",
		"stator_index_blocks GAUGE model",
		"stator_index_bytes GAUGE model",
		"stator_index_expired_total COUNTER model",
		"stator_index_forgotten_total COUNTER model",
		"stator_index_orphans GAUGE model",
		"stator_index_pruned_total COUNTER model",
		"stator_index_ranks GAUGE model",
		"stator_inferred_osl_ratio HISTOGRAM model source",
		"stator_inflight_body_bytes GAUGE",
		"stator_inhibitions_total COUNTER worker_id",
		"stator_kv_events_skipped_total COUNTER model reason",
		"stator_kve_cached_tokens_total COUNTER model prefix worker_id",
		"stator_kve_missing_usage_total COUNTER model worker_id",
		"stator_kve_prompt_tokens_total COUNTER model prefix worker_id",
		"stator_learn_conversations GAUGE",
		"stator_learn_evictions_total COUNTER kind",
		"stator_learn_families GAUGE",
		"stator_ledger_blocks GAUGE model",
		"stator_ledger_stretches GAUGE model",
		"stator_queue_cached_tokens GAUGE model policy_class",
		"stator_queue_left_total COUNTER model policy_class reason",
		"stator_queue_prompt_tokens GAUGE model policy_class",
		"stator_queue_requests GAUGE model policy_class",
		"stator_queue_wait_seconds HISTOGRAM model policy_class",
		"stator_retries_total COUNTER model reason",
		"stator_router_decisions_total COUNTER model reason",
		"stator_router_leases GAUGE",
		"stator_router_leases_expired_total COUNTER",
		"stator_router_text_routed_total COUNTER model",
		"stator_shed_total COUNTER model reason",
		"stator_tokenizations_skipped_total COUNTER model reason",
		"stator_tokenizer_cache_bytes GAUGE",
		"stator_trace_prompts_skipped_total COUNTER",
		"stator_trace_rows_dropped_total COUNTER",
		"stator_trace_rows_total COUNTER",
		"stator_worker_active_requests GAUGE dp_rank worker_id worker_type",
		"stator_worker_cache_trust GAUGE dp_rank worker_id worker_type",
		"stator_workers GAUGE model state",
		"thompson_router_beta_alpha GAUGE worker_id",
		"thompson_router_beta_beta GAUGE worker_id",
		"thompson_router_decisions_total COUNTER worker_id",
		"thompson_router_feedback_latency_seconds HISTOGRAM worker_id",
		"thompson_router_kv_overlap GAUGE worker_id",
		"thompson_router_pending_decisions GAUGE",
		"thompson_router_prefix_state_size GAUGE",
		"thompson_router_reuse_budget HISTOGRAM",
		"thompson_router_reward GAUGE worker_id",
		"thompson_router_safe_fallbacks_total COUNTER",
		"thompson_router_sticky_decisions_total COUNTER",
		"thompson_router_switch_decisions_total COUNTER",
		"thompson_router_timeout_penalties_total COUNTER",
		"thompson_router_tokens_per_request HISTOGRAM",
	}
	s := scenario()
	families, err := s.Registry().Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	var got, names []string
	for _, f := range families {
		if foreign(f.GetName()) {
			continue
		}
		names = append(names, f.GetName())
		line := f.GetName() + " " + f.GetType().String()
		for _, l := range f.GetMetric()[0].GetLabel() {
			line += " " + l.GetName()
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}

	// A registered family without a series in the scenario would go unpinned.
	for _, n := range familyNames(s) {
		if !slices.Contains(names, n) {
			t.Errorf("the scenario leaves out %s", n)
		}
	}
}

func TestRegistryHasRuntimeCollectors(t *testing.T) {
	families, err := New(Options{}).Registry().Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	want := []string{"go_goroutines"}
	if runtime.GOOS == "linux" {
		want = append(want, "process_open_fds")
	}
	for _, n := range want {
		if !slices.Contains(names, n) {
			t.Errorf("no %s", n)
		}
	}
}

func TestSetsAreIndependent(t *testing.T) {
	a, b := New(Options{}), New(Options{})
	a.AuthFailure()
	wantSamples(t, a, map[string]float64{"stator_auth_failures_total": 1})
	wantSamples(t, b, map[string]float64{"stator_auth_failures_total": 0})
}

func TestHandlerDoesNotCompress(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept-Encoding", "gzip, zstd")
	rec := httptest.NewRecorder()
	New(Options{}).Handler().ServeHTTP(rec, req)
	if enc := rec.Header().Get("Content-Encoding"); enc != "" && enc != "identity" {
		t.Errorf("Content-Encoding %q", enc)
	}
	if ct := rec.Header().Get("Content-Type"); !strings.HasPrefix(ct, "text/plain; version=0.0.4") {
		t.Errorf("Content-Type %q", ct)
	}
	if !strings.Contains(rec.Body.String(), "stator_build_info") {
		t.Error("body is not a plain exposition")
	}
}

type failing struct{ desc *prometheus.Desc }

func (f failing) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }
func (f failing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(f.desc, errors.New("broken"))
}

func TestHandlerCountsFailingCollector(t *testing.T) {
	s := New(Options{})
	s.Registry().MustRegister(failing{prometheus.NewDesc("broken", "Broken.", nil, nil)})
	s.AuthFailure()
	get := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return rec
	}
	get()
	rec := get()
	if rec.Code != http.StatusOK {
		t.Errorf("status %d", rec.Code)
	}
	for _, line := range []string{
		"stator_auth_failures_total 1\n",
		`promhttp_metric_handler_errors_total{cause="gathering"} 1` + "\n",
	} {
		if !strings.Contains(rec.Body.String(), line) {
			t.Errorf("no line %q", line)
		}
	}
}

// familyNames returns the names of all registered families that are not foreign,
// with or without series.
func familyNames(s *Set) []string {
	ch := make(chan *prometheus.Desc)
	go func() {
		s.Registry().Describe(ch)
		close(ch)
	}()
	fqName := regexp.MustCompile(`fqName: "([^"]+)"`)
	var names []string
	for d := range ch {
		if n := fqName.FindStringSubmatch(d.String())[1]; !foreign(n) {
			names = append(names, n)
		}
	}
	return names
}

// foreign reports whether a family is one of the client library's.
func foreign(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_")
}

// expose returns what the handler answers, without foreign families.
func expose(t *testing.T, s *Set) string {
	t.Helper()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("exposition: status %d: %s", rec.Code, rec.Body)
	}
	var b strings.Builder
	for line := range strings.Lines(rec.Body.String()) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if !foreign(name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// samples returns the exposed values by series as written in the exposition.
func samples(t *testing.T, s *Set) map[string]float64 {
	t.Helper()
	got := make(map[string]float64)
	for line := range strings.Lines(expose(t, s)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("exposition line %q: %v", line, err)
		}
		got[line[:i]] = v
	}
	return got
}

// wantSamples checks the value of each series in want.
func wantSamples(t *testing.T, s *Set, want map[string]float64) {
	t.Helper()
	got := samples(t, s)
	for series, w := range want {
		g, ok := got[series]
		if !ok {
			t.Errorf("no series %s, want %v", series, w)
		} else if math.Abs(g-w) > 1e-9*max(1, math.Abs(w)) {
			t.Errorf("%s = %v, want %v", series, g, w)
		}
	}
}

// wantAbsent checks that none of the series is exposed.
func wantAbsent(t *testing.T, s *Set, series ...string) {
	t.Helper()
	got := samples(t, s)
	for _, name := range series {
		if v, ok := got[name]; ok {
			t.Errorf("%s = %v, want no such series", name, v)
		}
	}
}

func ExampleSet() {
	s := New(Options{Version: "1.0.0"})
	r := s.Model("Qwen/Qwen3-8B").Start(at(0), EndpointChatCompletions, true)
	defer r.End(at(2), ErrInternal) // for the paths that forget
	r.Ready(at(0.01))
	r.Tokens(at(0.11), 1)
	r.Tokens(at(0.13), 1)
	r.End(at(0.14), ErrNone)

	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "dynamo_frontend_requests_total") || strings.HasPrefix(line, "dynamo_frontend_output_tokens_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// dynamo_frontend_output_tokens_total{model="qwen/qwen3-8b"} 2
	// dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",model="qwen/qwen3-8b",request_type="stream",status="success"} 1
}
