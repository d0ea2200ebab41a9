package hints

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config is what a deployment says about hints, by the names that NeMo Agent Toolkit has
// for it in the settings of an LLM of type dynamo; the last four are Stator's. It is read
// from YAML or JSON: what is absent has its default, what belongs to somebody else, as
// model_name, is skipped. [DefaultConfig] returns the defaults.
//
//	enable_nvext_hints: true
//	nvext_prefix_osl: LOW
//	nvext_prediction_trie_path: prediction_trie.json
type Config struct {
	// Enable, enable_nvext_hints, turns hints on. Off by default: a client made by
	// [NewClient] then sends requests as they are.
	Enable bool
	// PrefixIDTemplate, nvext_prefix_id_template, is kept for files that have it and has
	// no effect: ids come from the context.
	PrefixIDTemplate string
	// TotalRequests, nvext_prefix_total_requests, is how many calls share a prefix, from 1
	// to 50; 10 by default.
	TotalRequests int
	// OutputTokens, nvext_prefix_osl, is how long answers are: at least 1, or LOW, MEDIUM
	// or HIGH for 128, 512 and 2048; 512 by default.
	OutputTokens int
	// InterArrivalMS, nvext_prefix_iat, is how many milliseconds are between two calls: at
	// least 1, or LOW, MEDIUM or HIGH for 50, 250 and 750; 250 by default.
	InterArrivalMS int
	// RequestTimeout, request_timeout in seconds, bounds each of connecting, sending and
	// waiting for more of the answer, for clients made by [NewClient]; 600 by default.
	RequestTimeout time.Duration
	// TriePath, nvext_prediction_trie_path or prediction_trie_path, is the file that
	// predictions come from; none by default.
	TriePath string
	// CachePin, nvext_cache_pin_type, is ephemeral, the default, or null, which leaves
	// cache_control out.
	CachePin CachePin
	// CacheMode, nvext_cache_control_mode, is which calls get cache_control: always, the
	// default, or first_only.
	CacheMode CacheMode
	// MaxSensitivity, nvext_max_sensitivity or max_sensitivity, is the highest latency
	// sensitivity, at least 1; 1000 by default.
	MaxSensitivity int

	// VerifySSL, verify_ssl, is whether clients made by [NewClient] check certificates;
	// true by default.
	VerifySSL bool
	// Polarity, nvext_priority_polarity, is which way priorities count: direct, the
	// default, or complement.
	Polarity Polarity
	// Carrier, nvext_carrier, is which members carry the hints: nat, the default, strict
	// or annotations.
	Carrier Carrier
	// FailurePolicy, nvext_failure_policy, is what becomes of a call whose hints are out of
	// bounds: open, the default, or closed.
	FailurePolicy FailurePolicy
	// Compat, nvext_compat, is nat-1.5 or nat-1.8 for what these send; none by default.
	Compat Compat
}

// The names of Config's fields in files: first those that only a client with hints knows,
// then those that others may know, too, and Stator's own.
const (
	fieldEnable         = "enable_nvext_hints"
	fieldTemplate       = "nvext_prefix_id_template"
	fieldTotal          = "nvext_prefix_total_requests"
	fieldOSL            = "nvext_prefix_osl"
	fieldIAT            = "nvext_prefix_iat"
	fieldTimeout        = "request_timeout"
	fieldTrie           = "nvext_prediction_trie_path"
	fieldCachePin       = "nvext_cache_pin_type"
	fieldCacheMode      = "nvext_cache_control_mode"
	fieldMaxSensitivity = "nvext_max_sensitivity"

	fieldVerifySSL = "verify_ssl"
	fieldPolarity  = "nvext_priority_polarity"
	fieldCarrier   = "nvext_carrier"
	fieldFailure   = "nvext_failure_policy"
	fieldCompat    = "nvext_compat"

	aliasTrie           = "prediction_trie_path"
	aliasMaxSensitivity = "max_sensitivity"
)

// FieldNames returns the names of the settings that belong to hints alone, as NeMo Agent
// Toolkit has them: what a generic OpenAI client must not be given.
func FieldNames() []string {
	return []string{
		fieldEnable, fieldTemplate, fieldTotal, fieldOSL, fieldIAT, fieldTimeout,
		fieldTrie, fieldCachePin, fieldCacheMode, fieldMaxSensitivity,
	}
}

// Space is a range to search for the best value of a setting in.
type Space struct{ Low, High, Step int }

// SearchSpaces returns the ranges of the settings that can be optimized, by name.
func SearchSpaces() map[string]Space {
	return map[string]Space{
		fieldTotal: {1, 20, 5},
		fieldOSL:   {64, 4096, 64},
		fieldIAT:   {10, 1000, 50},
	}
}

const (
	defaultTotal          = 10
	defaultOSL            = 512
	defaultIAT            = 250
	defaultMaxSensitivity = 1000

	maxConfigTotal = 50
	// DefaultTimeout is how long a client made by [NewClient] waits for a connection, to
	// send, and for more of an answer.
	DefaultTimeout = 600 * time.Second
)

// DefaultConfig returns the defaults. Hints are off.
func DefaultConfig() Config {
	return Config{
		PrefixIDTemplate: "nat-dynamo-{uuid}",
		TotalRequests:    defaultTotal,
		OutputTokens:     defaultOSL,
		InterArrivalMS:   defaultIAT,
		RequestTimeout:   DefaultTimeout,
		CachePin:         Ephemeral,
		CacheMode:        Always,
		MaxSensitivity:   defaultMaxSensitivity,
		VerifySSL:        true,
		Polarity:         Direct,
		Carrier:          NAT,
		FailurePolicy:    Open,
	}
}

// Validate reports every setting that is out of bounds, by its name in files.
func (c *Config) Validate() error {
	var errs []error
	within := func(field string, v, low, high int) {
		switch {
		case v < low && high == math.MaxInt32 || v < low && high == math.MaxUint32:
			errs = append(errs, fieldError(field, fmt.Sprintf("a whole number of at least %d", low), v))
		case v < low || v > high:
			errs = append(errs, fieldError(field, fmt.Sprintf("a whole number from %d to %d", low, high), v))
		}
	}
	within(fieldTotal, c.TotalRequests, 1, maxConfigTotal)
	within(fieldOSL, c.OutputTokens, 1, math.MaxUint32)
	within(fieldIAT, c.InterArrivalMS, 1, math.MaxInt32)
	within(fieldMaxSensitivity, c.MaxSensitivity, 1, math.MaxInt32)
	if c.RequestTimeout <= 0 {
		errs = append(errs, fieldError(fieldTimeout, "a number of seconds above 0", c.RequestTimeout.Seconds()))
	}
	for _, e := range []struct {
		field string
		value string
		known []string
	}{
		{fieldCachePin, string(c.CachePin), []string{string(Ephemeral), ""}},
		{fieldCacheMode, string(c.CacheMode), []string{string(Always), string(FirstOnly)}},
		{fieldPolarity, string(c.Polarity), []string{string(Direct), string(Complement)}},
		{fieldCarrier, string(c.Carrier), []string{string(NAT), string(Strict), string(Annotations)}},
		{fieldFailure, string(c.FailurePolicy), []string{string(Open), string(Closed)}},
		{fieldCompat, string(c.Compat), []string{string(NAT15), string(NAT18), ""}},
	} {
		if err := oneOf(e.field, e.value, e.known); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// fieldError says what a field expected and what it got.
func fieldError(field, expected string, got any) error {
	switch v := got.(type) {
	case nil:
		got = "null"
	case float64:
		if got = strconv.FormatFloat(v, 'g', -1, 64); v == math.Trunc(v) && math.Abs(v) < 1e15 {
			got = strconv.FormatFloat(v, 'f', 1, 64)
		}
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		got = fmt.Sprintf("%q", v)
	}
	return fmt.Errorf("%s: expected %s, got %v", field, expected, got)
}

// oneOf checks a word against those that are known, of which "" is written null.
func oneOf(field, value string, known []string) error {
	var names []string
	for _, k := range known {
		if k == value {
			return nil
		}
		if k == "" {
			k = "null"
		}
		names = append(names, k)
	}
	last := len(names) - 1
	expected := strings.Join(names[:last], ", ") + " or " + names[last]
	return fieldError(field, expected, value)
}

// category returns what LOW, MEDIUM and HIGH stand for, in any case.
func category(word string, low, medium, high int) (int, bool) {
	switch strings.ToUpper(word) {
	case "LOW":
		return low, true
	case "MEDIUM":
		return medium, true
	case "HIGH":
		return high, true
	}
	return 0, false
}

// ParseOutputTokens reads a number of tokens, at least 1, or LOW, MEDIUM or HIGH, which
// stand for 128, 512 and 2048.
func ParseOutputTokens(s string) (int, error) {
	return parseCount(s, "a whole number of at least 1, or LOW, MEDIUM or HIGH", 128, 512, 2048)
}

// ParseInterArrivalMS reads a number of milliseconds, at least 1, or LOW, MEDIUM or HIGH,
// which stand for 50, 250 and 750.
func ParseInterArrivalMS(s string) (int, error) {
	return parseCount(s, "a whole number of milliseconds of at least 1, or LOW, MEDIUM or HIGH", 50, 250, 750)
}
