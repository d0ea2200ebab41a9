package router

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
)

func TestInhibitionEndsByProbeOrTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m, engines := fleet(t, Config{Mode: RoundRobin}, 2, engine.Model{})
		engines[0].down.Store(true)
		p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1})
		p.Done(Unreachable)
		for range 4 {
			if p := mustPlace(t, r, &Request{Model: m}); p.Last().Target.Worker != 2 {
				t.Fatal("an inhibited worker got a request")
			}
		}
		var pin *PinError
		if _, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1}); !errors.As(err, &pin) || pin.Reason != PinUnavailable || !pin.Temporary() {
			t.Fatalf("pin on an inhibited worker: %v", err)
		}
		engines[0].down.Store(false)
		time.Sleep(retryInterval + time.Millisecond) // virtual: the next probe
		synctest.Wait()
		if _, err := r.Place(t.Context(), &Request{Model: m, Pinned: true, Pin: 1}); err != nil {
			t.Fatalf("after a good probe: %v", err)
		}
	})
}

func TestGoneWorkersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m, engines := fleet(t, Config{}, 1, engine.Model{ContextLength: 100})
		engines[0].down.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrNoWorkers) {
			t.Fatalf("got %v, want ErrNoWorkers", err)
		}
		st := r.Status()
		if len(st) != 1 || st[0].Discovered() || st[0].Routable() {
			t.Fatalf("status of a model whose worker is gone: %+v", st)
		}
		engines[0].models[0].ContextLength = 200
		engines[0].down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mustPlace(t, r, &Request{Model: m}).Done(Completed)
		again, err := r.Lookup("m")
		if err != nil || again.ContextLength != 200 {
			t.Errorf("after a restart with a longer context: %d, %v", again.ContextLength, err)
		}
		if !again.Created.Equal(m.Created) {
			t.Error("the model's creation time changed")
		}
	})
}

// TestSlowHealthRoute: a worker that answers requests is well, however long its
// health route takes.
func TestSlowHealthRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m, engines := fleet(t, Config{}, 1, engine.Model{})
		engines[0].slow.Store(true)
		for range 60 {
			time.Sleep(time.Second)
			p := mustPlace(t, r, &Request{Model: m})
			p.FirstToken()
			p.Done(Completed)
		}
		time.Sleep(time.Minute) // and now it answers nobody
		synctest.Wait()
		if _, err := r.Place(t.Context(), &Request{Model: m}); !errors.Is(err, ErrNoWorkers) {
			t.Errorf("silent and slow: got %v, want ErrNoWorkers", err)
		}
	})
}

func TestUnknownModelAndDuplicateID(t *testing.T) {
	r, _, _ := fleet(t, Config{}, 1, engine.Model{})
	if _, err := r.Lookup("nope"); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("got %v", err)
	}
	if err := r.Add(Spec{ID: 1, Name: "again", Engine: &stubEngine{}}); err == nil {
		t.Error("the same id twice: no error")
	}
	if err := r.Add(Spec{ID: 0, Name: "zero", Engine: &stubEngine{}}); err == nil {
		t.Error("id 0: no error")
	}
}

func TestEmptiedPoolIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, m, engines := fleet(t, Config{}, 1, engine.Model{BlockSize: 16})
		engines[0].down.Store(true)
		time.Sleep(20 * time.Second)
		engines[0].models = []engine.Model{{ID: "m", BlockSize: 32}}
		engines[0].down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m, err := r.Lookup(m.ID)
		if err != nil || len(m.pools) != 1 || m.pools[0].key.blockSize != 32 {
			t.Fatalf("after a restart with another block size: %d pools, %v", len(m.pools), err)
		}
		if _, err := r.Place(t.Context(), &Request{Model: m, Allowed: []uint64{9}}); !errors.Is(err, ErrNoneAllowed) {
			t.Errorf("got %v, want ErrNoneAllowed", err)
		}
	})
}

func TestModelSumsItsWorkersUp(t *testing.T) {
	r := New(Config{})
	t.Cleanup(r.Close)
	for i, em := range []engine.Model{
		{ID: "m", ContextLength: 32768, Tokenizer: "bytes", BlockSize: 16},
		{ID: "m", ContextLength: 64, Tokenizer: "bytes", BlockSize: 16, Parent: "base"},
	} {
		if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: &stubEngine{models: []engine.Model{em}}}); err != nil {
			t.Fatal(err)
		}
		r.WaitChecked(t.Context())
	}
	m, _ := r.Lookup("m")
	if m.ContextLength != 32768 || m.Tokenizer != "bytes" || m.BlockSize != 16 || !m.Adapter || m.Parent != "base" {
		t.Errorf("context %d, tokenizer %q, blocks of %d, adapter %v of %q", m.ContextLength, m.Tokenizer, m.BlockSize, m.Adapter, m.Parent)
	}
	if err := r.Add(Spec{ID: 3, Engine: &stubEngine{models: []engine.Model{{ID: "m"}}}}); err != nil {
		t.Fatal(err)
	}
	r.WaitChecked(t.Context())
	if m, _ := r.Lookup("m"); m.Tokenizer != "" || m.BlockSize != 0 {
		t.Errorf("workers that do not agree on a tokenizer and a block size: %q, %d", m.Tokenizer, m.BlockSize)
	}
}

// tokenizingEngine is a stub that has the capability.
type tokenizingEngine struct {
	stubEngine
	resting bool
}

func (e *tokenizingEngine) Resting() bool { return e.resting }

func (e *tokenizingEngine) Tokenize(context.Context, *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	return &engine.TokenizeResult{}, nil
}

// TestTokenizer: whoever can, can be reached and has least to do is asked.
func TestTokenizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{ProbeInterval: time.Second})
		defer r.Close()
		models := []engine.Model{{ID: "m"}}
		a, b := &tokenizingEngine{stubEngine: stubEngine{models: models}}, &tokenizingEngine{stubEngine: stubEngine{models: models}}
		for i, e := range []engine.Engine{&stubEngine{models: models}, a, b} {
			if err := r.Add(Spec{ID: kv.WorkerID(i + 1), Engine: e}); err != nil {
				t.Fatal(err)
			}
		}
		r.WaitChecked(t.Context())
		m, _ := r.Lookup("m")
		want := func(when string, want engine.Tokenizer) {
			t.Helper()
			if got := r.Tokenizer(m); got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		want("idle", a)
		a.resting = true
		want("one is resting", b)
		a.resting = false
		p := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 2})
		want("one is busy", b)
		b.down.Store(true)
		time.Sleep(2 * time.Second)
		want("the other is gone", a)
		a.down.Store(true)
		time.Sleep(2 * time.Second)
		want("both are gone", nil)
		p.Done(Completed)
	})
}

func TestGoneWorkerTakesItsSeriesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := metrics.New(metrics.Options{})
		r, m, engines := fleet(t, Config{Metrics: set}, 2, engine.Model{})
		count := func() int {
			n, err := testutil.GatherAndCount(set.Registry(), "dynamo_frontend_worker_active_decode_blocks")
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if got := count(); got != 2 {
			t.Fatalf("%d series of workers, want 2", got)
		}
		running := mustPlace(t, r, &Request{Model: m, Pinned: true, Pin: 1})
		engines[0].down.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		running.Done(Broken)
		if got := count(); got != 1 {
			t.Errorf("%d series after a worker left, want 1", got)
		}
		engines[0].down.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := count(); got != 2 {
			t.Errorf("%d series after it came back, want 2", got)
		}
	})
}
