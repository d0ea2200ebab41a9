package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
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

// partlySlow has the first engine take two and a half times as long for some of a run, as
// one that is throttled does.
func partlySlow(from, to time.Duration) func(kv.Source, time.Duration) float64 {
	return func(rank kv.Source, now time.Duration) float64 {
		if rank.Worker == 1 && now > from && now < to {
			return 2.5
		}
		return 1
	}
}

// policySetting is a fleet, and how often the conversations are replayed on it.
type policySetting struct {
	engines int
	speed   float64
	slow    bool // one of them, for a while
	seeds   int
}

func (s policySetting) String() string {
	name := fmt.Sprintf("%d engines, %g times as fast", s.engines, s.speed)
	if s.slow {
		name += ", one slow from 35 to 80 % of the time"
	}
	return name
}

// TestPolicies replays the hour of conversations with each policy, on fleets that keep up and
// on one that for a while does not. The safe policy is never worse than the cost by more than
// it may be, and shadow is the cost. A fleet that is behind magnifies every difference, so
// that what counts is the mean over several seeds.
func TestPolicies(t *testing.T) {
	long(t)
	for _, setting := range []policySetting{{4, 3, true, 10}, {4, 1, false, 1}, {4, 2, false, 1}, {8, 4, false, 1}} {
		t.Run(setting.String(), func(t *testing.T) {
			t.Parallel()
			sums := make(map[string]*policySum)
			results := make(map[string][]Result)
			for name, bandit := range policies(t) {
				seeds := 1
				if name == "cost" || name == "safe" { // what is compared
					seeds = setting.seeds
				}
				sums[name] = new(policySum)
				for seed := range seeds {
					rep := setting.replay(t, bandit, uint64(seed+1))
					sums[name].add(rep)
					if seed == 0 {
						results[name] = rep.Results
					}
				}
			}
			table := fmt.Sprintf("%-10s %10s %10s %10s %10s %8s %6s\n", "", "TTFT mean", "p95", "p99", "E2E mean", "reused", "seeds")
			for _, name := range []string{"cost", "reference", "safe", "shadow"} {
				s := sums[name]
				table += fmt.Sprintf("%-10s %7.0f ms %7.0f ms %7.0f ms %7.0f ms %6.1f %% %6.0f\n", name, s.ttft/s.n, s.p95/s.n, s.p99/s.n, s.e2e/s.n, 100*s.reuse/s.n, s.n)
			}
			t.Log("\n" + table)
			if safe, cost := sums["safe"], sums["cost"]; safe.ttft > 1.02*cost.ttft {
				t.Errorf("mean TTFT is %.1f ms with the safe policy and %.1f ms with the cost, want at most 1.02 times that", safe.ttft/safe.n, cost.ttft/cost.n)
			}
			if diff := cmp.Diff(results["cost"], results["shadow"]); diff != "" {
				t.Errorf("in shadow something is different (-cost +shadow):\n%.2000s", diff)
			}
		})
	}
}

// replay runs the conversations with a policy.
func (s policySetting) replay(t *testing.T, bandit *router.BanditConfig, seed uint64) *Report {
	t.Helper()
	tr := tracetest.Conversation(t)
	if err := tr.Speed(s.speed, s.speed); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Engines: s.engines, Router: router.Config{Mode: router.KV, Bandit: bandit, Seed: seed}}
	if s.slow {
		hour := time.Duration(float64(time.Hour) / s.speed)
		cfg.Slow = partlySlow(hour*35/100, hour*80/100)
	}
	rep, err := Run(t.Context(), cfg, tr)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Completed != len(tr.Requests) {
		t.Errorf("%d of %d requests completed", rep.Completed, len(tr.Requests))
	}
	return rep
}

// policySum adds up what a policy does with several seeds.
type policySum struct{ n, ttft, p95, p99, e2e, reuse float64 }

func (s *policySum) add(r *Report) {
	s.n++
	s.ttft += r.TTFT.Mean
	s.p95 += r.TTFT.P95
	s.p99 += r.TTFT.P99
	s.e2e += r.E2E.Mean
	s.reuse += r.Reuse()
}
