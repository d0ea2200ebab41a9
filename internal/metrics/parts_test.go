package metrics

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whoever scrapes all parts gets every series, and none twice.
func TestPartsAreAPartition(t *testing.T) {
	s := scenario()
	seen := make(map[string]Part)
	for _, p := range []Part{PartFrontend, PartWorker, PartRouter, PartProcessor} {
		for series := range exposed(t, s.HandlerOf(p)) {
			if was := seen[series]; was != 0 {
				t.Errorf("%s is of parts %d and %d", series, was, p)
			}
			seen[series] = p
		}
	}
	all := slices.Sorted(maps.Keys(exposed(t, s.Handler())))
	if diff := cmp.Diff(all, slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("all parts together (-combined +apart):\n%s", diff)
	}
}

func TestParts(t *testing.T) {
	s := scenario()
	const work = `dynamo_component_requests_total{dynamo_component=`
	for _, tt := range []struct {
		series string
		part   Part
	}{
		{`dynamo_frontend_inflight_requests{model="qwen/qwen3-8b"}`, PartFrontend},
		{`dynamo_component_router_requests_total{dynamo_component="backend",dynamo_namespace="dynamo",model="Qwen/Qwen3-8B",router_id="42"}`, PartFrontend},
		{`go_goroutines`, PartFrontend},
		{work + `"backend",dynamo_endpoint="generate",dynamo_namespace="workers",worker_id="1"}`, PartWorker},
		{`dynamo_component_kvstats_total_blocks{dp_rank="0",model="Qwen/Qwen3-8B",worker_id="1"}`, PartWorker},
		{`dynamo_component_kvstats_gpu_prefix_cache_hit_rate{dp_rank="0",model="Qwen/Qwen3-8B",worker_id="3"}`, PartWorker},
		{work + `"router",dynamo_endpoint="find_worker",dynamo_namespace="dynamo",worker_id=""}`, PartRouter},
		{work + `"router",dynamo_endpoint="feedback",dynamo_namespace="dynamo",worker_id=""}`, PartRouter},
		{`thompson_router_decisions_total{worker_id="3"}`, PartRouter},
		{work + `"backend",dynamo_endpoint="generate",dynamo_namespace="dynamo",worker_id=""}`, PartProcessor},
		{`dynamo_component_thompson_requests_total`, PartProcessor},
		{`dynamo_component_thompson_routing_decisions_total{worker_id="1"}`, PartProcessor},
	} {
		if _, ok := exposed(t, s.HandlerOf(tt.part))[tt.series]; !ok {
			t.Errorf("%s is not of part %d", tt.series, tt.part)
		}
		if _, ok := exposed(t, s.HandlerOf(AllParts&^tt.part))[tt.series]; ok {
			t.Errorf("%s is also of another part than %d", tt.series, tt.part)
		}
	}
}

// A prefix that looks like another part's does not make its series theirs.
func TestPartsGoByFamily(t *testing.T) {
	s := New(Options{Prefix: "thompson_router"})
	s.Model("m")
	const series = `thompson_router_inflight_requests{model="m"}`
	if _, ok := exposed(t, s.HandlerOf(PartFrontend))[series]; !ok {
		t.Errorf("%s is not the frontend's", series)
	}
}

// exposed returns the series that a handler answers with.
func exposed(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("exposition: status %d: %s", rec.Code, rec.Body)
	}
	out := make(map[string]string)
	for line := range strings.Lines(rec.Body.String()) {
		if i := strings.LastIndexByte(line, ' '); line[0] != '#' {
			out[line[:i]] = line[i+1:]
		}
	}
	return out
}
