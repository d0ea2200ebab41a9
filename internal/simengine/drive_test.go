package simengine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// text is content by numbers: every stretch of 512 tokens has an id, and what is
// generated belongs to the request alone.
type text struct {
	ids    []uint64
	size   int // tokens in a block
	prompt int
	own    uint64
	blocks []kv.Block // as far as they were asked for
}

func (t *text) Block(i int) kv.Block {
	for k := len(t.blocks); k <= i; k++ {
		h := uint64(t.size)
		if k > 0 {
			h = uint64(t.blocks[k-1].ID)
		}
		local := t.local(k)
		t.blocks = append(t.blocks, kv.Block{ID: kv.BlockID(mix(h ^ mix(local))), Tokens: kv.LocalHash(local)})
	}
	return t.blocks[i]
}

func (t *text) local(i int) uint64 {
	if (i+1)*t.size > t.prompt {
		return mix(t.own<<32 | uint64(i))
	}
	return mix(t.ids[i*t.size/512]<<16 | uint64(i*t.size%512))
}

// arrival is a request that comes at some time.
type arrival struct {
	at  time.Duration
	req *Request
}

// token is what a request got, and when.
type token struct {
	at   time.Duration
	id   uint64
	n    int
	done bool
}

// world drives one engine in virtual time.
type world struct {
	t       testing.TB
	engine  *Engine
	now     time.Duration
	pending []arrival // by time
	tokens  []token
	log     strings.Builder
	onPass  func(*Pass) // after each pass
	passes  int
}

func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, engine: e}
}

// add has a request come at a time; times must not go back.
func (w *world) add(at time.Duration, r *Request) {
	w.pending = append(w.pending, arrival{at, r})
}

// pass runs one pass, waiting for arrivals first if there is nothing to do. It
// returns false when there is nothing left.
func (w *world) pass() bool {
	if !w.engine.Busy() {
		if len(w.pending) == 0 {
			return false
		}
		w.now = max(w.now, w.pending[0].at)
	}
	for len(w.pending) > 0 && w.pending[0].at <= w.now {
		w.engine.Receive(w.pending[0].req)
		w.pending = w.pending[1:]
	}
	p := w.engine.Step()
	w.passes++
	w.now += p.Duration
	fmt.Fprintf(&w.log, "%v pass %v+%v batch %+v preempted %d\n", w.now, p.Prefill, p.Decode, p.Batch, p.Preempted)
	for _, a := range p.Admissions {
		fmt.Fprintf(&w.log, "  admit %d cached %d again %v\n", a.Request.ID, a.Cached, a.Again)
	}
	for _, r := range p.Rejected {
		fmt.Fprintf(&w.log, "  reject %d\n", r.ID)
	}
	for _, ev := range p.Events {
		fmt.Fprintf(&w.log, "  event %v\n", ev)
	}
	for _, o := range p.Outputs {
		fmt.Fprintf(&w.log, "  output %d %d done %v transfer %v\n", o.Request.ID, o.Tokens, o.Done, o.Transfer)
		w.tokens = append(w.tokens, token{w.now, o.Request.ID, o.Tokens, o.Done})
	}
	checkOrigins(w.t, p)
	if w.onPass != nil {
		w.onPass(p)
	}
	return true
}

// run drives the engine until nothing is left.
func (w *world) run() {
	for limit := w.passes + 100_000; w.pass(); {
		if w.passes == limit {
			log := w.log.String()
			w.t.Fatalf("%d passes and no end; %+v; the last:\n%s", limit, w.engine.cfg, log[max(0, len(log)-2000):])
		}
	}
}

// at returns when the tokens of a request came.
func (w *world) at(id uint64) (out []time.Duration) {
	for _, t := range w.tokens {
		if t.id == id {
			out = append(out, t.at)
		}
	}
	return out
}
