package stator

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/nvext"
)

// A server that learns infers the length of an answer once it has seen some like it; one
// that does not infers nothing.
func TestLearn(t *testing.T) {
	for _, on := range []bool{false, true} {
		t.Run(fmt.Sprint("enabled=", on), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := inMemory(t, func(c *Config) {
					c.Sim.Engines, c.Learn.Enabled, c.Learn.MinSamples, c.Learn.MaxConversations = 2, on, 3, 4
				})
				for i := range 6 {
					r := ask(t, client, explained("You plan.", fmt.Sprintf("question %d?", i))).routing
					if r == nil {
						t.Fatal("no explanation in the answer")
					}
					var want *nvext.Expected
					if on && i >= 3 {
						want = &nvext.Expected{
							OSL:      new(uint32(4)),
							Inferred: []nvext.Inferred{{Field: nvext.InferredOSL, Source: nvext.SourceFamily, Samples: i}},
						}
					}
					if diff := cmp.Diff(want, r.Expected); diff != "" {
						t.Errorf("request %d (-want +got):\n%s", i, diff)
					}
				}
				for _, row := range []struct {
					family, labels string
					want           float64
				}{
					{"stator_hints_inferred_total", `field="osl"`, 3},
					{"stator_learn_conversations", "", 4},
					{"stator_learn_families", "", 1},
					{"stator_learn_evictions_total", `kind="conversation"`, 2},
					{"stator_learn_evictions_total", `kind="family"`, 0},
				} {
					if !on {
						row.want = 0
					}
					if got := scrape(t, client, row.family, row.labels); got != row.want {
						t.Errorf("%s{%s} is %v, want %v", row.family, row.labels, got, row.want)
					}
				}
			})
		})
	}
}
