package simengine

import (
	"fmt"
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// Policy is the order in which an SGLang engine admits requests.
type Policy string

// The policies.
const (
	FIFO Policy = "fifo" // in the order of arrival
	FCFS Policy = "fcfs" // the same by its other name
	LPM  Policy = "lpm"  // the longest cached prefix first
)

// SGLangConfig holds what only an SGLang engine can be told. A field that is 0 or
// empty takes the default named. Of [Config], such an engine leaves
// MaxBatchedTokens and Victim aside; with NoChunkedPrefill, ChunkedPrefillSize has
// no effect.
type SGLangConfig struct {
	// Policy is the order of admission; default FIFO.
	Policy Policy
	// MaxPrefillTokens bounds the prompt tokens in a pass; default 16384. The
	// first prompt of a pass may be longer.
	MaxPrefillTokens int
	// ChunkedPrefillSize bounds the prompt tokens in a pass, too, but a prompt
	// that goes beyond it is broken off there and continued in the next pass. It
	// is a multiple of the page, which is Config.BlockSize; default 8192, rounded
	// down to full pages but at least one.
	ChunkedPrefillSize int
	// ClipMaxNewTokens bounds the tokens that are reserved for one answer;
	// default 4096.
	ClipMaxNewTokens int
	// Conservativeness, up to 1, scales the share of the tokens still to come
	// that is reserved for running answers; default 1.
	Conservativeness float64
}

// withDefaults fills in defaults and checks the rest, if the engine is SGLang.
func (s SGLangConfig) withDefaults(cfg *Config) (SGLangConfig, error) {
	if cfg.Kind != SGLang {
		return s, nil
	}
	if err := oneOf("sglang policy", &s.Policy, FIFO, FCFS, LPM); err != nil {
		return s, err
	}
	page := cfg.BlockSize
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"max prefill tokens", &s.MaxPrefillTokens, 16384},
		{"chunked prefill size", &s.ChunkedPrefillSize, max(8192/page, 1) * page},
		{"clip max new tokens", &s.ClipMaxNewTokens, 4096},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 1 {
			return s, fmt.Errorf("simengine: sglang %s: expected at least 1, got %d", f.name, *f.value)
		}
	}
	if s.ChunkedPrefillSize%page != 0 {
		return s, fmt.Errorf("simengine: sglang chunked prefill size: expected a multiple of the block size %d, got %d", page, s.ChunkedPrefillSize)
	}
	if s.Conservativeness == 0 {
		s.Conservativeness = 1
	}
	if !(s.Conservativeness > 0 && s.Conservativeness <= 1) {
		return s, fmt.Errorf("simengine: sglang conservativeness: expected a number from 0 to 1, got %v", s.Conservativeness)
	}
	return s, nil
}

// The share of the tokens still to come that is reserved for running answers
// begins at initialRatio, and falls to leastRatio of that in ratioSteps passes
// unless requests must be retracted: then it begins anew.
const (
	initialRatio = 0.7
	leastRatio   = 0.14
	ratioSteps   = 600
)

// sglangState is what the SGLang scheduler knows of a request. A request holds
// pages that cover its computed tokens; the first of them, shared, belong to the
// tree and the rest to the request alone.
type sglangState struct {
	node          *radixNode // where the shared pages end; nil without a hold
	shared, pages int
	// For the order of admission: tokens that are cached, and whether the
	// request had better wait for one before it that computes the same prefix.
	prefix int
	behind bool
}

// sglang is the scheduler of SGLang. Before a prompt is admitted there must be
// room for it, for its answer and for a share of what running answers may still
// need. When that share was too small, the request with the shortest answer is
// retracted: it waits again, and what it computed is left to the cache.
//
// A pass computes prompts first and then a token for every request that runs.
type sglang struct {
	cfg     *Config
	mocker  bool // with the flaws of Dynamo's mock engine
	page    int
	chunk   int // tokens
	spared  int // tokens that admission leaves free
	tree    radix
	free    int // pages
	running []*Request
	waiting sglangLine
	warm    sglangLine // warm-ups wait apart
	joined  []*Request // whose prompt is complete with this pass

	ratio, initial, least, decay float64

	// late holds what entered the cache between two passes.
	late Pass
	// The line was put in order when the tree had changed so many times; moved
	// says that the line itself has changed since.
	ordered uint64
	moved   bool
	seen    map[kv.BlockID]struct{}
}

func newSGLang(cfg *Config) scheduler {
	s := &sglang{
		cfg:     cfg,
		mocker:  cfg.Rules != Current,
		page:    cfg.BlockSize,
		chunk:   cfg.SGLang.ChunkedPrefillSize,
		spared:  int(cfg.Watermark*float64(cfg.Blocks)) * cfg.BlockSize,
		tree:    newRadix(cfg.Role == Decode),
		free:    cfg.Blocks,
		initial: initialRatio * cfg.SGLang.Conservativeness,
		seen:    map[kv.BlockID]struct{}{},
	}
	if cfg.NoChunkedPrefill {
		s.chunk = Unlimited
	}
	s.ratio = s.initial
	s.least = s.initial * leastRatio
	s.decay = (s.initial - s.least) / ratioSteps
	return s
}

func (s *sglang) receive(r *Request) {
	if s.cfg.Priority && !r.WarmUp {
		s.waiting.insert(r)
	} else {
		s.line(r).push(r)
	}
	s.moved = true
}

func (s *sglang) drop(r *Request) {
	if r.state == running {
		i := slices.Index(s.running, r)
		s.running = slices.Delete(s.running, i, i+1)
	} else {
		s.line(r).remove(r)
		s.moved = true
	}
	s.publish(&s.late, r)
	s.release(r)
}

// news implements scheduler: a request that is dropped leaves its answer's pages.
func (s *sglang) news() bool { return len(s.late.Events) > 0 }

func (s *sglang) clear() {
	silent := s.tree.silent
	s.tree = newRadix(silent)
	s.free = s.cfg.Blocks
	s.moved = true
	if !silent && !s.cfg.NoPrefixCaching {
		s.late.reset()
		s.late.cleared()
	}
}

func (s *sglang) load() Load {
	return Load{
		Running:      len(s.running),
		Waiting:      s.waiting.len() + s.warm.len(),
		ActiveBlocks: s.active(),
		CachedBlocks: s.tree.evictable(),
		TotalBlocks:  s.cfg.Blocks,
	}
}

// step runs a pass. Each moves something on. If requests run once prompts are
// done, at least one of them gets a token: retraction leaves one, and it fits,
// because alone it would have the whole pool. If none runs, the first in line is
// let in whatever is reserved: nothing else is in use, so that there is room, and
// a page of it is computed at least. That can be lost again only to a request that
// gets a token for it, and tokens are never lost. So no load keeps an engine busy
// for ever.
func (s *sglang) step(p *Pass) {
	s.announce(p)
	s.order()
	s.prefill(p)
	s.join(p)
	short := s.makeWay(p)
	s.decode(p)
	if short {
		s.ratio = s.initial
	} else {
		s.ratio = max(s.ratio-s.decay, s.least)
	}
}

// announce tells what entered the cache since the last pass.
func (s *sglang) announce(p *Pass) {
	for i := range s.late.Events {
		ev := &s.late.Events[i]
		if ev.Kind == kv.Cleared {
			p.cleared()
		} else if ev.HasParent {
			p.stored(s.late.Origins[i], &kv.Block{ID: ev.Parent}, ev.Blocks...)
		} else {
			p.stored(s.late.Origins[i], nil, ev.Blocks...)
		}
	}
	s.late.reset()
}

// line returns where r waits.
func (s *sglang) line(r *Request) *sglangLine {
	if r.WarmUp {
		return &s.warm
	}
	return &s.waiting
}

// pagesFor returns how many pages n tokens need.
func (s *sglang) pagesFor(n int) int { return (n + s.page - 1) / s.page }

// available returns how many pages could be had.
func (s *sglang) available() int { return s.free + s.tree.evictable() }

// active returns how many pages requests hold.
func (s *sglang) active() int { return s.cfg.Blocks - s.available() }

// shares reports whether r's pages can be used by others.
func (s *sglang) shares(r *Request) bool { return r.Content != nil && !s.cfg.NoPrefixCaching }

// attach holds what the cache has of r up to so many pages, beyond what r holds
// already.
func (s *sglang) attach(r *Request, limit int) {
	if !s.shares(r) {
		return
	}
	st := &r.sglang
	if st.node == nil {
		st.node = s.tree.root
	}
	n, in, end := s.tree.find(r.Content, st.node, st.shared, limit)
	n = s.tree.cut(n, in)
	s.tree.hold(n, st.node)
	st.pages += end - st.shared
	st.node, st.shared = n, end
}

// allocate gives r pages for its first n tokens, of which there are enough.
func (s *sglang) allocate(p *Pass, r *Request, n int) {
	more := s.pagesFor(n) - r.sglang.pages
	for s.free < more {
		s.free += s.tree.evict(p)
	}
	s.free -= more
	r.sglang.pages += more
}

// publish hands the full pages that r has computed over to the tree. Of those
// that it has already, r gives up its own.
func (s *sglang) publish(p *Pass, r *Request) {
	st := &r.sglang
	full := r.computed / s.page
	if full <= st.shared || !s.shares(r) {
		return
	}
	n, added := s.tree.extend(p, r.Content, st.node, st.shared, full)
	s.free += full - st.shared - added
	st.node, st.shared = n, full
}

// release gives back what r holds.
func (s *sglang) release(r *Request) {
	st := &r.sglang
	if st.node != nil {
		s.tree.release(st.node)
	}
	s.free += st.pages - st.shared
	st.node, st.shared, st.pages = nil, 0, 0
	r.computed = 0
}

// retract takes the pages of a request away that runs or is partly computed, and
// has it wait at the front.
func (s *sglang) retract(p *Pass, r *Request) {
	l := s.line(r)
	if l.partial == r {
		l.partial = nil
	} else {
		i := slices.Index(s.running, r)
		s.running = slices.Delete(s.running, i, i+1)
	}
	s.publish(p, r)
	s.release(r)
	r.state = preempted
	if s.cfg.Priority && !r.WarmUp {
		l.insert(r)
	} else {
		l.pushFront(r)
	}
	s.moved = true
	p.Preempted++
}

// sglangLine is the requests that wait. The one whose prompt was broken off is in
// front of all others, so that there is one at most.
type sglangLine struct {
	queue
	partial *Request
}

func (l *sglangLine) len() int {
	if l.partial != nil {
		return l.queue.len() + 1
	}
	return l.queue.len()
}

func (l *sglangLine) first() *Request {
	if l.partial != nil {
		return l.partial
	}
	return l.queue.first()
}

// pop takes the first out.
func (l *sglangLine) pop() *Request {
	if r := l.partial; r != nil {
		l.partial = nil
		return r
	}
	return l.queue.pop()
}

func (l *sglangLine) remove(r *Request) {
	if l.partial == r {
		l.partial = nil
		return
	}
	l.queue.remove(r)
}
