package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/internal/trace/tracetest"
	"github.com/stator-ai/stator/nvext"
)

// long leaves out tests of hours of traffic where the race detector would make
// minutes of them. There is one goroutine in them; make test runs them without.
func long(t *testing.T) {
	if raceDetector {
		t.Skip("takes minutes under the race detector, seconds without")
	}
}

// roundRobin takes no notice of caches.
var roundRobin = router.Config{Mode: router.RoundRobin}

// TestReference replays the conversation trace round robin under the rules and
// timing of Dynamo's mock engine and finds what another program that follows the
// same rules found.
func TestReference(t *testing.T) {
	long(t)
	for _, tc := range []struct {
		engines     int
		speed       float64
		want        string // TTFT mean/p50/p99 ms, E2E mean s, reuse
		preemptions int
	}{
		{4, 1, "520/357/2620 4.09 0.0821", 0},
		{4, 3, "2950/1417/15338 28.3 0.0801", 68},
		{8, 4, "479/275/2811 9.06 0.0814", 0},
	} {
		t.Run(fmt.Sprintf("conversation %d, %v×", tc.engines, tc.speed), func(t *testing.T) {
			tr := tracetest.Conversation(t)
			if err := tr.Speed(tc.speed, tc.speed); err != nil {
				t.Fatal(err)
			}
			rep, err := Run(t.Context(), Config{
				Engines: tc.engines,
				Engine:  simengine.Config{Rules: simengine.MockerGated, Timing: simengine.MockerPolynomial},
				Router:  roundRobin,
			}, tr)
			if err != nil {
				t.Fatal(err)
			}
			e2e := fmt.Sprintf("%.2f", rep.E2E.Mean/1000)
			if rep.E2E.Mean > 10_000 {
				e2e = fmt.Sprintf("%.1f", rep.E2E.Mean/1000)
			}
			got := fmt.Sprintf("%.0f/%.0f/%.0f %s %.4f", rep.TTFT.Mean, rep.TTFT.Median, rep.TTFT.P99, e2e, rep.Reuse())
			if got != tc.want || rep.Preemptions != tc.preemptions {
				t.Errorf("got %s with %d preemptions, want %s with %d", got, rep.Preemptions, tc.want, tc.preemptions)
			}
			if rep.Completed != 12031 || rep.Input != 144_793_823 || rep.Output != 4_122_048 {
				t.Errorf("%d requests, %d tokens in, %d out", rep.Completed, rep.Input, rep.Output)
			}
		})
	}
}

// TestIdealReuse gives engines more blocks than they can fill: what round robin
// finds in the caches is then a property of the trace alone.
func TestIdealReuse(t *testing.T) {
	long(t)
	for size, want := range map[int]string{64: "0.195565", 512: fmt.Sprintf("%.6f", 55290*512/144_793_823.0)} {
		rep, err := Run(t.Context(), Config{
			Engines: 4,
			Engine:  simengine.Config{Rules: simengine.Mocker, Timing: simengine.MockerPolynomial, BlockSize: size, Blocks: 1 << 26 / size},
			Router:  roundRobin,
		}, tracetest.Conversation(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%.6f", rep.Reuse()); got != want {
			t.Errorf("blocks of %d: reuse %s, want %s", size, got, want)
		}
	}
}

// small is a trace with sessions, bursts and shared prefixes.
func small(seed uint64, n int) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 3))
	tr := &trace.Trace{BlockSize: 512}
	var at time.Duration
	id := uint32(100)
	for i := range n {
		if rng.IntN(3) > 0 {
			at += time.Duration(rng.IntN(200)) * time.Millisecond
		}
		q := trace.Request{Arrival: at, Input: 1 + rng.IntN(6000), Output: 1 + rng.IntN(80)}
		group := uint32(rng.IntN(8))
		for b := range (q.Input + 511) / 512 {
			if b < 4 {
				q.Blocks = append(q.Blocks, group*4+uint32(b))
			} else {
				q.Blocks = append(q.Blocks, id)
				id++
			}
		}
		if i%3 == 1 {
			q.Session = fmt.Sprint("s", i/3)
		}
		if i%3 == 2 {
			q.Session, q.Follows, q.Delay = fmt.Sprint("s", i/3), true, time.Duration(rng.IntN(3000))*time.Millisecond
		}
		tr.Requests = append(tr.Requests, q)
	}
	return tr
}

// TestDeterminism compares the logs of every decision, token and cache event.
func TestDeterminism(t *testing.T) {
	warm := sched.DefaultCost()
	warm.Temperature = 0.5
	const n = 150
	procs := []int{2, 8}
	if raceDetector {
		procs = procs[1:]
	}
	for _, tc := range []struct {
		name   string
		router router.Config
		chance bool // decides often enough for another seed to show
	}{
		{"power of two", router.Config{Mode: router.PowerOfTwo}, true},
		{"kv", router.Config{Mode: router.KV}, true}, // between equal costs
		{"kv, temperature 0.5", router.Config{Mode: router.KV, KV: router.KVConfig{Cost: &warm}}, true},
		{"kv, queue", router.Config{Mode: router.KV, Queue: queueAt(4000)}, true},
		{"kv, queue, temperature 0.5", router.Config{Mode: router.KV, KV: router.KVConfig{Cost: &warm}, Queue: queueAt(4000)}, true},
		{"kv without events", router.Config{Mode: router.KV, KV: router.KVConfig{NoEvents: true, TrackOutput: true}}, true},
		{"round robin, queue", router.Config{Mode: router.RoundRobin, Queue: queueAt(4000)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := func(procs int, seed uint64) string {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				var log bytes.Buffer
				cfg := Config{
					Engines: 3, Ranks: 2, Log: &log, KnownOutput: true, Router: tc.router,
					Engine: simengine.Config{Blocks: 400, BlockSize: 16, Draft: 2},
				}
				cfg.Router.Seed = seed
				tr := small(1, n)
				if err := tr.Speed(20, 20); err != nil {
					t.Fatal(err)
				}
				rep, err := Run(t.Context(), cfg, tr)
				if err != nil {
					t.Fatal(err)
				}
				if rep.Completed != n {
					t.Errorf("%d requests completed, want all %d", rep.Completed, n)
				}
				if cfg.Router.Queue == nil && rep.Preemptions == 0 || cfg.Router.Queue != nil && rep.Wait.Mean < 1 {
					t.Error("neither preemption nor waiting: the load is too light to tell anything")
				}
				fmt.Fprintf(&log, "%+v", *rep)
				return log.String()
			}
			first := run(1, 42)
			for _, procs := range procs {
				if again := run(procs, 42); again != first {
					t.Fatalf("with GOMAXPROCS %d the log differs:\n%s", procs, cmp.Diff(strings.Split(first, "\n"), strings.Split(again, "\n")))
				}
			}
			if same := run(1, 43) == first; same == tc.chance {
				t.Errorf("another seed, and all is the same: %v, want %v", same, !tc.chance)
			}
		})
	}
}

// TestDeterminismLong does the same for a quarter of the conversation trace in mode
// kv, by the hash of its log.
func TestDeterminismLong(t *testing.T) {
	long(t)
	var sums [2]uint64
	for i := range sums {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1 + i))
		h := fnv.New64a()
		tr := tracetest.Conversation(t)
		tr.Requests = tr.Requests[:3000]
		if _, err := Run(t.Context(), Config{Engines: 4, Log: h}, tr); err != nil {
			t.Fatal(err)
		}
		sums[i] = h.Sum64()
	}
	if sums[0] != sums[1] {
		t.Errorf("logs hash to %x and %x", sums[0], sums[1])
	}
}

// ledger takes in cache events and keeps what each rank holds.
type ledger struct {
	t    *testing.T
	held map[kv.Source]map[kv.BlockID]int
	seq  map[kv.Source]uint64
}

func (l *ledger) Apply(b *kv.Batch) error {
	if b.Seq != l.seq[b.Source] {
		l.t.Errorf("batch %d of %v, expected %d", b.Seq, b.Source, l.seq[b.Source])
	}
	l.seq[b.Source]++
	held := l.held[b.Source]
	if held == nil {
		held = map[kv.BlockID]int{}
		l.held[b.Source] = held
	}
	for _, ev := range b.Events {
		if ev.Kind == kv.Stored && ev.HasParent && held[ev.Parent] == 0 {
			l.t.Errorf("%v: block behind %d, which is not there", b.Source, ev.Parent)
		}
		for _, bl := range ev.Blocks {
			if ev.Kind == kv.Stored {
				held[bl.ID]++
			} else if held[bl.ID]--; held[bl.ID] == 0 {
				delete(held, bl.ID)
			} else if held[bl.ID] < 0 {
				l.t.Errorf("%v: removed %d, which is not there", b.Source, bl.ID)
			}
		}
	}
	return nil
}

// TestEvents sees that whoever hears all events knows what is found in a cache
// before the engine does.
func TestEvents(t *testing.T) {
	for _, early := range []bool{false, true} {
		l := &ledger{t: t, held: map[kv.Source]map[kv.BlockID]int{}, seq: map[kv.Source]uint64{}}
		tr := small(2, 200)
		// One after another, so that nothing changes between prediction and
		// admission.
		for i := range tr.Requests {
			tr.Requests[i].Arrival = time.Duration(i) * time.Minute
			tr.Requests[i].Session, tr.Requests[i].Follows = "", false
		}
		var predicted []int
		cfg := Config{Engines: 2, Engine: simengine.Config{Blocks: 1200, BlockSize: 16}, EarlyEvents: early, Router: roundRobin}
		cfg.Events = applierFunc(func(b *kv.Batch) error { return l.Apply(b) })
		rep, err := Run(t.Context(), cfg, tr)
		if err != nil {
			t.Fatal(err)
		}
		// The same once more, request by request, against the ledger of the run
		// up to there.
		l = &ledger{t: t, held: map[kv.Source]map[kv.BlockID]int{}, seq: map[kv.Source]uint64{}}
		cfg.Log = lineWriter(func(line string) {
			var i int
			var worker uint64
			if n, _ := fmt.Sscanf(line[strings.IndexByte(line, ' ')+1:], "place %d on %d/", &i, &worker); n == 2 {
				content := tr.Content(i, 16)
				k := 0
				for k < (tr.Requests[i].Input-1)/16 && l.held[kv.Source{Worker: kv.WorkerID(worker)}][content.Block(k).ID] > 0 {
					k++
				}
				predicted = append(predicted, k*16)
			}
		})
		again, err := Run(t.Context(), cfg, tr)
		if err != nil {
			t.Fatal(err)
		}
		var actual []int
		for _, r := range again.Results {
			actual = append(actual, r.Cached)
		}
		if diff := cmp.Diff(predicted, actual); diff != "" {
			t.Errorf("early %v: cached tokens (-by events +by the engine):\n%s", early, diff)
		}
		if diff := cmp.Diff(rep.Results, again.Results); diff != "" {
			t.Errorf("early %v: a log changes the results:\n%s", early, diff)
		}
		if rep.Reuse() < 0.1 {
			t.Errorf("reuse %v is too little to tell anything", rep.Reuse())
		}
	}
}

type applierFunc func(*kv.Batch) error

func (f applierFunc) Apply(b *kv.Batch) error { return f(b) }

// lineWriter gets a log line by line; each comes in one write.
type lineWriter func(string)

func (w lineWriter) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}

// fixed is an engine whose passes take the same time whatever is in them.
func fixed(prefill, decode time.Duration) simengine.Config {
	return simengine.Config{Timing: simengine.Fixed{PrefillTime: prefill, DecodeTime: decode}}
}

func TestTimes(t *testing.T) {
	tr := &trace.Trace{BlockSize: 512, Requests: []trace.Request{
		{Arrival: 100 * time.Millisecond, Input: 10, Output: 3, Blocks: []uint32{0}, Session: "a"},
		{Arrival: 105 * time.Millisecond, Input: 10, Output: 1, Blocks: []uint32{1}},
		{Arrival: 0, Input: 10, Output: 2, Blocks: []uint32{2}, Session: "a", Follows: true, Delay: time.Second},
	}}
	rep, err := Run(t.Context(), Config{Engines: 1, Engine: fixed(10*time.Millisecond, time.Millisecond)}, tr)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := []Result{
		// A prompt and its first token take 11 ms; the next pass computes the
		// second request's prompt as well.
		{Arrived: 100 * ms, Placed: 100 * ms, Verdict: nvext.VerdictNoReuse, Worker: 1, Admitted: 100 * ms, First: 111 * ms, Second: 122 * ms, Last: 123 * ms, Output: 3, Done: true},
		{Arrived: 105 * ms, Placed: 105 * ms, Verdict: nvext.VerdictNoReuse, Worker: 1, Admitted: 111 * ms, First: 122 * ms, Last: 122 * ms, Output: 1, Done: true},
		// A second after the answer to the one it follows.
		{Arrived: 1123 * ms, Placed: 1123 * ms, Verdict: nvext.VerdictNoReuse, Worker: 1, Admitted: 1123 * ms, First: 1134 * ms, Second: 1135 * ms, Last: 1135 * ms, Output: 2, Done: true},
	}
	if diff := cmp.Diff(want, rep.Results); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rep.TTFT.Min != 11 || rep.TTFT.Max != 17 || rep.E2E.Max != 23 || rep.ITL.Max != 11 || rep.ITL.Min != 1 || rep.TPOT.Max != 6 || rep.Duration != 1135*ms {
		t.Errorf("report %+v", rep)
	}
}

// TestSlow has passes of one of two ranks take twice as long from an instant on.
func TestSlow(t *testing.T) {
	ms := time.Millisecond
	request := func(arrival time.Duration) trace.Request {
		return trace.Request{Arrival: arrival, Input: 10, Output: 1, Blocks: []uint32{0}}
	}
	tr := &trace.Trace{BlockSize: 512, Requests: []trace.Request{request(0), request(20 * ms), request(40 * ms), request(80 * ms)}}
	rep, err := Run(t.Context(), Config{
		Engines: 2, Engine: fixed(10*ms, ms), Router: roundRobin,
		Slow: func(rank kv.Source, now time.Duration) float64 {
			if rank.Worker == 1 && now >= 40*ms {
				return 2
			}
			return 1
		},
	}, tr)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{11 * ms, 11 * ms, 22 * ms, 11 * ms} {
		if r := &rep.Results[i]; r.First-r.Arrived != want {
			t.Errorf("request %d on %d: %v, want %v", i, r.Worker, r.First-r.Arrived, want)
		}
	}
}

// TestEventTimes: what a pass stores is known when it ends, or when it begins if
// that was asked for.
func TestEventTimes(t *testing.T) {
	for early, want := range map[bool]string{false: "11000000", true: "0"} {
		var log strings.Builder
		cfg := Config{Engines: 1, Log: &log, EarlyEvents: early, Engine: fixed(10*time.Millisecond, time.Millisecond)}
		cfg.Engine.BlockSize = 4
		tr := &trace.Trace{BlockSize: 4, Requests: []trace.Request{{Input: 8, Output: 1, Blocks: []uint32{0, 1}}}}
		if _, err := Run(t.Context(), cfg, tr); err != nil {
			t.Fatal(err)
		}
		var at []string
		for line := range strings.Lines(log.String()) {
			if time, what, _ := strings.Cut(line, " "); strings.HasPrefix(what, "cache of 1/0") {
				at = append(at, time)
			}
		}
		if diff := cmp.Diff([]string{want}, at); diff != "" {
			t.Errorf("early %v: times of events (-want +got):\n%s", early, diff)
		}
	}
}

// TestRouterIsTold: the router hears of first tokens, of growing answers and of
// their end, in their time.
func TestRouterIsTold(t *testing.T) {
	prefill, blocks := uint64(5), 0.5
	at := func(ms int, input, output int, id uint32) trace.Request {
		return trace.Request{Arrival: time.Duration(ms) * time.Millisecond, Input: input, Output: output, Blocks: []uint32{id}}
	}
	for _, tc := range []struct {
		name       string
		thresholds router.Thresholds
		requests   []trace.Request
		placed     []bool
	}{
		// A prompt of 10 tokens is too much beside another, until its first token
		// at 11 ms.
		{"first token", router.Thresholds{PrefillTokens: &prefill},
			[]trace.Request{at(0, 10, 50, 0), at(10, 10, 1, 1), at(12, 10, 1, 2)}, []bool{true, false, true}},
		// Of 8 blocks of 4 tokens, 3 are in use at first. After 10 tokens, at
		// 20 ms, it is more than half. The answer is complete at 25 ms.
		{"output", router.Thresholds{DecodeBlocks: &blocks},
			[]trace.Request{at(0, 10, 15, 0), at(15, 1, 1, 1), at(22, 1, 1, 2), at(26, 1, 1, 3)}, []bool{true, true, false, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Engines: 1, Engine: fixed(10*time.Millisecond, time.Millisecond), Router: router.Config{Mode: router.RoundRobin, Thresholds: tc.thresholds}}
			cfg.Engine.BlockSize, cfg.Engine.Blocks = 4, 8
			rep, err := Run(t.Context(), cfg, &trace.Trace{BlockSize: 512, Requests: tc.requests})
			if err != nil {
				t.Fatal(err)
			}
			var placed []bool
			for _, r := range rep.Results {
				placed = append(placed, r.Worker != 0)
			}
			if diff := cmp.Diff(tc.placed, placed); diff != "" {
				t.Errorf("placed (-want +got):\n%s\n%+v", diff, rep.Results)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	busy := uint64(5)
	var large []uint32
	for id := range uint32(107) {
		large = append(large, 2+id)
	}
	rep, err := Run(t.Context(), Config{
		Engines: 1, Engine: simengine.Config{Blocks: 100, BlockSize: 16},
		Router: router.Config{Thresholds: router.Thresholds{PrefillTokens: &busy}},
	}, &trace.Trace{BlockSize: 16, Requests: []trace.Request{
		{Input: 10, Output: 2, Blocks: []uint32{0}},
		{Input: 10, Output: 2, Blocks: []uint32{1}},                 // at the same time
		{Arrival: time.Hour, Input: 1700, Output: 2, Blocks: large}, // more than the cache holds
	}})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Completed != 1 || rep.Refused != 1 || rep.Rejected != 1 || rep.Results[1].Worker != 0 || rep.Results[2].Worker != 1 {
		t.Errorf("%+v", rep)
	}
}

func TestErrors(t *testing.T) {
	tr := small(1, 3)
	for _, tc := range []struct {
		cfg  Config
		tr   *trace.Trace
		want string
	}{
		{Config{}, tr, "replay: engines: expected at least 1, got 0"},
		{Config{Engines: 1}, &trace.Trace{}, "replay: no requests"},
		{Config{Engines: 1, Engine: simengine.Config{Role: simengine.Prefill}}, tr, "replay: role: expected aggregated, got prefill"},
		{Config{Engines: 1, Engine: simengine.Config{Blocks: -1}}, tr, "replay: simengine: blocks: expected at least 1, got -1"},
	} {
		if _, err := Run(t.Context(), tc.cfg, tc.tr); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %q", err, tc.want)
		}
	}
	full := errors.New("full")
	cfg := Config{Engines: 1, Events: applierFunc(func(*kv.Batch) error { return full })}
	if _, err := Run(t.Context(), cfg, tr); !errors.Is(err, full) {
		t.Errorf("error %v, want that of the receiver of events", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Config{Engines: 1}, tr); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

func TestDescribe(t *testing.T) {
	t.Run("percentiles of 0,1,1,2.5,4,4,7.25,9.5,15,22,22,100", func(t *testing.T) {
		var values []time.Duration
		var s sketch
		for _, v := range []float64{22, 0, 1, 2.5, 4, 100, 4, 7.25, 9.5, 1, 15, 22} {
			d := time.Duration(v * float64(time.Millisecond))
			values = append(values, d)
			s.add(d)
		}
		want := Dist{Mean: 15.6875, Std: 26.493538, Min: 0, Median: 7.25, P75: 15, P90: 22, P95: 22, P99: 100, Max: 100}
		near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
		for name, got := range map[string]Dist{"sorted": Describe(values), "sketch": s.dist()} {
			if diff := cmp.Diff(want, got, near); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
	t.Run("empty", func(t *testing.T) {
		var s sketch
		if Describe(nil) != (Dist{}) || s.dist() != (Dist{}) {
			t.Error("not all zero")
		}
	})
	t.Run("sketch is within 0.1 %", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		var values []time.Duration
		var s sketch
		for range 20_000 {
			d := time.Duration(math.Exp(rng.NormFloat64()*3 + 16))
			values = append(values, d)
			s.add(d)
		}
		exact, got := Describe(values), s.dist()
		if diff := cmp.Diff(exact, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 0.001*math.Abs(a) })); diff != "" {
			t.Errorf("(-exact +sketch):\n%s", diff)
		}
	})
}

// TestTokenTimes: token times 10, 11, 12, 110, arrival 0.
func TestTokenTimes(t *testing.T) {
	rep, err := Run(t.Context(), Config{Engines: 1, Engine: simengine.Config{Timing: &script{10, 1, 1, 98}}},
		&trace.Trace{BlockSize: 512, Requests: []trace.Request{{Input: 1, Output: 4, Blocks: []uint32{0}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		got, want float64
	}{
		{"TPOT", rep.TPOT.Mean, 100.0 / 3}, {"ITL mean", rep.ITL.Mean, 100.0 / 3}, {"ITL median", rep.ITL.Median, 1},
		{"ITL p75", rep.ITL.P75, 98}, {"ITL max", rep.ITL.Max, 98}, {"TTST", rep.TTST.Mean, 1}, {"TTFT", rep.TTFT.Mean, 10},
	} {
		if math.Abs(tc.got-tc.want) > 1e-5 {
			t.Errorf("%s = %v, want %v", tc.name, tc.got, tc.want)
		}
	}
}

// script is a timing that has the times of passes written down.
type script []float64

func (s *script) Prefill(*simengine.Batch) float64 { return 0 }

func (s *script) Decode(*simengine.Batch) float64 {
	first := (*s)[0]
	*s = (*s)[1:]
	return first
}

// TestTies: of what is due at one instant, what is first in the trace is placed
// first, be it the next turn of a session or the start of another.
func TestTies(t *testing.T) {
	var log strings.Builder
	_, err := Run(t.Context(), Config{Engines: 2, Log: &log, Engine: fixed(0, time.Millisecond), Router: roundRobin}, &trace.Trace{BlockSize: 512, Requests: []trace.Request{
		{Input: 1, Output: 1, Blocks: []uint32{0}, Session: "a"},
		{Input: 1, Output: 1, Blocks: []uint32{1}, Session: "a", Follows: true, Delay: 10 * time.Millisecond},
		{Arrival: 11 * time.Millisecond, Input: 1, Output: 1, Blocks: []uint32{2}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if second, third := strings.Index(log.String(), "11000000 place 1 on 2/0"), strings.Index(log.String(), "11000000 place 2 on 1/0"); second < 0 || third < second {
		t.Errorf("log:\n%s", &log)
	}
}

// TestContextInAnInstant has an engine for which no time passes, and more to do
// than anybody waits for.
func TestContextInAnInstant(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := Run(ctx, Config{
		Engines: 1, Engine: simengine.Config{Timing: simengine.Fixed{}, Blocks: 1 << 22},
		Log: lineWriter(func(string) {
			if n++; n == 3 {
				cancel()
			}
		}),
	}, &trace.Trace{BlockSize: 512, Requests: []trace.Request{{Input: 1, Output: 1 << 24, Blocks: []uint32{0}}}})
	if !errors.Is(err, context.Canceled) || n > 5000 {
		t.Errorf("%v after %d lines, want that of the context", err, n)
	}
}
