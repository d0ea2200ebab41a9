package collect

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Config is what is collected and from where, by the names that NeMo Agent Toolkit has for
// it in the dynamo_metrics of its profiler; the last six are Stator's. It is read from YAML
// or JSON: what is absent has its default. [DefaultConfig] returns the defaults.
//
//	prometheus_url: http://localhost:9090
//	query_range: 1m
//	queries:
//	  failed: sum(rate(dynamo_frontend_requests_total{status="error"}[{range}]))
type Config struct {
	// Enable, enable, is whether a profiler is to collect. [Metrics] does not look at it.
	Enable bool
	// PrometheusURL, prometheus_url, is the base URL of the server;
	// http://localhost:9090 by default.
	PrometheusURL string
	// CollectKVCache, collect_kv_cache, and those below turn groups of fields on. All are
	// on by default.
	CollectKVCache         bool
	CollectTTFT            bool // collect_ttft
	CollectITL             bool // collect_itl
	CollectInflight        bool // collect_inflight_requests
	CollectThroughput      bool // collect_throughput
	CollectTokenThroughput bool // collect_token_throughput
	// QueryRange, query_range, is how far back rates and quantiles look, a duration as
	// [ParseDuration] reads it; 30s by default.
	QueryRange string
	// Lookback, lookback_seconds, is the length of the window before now that is asked when
	// the latest moments have no number; 0, the default, means ten minutes.
	Lookback time.Duration
	// Start and End, workflow_start_timestamp and workflow_end_timestamp in seconds since
	// 1970, are a window to collect instead of what is now. The zero Start means none, the
	// zero End means now.
	Start, End time.Time

	// Queries, queries, are further ones by name, in PromQL; {range} in them is replaced.
	Queries map[string]string
	// Model, model, restricts fields to a model, whichever case its name is written in;
	// Instance, instance, to a scraped instance. Empty, the default, means all.
	Model, Instance string
	// Compat, compat, is nat for the ways of NeMo Agent Toolkit; none by default.
	Compat Compat
	// Weights, score_weights, and Targets, score_targets, are those of [Score].
	Weights Weights
	Targets Targets
}

// Compat is whose ways of collecting are followed.
type Compat string

// NAT asks and reads as NeMo Agent Toolkit does: one query after the other, the first series
// of an answer, zero taken for none, and then the mean of all that is not zero in the window.
const NAT Compat = "nat"

const (
	defaultURL      = "http://localhost:9090"
	defaultRange    = "30s"
	defaultLookback = 10 * time.Minute

	// advisedRange is the shortest range that holds two samples at the intervals at which
	// servers are scraped.
	advisedRange = 15 * time.Second
	// tail is what a window has after its end, for the scrape that sees the end.
	tail = 15 * time.Second
)

// DefaultConfig returns the defaults: every field of everything.
func DefaultConfig() Config {
	return Config{
		PrometheusURL:          defaultURL,
		CollectKVCache:         true,
		CollectTTFT:            true,
		CollectITL:             true,
		CollectInflight:        true,
		CollectThroughput:      true,
		CollectTokenThroughput: true,
		QueryRange:             defaultRange,
		Weights:                DefaultWeights(),
		Targets:                DefaultTargets(),
	}
}

// CoreOnly turns c into the preset that collects what [Core] needs: enabled, without the
// groups for requests under way, requests per minute and tokens per second.
func (c *Config) CoreOnly() {
	c.Enable = true
	c.CollectKVCache, c.CollectTTFT, c.CollectITL = true, true, true
	c.CollectInflight, c.CollectThroughput, c.CollectTokenThroughput = false, false, false
}

// Validate reports every setting that cannot be meant, by its name in files.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(field, expected string, got any) {
		errs = append(errs, fieldError(field, expected, got))
	}
	if err := checkURL(c.PrometheusURL); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", fieldURL, err))
	}
	if _, err := ParseDuration(c.QueryRange); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", fieldRange, err))
	}
	if c.Lookback < 0 {
		wrong(fieldLookback, "a number of seconds of at least 0", c.Lookback.Seconds())
	}
	switch {
	case c.Start.IsZero() && !c.End.IsZero():
		errs = append(errs, fmt.Errorf("%s: expected only with %s", fieldEnd, fieldStart))
	case !c.End.IsZero() && c.End.Before(c.Start):
		errs = append(errs, fmt.Errorf("%s: expected a time after %s", fieldEnd, fieldStart))
	}
	names := make([]string, 0, len(c.Queries))
	for name := range c.Queries {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !isQueryName(name):
			wrong(fieldQueries, "names of letters, digits, - and _", name)
		case isField(name):
			errs = append(errs, fmt.Errorf("%s: %s: expected another name than that of a field", fieldQueries, name))
		case strings.TrimSpace(c.Queries[name]) == "":
			wrong(fieldQueries+": "+name, "PromQL", c.Queries[name])
		}
	}
	switch c.Compat {
	case "", NAT:
	default:
		wrong(fieldCompat, "nat or null", string(c.Compat))
	}
	if c.Compat == NAT && c.Model != "" {
		errs = append(errs, fmt.Errorf("%s: expected none with %s %s, which takes all models together", fieldModel, fieldCompat, NAT))
	}
	if c.Compat == NAT && c.Instance != "" {
		errs = append(errs, fmt.Errorf("%s: expected none with %s %s, which takes all instances together", fieldInstance, fieldCompat, NAT))
	}
	for _, w := range c.Weights.named() {
		if !(*w.value >= 0) || math.IsInf(*w.value, 0) {
			wrong(fieldWeights+": "+w.name, "a number of at least 0", *w.value)
		}
	}
	for _, t := range c.Targets.named() {
		if !(*t.value > 0) || math.IsInf(*t.value, 0) {
			wrong(fieldTargets+": "+t.name, "a number of seconds above 0", *t.value)
		}
	}
	return errors.Join(errs...)
}

// Advice returns what could be better about a valid Config, a sentence each.
func (c *Config) Advice() []string {
	if d, err := ParseDuration(c.QueryRange); err == nil && d < advisedRange {
		return []string{fmt.Sprintf("%s: %s may hold fewer than the two samples that a rate needs; 15s, 30s, 1m, 2m or 5m are advised", fieldRange, c.QueryRange)}
	}
	return nil
}

// Window is the time that is asked for.
type Window struct {
	Start, End time.Time
	// Chosen says that somebody chose this time: it is asked for first, and not only when
	// the latest moments have no number.
	Chosen bool
}

// Window returns the window at now: that of Start and End, with fifteen seconds for the
// scrape after the end; or else the Lookback before now.
func (c *Config) Window(now time.Time) Window {
	switch {
	case !c.Start.IsZero() && !c.End.IsZero():
		return Window{c.Start, c.End.Add(tail), true}
	case !c.Start.IsZero():
		return Window{c.Start, now, true}
	case c.Lookback > 0:
		return Window{now.Add(-c.Lookback), now, false}
	}
	return Window{now.Add(-defaultLookback), now, false}
}

// length returns how long the window is, for PromQL, which refuses a range of nothing.
func (w Window) length() string { return formatDuration(max(w.End.Sub(w.Start), time.Second)) }

// collects reports whether the fields of a group are wanted.
func (c *Config) collects(g Group) bool {
	switch g {
	case GroupInflight:
		return c.CollectInflight
	case GroupThroughput:
		return c.CollectThroughput
	case GroupTTFT:
		return c.CollectTTFT
	case GroupITL:
		return c.CollectITL
	case GroupKVCache:
		return c.CollectKVCache
	case GroupTokenThroughput:
		return c.CollectTokenThroughput
	default:
		return true
	}
}

func isQueryName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-')
	})
}

// checkURL returns what is wrong with a base URL. What may be secret is not repeated: which
// part of a text that is no URL would be a password, nobody can tell.
func checkURL(raw string) error {
	const expected = "expected a base URL such as " + defaultURL
	u, err := url.Parse(raw)
	switch {
	case err == nil && (u.RawQuery != "" || u.Fragment != ""):
		return errors.New(expected + ", without a query or fragment")
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		return nil
	case err != nil || strings.ContainsAny(raw, "@?#"):
		return errors.New(expected)
	}
	return fmt.Errorf("%s, got %q", expected, raw)
}

// shownURL returns a base URL without user and password, and nothing of a text that is none.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || checkURL(raw) != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

func fieldError(field, expected string, got any) error {
	if s, ok := got.(string); ok {
		return fmt.Errorf("%s: expected %s, got %q", field, expected, s)
	}
	if got == nil {
		got = "null"
	}
	return fmt.Errorf("%s: expected %s, got %v", field, expected, got)
}
