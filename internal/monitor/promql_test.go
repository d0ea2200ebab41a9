package monitor

import (
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/metrics"
)

// known is a schema of a few families.
func known() schema {
	return schema{
		"requests_total": {metrics.CounterFamily, []string{"model", "status", "instance"}, NeedStator},
		"shed_total":     {metrics.CounterFamily, []string{"model", "instance"}, NeedIncident},
		"ttft_seconds":   {metrics.HistogramFamily, []string{"model", "instance"}, NeedQueue},
		"workers":        {metrics.GaugeFamily, []string{"model", "instance"}, NeedStator},
		"blocks":         {metrics.GaugeFamily, []string{"model", "worker", "instance"}, NeedStator},
		"up":             {metrics.GaugeFamily, []string{"job", "instance"}, NeedStator},
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
		{"counter as it is", func(c *content) { c.alerts[0].signal = c.schema.series("stator_auth_failures_total") }, "alert StatorDown: stator_auth_failures_total: a counter"},
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
