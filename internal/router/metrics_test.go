package router

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
)

// sum returns the sum of a family's series with these labels, given as names and
// values: of gauges and counters their values, of histograms the sums of what was
// observed.
func sum(t testing.TB, set *metrics.Set, name string, labels ...string) float64 {
	t.Helper()
	families, err := set.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.Metric {
			has := make(map[string]string)
			for _, l := range m.Label {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if has[labels[i]] != labels[i+1] {
					continue series
				}
			}
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return total
}

func TestGaugesOfWhatIsBooked(t *testing.T) {
	set := metrics.New(metrics.Options{})
	base, lora := engine.Model{ID: "m", BlockSize: 16}, engine.Model{ID: "m:a", Parent: "m"}
	r, m := crew(t, Config{Metrics: set}, Spec{Events: true, Engine: &stubEngine{models: []engine.Model{base, lora}}}, Spec{Events: true})
	a, _ := r.Lookup("m:a")
	prompt := tokensOf(1, 160)
	var running []*Placement
	for range 3 {
		running = append(running, mustPlace(t, r, &Request{Model: m, Tokens: prompt, PromptTokens: 160, Pinned: true, Pin: 2}))
	}
	running = append(running, mustPlace(t, r, &Request{Model: a, Tokens: prompt, PromptTokens: 160, HashSeed: kv.HashSeed("a", "")}))
	reserved := &Request{Model: m, ID: "lease", PromptTokens: 32, Pinned: true, Pin: 1}
	if _, err := r.Reserve(t.Context(), reserved, 0); err != nil {
		t.Fatal(err)
	}
	store(t, r, 2, 0, kv.Device, prompt, 0, 10)
	check := func(when string, want map[string]float64) {
		t.Helper()
		r.CountWorkers()
		got := map[string]float64{
			"requests of 1": sum(t, set, "stator_worker_active_requests", "worker_id", "1"),
			"requests of 2": sum(t, set, "stator_worker_active_requests", "worker_id", "2"),
			"blocks of 1":   sum(t, set, "dynamo_frontend_worker_active_decode_blocks", "worker_id", "1"),
			"blocks of 2":   sum(t, set, "dynamo_frontend_worker_active_decode_blocks", "worker_id", "2"),
			"tokens of 1":   sum(t, set, "dynamo_frontend_worker_active_prefill_tokens", "worker_id", "1"),
			"tokens of 2":   sum(t, set, "dynamo_frontend_worker_active_prefill_tokens", "worker_id", "2"),
			"trust":         sum(t, set, "stator_worker_cache_trust"),
			"adapter":       sum(t, set, "stator_adapter_requests", "model", "m"),
			"leases":        sum(t, set, "stator_router_leases"),
			"blocks known":  sum(t, set, "stator_ledger_blocks", "model", "m"),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("while they run", map[string]float64{
		"requests of 1": 2, "requests of 2": 3, "blocks of 1": 12, "blocks of 2": 10,
		"tokens of 1": 192, "tokens of 2": 160, "trust": 2, "adapter": 1, "leases": 1, "blocks known": 20,
	})
	for _, p := range running {
		p.Done(Completed)
	}
	r.Release("m", "lease")
	check("when they have ended", map[string]float64{
		"requests of 1": 0, "requests of 2": 0, "blocks of 1": 0, "blocks of 2": 0,
		"tokens of 1": 0, "tokens of 2": 0, "trust": 2, "adapter": 0, "leases": 0, "blocks known": 0,
	})
}

func TestDecisionCounters(t *testing.T) {
	set := metrics.New(metrics.Options{})
	r, m := crew(t, Config{Metrics: set}, tellers(3)...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 0, kv.Device, prompt, 0, 10)
	for range 3 {
		mustPlace(t, r, ask(m, prompt)).Done(Completed)
	}
	mustPlace(t, r, &Request{Model: m, Tokens: prompt, HashSeed: kv.HashSeed("", ""), PromptTokens: 160, Pinned: true, Pin: 2}).Done(Completed)
	mustPlace(t, r, &Request{Model: m, PromptTokens: 10, Allowed: []uint64{3}}).Done(Completed)
	mustPlace(t, r, &Request{Model: m, Text: bytes.Repeat([]byte("text"), 100), PromptTokens: 100, Guess: true}).Done(Completed)
	query(t, r, ask(m, prompt))
	// The next one goes elsewhere because of the load, and loses ten blocks by it.
	busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1600, Pinned: true, Pin: 1})
	mustPlace(t, r, ask(m, prompt)).Done(Completed)
	busy.Done(Completed)
	got := map[string]float64{}
	for _, reason := range []string{"cost", "pinned", "only"} {
		got[reason] = sum(t, set, "stator_router_decisions_total", "model", "m", "reason", reason)
	}
	got["started"] = sum(t, set, "dynamo_component_router_requests_started_total")
	got["text"] = sum(t, set, "stator_router_text_routed_total")
	got["not the best"] = sum(t, set, "dynamo_component_router_non_max_overlap_selections_total")
	got["lost"] = sum(t, set, "dynamo_component_router_overlap_blocks_lost")
	want := map[string]float64{"cost": 5, "pinned": 2, "only": 1, "started": 8, "text": 1, "not the best": 1, "lost": 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOverheadWithoutWait: the time in the queue is not counted as that of choosing.
func TestOverheadWithoutWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New(metrics.Options{})
		r, m := crew(t, Config{Metrics: set, Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 1000})
		got := waitFor(t, r, &Request{Model: m, PromptTokens: 1000, Explain: true})
		time.Sleep(3 * time.Second)
		busy.FirstToken()
		synctest.Wait()
		p := got.placed(t)
		if p.Routing.QueueWaitMS != 3000 || p.Routing.PolicyClass != "default" {
			t.Errorf("waited %v ms in %q", p.Routing.QueueWaitMS, p.Routing.PolicyClass)
		}
		if got := sum(t, set, "stator_queue_wait_seconds", "policy_class", "default"); got != 3 {
			t.Errorf("%v s in the queue, want 3", got)
		}
		for _, step := range []string{"block_hashing", "find_matches", "scheduling", "total"} {
			if got := sum(t, set, "dynamo_router_overhead_"+step+"_ms"); got != 0 {
				t.Errorf("%s took %v ms; no time passes but in the queue", step, got)
			}
		}
	})
}
