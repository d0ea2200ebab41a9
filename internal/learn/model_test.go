package learn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/learn"
)

// model is a learner as one would write it down: everything that ever happened is kept in
// lists, and what counts of it is looked up each time.
type model struct {
	cfg     learn.Config
	chats   []*modelChat // by last use, the latest last
	stories map[string]*story
	used    []string // families by last use, the latest last
	running int
	evicted [2]uint64 // conversations, families

	chatScopes, storyScopes []string // those that have some, in the order in which they came
}

// scopeOf returns the scope in the name of a family or a conversation, as "s/f".
func scopeOf(name string) string {
	scope, _, _ := strings.Cut(name, "/")
	return scope
}

// fullest returns the scope with most of the names, the first one if there are several.
func fullest(scopes, names []string) string {
	count := map[string]int{}
	for _, n := range names {
		count[scopeOf(n)]++
	}
	best := scopes[0]
	for _, s := range scopes {
		if count[s] > count[best] {
			best = s
		}
	}
	return best
}

// settled returns scopes as they are when these names are there.
func settled(scopes, names []string) []string {
	has := func(s string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return scopeOf(n) == s })
	}
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return !has(s) })
	for _, n := range names {
		if s := scopeOf(n); !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

type modelChat struct {
	name, family   string
	calls, running int
	last           time.Time
	partial, over  bool
	answers, gaps  []float64
	idleSince      *time.Time // the end of the call that ended last
	idleFamily     string
	idleNumber     int
}

type story struct {
	answers, gaps map[int][]float64 // by the number of the call
	lengths       []float64
}

// again reports whether anything was seen of the story more than once.
func (s *story) again() bool {
	for _, a := range s.answers {
		if len(a) > 1 {
			return true
		}
	}
	return len(s.lengths) > 1
}

type modelCall struct {
	chat         *modelChat
	family       string
	number       int
	last         bool
	conversation string
}

func latest(all []float64, n int) []float64 { return all[max(0, len(all)-n):] }

func (m *model) story(family string) *story {
	s := m.stories[family]
	if s == nil {
		if len(m.stories) >= m.cfg.MaxFamilies {
			m.forget()
		}
		s = &story{answers: map[int][]float64{}, gaps: map[int][]float64{}}
		m.stories[family] = s
	} else {
		m.used = slices.DeleteFunc(m.used, func(f string) bool { return f == family })
	}
	m.used = append(m.used, family)
	m.storyScopes = settled(m.storyScopes, m.used)
	return s
}

// forget has the scope with most families lose one.
func (m *model) forget() {
	m.evicted[1]++
	scope := fullest(m.storyScopes, m.used)
	var once, again []string
	for _, f := range m.used {
		switch {
		case scopeOf(f) != scope:
		case m.stories[f].again():
			again = append(again, f)
		default:
			once = append(once, f)
		}
	}
	from := again
	if len(once) > (len(once)+len(again))/4 {
		from = once
	}
	delete(m.stories, from[0])
	m.used = slices.DeleteFunc(m.used, func(f string) bool { return f == from[0] })
	m.storyScopes = settled(m.storyScopes, m.used)
}

func (m *model) chat(name string) *modelChat {
	if i := slices.IndexFunc(m.chats, func(c *modelChat) bool { return c.name == name }); i >= 0 {
		return m.chats[i]
	}
	return nil
}

func (m *model) finish(c *modelChat) {
	m.chats = slices.DeleteFunc(m.chats, func(o *modelChat) bool { return o == c })
	m.chatScopes = settled(m.chatScopes, m.chatNames())
	c.over = true
	m.measure(c)
}

// measure notes the length of a chat that is over, once that is certain.
func (m *model) measure(c *modelChat) {
	if c.running == 0 && c.calls > 0 && !c.partial {
		s := m.story(c.family)
		s.lengths = append(s.lengths, float64(c.calls))
	}
}

func (m *model) touch(c *modelChat) {
	m.chats = append(slices.DeleteFunc(m.chats, func(o *modelChat) bool { return o == c }), c)
	m.chatScopes = settled(m.chatScopes, m.chatNames())
}

func (m *model) chatNames() []string {
	var names []string
	for _, c := range m.chats {
		names = append(names, c.name)
	}
	return names
}

func (m *model) silent(now time.Time, c *modelChat) bool {
	return c.running == 0 && now.Sub(c.last) > m.cfg.Idle
}

func (m *model) sweep(now time.Time) {
	for range 4 {
		if len(m.chats) == 0 {
			return
		}
		c := m.chats[0]
		if now.Sub(c.last) <= m.cfg.Idle {
			return
		}
		if c.running > 0 {
			m.touch(c)
		} else {
			m.finish(c)
		}
	}
}

func (m *model) begin(now time.Time, family, conversation string, turn learn.Turn, last bool) *modelCall {
	m.running++
	m.sweep(now)
	call := &modelCall{family: family, number: 1, last: last, conversation: conversation}
	if conversation == "" {
		return call
	}
	c := m.chat(conversation)
	if c != nil && (turn == learn.FirstTurn || m.silent(now, c)) {
		m.finish(c)
		c = nil
	}
	if c == nil {
		if len(m.chats) >= m.cfg.MaxConversations {
			m.evicted[0]++
			scope := fullest(m.chatScopes, m.chatNames())
			m.finish(m.chats[slices.IndexFunc(m.chats, func(c *modelChat) bool { return scopeOf(c.name) == scope })])
		}
		c = &modelChat{name: conversation, family: family, partial: turn == learn.LaterTurn}
	}
	m.touch(c)
	if c.idleSince != nil && c.running == 0 {
		gap := math.Max(0, float64(now.Sub(*c.idleSince).Milliseconds()))
		c.gaps = append(c.gaps, gap)
		if s := m.stories[c.idleFamily]; s != nil && !c.partial {
			n := min(c.idleNumber, 64)
			s.gaps[n] = append(s.gaps[n], gap)
		}
	}
	c.idleSince = nil
	c.calls++
	c.running++
	c.last = now
	call.chat, call.number = c, c.calls
	return call
}

func (m *model) end(now time.Time, call *modelCall, tokens int, o learn.Outcome) {
	m.running--
	c := call.chat
	if o == learn.Completed && tokens >= 0 {
		if c == nil || !c.partial {
			s, n := m.story(call.family), min(call.number, 64)
			s.answers[n] = append(s.answers[n], float64(tokens))
		}
		if c != nil {
			c.answers = append(c.answers, float64(tokens))
		}
	}
	if c != nil {
		c.running--
		c.idleSince = nil
		if o == learn.Failed {
			c.calls--
		} else if o == learn.Completed && c.running == 0 {
			c.idleSince, c.idleFamily, c.idleNumber = &now, call.family, call.number
		}
		if c.over {
			m.measure(c)
		} else {
			if now.After(c.last) {
				c.last = now
			}
			m.touch(c)
			if call.last && o != learn.Failed && c.running == 0 {
				m.finish(c)
			}
		}
	}
	m.sweep(now)
}

// percentile is that of a sorted list, with the values between two in proportion.
func percentile(all []float64, q float64) uint32 {
	sorted := slices.Sorted(slices.Values(all))
	at := q * float64(len(sorted)-1)
	low, high := math.Floor(at), math.Ceil(at)
	v := sorted[int(low)]
	if low != high {
		v = sorted[int(low)] + (at-low)*(sorted[int(high)]-sorted[int(low)])
	}
	return uint32(math.Round(v))
}

func (m *model) predict(now time.Time, family, conversation string, turn learn.Turn, last bool) learn.Prediction {
	var p learn.Prediction
	var c *modelChat
	if conversation != "" && turn != learn.FirstTurn {
		if c = m.chat(conversation); c != nil && m.silent(now, c) {
			c = nil
		}
	}
	number, first, partial := 1, family, turn == learn.LaterTurn
	if c != nil {
		number, first, partial = c.calls+1, c.family, c.partial
	}
	fill := func(to *learn.Estimate, own []float64, enough int, theirs []float64, q float64) {
		own, theirs = latest(own, 32), latest(theirs, 32)
		if len(theirs) >= m.cfg.MinSamples && !partial {
			*to = learn.Estimate{Value: percentile(theirs, q), Samples: len(theirs), Source: learn.FromFamily}
		} else if len(own) >= enough {
			*to = learn.Estimate{Value: percentile(own, q), Samples: len(own), Source: learn.FromSession}
		}
	}
	var own modelChat
	if c != nil {
		own = *c
	}
	var theirs story
	if s := m.stories[family]; s != nil {
		theirs = *s
	}
	fill(&p.OSL, own.answers, 3, theirs.answers[min(number, 64)], 0.9)
	if conversation != "" && !last {
		fill(&p.IATMS, own.gaps, 2, theirs.gaps[min(number, 64)], 0.5)
		if s := m.stories[first]; s != nil && !partial {
			var sum float64
			n := 0
			for _, length := range latest(s.lengths, 128) {
				if int(length) >= number {
					n++
					sum += length - float64(number)
				}
			}
			if n >= m.cfg.MinSamples {
				p.Remaining = learn.Estimate{Value: uint32(math.Round(sum / float64(n))), Samples: n, Source: learn.FromFamily}
			}
		}
	}
	if !partial {
		p.Number = number
	}
	return p
}

// TestAgainstModel has a learner and the model live through the same days.
func TestAgainstModel(t *testing.T) {
	known := map[learn.Source]int{}
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { live(t, rand.New(rand.NewPCG(seed, 7)), known) })
	}
	for _, s := range []learn.Source{learn.None, learn.FromSession, learn.FromFamily} {
		if known[s] < 5000 {
			t.Errorf("%d predictions were from %q", known[s], s)
		}
	}
}

// live runs one life and counts what predictions came from.
func live(t *testing.T, rng *rand.Rand, known map[learn.Source]int) {
	cfg := learn.Config{
		Idle:             time.Duration(1+rng.IntN(60)) * time.Second,
		MaxConversations: 1 + rng.IntN(40),
		MaxFamilies:      1 + rng.IntN(6),
		MinSamples:       1 + rng.IntN(8),
	}
	actual, naive := learn.New(cfg), &model{cfg: cfg, stories: map[string]*story{}}
	type open struct {
		call learn.Call
		same *modelCall
	}
	var running []open
	now := epoch
	scopes, families, conversations := 1+rng.IntN(4), 1+rng.IntN(12), 1+rng.IntN(50)
	for step := range 4000 {
		switch rng.IntN(20) {
		case 0:
			now = now.Add(time.Duration(rng.IntN(30)) * time.Second)
		case 1:
			now = now.Add(-time.Duration(rng.IntN(3000)) * time.Millisecond)
		default:
			now = now.Add(time.Duration(rng.IntN(500)) * time.Millisecond)
		}
		if len(running) > 0 && (rng.IntN(2) == 0 || len(running) > 20) {
			i := rng.IntN(len(running))
			o, tokens := learn.Completed, rng.IntN(3000)-20
			if rng.IntN(5) == 0 {
				o = learn.Outcome(rng.IntN(3))
			}
			running[i].call.End(now, tokens, o)
			naive.end(now, running[i].same, tokens, o)
			running = slices.Delete(running, i, i+1)
		} else {
			n := rng.IntN(conversations)
			scope := fmt.Sprint("s", min(rng.IntN(scopes), rng.IntN(scopes)))
			f, c := fmt.Sprint(scope, "/f", n%families), fmt.Sprint(scope, "/c", n)
			if rng.IntN(20) == 0 { // its instructions have changed
				f = scope + "/f0"
			}
			turn, last := learn.AnyTurn, rng.IntN(20) == 0
			switch rng.IntN(12) {
			case 0:
				c = ""
			case 1:
				turn = learn.FirstTurn
			case 2:
				turn = learn.LaterTurn
			}
			k := key(f, c)
			k.Scope, k.Turn, k.Last = learn.ScopeOf("m", scope), turn, last
			got, want := actual.Predict(now, k), naive.predict(now, f, c, turn, last)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("step %d, %s %s %d (-want +got):\n%s", step, f, c, turn, diff)
			}
			for _, e := range []learn.Estimate{got.OSL, got.Remaining, got.IATMS} {
				known[e.Source]++
			}
			running = append(running, open{actual.Begin(now, k), naive.begin(now, f, c, turn, last)})
		}
		want := learn.Stats{
			Conversations: len(naive.chats), Families: len(naive.stories), Running: naive.running,
			ConversationsEvicted: naive.evicted[0], FamiliesEvicted: naive.evicted[1],
		}
		if got := actual.Stats(); got != want {
			t.Fatalf("step %d: %+v, want %+v", step, got, want)
		}
	}
}
