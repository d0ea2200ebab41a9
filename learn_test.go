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
					c.Sim.Engines, c.Learn.Enabled, c.Learn.MinSamples = 2, on, 3
				})
				for i := range 6 {
					r := ask(t, client, explained("You plan.", fmt.Sprintf("question %d?", i))).routing
					if r == nil {
						t.Fatal("no explanation in the answer")
					}
					var want *nvext.Expected
					if on && i >= 3 {
						want = &nvext.Expected{
							OSL: new(uint32(4)), Inferred: []nvext.Inferred{nvext.InferredOSL},
							Source: nvext.SourceFamily, Samples: i,
						}
					}
					if diff := cmp.Diff(want, r.Expected); diff != "" {
						t.Errorf("request %d (-want +got):\n%s", i, diff)
					}
				}
				want := 0.0
				if on {
					want = 3
				}
				if got := scrape(t, client, "stator_hints_inferred_total", `field="osl"`); got != want {
					t.Errorf("%v hints inferred, want %v", got, want)
				}
			})
		})
	}
}
