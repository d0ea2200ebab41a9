package simengine

import (
	"cmp"
	"slices"
)

const (
	// longestOrdered bounds the line whose order is worth the effort.
	longestOrdered = 128
	// A request with at most this many tokens cached waits for one before it
	// with which it shares at least as many.
	fewCached = 32
)

// order puts the line in the order of the policy.
func (s *sglang) order() {
	if s.cfg.SGLang.Policy != LPM || s.cfg.NoPrefixCaching {
		return
	}
	if !s.moved && s.ordered == s.tree.changes {
		return
	}
	s.moved, s.ordered = false, s.tree.changes
	line := s.waiting.items[s.waiting.head:]
	if len(line) > longestOrdered {
		return
	}
	for _, r := range line {
		r.sglang.prefix, r.sglang.behind = s.cachedPrefix(r), false
		if r.sglang.prefix <= fewCached {
			r.sglang.behind = s.seenBefore(r)
		}
	}
	clear(s.seen)
	slices.SortStableFunc(line, func(a, b *Request) int {
		switch {
		case a.sglang.behind == b.sglang.behind:
			return cmp.Compare(b.sglang.prefix, a.sglang.prefix)
		case a.sglang.behind:
			return 1
		default:
			return -1
		}
	})
}

// cachedPrefix returns how many tokens of a waiting request are cached.
func (s *sglang) cachedPrefix(r *Request) int {
	if !s.shares(r) {
		return 0
	}
	_, _, end := s.tree.find(r.Content, s.tree.root, 0, r.length()/s.page)
	return end * s.page
}

// seenBefore reports whether a request before r has the same beginning. The page
// that reaches fewCached tokens stands for all of it.
func (s *sglang) seenBefore(r *Request) bool {
	pages := s.pagesFor(fewCached)
	if r.Content == nil || r.length() < pages*s.page {
		return false
	}
	id := r.Content.Block(pages - 1).ID
	_, before := s.seen[id]
	s.seen[id] = struct{}{}
	return before
}

// sglangBudget is what prompts may still use in a pass.
type sglangBudget struct {
	input, chunk int     // prompt tokens
	reserved     float64 // tokens of the pool that answers may come to need
	prompts      int     // admitted or continued so far
}

// answer returns the tokens that may still come from r, as far as room is kept
// for them.
func (s *sglang) answer(r *Request) int {
	return min(r.limit-r.generated, s.cfg.SGLang.ClipMaxNewTokens)
}

// prefill computes prompts: of those that wait, in order, as long as the first
// fits.
func (s *sglang) prefill(p *Pass) {
	if s.waiting.len()+s.warm.len() == 0 {
		return
	}
	b := sglangBudget{input: s.cfg.SGLang.MaxPrefillTokens, chunk: s.chunk}
	for _, r := range s.running {
		b.reserved += float64(s.answer(r)) * s.ratio
	}
	for {
		l := &s.waiting
		if l.len() == 0 {
			l = &s.warm
		}
		r := l.first()
		if r == nil {
			return
		}
		if !s.mocker && len(s.running)+len(s.joined) >= s.cfg.MaxSeqs {
			return
		}
		if !s.admit(p, l, r, &b) {
			return
		}
	}
}

// admit computes as much as it may of r, which is the first in its line, and
// reports whether that was all, so that another can follow.
//
// Of a request that is admitted, the tokens to compute are those behind its cached
// prefix, and at least the last: what follows it comes from there. The mock
// engine charges cached tokens to the budgets as if they were computed, and
// computes none if all are cached.
func (s *sglang) admit(p *Pass, l *sglangLine, r *Request, b *sglangBudget) bool {
	begins := l.partial != r
	if begins && !s.mocker {
		s.attach(r, (r.length()-1)/s.page)
		r.computed = r.sglang.shared * s.page
	}
	rest := r.length() - r.computed
	tokens := s.tokens(rest, b)
	target := r.computed + tokens
	charge := s.pagesFor(tokens) * s.page
	ok := tokens > 0 && charge <= b.chunk && (charge <= b.input || b.prompts == 0)
	if ok && s.mocker {
		s.attach(r, target/s.page)
	}
	if !ok || !s.room(p, l, r, target, rest, b) {
		if begins {
			s.release(r)
		}
		return false
	}
	if begins {
		s.admitted(p, r)
	}
	l.pop()
	s.moved = true
	before := max(r.computed, r.sglang.shared*s.page)
	s.allocate(p, r, target)
	r.computed = target
	if target > before {
		p.Batch.Prompts++
		p.Batch.Prefix += before
		p.Batch.Tokens += target
	}
	b.prompts++
	b.input -= charge
	b.chunk -= charge
	if target < r.length() {
		r.state = waiting
		l.partial = r
		return false
	}
	r.state = running
	s.joined = append(s.joined, r)
	b.reserved += float64(s.answer(r))
	return true
}

// tokens returns how many of a prompt's remaining tokens may be computed now. A
// prompt is broken off at the end of a page. The mock engine breaks off only those
// that are too long for any pass; others wait for one with room.
func (s *sglang) tokens(rest int, b *sglangBudget) int {
	whole := s.pagesFor(rest)*s.page <= b.chunk
	if s.mocker {
		whole = rest <= s.chunk
	}
	if whole {
		return rest
	}
	return b.chunk / s.page * s.page
}

// room reports whether there are pages for the tokens of r up to target, and
// enough to be had beyond for the rest of it and its answer. A warm-up that holds
// pages gives way to others.
func (s *sglang) room(p *Pass, l *sglangLine, r *Request, target, rest int, b *sglangBudget) bool {
	need := float64(rest + s.answer(r))
	for s.pagesFor(target)-r.sglang.pages > s.available() || !s.alone() && need >= s.left(b) {
		if l == &s.warm || s.warm.partial == nil {
			return false
		}
		s.retract(p, s.warm.partial)
	}
	return true
}

// alone reports whether no request runs, so that all of the pool is for the next.
func (s *sglang) alone() bool { return len(s.running) == 0 && len(s.joined) == 0 }

// left returns the tokens of the pool that are not needed or reserved. What a
// request leaves empty of its last page is not among them: pages are counted. The
// mock engine counts only the leaves of the tree among what can be evicted.
func (s *sglang) left(b *sglangBudget) float64 {
	pages := s.available()
	if s.mocker {
		pages = s.free + s.tree.loose
	}
	return float64(pages*s.page-s.spared) - b.reserved
}

// admitted notes that r begins to be computed.
func (s *sglang) admitted(p *Pass, r *Request) {
	cached := min(r.sglang.shared*s.page, r.Prompt)
	p.Admissions = append(p.Admissions, Admission{Request: r, Cached: cached, Again: r.state == preempted})
	if !r.admitted {
		r.admitted, r.cached = true, cached
	}
}
