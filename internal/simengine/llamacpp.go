package simengine

import (
	"slices"
	"sort"

	"github.com/stator-ai/stator/internal/kv"
)

// leastAlike is the share of a prompt that a slot must hold for the slot to be chosen
// because of it.
const leastAlike = 0.10

// llamaSlot runs one request at a time and keeps the tokens that it computed, until
// the next request takes the part that it shares.
type llamaSlot struct {
	request *Request // nil while idle
	// held names the tokens computed, each with all before it. It is empty when what
	// they are is not known.
	held []kv.BlockID
	used uint64 // when it was let go last, in turns
}

// llamaCpp is the scheduler of llama.cpp's server. A request runs in a slot: the idle
// one that holds most of its prompt, if that is a tenth of it or more, else the one
// that has been idle for longest. There is no other cache; the server's copy of
// prompts in main memory is not modelled. A pass computes a token for every answer,
// and with the room that is left prompts, slot by slot.
type llamaCpp struct {
	cfg     *Config
	slots   []llamaSlot
	waiting queue
	warm    queue // warm-ups wait apart
	turns   uint64
}

func newLlamaCpp(cfg *Config) *llamaCpp {
	return &llamaCpp{cfg: cfg, slots: make([]llamaSlot, cfg.MaxSeqs)}
}

func (l *llamaCpp) line(r *Request) *queue {
	if r.WarmUp {
		return &l.warm
	}
	return &l.waiting
}

func (l *llamaCpp) receive(r *Request) {
	if r.Slot > len(l.slots) {
		r.Slot = 0
	}
	l.line(r).push(r)
}

func (l *llamaCpp) drop(r *Request) {
	if r.state == running {
		l.letGo(l.slotOf(r))
		return
	}
	l.line(r).remove(r)
}

func (l *llamaCpp) news() bool { return false }

func (l *llamaCpp) clear() {
	for i := range l.slots {
		l.slots[i].held = l.slots[i].held[:0]
	}
}

func (l *llamaCpp) load() Load {
	out := Load{Waiting: l.waiting.len() + l.warm.len(), TotalBlocks: l.cfg.Blocks}
	for i := range l.slots {
		if s := &l.slots[i]; s.request != nil {
			out.Running++
			out.ActiveBlocks += s.request.computed
		} else {
			out.CachedBlocks += len(s.held)
		}
	}
	return out
}

// slotOf returns the slot that r runs in.
func (l *llamaCpp) slotOf(r *Request) *llamaSlot {
	i := slices.IndexFunc(l.slots, func(s llamaSlot) bool { return s.request == r })
	return &l.slots[i]
}

// letGo makes a slot idle. What its request computed stays.
func (l *llamaCpp) letGo(s *llamaSlot) {
	s.request.computed = 0
	s.request = nil
	l.turns++
	s.used = l.turns
}

// step runs a pass. Each moves something on: if a request waits a slot is idle, or all
// run, and the first of those that run gets at least one token computed.
func (l *llamaCpp) step(p *Pass) {
	for l.admit(p, &l.waiting) || l.waiting.len() > 0 && l.giveWay(p) {
	}
	for l.waiting.len() == 0 && l.admit(p, &l.warm) {
	}
	budget := l.cfg.MaxBatchedTokens
	for i := range l.slots {
		if r := l.slots[i].request; r != nil && r.generated > 0 && budget > 0 {
			l.compute(&l.slots[i], 1)
			budget--
		}
	}
	for i := range l.slots {
		s := &l.slots[i]
		if s.request == nil || s.request.generated > 0 {
			continue
		}
		if n := min(s.request.Prompt-s.request.computed, budget); n > 0 {
			p.Batch.Prompts++
			p.Batch.Prefix += s.request.computed
			p.Batch.Tokens += s.request.computed + n
			l.compute(s, n)
			budget -= n
		}
	}
	l.finish(p)
}

// admit gives the first request of a line a slot and reports whether it could.
func (l *llamaCpp) admit(p *Pass, q *queue) bool {
	r := q.first()
	if r == nil {
		return false
	}
	s, shared := l.choose(r)
	if s == nil {
		return false
	}
	q.pop()
	again := r.state == preempted
	r.state, r.computed = running, shared
	if !r.admitted {
		r.admitted, r.cached = true, shared
	}
	s.request, s.held = r, s.held[:shared]
	p.Admissions = append(p.Admissions, Admission{Request: r, Cached: shared, Again: again})
	return true
}

// choose returns the slot for r, nil if there is none, and how many tokens it need
// not compute there. The last of a prompt is always computed: what follows it comes
// from there.
func (l *llamaCpp) choose(r *Request) (best *llamaSlot, shared int) {
	var oldest *llamaSlot
	most := int(leastAlike * float64(r.Prompt)) // tokens; it takes more
	for i := range l.slots {
		s := &l.slots[i]
		if s.request != nil || r.Slot > 0 && r.Slot != i+1 {
			continue
		}
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
		if n := l.alike(s, r); n > most {
			best, most = s, n
		}
	}
	if best == nil {
		best = oldest
	}
	if best == nil || r.Fresh || l.cfg.NoPrefixCaching {
		return best, 0
	}
	return best, min(l.alike(best, r), r.length()-1)
}

// alike returns how many tokens of r a slot holds. A token's name stands for all
// before it, so that one comparison tells of them all.
func (l *llamaCpp) alike(s *llamaSlot, r *Request) int {
	if r.Content == nil {
		return 0
	}
	n := min(len(s.held), r.length())
	return sort.Search(n, func(i int) bool { return s.held[i] != r.Content.Block(i).ID })
}

// giveWay takes the slot of a warm-up away for a request that waits.
func (l *llamaCpp) giveWay(p *Pass) bool {
	for i := range l.slots {
		s := &l.slots[i]
		if r := s.request; r != nil && r.WarmUp && (l.waiting.first().Slot == 0 || l.waiting.first().Slot == i+1) {
			l.letGo(s)
			r.state = preempted
			l.warm.pushFront(r)
			p.Preempted++
			return true
		}
	}
	return false
}

// compute adds the next n tokens of a slot's request.
func (l *llamaCpp) compute(s *llamaSlot, n int) {
	r := s.request
	if r.Content != nil && len(s.held) == r.computed {
		for i := r.computed; i < r.computed+n; i++ {
			s.held = append(s.held, r.Content.Block(i).ID)
		}
	}
	r.computed += n
}

// finish gives the next token to every request whose tokens are computed.
func (l *llamaCpp) finish(p *Pass) {
	b := &p.Batch
	b.TotalBlocks, b.BlockSize = l.cfg.Blocks, 1
	for i := range l.slots {
		s := &l.slots[i]
		r := s.request
		if r == nil {
			continue
		}
		b.ActiveBlocks += r.computed
		if r.computed < r.length() {
			continue
		}
		out := Output{Request: r}
		if !r.WarmUp {
			b.Decodes++
			b.Context += r.length()
			r.generated++
			out.Tokens = 1
		}
		if out.Done = r.generated >= r.limit; out.Done {
			l.letGo(s)
		}
		p.Outputs = append(p.Outputs, out)
	}
}

// Slot is what a slot of a llama.cpp server does.
type Slot struct {
	// Request runs in it; nil while it is idle.
	Request *Request
	// Held is how many tokens are in its cache.
	Held int
}

// AppendSlots appends the slots of a [LlamaCpp] engine to dst; others have none.
func (e *Engine) AppendSlots(dst []Slot) []Slot {
	l, ok := e.sched.(*llamaCpp)
	if !ok {
		return dst
	}
	for i := range l.slots {
		s := &l.slots[i]
		out := Slot{Request: s.request, Held: len(s.held)}
		if s.request != nil {
			out.Held = s.request.computed
		}
		dst = append(dst, out)
	}
	return dst
}

// EraseSlot empties the cache of a slot, counted from 1, and reports whether it could:
// a request that runs in it stands in the way.
func (e *Engine) EraseSlot(slot int) bool {
	l, ok := e.sched.(*llamaCpp)
	if !ok || slot < 1 || slot > len(l.slots) || l.slots[slot-1].request != nil {
		return false
	}
	l.slots[slot-1].held = l.slots[slot-1].held[:0]
	return true
}
