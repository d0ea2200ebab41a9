package router

import (
	"errors"
	"strings"
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
		{`null`, Override{}},
		{`{"Router_Temperature":0.5,"ROUTER_TEMPERATURE":"hot","Assume_KV_Reuse":1}`, Override{}}, // other names
		{`{"router_temperature":0.5}`, Override{Temperature: ptr(0.5)}},
		{` { "router_temperature" : 1e9 , "overlap_score_weight" : null } `, Override{Temperature: ptr(1e9)}},
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
	for raw, want := range map[string]string{
		`[]`:    "expected an object, got an array",
		`"x"`:   "expected an object, got a string",
		`7`:     "expected an object, got a number",
		` true`: "expected an object, got a boolean",
		`{`:     "expected an object, got what is not JSON",
		``:      "expected an object, got nothing",

		`{"router_temperature":-0.1}`:           "router_temperature: expected a number between 0 and 1e+09, got -0.1",
		`{"router_temperature":"hot"}`:          "router_temperature: expected a number, got a string",
		`{"router_temperature":1e400}`:          "router_temperature: expected a number between 0 and 1e+09, got one beyond all numbers",
		`{"overlap_score_weight":1e10}`:         "overlap_score_weight: expected a number between 0 and 1e+09, got 1e+10",
		`{"overlap_score_credit":-1}`:           "overlap_score_credit: expected a number between 0 and 1e+09, got -1",
		`{"prefill_load_scale":true}`:           "prefill_load_scale: expected a number, got a boolean",
		`{"prefill_load_scale":[1]}`:            "prefill_load_scale: expected a number, got an array",
		`{"shared_cache_multiplier":1.1}`:       "shared_cache_multiplier: expected a number between 0 and 1, got 1.1",
		`{"assume_kv_reuse":1}`:                 "assume_kv_reuse: expected true or false, got a number",
		`{"track_prefill_tokens":"yes"}`:        "track_prefill_tokens: expected true or false, got a string",
		`{"track_prefill_tokens":{"on":false}}`: "track_prefill_tokens: expected true or false, got an object",
	} {
		_, err := ParseOverride([]byte(raw))
		var wrong *OverrideError
		if !errors.As(err, &wrong) || err.Error() != want || !strings.HasPrefix(want, wrong.Field) {
			t.Errorf("%s: %v, want %s", raw, err, want)
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
