package router

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
)

// seriesOf returns how many series have the model as a label, in whatever case.
func seriesOf(t testing.TB, set *metrics.Set, model string) (n int) {
	t.Helper()
	families, err := set.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "model" && strings.EqualFold(l.GetValue(), model) {
					n++
				}
			}
		}
	}
	return n
}

// wantKnown checks whether a model is known, and that it has series just then.
func wantKnown(t testing.TB, r *Router, model string, want bool) {
	t.Helper()
	r.CountWorkers()
	_, err := r.Lookup(model)
	if known := err == nil; known != want || !known && !errors.Is(err, ErrUnknownModel) {
		t.Errorf("%s is known: %v (%v), want %v", model, known, err, want)
	}
	if n := seriesOf(t, r.cfg.Metrics, model); n > 0 != want {
		t.Errorf("%s has %d series", model, n)
	}
}

// pass has virtual time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestRemovedModelsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}, {ID: "poet", Parent: "m"}}}
		r, m := crew(t, Config{Queue: queueOf(1000)}, Spec{Engine: e}, Spec{Engine: &stubEngine{models: []engine.Model{{ID: "m", BlockSize: 16}, {ID: "other"}}}})
		m.SetThresholds(Thresholds{PrefillTokens: ptr(uint64(5))})
		mustPlace(t, r, &Request{Model: m, PromptTokens: 3}).Done(Completed)
		r.Remove(1)
		pass(2 * time.Hour)
		wantKnown(t, r, "m", true)
		wantKnown(t, r, "poet", false)
		r.Remove(2)
		pass(58 * time.Minute)
		wantKnown(t, r, "m", true)
		wantKnown(t, r, "other", true)
		if got := sum(t, r.cfg.Metrics, "stator_workers", "model", "m"); got != 0 {
			t.Errorf("%v workers of a model without any", got)
		}
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("a request for a model that has no worker any more: %v", err)
		}
		pass(4 * time.Minute)
		wantKnown(t, r, "m", false)
		wantKnown(t, r, "other", false)
		if n := len(r.Status()); n != 0 {
			t.Errorf("%d models are left", n)
		}

		_, again := crewOf(t, r, Spec{ID: 3})
		if !again.Created.After(m.Created) || again.Thresholds().Set() {
			t.Errorf("a model that came back is that of %v with %+v", again.Created, again.Thresholds())
		}
		if got := sum(t, r.cfg.Metrics, "dynamo_component_router_requests_total", "model", "m"); got != 0 {
			t.Errorf("it has %v requests", got)
		}
		// A request that was under way since before finds it.
		mustPlace(t, r, &Request{Model: m, PromptTokens: 3}).Done(Completed)
		wantKnown(t, r, "m", true)
	})
}

// TestListedModelsLeave: what an engine lists no more is treated as if it were removed.
func TestListedModelsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := crew(t, Config{ForgetModels: 10 * time.Minute}, Spec{})
		for i := range 100 {
			reshape(r, 1, engine.Model{ID: "m", BlockSize: 16}, engine.Model{ID: fmt.Sprint("adapter-", i), Parent: "m"}, engine.Model{ID: fmt.Sprint("model-", i)})
			pass(time.Minute)
		}
		if n := len(r.Status()); n > 1+2*12 {
			t.Errorf("%d models are known, of which three are served", n)
		}
		wantKnown(t, r, "adapter-3", false)
		wantKnown(t, r, "model-3", false)
		wantKnown(t, r, "adapter-98", true)
		wantKnown(t, r, "m", true)
	})
}

// TestUnreachableModelsStay: somebody wants them.
func TestUnreachableModelsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stubEngine{models: []engine.Model{{ID: "m"}}}
		r, _ := crew(t, Config{}, Spec{Engine: e})
		e.down.Store(true)
		pass(3 * time.Hour)
		wantKnown(t, r, "m", true)

		// So do those of a worker that is configured anew and has not answered since.
		r.Remove(1)
		if err := r.Add(Spec{ID: 1, Name: "again", Engine: e}); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Hour)
		wantKnown(t, r, "m", true)
		e.models = []engine.Model{{ID: "n"}}
		e.down.Store(false)
		pass(2 * time.Minute)
		wantKnown(t, r, "m", false)
		wantKnown(t, r, "n", true)
	})
}

func TestModelStaysWhileRequestsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{}, tellers(1)...)
		p := mustPlace(t, r, ask(m, tokensOf(1, 160)))
		query(t, r, ask(m, tokensOf(1, 160)))
		if _, err := r.Reserve(t.Context(), &Request{Model: m, ID: "lease", PromptTokens: 10}, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		r.Remove(1)
		pass(90 * time.Minute)
		p.FirstToken()
		p.Output(100)
		wantKnown(t, r, "m", true)
		pass(2 * time.Hour) // the lease ends
		wantKnown(t, r, "m", true)
		p.Done(Completed)
		p.Done(Completed)
		if n := m.booked.Load(); n != 0 {
			t.Errorf("%d requests are booked", n)
		}
		pass(2 * time.Minute)
		wantKnown(t, r, "m", false)
	})
}

func TestForgottenModelUnlearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m := crew(t, Config{Mode: KV, Bandit: safePolicy(nil)}, tellers(2)...)
		p := mustPlace(t, r, ask(m, tokensOf(1, 160)))
		p.FirstToken()
		p.Done(Completed)
		r.Remove(1)
		r.Remove(2)
		if n := len(r.learned.copy()); n != 1 {
			t.Fatalf("what was learned is kept for %d pools, want 1", n)
		}
		pass(62 * time.Minute)
		if n := len(r.learned.copy()); n != 0 {
			t.Errorf("what was learned is kept for %d pools of a model that is forgotten", n)
		}
	})
}

// TestLessonsOfUnknownModelsLeave: what was restored is kept for as long as a model is, and
// all of it while the model is known.
func TestLessonsOfUnknownModelsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other = `{"reference":{}}`
		file := `{"version":2,"pools":{"m/16":` + other + `,"m/32/gpt/eagle":` + other +
			`,"m/large/16":` + other + `,"gone/16":` + other + `,"org/gone/16/gpt":` + other + `}}`
		r := New(Config{Mode: KV, Bandit: safePolicy(nil), Seed: 1})
		t.Cleanup(r.Close)
		if err := r.RestoreBandits([]byte(file)); err != nil {
			t.Fatal(err)
		}
		crewOf(t, r, tellers(1)...)
		want := func(pools ...string) {
			t.Helper()
			if got := slices.Sorted(maps.Keys(r.learned.copy())); !slices.Equal(got, pools) {
				t.Errorf("what was learned is kept for %q, want %q", got, pools)
			}
		}
		pass(58 * time.Minute)
		want("gone/16", "m/16", "m/32/gpt/eagle", "m/large/16", "org/gone/16/gpt")
		pass(4 * time.Minute)
		want("m/16", "m/32/gpt/eagle")
		pass(3 * time.Hour)
		want("m/16", "m/32/gpt/eagle")
		r.Remove(1)
		pass(58 * time.Minute)
		want("m/16", "m/32/gpt/eagle")
		pass(4 * time.Minute)
		want()
	})
}

func TestMaxModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		listed := []engine.Model{{ID: "a"}, {ID: "b"}, {ID: "b1", Parent: "b"}, {ID: "b2", Parent: "b"}, {ID: "c"}}
		cfg := Config{MaxModels: 4, Log: slog.New(slog.NewTextHandler(&log, nil))}
		r, _ := crew(t, cfg, Spec{}, Spec{Engine: &stubEngine{models: listed[:0]}})
		r.workers[2].Engine.(*stubEngine).models = listed
		r.Doubt(2)
		pass(5 * time.Minute)
		known := func() (names []string) {
			for _, st := range r.Status() {
				names = append(names, st.Model.ID)
			}
			slices.Sort(names)
			return names
		}
		warned := func() bool {
			return slices.ContainsFunc(r.Engines()[len(r.Engines())-1].Warnings, func(w engine.Warning) bool { return w.Code == WarnModels })
		}
		if got := known(); !slices.Equal(got, []string{"a", "b", "b1", "m"}) || !warned() {
			t.Errorf("%v are known, warned: %v", got, warned())
		}
		for _, name := range []string{"b2", "c"} {
			wantKnown(t, r, name, false)
		}
		reshape(r, 2, listed...) // once more
		if n := strings.Count(log.String(), "as many models as may be"); n != 1 {
			t.Errorf("%d lines about it:\n%s", n, &log)
		}

		// There is room for one more when another has left.
		r.Remove(1)
		pass(62 * time.Minute)
		if got := known(); !slices.Equal(got, []string{"a", "b", "b1", "b2"}) || !warned() {
			t.Errorf("%v are known, warned: %v", got, warned())
		}
		r.workers[2].Engine.(*stubEngine).models = listed[1:]
		r.Doubt(2)
		pass(62 * time.Minute)
		if got := known(); !slices.Equal(got, []string{"b", "b1", "b2", "c"}) || warned() {
			t.Errorf("%v are known, warned: %v", got, warned())
		}
		m, err := r.Lookup("c")
		if err != nil {
			t.Fatal(err)
		}
		mustPlace(t, r, &Request{Model: m}).Done(Completed)
	})
}

// TestModelsComeAndGo: whatever comes and goes at once, in the end nothing is left.
func TestModelsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{ForgetModels: time.Second, MaxModels: 6, Queue: queueOf(300), Bandit: safePolicy(nil), Seed: 1})
		t.Cleanup(r.Close)
		const names = 8
		name := func(rng *rand.Rand) string { return fmt.Sprint("m", rng.IntN(names)) }
		var churn sync.WaitGroup
		for g := range 4 {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			churn.Go(func() { // workers
				for range 60 {
					id := kv.WorkerID(g + 1)
					e := &stubEngine{models: []engine.Model{{ID: name(rng), BlockSize: 16}, {ID: name(rng), BlockSize: 16}}}
					if err := r.Add(Spec{ID: id, Name: "stub", Engine: e}); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
					r.Remove(id)
					time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				}
			})
			churn.Go(func() { // requests
				rng := rand.New(rand.NewPCG(uint64(g), 2))
				for range 600 {
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
					r.CountWorkers()
					m, err := r.Lookup(name(rng))
					if err != nil {
						continue
					}
					churn.Go(func() {
						p, err := r.Place(t.Context(), &Request{Model: m, PromptTokens: 100, Tokens: tokensOf(1, 100)})
						if err != nil {
							return
						}
						time.Sleep(100 * time.Millisecond)
						p.FirstToken()
						p.Output(20)
						time.Sleep(3 * time.Second)
						p.Done(Completed)
						m.Metrics.Shed(metrics.ShedBusy)
					})
				}
			})
		}
		churn.Wait()
		pass(time.Minute)
		for i := range names {
			wantKnown(t, r, fmt.Sprint("m", i), false)
		}
		if len(r.models)+len(r.pools)+len(r.learned.copy()) != 0 {
			t.Errorf("left: %d models, %d pools, lessons of %d", len(r.models), len(r.pools), len(r.learned.copy()))
		}
	})
}
