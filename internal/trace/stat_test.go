package trace_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// round keeps as many decimals as the reference has.
func round(f float64, unit float64) float64 { return float64(int64(f/unit+0.5)) * unit }

func TestConversationFacts(t *testing.T) {
	s := trace.Stat(tracetest.Conversation(t))
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	s.RequestsPerSecond = round(s.RequestsPerSecond, 1e-4)
	s.Input.Mean, s.Output.Mean = round(s.Input.Mean, 0.01), round(s.Output.Mean, 0.01)
	s.Efficiency = round(s.Efficiency, 1e-6)
	want := trace.Stats{
		Requests:           12031,
		SpanSeconds:        3536.999,
		RequestsPerSecond:  3.4015,
		Timestamps:         1180,
		MaxSameTimestamp:   28,
		Gaps:               trace.Gaps{MinMS: 2997, MedianMS: 3000, MaxMS: 3003},
		Input:              trace.Lengths{Sum: 144793823, Mean: 12035.06, Min: 891, P50: 6909, P75: 15368, P90: 27367, P95: 39552, P99: 85401, Max: 126195},
		Output:             trace.Lengths{Sum: 4122048, Mean: 342.62, Min: 1, P50: 350, P75: 472, P90: 597, P95: 698, P99: 1120, Max: 2000},
		BlockSize:          512,
		Blocks:             288500,
		DistinctBlocks:     182790,
		OnceBlocks:         138646,
		FullBlocks:         276491,
		Efficiency:         0.366412,
		FirstBlockRequests: 12031,
	}
	if diff := cmp.Diff(want, s, near); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestConversationBlocks(t *testing.T) {
	tr := tracetest.Conversation(t)
	predecessor := make(map[uint32]uint32)
	for i := range tr.Requests {
		r := &tr.Requests[i]
		if want := (r.Input + 511) / 512; len(r.Blocks) != want {
			t.Fatalf("request %d: %d ids, want %d for %d tokens", i, len(r.Blocks), want, r.Input)
		}
		seen := make(map[uint32]bool)
		for k, id := range r.Blocks {
			before := uint32(1 << 31)
			if k > 0 {
				before = r.Blocks[k-1]
			}
			if p, ok := predecessor[id]; ok && p != before {
				t.Fatalf("request %d: id %d follows %d and %d", i, id, p, before)
			}
			predecessor[id] = before
			if seen[id] {
				t.Fatalf("request %d: id %d twice", i, id)
			}
			seen[id] = true
		}
	}
}

func TestConversationIdealHits(t *testing.T) {
	tr := tracetest.Conversation(t)
	for _, tt := range []struct {
		workers, blocks   int
		byBlock, byTokens float64
		full              int // 0: not stated
	}{
		{1, 105710, 0.366412, 0.373624, 105592},
		{2, 78076, 0.270627, 0.275997, 0},
		{4, 55323, 0.191761, 0.195575, 55290},
		{8, 39315, 0.136274, 0.138990, 39297},
		{16, 28578, 0.099057, 0.101040, 28570},
		{32, 21064, 0.073012, 0.074476, 0},
		{64, 17581, 0.060939, 0.062164, 0},
	} {
		got := trace.IdealHits(tr, tt.workers)
		if got.Blocks != tt.blocks || decimals(got.BlockRatio) != decimals(tt.byBlock) || decimals(got.TokenRatio) != decimals(tt.byTokens) {
			t.Errorf("%d workers: got %+v, want %+v", tt.workers, got, tt)
		}
		if tt.full > 0 && got.FullBlocks != tt.full {
			t.Errorf("%d workers: %d hits of full blocks, want %d", tt.workers, got.FullBlocks, tt.full)
		}
	}
}

func TestConversationLRUHits(t *testing.T) {
	tr := tracetest.Conversation(t)
	for _, tt := range []struct {
		capacity, blocks int
		ratio            float64
	}{
		{1024, 12916, 0.044769},
		{4096, 25350, 0.087868},
		{16384, 76632, 0.265622},
		{65536, 103701, 0.359449},
	} {
		got := trace.LRUHits(tr, tt.capacity)
		if got.Blocks != tt.blocks || decimals(got.BlockRatio) != decimals(tt.ratio) {
			t.Errorf("%d blocks: got %+v, want %+v", tt.capacity, got, tt)
		}
	}
}

// decimals is a ratio in millionths, rounded.
func decimals(f float64) int { return int(f*1e6 + 0.5) }

func TestReport(t *testing.T) {
	r := trace.NewReport("conversation.jsonl", tracetest.Conversation(t), []int{1, 4, 8, 16}, []int{4096})
	golden(t, "conversation.txt", r.String())
}

// More than 64 workers need more than one word of bits.
func TestIdealHitsManyWorkers(t *testing.T) {
	tr := &trace.Trace{BlockSize: 4}
	for range 300 {
		tr.Requests = append(tr.Requests, trace.Request{Input: 9, Output: 1, Blocks: []uint32{0, 1, 2}})
	}
	for _, workers := range []int{1, 63, 64, 65, 100, 128, 300, 1000} {
		got := trace.IdealHits(tr, workers)
		want := 3 * max(0, 300-workers)
		if got.Blocks != want || got.FullBlocks != want/3*2 {
			t.Errorf("%d workers: %+v, want %d blocks", workers, got, want)
		}
		if tokens := float64(9*max(0, 300-workers)) / 2700; got.TokenRatio != tokens {
			t.Errorf("%d workers: token ratio %v, want %v", workers, got.TokenRatio, tokens)
		}
	}
}

// The reference is a slice that is kept in order.
func TestLRUHitsSmall(t *testing.T) {
	tr := randomTrace(7, 200, 4)
	for _, capacity := range []int{0, 1, 2, 3, 5, 8, 50, 1000} {
		var order []uint32 // newest first
		want := 0
		for _, r := range named(tr).Requests {
			for _, id := range r.Blocks {
				if indexOf(order, id) < 0 {
					break
				}
				want++
			}
			for k := len(r.Blocks) - 1; k >= 0; k-- {
				if i := indexOf(order, r.Blocks[k]); i >= 0 {
					order = append(order[:i], order[i+1:]...)
				}
				order = append([]uint32{r.Blocks[k]}, order...)
			}
			order = order[:min(len(order), capacity)]
		}
		if got := trace.LRUHits(tr, capacity); got.Blocks != want {
			t.Errorf("capacity %d: %d hits, want %d", capacity, got.Blocks, want)
		}
	}
}

func indexOf(s []uint32, v uint32) int {
	for i := range s {
		if s[i] == v {
			return i
		}
	}
	return -1
}

// The reference values of the percentile rule are numbers with fractions; their
// order is what counts.
func TestPercentileRule(t *testing.T) {
	values := []int{0, 100, 100, 250, 400, 400, 725, 950, 1500, 2200, 2200, 10000}
	tr := &trace.Trace{BlockSize: 1 << 20}
	for i, v := range values {
		tr.Requests = append(tr.Requests, trace.Request{Input: 1, Output: v, Blocks: []uint32{uint32(i)}})
	}
	got := trace.Stat(tr).Output
	want := trace.Lengths{Sum: 18825, Mean: 1568.75, Min: 0, P50: 725, P75: 1500, P90: 2200, P95: 2200, P99: 10000, Max: 10000}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestStatEdges(t *testing.T) {
	if got := trace.Stat(&trace.Trace{BlockSize: 512}); got.Requests != 0 || got.Input.Sum != 0 {
		t.Errorf("no requests: %+v", got)
	}
	one := &trace.Trace{BlockSize: 512, Requests: []trace.Request{{Arrival: time.Second, Input: 5, Output: 2, Blocks: []uint32{0}}}}
	got := trace.Stat(one)
	if got.SpanSeconds != 0 || got.RequestsPerSecond != 0 || got.Timestamps != 1 || got.MaxSameTimestamp != 1 || got.FullBlocks != 0 || got.OnceBlocks != 1 {
		t.Errorf("one request: %+v", got)
	}
}
