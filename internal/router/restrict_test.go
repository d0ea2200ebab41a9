package router

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

func TestTaints(t *testing.T) {
	specs := tellers(3)
	specs[0].Taints = []string{"gpu=h100", "zone=a"}
	specs[1].Taints = []string{"gpu=h100"}
	r, m := crew(t, Config{}, specs...)
	prompt := tokensOf(1, 160)
	want := func(name string, q *Request, workers map[uint64]float64) {
		t.Helper()
		p := query(t, r, q)
		got := map[uint64]float64{}
		for _, c := range p.Routing.Candidates {
			if c.State == nvext.StateEligible {
				got[c.WorkerID] = math.Round(float64(c.Score)*1e3) / 1e3
			}
		}
		if diff := cmp.Diff(workers, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	q := ask(m, prompt)
	q.RequiredTaints = []string{"gpu=h100"}
	want("one required", q, map[uint64]float64{1: 20, 2: 20})
	q.RequiredTaints = []string{"zone=a", "gpu=h100"}
	want("both required", q, map[uint64]float64{1: 20})
	q.RequiredTaints = []string{"zone=b"}
	if _, err := r.Place(t.Context(), q); !errors.Is(err, ErrNoneTainted) {
		t.Errorf("nobody has it: %v", err)
	}
	var pin *PinError
	q.Pinned, q.Pin = true, 3
	if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinUntainted {
		t.Errorf("pinned to one that has it not: %v", err)
	}
	q = ask(m, prompt)
	q.PreferredTaints = map[string]float64{"gpu=h100": 0.85}
	want("T13: preferred", q, map[uint64]float64{1: 10.021, 2: 10.021, 3: 20})
	q.PreferredTaints = map[string]float64{"gpu=h100": 1, "zone=a": -2}
	want("T13: preferred and shunned", q, map[uint64]float64{1: 42.834, 2: 9.338, 3: 20})
}

func TestPinsInModeKV(t *testing.T) {
	specs := tellers(2)
	specs[0].Ranks, specs[1].Ranks = 3, 2
	r, m := crew(t, Config{}, specs...)
	prompt := tokensOf(1, 160)
	store(t, r, 1, 2, kv.Device, prompt, 0, 10)
	place := func(pin kv.WorkerID, rank *uint32) (engine.Target, error) {
		q := ask(m, prompt)
		q.Pinned, q.Pin, q.PinRank = true, pin, rank
		p, err := r.Place(t.Context(), q)
		if err != nil {
			return engine.Target{}, err
		}
		defer p.Done(Completed)
		if p.Routing.Reason != nvext.ReasonPinned || p.Routing.Considered != 5 {
			t.Errorf("reason %s, %d considered", p.Routing.Reason, p.Routing.Considered)
		}
		if got := loads(m).inflight; got != 1 {
			t.Errorf("a pinned request booked %d", got)
		}
		return p.Last().Target, nil
	}
	if got, err := place(1, nil); err != nil || got != (engine.Target{Worker: 1, Rank: 2}) {
		t.Errorf("pin without rank: %v, %v, want the rank with the prompt", got, err)
	}
	if got, err := place(1, ptr(uint32(1))); err != nil || got != (engine.Target{Worker: 1, Rank: 1}) {
		t.Errorf("pin with rank: %v, %v", got, err)
	}
	for _, row := range []struct {
		name   string
		pin    kv.WorkerID
		rank   *uint32
		reason PinReason
	}{
		{"rank that the worker has not", 2, ptr(uint32(2)), PinRankUnknown},
		{"worker that nobody knows", 9, nil, PinUnknown},
	} {
		var pin *PinError
		if _, err := place(row.pin, row.rank); !errors.As(err, &pin) || pin.Reason != row.reason {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	r.workers[2].discovered.Store(false)
	var pin *PinError
	if _, err := place(2, nil); !errors.As(err, &pin) || pin.Reason != PinUnavailable {
		t.Errorf("pin to a worker that has gone: %v", err)
	}
	q := ask(m, prompt)
	q.Allowed = []uint64{2}
	if _, err := r.Place(t.Context(), q); !errors.Is(err, ErrNoWorkers) {
		t.Errorf("the only one allowed is gone: %v", err)
	}
	q.Allowed = []uint64{1, 2}
	if p := mustPlace(t, r, q); p.Last().Target != (engine.Target{Worker: 1, Rank: 2}) {
		t.Errorf("allowed 1 and 2: %v", p.Last().Target)
	}
	if got := loads(m).inflight; got != 1 {
		t.Errorf("%d requests booked, want the last alone", got)
	}
}

// TestAwayAndUntainted: a worker that is away and lacks a required taint is not one that
// would do if it were back.
func TestAwayAndUntainted(t *testing.T) {
	for _, row := range []struct {
		name string
		away func(*worker)
	}{
		{"gone", func(w *worker) { w.discovered.Store(false) }},
		{"inhibited", func(w *worker) { w.inhibitedUntil.Store(math.MaxInt64) }},
	} {
		specs := tellers(3)
		specs[2].Taints = []string{"gpu=h100"}
		r, m := crew(t, Config{ProbeInterval: time.Hour}, specs...)
		required := func(taint string) *Request {
			q := ask(m, tokensOf(1, 160))
			q.RequiredTaints = []string{taint}
			return q
		}
		row.away(r.workers[1])
		if _, err := r.Place(t.Context(), required("zone=b")); !errors.Is(err, ErrNoneTainted) {
			t.Errorf("%s: nobody has it: %v, want ErrNoneTainted", row.name, err)
		}
		q := required("gpu=h100")
		q.Pinned, q.Pin = true, 1
		var pin *PinError
		if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinUntainted {
			t.Errorf("%s: pinned to one that has it not: %v", row.name, err)
		}
		row.away(r.workers[3])
		if _, err := r.Place(t.Context(), required("gpu=h100")); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("%s: the one that has it is away: %v, want ErrNoWorkers", row.name, err)
		}
		q.Pin = 3
		if _, err := r.Place(t.Context(), q); !errors.As(err, &pin) || pin.Reason != PinUnavailable {
			t.Errorf("%s: pinned to one that has it and is away: %v", row.name, err)
		}
		q = required("gpu=h100")
		q.Exclude = []kv.WorkerID{3}
		if _, err := r.Place(t.Context(), q); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("%s: the one that has it has failed: %v", row.name, err)
		}
	}
}

// TestPinToOneThatNeverAnswered: a worker that is configured and has not said yet what it
// serves may come; one that nobody knows, or that serves something else, will not.
func TestPinToOneThatNeverAnswered(t *testing.T) {
	silent := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}}}
	silent.down.Store(true)
	elsewhere := &stubEngine{models: []engine.Model{{ID: "n"}}}
	for _, mode := range []Mode{KV, RoundRobin, Direct} {
		r, m := crew(t, Config{Mode: mode}, Spec{}, Spec{Engine: silent}, Spec{Engine: elsewhere})
		for w, want := range map[kv.WorkerID]PinReason{2: PinUnavailable, 3: PinUnknown, 9: PinUnknown} {
			_, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 10, Pinned: true, Pin: w})
			var pin *PinError
			if !errors.As(err, &pin) || pin.Reason != want || pin.Worker != w || pin.Temporary() != (want == PinUnavailable) {
				t.Errorf("%s: pinned to %d: %v, want reason %d", mode, w, err, want)
			}
		}
	}
}
