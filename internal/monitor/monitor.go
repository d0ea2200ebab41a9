// Package monitor is the source of the files in deploy: what Prometheus scrapes, records
// and alerts on, and what Grafana shows. Expressions are made by functions that know which
// series exist with which labels, so that nothing is shown, recorded or waited for that no
// server ever exposes.
//
// It is pure: the same options give the same bytes.
package monitor

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Options say what is scraped and how often. The zero value is what deploy has.
type Options struct {
	Stator   []string      // host:port of Stator servers; default localhost:8000
	Engines  []string      // host:port of engines that are scraped directly; default none: found from files
	Interval time.Duration // of scrapes and rules, in whole milliseconds; default 5 s, at least 1 s
}

// complete returns the options with defaults filled in. The error names what cannot be.
func (o Options) complete() (Options, error) {
	if len(o.Stator) == 0 {
		o.Stator = []string{"localhost:8000"}
	}
	if o.Interval == 0 {
		o.Interval = 5 * time.Second
	}
	if o.Interval < time.Second || o.Interval%time.Millisecond != 0 {
		return o, fmt.Errorf("interval: expected whole milliseconds, at least 1s, not %s", o.Interval)
	}
	for _, list := range []struct {
		name    string
		targets []string
	}{{"stator", o.Stator}, {"engines", o.Engines}} {
		for i, t := range list.targets {
			if host, port, err := net.SplitHostPort(t); err != nil || host == "" || port == "" || strings.ContainsAny(t, " /\n\"'") {
				return o, fmt.Errorf("%s[%d]: expected HOST:PORT, not %q", list.name, i, t)
			}
		}
	}
	return o, nil
}

// Need says whose series an expression needs: without them it has no data, however well
// everything is.
type Need int

// What expressions need.
const (
	NeedStator    Need = iota // any Stator server that serves requests
	NeedReports               // and has engines that say what their load is
	NeedQueue                 // and has a queue in which requests wait
	NeedEvents                // and follows the event sockets of engines
	NeedLearning              // and has a policy that learns
	NeedReference             // which is the reference
	NeedIncident              // and had to deal with something: the series begins with the first time
	NeedVLLM                  // an engine like vLLM, scraped directly
	NeedSGLang                // an engine like SGLang, scraped directly
	NeedLlamaCpp              // an engine like llama.cpp's server, scraped directly
)

// String returns a word for what is needed.
func (n Need) String() string {
	names := [...]string{"stator", "reports", "queue", "events", "learning", "reference", "incident", "vllm", "sglang", "llamacpp"}
	if n < 0 || int(n) >= len(names) {
		return fmt.Sprintf("need %d", int(n))
	}
	return names[n]
}

// Expr is an expression that somebody evaluates, for those who check them.
type Expr struct {
	Where  string // such as `dashboard: Time to first token (TTFT): p95`, `rule stator:ttft_seconds:p95`, `alert StatorEngineLost`
	PromQL string // variables of the dashboard replaced by what matches everything, $__rate_interval by 1m
	Needs  Need   // whose series it needs
	Alert  bool   // then PromQL is what is compared, without the comparison, or 0 on servers that have no such series: it has data while all is well
	Firing string // the whole condition of an alert, as deployed, which has data only while it fires
}

// Files returns the files of deploy by their path in it, with slashes, such as
// "prometheus/rules.yml". The error names an option that makes no sense.
func Files(o Options) (map[string][]byte, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	return newContent(o).files(o)
}

// Exprs returns every expression in the files of Files(Options{}), in the order in which
// they appear: recording rules, alerts, panels.
func Exprs() []Expr {
	o, _ := Options{}.complete() // the defaults make sense
	return newContent(o).exprs()
}

// content is what the files say, apart from how.
type content struct {
	schema  schema
	ours    []rule
	dynamos []rule
	alerts  []alert
	rows    []row
}

// newContent makes all expressions. Rates are over four scrapes at the least, as with fewer
// a scrape that is missed leaves a hole.
func newContent(o Options) *content {
	window := func(usual time.Duration) string { return duration(max(usual, 4*o.Interval)) }
	c := &content{schema: newSchema()}
	c.ours = ours(c.schema, window(time.Minute))
	c.dynamos = dynamos(c.schema, window(time.Minute))
	c.alerts = alerts(c.schema, window(time.Minute), window(5*time.Minute), window(15*time.Minute))
	c.rows = panels(c.schema.chosen())
	return c
}

// variableValues are what the variables of the dashboard stand for when all is chosen.
var variableValues = strings.NewReplacer("$model", ".*", "$worker", ".*", "$instance", ".*", window, "1m")

func (c *content) exprs() []Expr {
	var out []Expr
	for _, rules := range [][]rule{c.ours, c.dynamos} {
		for _, r := range rules {
			out = append(out, Expr{Where: "rule " + r.Record, PromQL: r.Expr, Needs: r.query.need})
		}
	}
	for i := range c.alerts {
		a := &c.alerts[i]
		q := a.checked(c.schema)
		out = append(out, Expr{Where: "alert " + a.name, PromQL: q.text, Needs: q.need, Alert: true, Firing: a.firing()})
	}
	for _, r := range c.rows {
		for _, p := range r.panels {
			for _, t := range p.targets {
				out = append(out, Expr{Where: p.where(t), PromQL: variableValues.Replace(t.query.text), Needs: t.query.need})
			}
		}
	}
	return out
}

// check returns what is wrong with expressions: names and labels that nobody has, and
// counters that are shown as they are.
func (c *content) check() error {
	var errs []error
	look := func(where string, q query) {
		err := q.err
		if err == nil && q.raw {
			err = fmt.Errorf("%s: a counter is to be made a rate first", q.text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	for _, rules := range [][]rule{c.ours, c.dynamos} {
		for _, r := range rules {
			look("rule "+r.Record, r.query)
		}
	}
	for i := range c.alerts {
		if err := c.alerts[i].check(c.schema); err != nil {
			errs = append(errs, fmt.Errorf("alert %s: %w", c.alerts[i].name, err))
		}
	}
	for _, r := range c.rows {
		for _, p := range r.panels {
			for _, t := range p.targets {
				look(p.where(t), t.query)
			}
		}
	}
	return errors.Join(errs...)
}
