package replay

import (
	"fmt"
	"testing"

	"github.com/stator-ai/stator/internal/trace/tracetest"
)

// BenchmarkRun replays an hour of conversations round robin. On two shared cores
// of a Xeon:
//
//	BenchmarkRun/engines=8    1.8 s/op   1940 ×real
//	BenchmarkRun/engines=64   2.1 s/op   1670 ×real
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{8, 64} {
		b.Run(fmt.Sprintf("engines=%d", n), func(b *testing.B) {
			tr := tracetest.Conversation(b)
			b.ReportAllocs()
			var virtual float64
			var tokens int
			for b.Loop() {
				rep, err := Run(b.Context(), Config{Engines: n}, tr)
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
