package simserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
)

// times are what an answer says about itself in virtual time, in milliseconds.
type times struct{ Arrival, First, End float64 }

func timesOf(t *testing.T, r response) times {
	t.Helper()
	if r.Times == nil {
		t.Fatalf("no times in %+v", r)
	}
	return times{r.Times.Arrival, r.Times.First, r.Times.End}
}

// drain posts to the drain route and returns the time and the count.
func drain(t *testing.T, s *Server) (now float64, completed int) {
	t.Helper()
	w := call(s, "POST", "/sim/drain", "")
	var got struct {
		Now       float64 `json:"now_ms"`
		Completed int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
		t.Fatalf("drain: status %d, %v in %s", w.Code, err, w.Body)
	}
	return got.Now, got.Completed
}

// sent is a request that waits for its answer.
type sent struct{ answer chan response }

// send sends a completion and returns when it waits.
func send(t *testing.T, s *Server, members string, headers ...string) sent {
	w := sent{make(chan response, 1)}
	go func() {
		w.answer <- unary(t, s, textPath, `{"prompt":"`+strings.Repeat("x", 20)+`",`+members+`}`, headers...)
	}()
	synctest.Wait()
	return w
}

func (w sent) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if len(w.answer) > 0 {
		t.Errorf("it was answered: %+v", <-w.answer)
	}
}

func (w sent) times(t *testing.T) times {
	t.Helper()
	synctest.Wait()
	if len(w.answer) == 0 {
		t.Fatal("it was not answered")
	}
	return timesOf(t, <-w.answer)
}

// TestClock sends requests with times of their own. A pass takes 90 ms for prompts
// and 10 ms for tokens.
func TestClock(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := newServer(t, modelled(Config{Clock: new(Clock)}, 90*ms, 10*ms))
		expect := func(what string, w sent, want times) {
			t.Helper()
			if diff := cmp.Diff(want, w.times(t)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}

		one := send(t, s, `"max_tokens":2,"nvext":{"request_timestamp_ms":1000}`)
		two := send(t, s, `"max_tokens":2,"nvext":{"request_timestamp_ms":1000}`)
		one.waits(t) // more may come at that time
		next := send(t, s, `"max_tokens":1,"nvext":{"request_timestamp_ms":1100.5}`)
		one.waits(t) // it has one token, the other would come at 1110
		late := send(t, s, `"max_tokens":1,"nvext":{"request_timestamp_ms":-3}`)
		timeless := send(t, s, `"max_tokens":1`)
		header := send(t, s, `"max_tokens":1`, "X-Request-Timestamp-Ms: 1110.25")
		expect("one", one, times{1000, 1100, 1110})
		expect("two", two, times{1000, 1100, 1110})
		next.waits(t)
		if now, completed := drain(t, s); now != 1310 || completed != 6 {
			t.Errorf("drained at %v with %d completed, want 1310 and 6", now, completed)
		}
		expect("next", next, times{1100.5, 1210, 1210})
		expect("late", late, times{1100.5, 1210, 1210})
		expect("timeless", timeless, times{1100.5, 1210, 1210})
		expect("header", header, times{1110.25, 1310, 1310})

		after := send(t, s, `"max_tokens":3,"nvext":{"request_timestamp_ms":2000},"stream":false`, "X-Request-Timestamp-Ms: 1")
		after.waits(t)
		if now, completed := drain(t, s); now != 2120 || completed != 7 {
			t.Errorf("drained again at %v with %d completed, want 2120 and 7", now, completed)
		}
		expect("after", after, times{2000, 2100, 2120})
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
		text := call(s, "GET", "/metrics", "").Body.String()
		for _, want := range []string{
			`vllm:e2e_request_latency_seconds_sum{engine="0",model_name="stator-sim"} 0.86825` + "\n",
			`vllm:inter_token_latency_seconds_sum{engine="0",model_name="stator-sim"} 0.04` + "\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, grep(text, "_sum"))
			}
		}
	})
}

// TestClockStream has the times in the last object of a stream, and the header at
// once, which tells a client that its request counts.
func TestClockStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, modelled(Config{Clock: new(Clock)}, 90*time.Millisecond, 10*time.Millisecond))
		_, client := serve(t, s)
		for i, usage := range []bool{false, true} {
			body := fmt.Sprintf(`{"prompt":"%d","max_tokens":3,"stream":true,"stream_options":{"include_usage":%v},"nvext":{"request_timestamp_ms":%d}}`, i, usage, 1000*i)
			resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			drain(t, s)
			all, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			events := strings.Split(strings.TrimSuffix(string(all), "data: [DONE]\n\n"), "\n\n")
			events = events[:len(events)-1]
			for k, e := range events {
				var r response
				if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &r); err != nil {
					t.Fatal(err)
				}
				if last := k == len(events)-1; last != (r.Times != nil) {
					t.Errorf("usage %v, event %d of %d: times %v", usage, k, len(events), r.Times)
				} else if last {
					if diff := cmp.Diff(times{float64(1000 * i), float64(1000*i) + 100, float64(1000*i) + 120}, timesOf(t, r)); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
			}
		}
	})
}

func TestClockErrors(t *testing.T) {
	virtual := newServer(t, modelled(Config{Clock: new(Clock)}, 0, 0))
	for _, tc := range []struct{ body, header, want string }{
		{`"nvext":{"request_timestamp_ms":"soon"}`, "", `nvext.request_timestamp_ms: expected a number of milliseconds, got \"soon\"`},
		{`"nvext":{"request_timestamp_ms":1e15}`, "", "nvext.request_timestamp_ms: expected a number of milliseconds, got 1e15"},
		{`"nvext":7`, "", "nvext: expected an object, got 7"},
		{`"n":1`, "soon", "X-Request-Timestamp-Ms: expected a number of milliseconds, got soon"},
		{`"n":1`, "NaN", "X-Request-Timestamp-Ms: expected a number of milliseconds, got NaN"},
	} {
		w := call(virtual, "POST", textPath, `{"prompt":"x",`+tc.body+`}`, "X-Request-Timestamp-Ms: "+tc.header)
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"`+tc.want+`"`) {
			t.Errorf("%s, %s: status %d: %s", tc.body, tc.header, w.Code, w.Body)
		}
	}
	wall := newServer(t, modelled(Config{}, 0, 0))
	if r := unary(t, wall, textPath, `{"prompt":"x","nvext":{"request_timestamp_ms":1e300}}`, "X-Request-Timestamp-Ms: soon"); r.Times != nil {
		t.Errorf("the wall clock is virtual: %+v", r)
	}
	if w := call(wall, "POST", "/sim/drain", ""); w.Code != 404 {
		t.Errorf("drain on the wall clock: status %d", w.Code)
	}
	if w := call(virtual, "GET", "/sim/drain", ""); w.Code != 405 {
		t.Errorf("GET of drain: status %d", w.Code)
	}
}

// TestClockIsDeterministic replays the same requests, sent one after another, on
// servers that share a clock, and compares every token, event and time. The second
// run has one processor.
func TestClockIsDeterministic(t *testing.T) {
	run := func() string {
		var log bytes.Buffer
		clock := new(Clock)
		var servers []*Server
		for i := range 3 {
			servers = append(servers, newServer(t, Config{
				Clock: clock, Worker: kv.WorkerID(i + 1), Ranks: 2, TotalBlocks: 300, Engine: &simengine.Config{MaxSeqs: 16},
				Events: func(b *kv.Batch) { fmt.Fprintf(&log, "%v %v %d %d\n", clock.now, b.Source, b.Seq, len(b.Events)) },
			}))
		}
		const requests = 300
		answers := make([]string, requests)
		done := make(chan struct{}, requests)
		for i := range requests {
			s := servers[i%len(servers)]
			body := fmt.Sprintf(`{"prompt":"%s","max_tokens":%d,"nvext":{"request_timestamp_ms":%v}}`, strings.Repeat(fmt.Sprint(i%7), 100+i*13%900), 1+i%50, float64(i+1)*3.7)
			go func() {
				headers := []string{"X-Request-Id: r"}
				if i%4 == 0 { // the others go where there is least to do
					headers = append(headers, fmt.Sprint("X-Data-Parallel-Rank: ", i/4%2))
				}
				answers[i] = call(s, "POST", textPath, body, headers...).Body.String()
				done <- struct{}{}
			}()
			for waiting := false; !waiting; runtime.Gosched() { // until it counts
				clock.mu.Lock()
				waiting = clock.now >= time.Duration(float64(i+1)*3.7e6)
				clock.mu.Unlock()
			}
		}
		if d, err := clock.Drain(t.Context(), requests); err != nil || d.Completed != requests || d.Accepted != requests {
			t.Fatalf("%+v, %v", d, err)
		}
		for range requests {
			<-done
		}
		for i := range answers {
			answers[i] = created.ReplaceAllString(answers[i], "")
		}
		return log.String() + strings.Join(answers, "\n")
	}
	first := run()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	second := run()
	if first != second {
		t.Errorf("two runs differ:\n%s", cmp.Diff(strings.Split(first, "\n"), strings.Split(second, "\n")))
	}
	if n := strings.Count(first, `"cached_tokens":0}`); n == 0 || n > 250 {
		t.Errorf("%d of 300 found nothing in the cache", n)
	}
}

// TestClockOrder sees the passes of several ranks come in the order of time.
func TestClockOrder(t *testing.T) {
	clock := new(Clock)
	var seen []time.Duration
	cfg := modelled(Config{Clock: clock, Ranks: 3, BlockSize: 2}, 7*time.Millisecond, 3*time.Millisecond)
	cfg.Events = func(*kv.Batch) { seen = append(seen, clock.now) }
	s := newServer(t, cfg)
	synctest.Test(t, func(t *testing.T) {
		for i := range 9 {
			go call(s, "POST", textPath, fmt.Sprintf(`{"prompt":"%d%d","max_tokens":20,"nvext":{"request_timestamp_ms":%d}}`, i, i, 4*i))
			synctest.Wait()
		}
		if _, completed := drain(t, s); completed != 9 {
			t.Errorf("%d completed", completed)
		}
	})
	if len(seen) < 30 || !slices.IsSorted(seen) {
		t.Errorf("%d batches, at %v", len(seen), seen)
	}
}

// BenchmarkClock is how much faster than time a server in virtual time is, with 64
// requests at a time and without a network. On two cores of a Xeon: 577×.
func BenchmarkClock(b *testing.B) {
	clock := new(Clock)
	s := newServer(b, Config{Clock: clock, Engine: &simengine.Config{}})
	body := []byte(`{"prompt":"` + strings.Repeat("x", 2000) + `","max_tokens":200,"ignore_eos":true}`)
	const parallel = 64
	for b.Loop() {
		done := make(chan struct{}, parallel)
		for range parallel {
			go func() {
				r, _ := http.NewRequest("POST", textPath, bytes.NewReader(body))
				s.ServeHTTP(&sink{header: http.Header{}}, r)
				done <- struct{}{}
			}()
		}
		for ended := 0; ended < parallel; {
			if _, err := clock.Drain(b.Context(), 0); err != nil {
				b.Fatal(err)
			}
			select {
			case <-done:
				ended++
			default:
				runtime.Gosched()
			}
		}
	}
	b.ReportMetric(float64(clock.now)/float64(b.Elapsed()), "×realtime")
}

// TestDrainWaits has a drain come before the requests it is for.
func TestDrainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, modelled(Config{Clock: new(Clock)}, 90*time.Millisecond, 10*time.Millisecond))
		drained := make(chan string, 1)
		go func() { drained <- call(s, "POST", "/sim/drain?requests=2", "").Body.String() }()
		synctest.Wait()
		first := send(t, s, `"max_tokens":1`)
		if len(drained) > 0 {
			t.Fatalf("drained after one request: %s", <-drained)
		}
		second := send(t, s, `"max_tokens":1,"nvext":{"request_timestamp_ms":4000000000000.000001}`)
		if got, want := <-drained, `{"now_ms":4000000000100,"accepted":2,"completed":2}`; got != want {
			t.Errorf("drained: %s, want %s", got, want)
		}
		<-first.answer
		<-second.answer
		if w := call(s, "POST", "/sim/drain?requests=some", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "requests: expected a number of requests") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1: "0.000001", 250500 * time.Microsecond: "250.5", 22452916: "22.452916",
		4e12*time.Millisecond + 22452916: "4000000000022.452916",
	} {
		if got := string(appendMillis(nil, d)); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}

// TestClockEvents sees what a pass stores become known when it ends, or when it
// begins if that was asked for.
func TestClockEvents(t *testing.T) {
	for early, want := range map[bool]time.Duration{false: 100 * time.Millisecond, true: 0} {
		clock := new(Clock)
		var seen []time.Duration
		cfg := modelled(Config{Vocabulary: Bytes, Clock: clock, BlockSize: 4, EarlyEvents: early}, 90*time.Millisecond, 10*time.Millisecond)
		cfg.Events = func(*kv.Batch) { seen = append(seen, clock.now) }
		s := newServer(t, cfg)
		synctest.Test(t, func(t *testing.T) {
			sent := send(t, s, `"max_tokens":1`)
			drain(t, s)
			<-sent.answer
		})
		if len(seen) != 1 || seen[0] != want {
			t.Errorf("early %v: events at %v, want one at %v", early, seen, want)
		}
	}
}

// TestDrainEnds: a drain does not wait for requests that cannot come any more.
func TestDrainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(Clock)
		s := newServer(t, modelled(Config{Clock: clock}, 90*time.Millisecond, 10*time.Millisecond))
		drained := make(chan int, 1)
		go func() { drained <- call(s, "POST", "/sim/drain?requests=1", "").Code }()
		synctest.Wait()
		clock.Close()
		if status := <-drained; status != 503 {
			t.Errorf("status %d, want 503", status)
		}
		if w := call(s, "POST", "/sim/drain", ""); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
