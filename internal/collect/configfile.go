package collect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// The names of Config's fields in files.
const (
	fieldEnable          = "enable"
	fieldURL             = "prometheus_url"
	fieldKVCache         = "collect_kv_cache"
	fieldTTFT            = "collect_ttft"
	fieldITL             = "collect_itl"
	fieldInflight        = "collect_inflight_requests"
	fieldThroughput      = "collect_throughput"
	fieldTokenThroughput = "collect_token_throughput"
	fieldRange           = "query_range"
	fieldLookback        = "lookback_seconds"
	fieldStart           = "workflow_start_timestamp"
	fieldEnd             = "workflow_end_timestamp"

	fieldQueries  = "queries"
	fieldModel    = "model"
	fieldInstance = "instance"
	fieldCompat   = "compat"
	fieldWeights  = "score_weights"
	fieldTargets  = "score_targets"
)

// UnmarshalYAML reads a mapping over the defaults and validates it. An unknown key is an
// error. It is what the YAML packages of Go look for.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	var m map[string]any
	if err := unmarshal(&m); err != nil {
		return err
	}
	return c.read(m)
}

// UnmarshalJSON reads an object over the defaults and validates it. An unknown key is an
// error.
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
	r := settings{m: m, read: make(map[string]bool)}
	out := DefaultConfig()
	r.flag(&out.Enable, fieldEnable)
	r.text(&out.PrometheusURL, fieldURL)
	r.flag(&out.CollectKVCache, fieldKVCache)
	r.flag(&out.CollectTTFT, fieldTTFT)
	r.flag(&out.CollectITL, fieldITL)
	r.flag(&out.CollectInflight, fieldInflight)
	r.flag(&out.CollectThroughput, fieldThroughput)
	r.flag(&out.CollectTokenThroughput, fieldTokenThroughput)
	r.text(&out.QueryRange, fieldRange)
	r.seconds(&out.Lookback, fieldLookback)
	r.time(&out.Start, fieldStart)
	r.time(&out.End, fieldEnd)
	r.texts(&out.Queries, fieldQueries)
	r.textOrNull(&out.Model, fieldModel)
	r.textOrNull(&out.Instance, fieldInstance)
	r.textOrNull((*string)(&out.Compat), fieldCompat)
	r.numbers(out.Weights.named(), fieldWeights)
	r.numbers(out.Targets.named(), fieldTargets)
	r.unknown()
	// What could not be read has its default here, and is not reported twice.
	if err := errors.Join(append(r.errs, out.Validate())...); err != nil {
		return err
	}
	*c = out
	return nil
}

// settings reads values of the types that YAML and JSON have.
type settings struct {
	m    map[string]any
	read map[string]bool
	errs []error
}

func (r *settings) get(name string) (any, bool) {
	r.read[name] = true
	v, ok := r.m[name]
	return v, ok
}

func (r *settings) wrong(field, expected string, got any) {
	r.errs = append(r.errs, fieldError(field, expected, got))
}

// unknown refuses the keys that nobody has read.
func (r *settings) unknown() {
	var names []string
	for name := range r.m {
		if !r.read[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r.errs = append(r.errs, fmt.Errorf("%.80s: unknown setting", name))
	}
}

func (r *settings) flag(to *bool, name string) {
	v, ok := r.get(name)
	if !ok {
		return
	}
	b, isBool := v.(bool)
	if !isBool {
		r.wrong(name, "true or false", v)
		return
	}
	*to = b
}

func (r *settings) text(to *string, name string) {
	v, ok := r.get(name)
	if !ok {
		return
	}
	s, isText := v.(string)
	if !isText {
		r.wrong(name, "text", v)
		return
	}
	*to = s
}

func (r *settings) textOrNull(to *string, name string) {
	if v, ok := r.get(name); ok && v == nil {
		*to = ""
		return
	}
	r.text(to, name)
}

func (r *settings) seconds(to *time.Duration, name string) {
	v, ok := r.get(name)
	if !ok {
		return
	}
	s, isNumber := number(v)
	if !isNumber || !(s >= 0 && s <= math.MaxInt64/float64(time.Second)/2) {
		r.wrong(name, "a number of seconds of at least 0", v)
		return
	}
	*to = time.Duration(s * float64(time.Second))
}

// maxUnix is a time in seconds that a time.Time holds in nanoseconds.
const maxUnix = 1 << 33

func (r *settings) time(to *time.Time, name string) {
	v, ok := r.get(name)
	if !ok || v == nil {
		return
	}
	s, isNumber := number(v)
	if !isNumber || !(s >= 0 && s <= maxUnix) {
		r.wrong(name, "a time in seconds since 1970, or null", v)
		return
	}
	*to = unixTime(s)
}

func (r *settings) texts(to *map[string]string, name string) {
	v, ok := r.get(name)
	if !ok || v == nil {
		return
	}
	m, isMap := v.(map[string]any)
	if !isMap {
		r.wrong(name, "names, each with PromQL", v)
		return
	}
	*to = make(map[string]string, len(m))
	for key, v := range m {
		s, isText := v.(string)
		if !isText {
			r.wrong(name+": "+key, "PromQL", v)
			continue
		}
		(*to)[key] = s
	}
}

// named is a number with its name in files.
type named struct {
	name  string
	value *float64
}

func (r *settings) numbers(to []named, name string) {
	v, ok := r.get(name)
	if !ok || v == nil {
		return
	}
	m, isMap := v.(map[string]any)
	if !isMap {
		r.wrong(name, "a mapping to numbers", v)
		return
	}
	in := settings{m: m, read: make(map[string]bool)}
	for _, n := range to {
		v, ok := in.get(n.name)
		if !ok {
			continue
		}
		x, isNumber := number(v)
		if !isNumber {
			in.wrong(n.name, "a number", v)
			continue
		}
		*n.value = x
	}
	in.unknown()
	for _, err := range in.errs {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
	}
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}

// fileConfig is how a Config is written.
type fileConfig struct {
	Enable          bool              `yaml:"enable" json:"enable"`
	URL             string            `yaml:"prometheus_url" json:"prometheus_url"`
	KVCache         bool              `yaml:"collect_kv_cache" json:"collect_kv_cache"`
	TTFT            bool              `yaml:"collect_ttft" json:"collect_ttft"`
	ITL             bool              `yaml:"collect_itl" json:"collect_itl"`
	Inflight        bool              `yaml:"collect_inflight_requests" json:"collect_inflight_requests"`
	Throughput      bool              `yaml:"collect_throughput" json:"collect_throughput"`
	TokenThroughput bool              `yaml:"collect_token_throughput" json:"collect_token_throughput"`
	Range           string            `yaml:"query_range" json:"query_range"`
	Lookback        float64           `yaml:"lookback_seconds" json:"lookback_seconds"`
	Start           *float64          `yaml:"workflow_start_timestamp" json:"workflow_start_timestamp"`
	End             *float64          `yaml:"workflow_end_timestamp" json:"workflow_end_timestamp"`
	Queries         map[string]string `yaml:"queries" json:"queries"`
	Model           *string           `yaml:"model" json:"model"`
	Instance        *string           `yaml:"instance" json:"instance"`
	Compat          *string           `yaml:"compat" json:"compat"`
	Weights         Weights           `yaml:"score_weights" json:"score_weights"`
	Targets         Targets           `yaml:"score_targets" json:"score_targets"`
}

func (c Config) file() fileConfig {
	textOrNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	timeOrNull := func(t time.Time) *float64 {
		if t.IsZero() {
			return nil
		}
		s := unixSeconds(t)
		return &s
	}
	return fileConfig{
		Enable:          c.Enable,
		URL:             shownURL(c.PrometheusURL),
		KVCache:         c.CollectKVCache,
		TTFT:            c.CollectTTFT,
		ITL:             c.CollectITL,
		Inflight:        c.CollectInflight,
		Throughput:      c.CollectThroughput,
		TokenThroughput: c.CollectTokenThroughput,
		Range:           c.QueryRange,
		Lookback:        c.Lookback.Seconds(),
		Start:           timeOrNull(c.Start),
		End:             timeOrNull(c.End),
		Queries:         c.Queries,
		Model:           textOrNull(c.Model),
		Instance:        textOrNull(c.Instance),
		Compat:          textOrNull(string(c.Compat)),
		Weights:         c.Weights,
		Targets:         c.Targets,
	}
}

// MarshalYAML returns what UnmarshalYAML reads, every setting with its value, but for a
// user and a password in the URL.
func (c Config) MarshalYAML() (any, error) { return c.file(), nil }

// MarshalJSON writes what UnmarshalJSON reads, but for a user and a password in the
// URL.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.file()) }

// unixTime returns a time given in seconds since 1970, to the microsecond, which is what a
// float64 holds of it.
func unixTime(s float64) time.Time { return time.UnixMicro(int64(math.Round(s * 1e6))).UTC() }

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
