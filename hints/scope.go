package hints

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stator-ai/stator/trie"
)

// DefaultSensitivity is the latency sensitivity of a call about which nobody said
// anything.
const DefaultSensitivity = 2

// scope is what a context knows of the calls that are made with it. It is never changed:
// whatever adds to it makes a copy.
type scope struct {
	run         string
	path        []string // its end is never written to
	function    string   // the id of the innermost invocation
	unnamed     bool     // that id was made up of run and path
	counted     string   // what its calls are counted by
	outermost   string   // the id of the outermost invocation outside of any run
	caller      string   // the id of the one that called it
	prefix      string   // the override
	branch      string
	sensitivity int // the largest that was pushed; 0 for none
	expect      expectation
	attempts    *attempts
	recorder    *Recorder
	span        *openSpan // the innermost that has not ended
}

// expectation is what the program itself expects of its calls.
type expectation struct {
	osl       int           // 0: nothing is known
	total     int           // the same
	remaining int           // if hasRemaining
	iat       time.Duration // 0: nothing is known

	hasRemaining bool
}

type scopeKey struct{}

var noScope scope

// scopeOf returns the scope of ctx, which must not be changed.
func scopeOf(ctx context.Context) *scope {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok {
		return s
	}
	return &noScope
}

// with returns a context whose scope is that of ctx after change.
func with(ctx context.Context, change func(*scope)) context.Context {
	s := *scopeOf(ctx)
	change(&s)
	return context.WithValue(ctx, scopeKey{}, &s)
}

// WithRun begins a run: all calls of one execution of a workflow. An empty id makes one up,
// a UUID. A run begins outside of any function, without override and branch, whatever ctx
// was in before.
func WithRun(ctx context.Context, id string) context.Context {
	if id == "" {
		id = newUUID()
	}
	return with(ctx, func(s *scope) {
		s.run = id
		s.path, s.function, s.counted, s.caller, s.outermost = nil, "", "", "", ""
		s.prefix, s.branch = "", ""
		s.span, s.attempts = nil, nil
	})
}

// Run returns the id of the run, "" outside of any.
func Run(ctx context.Context) string { return scopeOf(ctx).run }

// EnterFunction returns a context for the inside of a function: one that calls models and
// other functions. It adds name to the path by which predictions are looked up, and each
// invocation counts its calls anew. Other contexts are as they were, so that leaving takes
// nothing; [Leave] tells a [Recorder] that it ended.
func EnterFunction(ctx context.Context, name string) context.Context {
	id := newUUID()
	return with(ctx, func(s *scope) {
		s.path = append(slices.Clip(s.path), name)
		s.caller, s.function, s.unnamed, s.counted = s.function, id, false, id
		if s.run == "" && s.outermost == "" {
			s.outermost = id
		}
		s.attempts = nil
		s.open(trie.KindFunction, name, id)
	})
}

// FunctionPath returns the functions that ctx is in, from the outermost. It must not be
// changed.
func FunctionPath(ctx context.Context) []string { return slices.Clip(scopeOf(ctx).path) }

// WithPrefixID gives the calls made with ctx a prefix id: calls whose prompts begin alike
// should have the same. An empty id takes an override away.
func WithPrefixID(ctx context.Context, id string) context.Context {
	return with(ctx, func(s *scope) { s.prefix, s.attempts = id, nil })
}

// WithBranch tells the parallel branches of a run apart. Calls at the same depth of one run
// share a prefix id, which is right for a conversation and wrong for a fan-out of prompts
// that have little in common: give each branch its name.
func WithBranch(ctx context.Context, name string) context.Context {
	return with(ctx, func(s *scope) {
		if s.branch != "" && name != "" {
			name = s.branch + "/" + name
		}
		s.branch, s.attempts = name, nil
	})
}

// PrefixID returns the prefix id of calls made with ctx: that of [WithPrefixID], or else
// "{run}-d{depth}", where depth is the number of functions that ctx is in, with the branch
// after a slash if there is one. Outside of any run, the run is one that the process made
// up. It is never empty.
func PrefixID(ctx context.Context) string { return scopeOf(ctx).prefixID() }

func (s *scope) prefixID() string {
	if s.prefix != "" {
		return s.prefix
	}
	run := s.run
	if run == "" {
		run = strayRun()
	}
	id := run + "-d" + strconv.Itoa(len(s.path))
	if s.branch != "" {
		id += "/" + s.branch
	}
	return id
}

// stray reports whether calls belong to no run and have no prefix id of their own.
func (s *scope) stray() bool { return s.run == "" && s.prefix == "" }

// strayRun stands for the run of calls that belong to none.
var strayRun = sync.OnceValue(func() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
})

// WithLatencySensitivity says how much somebody waits for the calls made with ctx: 1 is
// hardly, [DefaultSensitivity] is as usual, more is more urgent. Of nested ones the highest
// counts. A level below 1 says nothing.
func WithLatencySensitivity(ctx context.Context, level int) context.Context {
	return with(ctx, func(s *scope) { s.sensitivity = max(s.sensitivity, level) })
}

// Sensitivity returns the latency sensitivity of calls made with ctx, and whether somebody
// set it. Only where nobody did, a prediction counts.
func Sensitivity(ctx context.Context) (level int, manual bool) {
	return scopeOf(ctx).latency()
}

func (s *scope) latency() (level int, manual bool) {
	if s.sensitivity < 1 {
		return DefaultSensitivity, false
	}
	return s.sensitivity, true
}

// WithOutputTokens says how many tokens the answers to calls made with ctx will have, about.
// It goes before predictions. Less than 1 says nothing.
func WithOutputTokens(ctx context.Context, n int) context.Context {
	return with(ctx, func(s *scope) { s.expect.osl = max(n, 0) })
}

// WithRemainingCalls says how many calls with the same prefix will follow the one made with
// ctx; 0 says that it is the last, and a negative number says nothing. It goes before
// predictions.
func WithRemainingCalls(ctx context.Context, n int) context.Context {
	return with(ctx, func(s *scope) { s.expect.remaining, s.expect.hasRemaining = n, n >= 0 })
}

// WithInterArrival says how long after a call made with ctx the next one will come, about.
// It goes before predictions. 0 or less says nothing.
func WithInterArrival(ctx context.Context, d time.Duration) context.Context {
	return with(ctx, func(s *scope) { s.expect.iat = max(d, 0) })
}

// WithCall makes all requests with ctx one call, for clients that try again: a call that is
// sent twice is counted once. A context in which something else was entered since is none of
// that call. Repeated requests of openai-go and anthropic-sdk-go, and those that follow a
// redirect, are known without it, and taken to be the latest call with their prefix: where
// several with one prefix run at a time, give each a context of its own.
func WithCall(ctx context.Context) context.Context {
	return with(ctx, func(s *scope) { s.attempts = new(attempts) })
}

// attempts remembers the places of a call that may be sent several times, by transport.
type attempts struct {
	mu sync.Mutex
	at map[*Transport]place
}

// newUUID returns a random UUID (version 4).
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
