package collect

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"time"
)

// Results is what was collected at a time. Its JSON is an interface, see
// [Results.MarshalJSON].
type Results struct {
	Time          time.Time // when collecting began
	PrometheusURL string    // without slashes at its end, and without user and password
	Range         string    // that rates looked back at the latest moment
	Window        Window
	Compat        Compat
	// Metrics are the fields that were asked for, in order.
	Metrics []Metric
	// Custom are the queries of the configuration, sorted by name.
	Custom []Custom
	Core   Core
	// Score is that of the effective KV efficiency and the 95th percentiles; nil unless
	// these are complete.
	Score *float64
	// Errors are the fields that could not be asked for, "Failed to collect FIELD: CAUSE"
	// each. Warnings are what Prometheus said besides, and answers that were of no use.
	Errors, Warnings []string
	// Health is how the servers are; nil if nobody asked.
	Health *Health
}

// Metric is a field and what was found.
type Metric struct {
	Field Field
	Group Group
	Unit  string // empty for what has none
	// Value is the number; nil if there is none. Only with [NAT] it may be infinite.
	Value *float64
	// Source is the series that it came from, Query the expression, and Method how it was
	// asked for.
	Source, Query string
	Method        Method
	// Missing is the series that should have been there, and Reason what is likely to be
	// the matter, where there is no number.
	Missing, Reason string
}

// Method is how a number was found.
type Method string

// The methods.
const (
	Instant    Method = "instant" // at the latest moment
	OverWindow Method = "window"  // over the whole window
)

// Custom is a query of the configuration and what was found: every series with a number.
type Custom struct {
	Name   string
	Query  string // with the range in its place
	Method Method // empty if nothing was found
	Values []LabelledValue
	// More is how many series there were besides.
	More int
}

// LabelledValue is a number of one series.
type LabelledValue struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// Value returns the number of a field; nil if there is none.
func (r *Results) Value(f Field) *float64 {
	for i := range r.Metrics {
		if r.Metrics[i].Field == f {
			return r.Metrics[i].Value
		}
	}
	return nil
}

// Collected returns how many numbers there are.
func (r *Results) Collected() int {
	n := 0
	for i := range r.Metrics {
		if r.Metrics[i].Value != nil {
			n++
		}
	}
	for i := range r.Custom {
		n += len(r.Custom[i].Values)
	}
	return n
}

// Core is what matters most.
type Core struct {
	// KVEfficiency is the part of prompt tokens that was cached, as the server counts it.
	// KVEfficiencyFallback is the same from another source.
	KVEfficiency         *float64
	KVEfficiencyFallback *float64
	// Source names where the effective efficiency came from: kve for the first of the two,
	// dynamo_frontend, vllm, sglang, sglang_fallback for SGLang's gauge, llamacpp. Empty
	// if there is none, but with [NAT] it is sglang_fallback then.
	Source string
	// Series is the first series that it was made of, Query the expression, and Method how
	// that was asked for; empty with [NAT], which divides two fields. Reason is what is
	// likely to be the matter if there is none.
	Series, Query string
	Method        Method
	Reason        string

	TTFTP50, TTFTP95, TTFTP99 *float64 // in seconds
	ITLP50, ITLP95, ITLP99    *float64
}

// Effective returns the KV efficiency that counts: the server's own, even if it is 0, or
// else the fallback; nil if there is neither.
func (c *Core) Effective() *float64 {
	if c.KVEfficiency != nil {
		return c.KVEfficiency
	}
	return c.KVEfficiencyFallback
}

// Complete reports whether there is all that a score needs.
func (c *Core) Complete() bool {
	return c.Effective() != nil && c.TTFTP95 != nil && c.ITLP95 != nil
}

// latencies fills in the copies of fields.
func (c *Core) latencies(r *Results) {
	c.TTFTP50, c.TTFTP95, c.TTFTP99 = r.Value(TTFTP50), r.Value(TTFTP95), r.Value(TTFTP99)
	c.ITLP50, c.ITLP95, c.ITLP99 = r.Value(ITLP50), r.Value(ITLP95), r.Value(ITLP99)
}

// MarshalJSON writes one object: collection_timestamp, prometheus_url and errors; every
// field by its name, a number or null; and then core_metrics, summary, complete, score,
// queries (for each name a list of labels and values), sources (for each field with a
// number its series, query and method), missing (for each other field its series and
// reason), window, warnings and health. Members are added, never renamed. An infinite number,
// which only [NAT] lets through, is "+Inf" or "-Inf".
func (r *Results) MarshalJSON() ([]byte, error) {
	var o object
	o.add("collection_timestamp", unixSeconds(r.Time))
	o.add("prometheus_url", r.PrometheusURL)
	o.add("errors", orEmpty(r.Errors))
	for _, s := range fields {
		o.add(string(s.field), jsonNumber(r.Value(s.field)))
	}
	o.add("core_metrics", r.Core.object())
	o.add("summary", r.summary())
	o.add("complete", r.Core.Complete())
	o.add("score", jsonNumber(r.Score))

	var queries, sources, missing object
	for _, q := range r.Custom {
		queries.add(q.Name, orEmpty(q.Values))
	}
	o.add("queries", &queries)
	if r.Core.Query != "" {
		sources.add("kv_efficiency", source{r.Core.Series, r.Core.Query, r.Core.Method})
	} else if r.Core.Reason != "" {
		missing.add("kv_efficiency", absence{"", r.Core.Reason})
	}
	for _, m := range r.Metrics {
		if m.Value != nil {
			sources.add(string(m.Field), source{m.Source, m.Query, m.Method})
		} else if m.Reason != "" {
			missing.add(string(m.Field), absence{m.Missing, m.Reason})
		}
	}
	o.add("sources", &sources)
	o.add("missing", &missing)
	o.add("window", struct {
		Start float64 `json:"start"`
		End   float64 `json:"end"`
		Range string  `json:"range"`
	}{unixSeconds(r.Window.Start), unixSeconds(r.Window.End), r.Range})
	o.add("warnings", orEmpty(r.Warnings))
	if r.Health != nil {
		o.add("health", r.Health)
	}
	return o.MarshalJSON()
}

type source struct {
	Series string `json:"series,omitempty"`
	Query  string `json:"query"`
	Method Method `json:"method"`
}

type absence struct {
	Series string `json:"series,omitempty"`
	Reason string `json:"reason"`
}

func (c *Core) object() *object {
	var o object
	o.add("kv_efficiency", jsonNumber(c.KVEfficiency))
	o.add("kv_efficiency_fallback", jsonNumber(c.KVEfficiencyFallback))
	o.add("ttft_p50_seconds", jsonNumber(c.TTFTP50))
	o.add("ttft_p95_seconds", jsonNumber(c.TTFTP95))
	o.add("ttft_p99_seconds", jsonNumber(c.TTFTP99))
	o.add("itl_p50_seconds", jsonNumber(c.ITLP50))
	o.add("itl_p95_seconds", jsonNumber(c.ITLP95))
	o.add("itl_p99_seconds", jsonNumber(c.ITLP99))
	return &o
}

func (r *Results) summary() *object {
	var o object
	o.add("kv_efficiency", jsonNumber(r.Core.Effective()))
	if r.Core.Source == "" {
		o.add("kv_efficiency_source", nil)
	} else {
		o.add("kv_efficiency_source", r.Core.Source)
	}
	o.add("ttft_p95_seconds", jsonNumber(r.Core.TTFTP95))
	o.add("itl_p95_seconds", jsonNumber(r.Core.ITLP95))
	return &o
}

// WriteJSON writes the results as one indented JSON document.
func (r *Results) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// object is a JSON object whose members stay in order.
type object struct{ buf bytes.Buffer }

func (o *object) add(key string, value any) {
	if o.buf.Len() > 0 {
		o.buf.WriteByte(',')
	}
	enc := json.NewEncoder(&o.buf)
	enc.SetEscapeHTML(false)
	for i, v := range []any{key, value} {
		if i > 0 {
			o.buf.WriteByte(':')
		}
		if err := enc.Encode(v); err != nil {
			panic(err) // plain values can be marshalled
		}
	}
}

// MarshalJSON returns the object.
func (o *object) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, o.buf.Len()+2)
	out = append(out, '{')
	out = append(out, o.buf.Bytes()...)
	return append(out, '}'), nil
}

// jsonNumber returns what stands for a number in JSON.
func jsonNumber(v *float64) any {
	switch {
	case v == nil:
		return nil
	case math.IsInf(*v, 1):
		return "+Inf"
	case math.IsInf(*v, -1):
		return "-Inf"
	case math.IsNaN(*v): // infinite by infinite
		return nil
	}
	return *v
}

// orEmpty returns a list that is [] in JSON where it is none.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
