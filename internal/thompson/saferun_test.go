package thompson

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// fleet is a toy: ranks that compute prompts one after the other, at speeds of their own
// that the cost model does not know, and remember whom they served.
type fleet struct {
	ranks []toyRank
	ends  toyEnds
}

type toyRank struct {
	free     time.Time // until when it computes
	inFlight int
	tokens   int
	speed    float64
	warm     map[int]float64 // how much of a conversation's prompt is in its cache
}

type toyEnd struct {
	at           time.Time
	first        bool
	id           uint64
	rank, tokens int
	ttft, itl    time.Duration
}

type toyEnds []toyEnd

func (e toyEnds) Len() int           { return len(e) }
func (e toyEnds) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e toyEnds) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *toyEnds) Push(v any)        { *e = append(*e, v.(toyEnd)) }
func (e *toyEnds) Pop() any {
	v := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return v
}

const toyRate = 9000 // tokens a second, as the cost model has it

func newFleet(r *rand.Rand, n int) *fleet {
	f := &fleet{ranks: make([]toyRank, n)}
	for i := range f.ranks {
		f.ranks[i] = toyRank{free: start, speed: math.Exp(r.NormFloat64() * 0.5), warm: map[int]float64{}}
	}
	return f
}

// arms is what the cost model sees of the fleet, and its choice.
func (f *fleet) arms(now time.Time, prompt, conversation int) (arms []Arm, baseline int) {
	for i := range f.ranks {
		r := &f.ranks[i]
		o := r.warm[conversation]
		queued := max(r.free.Sub(now).Seconds(), 0) * toyRate * r.speed
		todo := int(queued + float64(prompt)*(1-o))
		arms = append(arms, Arm{
			ID: kv.Source{Worker: kv.WorkerID(i + 1)}, Overlap: o, PrefillTokens: todo, KVTokens: r.tokens, InFlight: r.inFlight,
			Healthy: true, Cost: float64(todo)/16 + float64(r.tokens+prompt)/16,
		})
		if arms[i].Cost < arms[baseline].Cost {
			baseline = i
		}
	}
	return arms, baseline
}

// run has a rank serve a request.
func (f *fleet) run(now time.Time, r *rand.Rand, chosen, prompt, conversation int, id uint64) {
	w := &f.ranks[chosen]
	todo := float64(prompt) * (1 - w.warm[conversation])
	if w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(time.Duration((todo/toyRate/w.speed + 0.01) * float64(time.Second)))
	w.warm[conversation] = 0.9
	w.inFlight++
	w.tokens += prompt
	itl := time.Duration((10+0.6*float64(w.inFlight))/w.speed*1e6) + 1
	heap.Push(&f.ends, toyEnd{at: w.free, first: true, id: id, rank: chosen, tokens: prompt, ttft: w.free.Sub(now), itl: itl})
	heap.Push(&f.ends, toyEnd{at: w.free.Add(itl * time.Duration(20+r.IntN(200))), id: id, rank: chosen, tokens: prompt, itl: itl})
}

// TestSafeKeepsItsPromises runs a thousand fleets, fewer under the race detector: nothing
// outside the guard is ever chosen, losses stay within the budget, and probabilities are what
// they are said to be.
func TestSafeKeepsItsPromises(t *testing.T) {
	runs, decisions, others := 1000, 0, 0
	if testing.Short() || raceDetector {
		runs = 50
	}
	weight := 0.0 // of choices by their inverse probability, less the number of arms
	variance := 0.0
	for seed := range uint64(runs) {
		d, rnd := seeded(seed)
		s := newSafe(t, func(c *SafeConfig) {
			c.Guard = []float64{0.25, 0.5, 1}[rnd.IntN(3)]
			c.Allowance = []float64{0.05, 0, 0.01}[rnd.IntN(3)]
			c.Budget = []float64{20, 1, 0}[rnd.IntN(3)]
			c.OneHead = rnd.IntN(4) == 0
			c.BaselineShare = []float64{0.02, 0, 0.5}[rnd.IntN(3)]
			c.BusyAfter = time.Duration(rnd.IntN(3)) * time.Second
		})
		f := newFleet(rnd, 2+rnd.IntN(7))
		out := make([]SafeChoice, len(f.ranks))
		now, lost := start, 0.0
		rate := 4 * rnd.ExpFloat64() * float64(len(f.ranks))
		for step := 1; step <= 250; step++ {
			now = now.Add(time.Duration(rnd.ExpFloat64() / (rate + 0.1) * float64(time.Second)))
			f.tell(t, s, now, rnd)
			s.Tick(now)
			prompt, conversation := 64+rnd.IntN(6000), rnd.IntN(40)
			arms, baseline := f.arms(now, prompt, conversation)
			req := &Request{PromptTokens: prompt, BlockSize: 16, Baseline: baseline}
			dec := s.Decide(now, d, req, arms, out)

			base, cost := arms[baseline].Cost, arms[dec.Chosen].Cost
			if cost > (1+s.cfg.Guard)*base*(1+1e-12) {
				t.Fatalf("seed %d step %d: cost %v is beyond the guard of %v", seed, step, cost, base)
			}
			lost += (cost - base) / base
			if bound := s.cfg.Budget + s.cfg.Allowance*float64(step) + s.cfg.Guard; lost > bound+1e-9 {
				t.Fatalf("seed %d step %d: lost %v, more than %v", seed, step, lost, bound)
			}
			decisions++
			if dec.Chosen != baseline {
				others++
			}
			if dec.Why == WhySampled && out[baseline].P < s.cfg.BaselineShare {
				t.Fatalf("seed %d step %d: probability %v of the baseline, want at least %v", seed, step, out[baseline].P, s.cfg.BaselineShare)
			}
			sum, admissible := 0.0, 0
			for i := range out {
				if c := &out[i]; c.Admissible {
					admissible++
					sum += c.P
				} else if c.P != 0 {
					t.Fatalf("seed %d step %d: probability %v of what is not admissible", seed, step, c.P)
				}
			}
			if math.Abs(sum-1) > 1e-9 || dec.P != out[dec.Chosen].P {
				t.Fatalf("seed %d step %d: probabilities sum to %v; chosen with %v, listed with %v", seed, step, sum, dec.P, out[dec.Chosen].P)
			}
			if dec.Why == WhySampled {
				// The inverse probability of a choice is on average the number of arms.
				weight += 1/dec.P - float64(admissible)
				for i := range out {
					if out[i].Admissible {
						variance += 1 / out[i].P
					}
				}
				variance -= float64(admissible * admissible)
			}
			f.run(now, rnd, dec.Chosen, prompt, conversation, dec.ID)
		}
		if n := s.Stats().Pending; n > f.ends.Len() {
			t.Fatalf("seed %d: %d pending, %d under way", seed, n, f.ends.Len())
		}
	}
	if z := weight / math.Sqrt(variance); math.Abs(z) > 4 {
		t.Errorf("probabilities are off by %.1f standard deviations", z)
	}
	if share := float64(others) / float64(decisions); share < 0.01 {
		t.Errorf("%.2f %% of decisions differ from the baseline: too few to have tried anything", 100*share)
	}
}

// tell gives the policy the feedback that is due.
func (f *fleet) tell(t *testing.T, s *Safe, now time.Time, r *rand.Rand) {
	t.Helper()
	for f.ends.Len() > 0 && !f.ends[0].at.After(now) {
		e := heap.Pop(&f.ends).(toyEnd)
		var err error
		if e.first {
			err = s.FirstToken(e.at, e.id, e.ttft)
		} else {
			w := &f.ranks[e.rank]
			w.inFlight--
			w.tokens -= e.tokens
			err = s.Done(e.at, e.id, e.itl, Outcome(r.IntN(20)%3*r.IntN(2)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSafeChoicesFollowProbabilities is a chi-square test of choices among four arms.
func TestSafeChoicesFollowProbabilities(t *testing.T) {
	s := newSafe(t, func(c *SafeConfig) { c.Guard, c.Allowance = 1000, 1000 })
	d, _ := seeded(21)
	arms := vectorArms()
	arms = append(arms, arms[1])
	arms[3].ID = rank(4)
	out := make([]SafeChoice, len(arms))
	const n = 40_000
	var seen, expected [4]float64
	for range n {
		dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, arms, out)
		seen[dec.Chosen]++
		for i := range out {
			expected[i] += out[i].P
		}
	}
	chi := 0.0
	for i := range seen {
		chi += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i]
	}
	if chi > 16.27 { // three degrees of freedom, one in a thousand
		t.Errorf("chi-square %.1f: chosen %v, expected %v", chi, seen, expected)
	}
}

func TestReferenceChoicesFollowProbabilities(t *testing.T) {
	r := newReference(t, nil)
	d, _ := seeded(22)
	arms := []Arm{{ID: rank(1), Scraped: true, Queue: 1}, {ID: rank(2), Scraped: true, Overlap: 1}, {ID: rank(3), Scraped: true, KVUsage: .9}}
	out := make([]Choice, len(arms))
	var seen, expected [3]float64
	for range 40_000 {
		dec := r.Decide(start, d, &Request{PromptTokens: 1024}, arms, out)
		r.Drop(dec.ID)
		seen[dec.Chosen]++
		for i := range out {
			expected[i] += out[i].P
		}
	}
	chi := 0.0
	for i := range seen {
		chi += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i]
	}
	if chi > 13.82 { // two degrees of freedom, one in a thousand
		t.Errorf("chi-square %.1f: chosen %v, expected %v", chi, seen, expected)
	}
}

// TestSafeStops has the arm that is not the baseline's differ in a way that a policy which
// forgets everything at once cannot learn.
func TestSafeStops(t *testing.T) {
	for _, c := range []struct {
		name  string
		slow  float64 // of arms that are not the baseline
		stops bool
	}{{"worse", 4, true}, {"a little better", 0.8, false}, {"better", 0.5, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSafe(t, func(c *SafeConfig) {
				c.Allowance = 10 // so that the budget does not end it
				c.HalfLife = 1   // what was learned is forgotten at once
				c.Epsilon = 0.5  // and much is left to chance
				c.ITLWeight = 0
			})
			d, rnd := seeded(31)
			out := make([]SafeChoice, 2)
			stopped := time.Duration(-1)
			for i := range 1200 {
				now := after(float64(i))
				arms := vectorArms()[:2]
				arms[0].PrefillTokens, arms[0].KVTokens, arms[0].Overlap, arms[0].Cost = 1024, 4000, 0, arms[1].Cost
				dec := s.Decide(now, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, arms, out)
				ttft := 0.1 * math.Exp(0.2*rnd.NormFloat64())
				if dec.Chosen != 1 {
					ttft *= c.slow
				}
				if err := s.FirstToken(now, dec.ID, time.Duration(ttft*1e9)); err != nil {
					t.Fatal(err)
				}
				if err := s.Done(now, dec.ID, 0, Completed); err != nil {
					t.Fatal(err)
				}
				switch res := s.Tick(now); {
				case res.Stopped:
					stopped = now.Sub(start)
				case stopped >= 0 && i < int(stopped.Seconds())+600:
					if dec.Why != WhyStopped && now.Sub(start) > stopped || s.Stats().Budget > 0 {
						t.Fatalf("after %d s: %+v", i, dec)
					}
				}
				if stopped >= 0 && now.Sub(start) == stopped+601*time.Second && dec.Why == WhyStopped {
					t.Fatalf("after %d s: %+v, want it to go on", i, dec)
				}
			}
			if (stopped >= 0) != c.stops || (s.Stats().Stops > 0) != c.stops {
				t.Errorf("stopped after %v, %+v", stopped, s.Compare(after(1200)))
			}
			if cmp := s.Compare(after(1200)); !c.stops && (cmp.Difference > 0.05 || cmp.Low > cmp.Difference || cmp.High < cmp.Difference) {
				t.Errorf("%+v", cmp)
			}
		})
	}
}

// TestSafeStopsForAReason lets chance alone choose between two arms of which the other one is
// worse, as good, or better, and then a policy with the defaults find out that the baseline
// is right.
func TestSafeStopsForAReason(t *testing.T) {
	chance := func(c *SafeConfig) { c.Epsilon, c.Allowance = 1, 10 }
	for _, c := range []struct {
		name   string
		config func(*SafeConfig)
		slow   float64 // of the other arm
		noise  float64
		stops  bool
	}{
		{"10 % worse", chance, 1.21, 0.3, true},
		{"as good", chance, 1, 0.3, false},
		{"10 % better", chance, 1 / 1.21, 0.3, false},
		{"the baseline is right", nil, 1.3, 0.3, false},
		{"the baseline is very right", nil, 4, 0.3, false},
	} {
		for seed := range uint64(4) {
			s := newSafe(t, func(cfg *SafeConfig) {
				cfg.ITLWeight = 0
				if c.config != nil {
					c.config(cfg)
				}
			})
			d, rnd := seeded(seed)
			out := make([]SafeChoice, 2)
			stopped := -1
			for i := 0; i < 3600 && stopped < 0; i++ {
				now := after(float64(i))
				arms := vectorArms()[1:]
				arms[1] = arms[0]
				arms[1].ID = rank(9)
				dec := s.Decide(now, d, &Request{PromptTokens: 1024, BlockSize: 16}, arms, out)
				ttft := 0.2 * math.Exp(c.noise*rnd.NormFloat64())
				if dec.Chosen == 1 {
					ttft *= c.slow
				}
				if s.FirstToken(now, dec.ID, time.Duration(ttft*1e9)) != nil || s.Done(now, dec.ID, 0, Completed) != nil {
					t.Fatal("feedback")
				}
				if s.Tick(now).Stopped {
					stopped = i
				}
			}
			if c.stops != (stopped >= 0) || stopped > 600 {
				t.Errorf("%s, seed %d: stopped after %d s", c.name, seed, stopped)
			}
		}
	}
}

// TestSafeClockBack sets the time back: the policy still stops, and not for longer than it
// may.
func TestSafeClockBack(t *testing.T) {
	s := newSafe(t, func(c *SafeConfig) { c.Epsilon, c.Allowance, c.ITLWeight = 1, 10, 0 })
	s.Tick(after(1e6))
	s.until = after(1e6)
	d, _ := seeded(1)
	out := make([]SafeChoice, 2)
	for i := range 1200 {
		now := after(float64(i))
		arms := vectorArms()[1:]
		arms[1] = arms[0]
		arms[1].ID = rank(9)
		dec := s.Decide(now, d, &Request{PromptTokens: 1024, BlockSize: 16}, arms, out)
		if stopped := dec.Why == WhyStopped; stopped != (i < 600) {
			t.Fatalf("after %d s: %+v", i, dec)
		}
		ttft := 100 * time.Millisecond
		if dec.Chosen == 1 {
			ttft *= 3
		}
		if s.FirstToken(now, dec.ID, ttft) != nil || s.Done(now, dec.ID, 0, Completed) != nil {
			t.Fatal("feedback")
		}
		if s.Tick(now).Stopped {
			return
		}
	}
	t.Error("never stopped, although it does worse")
}

// TestSafeLearnsWhoIsSlow has one of two arms that look alike take five times as long.
func TestSafeLearnsWhoIsSlow(t *testing.T) {
	s := newSafe(t, func(c *SafeConfig) { c.Allowance = 1 })
	d, rnd := seeded(41)
	out := make([]SafeChoice, 2)
	good := 0
	for i := range 400 {
		now := after(float64(i) / 10)
		arms := vectorArms()[1:]
		arms[1] = arms[0]
		arms[1].ID = rank(9)
		dec := s.Decide(now, d, &Request{PromptTokens: 1024, BlockSize: 16}, arms, out)
		ttft := 0.12 * math.Exp(0.2*rnd.NormFloat64())
		if dec.Chosen == 0 {
			ttft *= 5
		}
		if i >= 200 && dec.Chosen == 1 {
			good++
		}
		if err := s.FirstToken(now, dec.ID, time.Duration(ttft*1e9)); err != nil {
			t.Fatal(err)
		}
		if err := s.Done(now, dec.ID, 15*time.Millisecond, Completed); err != nil {
			t.Fatal(err)
		}
	}
	if good < 180 {
		t.Errorf("the fast arm was chosen %d times of 200", good)
	}
}
