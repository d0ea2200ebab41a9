package hints

import (
	"fmt"
	"math"
	"time"

	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

// values are the hints of one call.
type values struct {
	prefix      string
	at          place
	sensitivity int
	priority    int
	osl         int
	total       int
	iat         int
	left        int  // this call and those that follow; 0 if only the total is known
	last        bool // no call with the prefix follows
	stray       bool // the prefix is that of all calls outside of runs
}

// The largest values that are sent: what a server's 32-bit fields hold.
const (
	maxOSL   = math.MaxUint32
	maxCount = math.MaxInt32
)

// expect works out the hints of a call at a place, with what is predicted for it, if
// anything.
func (t *Transport) expect(s *scope, at place, p *trie.Prediction) values {
	v := values{at: at, total: t.total, osl: t.osl, iat: t.iat, stray: s.stray()}
	level, manual := s.latency()
	v.sensitivity = level
	if t.compat != "" {
		v.sensitivity = max(level, DefaultSensitivity)
	}
	if p != nil {
		if p.LatencySensitivity != nil && !manual {
			v.sensitivity = *p.LatencySensitivity
		}
		if t.compat != "" {
			t.predictAsNAT(&v, p)
		} else {
			t.predict(&v, p)
		}
	}
	if e := &s.expect; *e != (expectation{}) {
		if e.osl > 0 {
			v.osl = e.osl
		}
		if e.iat > 0 {
			v.iat = int(max(e.iat.Round(time.Millisecond)/time.Millisecond, 1))
		}
		switch {
		case e.hasRemaining:
			v.remaining(e.remaining)
		case e.total > 0:
			v.total, v.left, v.last = e.total, 0, false
		}
	}
	return v
}

// predict takes a prediction over.
func (t *Transport) predict(v *values, p *trie.Prediction) {
	e, absurd := foresee(p)
	t.stats.absurd.Add(uint64(absurd))
	if e.osl > 0 {
		v.osl = e.osl
	}
	if e.iat > 0 {
		v.iat = int(e.iat / time.Millisecond)
	}
	if e.hasRemaining {
		v.remaining(e.remaining)
	}
}

// foresee returns what a prediction says in whole numbers, and how many of its parts are
// none that one could send. Each part counts for itself: if it was measured, and if it says
// something.
func foresee(p *trie.Prediction) (e expectation, absurd int) {
	whole := func(f float64) int {
		if !(f >= 0 && f <= math.MaxInt32) {
			absurd++
			return -1
		}
		return int(math.Round(f))
	}
	if n := whole(p.RemainingCalls.Mean); n > 0 || n == 0 && p.RemainingCalls.SampleCount > 0 {
		e.remaining, e.hasRemaining = n, true
	}
	if n := whole(p.OutputTokens.P90); n > 0 {
		e.osl = n
	}
	if n := whole(p.InterArrivalMS.Mean); n > 0 || n == 0 && p.InterArrivalMS.SampleCount > 0 {
		e.iat = time.Duration(max(n, 1)) * time.Millisecond
	}
	return e, absurd
}

// remaining makes of the calls that follow the number of all with the prefix. After the
// last call there is nothing to keep, whatever there was before it. Calls outside of runs
// are not known to have anything to do with those before them.
func (v *values) remaining(n int) {
	v.left, v.last = 1+min(n, maxCount), n == 0
	switch {
	case v.last, v.stray:
		v.total = v.left
	default:
		v.total = v.at.prefix - 1 + v.left
	}
}

// Predicted returns the hints that a [Transport] takes from a prediction for the call-th
// call with a prefix, from 1. What the prediction says nothing of is nil: static values
// stand there.
func Predicted(p *trie.Prediction, call int) *nvext.AgentHints {
	h := &nvext.AgentHints{}
	if level := p.LatencySensitivity; level != nil {
		n := min(max(*level, 0), maxCount)
		h.LatencySensitivity, h.Priority = new(float64(n)), new(int32(n))
	}
	e, _ := foresee(p)
	if e.osl > 0 {
		h.OSL = new(uint32(e.osl))
	}
	if e.hasRemaining {
		v := values{at: place{prefix: max(call, 1)}}
		v.remaining(e.remaining)
		h.TotalRequests = new(uint64(v.total))
	}
	if e.iat > 0 {
		h.IATMS = new(uint64(e.iat / time.Millisecond))
	}
	return h
}

// predictAsNAT takes a prediction over as NeMo Agent Toolkit does: the remaining calls
// stand for all, and fractions are cut off.
func (t *Transport) predictAsNAT(v *values, p *trie.Prediction) {
	for _, part := range []struct {
		to   *int
		from float64
	}{{&v.total, p.RemainingCalls.Mean}, {&v.osl, p.OutputTokens.P90}, {&v.iat, p.InterArrivalMS.Mean}} {
		if math.IsNaN(part.from) || math.IsInf(part.from, 0) {
			t.stats.absurd.Add(1)
			return // what comes after it stays static, too
		}
		n := int(max(min(part.from, math.MaxInt32), math.MinInt32))
		if n < 1 && t.compat == NAT18 {
			continue
		}
		*part.to = n
	}
}

// settle makes sure that a server can take the values. Under the closed policy one that is
// out of bounds is an error.
func (t *Transport) settle(v *values) error {
	for _, b := range []struct {
		name      string
		v         *int
		low, high int
	}{
		{"total_requests", &v.total, 1, maxCount},
		{"osl", &v.osl, 1, maxOSL},
		{"iat", &v.iat, 1, maxCount},
		{"latency_sensitivity", &v.sensitivity, 0, t.maxSensitivity},
	} {
		n := *b.v
		if n >= b.low && n <= b.high {
			continue
		}
		if t.failure == Closed {
			return boundError(b.name, n, b.low, b.high)
		}
		t.stats.clamped.Add(1)
		t.warn(b.name, n, b.low, b.high)
		*b.v = min(max(n, b.low), b.high)
	}
	v.priority = v.sensitivity
	if t.polarity == Complement {
		v.priority = t.maxSensitivity - v.sensitivity
	}
	return nil
}

func boundError(name string, n, low, high int) error {
	switch {
	case n < low:
		return fmt.Errorf("hints: %s %d must be >= %d", name, n, low)
	case name == "latency_sensitivity":
		return fmt.Errorf("hints: %s %d exceeds max_sensitivity %d", name, n, high)
	}
	return fmt.Errorf("hints: %s %d exceeds %d", name, n, high)
}

// ttl is how long the prompt's blocks are to be kept: for the calls that follow where these
// are known, since each asks anew, and else for all.
func (v *values) ttl() string {
	calls := v.left
	if calls == 0 {
		calls = v.total
	}
	return nvext.FormatTTL(nvext.TTL(uint64(calls), uint64(v.iat)))
}
