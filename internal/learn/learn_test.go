package learn_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/learn"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func hash(s string) learn.Hash { return learn.Hash{}.AddString(s) }

// key names a call of conversation c in family f, of the only tenant there is.
func key(f, c string) learn.Key {
	k := learn.Key{Scope: learn.ScopeOf("m", ""), Family: hash(f)}
	if c != "" {
		k.Conversation = hash(c)
	}
	return k
}

// talk has a conversation with an answer of these lengths each, a gap of 200 ms after each,
// and says when it was over.
func talk(l *learn.Learner, now time.Duration, k learn.Key, answers ...int) time.Duration {
	for _, n := range answers {
		c := l.Begin(at(now), k)
		now += time.Second
		c.End(at(now), n, learn.Completed)
		now += 200 * time.Millisecond
	}
	return now
}

// over has every conversation be over.
func over(l *learn.Learner, now time.Duration) time.Duration {
	now += time.Hour
	for l.Stats().Conversations > 0 {
		c := l.Begin(at(now), key("sweeper", ""))
		c.End(at(now), -1, learn.Completed)
	}
	return now
}

func est(v uint32, n int, s learn.Source) learn.Estimate {
	return learn.Estimate{Value: v, Samples: n, Source: s}
}

func check(t *testing.T, what string, got, want learn.Prediction) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestFamily(t *testing.T) {
	l := learn.New(learn.Config{})
	now := time.Duration(0)
	for i := range 5 {
		check(t, fmt.Sprintf("before conversation %d", i), l.Predict(at(now), key("f", "new")), learn.Prediction{Number: 1})
		now = talk(l, now, key("f", fmt.Sprint("c", i)), 100, 20, 300)
	}
	now = over(l, now)
	check(t, "first call", l.Predict(at(now), key("f", "new")), learn.Prediction{
		Number: 1, OSL: est(100, 5, learn.FromFamily), Remaining: est(2, 5, learn.FromFamily), IATMS: est(200, 5, learn.FromFamily),
	})
	now = talk(l, now, key("f", "new"), 7)
	check(t, "second call", l.Predict(at(now), key("f", "new")), learn.Prediction{
		Number: 2, OSL: est(20, 5, learn.FromFamily), Remaining: est(1, 5, learn.FromFamily), IATMS: est(200, 5, learn.FromFamily),
	})
	now = talk(l, now, key("f", "new"), 7)
	check(t, "third call", l.Predict(at(now), key("f", "new")), learn.Prediction{
		Number: 3, OSL: est(300, 5, learn.FromFamily), Remaining: est(0, 5, learn.FromFamily),
	})
	now = talk(l, now, key("f", "new"), 7)
	check(t, "a fourth call, which the family does not know", l.Predict(at(now), key("f", "new")), learn.Prediction{
		Number: 4, OSL: est(7, 3, learn.FromSession), IATMS: est(200, 2, learn.FromSession),
	})
	check(t, "another family", l.Predict(at(now), key("g", "other")), learn.Prediction{Number: 1})
}

// A family that knows a call goes before the conversation's own calls before it, and what it
// does not know comes from those.
func TestFamilyGoesBeforeSession(t *testing.T) {
	l := learn.New(learn.Config{})
	now := time.Duration(0)
	for i := range 5 {
		now = talk(l, now, key("f", fmt.Sprint("c", i)), 10, 20, 30, 40)
	}
	k := key("f", "new")
	for _, n := range []int{10, 20, 30} {
		now = talk(l, now, k, n)
		now += 300 * time.Millisecond // longer than others take
	}
	check(t, "the fourth call", l.Predict(at(now), k), learn.Prediction{
		Number: 4, OSL: est(40, 5, learn.FromFamily), IATMS: est(500, 2, learn.FromSession),
	})
	for i := range 5 {
		now = talk(l, now, key("f", fmt.Sprint("d", i)), 10, 20, 30, 40, 50)
	}
	check(t, "the fourth call, when it is known what follows", l.Predict(at(now), k), learn.Prediction{
		Number: 4, OSL: est(40, 10, learn.FromFamily), IATMS: est(200, 5, learn.FromFamily),
	})
}

// What one tenant does is nothing to another, nor what one model answers.
func TestScopes(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	mine := key("f", "c")
	now := talk(l, 0, mine, 10, 20, 30)
	for _, scope := range []learn.Hash{learn.ScopeOf("m", "other"), learn.ScopeOf("n", ""), learn.ScopeOf("", "m")} {
		theirs := mine
		theirs.Scope = scope
		check(t, "someone else", l.Predict(at(now), theirs), learn.Prediction{Number: 1})
	}
	if learn.ScopeOf("ab", "c") == learn.ScopeOf("a", "bc") {
		t.Error("model and tenant run into each other")
	}
}

// The quantile is that of the latest answers.
func TestOSL(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []int
		want    uint32
	}{
		{"all alike", []int{50, 50, 50, 50, 50}, 50},
		{"interpolated", []int{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, 91},
		{"none", []int{0, 0, 0, 0, 0}, 0},
		{"absurd", []int{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62}, 1<<31 - 1},
		{"what was long ago is forgotten", append(repeat(9000, 100), repeat(5, 32)...), 5},
	} {
		l := learn.New(learn.Config{})
		for _, n := range row.answers {
			c := l.Begin(epoch, key("f", ""))
			c.End(epoch, n, learn.Completed)
		}
		got := l.Predict(epoch, key("f", ""))
		if got.OSL.Value != row.want || got.OSL.Source != learn.FromFamily {
			t.Errorf("%s: %+v, want %d", row.name, got.OSL, row.want)
		}
	}
}

func repeat(v, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// A call that belongs to no conversation has an answer, and nothing before or after it.
func TestAlone(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 2})
	talk(l, 0, key("f", ""), 40, 40, 40)
	check(t, "alone", l.Predict(at(time.Minute), key("f", "")), learn.Prediction{Number: 1, OSL: est(40, 3, learn.FromFamily)})
	if s := l.Stats(); s != (learn.Stats{Families: 1}) {
		t.Errorf("%+v", s)
	}
}

// Answers that broke off say nothing about lengths; calls that failed are made again.
func TestOutcomes(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	k := key("f", "c")
	end := func(now time.Duration, tokens int, o learn.Outcome) {
		c := l.Begin(at(now), k)
		c.End(at(now+time.Second), tokens, o)
	}
	end(0, 5, learn.Failed)
	check(t, "after a failure", l.Predict(at(2*time.Second), k), learn.Prediction{Number: 1})
	end(2*time.Second, 5, learn.Cancelled)
	check(t, "after a cancellation", l.Predict(at(4*time.Second), k), learn.Prediction{Number: 2})
	end(4*time.Second, -1, learn.Completed)
	check(t, "after an answer that nobody counted", l.Predict(at(6*time.Second), k), learn.Prediction{Number: 3})
	end(6*time.Second, 8, learn.Completed)
	now := over(l, 8*time.Second)
	check(t, "next time", l.Predict(at(now), key("f", "d")), learn.Prediction{Number: 1, Remaining: est(2, 1, learn.FromFamily)})
	if got := l.Predict(at(now), k).Number; got != 1 {
		t.Errorf("a conversation that is over goes on with call %d", got)
	}
}

// A conversation with nothing but failures has no length.
func TestOnlyFailures(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	c := l.Begin(epoch, key("f", "c"))
	c.End(epoch, 0, learn.Failed)
	now := over(l, 0)
	check(t, "after failures", l.Predict(at(now), key("f", "d")), learn.Prediction{Number: 1})
}

// Where a conversation had to go while its calls ran, its length is how many of them came to
// something.
func TestLengthWhenEvicted(t *testing.T) {
	for _, row := range []struct {
		name     string
		outcomes []learn.Outcome
		want     learn.Estimate // of the calls after the first
	}{
		{"failed", []learn.Outcome{learn.Failed}, learn.Estimate{}},
		{"all failed", []learn.Outcome{learn.Failed, learn.Failed}, learn.Estimate{}},
		{"completed", []learn.Outcome{learn.Completed}, est(0, 1, learn.FromFamily)},
		{"one failed", []learn.Outcome{learn.Completed, learn.Failed, learn.Cancelled}, est(1, 1, learn.FromFamily)},
	} {
		l := learn.New(learn.Config{MinSamples: 1, MaxConversations: 1})
		var running []learn.Call
		for range row.outcomes {
			running = append(running, l.Begin(epoch, key("f", "c")))
		}
		other := l.Begin(epoch, key("other", "d")) // takes its room
		for i, o := range row.outcomes {
			if got := l.Predict(epoch, key("f", "e")).Remaining; got.Known() {
				t.Errorf("%s: %+v when %d calls have ended", row.name, got, i)
			}
			running[i].End(epoch, 5, o)
		}
		other.End(epoch, 5, learn.Completed)
		if got := l.Predict(epoch, key("f", "e")).Remaining; got != row.want {
			t.Errorf("%s: remaining %+v, want %+v", row.name, got, row.want)
		}
	}
}

// Between calls that run at the same time there is no gap, and whichever ends last counts.
func TestParallel(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	k := key("f", "c")
	a := l.Begin(at(0), k)
	b := l.Begin(at(time.Second), k)
	a.End(at(2*time.Second), 1, learn.Completed)
	c := l.Begin(at(3*time.Second), k) // while b runs
	c.End(at(4*time.Second), 1, learn.Completed)
	b.End(at(10*time.Second), 1, learn.Completed)
	d := l.Begin(at(10*time.Second+70*time.Millisecond), k)
	d.End(at(11*time.Second), 1, learn.Completed)
	now := over(l, 11*time.Second)
	for number, want := range map[int]learn.Estimate{1: {}, 2: est(70, 1, learn.FromFamily), 3: {}} {
		k := key("f", fmt.Sprint(number))
		at := at(now)
		for range number - 1 {
			c := l.Begin(at, k)
			c.End(at, -1, learn.Cancelled)
		}
		if got := l.Predict(at, k).IATMS; got != want {
			t.Errorf("after call %d: %+v, want %+v", number, got, want)
		}
	}
}

func TestClockGoesBack(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	k := key("f", "c")
	for i := range 3 {
		c := l.Begin(at(-time.Duration(i)*time.Hour), k)
		c.End(at(-time.Duration(i)*time.Hour-time.Minute), 9, learn.Completed)
	}
	check(t, "an earlier time", l.Predict(at(-100*time.Hour), k), learn.Prediction{
		Number: 4, OSL: est(9, 3, learn.FromSession), IATMS: est(0, 2, learn.FromSession),
	})
}

// A chat that begins as another did is another.
func TestFirstTurn(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	first, later := key("f", "c"), key("f", "c")
	first.Turn, later.Turn = learn.FirstTurn, learn.LaterTurn
	now := talk(l, 0, first, 10)
	now = talk(l, now, later, 20)
	running := l.Begin(at(now), later)
	check(t, "anew", l.Predict(at(now), first), learn.Prediction{
		Number: 1, OSL: est(10, 1, learn.FromFamily), IATMS: est(200, 1, learn.FromFamily),
	})
	now = talk(l, now, first, 10)
	running.End(at(now), 30, learn.Completed) // of the one before
	if got := l.Predict(at(now), later); got.Number != 2 || got.Remaining != est(1, 1, learn.FromFamily) {
		t.Errorf("the second call: %+v", got)
	}
	if s := l.Stats(); s.Conversations != 1 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// Of a conversation whose beginning was not seen nobody knows how far it is.
func TestLaterTurnUnseen(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	talk(l, 0, key("f", "another"), 10, 10)
	now := over(l, 0)
	k := key("f", "c")
	k.Turn = learn.LaterTurn
	check(t, "at first", l.Predict(at(now), k), learn.Prediction{})
	now = talk(l, now, k, 500, 500, 500)
	check(t, "later", l.Predict(at(now), k), learn.Prediction{OSL: est(500, 3, learn.FromSession), IATMS: est(200, 2, learn.FromSession)})
	now = over(l, now)
	check(t, "the family has heard nothing of it", l.Predict(at(now), key("f", "d")), learn.Prediction{
		Number: 1, OSL: est(10, 1, learn.FromFamily), Remaining: est(1, 1, learn.FromFamily), IATMS: est(200, 1, learn.FromFamily),
	})
}

func TestLast(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1})
	k := key("f", "c")
	now := talk(l, 0, k, 10, 10)
	k.Last = true
	check(t, "last", l.Predict(at(now), k), learn.Prediction{Number: 3})
	failed := l.Begin(at(now), k)
	failed.End(at(now), 0, learn.Failed)
	if n := l.Stats().Conversations; n != 1 {
		t.Errorf("%d conversations after a last call that failed", n)
	}
	now = talk(l, now, k, 10)
	if n := l.Stats().Conversations; n != 0 {
		t.Errorf("%d conversations after the last call", n)
	}
	if got := l.Predict(at(now), key("f", "d")).Remaining; got != est(2, 1, learn.FromFamily) {
		t.Errorf("remaining: %+v", got)
	}
}

func TestEndTwice(t *testing.T) {
	l := learn.New(learn.Config{})
	c := l.Begin(epoch, key("f", "c"))
	c.End(epoch, 1, learn.Completed)
	c.End(epoch, 1, learn.Completed)
	if s := l.Stats(); s.Running != 0 {
		t.Errorf("%+v", s)
	}
	new(learn.Call).End(epoch, 1, learn.Completed)
}

// However many come, no more than so many are kept, and those used last.
func TestBounds(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1, MaxConversations: 10, MaxFamilies: 3})
	var open []learn.Call
	for i := range 1000 {
		open = append(open, l.Begin(epoch, key(fmt.Sprint("f", i%7), fmt.Sprint("c", i))))
		if s := l.Stats(); s.Conversations > 10 || s.Families > 3 || s.Running != i+1 {
			t.Fatalf("%+v", s)
		}
	}
	for i := range open { // nearly all are of conversations that are over
		open[i].End(epoch, 3, learn.Completed)
		if s := l.Stats(); s.Conversations > 10 || s.Families > 3 || s.Running != 999-i {
			t.Fatalf("%+v", s)
		}
	}
	for i, want := range []bool{false, false, false, true, true, true, false} { // 999 is of family 5
		if got := l.Predict(epoch, key(fmt.Sprint("f", i), "")).OSL.Known(); got != want {
			t.Errorf("family %d known: %v", i, got)
		}
	}
}

// However many families and conversations one tenant has, the others keep theirs.
func TestBoundsAreFair(t *testing.T) {
	l := learn.New(learn.Config{MaxConversations: 64, MaxFamilies: 64})
	tenant := func(who, f, c string) learn.Key {
		k := key(f, c)
		k.Scope = learn.ScopeOf("m", who)
		return k
	}
	now := time.Duration(0)
	for f := range 8 {
		for c := range 5 {
			k := tenant("a", fmt.Sprint(f), fmt.Sprint(f, c))
			now = talk(l, now, k, 100)
			k.Last = true
			now = talk(l, now, k, 100)
		}
	}
	for c := range 8 {
		now = talk(l, now, tenant("a", "0", fmt.Sprint("open", c)), 100)
	}
	before := l.Stats()
	for i := range 9000 {
		k := tenant("b", fmt.Sprint("flood", i), fmt.Sprint("flood", i))
		c := l.Begin(at(now), k)
		c.End(at(now), 7, learn.Completed)
	}
	if s := l.Stats(); s.Families != 64 || s.Conversations != 64 ||
		s.FamiliesEvicted < 9000+8-64 || s.ConversationsEvicted != 9000+8-64 {
		t.Errorf("%+v, before %+v", s, before)
	}
	for f := range 8 {
		if got := l.Predict(at(now), tenant("a", fmt.Sprint(f), "new")); got.OSL.Value != 100 || got.Remaining != est(1, 5, learn.FromFamily) {
			t.Errorf("family %d: %+v", f, got)
		}
	}
	for c := range 8 {
		if got := l.Predict(at(now), tenant("a", "0", fmt.Sprint("open", c))).Number; got != 2 {
			t.Errorf("conversation %d goes on with call %d", c, got)
		}
	}
}

// Families that were seen once do not take the room of those that were seen again, but for a
// quarter, in which what is new can be seen again.
func TestSeenAgain(t *testing.T) {
	l := learn.New(learn.Config{MaxFamilies: 16, MinSamples: 1})
	see := func(f string, times int) {
		talk(l, 0, key(f, ""), repeat(10, times)...)
	}
	known := func() (n int) {
		for i := range 16 {
			if l.Predict(epoch, key(fmt.Sprint("f", i), "")).OSL.Known() {
				n++
			}
		}
		return n
	}
	for i := range 16 {
		see(fmt.Sprint("f", i), 2)
	}
	for i := range 1000 {
		see(fmt.Sprint("once", i), 1)
	}
	if n := known(); n != 11 {
		t.Errorf("%d families are left, want 11 of 16", n)
	}
	for i := range 16 {
		see(fmt.Sprint("new", i), 2)
	}
	if n := known(); n != 0 {
		t.Errorf("%d families are left that were not seen for long", n)
	}
}

// What was seen in one conversation was seen once, also when that is over.
func TestSeenOnceWhenOver(t *testing.T) {
	l := learn.New(learn.Config{MaxFamilies: 4, MinSamples: 1})
	now := time.Duration(0)
	for i := range 2 {
		now = talk(l, now, key("f", fmt.Sprint("c", i)), 10)
	}
	for i := range 20 {
		k := key(fmt.Sprint("once", i), "c")
		now = talk(l, now, k, 10)
		k.Last = true
		now = talk(l, now, k, 10)
	}
	if !l.Predict(at(now), key("f", "new")).OSL.Known() {
		t.Error("a family that was seen twice went before those that were seen once")
	}
}

// An answer may take longer than a conversation may be silent.
func TestLongAnswer(t *testing.T) {
	l := learn.New(learn.Config{MinSamples: 1, Idle: time.Minute})
	k := key("f", "c")
	long := l.Begin(at(0), k)
	now := talk(l, time.Hour, key("f", "d"), 1, 1)
	long.End(at(now), 5, learn.Completed)
	if got := l.Predict(at(now), k).Number; got != 2 {
		t.Errorf("it goes on with call %d", got)
	}
}

func TestAllocations(t *testing.T) {
	l := learn.New(learn.Config{})
	k := key("f", "c")
	now := time.Duration(0)
	for i := range 50 {
		now = talk(l, now, key("f", fmt.Sprint(i)), 100, 200, 300)
	}
	now = talk(l, now, k, 10)
	if n := testing.AllocsPerRun(100, func() { l.Predict(at(now), k) }); n != 0 {
		t.Errorf("Predict allocates %v times", n)
	}
	now = talk(l, now, k, repeat(10, 64)...) // beyond that call nothing grows
	if n := testing.AllocsPerRun(100, func() {
		c := l.Begin(at(now), k)
		c.End(at(now), 10, learn.Completed)
	}); n != 0 {
		t.Errorf("a call of a conversation under way allocates %v times", n)
	}
}

func TestConcurrent(t *testing.T) {
	l := learn.New(learn.Config{MaxConversations: 8, MaxFamilies: 2, Idle: time.Second})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				k := key(fmt.Sprint(i%3), fmt.Sprint(i%11))
				k.Turn, k.Last = learn.Turn(i%3), i%17 == 0
				now := at(time.Duration(i*g) * time.Millisecond)
				l.Predict(now, k)
				c := l.Begin(now, k)
				c.End(now.Add(time.Millisecond), i, learn.Outcome(i%3))
			}
		})
	}
	wg.Wait()
	if s := l.Stats(); s.Running != 0 || s.Conversations > 8 || s.Families > 2 {
		t.Errorf("%+v", s)
	}
}

func TestHash(t *testing.T) {
	seen := make(map[learn.Hash]string)
	for name, h := range map[string]learn.Hash{
		"nothing":     {},
		"empty":       learn.Hash{}.Add(nil),
		"two empties": learn.Hash{}.Add(nil).Add(nil),
		"ab":          learn.Hash{}.Add([]byte("ab")),
		"a, b":        learn.Hash{}.Add([]byte("a")).Add([]byte("b")),
		"b, a":        learn.Hash{}.Add([]byte("b")).Add([]byte("a")),
		"ab, empty":   learn.Hash{}.Add([]byte("ab")).Add(nil),
	} {
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[h] = name
	}
	if (learn.Hash{}).AddString("ab") != (learn.Hash{}).Add([]byte("ab")) {
		t.Error("a string is not its bytes")
	}
}
