package simengine

// join makes what was computed of prompts known, now that all of the pass is
// planned, and has those that are complete run. A warm-up is at its end then and
// needs its pages no longer.
func (s *sglang) join(p *Pass) {
	for _, r := range s.joined {
		s.publish(p, r)
		if !r.WarmUp {
			s.running = append(s.running, r)
		}
	}
	for _, l := range []*sglangLine{&s.waiting, &s.warm} {
		if l.partial != nil {
			s.publish(p, l.partial)
		}
	}
	p.Batch.ActiveBlocks = s.active()
	for _, r := range s.joined {
		if r.WarmUp {
			s.release(r)
		}
	}
}

// growth returns how many pages r needs for the token sampled last, before it can
// get the next.
func (s *sglang) growth(r *Request) int { return s.pagesFor(r.length()) - r.sglang.pages }

// makeWay retracts requests until there is a page for each that needs one, and
// reports whether it had to retract any that was promised room. A warm-up gives
// way first, then the request with the shortest answer, the first of them. The
// last is not retracted: it gets the pages of a prompt that was broken off.
func (s *sglang) makeWay(p *Pass) (short bool) {
	need := 0
	for _, r := range s.running {
		need += s.growth(r)
	}
	for need > s.available() || s.scarce() {
		switch {
		case s.warm.partial != nil:
			s.retract(p, s.warm.partial)
			continue
		case len(s.running) > 1:
			r := s.shortest()
			need -= s.growth(r)
			s.retract(p, r)
		case s.waiting.partial != nil:
			s.retract(p, s.waiting.partial)
		default:
			panic("simengine: a request alone finds no page")
		}
		short = true
	}
	return short
}

// scarce is when the mock engine retracts although there may be pages enough: it
// wants a token for each request, and counts only leaves as evictable.
func (s *sglang) scarce() bool {
	return s.mocker && len(s.running) > 1 && (s.free+s.tree.loose)*s.page < len(s.running)
}

// shortest returns the running request with the fewest tokens generated.
func (s *sglang) shortest() *Request {
	least := s.running[0]
	for _, r := range s.running[1:] {
		if r.generated < least.generated {
			least = r
		}
	}
	return least
}

// decode gives every running request a token.
func (s *sglang) decode(p *Pass) {
	b := &p.Batch
	for _, r := range s.running {
		s.allocate(p, r, r.length())
		r.computed = r.length()
		b.Context += r.length()
	}
	b.Decodes = len(s.running)
	b.Context = min(b.Context, s.cfg.Blocks*s.page)
	b.ActiveBlocks = max(b.ActiveBlocks, s.active())
	b.TotalBlocks, b.BlockSize = s.cfg.Blocks, s.page
	kept := s.running[:0]
	for _, r := range s.running {
		r.generated++
		out := Output{Request: r, Tokens: 1, Done: r.generated >= r.limit}
		if out.Done {
			s.publish(p, r)
			s.release(r)
		} else {
			kept = append(kept, r)
		}
		p.Outputs = append(p.Outputs, out)
	}
	clear(s.running[len(kept):])
	s.running = kept
	for _, r := range s.joined {
		if r.WarmUp {
			p.Outputs = append(p.Outputs, Output{Request: r, Done: true})
		}
	}
	clear(s.joined)
	s.joined = s.joined[:0]
}
