package router

import (
	"encoding/json"
	"errors"
	"fmt"
)

// overrideBody is an override as requests spell it.
type overrideBody struct {
	OverlapScoreWeight    *float64 `json:"overlap_score_weight"`
	RouterTemperature     *float64 `json:"router_temperature"`
	AssumeKVReuse         *bool    `json:"assume_kv_reuse"`
	TrackPrefillTokens    *bool    `json:"track_prefill_tokens"`
	OverlapScoreCredit    *float64 `json:"overlap_score_credit"`
	PrefillLoadScale      *float64 `json:"prefill_load_scale"`
	SharedCacheMultiplier *float64 `json:"shared_cache_multiplier"`
}

// maxWeight bounds weights and temperatures, so that costs stay numbers.
const maxWeight = 1e9

// OverrideError says what is wrong with an override.
type OverrideError struct {
	Field    string // empty for the whole
	Expected string
	Got      string
}

func (e *OverrideError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("expected %s, got %s", e.Expected, e.Got)
	}
	return fmt.Sprintf("%s: expected %s, got %s", e.Field, e.Expected, e.Got)
}

// ParseOverride reads an override from a JSON object. Members that it does not know
// are ignored, those that are null are not set. The error is an *[OverrideError].
func ParseOverride(raw []byte) (*Override, error) {
	var b overrideBody
	if err := json.Unmarshal(raw, &b); err != nil {
		var wrong *json.UnmarshalTypeError
		if !errors.As(err, &wrong) {
			return nil, &OverrideError{Expected: "a JSON object", Got: "none"}
		}
		expected := "an object"
		if wrong.Field != "" {
			expected = "a number"
			if wrong.Field == "assume_kv_reuse" || wrong.Field == "track_prefill_tokens" {
				expected = "true or false"
			}
		}
		return nil, &OverrideError{wrong.Field, expected, wrong.Value}
	}
	for _, f := range []struct {
		name string
		v    *float64
		most float64
	}{
		{"overlap_score_weight", b.OverlapScoreWeight, maxWeight},
		{"router_temperature", b.RouterTemperature, maxWeight},
		{"overlap_score_credit", b.OverlapScoreCredit, maxWeight},
		{"prefill_load_scale", b.PrefillLoadScale, maxWeight},
		{"shared_cache_multiplier", b.SharedCacheMultiplier, 1},
	} {
		if f.v != nil && !(*f.v >= 0 && *f.v <= f.most) {
			return nil, &OverrideError{f.name, fmt.Sprintf("a number between 0 and %g", f.most), fmt.Sprintf("%g", *f.v)}
		}
	}
	return &Override{
		Temperature:   b.RouterTemperature,
		PrefillScale:  b.PrefillLoadScale,
		Credit:        b.OverlapScoreCredit,
		SharedWeight:  b.SharedCacheMultiplier,
		AssumeReuse:   b.AssumeKVReuse,
		TrackPrefill:  b.TrackPrefillTokens,
		OverlapWeight: b.OverlapScoreWeight,
	}, nil
}
