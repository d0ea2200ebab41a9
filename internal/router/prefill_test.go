package router

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// wantPrefill fails unless so many tokens are to be computed after a while.
func wantPrefill(t *testing.T, m *Model, after time.Duration, want int) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got := loads(m).prefillTokens; got != want {
		t.Errorf("%v later: %d tokens to compute, want %d", after, got, want)
	}
}

// TestWholeAnswers: the prompt of an answer that comes at once counts as computed after
// as long as it should take, with all that is to be computed before it.
func TestWholeAnswers(t *testing.T) {
	for _, mode := range []Mode{KV, RoundRobin} {
		synctest.Test(t, func(t *testing.T) {
			r, m := crew(t, Config{Mode: mode}, Spec{})
			whole := func(tokens int) *Placement {
				return mustPlace(t, r, &Request{Model: m, PromptTokens: tokens, Whole: true})
			}
			a, b := whole(8000), whole(4000) // at 8000 tokens a second
			streamed := mustPlace(t, r, &Request{Model: m, PromptTokens: 100})
			wantPrefill(t, m, time.Second-time.Millisecond, 12_100)
			wantPrefill(t, m, time.Millisecond, 4100)
			wantPrefill(t, m, 500*time.Millisecond, 100)
			wantPrefill(t, m, time.Hour, 100)
			if got := loads(m); got.inflight != 3 || got.activeBlocks == 0 {
				t.Errorf("%+v booked while they run", got)
			}
			for _, p := range []*Placement{a, b, streamed} {
				p.Done(Completed)
			}
			// However long a prompt, it takes no more than a minute.
			long := whole(100_000_000)
			wantPrefill(t, m, time.Minute-time.Millisecond, 100_000_000)
			wantPrefill(t, m, time.Millisecond, 0)
			long.Done(Completed)
			idle(t, r, m)
		})
	}
}

// TestSpeedIsLearned from requests whose first token is seen, for each rank.
func TestSpeedIsLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{}, Spec{})
		stream := func(tokens int, took time.Duration) {
			p := mustPlace(t, r, &Request{Model: m, PromptTokens: tokens, Pinned: true, Pin: 1})
			time.Sleep(took)
			p.FirstToken()
			p.FirstToken()
			p.Done(Completed)
		}
		slots := m.pools[0].slots
		want := func(when string, speed float64) {
			t.Helper()
			if got := slots[0].speed; got < speed-1e-6 || got > speed+1e-6 {
				t.Errorf("%s: %v tokens a second, want %v", when, got, speed)
			}
		}
		stream(511, time.Hour)
		want("from a short prompt", 0)
		stream(1024, 0)
		want("from none that took no time", 0)
		stream(1024, 4*time.Second)
		want("from the first", 256)
		stream(512, 8*time.Second)
		want("from the second", 256-0.2*(256-64))
		stream(511, time.Second)
		want("from a short prompt", 256-0.2*(256-64))
		slots[0].speed = 256

		q := &Request{Model: m, PromptTokens: 1024, Whole: true, Pinned: true, Pin: 1}
		p := mustPlace(t, r, q)
		wantPrefill(t, m, 4*time.Second-time.Millisecond, 1024)
		wantPrefill(t, m, time.Millisecond, 0)
		p.Done(Completed)
		want("from an answer that came at once", 256)
		q.Pin = 2 // which has shown nothing yet
		p = mustPlace(t, r, q)
		wantPrefill(t, m, 128*time.Millisecond, 0)
		p.Done(Completed)
		reshape(r, 1, engine.Model{ID: "m", BlockSize: 16})
		want("of one that came back", 0)
		idle(t, r, m)
	})
}

// TestWholeMakesRoom: those who wait go when the prompt counts as computed.
func TestWholeMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Queue: queueOf(100)}, Spec{})
		busy := mustPlace(t, r, &Request{Model: m, PromptTokens: 2000, Whole: true}) // 250 ms
		first := waitFor(t, r, &Request{Model: m, PromptTokens: 2000, Whole: true})
		second := waitFor(t, r, &Request{Model: m, PromptTokens: 2000, Whole: true})
		time.Sleep(250*time.Millisecond - time.Microsecond)
		synctest.Wait()
		first.still(t)
		time.Sleep(time.Microsecond)
		synctest.Wait()
		a := first.placed(t)
		second.still(t)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		b := second.placed(t)
		for _, p := range []*Placement{busy, a, b} {
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestDoneStopsTheEstimate: what was expected of a request that has ended touches nothing,
// least of all the next one in the same memory.
func TestDoneStopsTheEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, Spec{}, Spec{BlockSize: 32})
		var into Placement
		q := &Request{Model: m, PromptTokens: 8000, Whole: true, Pinned: true, Pin: 1, Into: &into}
		p := mustPlace(t, r, q)
		old := p.prefill
		time.Sleep(500 * time.Millisecond)
		p.Done(Completed)
		if old.timer.Stop() {
			t.Error("the timer goes on after the end")
		}
		for _, pin := range []kv.WorkerID{1, 2} { // the same pool and another
			next := &Request{Model: m, PromptTokens: 800, Pinned: true, Pin: pin, Into: &into}
			p = mustPlace(t, r, next)
			old.end() // the timer had fired already when the request ended
			wantPrefill(t, m, time.Hour, 800)
			p.Done(Completed)
		}
		idle(t, r, m)
	})
}

// TestNothingToEstimate: where nothing is computed, or no timer may be used, none is.
func TestNothingToEstimate(t *testing.T) {
	now := time.Unix(1000, 0)
	virtual := Config{Now: func() time.Time { return now }, Virtual: true}
	for name, row := range map[string]struct {
		cfg Config
		q   Request
	}{
		"query":         {Config{}, Request{PromptTokens: 8000, Whole: true, QueryOnly: true}},
		"stream":        {Config{}, Request{PromptTokens: 8000}},
		"no prompt":     {Config{}, Request{Whole: true}},
		"not tracked":   {Config{}, Request{PromptTokens: 8000, Whole: true, Override: &Override{TrackPrefill: ptr(false)}}},
		"virtual clock": {virtual, Request{PromptTokens: 8000, Whole: true}},
	} {
		r, m := crew(t, row.cfg, Spec{})
		row.q.Model = m
		if p := mustPlace(t, r, &row.q); p.prefill != nil {
			t.Errorf("%s: a timer runs", name)
		}
	}
}
