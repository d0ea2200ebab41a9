package simengine

// mocker follows the rules of Dynamo's mock engine. It is kept for comparison:
// under memory pressure it thrashes, since a waiting request takes blocks from
// running ones. In one thing it differs: a request that lost its blocks waits
// until there is room, or two could take them from each other for ever.
//
// Blocks are shared by content from the moment they are allocated, before they
// are computed. The last, partly filled block of a sequence gets its content's
// name with the token after its last.
type mocker struct {
	blockScheduler
	gated bool
}

func newMocker(cfg *Config) *mocker {
	return &mocker{blockScheduler: newBlockScheduler(cfg), gated: cfg.Rules == MockerGated}
}

func (m *mocker) step(p *Pass) {
	budget := m.cfg.MaxBatchedTokens
	m.announce(p)
	m.advance(p, &budget)
	if p.Preempted == 0 {
		m.admit(p, &budget)
	}
	m.finish(p)
}

// advance schedules the running requests. When one before the current loses its
// blocks, the next takes the current's place and is passed over.
func (m *mocker) advance(p *Pass, budget *int) {
	for i := 0; i < len(m.running) && *budget > 0; {
		r := m.running[i]
		if m.schedule(p, r, 0, min(r.length()-r.computed, *budget), budget) {
			i++
		}
	}
}

// admit schedules waiting requests.
func (m *mocker) admit(p *Pass, budget *int) {
	for len(m.running) < m.cfg.MaxSeqs && p.Preempted == 0 {
		q := &m.waiting
		if q.len() == 0 {
			q = &m.warm
		}
		r := q.first()
		if r == nil {
			return
		}
		gated := m.gated || r.state == preempted
		if gated && m.stillShort(r) {
			return
		}
		cached := m.cached(r)
		if gated && !m.fits(r, m.activeMatch()) {
			return
		}
		rest := r.length() - cached
		tokens := min(rest, *budget)
		if m.cfg.NoChunkedPrefill && r.Prompt-cached > *budget {
			if *budget < m.cfg.MaxBatchedTokens {
				return
			}
			tokens = rest // it would wait for ever
		}
		if tokens == 0 && rest > 0 {
			return
		}
		left := *budget
		m.schedule(p, r, cached, tokens, budget)
		m.admitted(p, q, r, cached)
		if *budget == left && *budget == 0 {
			return
		}
	}
}

// cached returns how many tokens of a request that has nothing computed are in
// the cache.
func (m *mocker) cached(r *Request) int {
	m.lookup(r, r.length()/m.cfg.BlockSize)
	return min(len(m.match)*m.cfg.BlockSize, r.Prompt)
}

// activeMatch returns how many blocks of the prefix found last are in use.
func (m *mocker) activeMatch() (n int) {
	for _, b := range m.match {
		if m.cache.blocks[b].refs > 0 {
			n++
		}
	}
	return n
}

// schedule computes so many tokens of r beyond those it has and those that are
// cached, taking blocks from others if it must. It reports false when r lost its
// own.
func (m *mocker) schedule(p *Pass, r *Request, cached, tokens int, budget *int) bool {
	before := r.computed + cached
	target := before + tokens
	for target > r.vllm.allocated && !m.allocate(p, r, target) {
		if len(m.running) == 0 {
			panic("simengine: a request alone finds no block")
		}
		at := m.victim()
		self := m.running[at] == r
		*budget += m.preempt(p, at)
		if self {
			return false
		}
	}
	r.computed = target
	m.book(p, r, tokens, min(before, r.Prompt), min(target, r.Prompt))
	*budget -= tokens
	return true
}

// allocate gives r blocks for its first tokens up to target and reports whether
// there were enough.
func (m *mocker) allocate(p *Pass, r *Request, target int) bool {
	for len(r.blocks) < m.blocksFor(target) {
		i := len(r.blocks)
		if (i+1)*m.cfg.BlockSize > r.length() || !m.shares(r) {
			b := m.cache.take(p)
			if b == none {
				r.vllm.allocated = min(i*m.cfg.BlockSize, target)
				return false
			}
			r.blocks = append(r.blocks, b)
			continue
		}
		bl := r.Content.Block(i)
		b := m.cache.find(bl.ID)
		if b != none {
			m.cache.use(b)
		} else if b = m.cache.take(p); b == none {
			r.vllm.allocated = min(i*m.cfg.BlockSize, target)
			return false
		} else {
			m.cache.name(b, bl.ID)
			m.stored(p, r, i, bl)
		}
		r.blocks = append(r.blocks, b)
		r.vllm.named = i + 1
	}
	r.vllm.allocated = target
	return true
}

// finish gives every request that is computed its next token.
func (m *mocker) finish(p *Pass) {
	p.Batch.ActiveBlocks, p.Batch.TotalBlocks, p.Batch.BlockSize = m.cache.active, m.cfg.Blocks, m.cfg.BlockSize
	for _, r := range m.running {
		r.vllm.used, r.vllm.prefix, r.vllm.tokens = 0, 0, 0
	}
	for i := 0; i < len(m.running); {
		r := m.running[i]
		if r.computed < r.length() {
			i++
			continue
		}
		out := Output{Request: r}
		if !r.WarmUp {
			length := r.length()
			r.generated++
			preempted, ok := m.grow(p, r, i)
			i -= preempted
			if !ok {
				r.generated--
				continue // it lost its blocks
			}
			p.Batch.Decodes++
			p.Batch.Context += length
			out.Tokens = 1
		}
		if out.Done = r.generated >= r.limit; out.Done {
			m.release(r)
			m.stop(i)
		} else {
			i++
		}
		p.Outputs = append(p.Outputs, out)
	}
}

// grow makes room for the token that r, the running request i, has just got. It
// returns how many requests before r lost their blocks, and false when r itself
// did.
func (m *mocker) grow(p *Pass, r *Request, i int) (before int, ok bool) {
	if r.length()%m.cfg.BlockSize != 1 {
		return 0, true
	}
	if last := len(r.blocks) - 1; r.vllm.named <= last && m.shares(r) {
		bl := r.Content.Block(last)
		if b := m.cache.find(bl.ID); b != none {
			m.cache.use(b)
			m.cache.letGo(r.blocks[last])
			r.blocks[last] = b
		} else {
			m.cache.name(r.blocks[last], bl.ID)
			m.stored(p, r, last, bl)
		}
		r.vllm.named = last + 1
	}
	for {
		if b := m.cache.take(p); b != none {
			r.blocks = append(r.blocks, b)
			r.vllm.allocated = r.length()
			return before, true
		}
		at := m.victim()
		m.preempt(p, at)
		if at == i-before {
			return before, false
		}
		if at < i-before {
			before++
		}
	}
}
