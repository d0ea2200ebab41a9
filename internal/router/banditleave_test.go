package router

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/thompson"
)

// m1 is the model of workers that are added later.
var m1 = []engine.Model{{ID: "m", BlockSize: 16}}

func rejoin(t *testing.T, r *Router, ids ...kv.WorkerID) {
	t.Helper()
	for _, id := range ids {
		if err := r.Add(Spec{ID: id, Name: "again", Events: true, Engine: &stubEngine{models: m1}}); err != nil {
			t.Fatal(err)
		}
	}
	r.WaitChecked(t.Context())
}

// A worker that leaves and comes back is the one that it was, even if all of them do.
func TestPolicyKnowsWhoComesBack(t *testing.T) {
	for name, bandit := range learners(t) {
		c := new(clock)
		r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(2)...)
		c.teach(t, r, m)
		want := ranks(t, r)
		r.Remove(2)
		if n := len(r.Bandits()[0].Ranks); n != 1 {
			t.Errorf("%s: %d ranks while one of two is away", name, n)
		}
		c.pass(5 * time.Minute)
		rejoin(t, r, 2)
		if diff := cmp.Diff(want, ranks(t, r)); diff != "" {
			t.Errorf("%s: one was away (-before +after):\n%s", name, diff)
		}
		r.Remove(1)
		r.Remove(2)
		if n := len(r.Bandits()); n != 0 {
			t.Errorf("%s: %d pools without workers", name, n)
		}
		rejoin(t, r, 2, 1)
		if diff := cmp.Diff(want, ranks(t, r)); diff != "" {
			t.Errorf("%s: both were away (-before +after):\n%s", name, diff)
		}
	}
}

// Who stays away is forgotten; who came back is not.
func TestPolicyForgetsWhoStaysAway(t *testing.T) {
	for name, bandit := range learners(t) {
		c := new(clock)
		r, m := crew(t, Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}, tellers(3)...)
		c.teach(t, r, m)
		r.Remove(2)
		r.Remove(3)
		rejoin(t, r, 3)
		before := r.Bandits()[0].Ranks
		for range 3 {
			c.pass(bandit.keep() / 2)
			mustPlace(t, r, ask(m, tokensOf(1, 64))).Done(Cancelled)
		}
		rejoin(t, r, 2)
		after := r.Bandits()[0].Ranks
		if len(before) != 2 || len(after) != 3 {
			t.Fatalf("%s: %d and %d ranks", name, len(before), len(after))
		}
		if diff := cmp.Diff(jsonOf(t, before[1]), jsonOf(t, after[2])); diff != "" {
			t.Errorf("%s: of the one that came back (-before +after):\n%s", name, diff)
		}
		if b := after[1]; b.Alpha != nil || b.Observations != nil && *b.Observations != 0 {
			t.Errorf("%s: of the one that stayed away it knows %s", name, jsonOf(t, b))
		}
	}
}

// However many leave, what is remembered of them is bounded.
func TestPolicyForgetsTheFirstOfMany(t *testing.T) {
	for name, bandit := range learners(t) {
		r := New(Config{})
		b, err := newBandit(bandit, r.cfg.Metrics)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		now := time.Unix(1_700_000_000, 0)
		arms := make([]thompson.Arm, maxDeparted+10)
		for i := range arms {
			arms[i] = thompson.Arm{ID: kv.Source{Worker: kv.WorkerID(i + 1)}, Cost: 1, Healthy: true}
		}
		known := func() int {
			if b.reference != nil {
				return b.reference.Stats().Arms
			}
			return b.safe.Stats().Arms
		}
		if b.reference != nil {
			b.reference.Decide(now, draws(), &thompson.Request{}, arms, make([]thompson.Choice, len(arms)))
		} else {
			b.safe.Decide(now, draws(), &thompson.Request{}, arms, make([]thompson.SafeChoice, len(arms)))
		}
		for range 2 { // the second time changes nothing
			for i := range arms {
				b.leave(now, arms[i].ID)
			}
		}
		b.tick(new(pool), now)
		if n := known(); n != maxDeparted || len(b.departed) != maxDeparted || b.departed[0].rank != arms[10].ID {
			t.Errorf("%s: %d ranks are remembered, of %d that have left, first %v", name, n, len(b.departed), b.departed[0])
		}
		b.tick(new(pool), now.Add(b.keep))
		if n := known(); n != 0 || len(b.departed) != 0 {
			t.Errorf("%s: %d ranks are remembered, of %d that have left", name, n, len(b.departed))
		}
	}
}
