package simengine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// TestPriorityAdmits has requests of different priority wait for the only place.
func TestPriorityAdmits(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang} {
		for _, on := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, on), func(t *testing.T) {
				e, err := New(Config{Kind: kind, MaxSeqs: 1, Priority: on, BlockSize: 4})
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range []int64{0, 5, -3, 5, 9} {
					e.Receive(&Request{ID: uint64(i), Prompt: 10, MaxOutput: 2, Priority: p})
				}
				var got []uint64
				for e.Busy() {
					for _, a := range e.Step().Admissions {
						got = append(got, a.Request.ID)
					}
				}
				want := []uint64{0, 1, 2, 3, 4}
				if on {
					want = []uint64{4, 1, 3, 0, 2}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("order of admission (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestPriorityPreempts runs out of blocks: the urgent one keeps its own, and those that
// give way come back in the order of their arrival.
func TestPriorityPreempts(t *testing.T) {
	e, err := New(Config{Blocks: 6, BlockSize: 4, Priority: true})
	if err != nil {
		t.Fatal(err)
	}
	urgent := &Request{ID: 1, Prompt: 7, MaxOutput: 9, Priority: 1}
	first := &Request{ID: 2, Prompt: 7, MaxOutput: 9}
	second := &Request{ID: 3, Prompt: 7, MaxOutput: 9}
	for _, r := range []*Request{first, second, urgent} {
		e.Receive(r)
	}
	var again, done []uint64
	for e.Busy() {
		p := e.Step()
		for _, a := range p.Admissions {
			if a.Again {
				again = append(again, a.Request.ID)
			}
		}
		for _, o := range p.Outputs {
			if o.Done {
				done = append(done, o.Request.ID)
			}
		}
	}
	if diff := cmp.Diff([]uint64{2, 3}, again); diff != "" {
		t.Errorf("came back (-want +got):\n%s", diff)
	}
	if len(done) != 3 || done[0] != 1 || done[2] != 3 {
		t.Errorf("ended in the order %v", done)
	}
}

func TestPriorityRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Kind: LlamaCpp, Priority: true},
		{Rules: Mocker, Priority: true},
		{Kind: SGLang, SGLang: SGLangConfig{Policy: LPM}, Priority: true},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

// TestClear empties a cache: only while nothing runs, told with the next pass, and
// nothing is found after it.
func TestClear(t *testing.T) {
	for _, kind := range []Kind{VLLM, SGLang, LlamaCpp} {
		t.Run(string(kind), func(t *testing.T) {
			size := 2
			if kind == LlamaCpp {
				size = 1
			}
			e, err := New(Config{Kind: kind, BlockSize: size})
			if err != nil {
				t.Fatal(err)
			}
			run := func() *Request {
				r := &Request{Prompt: 10, MaxOutput: 1, Content: &text{ids: []uint64{1}, size: size, prompt: 10, own: 1}}
				e.Receive(r)
				if e.Clear() {
					t.Error("cleared under a request")
				}
				for e.Requests() > 0 {
					e.Step()
				}
				return r
			}
			run()
			if r := run(); r.Cached() == 0 {
				t.Error("nothing was cached")
			}
			if !e.Clear() {
				t.Fatal("not cleared")
			}
			if kind != LlamaCpp {
				p := e.Step()
				if len(p.Events) != 1 || p.Events[0].Kind != kv.Cleared || len(p.Origins) != 1 {
					t.Errorf("events %+v", p.Events)
				}
			}
			if e.Busy() {
				t.Error("still busy")
			}
			if r := run(); r.Cached() != 0 {
				t.Errorf("%d tokens cached after clearing", r.Cached())
			}
		})
	}
}
