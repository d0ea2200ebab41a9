package trace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
)

func arrivals(tr *trace.Trace) []time.Duration {
	var out []time.Duration
	for i := range tr.Requests {
		out = append(out, tr.Requests[i].Arrival)
	}
	return out
}

func TestSpeed(t *testing.T) {
	t.Run("arrivals 100 and 200, speed-up 10", func(t *testing.T) {
		tr := &trace.Trace{BlockSize: 1, Requests: []trace.Request{{Arrival: ms(100)}, {Arrival: ms(200)}}}
		if err := tr.Speed(10, 1); err != nil {
			t.Fatal(err)
		}
		if got := arrivals(tr); !slices.Equal(got, []time.Duration{0, ms(10)}) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("delays apart", func(t *testing.T) {
		session := func() *trace.Trace {
			return &trace.Trace{BlockSize: 1, Requests: []trace.Request{
				{Arrival: ms(100), Session: "s"},
				// 30 ms of answer, 10 of thought.
				{Arrival: ms(140), Session: "s", Follows: true, DelayKnown: true, Delay: ms(10)},
				{Arrival: ms(160), Session: "s", Follows: true, Delay: ms(20)},
				{Arrival: ms(300)},
			}}
		}
		for _, tt := range []struct {
			arrivals, delays float64
			want             []time.Duration
		}{
			{2, 1, []time.Duration{0, ms(40), ms(60), ms(100)}},
			{1, 2, []time.Duration{0, ms(35), ms(45), ms(200)}},
			{4, 0.5, []time.Duration{0, ms(50), ms(90), ms(50)}},
		} {
			tr := session()
			if err := tr.Speed(tt.arrivals, tt.delays); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, arrivals(tr)); diff != "" {
				t.Errorf("speed %v and %v: -want +got:\n%s", tt.arrivals, tt.delays, diff)
			}
			if got, want := tr.Requests[1].Delay, time.Duration(float64(ms(10))/tt.delays); got != want {
				t.Errorf("speed %v and %v: delay %v, want %v", tt.arrivals, tt.delays, got, want)
			}
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		for _, r := range []float64{0, -1, math.Inf(1), math.NaN()} {
			if (&trace.Trace{}).Speed(r, 1) == nil || (&trace.Trace{}).Speed(1, r) == nil {
				t.Errorf("%v is taken", r)
			}
		}
		tr := &trace.Trace{Requests: []trace.Request{{}, {Arrival: time.Hour}}}
		if err := tr.Speed(1e-300, 1); err != nil || tr.Requests[1].Arrival <= 0 {
			t.Errorf("%v, %v", tr.Requests[1].Arrival, err)
		}
	})
}

func TestJitter(t *testing.T) {
	jittered := func(seed uint64) *trace.Trace {
		tr := tracetest.Conversation(t)
		// A second turn moves with the first.
		tr.Requests[5].Session, tr.Requests[5].ID = "s", "first"
		tr.Requests[900].Session, tr.Requests[900].Follows, tr.Requests[900].ID = "s", true, "second"
		tr.Requests[900].Delay = tr.Requests[900].Arrival - tr.Requests[5].Arrival
		if err := tr.Jitter(3*time.Second, seed); err != nil {
			t.Fatal(err)
		}
		return tr
	}
	tr := jittered(1)
	if !slices.IsSorted(arrivals(tr)) {
		t.Error("not sorted")
	}
	s := trace.Stat(tr)
	if s.Timestamps < 12000 || s.MaxSameTimestamp > 2 || s.Input.Sum != 144793823 {
		t.Errorf("%+v", s)
	}
	if last := tr.Requests[len(tr.Requests)-1].Arrival; last < 3536999*time.Millisecond || last >= 3539999*time.Millisecond {
		t.Errorf("the last request comes at %v", last)
	}
	at := make(map[string]int)
	for i := range tr.Requests {
		at[tr.Requests[i].ID] = i
	}
	first, second := tr.Requests[at["first"]], tr.Requests[at["second"]]
	if second.Arrival-first.Arrival != second.Delay || tr.Previous()[at["second"]] != at["first"] {
		t.Errorf("%v after %v, want %v", second.Arrival, first.Arrival, second.Delay)
	}
	if !slices.Equal(arrivals(tr), arrivals(jittered(1))) {
		t.Error("the same seed gives other arrivals")
	}
	if slices.Equal(arrivals(tr), arrivals(jittered(2))) {
		t.Error("another seed gives the same arrivals")
	}
	if tr.Jitter(-1, 1) == nil || tr.Jitter(math.MaxInt64, 1) == nil {
		t.Error("nonsense is taken")
	}
	before := arrivals(tr)
	if err := tr.Jitter(0, 1); err != nil || !slices.Equal(before, arrivals(tr)) {
		t.Errorf("no jitter: %v", err)
	}
}

// Whatever is done to arrivals, every request follows the one it followed.
func TestArrivalsKeepOrder(t *testing.T) {
	following := func(tr *trace.Trace) map[string]string {
		out := make(map[string]string)
		for i, p := range tr.Previous() {
			if p >= 0 {
				out[tr.Requests[i].ID] = tr.Requests[p].ID
			}
		}
		return out
	}
	recording := func(rows ...[2]int) func(uint64) *trace.Trace { // arrival and duration
		return func(uint64) *trace.Trace {
			var file string
			for i, r := range rows {
				file += recorded(fmt.Sprintf(`"request_id":"%d","session_id":"s","model":"m","arrival_us":%d,"total_time_ms":%d,"input_tokens":1,"output_tokens":1`, i, 1000*r[0], r[1]))
			}
			return readString(t, file)
		}
	}
	for name, sample := range map[string]func(seed uint64) *trace.Trace{
		"two at once":     recording([2]int{0, 400}, [2]int{10, 440}, [2]int{500, 10}),
		"overtaken":       recording([2]int{0, 100}, [2]int{10, 2000}, [2]int{2500, 10}, [2]int{2505, 10}),
		"many, unordered": unordered,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				tr := sample(seed)
				want := following(tr)
				if len(want) == 0 {
					t.Fatal("nobody follows anybody")
				}
				for _, change := range []func() error{
					func() error { return tr.Jitter(3*time.Second, seed) },
					func() error { return tr.Speed(10, 0.3) },
					func() error { return tr.Jitter(time.Microsecond, seed) },
				} {
					if err := change(); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(want, following(tr)); diff != "" {
						t.Fatalf("seed %d: -before +after:\n%s", seed, diff)
					}
				}
			}
		})
	}
}

// unordered returns requests of few sessions in no order of arrival, but for those
// that follow another.
func unordered(seed uint64) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 3))
	tr := &trace.Trace{BlockSize: 1}
	last := map[string]time.Duration{}
	for i := range 30 {
		r := trace.Request{ID: fmt.Sprint(i), Input: 1, Output: 1, Session: fmt.Sprint(rng.IntN(4)), Arrival: ms(float64(rng.IntN(5000)))}
		if at, begun := last[r.Session]; begun && rng.IntN(2) == 0 {
			r.Follows, r.Arrival = true, max(r.Arrival, at)
		}
		last[r.Session] = r.Arrival
		tr.Requests = append(tr.Requests, r)
	}
	return tr
}

func TestWithBlockSize(t *testing.T) {
	tr := &trace.Trace{BlockSize: 4, Requests: []trace.Request{
		{Input: 16, Output: 1, Blocks: []uint32{0, 1, 2, 3}},
		{Input: 15, Output: 1, Blocks: []uint32{0, 1, 2, 4}},
		{Input: 12, Output: 1, Blocks: []uint32{0, 1, 2}},
		{Input: 12, Output: 1, Blocks: []uint32{0, 1, 2}},
		{Input: 9, Output: 1, Blocks: []uint32{0, 5, 6}},
		{Input: 8, Output: 1, Blocks: []uint32{0, 1}},
	}}
	for _, tt := range []struct {
		size int
		want [][]uint32
	}{
		{8, [][]uint32{{0, 1}, {0, 2}, {0, 3}, {0, 3}, {4, 5}, {0}}},
		{2, [][]uint32{
			{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 8, 9},
			{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 10, 11, 12}, {0, 1, 2, 3},
		}},
	} {
		got, err := tr.WithBlockSize(tt.size)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, blockIDs(got)); diff != "" {
			t.Errorf("blocks of %d: -want +got:\n%s", tt.size, diff)
		}
		if got.BlockSize != tt.size || tr.BlockSize != 4 || len(tr.Requests[0].Blocks) != 4 {
			t.Errorf("blocks of %d: the original changed", tt.size)
		}
	}
	for _, size := range []int{-8, 0, 3, 6, 9} {
		if _, err := tr.WithBlockSize(size); err == nil {
			t.Errorf("%d is taken", size)
		}
	}
	_, err := tr.WithBlockSize(6)
	if want := "block size 6: expected a multiple or a divisor of 4, the trace's own"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func blockIDs(tr *trace.Trace) [][]uint32 {
	var out [][]uint32
	for _, r := range tr.Requests {
		out = append(out, r.Blocks)
	}
	return out
}

// A block has the parts that its longest appearance has, whichever comes first,
// and blocks without an id have none.
func TestWithBlockSizePartialBlocks(t *testing.T) {
	tr := &trace.Trace{BlockSize: 8, Requests: []trace.Request{
		{Input: 11, Output: 1, Blocks: []uint32{0, 1}},
		{Input: 16, Output: 1, Blocks: []uint32{0, 1}},
		{Input: 13, Output: 1, Blocks: []uint32{0, 1}},
		{Input: 13, Output: 1, Blocks: []uint32{0}},
		{Input: 1, Output: 1, Blocks: []uint32{2}},
		{Input: 13, Output: 1},
	}}
	got, err := tr.WithBlockSize(2)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]uint32{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3}, {8}, {}}
	if diff := cmp.Diff(want, blockIDs(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWithBlockSizeTooManyBlocks(t *testing.T) {
	tr := &trace.Trace{BlockSize: 1 << 20}
	for i := range uint32(1<<11 + 1) {
		tr.Requests = append(tr.Requests, trace.Request{Input: 1 << 20, Blocks: []uint32{i}})
	}
	_, err := tr.WithBlockSize(1)
	if want := "block size 1: more than 2147483648 different blocks"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The hits at another size are those of the contents at that size.
func TestWithBlockSizeHits(t *testing.T) {
	const own = 12
	for seed := range uint64(20) {
		tr := randomTrace(seed, 60, own)
		for _, size := range []int{1, 2, 3, 4, 6, own, 24, 36} {
			name := fmt.Sprintf("seed %d, blocks of %d", seed, size)
			resized, err := tr.WithBlockSize(size)
			if err != nil {
				t.Fatal(err)
			}
			checkIDs(t, name, resized)
			for _, workers := range []int{1, 3} {
				got := trace.IdealHits(resized, workers)
				full, _ := contentHits(tr, size, workers)
				if got.FullBlocks != full {
					t.Errorf("%s, %d workers: %d hits of full blocks, want %d", name, workers, got.FullBlocks, full)
				}
				if size > own {
					continue
				}
				// With its last block filled up, a prompt has contents for that as well.
				filled := *tr
				filled.Requests = slices.Clone(tr.Requests)
				for i := range filled.Requests {
					r := &filled.Requests[i]
					r.Input = (r.Input + size - 1) / size * size
				}
				all, distinct := contentHits(&filled, size, workers)
				if got.Blocks != all {
					t.Errorf("%s, %d workers: %d hits, want %d", name, workers, got.Blocks, all)
				}
				if n := trace.Stat(resized).DistinctBlocks; n != distinct {
					t.Errorf("%s: %d different blocks, want %d", name, n, distinct)
				}
			}
		}
	}
}

// contentHits returns how many leading blocks workers hold already, each of which
// has seen the contents of the requests before that went to it, and how many
// different blocks there are.
func contentHits(tr *trace.Trace, size, workers int) (hits, distinct int) {
	type held struct {
		worker int
		block  kv.BlockID
	}
	caches := make(map[held]bool)
	blocks := make(map[kv.BlockID]bool)
	for i := range tr.Requests {
		c := tr.Content(i, size)
		leading := true
		for k := range c.Full() {
			at := held{i % workers, c.Block(k).ID}
			leading = leading && caches[at]
			if leading {
				hits++
			}
			caches[at], blocks[at.block] = true, true
		}
	}
	return hits, len(blocks)
}

// checkIDs checks that ids are dense and that each has one place and one
// predecessor.
func checkIDs(t *testing.T, name string, tr *trace.Trace) {
	t.Helper()
	type place struct {
		k      int
		before uint32
	}
	places := make(map[uint32]place)
	var bound uint32
	for i, ids := range blockIDs(tr) {
		at := place{before: math.MaxUint32}
		for k, id := range ids {
			at.k = k
			if p, ok := places[id]; ok && p != at {
				t.Fatalf("%s: request %d: id %d is at %v and at %v", name, i, id, p, at)
			}
			places[id] = at
			at.before = id
			bound = max(bound, id+1)
		}
	}
	if int(bound) != len(places) {
		t.Errorf("%s: %d ids below %d", name, len(places), bound)
	}
}

// Two full blocks of another size are the same exactly if their tokens and all
// before are.
func TestWithBlockSizeSharing(t *testing.T) {
	for seed := range uint64(20) {
		tr := randomTrace(seed, 60, 4)
		for _, size := range []int{1, 2, 4, 8, 12} {
			resized, err := tr.WithBlockSize(size)
			if err != nil {
				t.Fatal(err)
			}
			ids := newPairing[kv.BlockID](fmt.Sprintf("seed %d, blocks of %d", seed, size))
			for i := range tr.Requests {
				want, got := tr.Content(i, size), resized.Content(i, size)
				if got.Full() != want.Full() {
					t.Fatalf("%s: request %d has %d full blocks, want %d", ids.what, i, got.Full(), want.Full())
				}
				for k := range want.Full() {
					ids.pair(t, got.Block(k).ID, want.Block(k).ID)
				}
			}
		}
	}
}
