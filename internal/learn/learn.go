package learn

import (
	"cmp"
	"sync"
	"time"
)

// Config bounds a [Learner]. A field that is not above 0 has its default.
type Config struct {
	// Idle is how long after its last call a conversation counts as over. Default 10
	// minutes.
	Idle time.Duration
	// MaxConversations is how many conversations are remembered at a time, about half a
	// kilobyte each. Where there are too many, one of the scope with most of them is over:
	// that which has been silent for longest. Default 65536.
	MaxConversations int
	// MaxFamilies is how many families are remembered. One takes half a kilobyte, and a
	// quarter more for each call of its longest conversation up to 64. Where there are too
	// many, one of the scope with most of them is forgotten: that which has not been used
	// for longest, and a family that was seen once before one that was seen again. Default
	// 4096.
	MaxFamilies int
	// MinSamples is how many observations of a family a prediction takes, at most
	// [MaxSamples]. Default 5.
	MinSamples int
}

// MaxSamples is the most observations that can be waited for: no more are kept.
const MaxSamples = windowSize

const (
	// maxCall is the call up to which families tell calls apart. Those beyond share what is
	// known.
	maxCall = 64
	// ownCalls is how many calls a conversation has had before it speaks for itself.
	ownCalls = 3
	// sweep is how many silent conversations a call looks for.
	sweep = 4
)

// Learner predicts calls. It is safe for concurrent use, and no call of it waits for
// anything but another.
type Learner struct {
	cfg Config

	mu struct {
		sync.Mutex
		families             table[family]
		conversations        table[conversation]
		running              int
		familiesEvicted      uint64
		conversationsEvicted uint64
	}
}

// family is what is known of conversations that begin alike.
type family struct {
	calls   []observed // by the number of the call, less one; as many as there were
	lengths lengths
}

// observed is what came of calls, and how long after one the next came.
type observed struct{ answers, gaps window }

// conversation is one that may go on. It is kept by those of its calls that still run, too.
type conversation struct {
	family  name // of its first call
	calls   int  // that it had, but for those that failed
	running int
	last    time.Time // when a call began or ended last
	partial bool      // its beginning was not seen
	over    bool
	own     observed
	ended   endedCall
}

// endedCall is the call that ended last, while none has followed.
type endedCall struct {
	known  bool
	at     time.Time
	family name
	number int
}

// New returns a learner that has seen nothing.
func New(cfg Config) *Learner {
	positive := func(n, otherwise int) int {
		if n <= 0 {
			return otherwise
		}
		return n
	}
	cfg.Idle = cmp.Or(max(cfg.Idle, 0), 10*time.Minute)
	cfg.MaxConversations = positive(cfg.MaxConversations, 65536)
	cfg.MaxFamilies = positive(cfg.MaxFamilies, 4096)
	cfg.MinSamples = min(positive(cfg.MinSamples, 5), MaxSamples)
	l := &Learner{cfg: cfg}
	l.mu.families.init()
	l.mu.conversations.init()
	return l
}

// Stats says how much a learner holds.
type Stats struct {
	Conversations int // that may go on
	Families      int
	Running       int // calls that have begun and not ended
	// ConversationsEvicted and FamiliesEvicted are how many had to go since the beginning,
	// because there were too many.
	ConversationsEvicted, FamiliesEvicted uint64
}

// Stats returns how much the learner holds now.
func (l *Learner) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Conversations: l.mu.conversations.len(), Families: l.mu.families.len(), Running: l.mu.running,
		ConversationsEvicted: l.mu.conversationsEvicted, FamiliesEvicted: l.mu.familiesEvicted,
	}
}

// Outcome is how a call ended.
type Outcome uint8

const (
	// Completed: the answer came to its end.
	Completed Outcome = iota
	// Cancelled: nobody wanted the rest. How long the answer would have been is not known.
	Cancelled
	// Failed: there was no answer. The call does not count as one of its conversation,
	// since whoever made it makes it again.
	Failed
)

// Call is one that has begun. The zero Call has not, and its End does nothing. It is used by
// one goroutine at a time.
type Call struct {
	learner *Learner
	key     Key
	in      *entry[conversation] // nil if it belongs to none
	number  int                  // in the conversation, from 1
}

// Begin says that a call has come. Every Call needs an End.
func (l *Learner) Begin(now time.Time, k Key) Call {
	c := Call{learner: l, key: k, number: 1}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.running++
	l.sweepLocked(now)
	if k.alone() {
		return c
	}
	c.in = l.joinLocked(now, &k)
	v := &c.in.value
	l.noteGapLocked(now, v)
	v.calls++
	v.running++
	v.last = now
	c.number = v.calls
	return c
}

// joinLocked returns the conversation of a call, which may be a new one.
func (l *Learner) joinLocked(now time.Time, k *Key) *entry[conversation] {
	all := &l.mu.conversations
	e := all.peek(k.conversation())
	if e != nil && (k.Turn == FirstTurn || l.silent(now, &e.value)) {
		l.finishLocked(e)
		e = nil
	}
	if e != nil {
		all.use(e)
		return e
	}
	for all.len() >= l.cfg.MaxConversations {
		l.mu.conversationsEvicted++
		l.finishLocked(all.spare())
	}
	e = all.add(k.conversation())
	e.value.family, e.value.partial = k.family(), k.Turn == LaterTurn
	return e
}

// noteGapLocked notes how long after the end of a conversation's last call another has
// come. Calls at the same time have no gap between them.
func (l *Learner) noteGapLocked(now time.Time, v *conversation) {
	ended := v.ended
	v.ended = endedCall{}
	if !ended.known || v.running > 0 {
		return
	}
	gap := millis(now.Sub(ended.at))
	v.own.gaps.add(gap)
	if f := l.mu.families.peek(ended.family); f != nil && !v.partial {
		f.value.call(ended.number).gaps.add(gap)
	}
}

// End says that the call has come to its end, with an answer of so many tokens; a negative
// number is one that is not known. Repeats are ignored.
func (c *Call) End(now time.Time, tokens int, o Outcome) {
	l := c.learner
	if l == nil {
		return
	}
	c.learner = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.running--
	answered := o == Completed && tokens >= 0
	if c.in == nil || !c.in.value.partial {
		if answered {
			f := l.familyLocked(c.key.family())
			answers := &f.value.call(c.number).answers
			answers.add(clamped(tokens))
			if answers.len() > 1 {
				l.mu.families.keep(f)
			}
		}
	}
	if c.in != nil {
		v := &c.in.value
		if answered {
			v.own.answers.add(clamped(tokens))
		}
		l.leaveLocked(now, c, o)
	}
	c.in = nil
	l.sweepLocked(now)
}

// leaveLocked settles the end of a call with its conversation.
func (l *Learner) leaveLocked(now time.Time, c *Call, o Outcome) {
	v := &c.in.value
	v.running--
	if o == Failed {
		v.calls--
	}
	v.ended = endedCall{}
	if o == Completed && v.running == 0 {
		v.ended = endedCall{known: true, at: now, family: c.key.family(), number: c.number}
	}
	if v.over {
		l.noteLengthLocked(v)
		return
	}
	if now.After(v.last) {
		v.last = now
	}
	l.mu.conversations.use(c.in)
	if c.key.Last && o != Failed && v.running == 0 {
		l.finishLocked(c.in)
	}
}

// familyLocked returns a family, which may be a new one, as the one used last.
func (l *Learner) familyLocked(n name) *entry[family] {
	all := &l.mu.families
	e := all.peek(n)
	if e == nil {
		for all.len() >= l.cfg.MaxFamilies {
			l.mu.familiesEvicted++
			all.remove(all.spare())
		}
		e = all.add(n)
	}
	all.use(e)
	return e
}

// call returns what is known of the calls with a number.
func (f *family) call(number int) *observed {
	i := min(number, maxCall) - 1
	for len(f.calls) <= i {
		f.calls = append(f.calls, observed{})
	}
	return &f.calls[i]
}

// silent reports whether a conversation has been so for too long.
func (l *Learner) silent(now time.Time, v *conversation) bool {
	return v.running == 0 && now.Sub(v.last) > l.cfg.Idle
}

// sweepLocked ends a few conversations that have been silent for too long.
func (l *Learner) sweepLocked(now time.Time) {
	for range sweep {
		e := l.mu.conversations.oldest()
		switch {
		case e == nil:
			return
		case e.value.running > 0 && now.Sub(e.value.last) > l.cfg.Idle: // a very long answer
			l.mu.conversations.use(e)
		case !l.silent(now, &e.value):
			return
		default:
			l.finishLocked(e)
		}
	}
}

// finishLocked forgets a conversation. Its length is known when none of its calls runs.
func (l *Learner) finishLocked(e *entry[conversation]) {
	l.mu.conversations.remove(e)
	e.value.over = true
	l.noteLengthLocked(&e.value)
}

// noteLengthLocked notes how many calls a conversation had that is over. Those that still run
// have yet to come to something.
func (l *Learner) noteLengthLocked(v *conversation) {
	if v.running > 0 || v.calls == 0 || v.partial {
		return
	}
	f := l.familyLocked(v.family)
	f.value.lengths.add(clamped(v.calls))
	if f.value.lengths.len() > 1 {
		l.mu.families.keep(f)
	}
}
