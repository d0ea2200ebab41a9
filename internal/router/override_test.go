package router

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/sched"
)

func TestParseOverride(t *testing.T) {
	for _, row := range []struct {
		raw  string
		want Override
	}{
		{`{}`, Override{}},
		{`{"router_temperature":null,"assume_kv_reuse":null}`, Override{}},
		{`{"router_temperature":0.5}`, Override{Temperature: ptr(0.5)}},
		{`{"overlap_score_weight":0,"assume_kv_reuse":false,"track_prefill_tokens":false,"unknown":[1]}`,
			Override{OverlapWeight: ptr(0.0), AssumeReuse: ptr(false), TrackPrefill: ptr(false)}},
		{`{"overlap_score_credit":2,"prefill_load_scale":3,"shared_cache_multiplier":1}`,
			Override{Credit: ptr(2.0), PrefillScale: ptr(3.0), SharedWeight: ptr(1.0)}},
	} {
		got, err := ParseOverride([]byte(row.raw))
		if err != nil {
			t.Errorf("%s: %v", row.raw, err)
			continue
		}
		if diff := cmp.Diff(row.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.raw, diff)
		}
	}
	for raw, field := range map[string]string{
		`[]`: "", `"x"`: "", `{`: "", ``: "",
		`{"router_temperature":-0.1}`:     "router_temperature",
		`{"router_temperature":"hot"}`:    "router_temperature",
		`{"router_temperature":1e400}`:    "router_temperature",
		`{"overlap_score_weight":1e10}`:   "overlap_score_weight",
		`{"overlap_score_credit":-1}`:     "overlap_score_credit",
		`{"prefill_load_scale":true}`:     "prefill_load_scale",
		`{"shared_cache_multiplier":1.1}`: "shared_cache_multiplier",
		`{"assume_kv_reuse":1}`:           "assume_kv_reuse",
		`{"track_prefill_tokens":"yes"}`:  "track_prefill_tokens",
	} {
		_, err := ParseOverride([]byte(raw))
		var wrong *OverrideError
		if !errors.As(err, &wrong) || wrong.Field != field || wrong.Expected == "" || wrong.Got == "" {
			t.Errorf("%s: %v, want an error about %q", raw, err, field)
		}
	}
}

func TestOverrideApplies(t *testing.T) {
	base := sched.DefaultCost()
	base.SharedWeight, base.CreditDecay = 0.5, 0.25
	for name, row := range map[string]struct {
		o    *Override
		want func(*sched.Cost)
	}{
		"none":                {nil, func(*sched.Cost) {}},
		"empty":               {&Override{}, func(*sched.Cost) {}},
		"weight":              {&Override{OverlapWeight: ptr(2.0)}, func(c *sched.Cost) { c.PrefillScale = 2 }},
		"weight 0":            {&Override{OverlapWeight: ptr(0.0)}, func(c *sched.Cost) { c.PrefillScale, c.Credit = 0, 0 }},
		"the new name counts": {&Override{OverlapWeight: ptr(0.0), PrefillScale: ptr(3.0), Credit: ptr(0.5)}, func(c *sched.Cost) { c.PrefillScale, c.Credit = 3, 0.5 }},
		"others": {&Override{Temperature: ptr(0.7), SharedWeight: ptr(0.0), TrackPrefill: ptr(false)},
			func(c *sched.Cost) { c.Temperature, c.SharedWeight, c.NoPrefill = 0.7, 0, true }},
	} {
		want := base
		row.want(&want)
		if diff := cmp.Diff(want, row.o.apply(base)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
