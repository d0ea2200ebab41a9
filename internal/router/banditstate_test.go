package router

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/thompson"
)

// learners are policies of both kinds.
func learners(t testing.TB) map[string]*BanditConfig {
	return map[string]*BanditConfig{"safe": safePolicy(nil), "reference": referencePolicy(t)}
}

// teach has a policy learn from some requests.
func (c *clock) teach(t *testing.T, r *Router, m *Model) {
	t.Helper()
	for i := range 40 {
		c.serve(t, r, ask(m, tokensOf(i%5, 64)), time.Duration(1+i%2)*time.Second, Completed)
	}
}

// ranks is what the policy of the first pool knows.
func ranks(t *testing.T, r *Router) string {
	t.Helper()
	return jsonOf(t, r.Bandits()[0].Ranks)
}

func save(t *testing.T, r *Router) []byte {
	t.Helper()
	data, err := r.SaveBandits()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// restore returns a router with workers that has taken in what was saved.
func restore(t *testing.T, cfg Config, data []byte, specs ...Spec) (*Router, *Model) {
	t.Helper()
	r := New(cfg)
	t.Cleanup(r.Close)
	if err := r.RestoreBandits(data); err != nil {
		t.Fatal(err)
	}
	return crewOf(t, r, specs...)
}

// What was learned outlives the router.
func TestPolicyState(t *testing.T) {
	for name, bandit := range learners(t) {
		c := new(clock)
		cfg := Config{Mode: KV, Now: c.time, Virtual: true, Bandit: bandit}
		r, m := crew(t, cfg, tellers(2)...)
		c.teach(t, r, m)
		data := save(t, r)
		if bytes.ContainsAny(data, " \n") {
			t.Errorf("%s: there is room between what is saved: %s", name, data)
		}

		again := New(cfg)
		t.Cleanup(again.Close)
		if err := again.RestoreBandits(data); err != nil {
			t.Fatal(err)
		}
		if saved := save(t, again); !sameJSON(t, saved, data) {
			t.Errorf("%s: before its pool comes, %s is saved", name, saved)
		}
		r2, _ := crewOf(t, again, tellers(2)...)
		if diff := cmp.Diff(ranks(t, r), ranks(t, r2)); diff != "" {
			t.Errorf("%s: learned (-before +after):\n%s", name, diff)
		}
	}
}

func TestPolicyStateRefused(t *testing.T) {
	r := New(Config{Mode: KV, Bandit: safePolicy(nil)})
	defer r.Close()
	for data, want := range map[string]string{
		`{`:             "unexpected end of JSON input",
		`[]`:            "json: cannot unmarshal array into Go value of type router.banditFile",
		`{}`:            "version: expected 1 or 2, got 0",
		`{"version":3}`: "version: expected 1 or 2, got 3",
		`{"version":1,"pools":{"m/16":{"policy":"bold"}}}`: `pool m/16: policy: expected reference or safe, got "bold"`,
		`{"version":2,"pools":{"m/16":[1]}}`:               "pool m/16: json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
	} {
		if err := r.RestoreBandits([]byte(data)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", data, err, want)
		}
	}
}

// What one policy has learned is still there when another has been tried. Safe and shadow
// learn the same.
func TestPolicyStateOfOthers(t *testing.T) {
	c := new(clock)
	cfg := func(b *BanditConfig) Config { return Config{Mode: KV, Seed: 1, Now: c.time, Virtual: true, Bandit: b} }
	reference, m := crew(t, cfg(referencePolicy(t)), tellers(2)...)
	c.teach(t, reference, m)

	safe, m := restore(t, cfg(safePolicy(nil)), save(t, reference), tellers(2)...)
	for _, rank := range safe.Bandits()[0].Ranks {
		if *rank.Observations != 0 {
			t.Errorf("the safe policy knows of what it has not seen: %s", jsonOf(t, rank))
		}
	}
	c.teach(t, safe, m)

	again, m := restore(t, cfg(referencePolicy(t)), save(t, safe), tellers(2)...)
	if diff := cmp.Diff(ranks(t, reference), ranks(t, again)); diff != "" {
		t.Errorf("reference (-before +after):\n%s", diff)
	}
	c.teach(t, again, m)
	shadow, _ := restore(t, cfg(safePolicy(func(c *thompson.SafeConfig) { c.Shadow = true })), save(t, again), tellers(2)...)
	if diff := cmp.Diff(ranks(t, safe), ranks(t, shadow)); diff != "" {
		t.Errorf("safe and shadow (-before +after):\n%s", diff)
	}
}

// A file of the first version has one policy for each pool.
func TestPolicyStateVersion1(t *testing.T) {
	for name, bandit := range learners(t) {
		c := new(clock)
		cfg := Config{Mode: KV, Seed: 1, Now: c.time, Virtual: true, Bandit: bandit}
		r, m := crew(t, cfg, tellers(2)...)
		c.teach(t, r, m)
		var file struct {
			Version int
			Pools   map[string]map[string]json.RawMessage
		}
		if err := json.Unmarshal(save(t, r), &file); err != nil || file.Version != 2 {
			t.Fatalf("version %d, %v", file.Version, err)
		}
		old := `{"version":1,"pools":{"m/16":` + string(file.Pools["m/16"][name]) + `}}`
		again, _ := restore(t, cfg, []byte(old), tellers(2)...)
		if diff := cmp.Diff(ranks(t, r), ranks(t, again)); diff != "" {
			t.Errorf("%s: learned (-before +after):\n%s", name, diff)
		}
	}
}

// What was learned of a worker goes by its id, and not by when it is added.
func TestPolicyStateFollowsWorkers(t *testing.T) {
	for name, bandit := range learners(t) {
		c := new(clock)
		cfg := Config{Mode: KV, Seed: 1, Now: c.time, Virtual: true, Bandit: bandit}
		r, m := crew(t, cfg, tellers(3)...)
		c.teach(t, r, m)
		again, _ := restore(t, cfg, save(t, r), Spec{ID: 3, Events: true}, Spec{ID: 1, Events: true}, Spec{ID: 2, Events: true})
		if diff := cmp.Diff(ranks(t, r), ranks(t, again)); diff != "" {
			t.Errorf("%s: learned (-before +after):\n%s", name, diff)
		}
	}
}

// Saving goes on beside everything else.
func TestPolicyStateWhileLearning(t *testing.T) {
	for name, bandit := range learners(t) {
		r, m := crew(t, Config{Mode: KV, Bandit: bandit}, tellers(3)...)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					q := ask(m, tokensOf(g*100+i, 64))
					q.Prefix, q.TotalRequests = "conversation", 10
					p, err := r.Place(t.Context(), q)
					if err != nil {
						continue // its workers come and go
					}
					p.FirstToken()
					p.Output(20)
					p.Done(Completed)
				}
			})
		}
		wg.Go(func() {
			for range 5 {
				r.Remove(3)
				if err := r.Add(Spec{ID: 3, Name: "again", Events: true, Engine: &stubEngine{models: m1}}); err != nil {
					t.Error(err)
				}
			}
		})
		for range 20 {
			if !json.Valid(save(t, r)) {
				t.Errorf("%s: no JSON was saved", name)
			}
		}
		wg.Wait()
	}
}
