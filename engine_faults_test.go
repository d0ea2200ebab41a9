package stator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/nvext"
)

// outcomes counts what clients saw.
type outcomes struct {
	Whole  int // answers with nothing wrong
	Framed int // streams that ended with an error in a frame of its own
	Status map[int]int
	Broken int // answers that ended without a word
}

func (o *outcomes) add(h *heard) {
	switch {
	case h.err != nil, h.events != nil && !h.done && h.failure == "":
		o.Broken++
	case h.whole():
		o.Whole++
	case h.status == http.StatusOK && h.events != nil && h.failure != "" && h.done:
		o.Framed++
	default:
		if o.Status == nil {
			o.Status = make(map[int]int)
		}
		o.Status[h.status]++
	}
}

func (o outcomes) String() string {
	return fmt.Sprintf("%d whole, %d ended by an error frame, statuses %v, %d broken", o.Whole, o.Framed, o.Status, o.Broken)
}

// faulty is a fleet of two engines of which the first has a document, and something
// wrong with it.
func faulty(t *testing.T, d simserver.Dress, fault string, change func(*Config)) *testFleet {
	t.Helper()
	f := fleetOf(t, change, dress(t, d, nil), dress(t, d, nil))
	f.acquaint()
	if got := f.chat("at home", "first?", pinned(f.engines[0])); !got.whole() {
		t.Fatal(got)
	}
	f.settle()
	f.engines[0].fault(t, fault)
	return f
}

// healed ends the faults and sees that everything is as it should be: caches are known
// as they are, nothing is booked, and requests go where their blocks are.
func (f *testFleet) healed() {
	f.t.Helper()
	for _, e := range f.engines {
		e.sim.Heal("")
	}
	f.settle()
	for _, e := range f.engines {
		doc := fmt.Sprint("afterwards on ", e.id)
		for _, warm := range []bool{false, true} {
			ask := func() *heard {
				return f.chat(doc, "?", func(q map[string]any) {
					if !warm {
						pinned(e)(q)
					}
				})
			}
			got := ask()
			if !warm && got.status == http.StatusServiceUnavailable {
				// A probe that began before it was healed may have come back since.
				await(f.t, fmt.Sprintf("worker %d", e.id), func() error {
					if got = ask(); got.status == http.StatusServiceUnavailable {
						return errors.New("is not reachable")
					}
					return nil
				})
			}
			if !got.whole() || got.routing == nil || got.routing.Chosen.WorkerID != e.id || (got.cached() >= 16) != warm {
				f.t.Errorf("afterwards, on worker %d, warm %t: %v", e.id, warm, got)
			} else if n := *got.routing.PredictedCachedTokens; f.status(e.id).Info.Slots == 0 && n != got.cached() {
				f.t.Errorf("afterwards, on worker %d: %d tokens predicted and %d cached", e.id, n, got.cached())
			}
			f.settle()
		}
	}
}

// TestAnswersThatBreak has one engine spoil its answers in each way, and counts what
// clients saw that did not choose their engine. Requests come one after another: the
// engine that has the document gets them until it is known to fail.
func TestAnswersThatBreak(t *testing.T) {
	all := func(part func(outcomes) int) func(outcomes, int) bool {
		return func(o outcomes, n int) bool { return part(o) == n }
	}
	// Of the others, nobody need notice.
	some := func(part func(outcomes) int) func(outcomes, int) bool {
		return func(o outcomes, n int) bool { return part(o) >= 1 && part(o)+o.Whole == n }
	}
	whole := func(o outcomes) int { return o.Whole }
	framed := func(o outcomes) int { return o.Framed }
	status := func(code int) func(outcomes) int { return func(o outcomes) int { return o.Status[code] } }
	rows := []struct {
		fault         string
		shared        bool // all engines break in the same way
		stream, whole func(o outcomes, requests int) bool
	}{
		{"kill", false, some(status(502)), some(status(502))}, // which may have been too late to try elsewhere
		{"reset:3", false, some(framed), some(status(502))},
		{"half-close:3", true, some(framed), some(status(502))},
		{"hang:3", false, some(framed), some(status(504))},
		{"error:3", false, some(framed), all(status(500))},
		{"garble:3", true, some(framed), all(status(502))},
		{"status:500", false, all(status(500)), all(status(500))},
		{"status:503", true, all(whole), all(whole)}, // that is tried elsewhere
		{"context-length", false, all(status(400)), all(status(400))},
		{"refuse:10m", true, all(whole), all(whole)},
		{"loading:10m", false, all(whole), all(whole)},
	}
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		for _, row := range rows {
			if row.shared && d != simserver.DressVLLM {
				continue
			}
			for _, stream := range []bool{true, false} {
				name, want := row.fault+"/whole", row.whole
				if stream {
					name, want = row.fault+"/stream", row.stream
				}
				t.Run(name, func(t *testing.T) {
					watchLeaks(t)
					requests, hangs := 4, strings.HasPrefix(row.fault, "hang")
					f := faulty(t, d, row.fault, func(c *Config) {
						if hangs {
							requests, c.Limits.EngineIdleTimeout = 2, 250*time.Millisecond
						}
					})
					var saw outcomes
					for i := range requests {
						got := f.chat("at home", fmt.Sprint(i), func(q map[string]any) {
							if stream {
								streamed(q)
							}
							q["max_tokens"] = 12
						})
						if saw.add(got); saw.Broken > 0 {
							t.Fatal(got)
						}
					}
					if !want(saw, requests) {
						t.Errorf("clients saw %v", saw)
					}
					t.Logf("clients saw %v; %v tries elsewhere", saw, scrape(t, f.client, "stator_retries_total", ""))
					if d == simserver.DressTRTLLM && saw.Whole == requests {
						// It was gone. What it has told it does not tell again: let it be a
						// new one that comes back.
						f.engines[0].sim.Heal("")
						f.engines[0].restart()
					}
					f.healed()
				})
			}
		}
	})
}

// TestBreaker has an engine answer with errors although it says that it is well. After a
// few in a row it is left alone and the other one serves; when its time is over it has to
// show that it computes, and the first error is one too many.
func TestBreaker(t *testing.T) {
	watchLeaks(t)
	f := faulty(t, simserver.DressVLLM, "status:500:3", nil)
	burst := func(n int) (saw outcomes) {
		for i := range n {
			saw.add(f.chat("at home", fmt.Sprint(n, i), nil))
		}
		return saw
	}
	if saw := burst(12); saw.Whole != 9 || saw.Status[500] != 3 || f.status(1).Tripped {
		t.Errorf("of a short burst clients saw %v, tripped %t", saw, f.status(1).Tripped)
	}
	f.engines[0].fault(t, "status:500")
	if saw := burst(20); saw.Whole != 15 || saw.Status[500] != 5 {
		t.Errorf("clients saw %v", saw)
	}
	if st := f.status(1); st.State != nvext.StateInhibited || !st.Tripped {
		t.Errorf("it is %s, tripped %t", st.State, st.Tripped)
	}
	var list engineList
	f.get("/v1/engines", &list)
	if !hasWarning(&list.Data[0], router.WarnFails) || hasWarning(&list.Data[1], router.WarnFails) {
		t.Errorf("warnings %v and %v", list.Data[0].Warnings, list.Data[1].Warnings)
	}
	if n := scrape(t, f.client, "stator_engine_warning", fmt.Sprintf(`code=%q,worker_id="1"`, router.WarnFails)); n != 1 {
		t.Errorf("the warning is not among the metrics")
	}
	f.healed()
	f.engines[0].fault(t, "status:500")
	for range 3 { // on probation, that is enough
		if got := f.chat("at home", "?", pinned(f.engines[0])); got.status != http.StatusInternalServerError {
			t.Error(got)
		}
	}
	if saw := burst(12); saw.Whole != 12 || !f.status(1).Tripped {
		t.Errorf("after it failed again clients saw %v, tripped %t", saw, f.status(1).Tripped)
	}
}

// TestEngineDies kills one of two engines under requests of all kinds. Those that it had
// are lost, each with a word to its client; nobody else notices.
func TestEngineDies(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		a := dress(t, d, func(c *simserver.Config) {
			c.Engine.Timing = simengine.Fixed{PrefillTime: 100 * time.Millisecond, DecodeTime: 5 * time.Millisecond}
		})
		f := fleetOf(t, nil, a, dress(t, d, nil))
		if got := f.chat("at home", "?", pinned(a)); !got.whole() {
			t.Fatal(got)
		}
		f.settle()
		ask := func(change func(map[string]any), first func()) *heard {
			q := explained(essay("at home", 80), "?")
			q["model"], q["max_tokens"], q["ignore_eos"] = dressedModel, 5000, true
			pinned(a)(q)
			change(q)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return postContext(ctx, f.client, "http://stator/v1/chat/completions", q, first)
		}
		answers := make(chan *heard, 5)
		begun := make(chan struct{})
		go func() { answers <- ask(streamed, func() { close(begun) }) }()
		<-begun
		for range 2 {
			go func() { answers <- ask(streamed, nil) }()
			go func() { answers <- ask(func(map[string]any) {}, nil) }()
		}
		await(t, "all requests at the engine", func() error {
			if n := a.sim.Inflight(); n != 5 {
				return fmt.Errorf("%d requests", n)
			}
			return nil
		})
		a.kill()
		var saw outcomes
		for range 5 {
			saw.add(<-answers)
		}
		// Of the streams, those count as begun whose first token had come.
		if saw.Framed < 1 || saw.Framed > 3 || saw.Status[502] < 2 || saw.Framed+saw.Status[502] != 5 {
			t.Errorf("clients of the engine that died saw %v", saw)
		}
		saw = outcomes{}
		for i := range 10 {
			saw.add(f.chat("at home", fmt.Sprint(i), streamed))
		}
		if saw.Whole != 10 {
			t.Errorf("others saw %v", saw)
		}
		await(t, "it is gone", func() error {
			if st := f.status(1); st.State != router.StateGone {
				return fmt.Errorf("it is %s", st.State)
			}
			return nil
		})
		a.revive()
		f.healed()
	})
}

// TestRestartInPlace has an engine begin anew between two requests. What it held is not
// looked for there any more, and what it holds from then on is.
func TestRestartInPlace(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, nil), dress(t, d, nil))
		for i := range 4 {
			if got := f.chat(fmt.Sprint("document ", i), "?", pinned(f.engines[0])); !got.whole() {
				t.Fatal(got)
			}
		}
		f.settle()
		f.engines[0].restart()
		if d != simserver.DressLlamaCpp {
			f.settle()
		}
		stale := 0
		for i := range 8 {
			got := f.chat(fmt.Sprint("document ", i%4), fmt.Sprint(i), streamed)
			if !got.whole() {
				t.Fatal(got)
			}
			switch predicted := *got.routing.PredictedCachedTokens; {
			case d == simserver.DressLlamaCpp && got.cached() < predicted: // which nobody could know
				stale++
			case d != simserver.DressLlamaCpp && got.cached() != predicted:
				t.Errorf("request %d: %d tokens predicted and %d cached", i, predicted, got.cached())
			}
			if i >= 4 && got.cached() == 0 {
				t.Errorf("request %d, about what was asked before: nothing was cached", i)
			}
			f.settle()
		}
		if stale > 4 {
			t.Errorf("%d of 8 predictions came from before the restart", stale)
		}
		f.healed()
	})
}

// TestLostEvents loses every other batch of an engine's events. Where the past can be
// asked for, nothing is lost; where not, it is known that something is, and requests are
// served all the same. A restart makes all good.
func TestLostEvents(t *testing.T) {
	for _, row := range []struct {
		name   string
		replay bool
		faults []string
		want   []kvlink.State
	}{
		{"replay", true, nil, []kvlink.State{kvlink.Live}},
		{"no replay socket", false, nil, []kvlink.State{kvlink.Dirty}},
		{"history gone", true, []string{"replay-truncated:1"}, []kvlink.State{kvlink.Degraded, kvlink.Dirty}},
	} {
		t.Run(row.name, func(t *testing.T) {
			forDresses(t, func(t *testing.T, d simserver.Dress) {
				a := dress(t, d, func(c *simserver.Config) {
					if !row.replay {
						c.Publish.Replay = ""
					}
				})
				f := fleetOf(t, nil, a, dress(t, d, nil))
				for _, fault := range append(row.faults, "drop-events:2") {
					a.fault(t, fault)
				}
				for i := range 12 {
					if got := f.chat(fmt.Sprint("document ", i), "?", pinned(a)); !got.whole() {
						t.Fatal(got)
					}
				}
				a.sim.Heal(simserver.FaultDropEvents) // so that what comes shows what did not
				if got := f.chat("the last", "?", pinned(a)); !got.whole() {
					t.Fatal(got)
				}
				await(t, "the loss is known", func() error {
					l := f.link(1, 0)
					if l.Feed.Gaps == 0 || l.Feed.Missed == 0 {
						return fmt.Errorf("%d gaps, %d batches missed", l.Feed.Gaps, l.Feed.Missed)
					}
					for _, want := range row.want {
						if l.State == want {
							return nil
						}
					}
					return fmt.Errorf("the link is %s", l.State)
				})
				var list engineList
				f.get("/v1/engines", &list)
				if ev := list.Data[0].Events[0]; ev.Gaps == 0 || ev.Missed == 0 {
					t.Errorf("operators see %+v", ev)
				}
				if row.want[0] == kvlink.Live {
					f.settle()
				}
				for i := range 12 {
					got := f.chat(fmt.Sprint("document ", i), "again?", streamed)
					if !got.whole() {
						t.Fatal(got)
					}
					if p := *got.routing.PredictedCachedTokens; row.want[0] == kvlink.Live && (p != got.cached() || p == 0) || p > got.cached() {
						t.Errorf("document %d: %d tokens predicted and %d cached", i, p, got.cached())
					}
				}
				a.sim.Heal("")
				before := f.status(1).Ranks[0].Held
				a.restart()
				// Without a past to ask for, it shows with the first that is heard, and what
				// came before that is lost until the cache is emptied.
				n := 0
				await(t, "the new life is heard of", func() error {
					n++
					if got := f.chat(fmt.Sprint("after the restart ", n), "?", pinned(a)); !got.whole() {
						return fmt.Errorf("%v", got)
					}
					if held := f.status(1).Ranks[0].Held; held == before {
						return fmt.Errorf("%d blocks are known as before", held)
					}
					return nil
				})
				flush := map[simserver.Dress]string{simserver.DressVLLM: "/reset_prefix_cache", simserver.DressSGLang: "/flush_cache"}
				if got := post(http.DefaultClient, a.url()+flush[d], nil); got.status != http.StatusOK {
					t.Fatal(got)
				}
				f.healed()
			}, simserver.DressVLLM, simserver.DressSGLang)
		})
	}
}

// TestEventFormats has engines publish as each release does, with a cache so small that
// blocks have to go, and with what may be strange about events.
func TestEventFormats(t *testing.T) {
	faults := []string{"", "duplicate-stores", "group-events", "bytes-hash"}
	for _, format := range simserver.EventFormats() {
		d := simserver.Dress(format[:strings.IndexByte(format+"-", '-')])
		for _, fault := range faults {
			if fault != "" && format != "vllm-0.22" && format != "vllm-0.26" {
				continue // the last whose events are arrays, and the last
			}
			t.Run(strings.TrimSuffix(format+" "+fault, " "), func(t *testing.T) {
				watchLeaks(t)
				e := dress(t, d, func(c *simserver.Config) {
					c.Publish.Format = format
					c.TotalBlocks = 48
				})
				if fault != "" {
					e.fault(t, fault)
				}
				f := fleetOf(t, nil, e)
				f.acquaint()
				for i, doc := range []int{0, 0, 1, 2, 1, 3, 3, 4, 0, 4, 2, 2, 1, 3, 0, 0} {
					got := f.chat(fmt.Sprint("document ", doc), fmt.Sprint(i), streamed)
					if !got.whole() {
						t.Fatal(got)
					}
					if p := *got.routing.PredictedCachedTokens; p != got.cached() {
						t.Errorf("request %d: %d tokens predicted and %d cached", i, p, got.cached())
					}
					for doc := range 5 {
						f.knows(e, fmt.Sprint("document ", doc))
					}
				}
				f.settle()
				if n := e.truth.Stats().Applied[kv.Removed][kv.Device]; n < 30 {
					t.Errorf("%d blocks were removed from a cache that holds three prompts of five", n)
				}
			})
		}
	}
}

// TestHundredRestarts restarts two engines in turn, with requests in between. All of
// them are answered, and what is known of the caches is right at the end, and whenever
// it has time to settle.
func TestHundredRestarts(t *testing.T) {
	forDresses(t, func(t *testing.T, d simserver.Dress) {
		f := fleetOf(t, nil, dress(t, d, nil), dress(t, d, nil))
		var saw outcomes
		for i := range 100 {
			saw.add(f.chat(fmt.Sprint("document ", i%7), fmt.Sprint(i), nil))
			f.engines[i%2].restart()
			if i%50 == 49 && d != simserver.DressLlamaCpp {
				f.settle()
			}
		}
		if saw.Whole != 100 {
			t.Errorf("clients saw %v", saw)
		}
		f.healed()
	})
}

// TestChaos has engines of all kinds fail in all ways at once while clients go on. Every
// client gets an answer or a word, and afterwards everything is as it should be.
func TestChaos(t *testing.T) {
	watchLeaks(t)
	var engines []*dressed
	for _, d := range simserver.Dresses() {
		engines = append(engines, dress(t, simserver.Dress(d), func(c *simserver.Config) {
			c.Engine.Timing = simengine.Fixed{PrefillTime: time.Millisecond, DecodeTime: 200 * time.Microsecond}
		}))
	}
	f := fleetOf(t, func(c *Config) { c.Limits.EngineIdleTimeout = 500 * time.Millisecond }, engines...)
	const lasts = 1500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		saw outcomes
	)
	for client := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for ctx.Err() == nil {
				q := explained(essay(fmt.Sprint("document ", rng.IntN(8)), 60), fmt.Sprint(rng.IntN(4)))
				q["model"], q["max_tokens"] = dressedModel, 1+rng.IntN(40)
				if rng.IntN(2) == 0 {
					streamed(q)
				}
				leave, gone := context.WithTimeout(t.Context(), patience)
				if rng.IntN(8) == 0 {
					leave, gone = context.WithTimeout(t.Context(), time.Duration(rng.IntN(5000))*time.Microsecond)
				}
				got := postContext(leave, f.client, "http://stator/v1/chat/completions", q, nil)
				if leave.Err() == nil {
					mu.Lock()
					if saw.add(got); saw.Broken > 0 {
						t.Errorf("an answer ended without a word: %v", got)
						cancel()
					}
					mu.Unlock()
				}
				gone()
			}
		})
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 99))
		faults := []string{"kill:3", "reset:2:3", "half-close:2:3", "hang:2:5", "error:2:3", "garble:1:3", "status:503:2", "status:500:2", "refuse:30ms", "loading:30ms", "drop-events:3"}
		for ctx.Err() == nil {
			e := engines[rng.IntN(len(engines))]
			switch n := rng.IntN(2 * len(faults)); {
			case n < len(faults):
				e.fault(t, faults[n])
			case n == len(faults):
				e.restart()
			default:
				e.sim.Heal("")
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	wg.Wait()
	t.Logf("clients saw %v", saw)
	if saw.Whole == 0 {
		t.Error("nobody was served")
	}
	// Those that failed too often would be left alone for long; taken up anew they are not.
	var list []EngineConfig
	for _, e := range engines {
		e.sim.Heal("")
		list = append(list, e.config())
	}
	if err := f.srv.SetEngines(nil); err != nil {
		t.Fatal(err)
	}
	engines[3].restart() // which tells everything once
	if err := f.srv.SetEngines(list); err != nil {
		t.Fatal(err)
	}
	f.settle()
	f.acquaint()
	f.healed()
}
