package trace_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	got, err := tr.WithBlockSize(8)
	if err != nil {
		t.Fatal(err)
	}
	var ids [][]uint32
	for _, r := range got.Requests {
		ids = append(ids, r.Blocks)
	}
	want := [][]uint32{{0, 1}, {0, 2}, {0, 3}, {0, 3}, {4, 5}, {0}}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.BlockSize != 8 || tr.BlockSize != 4 || len(tr.Requests[0].Blocks) != 4 {
		t.Error("the original changed")
	}
	for _, size := range []int{-8, 0, 2, 6, 9} {
		if _, err := tr.WithBlockSize(size); err == nil {
			t.Errorf("%d is taken", size)
		}
	}
}

// Larger blocks have the hits that tokens would have.
func TestWithBlockSizeSharing(t *testing.T) {
	for seed := range uint64(20) {
		tr := randomTrace(seed, 60, 4)
		merged, err := tr.WithBlockSize(12)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tr.Requests {
			small, large := tr.Content(i, 12), merged.Content(i, 12)
			for j := range i {
				other, otherLarge := tr.Content(j, 12), merged.Content(j, 12)
				for k := range min(small.Full(), other.Full()) {
					if a, b := small.Block(k).ID == other.Block(k).ID, large.Block(k).ID == otherLarge.Block(k).ID; a != b {
						t.Fatalf("seed %d: block %d of requests %d and %d: shared %v, merged %v", seed, k, i, j, a, b)
					}
				}
			}
		}
	}
}
