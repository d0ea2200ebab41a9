package replay

import (
	"fmt"
	"testing"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// BenchmarkRun replays an hour of conversations. On two shared cores of a Xeon:
//
//	BenchmarkRun/engines=8/round-robin    1.8 s/op   1950 ×real
//	BenchmarkRun/engines=8/kv             2.1 s/op   1690 ×real
//	BenchmarkRun/engines=64/round-robin   2.1 s/op   1710 ×real
//	BenchmarkRun/engines=64/kv            2.3 s/op   1510 ×real
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{8, 64} {
		for _, mode := range []router.Mode{router.RoundRobin, router.KV} {
			b.Run(fmt.Sprintf("engines=%d/%s", n, mode), func(b *testing.B) {
				tr := tracetest.Conversation(b)
				b.ReportAllocs()
				var virtual float64
				var tokens int
				for b.Loop() {
					rep, err := Run(b.Context(), Config{Engines: n, Router: router.Config{Mode: mode}}, tr)
					if err != nil {
						b.Fatal(err)
					}
					virtual += rep.Duration.Seconds()
					tokens = rep.Output
				}
				b.ReportMetric(virtual/b.Elapsed().Seconds(), "×real")
				b.ReportMetric(float64(tokens), "tokens/op")
			})
		}
	}
}
