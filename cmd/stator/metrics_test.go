package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/collect"
)

// TestMetrics runs the command against a server that has a number for every query.
func TestMetrics(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "hunter2" {
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		switch query := r.URL.Query().Get("query"); {
		case strings.HasPrefix(r.URL.Path, "/api/v1/label/"):
			names := strings.TrimSuffix(strings.TrimPrefix(r.URL.Query().Get("match[]"), `{__name__=~"`), `"}`)
			list, err := json.Marshal(strings.Split(names, "|"))
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(w, `{"status":"success","data":%s}`, list)
		case strings.HasPrefix(query, "up{"):
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"stator","instance":"a:1"},"value":[1,"1"]}]}}`)
		default:
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0.25"]}]}}`)
		}
	}))
	defer srv.Close()
	command := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := run(append([]string{"metrics", "--prometheus", srv.URL}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}

	if code, stdout, stderr := command(); code != exitFailure || !strings.Contains(stdout, "wants to know who asks: status 401 Unauthorized") {
		t.Errorf("without a password: code %d\n%s%s", code, stdout, stderr)
	}
	t.Setenv("STATOR_PROMETHEUS_USER", "me")
	t.Setenv("STATOR_PROMETHEUS_PASSWORD", "hunter2")
	code, stdout, stderr := command("--json", "--query", "mine=sum(x)", "--score-weights", "kv=1,ttft=0.5", "--score-targets", "itl=0.1")
	if code != exitOK || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var doc struct {
		TTFT    float64 `json:"ttft_p95"`
		Queued  float64 `json:"queued_requests"`
		Score   float64
		Queries map[string][]collect.LabelledValue
		Missing map[string]any
		Errors  []string
		Health  collect.Health
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if want := 1*0.25 + 0.5*1 + 0.2*(0.1/0.25); doc.Score < want-1e-9 || doc.Score > want+1e-9 {
		t.Errorf("score %v, want %v", doc.Score, want)
	}
	want := map[string][]collect.LabelledValue{"mine": {{Labels: map[string]string{}, Value: 0.25}}}
	if diff := cmp.Diff(want, doc.Queries); diff != "" {
		t.Errorf("queries (-want +got):\n%s", diff)
	}
	if doc.TTFT != 0.25 || doc.Queued != 0.25 || len(doc.Missing) > 0 || len(doc.Errors) > 0 || !doc.Health.Prometheus || !doc.Health.Worker {
		t.Errorf("got %+v", doc)
	}
	if _, stdout, _ := command("--core", "--compat", "nat"); strings.Contains(stdout, "queued_requests") || !strings.Contains(stdout, "compat nat") {
		t.Errorf("core only, as nat:\n%s", stdout)
	}
	for _, text := range []string{stdout, stderr} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the password is shown:\n%s", text)
		}
	}
}

func TestWatchMetrics(t *testing.T) {
	value := func(v float64) *float64 { return &v }
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		collectOne := func(now time.Time) *collect.Results {
			at = append(at, now.Sub(began))
			r := &collect.Results{Time: now, PrometheusURL: "http://prom:9090", Range: "30s", Window: collect.Window{Start: now, End: now}}
			switch len(at) {
			case 2:
				time.Sleep(12 * time.Second) // longer than two ticks
			case 3:
				r.Errors = []string{"no answer"}
			case 4:
				cancel() // in the middle of one
			}
			if len(r.Errors) == 0 {
				r.Metrics = []collect.Metric{{Field: collect.QueuedRequests, Group: collect.GroupInflight, Value: value(float64(len(at)))}}
			}
			return r
		}
		var out bytes.Buffer
		if err := watchMetrics(ctx, 5*time.Second, collectOne, metricsView(&out, true)); err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, 5 * time.Second, 17 * time.Second, 20 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("collected at (-want +got):\n%s", diff)
		}
		var queued []string
		for line := range strings.Lines(out.String()) {
			var doc map[string]any
			if err := json.Unmarshal([]byte(line), &doc); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			queued = append(queued, fmt.Sprint(doc["queued_requests"]))
		}
		if diff := cmp.Diff([]string{"1", "2", "<nil>"}, queued); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		nothing := func(now time.Time) *collect.Results {
			return &collect.Results{Time: now, PrometheusURL: "http://prom:9090", Range: "30s", Errors: []string{"no answer"}}
		}
		if err := watchMetrics(ctx, 30*time.Second, nothing, metricsView(&out, false)); err != errNothing {
			t.Errorf("got %v, want %v", err, errNothing)
		}
		want := "http://prom:9090  2000-01-01 00:00:00Z, range 30s\n\nerrors\n  no answer\n"
		want += "\n" + strings.Replace(want, "00:00:00", "00:00:30", 1)
		if got, _, _ := strings.Cut(out.String(), "\nhttp://prom:9090  2000-01-01 00:01:00Z"); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	})
}
