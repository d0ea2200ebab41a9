package collect

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const natQueued = "dynamo_frontend_queued_requests"

func natConfig(g Group) Config {
	c := only(g)
	c.Compat = NAT
	return c
}

func TestNAT(t *testing.T) {
	t.Run("M1 instant returns 0 or NaN, the mean of the window counts", func(t *testing.T) {
		for _, first := range []string{"0", "NaN", "0.0", "-0", "no number"} {
			p := newProm(t)
			p.instant[natQueued] = vector(first)
			p.ranged[natQueued] = matrix([]string{"0", "NaN", "2", "4", "no number"}, []string{"0", "6"})
			cfg := natConfig(GroupInflight)
			r := Metrics(t.Context(), now, p.client(), &cfg)
			if diff := cmp.Diff(f(4), r.Value(QueuedRequests)); diff != "" {
				t.Errorf("instant %s (-want +got):\n%s", first, diff)
			}
		}
	})
	t.Run("M1 no series", func(t *testing.T) {
		p := newProm(t)
		p.ranged[natQueued] = matrix([]string{"0", "NaN"})
		cfg := natConfig(GroupInflight)
		if v := Metrics(t.Context(), now, p.client(), &cfg).Value(QueuedRequests); v != nil {
			t.Errorf("got %v of zeros and NaN, want none", *v)
		}
	})
	t.Run("M2 instant HTTP 500", func(t *testing.T) {
		p := newProm(t)
		p.status["/api/v1/query "+natQueued] = http.StatusInternalServerError
		p.ranged[natQueued] = matrix([]string{"5"})
		cfg := natConfig(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		want := []string{"Failed to collect queued_requests: status 500 Internal Server Error: internal: it is 500"}
		if diff := cmp.Diff(want, r.Errors); diff != "" {
			t.Errorf("errors (-want +got):\n%s", diff)
		}
		if v := r.Value(QueuedRequests); v != nil {
			t.Errorf("got %v, want none", *v)
		}
		if got := p.asked("/api/v1/query_range " + natQueued); got != nil {
			t.Errorf("asked %q after an error", got)
		}
	})
	t.Run("M2 instant empty then range HTTP 500", func(t *testing.T) {
		p := newProm(t)
		p.status["/api/v1/query_range"] = http.StatusInternalServerError
		cfg := natConfig(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if v := r.Value(QueuedRequests); v != nil || len(r.Errors) > 0 {
			t.Errorf("got %v and errors %q, want neither", v, r.Errors)
		}
	})
	t.Run("M4 start 100, end 160", func(t *testing.T) {
		p := newProm(t)
		cfg := natConfig(GroupInflight)
		cfg.Start, cfg.End = time.Unix(100, 0), time.Unix(160, 0)
		Metrics(t.Context(), now, p.client(), &cfg)
		seen := 0
		for i, r := range p.requests {
			if r != "/api/v1/query_range "+natQueued {
				continue
			}
			seen++
			start, _ := strconv.ParseFloat(p.params[i].Get("start"), 64)
			end, _ := strconv.ParseFloat(p.params[i].Get("end"), 64)
			if step := p.params[i].Get("step"); start != 100 || end != 175 || step != "15s" {
				t.Errorf("got start=%v end=%v step=%s, want 100, 175, 15s", start, end, step)
			}
		}
		if seen != 1 {
			t.Errorf("asked %d times for the range, want once", seen)
		}
	})
	t.Run("M5 cached 120.5/s, prompt 160.25/s", func(t *testing.T) {
		p := newProm(t)
		p.instant["rate(dynamo_component_thompson_kve_cached_tokens_total[30s])"] = vector("120.5", "7")
		p.instant["rate(dynamo_component_thompson_kve_prompt_tokens_total[30s])"] = vector("160.25", "8")
		cfg := natConfig(GroupKVCache)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if diff := cmp.Diff(f(120.5/160.25), r.Core.KVEfficiency); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if r.Core.Source != "kve" {
			t.Errorf("source %q, want kve", r.Core.Source)
		}
	})
	t.Run("M6 KVE null, sglang 0.3", func(t *testing.T) {
		p := newProm(t)
		p.instant["sglang:cache_hit_rate"] = vector("0.3")
		cfg := natConfig(GroupKVCache)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if r.Core.KVEfficiency != nil || !cmp.Equal(r.Core.Effective(), f(0.3)) || r.Core.Source != "sglang_fallback" {
			t.Errorf("got %+v, want 0.3 of sglang_fallback", r.Core)
		}
	})
	t.Run("source when both are null", func(t *testing.T) {
		cfg := natConfig(GroupKVCache)
		if r := Metrics(t.Context(), now, newProm(t).client(), &cfg); r.Core.Source != "sglang_fallback" || r.Core.Complete() || r.Score != nil {
			t.Errorf("got %+v, score %v", r.Core, r.Score)
		}
	})
	t.Run("first series only", func(t *testing.T) {
		p := newProm(t)
		p.instant[natQueued] = vector("3", "100")
		cfg := natConfig(GroupInflight)
		if v := Metrics(t.Context(), now, p.client(), &cfg).Value(QueuedRequests); v == nil || *v != 3 {
			t.Errorf("got %v, want 3", v)
		}
	})
	t.Run("status other than success is a warning, and the window is asked", func(t *testing.T) {
		p := newProm(t)
		p.instant[natQueued] = `!{"status":"error","errorType":"execution","error":"too slow"}`
		p.ranged[natQueued] = matrix([]string{"5"})
		cfg := natConfig(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if v := r.Value(QueuedRequests); v == nil || *v != 5 || len(r.Errors) > 0 {
			t.Errorf("got %v and errors %q", v, r.Errors)
		}
		if diff := cmp.Diff([]string{natQueued + ": execution: too slow"}, r.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
	t.Run("infinite passes", func(t *testing.T) {
		p := newProm(t)
		p.instant[natQueued] = vector("+Inf")
		cfg := natConfig(GroupInflight)
		r := Metrics(t.Context(), now, p.client(), &cfg)
		if v := r.Value(QueuedRequests); v == nil || *v < 1e308 {
			t.Errorf("got %v, want infinite", v)
		}
		if _, err := r.MarshalJSON(); err != nil {
			t.Error(err)
		}
	})
	t.Run("one after the other, in order, and nothing else", func(t *testing.T) {
		p := newProm(t)
		cfg := DefaultConfig()
		cfg.Compat = NAT
		Metrics(t.Context(), now, p.client(), &cfg)
		var want []string
		for _, q := range cfg.Plan() {
			want = append(want, "/api/v1/query "+q.PromQL, "/api/v1/query_range "+q.PromQL)
		}
		if diff := cmp.Diff(want, p.requests); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for i, r := range p.requests {
			if r[:14] == "/api/v1/query " && p.params[i].Has("time") {
				t.Errorf("%s: asked for a time of its own", r)
			}
		}
	})
}

func TestScore(t *testing.T) {
	half := DefaultTargets()
	short := Targets{TTFT: 0.0005, ITL: half.ITL}
	for _, c := range []struct {
		name          string
		kv, ttft, itl *float64
		targets       Targets
		want          *float64
	}{
		{"within both targets", f(.8), f(.25), f(.02), half, f(.92)},
		{"twice the targets", f(.5), f(1.0), f(.1), half, f(.5)},
		{"at the targets", f(0), f(.5), f(.05), half, f(.6)},
		{"zeros replaced by targets", f(0), f(0), f(0), half, f(.6)},
		{"four times", f(1.0), f(2.0), f(.2), half, f(.55)},
		{"odd numbers", f(.63), f(.731), f(.0415), half, f(.7255978112)},
		{"unclamped", f(1.2), f(.1), f(.01), half, f(1.08)},
		{"floor .001 penalises", f(.5), f(.0002), f(.02), short, f(.6)},
		{"no kv", nil, f(.1), f(.1), half, nil},
		{"no ttft", f(.5), nil, f(.1), half, nil},
		{"no itl", f(.5), f(.1), nil, half, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Score(c.kv, c.ttft, c.itl, DefaultWeights(), c.targets)
			if (got == nil) != (c.want == nil) || got != nil && (*got-*c.want > 1e-9 || *c.want-*got > 1e-9) {
				t.Errorf("got %v, want %v", withUnit(got, ""), withUnit(c.want, ""))
			}
		})
	}
}
