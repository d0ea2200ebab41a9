package learn

import (
	"math"
	"time"
)

// Source is what a prediction was made from.
type Source uint8

const (
	// None: there is no prediction.
	None Source = iota
	// FromSession: earlier calls of the same conversation.
	FromSession
	// FromFamily: other conversations that began alike.
	FromFamily
)

// String returns "session", "family", or nothing for None.
func (s Source) String() string {
	switch s {
	case FromSession:
		return "session"
	case FromFamily:
		return "family"
	}
	return ""
}

// Estimate is one predicted number. The zero Estimate predicts nothing.
type Estimate struct {
	Value   uint32
	Samples int    // observations behind it
	Source  Source // None if it is not known
}

// Known reports whether there is a prediction.
func (e Estimate) Known() bool { return e.Source != None }

// Prediction is what is expected of a call.
type Prediction struct {
	// Number is the call's in its conversation, from 1; 0 if calls before it were not seen.
	Number int
	// OSL is the length of the answer in tokens, which nine answers in ten do not exceed.
	OSL Estimate
	// Remaining is how many calls of the conversation follow, on average. It is the
	// family's to say.
	Remaining Estimate
	// IATMS is the time from the end of the call to the next call of the conversation, if
	// there is one, in milliseconds: half of them come earlier.
	IATMS Estimate
}

// Predict says what to expect of a call that has not begun yet, by the family's calls with the
// same number if there were enough, else by the conversation's own. It changes nothing and
// does not allocate.
func (l *Learner) Predict(now time.Time, k Key) Prediction {
	var (
		p            = Prediction{Number: 1}
		answers      window
		gaps         window
		answersOf    = None
		gapsOf       = None
		beyond       float64
		conversation = k.family() // the family that its length goes by
		partial      = k.Turn == LaterTurn
	)
	l.mu.Lock()
	if v := l.knownLocked(now, &k); v != nil {
		p.Number, conversation, partial = v.calls+1, v.family, v.partial
		if v.own.answers.len() >= ownCalls {
			answers, answersOf = v.own.answers, FromSession
		}
		if v.own.gaps.len() >= ownCalls-1 {
			gaps, gapsOf = v.own.gaps, FromSession
		}
	}
	if !partial {
		if o := l.observedLocked(k.family(), p.Number); o != nil {
			if o.answers.len() >= l.cfg.MinSamples {
				answers, answersOf = o.answers, FromFamily
			}
			if o.gaps.len() >= l.cfg.MinSamples {
				gaps, gapsOf = o.gaps, FromFamily
			}
		}
		if f := l.mu.families.peek(conversation); f != nil && !k.alone() {
			var n int
			if beyond, n = f.value.lengths.beyond(p.Number); n >= l.cfg.MinSamples {
				p.Remaining = Estimate{rounded(beyond), n, FromFamily}
			}
		}
	}
	l.mu.Unlock()

	if partial {
		p.Number = 0
	}
	if answersOf != None {
		p.OSL = Estimate{rounded(answers.quantile(0.9)), answers.len(), answersOf}
	}
	if gapsOf != None {
		p.IATMS = Estimate{rounded(gaps.quantile(0.5)), gaps.len(), gapsOf}
	}
	if k.Last || k.alone() {
		p.Remaining, p.IATMS = Estimate{}, Estimate{}
	}
	return p
}

// knownLocked returns the conversation that a call would go on with, or nil.
func (l *Learner) knownLocked(now time.Time, k *Key) *conversation {
	if k.alone() || k.Turn == FirstTurn {
		return nil
	}
	e := l.mu.conversations.peek(k.conversation())
	if e == nil || l.silent(now, &e.value) {
		return nil
	}
	return &e.value
}

// observedLocked returns what is known of a family's calls with a number, or nil.
func (l *Learner) observedLocked(n name, number int) *observed {
	f := l.mu.families.peek(n)
	if f == nil || min(number, maxCall) > len(f.value.calls) {
		return nil
	}
	return &f.value.calls[min(number, maxCall)-1]
}

func rounded(f float64) uint32 { return uint32(math.Round(f)) }
