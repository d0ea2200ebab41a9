package monitor

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/simserver"
)

// The families of engines are those that an engine of that kind exposes, with all of its
// labels.
func TestEngineFamilies(t *testing.T) {
	for _, tt := range []struct {
		name     string
		dress    simserver.Dress
		families []foreign
	}{
		{"vllm", simserver.DressVLLM, vllmFamilies},
		{"sglang", simserver.DressSGLang, sglangFamilies},
		{"llamacpp", simserver.DressLlamaCpp, llamaFamilies},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv, err := simserver.New(simserver.Config{Dress: tt.dress, Model: "m", Vocabulary: simserver.Bytes})
			if err != nil {
				t.Fatal(err)
			}
			defer srv.Close()
			compareFamilies(t, srv, tt.families)
		})
	}
}

func TestProcessFamilies(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the client library has other families elsewhere")
	}
	compareFamilies(t, metrics.New(metrics.Options{}).Handler(), processFamilies)
}

// compareFamilies compares a table with what a handler answers under /metrics.
func compareFamilies(t *testing.T, h http.Handler, want []foreign) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	exposed := readFamilies(t, rec.Body)
	for _, w := range want {
		got, ok := exposed[w.name]
		if !ok {
			t.Errorf("%s is not exposed", w.name)
			continue
		}
		if diff := cmp.Diff(family{kind: w.kind, labels: strings.Fields(w.labels)}, got, cmp.AllowUnexported(family{}), cmp.Transformer("set", func(l []string) string {
			return strings.Join(slices.Sorted(slices.Values(l)), " ")
		})); diff != "" {
			t.Errorf("%s (-table +exposed):\n%s", w.name, diff)
		}
	}
}

var (
	typeLine   = regexp.MustCompile(`^# TYPE (\S+) (\S+)$`)
	sampleLine = regexp.MustCompile(`^([^\s{]+)(\{.*\})? \S+$`)
	labelName  = regexp.MustCompile(`[{,]([a-z_]+)="`)
)

// readFamilies reads an exposition, each family with the labels of all its series.
func readFamilies(t *testing.T, r io.Reader) map[string]family {
	t.Helper()
	out := make(map[string]family)
	name := ""
	for sc := bufio.NewScanner(r); sc.Scan(); {
		line := sc.Bytes()
		if m := typeLine.FindSubmatch(line); m != nil {
			name = string(m[1])
			out[name] = family{kind: metrics.FamilyType(m[2])}
			continue
		}
		m := sampleLine.FindSubmatch(line)
		if m == nil || !bytes.HasPrefix(m[1], []byte(name)) {
			continue
		}
		f := out[name]
		for _, l := range labelName.FindAllSubmatch(m[2], -1) {
			if l := string(l[1]); l != "le" && !slices.Contains(f.labels, l) {
				f.labels = append(f.labels, l)
			}
		}
		out[name] = f
	}
	return out
}

// What an expression needs is known of families that exist.
func TestNeedsAreOfFamilies(t *testing.T) {
	for begin := range needs {
		if !slices.ContainsFunc(metrics.Catalogue(), func(f metrics.Family) bool { return strings.HasPrefix(f.Name, begin) }) {
			t.Errorf("no family begins with %s", begin)
		}
	}
	for name, want := range map[string]Need{
		"stator_engine_info": NeedStator, "stator_engine_running_requests": NeedReports, "stator_queue_requests": NeedQueue,
		"stator_queue_left_total": NeedIncident, "stator_feed_lag_seconds": NeedEvents, "thompson_router_decisions_total": NeedLearning,
		"thompson_router_reward": NeedLearning, "thompson_router_feedback_latency_seconds": NeedLearning,
		"thompson_router_beta_alpha": NeedReference, "thompson_router_pending_decisions": NeedStator, "dynamo_frontend_requests_total": NeedStator,
	} {
		if got := needOf(name); got != want {
			t.Errorf("%s needs %v, want %v", name, got, want)
		}
	}
}
