package router

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, &OverrideError{Expected: "an object", Got: kindOf(raw)}
	}
	var o Override
	for _, f := range []struct {
		name string
		to   any // **float64 or **bool
		most float64
	}{
		{"overlap_score_weight", &o.OverlapWeight, maxWeight},
		{"router_temperature", &o.Temperature, maxWeight},
		{"overlap_score_credit", &o.Credit, maxWeight},
		{"prefill_load_scale", &o.PrefillScale, maxWeight},
		{"shared_cache_multiplier", &o.SharedWeight, 1},
		{"assume_kv_reuse", &o.AssumeReuse, 0},
		{"track_prefill_tokens", &o.TrackPrefill, 0},
	} {
		v, ok := members[f.name]
		if !ok {
			continue
		}
		err := json.Unmarshal(v, f.to)
		switch to := f.to.(type) {
		case **bool:
			if err != nil {
				return nil, &OverrideError{f.name, "true or false", kindOf(v)}
			}
		case **float64:
			within := fmt.Sprintf("a number between 0 and %g", f.most)
			if kind := kindOf(v); err != nil && kind != "a number" {
				return nil, &OverrideError{f.name, "a number", kind}
			} else if err != nil {
				return nil, &OverrideError{f.name, within, "one beyond all numbers"}
			}
			if n := *to; n != nil && !(*n >= 0 && *n <= f.most) {
				return nil, &OverrideError{f.name, within, fmt.Sprintf("%g", *n)}
			}
		}
	}
	return &o, nil
}

// kindOf says what a JSON value is.
func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return "nothing"
	case !json.Valid(raw):
		return "what is not JSON"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
