package collect

import (
	"fmt"
	"slices"
	"strings"
)

// reason is what is likely to be the matter when a series does not exist.
type reason struct {
	prefix string // of the series
	// none is for when nothing else with the same family exists, some for when something
	// does.
	family     string
	none, some string
}

// reasons by prefix: the first that fits counts.
var reasons = []reason{
	{"dynamo_component_thompson_kve_", "dynamo_component_thompson_",
		"nothing that counts cached tokens is scraped: no processor, or its metrics port is no target",
		"cached tokens are not counted: answers of the engines have no usage"},
	{"dynamo_component_thompson_routing_decisions_total", "dynamo_component_thompson_",
		"no processor, or its metrics port is no target",
		"the processor has decided nothing yet"},
	{"dynamo_component_thompson_", "dynamo_component_thompson_",
		"no processor, or its metrics port is no target",
		"the processor has nothing to tell yet"},
	{"dynamo_component_kvstats_", "dynamo_component_",
		"no worker is scraped: add its metrics port to the targets",
		"no engine has told it yet, or the server does not publish it: Dynamo gave it up after 1.0"},
	{"dynamo_component_", "dynamo_component_",
		"no worker is scraped: add its metrics port to the targets",
		"this server does not publish it"},
	{"dynamo_frontend_", "dynamo_frontend_",
		"no frontend is scraped: add its /metrics to the targets",
		"the frontend is scraped, but has had no request that counts for this yet"},
	{"sglang:utilization", "sglang:",
		"no SGLang is scraped, or its metrics are off: start it with --enable-metrics",
		"this version of SGLang does not publish it"},
	{"sglang:", "sglang:",
		"no SGLang is scraped, or its metrics are off: start it with --enable-metrics",
		"SGLang is scraped, but has not published it yet"},
}

// likelyReason says why a series does not exist, given which others do; nil means that it
// is not known which do.
func likelyReason(series string, exist map[string]bool) string {
	if exist == nil {
		return "no samples"
	}
	for _, r := range reasons {
		if !strings.HasPrefix(series, r.prefix) {
			continue
		}
		for name := range exist {
			if strings.HasPrefix(name, r.family) {
				return r.some
			}
		}
		return r.none
	}
	return "nothing that publishes it is scraped"
}

// modelless is what series begin with that Stator publishes without a model.
var modelless = []string{
	"dynamo_component_inflight_requests", "dynamo_component_thompson_", "dynamo_frontend_router_queue_", "stator_engine_", "stator_worker_",
}

// why says why an expression whose series exist has no number in the window. Instead is
// what it had that is not finite; empty if it had nothing.
func (c *collection) why(t template, instead string) string {
	w := c.results.Window
	in := "in the last " + spoken(w.End.Sub(w.Start))
	if w.Chosen {
		in = "in the chosen time"
	}
	var only []string
	if c.cfg.Model != "" {
		only = append(only, "model "+c.cfg.Model)
	}
	if c.cfg.Instance != "" {
		only = append(only, "instance "+c.cfg.Instance)
	}
	switch {
	case instead == "NaN": // as nothing divided by nothing is
		return "nothing happened " + in
	case instead != "":
		return fmt.Sprintf("not a finite number %s, but %s", in, instead)
	case only != nil:
		text := fmt.Sprintf("no samples for %s %s", strings.Join(only, " and "), in)
		if c.cfg.Model != "" && slices.ContainsFunc(modelless, func(prefix string) bool { return strings.HasPrefix(t.names()[0], prefix) }) {
			text += "; Stator publishes it for all models together"
		}
		return text
	case t.ranged():
		return "fewer than two samples " + in
	default:
		return "no samples " + in
	}
}
