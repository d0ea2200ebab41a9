package kv_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
)

// Every reason is counted by its own name.
func TestReasonsAreExposed(t *testing.T) {
	skipped := make(map[string]uint64)
	for r := range kv.Reason(kv.NumReasons) {
		skipped[r.String()] = 1
	}
	set := metrics.New(metrics.Options{})
	set.WatchIndex("m", func() metrics.IndexSample { return metrics.IndexSample{Skipped: skipped} })
	w := httptest.NewRecorder()
	set.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for name := range skipped {
		if !strings.Contains(w.Body.String(), `reason="`+name+`"`) {
			t.Errorf("%s is not exposed", name)
		}
	}
}
