package replay

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// policies are those of mode kv; nil is the cost.
func policies(t *testing.T) map[string]*router.BanditConfig {
	t.Helper()
	ref, err := thompson.ReferenceSet(thompson.SetConfigYAML)
	if err != nil {
		t.Fatal(err)
	}
	safe, shadow := thompson.DefaultSafe(), thompson.DefaultSafe()
	shadow.Shadow = true
	return map[string]*router.BanditConfig{
		"cost": nil, "reference": {Reference: &ref}, "safe": {Safe: safe}, "shadow": {Safe: shadow},
	}
}

// TestPolicies replays the hour of conversations with each policy. The safe one is never
// worse than the cost by more than it may be, and shadow is the cost.
func TestPolicies(t *testing.T) {
	long(t)
	for _, setting := range []struct {
		engines int
		speed   float64
	}{{4, 1}, {4, 2}, {8, 4}} {
		reports := make(map[string]*Report)
		for name, bandit := range policies(t) {
			tr := tracetest.Conversation(t)
			if err := tr.Speed(setting.speed, setting.speed); err != nil {
				t.Fatal(err)
			}
			rep, err := Run(t.Context(), Config{Engines: setting.engines, Router: router.Config{Mode: router.KV, Bandit: bandit}}, tr)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Completed != len(tr.Requests) {
				t.Errorf("%s: %d of %d requests completed", name, rep.Completed, len(tr.Requests))
			}
			reports[name] = rep
		}
		table := fmt.Sprintf("%d engines, %g times as fast\n%-10s %10s %10s %10s %10s %8s\n", setting.engines, setting.speed, "", "TTFT mean", "p95", "p99", "E2E mean", "reused")
		for _, name := range []string{"cost", "reference", "safe", "shadow"} {
			r := reports[name]
			table += fmt.Sprintf("%-10s %7.0f ms %7.0f ms %7.0f ms %7.0f ms %6.1f %%\n", name, r.TTFT.Mean, r.TTFT.P95, r.TTFT.P99, r.E2E.Mean, 100*r.Reuse())
		}
		t.Log("\n" + table)
		if safe, cost := reports["safe"].TTFT.Mean, reports["cost"].TTFT.Mean; safe > 1.02*cost {
			t.Errorf("mean TTFT is %.1f ms with the safe policy and %.1f ms with the cost, want at most 1.02 times that", safe, cost)
		}
		if diff := cmp.Diff(reports["cost"].Results, reports["shadow"].Results); diff != "" {
			t.Errorf("in shadow something is different (-cost +shadow):\n%.2000s", diff)
		}
	}
}
