package promtest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/collect"
)

// dynamoJobs are the targets of a Dynamo stack's scrape configuration.
var dynamoJobs = []string{"dynamo-frontend", "dynamo-worker", "dynamo-router", "dynamo-processor"}

// dynamoStack is such a configuration, with a target for each job.
func dynamoStack(targets []string) string {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs:\n")
	for i, job := range dynamoJobs {
		fmt.Fprintf(&b, "  - job_name: %s\n    metrics_path: /metrics\n    static_configs: [{targets: [%q]}]\n", job, targets[i])
	}
	return b.String()
}

// TestDynamoStack has a server scraped as the four processes that it stands for.
func TestDynamoStack(t *testing.T) {
	t.Parallel()
	srv, ports := startOn(t, 3, func(ports []int) []string {
		return []string{"serve", "--sim", "4", fmt.Sprintf("--metrics-ports=%d,%d,%d", ports[0], ports[1], ports[2])}
	})
	targets := []string{srv.addr, local(ports[0]), local(ports[1]), local(ports[2])}
	p := scrapeWith(t, dynamoStack(targets))
	p.scraped(t, len(dynamoJobs), 1)
	l := startLoad(t, srv.url(), simModel, 4)

	t.Run("scraped", func(t *testing.T) { collectStack(t, p) })
	t.Run("same numbers", func(t *testing.T) { sameNumbers(t, l, targets) })
}

// collectStack collects from what scrapes the four, as NeMo Agent Toolkit does.
func collectStack(t *testing.T, p *prometheus) {
	client := newClient(t, p.url)
	if h := client.Health(t.Context(), collect.NAT); !h.Prometheus || !h.Frontend || !h.Worker || len(h.Down) != 0 {
		t.Errorf("health: %+v", h)
	}
	cfg := natConfig()
	eventually(t, "all that Stator publishes is collected", func() string {
		r := collect.Metrics(t.Context(), time.Now(), client, &cfg)
		if len(r.Errors) != 0 {
			t.Fatal(r.Errors)
		}
		var missing []string
		for _, m := range r.Metrics {
			switch {
			case m.Value != nil, slices.Contains(sglangFields, m.Field):
			case m.Field == collect.QueuedRequests, m.Field == collect.KVEDeviceBlocksRate,
				m.Field == collect.KVEHostBlocksRate, m.Field == collect.KVEDiskBlocksRate:
				// They are 0, which counts as none.
			case m.Field == collect.InflightFrontend, m.Field == collect.InflightWorker, m.Field == collect.KVCacheUsagePercent:
				// So they may be at the moment of a scrape.
			default:
				missing = append(missing, string(m.Field))
			}
		}
		if r.Score == nil {
			missing = append(missing, "score")
		}
		return strings.Join(missing, " ")
	})
}

// sameNumbers compares what is collected of four targets and of one that has all of their
// series. So that both are of the same moments, they are of pages that are fetched once and
// say when: fifteen seconds lie between two.
func sameNumbers(t *testing.T, l *load, targets []string) {
	const pages = 8
	began := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
	at := func(page int) time.Time { return began.Add(time.Duration(page) * 15 * time.Second) }
	apart := make([]stamped, len(targets))
	var whole stamped
	for n := range pages {
		if n < pages-1 {
			l.wait(t, l.served.Load()+10)
		} else {
			l.stop()
			idle(t, targets[0])
		}
		for i, target := range targets {
			for line := range strings.Lines(fetch(t, "http://"+target+"/metrics")) {
				if strings.HasPrefix(line, "#") {
					continue
				}
				line = fmt.Sprintf("%s %d\n", strings.TrimSpace(line), at(n).UnixMilli())
				apart[i].text.WriteString(line)
				whole.text.WriteString(line)
			}
		}
	}
	var four []string
	for i := range apart {
		four = append(four, apart[i].serve(t))
	}
	split, combined := scrapeWith(t, dynamoStack(four)), scrapeWith(t, scraping("combined", whole.serve(t)))
	split.scraped(t, len(four), 1)
	combined.scraped(t, 1, 1)

	cfg := natConfig()
	cfg.QueryRange = "30s"
	now := at(pages - 1)
	numbers := 0
	for _, q := range natQueries {
		promql := strings.ReplaceAll(q.promql, "{range}", cfg.QueryRange)
		got, want := unplaced(split.ask(t, promql, now)), unplaced(combined.ask(t, promql, now))
		got, want = append(got, unplaced(split.askRange(t, promql, at(0), now, "15s"))...), append(want, unplaced(combined.askRange(t, promql, at(0), now, "15s"))...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-combined +four):\n%s", promql, diff)
		}
		if len(want) > 0 {
			numbers++
		}
	}
	if numbers != len(natQueries)-len(sglangFields) {
		t.Errorf("%d of %d queries have an answer, all but %d should", numbers, len(natQueries), len(sglangFields))
	}
	got := collect.Metrics(t.Context(), now, newClient(t, gatewayTo(t, split, now).url), &cfg)
	want := collect.Metrics(t.Context(), now, newClient(t, gatewayTo(t, combined, now).url), &cfg)
	if len(got.Errors) != 0 || len(want.Errors) != 0 || got.Score == nil || want.Score == nil {
		t.Errorf("errors %q and %q, scores %s and %s", got.Errors, want.Errors, show(got.Score), show(want.Score))
	}
	for i, m := range got.Metrics {
		w := want.Metrics[i]
		same := (m.Value == nil) == (w.Value == nil)
		if same && m.Value != nil && !strings.HasPrefix(m.Query, "histogram_quantile") { // which comes first of several is chance
			same = near(*m.Value, *w.Value) && m.Method == w.Method
		}
		if !same {
			t.Errorf("%s: got %s by %q, combined %s by %q", m.Field, show(m.Value), m.Method, show(w.Value), w.Method)
		}
	}
}

// sglangFields are what only engines publish.
var sglangFields = []collect.Field{collect.KVHitRateSGLang, collect.SGLangThroughput, collect.SGLangRunning, collect.SGLangQueueDepth, collect.SGLangUtilization}

// unplaced returns an answer as sorted lines, without where each series was scraped.
func unplaced(answer []series) []string {
	var out []string
	for _, s := range answer {
		delete(s.labels, "job")
		delete(s.labels, "instance")
		out = append(out, fmt.Sprint(s.labels, s.samples))
	}
	slices.Sort(out)
	return out
}

// idle waits until a server has nothing under way.
func idle(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "nothing is under way", func() string {
		for line := range strings.Lines(fetch(t, "http://"+addr+"/metrics")) {
			if strings.HasPrefix(line, "dynamo_frontend_inflight_requests{") && !strings.HasSuffix(line, " 0\n") {
				return line
			}
		}
		return ""
	})
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %v", url, resp.Status, err)
	}
	return string(body)
}
