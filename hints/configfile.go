package hints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// UnmarshalYAML reads a mapping over the defaults and validates it. It is what the YAML
// packages of Go look for.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	var m map[string]any
	if err := unmarshal(&m); err != nil {
		return err
	}
	return c.read(m)
}

// UnmarshalJSON reads an object over the defaults and validates it.
func (c *Config) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return err
	}
	return c.read(m)
}

// read takes the settings from m, over the defaults.
func (c *Config) read(m map[string]any) error {
	r := settings{m: m}
	out := DefaultConfig()
	r.flag(&out.Enable, fieldEnable)
	r.text(&out.PrefixIDTemplate, "a string or null", fieldTemplate)
	r.whole(&out.TotalRequests, fieldTotal)
	r.count(&out.OutputTokens, ParseOutputTokens, fieldOSL)
	r.count(&out.InterArrivalMS, ParseInterArrivalMS, fieldIAT)
	r.seconds(&out.RequestTimeout, fieldTimeout)
	r.text(&out.TriePath, "a path or null", fieldTrie, aliasTrie)
	r.text((*string)(&out.CachePin), "ephemeral or null", fieldCachePin)
	r.text((*string)(&out.CacheMode), "always or first_only", fieldCacheMode)
	r.whole(&out.MaxSensitivity, fieldMaxSensitivity, aliasMaxSensitivity)
	r.flag(&out.VerifySSL, fieldVerifySSL)
	r.text((*string)(&out.Polarity), "direct or complement", fieldPolarity)
	r.text((*string)(&out.Carrier), "nat, strict or annotations", fieldCarrier)
	r.text((*string)(&out.FailurePolicy), "open or closed", fieldFailure)
	r.text((*string)(&out.Compat), "nat-1.5, nat-1.8 or null", fieldCompat)
	// What could not be read has its default here, and is not reported twice.
	if err := errors.Join(append(r.errs, out.Validate())...); err != nil {
		return fmt.Errorf("hints: %w", err)
	}
	*c = out
	return nil
}

// settings reads values of the types that YAML and JSON have.
type settings struct {
	m    map[string]any
	errs []error
}

// get returns the value of the first of the names that is there.
func (r *settings) get(names []string) (name string, value any, ok bool) {
	for _, name := range names {
		if v, ok := r.m[name]; ok {
			return name, v, true
		}
	}
	return "", nil, false
}

func (r *settings) wrong(field, expected string, got any) {
	r.errs = append(r.errs, fieldError(field, expected, got))
}

func (r *settings) flag(to *bool, names ...string) {
	name, v, ok := r.get(names)
	if !ok {
		return
	}
	if b, isBool := v.(bool); isBool {
		*to = b
		return
	}
	r.wrong(name, "true or false", v)
}

// text reads a string; null is the empty one.
func (r *settings) text(to *string, expected string, names ...string) {
	name, v, ok := r.get(names)
	if !ok {
		return
	}
	switch s := v.(type) {
	case nil:
		*to = ""
	case string:
		if *to = s; s == "" && name != fieldTemplate && name != fieldTrie && name != aliasTrie {
			r.wrong(name, expected, v) // which null says
		}
	default:
		r.wrong(name, expected, v)
	}
}

func (r *settings) whole(to *int, names ...string) {
	name, v, ok := r.get(names)
	if !ok {
		return
	}
	if n, isWhole := wholeNumber(v); isWhole {
		*to = n
		return
	}
	r.wrong(name, "a whole number", v)
}

// count reads a number, or the name of a category.
func (r *settings) count(to *int, parse func(string) (int, error), names ...string) {
	name, v, ok := r.get(names)
	if !ok {
		return
	}
	if n, isWhole := wholeNumber(v); isWhole {
		*to = n
		return
	}
	if s, isText := v.(string); isText {
		// A number in quotes is taken for a mistake.
		if _, err := strconv.Atoi(s); err != nil {
			if n, err := parse(s); err == nil {
				*to = n
				return
			}
		}
	}
	r.wrong(name, "a whole number of at least 1, or LOW, MEDIUM or HIGH", v)
}

func (r *settings) seconds(to *time.Duration, names ...string) {
	name, v, ok := r.get(names)
	if !ok {
		return
	}
	s, isNumber := number(v)
	if !isNumber || !(s > 0 && s <= math.MaxInt64/float64(time.Second)/2) {
		r.wrong(name, "a number of seconds above 0", v)
		return
	}
	*to = time.Duration(s * float64(time.Second))
}

// wholeNumber returns a number that is written without a fraction.
func wholeNumber(v any) (int, bool) {
	switch n := v.(type) {
	case int:
		return n, true
	case int64:
		return int(n), true
	case uint64:
		return int(min(n, math.MaxInt)), true
	case json.Number:
		i, err := strconv.Atoi(n.String())
		return i, err == nil
	}
	return 0, false
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	n, ok := wholeNumber(v)
	return float64(n), ok
}

// parseCount reads a number of at least 1 or the name of a category.
func parseCount(s, expected string, low, medium, high int) (int, error) {
	if n, ok := category(s, low, medium, high); ok {
		return n, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("expected %s, got %q", expected, s)
	}
	return n, nil
}

// fileConfig is how a Config is written.
type fileConfig struct {
	Enable         bool    `yaml:"enable_nvext_hints" json:"enable_nvext_hints"`
	Template       *string `yaml:"nvext_prefix_id_template" json:"nvext_prefix_id_template"`
	Total          int     `yaml:"nvext_prefix_total_requests" json:"nvext_prefix_total_requests"`
	OSL            int     `yaml:"nvext_prefix_osl" json:"nvext_prefix_osl"`
	IAT            int     `yaml:"nvext_prefix_iat" json:"nvext_prefix_iat"`
	Timeout        float64 `yaml:"request_timeout" json:"request_timeout"`
	Trie           *string `yaml:"nvext_prediction_trie_path" json:"nvext_prediction_trie_path"`
	CachePin       *string `yaml:"nvext_cache_pin_type" json:"nvext_cache_pin_type"`
	CacheMode      string  `yaml:"nvext_cache_control_mode" json:"nvext_cache_control_mode"`
	MaxSensitivity int     `yaml:"nvext_max_sensitivity" json:"nvext_max_sensitivity"`
	VerifySSL      bool    `yaml:"verify_ssl" json:"verify_ssl"`
	Polarity       string  `yaml:"nvext_priority_polarity" json:"nvext_priority_polarity"`
	Carrier        string  `yaml:"nvext_carrier" json:"nvext_carrier"`
	Failure        string  `yaml:"nvext_failure_policy" json:"nvext_failure_policy"`
	Compat         *string `yaml:"nvext_compat" json:"nvext_compat"`
}

func (c Config) file() fileConfig {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return fileConfig{
		Enable:         c.Enable,
		Template:       orNull(c.PrefixIDTemplate),
		Total:          c.TotalRequests,
		OSL:            c.OutputTokens,
		IAT:            c.InterArrivalMS,
		Timeout:        c.RequestTimeout.Seconds(),
		Trie:           orNull(c.TriePath),
		CachePin:       orNull(string(c.CachePin)),
		CacheMode:      string(c.CacheMode),
		MaxSensitivity: c.MaxSensitivity,
		VerifySSL:      c.VerifySSL,
		Polarity:       string(c.Polarity),
		Carrier:        string(c.Carrier),
		Failure:        string(c.FailurePolicy),
		Compat:         orNull(string(c.Compat)),
	}
}

// MarshalYAML returns what UnmarshalYAML reads, every setting with its value.
func (c Config) MarshalYAML() (any, error) { return c.file(), nil }

// MarshalJSON writes what UnmarshalJSON reads.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.file()) }
