package simengine

import (
	"slices"

	"github.com/stator-ai/stator/internal/kv"
)

// vllmState is what the block schedulers know of a request.
type vllmState struct {
	named     int // leading blocks whose content the cache knows
	allocated int // tokens there are blocks for; of the mocker's rules
	drafts    int // tokens speculated in this pass
	// What this pass has booked for the request, to take it back when it loses
	// its blocks again.
	used           int
	prefix, tokens int
}

// blockScheduler is what vLLM's own rules and the mocker's have in common:
// requests that run, requests that wait, and the blocks.
type blockScheduler struct {
	cfg     *Config
	cache   cache
	running []*Request // in the order of admission
	warming int        // how many of them are warm-ups
	waiting queue
	warm    queue // warm-ups wait apart
	floor   int   // blocks that admission leaves free
	match   []int32
	// The request at the front that had to wait last, how many blocks it was
	// short of, and the cache's relief at that time: before that much relief it
	// need not be looked at again.
	short       *Request
	deficit, at int
	// emptied says that the cache was emptied since the last pass.
	emptied bool
}

func newBlockScheduler(cfg *Config) blockScheduler {
	return blockScheduler{
		cfg:   cfg,
		cache: newCache(cfg.Blocks, cfg.Role == Decode || cfg.NoPrefixCaching),
		floor: int(cfg.Watermark * float64(cfg.Blocks)),
	}
}

func (s *blockScheduler) receive(r *Request) {
	switch {
	case r.WarmUp:
		s.warm.push(r)
	case s.cfg.Priority:
		s.waiting.insert(r)
	default:
		s.waiting.push(r)
	}
}

func (s *blockScheduler) drop(r *Request) {
	if r.state == running {
		s.stop(slices.Index(s.running, r))
	} else if r.WarmUp {
		s.warm.remove(r)
	} else {
		s.waiting.remove(r)
	}
	if s.short == r {
		s.short = nil // it may come back as another request
	}
	s.release(r)
}

// stop takes the running request i out.
func (s *blockScheduler) stop(i int) {
	if s.running[i].WarmUp {
		s.warming--
	}
	s.running = slices.Delete(s.running, i, i+1)
}

// news implements scheduler: between two passes the cache changes only when it is
// emptied.
func (s *blockScheduler) news() bool { return s.emptied }

func (s *blockScheduler) clear() {
	s.emptied = !s.cache.silent
	s.cache = newCache(s.cfg.Blocks, s.cache.silent)
}

// announce tells that the cache was emptied, if it was.
func (s *blockScheduler) announce(p *Pass) {
	if s.emptied {
		s.emptied = false
		p.cleared()
	}
}

func (s *blockScheduler) load() Load {
	return Load{
		Running:      len(s.running),
		Waiting:      s.waiting.len() + s.warm.len(),
		ActiveBlocks: s.cache.active,
		CachedBlocks: s.cache.cached,
		TotalBlocks:  s.cfg.Blocks,
	}
}

// shares reports whether r's blocks can be used by others.
func (s *blockScheduler) shares(r *Request) bool {
	return r.Content != nil && !s.cfg.NoPrefixCaching
}

// blocksFor returns how many blocks n tokens need.
func (s *blockScheduler) blocksFor(n int) int { return (n + s.cfg.BlockSize - 1) / s.cfg.BlockSize }

// lookup finds the longest prefix of r, of at most limit blocks, in the cache. It
// is left in s.match; active is how many of its blocks are in use.
func (s *blockScheduler) lookup(r *Request, limit int) (active int) {
	s.match = s.match[:0]
	if !s.shares(r) {
		return 0
	}
	for i := range limit {
		b := s.cache.find(r.Content.Block(i).ID)
		if b == none {
			break
		}
		if s.cache.blocks[b].refs > 0 {
			active++
		}
		s.match = append(s.match, b)
	}
	return active
}

// fits is the gate of admission: it reports whether there is room for all of r,
// of which some blocks are in use by others already. Blocks that are only cached
// take up room once they are used.
func (s *blockScheduler) fits(r *Request, active int) bool {
	floor := s.floor
	if len(s.running) == 0 {
		floor = 0 // or a large request would wait for ever
	}
	deficit := s.blocksFor(r.length()) - active - (s.cfg.Blocks - floor - s.cache.active)
	if deficit <= 0 {
		s.short = nil
		return true
	}
	s.short, s.deficit, s.at = r, deficit, s.cache.relief
	return false
}

// stillShort reports whether r is known not to fit without looking.
func (s *blockScheduler) stillShort(r *Request) bool {
	return s.short == r && len(s.running) > 0 && s.cache.relief-s.at < s.deficit
}

// admitted notes that r, which waited in q, runs.
func (s *blockScheduler) admitted(p *Pass, q *queue, r *Request, cached int) {
	q.remove(r)
	cached = min(cached, r.Prompt)
	p.Admissions = append(p.Admissions, Admission{Request: r, Cached: cached, Again: r.state == preempted})
	if !r.admitted {
		r.admitted, r.cached = true, cached
	}
	r.state = running
	s.running = append(s.running, r)
	if r.WarmUp {
		s.warming++
	}
}

// book charges a request's work to the pass.
func (s *blockScheduler) book(p *Pass, r *Request, used, prefix, tokens int) {
	r.vllm.used, r.vllm.prefix, r.vllm.tokens = used, prefix, tokens
	if tokens > prefix {
		p.Batch.Prompts++
		p.Batch.Prefix += prefix
		p.Batch.Tokens += tokens
	}
}

// unbook takes a request's work off the pass again and returns the budget it had.
func (s *blockScheduler) unbook(p *Pass, r *Request) (used int) {
	v := &r.vllm
	if v.tokens > v.prefix {
		p.Batch.Prompts--
		p.Batch.Prefix -= v.prefix
		p.Batch.Tokens -= v.tokens
	}
	used = v.used
	v.used, v.prefix, v.tokens = 0, 0, 0
	return used
}

// victim returns the index of the running request that gives way.
func (s *blockScheduler) victim() int {
	if s.warming > 0 {
		for i := len(s.running) - 1; ; i-- {
			if s.running[i].WarmUp {
				return i
			}
		}
	}
	switch {
	case s.cfg.Priority:
		least := 0
		for i, r := range s.running {
			if s.running[least].before(r) {
				least = i
			}
		}
		return least
	case s.cfg.Victim == Oldest:
		return 0
	}
	return len(s.running) - 1
}

// preempt takes the blocks of the running request i away and has it wait at the
// front. It returns the budget that is free again.
func (s *blockScheduler) preempt(p *Pass, i int) (used int) {
	r := s.running[i]
	s.stop(i)
	used = s.unbook(p, r)
	s.release(r)
	r.state = preempted
	switch {
	case r.WarmUp:
		s.warm.pushFront(r)
	case s.cfg.Priority:
		s.waiting.insert(r)
	default:
		s.waiting.pushFront(r)
	}
	p.Preempted++
	return used
}

// release gives back what a request holds.
func (s *blockScheduler) release(r *Request) {
	s.cache.letGoAll(r.blocks)
	r.blocks = r.blocks[:0]
	r.computed = 0
	r.vllm = vllmState{}
}

// stored records that block i of r entered the cache.
func (s *blockScheduler) stored(p *Pass, r *Request, i int, bl kv.Block) {
	if s.cache.silent {
		return
	}
	from := Origin{Content: r.Content, First: i}
	if i == 0 {
		p.stored(from, nil, bl)
		return
	}
	parent := r.Content.Block(i - 1)
	p.stored(from, &parent, bl)
}

// vllm is the scheduler of vLLM: running requests come first, each pass computes
// as many tokens as its budget allows, and when a running request finds no block
// another loses its own.
type vllm struct {
	blockScheduler
}

func newVLLM(cfg *Config) *vllm { return &vllm{newBlockScheduler(cfg)} }

// step plans a pass and computes it. A pass moves something on: if requests run,
// the first of them gets its tokens or a request loses its blocks, and the last
// one left always finds enough; if none runs, the first that waits fits, because
// nothing is in use.
func (v *vllm) step(p *Pass) {
	budget := v.cfg.MaxBatchedTokens
	v.announce(p)
	v.advance(p, &budget, false)
	if p.Preempted == 0 {
		v.admit(p, &budget, &v.waiting)
	}
	if v.warming > 0 {
		v.advance(p, &budget, true)
	}
	if p.Preempted == 0 && v.waiting.len() == 0 {
		v.admit(p, &budget, &v.warm)
	}
	v.finish(p)
}

// advance plans the running requests, warm-ups or all others.
func (v *vllm) advance(p *Pass, budget *int, warm bool) {
	for i := 0; i < len(v.running) && *budget > 0; {
		r := v.running[i]
		if r.WarmUp != warm {
			i++
			continue
		}
		tokens := min(r.length()-r.computed, *budget)
		drafts := v.drafts(r, *budget-tokens)
		need := v.blocksFor(r.computed+tokens+drafts) - len(r.blocks)
		lost := false
		for need > v.cache.available() && !lost {
			at := v.victim()
			lost = v.running[at] == r
			*budget += v.preempt(p, at)
			if at < i {
				i--
			}
		}
		if lost {
			continue
		}
		v.compute(p, r, tokens, drafts)
		*budget -= tokens + drafts
		i++
	}
	// What is computed can be found from now on. Not earlier: a request that
	// was planned may have lost its blocks to one after it.
	for _, r := range v.running {
		v.name(p, r)
	}
}

// drafts returns how many tokens to speculate for r.
func (v *vllm) drafts(r *Request, budget int) int {
	if v.cfg.Draft == 0 || r.generated == 0 || r.length()-r.computed != 1 {
		return 0
	}
	return max(0, min(v.cfg.Draft, r.limit-r.generated-1, budget))
}

// compute gives r the blocks for its next tokens, of which there are enough, and
// books the work.
func (v *vllm) compute(p *Pass, r *Request, tokens, drafts int) {
	before := r.computed
	after := before + tokens
	for need := v.blocksFor(after+drafts) - len(r.blocks); need > 0; need-- {
		r.blocks = append(r.blocks, v.cache.take(p))
	}
	r.computed = after
	r.vllm.drafts = drafts
	if r.generated > 0 && before == r.length()-1 {
		v.book(p, r, tokens+drafts, 0, 0) // the token sampled last
	} else {
		v.book(p, r, tokens, before, after)
	}
}

// admit lets requests in from q as long as the first of them fits. Warm-ups make
// room for others.
func (v *vllm) admit(p *Pass, budget *int, q *queue) {
	for *budget > 0 {
		r := q.first()
		if r == nil {
			return
		}
		gives := v.warming > 0 && !r.WarmUp
		if len(v.running) >= v.cfg.MaxSeqs {
			if !gives {
				return
			}
			v.preempt(p, v.victim())
			continue
		}
		if !gives && v.stillShort(r) {
			return
		}
		// The last token is computed in any case: what follows it comes from
		// there.
		active := v.lookup(r, (r.length()-1)/v.cfg.BlockSize)
		if v.cfg.Draft > 0 && len(v.match) > 0 {
			// The draft model needs the block before, too.
			last := len(v.match) - 1
			if v.cache.blocks[v.match[last]].refs > 0 {
				active--
			}
			v.match = v.match[:last]
		}
		if !v.fits(r, active) {
			if !gives {
				return
			}
			v.preempt(p, v.victim())
			continue
		}
		cached := len(v.match) * v.cfg.BlockSize
		tokens := r.length() - cached
		if tokens > *budget {
			if v.cfg.NoChunkedPrefill && *budget < v.cfg.MaxBatchedTokens {
				return
			}
			if !v.cfg.NoChunkedPrefill {
				tokens = *budget
			}
		}
		for _, b := range v.match {
			v.cache.use(b)
		}
		r.blocks = append(slices.Grow(r.blocks, v.blocksFor(r.length())+1), v.match...)
		r.computed, r.vllm.named = cached, len(v.match)
		v.admitted(p, q, r, cached)
		v.compute(p, r, tokens, 0)
		v.name(p, r)
		*budget -= tokens
	}
}

// name makes the blocks that r has computed known.
func (v *vllm) name(p *Pass, r *Request) {
	if r.computed < (r.vllm.named+1)*v.cfg.BlockSize || !v.shares(r) {
		return
	}
	full := r.computed / v.cfg.BlockSize
	for i := r.vllm.named; i < full; i++ {
		bl := r.Content.Block(i)
		v.cache.name(r.blocks[i], bl.ID)
		v.stored(p, r, i, bl)
	}
	r.vllm.named = full
}

// finish computes the pass: every request whose tokens are all computed gets the
// next, and those that have enough end.
func (v *vllm) finish(p *Pass) {
	p.Batch.ActiveBlocks, p.Batch.TotalBlocks, p.Batch.BlockSize = v.cache.active, v.cfg.Blocks, v.cfg.BlockSize
	kept := v.running[:0]
	for _, r := range v.running {
		r.vllm.used, r.vllm.prefix, r.vllm.tokens = 0, 0, 0
		length := r.length()
		if r.computed < length {
			kept = append(kept, r)
			continue
		}
		out := Output{Request: r}
		if !r.WarmUp {
			p.Batch.Decodes++
			p.Batch.Context += length
			out.Tokens = 1 + v.accepted(r)
			r.generated += out.Tokens
			r.computed = r.length() - 1
		}
		if out.Done = r.generated >= r.limit; out.Done {
			v.release(r)
			if r.WarmUp {
				v.warming--
			}
		} else {
			kept = append(kept, r)
		}
		p.Outputs = append(p.Outputs, out)
	}
	clear(v.running[len(kept):])
	v.running = kept
}

// accepted returns how many of the tokens speculated for r are right. It depends
// on the request and its position only, not on what else runs.
func (v *vllm) accepted(r *Request) (n int) {
	for n < r.vllm.drafts {
		draw := mix(v.cfg.Seed ^ mix(r.ID^mix(uint64(r.generated+n))))
		if float64(draw>>11)/(1<<53) >= v.cfg.Accept[n] {
			break
		}
		n++
	}
	return n
}

// mix spreads the bits of x; the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
