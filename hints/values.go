package hints

import (
	"fmt"
	"math"

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
	last        bool // no call with the prefix follows
}

// The largest values that are sent: what a server's 32-bit fields hold.
const (
	maxOSL   = math.MaxUint32
	maxCount = math.MaxInt32
)

// expect works out the hints of a call at a place, with what is predicted for it, if
// anything.
func (t *Transport) expect(s *scope, at place, p *trie.Prediction) values {
	v := values{at: at, total: t.total, osl: t.osl, iat: t.iat}
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
			v.iat = int(max((e.iat.Nanoseconds()+500_000)/1_000_000, 1))
		}
		switch {
		case e.hasRemaining:
			v.remaining(e.remaining)
		case e.total > 0:
			v.total, v.last = e.total, false
		}
	}
	return v
}

// predict takes a prediction over. Each of its parts counts for itself: one that was
// measured and one that says something.
func (t *Transport) predict(v *values, p *trie.Prediction) {
	if n, ok := t.rounded(p.RemainingCalls.Mean); ok && (n > 0 || p.RemainingCalls.SampleCount > 0) {
		v.remaining(n)
	}
	if n, ok := t.rounded(p.OutputTokens.P90); ok && n > 0 {
		v.osl = n
	}
	if n, ok := t.rounded(p.InterArrivalMS.Mean); ok && (n > 0 || p.InterArrivalMS.SampleCount > 0) {
		v.iat = max(n, 1)
	}
}

// remaining makes of the calls that follow the number of all with the prefix. After the
// last call there is nothing to keep, whatever there was before it.
func (v *values) remaining(n int) {
	if n == 0 {
		v.total, v.last = 1, true
		return
	}
	v.total, v.last = v.at.prefix+min(n, maxCount), false
}

// rounded returns a prediction as a number of calls, tokens or milliseconds; false if it
// is none.
func (t *Transport) rounded(f float64) (int, bool) {
	if !(f >= 0 && f <= math.MaxInt32) {
		t.stats.absurd.Add(1)
		return 0, false
	}
	return int(math.Round(f)), true
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

// ttl is how long the prompt's blocks are to be kept.
func (v *values) ttl() string {
	return nvext.FormatTTL(nvext.TTL(uint64(v.total), uint64(v.iat)))
}
