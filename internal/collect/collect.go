package collect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// concurrency is how many queries run at a time.
	concurrency = 8
	// maxSeries is how many series a query of the configuration has in the results.
	maxSeries = 20
	// maxWarnings is how many warnings are kept.
	maxWarnings = 20
	// step is between two samples of a range. Prometheus refuses more than 11,000 of them.
	step     = 15 * time.Second
	maxSteps = 10_000
)

// Metrics asks p for all that cfg, which has to be valid, wants to know at now. What cannot
// be found out is said in the results; there are always some.
//
// Fields are asked for as the package says, several at a time, or one after the other with
// [NAT]. An error of a query concerns its field, and ends nothing but the ways to find that
// field; but when the server cannot be reached at all, it is not asked again.
func Metrics(ctx context.Context, now time.Time, p *Client, cfg *Config) *Results {
	r := &Results{Time: now, PrometheusURL: p.URL(), Range: cfg.QueryRange, Window: cfg.Window(now), Compat: cfg.Compat}
	c := &collection{ctx: ctx, p: p, cfg: cfg, results: r}
	if cfg.Compat == NAT {
		c.nat()
	} else {
		if r.Window.End.After(now) {
			r.Window.End = now // later there is nothing yet
		}
		c.sound()
	}
	slices.Sort(r.Warnings)
	r.Core.latencies(r)
	kv := r.Core.Effective()
	if cfg.Compat != NAT && kv != nil {
		// Rates are extrapolated, so that a ratio of two may go beyond 1 a little.
		clamped := min(max(*kv, 0), 1)
		kv = &clamped
	}
	r.Score = Score(kv, r.Core.TTFTP95, r.Core.ITLP95, cfg.Weights, cfg.Targets)
	return r
}

// collection is one run of Metrics.
type collection struct {
	ctx     context.Context
	p       *Client
	cfg     *Config
	results *Results
	exist   map[string]bool // the series that exist; nil if that is not known

	mu struct {
		sync.Mutex
		warned map[string]bool
	}
}

// sound collects for the whole fleet.
func (c *collection) sound() {
	r := c.results
	var specs []fieldSpec
	for _, s := range fields {
		if c.cfg.collects(s.group) {
			specs = append(specs, s)
			r.Metrics = append(r.Metrics, Metric{Field: s.field, Group: s.group, Unit: s.unit})
		}
	}
	if err := c.findNames(specs); err != nil {
		r.Errors = append(r.Errors, err.Error())
		return
	}
	failed := make([]error, len(specs)+1)
	var g errgroup.Group
	g.SetLimit(concurrency)
	for i, s := range specs {
		g.Go(func() error {
			failed[i] = c.field(&r.Metrics[i], s.sound)
			return nil
		})
	}
	if c.cfg.CollectKVCache {
		g.Go(func() error {
			failed[len(specs)] = c.efficiency()
			return nil
		})
	}
	names := slices.Sorted(maps.Keys(c.cfg.Queries))
	r.Custom = make([]Custom, len(names))
	failedCustom := make([]error, len(names))
	for i, name := range names {
		g.Go(func() error {
			r.Custom[i], failedCustom[i] = c.custom(name)
			return nil
		})
	}
	_ = g.Wait() // there are no errors
	for i, m := range r.Metrics {
		c.failed(string(m.Field), failed[i])
	}
	c.failed("kv_efficiency", failed[len(specs)])
	for i, name := range names {
		c.failed(name, failedCustom[i])
	}
}

// failed notes an error. Not safe for concurrent use.
func (c *collection) failed(field string, err error) {
	if err != nil {
		c.results.Errors = append(c.results.Errors, failure(field, err))
	}
}

func failure(field string, err error) string {
	return fmt.Sprintf("Failed to collect %s: %v", field, err)
}

// warn notes a warning, once.
func (c *collection) warn(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.warned[text] || len(c.mu.warned) >= maxWarnings {
		return
	}
	if c.mu.warned == nil {
		c.mu.warned = make(map[string]bool)
	}
	c.mu.warned[text] = true
	c.results.Warnings = append(c.results.Warnings, text)
}

// findNames asks which series exist, so that the others need not be asked for. Its error is
// one that every other question would have, too.
func (c *collection) findNames(specs []fieldSpec) error {
	var names []string
	for _, s := range specs {
		for _, t := range s.sound {
			names = append(names, t.names()...)
		}
	}
	if c.cfg.CollectKVCache {
		for _, s := range kveSources {
			names = append(names, s.expr.names()...)
		}
	}
	slices.Sort(names)
	exist, err := c.p.Names(c.ctx, slices.Compact(names), c.results.Window.Start, c.results.Window.End)
	var refused *QueryError
	switch {
	case err == nil:
		c.exist = exist
		return nil
	case errors.As(err, new(transportFailure)):
		return fmt.Errorf("no answer from %s: %w", c.p.URL(), err)
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized && c.p.authenticates():
		return fmt.Errorf("%s does not know who asks, or the password or token is wrong: %w", c.p.URL(), err)
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return fmt.Errorf("%s wants to know who asks: %w", c.p.URL(), err)
	}
	text := "which series there are could not be found out: " + err.Error()
	if refused != nil && refused.Status == http.StatusNotFound {
		text += "; is this the base URL of Prometheus?"
	}
	c.warn(text)
	return nil
}

// exists reports whether an expression can have a number. Without knowing it may.
func (c *collection) exists(t template) bool {
	return c.exist == nil || !slices.ContainsFunc(t.names(), func(name string) bool { return !c.exist[name] })
}

// field fills in the number of a field, by the first expression that has one. The window of
// an expression that says nothing about now, as its series are of a server that is gone,
// comes after what the others say about now.
func (c *collection) field(m *Metric, ways []template) error {
	var later []template
	take := func(way template, found finding) {
		if found.value != nil {
			m.Value, m.Query, m.Method, m.Source = found.value, found.query, found.method, way.names()[0]
			m.Missing, m.Reason = "", ""
		} else if m.Reason == "" {
			m.Missing, m.Reason = way.names()[0], found.why
		}
	}
	for _, way := range ways {
		if !c.exists(way) {
			continue
		}
		found, absent, err := c.latest(way)
		if err != nil {
			return err
		}
		if absent {
			later = append(later, way)
			continue
		}
		if take(way, found); m.Value != nil {
			return nil
		}
	}
	for _, way := range later {
		found, err := c.overall(way)
		if err != nil {
			return err
		}
		if take(way, found); m.Value != nil {
			return nil
		}
	}
	if m.Reason == "" {
		m.Missing = ways[0].names()[0]
		m.Reason = likelyReason(m.Missing, c.exist)
	}
	return nil
}

// efficiency fills in the KV efficiency, by the first source that has one.
func (c *collection) efficiency() error {
	core := &c.results.Core
	for _, s := range kveSources {
		if !c.exists(s.expr) {
			continue
		}
		found, err := c.evaluate(s.expr)
		if err != nil {
			return err
		}
		if found.value == nil {
			if core.Reason == "" {
				core.Reason = s.expr.names()[0] + ": " + found.why
			}
			continue
		}
		if s.name == sourceKVE {
			core.KVEfficiency = found.value
		} else {
			core.KVEfficiencyFallback = found.value
		}
		core.Source, core.Series, core.Reason = s.name, s.expr.names()[0], ""
		core.Query, core.Method = found.query, found.method
		return nil
	}
	if core.Reason == "" {
		core.Reason = "no server or engine tells how much of its prompts it had cached"
	}
	return nil
}

// finding is what an expression said. Without a value it says why there is none.
type finding struct {
	value  *float64
	query  string
	method Method
	why    string
}

// evaluate asks for an expression that has one series at most: at the latest moment, and
// then over the window.
func (c *collection) evaluate(t template) (finding, error) {
	found, absent, err := c.latest(t)
	if absent {
		return c.overall(t)
	}
	return found, err
}

// latest asks for an expression at the latest moment, and over the window if it is there
// but undefined, as a ratio is when nothing happened. It reports absent where there is
// nothing at all at that moment, or the moment is not asked for.
func (c *collection) latest(t template) (found finding, absent bool, err error) {
	w := c.results.Window
	if w.Chosen {
		return finding{}, true, nil
	}
	query := t.query(c.cfg, c.cfg.QueryRange)
	v, instead, err := c.one(c.p.Query(c.ctx, query, w.End))
	switch {
	case err != nil || v != nil:
		return finding{value: v, query: query, method: Instant}, false, err
	case instead != "":
		found, err = c.overall(t)
		return found, false, err
	}
	return finding{}, true, nil
}

// overall asks for an expression over the window.
func (c *collection) overall(t template) (finding, error) {
	query := t.query(c.cfg, c.results.Window.length())
	v, instead, err := c.one(c.overWindow(query, t.ranged()))
	if err != nil || v != nil {
		return finding{value: v, query: query, method: OverWindow}, err
	}
	return finding{why: c.why(t, instead)}, nil
}

// overWindow asks for an expression over the whole window: one that looks back looks back
// over all of it, and of another there are samples.
func (c *collection) overWindow(query string, ranged bool) (*Answer, error) {
	w := c.results.Window
	if ranged {
		return c.p.Query(c.ctx, query, w.End)
	}
	every := step
	if n := w.End.Sub(w.Start) / maxSteps; n > every {
		every = n.Truncate(time.Second) + time.Second
	}
	return c.p.QueryRange(c.ctx, query, w.Start, w.End, every)
}

// one returns the number of an answer: of its only series, the mean of the samples that are
// finite. Where there are others only, it says what they are instead: NaN, or one that is
// infinite.
func (c *collection) one(a *Answer, err error) (v *float64, instead string, _ error) {
	if err != nil {
		return nil, "", err
	}
	for _, w := range a.Warnings {
		c.warn(w)
	}
	switch {
	case len(a.Series) == 0:
		return nil, "", nil
	case len(a.Series) > 1:
		return nil, "", fmt.Errorf("expected one series, got %d", len(a.Series))
	case a.Series[0].Unread > 0:
		return nil, "", errors.New("expected numbers in the answer, found something else")
	}
	if v = mean(a.Series[0].Samples, isFinite); v != nil {
		return v, "", nil
	}
	for _, s := range a.Series[0].Samples {
		if instead == "" || math.IsInf(s.Value, 0) {
			instead = formatNumber(s.Value)
		}
	}
	return nil, instead, nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// mean returns the mean of the values that count; nil if none does.
func mean(samples []Sample, counts func(float64) bool) *float64 {
	sum, n := 0.0, 0
	for _, s := range samples {
		if counts(s.Value) {
			sum += s.Value
			n++
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

// custom asks for a query of the configuration, all of whose series count.
func (c *collection) custom(name string) (Custom, error) {
	text := c.cfg.Queries[name]
	w := c.results.Window
	out := Custom{Name: name}
	within := func(d string) string { return strings.ReplaceAll(text, rangeMark, d) }
	out.Query = within(c.cfg.QueryRange)
	if !w.Chosen {
		a, err := c.p.Query(c.ctx, out.Query, w.End)
		if err != nil {
			return out, err
		}
		if c.take(&out, a); len(out.Values) > 0 {
			out.Method = Instant
			return out, nil
		}
	}
	query := within(w.length())
	a, err := c.overWindow(query, strings.Contains(text, rangeMark))
	if err != nil {
		return out, err
	}
	if c.take(&out, a); len(out.Values) > 0 {
		out.Query, out.Method = query, OverWindow
	}
	return out, nil
}

// take takes the numbers of an answer over.
func (c *collection) take(to *Custom, a *Answer) {
	for _, w := range a.Warnings {
		c.warn(w)
	}
	for _, s := range a.Series {
		v := mean(s.Samples, isFinite)
		switch {
		case v == nil:
		case len(to.Values) == maxSeries:
			to.More++
		default:
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			to.Values = append(to.Values, LabelledValue{s.Labels, *v})
		}
	}
}
