package metrics

import "time"

// Request records one request from arrival to the end of its answer. The calls
// come in this order: Start, Ready, Tokens as the answer arrives, End; the
// others in between whenever their facts are known. After End nothing more is
// recorded. A Request must not be used by two goroutines at once.
type Request struct {
	model    *Model
	endpoint int
	stream   int

	start time.Time
	ready time.Time // start of the clock for the first token
	last  time.Time // latest item with tokens

	tokens int
	prompt int

	promptKnown, promptSeen bool // known to us, and recorded
	cachedSeen              bool
	first                   bool // had an item with tokens
	cancelled               bool
	rejected                bool
	ended                   bool
}

// Start records the arrival of a request: one more in flight and one more
// waiting for its first token. Every Start needs an End.
func (m *Model) Start(now time.Time, ep Endpoint, stream bool) *Request {
	r := &Request{model: m, endpoint: index(endpoints, ep), start: now, ready: now}
	if stream {
		r.stream = 1
	}
	s := m.series
	s.inflight.Inc()
	s.active.Inc()
	s.queued.Inc()
	if i := r.cell(); !s.started.incMade(i) {
		s.started.incNew(i, s.label, r.endpointLabel(), r.typeLabel())
	}
	return r
}

// Ready starts the clock for the time to first token: the request is valid and
// its model is served. Without it that clock runs from Start.
func (r *Request) Ready(now time.Time) { r.ready = now }

// Tokens records an item of the answer with n new tokens. The first such item
// gives the time to first token, however many tokens it has; each later one
// gives n inter-token latencies of 1/n of the time since the item before. An
// item without tokens is nothing. The cost does not depend on n, and nothing is
// allocated.
func (r *Request) Tokens(now time.Time, n int) {
	if n <= 0 || r.ended {
		return
	}
	s := r.model.series
	if r.first {
		s.itl.observe(seconds(now.Sub(r.last))/float64(n), uint64(n))
	} else {
		r.first = true
		s.ttft.Observe(seconds(now.Sub(r.ready)))
		s.queued.Dec()
		r.observePrompt()
	}
	r.last = now
	r.tokens += n
	s.addTokens(n)
}

// CorrectTokens adds delta to the number of tokens recorded so far, without
// effect on latencies: the engine's count differs from the number of items, or
// came without any. What a negative delta takes away is missing from the output
// sequence length; as the running total cannot fall, it is withheld from what
// the model's next tokens add to it.
func (r *Request) CorrectTokens(delta int) {
	if r.ended {
		return
	}
	delta = max(delta, -r.tokens)
	r.tokens += delta
	r.model.series.addTokens(delta)
}

// Prompt states the number of prompt tokens; of several statements the last
// one before it is recorded counts. It is recorded once, at the first token, or
// at the end if it came later or the answer succeeded without any token.
func (r *Request) Prompt(n int) {
	if n >= 0 {
		r.prompt, r.promptKnown = n, true
	}
}

// Cached records the number of prompt tokens that the engine found in its
// cache; only the first call counts. Not to be called where it is unknown.
func (r *Request) Cached(n int) {
	if n < 0 || r.cachedSeen || r.ended {
		return
	}
	r.cachedSeen = true
	r.model.series.cached.Observe(float64(n))
}

// Cancelled records that the client went away; only the first call counts. The
// request then ends as ErrCancelled, whatever End is given.
func (r *Request) Cancelled() {
	if r.cancelled || r.ended {
		return
	}
	r.cancelled = true
	m := r.model
	m.set.fam.disconnected.Inc()
	m.cancellations.inc(r.cell(), m.name, r.endpointLabel(), r.typeLabel())
}

// Rejected records that the request was turned away because every worker was
// busy; only the first call counts.
func (r *Request) Rejected() {
	if r.rejected || r.ended {
		return
	}
	r.rejected = true
	r.model.rejections.inc(r.endpoint, r.model.name, r.endpointLabel())
}

// End records the end of the request and how it came; only the first call
// counts, so that a deferred End may follow a more precise one.
func (r *Request) End(now time.Time, e ErrorType) {
	if r.ended {
		return
	}
	if r.cancelled {
		e = ErrCancelled
	}
	if r.first || e == ErrNone {
		r.observePrompt()
	}
	r.ended = true

	s := r.model.series
	s.inflight.Dec()
	s.active.Dec()
	if !r.first {
		s.queued.Dec()
	}
	s.duration.Observe(seconds(now.Sub(r.start)))
	if r.tokens > 0 {
		s.output.Observe(float64(r.tokens))
	}
	i := index(errorTypes, e)
	if c := r.cell()*len(errorTypes) + i; !s.finished.incMade(c) {
		e = errorTypes[i]
		s.finished.incNew(c, s.label, r.endpointLabel(), r.typeLabel(), e.status(), string(e))
	}
}

// observePrompt records the prompt's length, if known, once.
func (r *Request) observePrompt() {
	if r.promptKnown && !r.promptSeen {
		r.promptSeen = true
		r.model.series.input.Observe(float64(r.prompt))
	}
}

// cell is the index of the request's endpoint and type among all pairs.
func (r *Request) cell() int { return r.endpoint*len(requestTypes) + r.stream }

func (r *Request) endpointLabel() string { return string(endpoints[r.endpoint]) }
func (r *Request) typeLabel() string     { return requestTypes[r.stream] }

// addTokens adds n, which may be negative, to the running total.
func (s *requestSeries) addTokens(n int) {
	if n < 0 {
		s.overcount.Add(int64(-n))
		return
	}
	for {
		over := s.overcount.Load()
		if over == 0 {
			break
		}
		paid := min(over, int64(n))
		if s.overcount.CompareAndSwap(over, over-paid) {
			n -= int(paid)
			break
		}
	}
	if n > 0 {
		s.tokens.Add(float64(n))
	}
}
