package monitor

import (
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/metrics"
)

// known is a schema of a few families.
func known() schema {
	return schema{
		"requests_total": {kind: metrics.CounterFamily, labels: []string{"model", "status", "instance"}, need: NeedStator},
		"shed_total":     {kind: metrics.CounterFamily, labels: []string{"model", "instance"}, need: NeedIncident},
		"ttft_seconds":   {kind: metrics.HistogramFamily, labels: []string{"model", "instance"}, need: NeedQueue},
		"workers":        {kind: metrics.GaugeFamily, labels: []string{"model", "instance"}, need: NeedStator},
		"blocks":         {kind: metrics.GaugeFamily, labels: []string{"model", "worker", "instance"}, need: NeedStator},
		"up":             {kind: metrics.GaugeFamily, labels: []string{"job", "instance"}, need: NeedStator},
	}
}

func TestQueries(t *testing.T) {
	s := known()
	requests := rate(s.series("requests_total"), "1m")
	for _, tt := range []struct {
		name string
		got  query
		want string
		need Need
	}{
		{"selector", s.series("workers"), `workers`, NeedStator},
		{"matchers", s.series("workers", is("model", `a"b`), isNot("instance", "x"), like("model", "a|b")), `workers{model="a\"b",instance!="x",model=~"a|b"}`, NeedStator},
		{"sum of rates", sum(requests), `sum(rate(requests_total[1m]))`, NeedStator},
		{"by labels", sum(requests, "model", "status"), `sum by (model, status) (rate(requests_total[1m]))`, NeedStator},
		{"quantile", quantile(0.95, sum(rate(s.series("ttft_seconds_bucket"), "5m"), "model", "le")), `histogram_quantile(0.95, sum by (model, le) (rate(ttft_seconds_bucket[5m])))`, NeedQueue},
		{"mean", div(sum(rate(s.series("ttft_seconds_sum"), "5m")), sum(rate(s.series("ttft_seconds_count"), "5m"))), `sum(rate(ttft_seconds_sum[5m])) / sum(rate(ttft_seconds_count[5m]))`, NeedQueue},
		{"needs the most of its parts", div(sum(rate(s.series("shed_total"), "1m")), sum(requests)), `sum(rate(shed_total[1m])) / sum(rate(requests_total[1m]))`, NeedIncident},
		{"or zero needs nothing", orZero(sum(rate(s.series("shed_total"), "1m"))), `sum(rate(shed_total[1m])) or vector(0)`, NeedStator},
		{"compared", plus(s.series("workers"), constant(1)).that("> 2"), `workers + 1 > 2`, NeedStator},
		{"either", orElse(s.series("workers").that("> 2"), s.series("workers").that("== 0")), `workers > 2 or workers == 0`, NeedStator},
		{"or is compared", orZero(sum(s.series("workers"))).that("== 0"), `(sum(workers) or vector(0)) == 0`, NeedStator},
		{"median", median(s.series("workers"), "1h"), `quantile_over_time(0.5, workers[1h])`, NeedStator},
		{"mean of some", s.mean("ttft_seconds", "5m", []matcher{is("model", "m")}, "model"), `sum by (model) (rate(ttft_seconds_sum{model="m"}[5m])) / sum by (model) (rate(ttft_seconds_count{model="m"}[5m]))`, NeedQueue},
		{"or server", s.orServer(s.series("workers")), `workers or on (instance) 0 * sum by (instance) (up{job=~"stator|dynamo-frontend"} == 1)`, NeedStator},
		{"or in a fraction", div(orElse(sum(requests), times(constant(0), sum(requests))), sum(requests)), `(sum(rate(requests_total[1m])) or 0 * sum(rate(requests_total[1m]))) / sum(rate(requests_total[1m]))`, NeedStator},
		{"left is first", minus(minus(s.series("workers"), s.series("workers")), s.series("workers")), `workers - workers - workers`, NeedStator},
		{"right is not", minus(s.series("workers"), minus(s.series("workers"), s.series("workers"))), `workers - (workers - workers)`, NeedStator},
		{"sum of products", plus(times(constant(0.4), s.series("workers")), times(constant(0.6), s.series("workers"))), `0.4 * workers + 0.6 * workers`, NeedStator},
		{"product of sums", times(plus(s.series("workers"), constant(1)), constant(2)), `(workers + 1) * 2`, NeedStator},
		{"joined", timesOn("model", s.series("blocks"), most(s.series("workers"), "model")), `blocks * on (model) group_left () max by (model) (workers)`, NeedStator},
		{"highest", most(highest(s.series("workers"), "1h"), "model"), `max by (model) (max_over_time(workers[1h]))`, NeedStator},
		{"clamped", atMost(atLeast(s.series("workers"), 1e-6), 1), `clamp_max(clamp_min(workers, 1e-06), 1)`, NeedStator},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got.err != nil {
				t.Fatal(tt.got.err)
			}
			if tt.got.text != tt.want {
				t.Errorf("got  %s\nwant %s", tt.got.text, tt.want)
			}
			if tt.got.need != tt.need {
				t.Errorf("needs %v, want %v", tt.got.need, tt.need)
			}
		})
	}
}

func TestFaultyQueries(t *testing.T) {
	s := known()
	requests := rate(s.series("requests_total"), "1m")
	for _, tt := range []struct {
		name string
		got  query
		want string // in the error
	}{
		{"no such series", s.series("request_total"), "request_total: nobody exposes or records it"},
		{"no such label in a matcher", s.series("workers", is("state", "x")), "workers: it has no label state"},
		{"no such label in by", sum(requests, "worker"), "by worker of rate(requests_total[1m])"},
		{"a label that was summed away", sum(sum(requests, "model"), "status"), "by status"},
		{"a histogram by its name", s.series("ttft_seconds"), "expected _bucket, _sum or _count"},
		{"buckets of a counter", s.series("requests_total_bucket"), "nobody exposes"},
		{"rate of a gauge", rate(s.series("workers"), "1m"), "expected a counter"},
		{"highest of a counter", highest(s.series("requests_total"), "1m"), "expected a gauge"},
		{"sum of a counter", sum(s.series("requests_total")), "a rate first"},
		{"product with a counter", times(constant(2), s.series("requests_total")), "a rate first"},
		{"a counter compared", s.series("requests_total").that("> 2"), "a rate first"},
		{"median of a counter", median(s.series("requests_total"), "1m"), "expected a gauge"},
		{"quantile without le", quantile(0.5, sum(requests, "model")), "expected the label le"},
		{"fraction of other labels", div(sum(requests, "model"), sum(requests)), "labels differ"},
		{"join of other labels", timesOn("model", s.series("blocks"), most(s.series("workers"), "instance")), "labels are"},
		{"or zero with labels", orZero(sum(requests, "model")), "labels differ"},
		{"or server without instance", s.orServer(sum(requests, "model")), "expected the label instance"},
		{"deep inside", orZero(atMost(div(sum(s.series("nothing")), sum(requests)), 1)), "series nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got.err == nil || !strings.Contains(tt.got.err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", tt.got.err, tt.want)
			}
		})
	}
}

// A fault anywhere keeps files from being made, and names the place.
func TestFaultsReachTheCaller(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*content)
		want   string
	}{
		{"rule", func(c *content) { c.ours[0].query = c.schema.series("gone") }, "rule stator:requests:rate: series gone"},
		{"alert", func(c *content) { c.alerts[0].signal = c.schema.series("gone") }, "alert StatorDown: series gone"},
		{"panel", func(c *content) { c.rows[0].panels[0].targets[0].query = c.schema.series("gone") }, "dashboard: Alerts: firing: series gone"},
		{"counter as it is", func(c *content) { c.alerts[0].signal = c.schema.series("stator_auth_failures_total") }, "alert StatorDown: stator_auth_failures_total == 0: a counter"},
		{"condition", func(c *content) { c.alerts[0].provided = []condition{{"and on ()", c.schema.series("gone")}} }, "alert StatorDown: series gone"},
		{"condition with other labels", func(c *content) {
			c.alerts[0].provided = []condition{{"and", most(c.schema.series("up"), "job").that("== 1")}}
		}, "alert StatorDown: and max by (job) (up) == 1: labels differ"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Options{}.complete()
			if err != nil {
				t.Fatal(err)
			}
			c := newContent(o)
			tt.change(c)
			files, err := c.files(o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || files != nil {
				t.Errorf("%d files, error %v, want one with %q", len(files), err, tt.want)
			}
		})
	}
}
