package thompson

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestBudgets(t *testing.T) {
	for _, c := range []struct {
		name   string
		compat bool
		totals []int
		want   []int
	}{
		{"beyond the total", false, []int{4, 4, 4, 4, 4, 4}, []int{3, 2, 1, 0, 0, 0}},
		{"beyond the total, compat", true, []int{4, 4, 4, 4, 4}, []int{3, 2, 1, 0, 3}},
		{"total grows", false, []int{2, 5}, []int{1, 3}},
		{"total grows, compat", true, []int{2, 5}, []int{1, 3}},
		{"total grows after the end", false, []int{2, 2, 5}, []int{1, 0, 2}},
		{"no total", false, []int{0, -3, 1}, []int{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPrefixes(PrefixConfig{Compat: c.compat})
			id := NewPrefixID("", "s")
			for i, total := range c.totals {
				got, _ := p.Next(after(float64(i)), id, Expectation{Total: total})
				if got != c.want[i] {
					t.Errorf("request %d: budget %d, want %d", i+1, got, c.want[i])
				}
			}
		})
	}
}

func TestBudgetRemaining(t *testing.T) {
	p := NewPrefixes(PrefixConfig{})
	id := NewPrefixID("", "s")
	for i, remaining := range []int{3, 2, 4, 3} {
		if got, _ := p.Next(start, id, Expectation{Total: remaining, Remaining: true}); got != remaining {
			t.Errorf("request %d: budget %d, want %d", i+1, got, remaining)
		}
	}
	for _, compat := range []bool{false, true} {
		p := NewPrefixes(PrefixConfig{Compat: compat})
		for i, remaining := range []int{3, 2, 1, 0, 0} {
			if got, _ := p.Next(start, id, Expectation{Total: remaining, Remaining: true}); got != remaining {
				t.Errorf("compat %v, request %d: budget %d, want %d", compat, i+1, got, remaining)
			}
		}
		want := map[bool]int{true: 2}[compat]
		if got, _ := p.Next(start, PrefixID{}, Expectation{Total: 2, Remaining: true}); got != want {
			t.Errorf("compat %v, no name: budget %d, want %d", compat, got, want)
		}
	}
}

func TestBudgetWithoutName(t *testing.T) {
	for compat, want := range map[bool]int{false: 0, true: 3} {
		p := NewPrefixes(PrefixConfig{Compat: compat})
		for range 2 {
			if got, _ := p.Next(start, NewPrefixID("tenant", ""), Expectation{Total: 4}); got != want {
				t.Errorf("compat %v: budget %d, want %d", compat, got, want)
			}
		}
		if p.Len() != 0 {
			t.Errorf("compat %v: %d remembered", compat, p.Len())
		}
	}
}

func TestPrefixTTL(t *testing.T) {
	for _, c := range []struct {
		total int
		gap   time.Duration
		want  time.Duration
	}{
		{4, 50 * time.Millisecond, time.Minute},
		{100, 750 * time.Millisecond, 300 * time.Second},
		{math.MaxInt32, time.Hour, time.Hour},
		{4, -time.Hour, time.Minute},
	} {
		p := NewPrefixes(PrefixConfig{})
		id, e := NewPrefixID("", "s"), Expectation{Total: c.total, Gap: c.gap}
		_, got := p.Next(start, id, e)
		if got != c.want {
			t.Errorf("total %d, gap %v: TTL %v, want %v", c.total, c.gap, got, c.want)
		}
		first, _ := p.Next(start, id, e)
		within, _ := p.Next(start.Add(c.want-1), id, e)
		anew, _ := p.Next(start.Add(2*c.want-1), id, e)
		if first != c.total-2 || within != c.total-3 || anew != c.total-1 {
			t.Errorf("total %d: budgets %d, within the TTL %d, after it %d", c.total, first, within, anew)
		}
	}
}

func TestPrefixIDs(t *testing.T) {
	seen := map[PrefixID]string{{}: "none"}
	for _, n := range [][2]string{
		{"", "a"}, {"a", "b"}, {"", "ab"}, {"ab", "c"}, {"a", "bc"}, {"", strings.Repeat("a", 10_000)}, {"", strings.Repeat("a", 10_001)},
	} {
		id := NewPrefixID(n[0], n[1])
		if other, ok := seen[id]; ok {
			t.Errorf("%.20q has the id of %.20q", n, other)
		}
		seen[id] = fmt.Sprint(n)
	}
	if n := testing.AllocsPerRun(100, func() { NewPrefixID("tenant", "run7-d1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTable compares the table with one that is written down plainly.
func TestTable(t *testing.T) {
	type entry struct {
		value   int
		expires time.Time
		used    int
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		const limit = 8
		sum := 0 // of what is in the table, by what it says about drops
		tab := newTable(limit, func(v *int) { sum -= *v })
		model := map[PrefixID]*entry{}
		now := start
		for step := range 3000 {
			now = now.Add(time.Duration(r.IntN(5)) * time.Second)
			for id, e := range model {
				if !now.Before(e.expires) {
					delete(model, id)
				}
			}
			id := PrefixID{byte(r.IntN(16)), 1}
			switch r.IntN(4) {
			case 0:
				got, want := tab.get(now, id), model[id]
				if (got == nil) != (want == nil) || got != nil && *got != want.value {
					t.Fatalf("seed %d step %d: get: got %v, want %v", seed, step, got, want)
				}
			case 1:
				tab.remove(id)
				delete(model, id)
			default:
				tab.get(now, id)
				ttl := time.Duration(10+r.IntN(200)) * time.Second
				// An expired one that has not been found yet may take the place of one that
				// has not expired, so that the model needs the table to be tidy.
				tab.tidy(now, len(tab.slots))
				v := tab.put(now, id, ttl)
				sum -= *v
				*v = step
				sum += step
				if model[id] == nil && len(model) == limit {
					var oldest PrefixID
					for k, e := range model {
						if o := model[oldest]; o == nil || e.used < o.used {
							oldest = k
						}
					}
					delete(model, oldest)
				}
				model[id] = &entry{step, now.Add(ttl), step}
			}
			tab.tidy(now, len(tab.slots))
			total := 0
			for _, e := range model {
				total += e.value
			}
			if tab.len() != len(model) || sum != total {
				t.Fatalf("seed %d step %d: %d entries, sum %d; want %d, %d", seed, step, tab.len(), sum, len(model), total)
			}
		}
		if len(tab.slots) > limit {
			t.Errorf("seed %d: %d places for %d entries", seed, len(tab.slots), limit)
		}
	}
}

// TestAbandonedPrefixes begins a million conversations, fewer under the race detector, and
// never goes on.
func TestAbandonedPrefixes(t *testing.T) {
	d, _ := seeded(5)
	p := NewPrefixes(PrefixConfig{})
	r := newReference(t, nil)
	arms := []Arm{{ID: rank(1), Scraped: true}, {ID: rank(2), Scraped: true}}
	out := make([]Choice, 2)
	now := start
	n := 1_000_000
	if raceDetector {
		n = 200_000
	}
	for i := range n {
		now = now.Add(10 * time.Microsecond)
		id := PrefixID{byte(i), byte(i >> 8), byte(i >> 16), 1}
		budget, ttl := p.Next(now, id, Expectation{Total: 5})
		dec := r.Decide(now, d, &Request{PromptTokens: 100, BlockSize: 16, Prefix: id, Budget: budget, TTL: ttl}, arms, out)
		if i%2 == 0 {
			r.Drop(dec.ID)
		}
	}
	if p.Len() != DefaultMaxPrefixes || len(p.known.slots) != DefaultMaxPrefixes {
		t.Errorf("%d prefixes in %d places, want %d", p.Len(), len(p.known.slots), DefaultMaxPrefixes)
	}
	s := r.Stats()
	if s.Prefixes != DefaultMaxPrefixes || len(r.prefixes.slots) != DefaultMaxPrefixes {
		t.Errorf("reference: %d prefixes in %d places, want %d", s.Prefixes, len(r.prefixes.slots), DefaultMaxPrefixes)
	}
	if s.Pending != DefaultMaxPending || len(r.pending.slots) != DefaultMaxPending || s.Lost != uint64(n/2-DefaultMaxPending) {
		t.Errorf("reference: %d pending in %d places, %d lost", s.Pending, len(r.pending.slots), s.Lost)
	}
	checkSums(t, r)
	// They expire, also when nobody asks for them.
	now = now.Add(2 * time.Hour)
	for range DefaultMaxPrefixes / 4096 {
		r.sweep(now)
	}
	if s := r.Stats(); s.Prefixes != 0 || s.Pending != 0 || s.Timeouts != DefaultMaxPending {
		t.Errorf("after two hours: %+v", s)
	}
	for id, a := range r.arms {
		if a.outstanding != 0 || a.pending != 0 {
			t.Errorf("%v: outstanding %v, pending %d, want none", id, a.outstanding, a.pending)
		}
	}
}

// checkSums compares the work on each rank with that of its conversations.
func checkSums(t *testing.T, r *Reference) {
	t.Helper()
	work, stays := map[*refArm]float64{}, map[*refArm]int{}
	for i := range r.prefixes.slots {
		if s := &r.prefixes.slots[i].value; s.arm != nil {
			work[s.arm] += s.work
			stays[s.arm]++
		}
	}
	pending := map[*refArm]int{}
	for i := r.pending.oldest; i != none; i = r.pending.slots[i].next {
		pending[r.pending.at(i).arm]++
	}
	for id, a := range r.arms {
		if math.Abs(a.outstanding-work[a]) > 1e-9*(1+work[a]) || a.stays != stays[a] || a.pending != pending[a] {
			t.Errorf("%v: outstanding %v of %d, pending %d; want %v of %d, %d",
				id, a.outstanding, a.stays, a.pending, work[a], stays[a], pending[a])
		}
	}
}
