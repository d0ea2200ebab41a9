package collect

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// nat collects as NeMo Agent Toolkit does, one query after the other.
func (c *collection) nat() {
	r := c.results
	for _, s := range fields {
		if !c.cfg.collects(s.group) {
			continue
		}
		m := Metric{Field: s.field, Group: s.group, Unit: s.unit}
		m.Query = strings.ReplaceAll(s.nat, rangeMark, c.cfg.QueryRange)
		var err error
		if m.Value, m.Method, err = c.natValue(m.Query); err != nil {
			r.Errors = append(r.Errors, failure(string(s.field), err))
		}
		r.Metrics = append(r.Metrics, m)
	}
	for _, name := range slices.Sorted(maps.Keys(c.cfg.Queries)) {
		q, err := c.custom(name)
		c.failed(name, err)
		r.Custom = append(r.Custom, q)
	}
	r.Core.natEfficiency(r.Value(KVECachedTokensRate), r.Value(KVEPromptTokensRate), r.Value(KVHitRateSGLang))
}

// natValue is the first series at the latest moment, unless it is 0 or NaN; or else what
// the window says. The error is that of the first question.
func (c *collection) natValue(query string) (*float64, Method, error) {
	a, err := c.p.Query(c.ctx, query, time.Time{})
	var refused *QueryError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusOK:
		c.warn(fmt.Sprintf("%s: %v", query, err))
	case err != nil:
		return nil, "", err
	case len(a.Series) > 0 && len(a.Series[0].Samples) > 0:
		if v := a.Series[0].Samples[0].Value; natCounts(v) {
			return &v, Instant, nil
		}
	}
	w := c.results.Window
	a, err = c.p.QueryRange(c.ctx, query, w.Start, w.End, step)
	if err != nil {
		return nil, "", nil // as if there were nothing
	}
	var all []Sample
	for _, s := range a.Series {
		all = append(all, s.Samples...)
	}
	if v := mean(all, natCounts); v != nil {
		return v, OverWindow, nil
	}
	return nil, "", nil
}

func natCounts(v float64) bool { return v != 0 && !math.IsNaN(v) }

// natEfficiency is the quotient of two fields, whichever way each of them was found.
func (c *Core) natEfficiency(cached, prompt, fallback *float64) {
	if cached != nil && prompt != nil && *prompt > 0 {
		v := *cached / *prompt
		c.KVEfficiency = &v
	}
	c.KVEfficiencyFallback = fallback
	c.Source = sourceFallback
	if c.KVEfficiency != nil {
		c.Source = sourceKVE
	}
}
