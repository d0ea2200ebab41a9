package sched

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// checkLedger looks at everything that has to be true between calls.
func checkLedger(t testing.TB, l *Ledger) {
	t.Helper()
	type family struct {
		n      int
		firsts kv.BlockID
	}
	blocks := 0
	users := map[*chunk]int{}
	families := map[*stretch]family{}
	for id, e := range l.stretches {
		if e.lo < 0 || e.lo >= e.hi || e.hi > len(e.chunk.ids) {
			t.Fatalf("stretch %x is [%d:%d] of %d", id, e.lo, e.hi, len(e.chunk.ids))
		}
		if e.first() != id {
			t.Fatalf("stretch %x is known as %x", e.first(), id)
		}
		blocks += e.len()
		users[e.chunk]++
		if len(e.shares) == 0 {
			t.Fatalf("nobody holds stretch %x", id)
		}
		for i, sh := range e.shares {
			if sh.refs == 0 || sh.weight < 0 || sh.weight > wholeBlock {
				t.Fatalf("stretch %x has share %+v", id, sh)
			}
			if i > 0 && e.shares[i-1].seat >= sh.seat {
				t.Fatalf("stretch %x has its shares out of order: %v", id, e.shares)
			}
			if e.parent == nil {
				continue
			}
			if k, ok := e.parent.find(sh.seat); !ok || e.parent.shares[k].refs < sh.refs {
				t.Fatalf("seat %d holds stretch %x more often than what is before it", sh.seat, id)
			}
		}
		if p := e.parent; p != nil {
			if l.stretches[p.first()] != p {
				t.Fatalf("stretch %x comes after one that is gone", id)
			}
			f := families[p]
			families[p] = family{f.n + 1, f.firsts ^ id}
		}
	}
	for id, e := range l.stretches {
		f := families[e]
		if f.n != e.children || f.firsts != e.firsts {
			t.Fatalf("stretch %x counts %d children (%x), there are %d (%x)", id, e.children, e.firsts, f.n, f.firsts)
		}
		if e.children == 1 {
			next := l.stretches[e.firsts]
			if next.chunk == e.chunk && next.lo == e.hi && slices.Equal(e.shares, next.shares) {
				t.Fatalf("nothing tells stretch %x from its child %x", id, e.firsts)
			}
		}
	}
	for c, n := range users {
		if c.users != n {
			t.Fatalf("a chunk counts %d users, there are %d", c.users, n)
		}
	}
	if blocks != l.blocks {
		t.Fatalf("the ledger counts %d blocks, there are %d", l.blocks, blocks)
	}
	spare := 0
	for class, list := range l.spares.chunks {
		spare += len(list) * 8 << class
		for _, c := range list {
			if users[c] != 0 || c.users != 0 || len(c.ids) != 0 || cap(c.ids) != 1<<class {
				t.Fatalf("a spare chunk of class %d has %d users, %d ids and room for %d", class, c.users, len(c.ids), cap(c.ids))
			}
		}
	}
	for _, e := range l.spares.stretches {
		spare += stretchBytes + shareBytes*cap(e.shares)
	}
	if spare != l.spares.bytes || spare > maxSpare {
		t.Fatalf("the ledger keeps %d bytes and counts %d; %d is the most", spare, l.spares.bytes, maxSpare)
	}
	leaving := 0
	for _, s := range l.seats {
		if !s.joined && s.requests > 0 {
			leaving++
		}
	}
	if leaving != l.leaving {
		t.Fatalf("the ledger counts %d seats as leaving, there are %d", l.leaving, leaving)
	}
}

// A naiveLedger counts every block on every seat by itself.
type naiveLedger struct {
	seats []*naiveSeat
}

type naiveSeat struct {
	joined   bool
	blocks   map[naiveBlock]*naiveCount
	requests map[*naiveRequest]bool
}

// A naiveBlock is a block of a prompt, or one that a request has for itself.
type naiveBlock struct {
	id     kv.BlockID
	owner  *naiveRequest
	number int
	output bool
}

type naiveCount struct {
	refs   int
	weight float64
}

type naiveRequest struct {
	seat    int
	blocks  []naiveBlock
	tokens  int
	adapter string
}

func (m *naiveLedger) join() int {
	fresh := &naiveSeat{joined: true, blocks: map[naiveBlock]*naiveCount{}, requests: map[*naiveRequest]bool{}}
	for i, s := range m.seats {
		if !s.joined && len(s.requests) == 0 {
			m.seats[i] = fresh
			return i
		}
	}
	m.seats = append(m.seats, fresh)
	return len(m.seats) - 1
}

func (m *naiveLedger) add(r *naiveRequest, b naiveBlock) {
	r.blocks = append(r.blocks, b)
	s := m.seats[r.seat]
	if s.blocks[b] == nil {
		s.blocks[b] = &naiveCount{weight: 1}
	}
	s.blocks[b].refs++
}

func (m *naiveLedger) book(seat int, w Work) *naiveRequest {
	r := &naiveRequest{seat: seat, tokens: w.PrefillTokens, adapter: w.Adapter}
	m.seats[seat].requests[r] = true
	for _, b := range w.Prompt {
		m.add(r, naiveBlock{id: b.ID})
	}
	for i := range w.Loose {
		m.add(r, naiveBlock{owner: r, number: i})
	}
	return r
}

func (m *naiveLedger) grow(r *naiveRequest, n int, weight float64) {
	for range n {
		m.add(r, naiveBlock{owner: r, number: len(r.blocks), output: true})
	}
	if weight < 0 {
		return
	}
	for _, b := range r.blocks {
		if c := m.seats[r.seat].blocks[b]; c.refs == 1 {
			c.weight = weight
		}
	}
}

func (m *naiveLedger) free(r *naiveRequest) {
	s := m.seats[r.seat]
	delete(s.requests, r)
	for _, b := range r.blocks {
		if s.blocks[b].refs--; s.blocks[b].refs == 0 {
			delete(s.blocks, b)
		}
	}
}

func (m *naiveLedger) load(seat int) Load {
	s := m.seats[seat]
	l := Load{Requests: len(s.requests)}
	for r := range s.requests {
		l.PrefillTokens += r.tokens
	}
	for b, c := range s.blocks {
		if b.output {
			l.Output += c.weight
		} else {
			l.Blocks += c.weight
		}
	}
	return l
}

func (m *naiveLedger) live(prompt []kv.Block) []int32 {
	var live []int32
	for _, s := range m.seats {
		n := 0
		for s.joined && n < len(prompt) && s.blocks[naiveBlock{id: prompt[n].ID}] != nil {
			n++
		}
		live = append(live, int32(n))
	}
	return live
}

func (m *naiveLedger) adapters() map[string]int {
	n := map[string]int{}
	for _, s := range m.seats {
		for r := range s.requests {
			if r.adapter != "" {
				n[r.adapter]++
			}
		}
	}
	return n
}

func (m *naiveLedger) distinct() int {
	ids := map[kv.BlockID]bool{}
	for _, s := range m.seats {
		for b := range s.blocks {
			if b.owner == nil {
				ids[b.id] = true
			}
		}
	}
	return len(ids)
}

// ledgerPair drives a ledger and the naive one through the same calls. What comes
// next is drawn by draw(n), which returns a number below n.
type ledgerPair struct {
	t     testing.TB
	draw  func(n int) int
	real  Ledger
	model naiveLedger
	// live are the bookings, together with what the naive ledger has of them.
	live []ledgerLive
	// grown is the prompt booked last, which others go on from.
	grown []kv.Block
}

type ledgerLive struct {
	*Booking
	model *naiveRequest
}

// prompt draws one: words of a few lengths, of which there are few, so that prompts
// part from each other anywhere and many are equal.
func (p *ledgerPair) prompt() []kv.Block {
	var blocks []kv.Block
	if len(p.grown) > 0 && p.draw(4) == 0 {
		blocks = slices.Clone(p.grown[:1+p.draw(len(p.grown))])
	}
	id := kv.BlockID(7)
	if len(blocks) > 0 {
		id = blocks[len(blocks)-1].ID
	}
	for range p.draw(6) {
		word := 1 + p.draw(3)
		for range []int{1, 2, 5, 40}[p.draw(4)] {
			id = kv.Chain(id, kv.LocalHash(word))
			blocks = append(blocks, kv.Block{ID: id})
		}
	}
	return blocks
}

func (p *ledgerPair) step() {
	switch k := p.draw(16); {
	case k == 0 && len(p.model.seats) < 8 || len(p.model.seats) == 0:
		if got, want := int(p.real.Join()), p.model.join(); got != want {
			p.t.Fatalf("seat %d, want %d", got, want)
		}
	case k == 1:
		if s := p.draw(len(p.model.seats)); p.draw(4) == 0 {
			p.real.Leave(Seat(s))
			p.model.seats[s].joined = false
		}
	case k < 7:
		p.book()
	case len(p.live) == 0:
	case k < 9:
		b := p.live[p.draw(len(p.live))]
		first := !b.prefilled
		if got := p.real.Prefilled(b.Booking); got != first {
			p.t.Fatalf("the prompt was computed: %v, want %v", got, first)
		}
		b.model.tokens = 0
	case k < 12:
		b := p.live[p.draw(len(p.live))]
		n, weight := p.draw(3), []float64{-1, 0, 0.25, 0.5, 1, 1.0 / 3, 0.7}[p.draw(7)]
		p.real.Grow(b.Booking, n, weight)
		p.model.grow(b.model, n, weight)
	default:
		p.free(p.draw(len(p.live)))
	}
}

func (p *ledgerPair) book() {
	s := p.draw(len(p.model.seats))
	if !p.model.seats[s].joined {
		return
	}
	w := Work{
		Prompt:        p.prompt(),
		Loose:         p.draw(3),
		PrefillTokens: 10 * p.draw(10),
		Adapter:       []string{"", "a", "b"}[p.draw(3)],
	}
	b := ledgerLive{new(Booking), p.model.book(s, w)}
	p.real.Book(b.Booking, Seat(s), w)
	p.live = append(p.live, b)
	p.grown = slices.Clone(w.Prompt)
	clear(w.Prompt) // it is the caller's
}

func (p *ledgerPair) free(i int) {
	b := p.live[i]
	if !p.real.Free(b.Booking) {
		p.t.Fatal("a booking had ended before it was freed")
	}
	p.model.free(b.model)
	p.live = slices.Delete(p.live, i, i+1)
}

// compare has both answer everything.
func (p *ledgerPair) compare() {
	p.t.Helper()
	checkLedger(p.t, &p.real)
	for s := range p.model.seats {
		if want, got := p.model.load(s), p.real.Load(Seat(s)); !nearLoad(want, got) {
			p.t.Fatalf("load of seat %d (-want +got):\n%s", s, cmp.Diff(want, got))
		}
	}
	for _, prompt := range [][]kv.Block{p.prompt(), p.grown} {
		if want, got := p.model.live(prompt), p.real.Live(nil, prompt); !slices.Equal(want, got) {
			p.t.Fatalf("live of %d blocks (-want +got):\n%s", len(prompt), cmp.Diff(want, got))
		}
	}
	if want, got := p.model.adapters(), maps.Collect(p.real.Adapters()); !maps.Equal(want, got) {
		p.t.Fatalf("adapters (-want +got):\n%s", cmp.Diff(want, got))
	}
	if _, got := p.real.Stats(); got != p.model.distinct() {
		p.t.Fatalf("%d distinct blocks, want %d", got, p.model.distinct())
	}
}

// nearLoad reports whether loads are equal but for the rounding of sums of weights.
func nearLoad(a, b Load) bool {
	const most = 1e-6
	near := math.Abs(a.Blocks-b.Blocks) < most && math.Abs(a.Output-b.Output) < most
	a.Blocks, a.Output = b.Blocks, b.Output
	return near && a == b
}

func (p *ledgerPair) end() {
	for len(p.live) > 0 {
		p.free(p.draw(len(p.live)))
		p.compare()
	}
	wantEmpty(p.t, &p.real)
}

func TestLedgerModel(t *testing.T) {
	steps := 1500
	if testing.Short() {
		steps = 200
	}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 6))
		p := &ledgerPair{t: t, draw: rng.IntN}
		most := 5 << (seed % 4) // that are live at a time
		for range steps {
			p.step()
			if len(p.live) > most {
				p.free(rng.IntN(len(p.live)))
			}
			p.compare()
		}
		p.end()
	}
}

func FuzzLedger(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 100)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:min(len(data), 1000)]
		p := &ledgerPair{t: t}
		p.draw = func(n int) int {
			if len(data) == 0 {
				return 0
			}
			v := int(data[0])
			data = data[1:]
			if n > 256 && len(data) > 0 {
				v = v<<8 | int(data[0])
				data = data[1:]
			}
			return v % n
		}
		for len(data) > 0 {
			p.step()
			p.compare()
		}
		p.end()
	})
}
