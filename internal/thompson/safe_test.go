package thompson

import (
	"errors"
	"math"
	"testing"
	"time"
)

// vectorArms are three arms for a prompt of 1024 tokens, with costs in which a token to
// compute counts four times.
func vectorArms() []Arm {
	arm := func(worker, prefill, tokens, inFlight int, overlap float64) Arm {
		return Arm{
			ID: rank(worker), PrefillTokens: prefill, KVTokens: tokens, InFlight: inFlight, Overlap: overlap, Healthy: true,
			Cost: 4*float64(prefill)/16 + float64(tokens)/16 + 64,
		}
	}
	return []Arm{arm(1, 256, 8000, 4, .75), arm(2, 1024, 4000, 2, 0), arm(3, 3072, 1000, 1, 0)}
}

func vectorDraws() *Script {
	return &Script{
		Norms:    []float64{1, -.5, .3, -1.2, .4, .5, -1, -.6, 2, -.8, .9, -.1, 6, -3},
		Uniforms: []float64{0.3},
	}
}

// sampledCosts draws what the admissible arms of the latest decision will cost.
func sampledCosts(s *Safe, d Draws) [][]float64 {
	var all [][]float64
	shared := s.shared()
	z := make([]float64, shared+len(s.in))
	for range s.cfg.Samples {
		norms(d, z)
		theta := s.weights(z[:shared])
		var y []float64
		for i := range s.in {
			y = append(y, s.in[i].sampled(&theta, z[shared+i]))
		}
		all = append(all, y)
	}
	return all
}

// TestSafeVector is the worked example, and two more steps of it in which the belief is not
// that of the beginning any more. The numbers come from another program.
func TestSafeVector(t *testing.T) {
	s := newSafe(t, func(c *SafeConfig) { c.OneHead, c.Samples, c.BaselineShare = true, 2, 0 })
	req := &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}
	arms, out := vectorArms(), make([]SafeChoice, 3)
	s.rate.reported = true // so that it stays

	draws := vectorDraws()
	dec := s.Decide(start, draws, req, arms, out)
	if len(draws.Norms)+len(draws.Uniforms) != 0 {
		t.Errorf("draws left: %+v", draws)
	}
	same(t, "costs", []float64{arms[0].Cost, arms[1].Cost, arms[2].Cost}, []float64{628, 570, 894.5})
	same(t, "limit", dec.Limit, 712.5)
	same(t, "admissible", []bool{out[0].Admissible, out[1].Admissible, out[2].Admissible}, []bool{true, true, false})
	same(t, "priors", []float64{out[0].Prior, out[1].Prior}, []float64{-3.027337613, -2.011575230})
	same(t, "features of 1", out[0].X, [safeDim]float64{1, .75, .223143551, .397621931, 1.609437912})
	same(t, "features of 2", out[1].X, [safeDim]float64{1, 0, .693147181, .218445031, 1.098612289})
	same(t, "samples", sampledCosts(s, vectorDraws()), [][]float64{{-2.841480422, -2.073049727}, {-1.735497502, -2.718353075}})
	same(t, "won", []int{out[0].Won, out[1].Won}, []int{1, 1})
	same(t, "probabilities", []float64{out[0].P, out[1].P, out[2].P}, []float64{.5, .5, 0})
	same(t, "budget", dec.Budget, 19.948245614)
	if dec.Chosen != 0 || dec.Would != 0 || dec.P != out[0].P || dec.Why != WhySampled {
		t.Errorf("%+v", dec)
	}

	finish := func(at float64, id uint64, ttft, itl time.Duration) {
		t.Helper()
		if err := s.FirstToken(after(at), id, ttft); err != nil {
			t.Fatal(err)
		}
		if err := s.Done(after(at), id, itl, Completed); err != nil {
			t.Fatal(err)
		}
	}
	s.heads[0].updated = start
	finish(30, dec.ID, 60*time.Millisecond, 18*time.Millisecond)
	same(t, "fade", fade(after(30), start, s.cfg.HalfLife), 0.840896415)
	same(t, "A00", s.heads[0].a[0], 2.0)
	same(t, "mean", s.heads[0].theta, [safeDim]float64{.110577205, .082932904, .024674590, .043967922, .177967146})
	same(t, "correction", s.heads[0].at(&out[0].X), .482192542)
	mean, count := s.Offset(rank(1))
	same(t, "offset", [2]float64{mean, count}, [2]float64{.022115441, 1})

	// The same requests again, decided by hand: one that went to the second arm, and
	// another to the first.
	again := func(chosen int) uint64 {
		id, p := s.pending.add()
		*p = safePending{arm: s.arms[arms[chosen].ID], phi: out[chosen].X, prior: out[chosen].Prior, since: start}
		return id
	}
	finish(75, again(1), 150*time.Millisecond, 12*time.Millisecond)
	same(t, "mean after the second", s.heads[0].theta, [safeDim]float64{
		0.06369949618637702, 0.113598313616088, -0.02703570004966594, 0.0410537633119659, 0.14735295517459157,
	})
	finish(100, again(0), 400*time.Millisecond, 30*time.Millisecond)
	same(t, "mean after the third", s.heads[0].theta, [safeDim]float64{
		0.17327780450754376, 0.4649942344388359, -0.1712916153714385, 0.14893997596009234, 0.5070730851918283,
	})
	one, n1 := s.Offset(rank(1))
	two, n2 := s.Offset(rank(2))
	same(t, "offsets after the third", [4]float64{one, n1, two, n2},
		[4]float64{0.21545725782118116, 1.6674199270850172, -0.017552984393681404, 1})

	dec = s.Decide(after(130), vectorDraws(), req, arms, out)
	same(t, "samples later", sampledCosts(s, vectorDraws()), [][]float64{
		{-1.3797602001333715, -1.451238832007423}, {-0.6618182034748588, -1.9567189866060026},
	})
	same(t, "probabilities later", []float64{out[0].P, out[1].P}, []float64{.005, .995})
	same(t, "score", out[0].Score, out[0].Prior+out[0].Residual+out[0].Offset)
	if dec.Chosen != 1 {
		t.Errorf("%+v", dec)
	}
}

// TestSafeTwoHeads learns from the first token before the end.
func TestSafeTwoHeads(t *testing.T) {
	s := newSafe(t, nil)
	d, _ := seeded(1)
	req, arms, out := &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), make([]SafeChoice, 3)
	dec := s.Decide(start, d, req, arms, out)
	c := out[dec.Chosen]
	if err := s.FirstToken(after(1), dec.ID, time.Second); err != nil {
		t.Fatal(err)
	}
	first := s.heads[0].theta
	if first == [safeDim]float64{} || s.heads[1].theta != [safeDim]float64{} {
		t.Errorf("after the first token: %v, %v", first, s.heads[1].theta)
	}
	// Alone, an observation moves the mean by its share of the variance.
	variance := dot(c.X[:], c.X[:])
	e := math.Log(1+.02) - c.Prior
	same(t, "first head", s.heads[0].at(&c.X), min(e, maxSurprise)*variance/(1+variance))
	if err := s.FirstToken(after(2), dec.ID, time.Hour); err != nil || s.heads[0].theta != first {
		t.Errorf("a second first token: %v, %v", err, s.heads[0].theta)
	}
	if err := s.Done(after(3), dec.ID, 30*time.Millisecond, Completed); err != nil {
		t.Fatal(err)
	}
	same(t, "second head", s.heads[1].at(&c.X), math.Log(2)*variance/(1+variance))
	if s.heads[0].theta != first {
		t.Error("the end taught the first head")
	}
	for _, err := range []error{s.FirstToken(after(4), dec.ID, 1), s.Done(after(4), dec.ID, 1, Completed)} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("feedback after the end: %v", err)
		}
	}
	s.Decide(after(4), d, req, arms, out)
	same(t, "both heads count", out[dec.Chosen].Residual, s.heads[0].at(&c.X)+.5*s.heads[1].at(&c.X))
}

func TestSafeLearnsNothingFrom(t *testing.T) {
	for name, end := range map[string]func(*Safe, uint64) error{
		"cancel":  func(s *Safe, id uint64) error { return s.Done(after(9), id, 0, Cancelled) },
		"failure": func(s *Safe, id uint64) error { return s.Done(after(9), id, 0, Failed) },
		"forgotten arm": func(s *Safe, id uint64) error {
			for _, a := range vectorArms() {
				s.Forget(a.ID)
			}
			if err := s.FirstToken(after(9), id, time.Second); !errors.Is(err, ErrUnknown) {
				return errors.New("the decision is still pending")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSafe(t, nil)
			d, _ := seeded(1)
			dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), make([]SafeChoice, 3))
			if err := end(s, dec.ID); err != nil {
				t.Fatal(err)
			}
			st := s.Stats()
			if st.Mean != [2][safeDim]float64{} || st.Pending != 0 || st.PrefillRate != 9000 || s.Compare(after(10)).Decisions != 0 {
				t.Errorf("learned: %+v", st)
			}
		})
	}
}

func TestSafeGuards(t *testing.T) {
	req := &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}
	for _, c := range []struct {
		name   string
		change func([]Arm)
		config func(*SafeConfig)
		want   [3]bool
		why    Why
	}{
		{"within the guard", func([]Arm) {}, nil, [3]bool{true, true, false}, WhySampled},
		{"ill", func(a []Arm) { a[0].Healthy = false }, nil, [3]bool{false, true, false}, WhyOnly},
		{"an ill baseline", func(a []Arm) { a[1].Healthy = false }, nil, [3]bool{true, true, false}, WhySampled},
		{"full", func(a []Arm) { a[0].Scraped, a[0].KVUsage = true, .96 }, nil, [3]bool{false, true, false}, WhyOnly},
		{"nearly full", func(a []Arm) { a[0].Scraped, a[0].KVUsage = true, .95 }, nil, [3]bool{true, true, false}, WhySampled},
		{"no number", func(a []Arm) { a[0].Cost = math.NaN() }, nil, [3]bool{false, true, false}, WhyOnly},
		{"no limit", func(a []Arm) { a[1].Cost = math.Inf(1) }, nil, [3]bool{true, true, true}, WhyBaseline},
		{"no baseline", func(a []Arm) { a[1].Cost = math.NaN() }, nil, [3]bool{false, true, false}, WhyBaseline},
		{"idle fleet", func(a []Arm) { a[1].Cost, a[0].Cost, a[2].Cost = 0, 16, 16.1 }, nil, [3]bool{true, true, false}, WhySampled},
		{"no budget", func([]Arm) {}, func(c *SafeConfig) { c.Budget = 0 }, [3]bool{true, true, false}, WhyBudget},
		{"behind", func(a []Arm) { a[1].PrefillTokens += 18_000 }, func(c *SafeConfig) { c.BusyAfter = 2 * time.Second }, [3]bool{true, true, false}, WhySampled},
		{"busy", func(a []Arm) { a[1].PrefillTokens += 18_001 }, func(c *SafeConfig) { c.BusyAfter = 2 * time.Second }, [3]bool{false, true, false}, WhyBusy},
		{"busy in shadow", func(a []Arm) { a[1].PrefillTokens += 1e6 }, func(c *SafeConfig) { c.Shadow = true }, [3]bool{false, true, false}, WhyBusy},
		{"busy elsewhere", func(a []Arm) { a[0].PrefillTokens += 1e6 }, nil, [3]bool{true, true, false}, WhySampled},
		{"busy with a part in the cache", func(a []Arm) { a[1].PrefillTokens, a[1].Overlap = 512+18_001, .5 }, func(c *SafeConfig) { c.BusyAfter = 2 * time.Second }, [3]bool{false, true, false}, WhyBusy},
		{"too much more", func([]Arm) {}, func(c *SafeConfig) { c.MaxExtra = 100 * time.Millisecond }, [3]bool{false, true, false}, WhyOnly},
		{"not too much more", func([]Arm) {}, func(c *SafeConfig) { c.MaxExtra = 104 * time.Millisecond }, [3]bool{true, true, false}, WhySampled},
		{"shadow", func([]Arm) {}, func(c *SafeConfig) { c.Shadow, c.Budget = true, 0 }, [3]bool{true, true, false}, WhyShadow},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSafe(t, c.config)
			d, _ := seeded(1)
			arms, out := vectorArms(), make([]SafeChoice, 3)
			c.change(arms)
			dec := s.Decide(start, d, req, arms, out)
			sum := 0.0
			for i := range out {
				if out[i].Admissible != c.want[i] {
					t.Errorf("arm %d: admissible %v, want %v", i, out[i].Admissible, c.want[i])
				}
				sum += out[i].P
			}
			same(t, "sum of probabilities", sum, 1.0)
			if dec.Why != c.why || dec.Why != WhySampled && (dec.Chosen != 1 || dec.P != 1) {
				t.Errorf("%+v, want %v", dec, c.why)
			}
		})
	}
	s := newSafe(t, nil)
	for _, baseline := range []int{-1, 0, 3} {
		if dec := s.Decide(start, nil, &Request{Baseline: baseline}, nil, nil); dec.Chosen != -1 || dec.ID != 0 {
			t.Errorf("no arms: %+v", dec)
		}
	}
}

// TestSafeShadow gives the same requests to a policy that decides and to one that does not.
func TestSafeShadow(t *testing.T) {
	s := newSafe(t, func(c *SafeConfig) { c.Shadow = true })
	d, rnd := seeded(8)
	out := make([]SafeChoice, 3)
	differed := 0
	for i := range 500 {
		arms := vectorArms()
		dec := s.Decide(after(float64(i)), d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, arms, out)
		if dec.Chosen != 1 || dec.P != 1 || dec.Budget != 20 || dec.Excess != 0 || dec.Why != WhyShadow {
			t.Fatalf("%+v", dec)
		}
		if dec.Would != dec.Chosen {
			differed++
		}
		if err := s.FirstToken(after(float64(i)), dec.ID, time.Duration(rnd.IntN(1e9))); err != nil {
			t.Fatal(err)
		}
		if err := s.Done(after(float64(i)), dec.ID, 20*time.Millisecond, Completed); err != nil {
			t.Fatal(err)
		}
		s.Tick(after(float64(i)))
	}
	if st := s.Stats(); differed == 0 || st.Mean[0] == [safeDim]float64{} || st.Stops != 0 || !st.StoppedUntil.IsZero() {
		t.Errorf("%d would differ, %+v", differed, st)
	}
	if c := s.Compare(after(500)); c.Decisions != 500 {
		t.Errorf("%+v", c)
	}
}

// TestSafeBaselineShare has the baseline win no sample of three arms, then a few.
func TestSafeBaselineShare(t *testing.T) {
	for _, c := range []struct {
		share float64
		won   [3]int
		want  []float64
	}{
		{0.02, [3]int{10, 0, 6}, []float64{0.611680602, 0.02, 0.368319398}},
		{0, [3]int{10, 0, 6}, []float64{0.622083333, 0.003333333, 0.374583333}},
		{0.02, [3]int{9, 1, 6}, []float64{0.560208333, 0.065208333, 0.374583333}},
		{1, [3]int{10, 0, 6}, []float64{0, 1, 0}},
	} {
		s := newSafe(t, func(cfg *SafeConfig) {
			if c.share != 0.02 { // the default
				cfg.BaselineShare = c.share
			}
		})
		out := make([]SafeChoice, 3)
		for i, won := range c.won {
			s.in = append(s.in, admitted{index: i, won: won})
		}
		chosen := s.choose(0.62, 1, out)
		same(t, "probabilities", []float64{out[0].P, out[1].P, out[2].P}, c.want)
		if want := map[bool]int{true: 0, false: 1}[c.want[0] > 0.62]; chosen != want {
			t.Errorf("share %v: chose %d, want %d", c.share, chosen, want)
		}
	}
}

// TestSafeReturns has the baseline's arm be slow for a while and then the best of all.
func TestSafeReturns(t *testing.T) {
	for _, c := range []struct {
		arms  int
		limit float64 // seconds
	}{{2, 330}, {8, 330}} {
		sum := 0.0
		const runs = 6
		for seed := range uint64(runs) {
			s := newSafe(t, func(c *SafeConfig) { c.ITLWeight = 0 })
			d, rnd := seeded(seed)
			out := make([]SafeChoice, c.arms)
			row, back := 0, 3000.0
			for i := range 3000 {
				arms := make([]Arm, c.arms)
				for k := range arms {
					arms[k] = Arm{ID: rank(k + 1), Healthy: true, Cost: 100, PrefillTokens: 1000}
				}
				dec := s.Decide(after(float64(i)), d, &Request{PromptTokens: 1000, BlockSize: 16}, arms, out)
				ttft := 0.2 * math.Exp(0.3*rnd.NormFloat64())
				if dec.Chosen == 0 {
					ttft *= map[bool]float64{true: 4, false: 0.5}[i < 1200]
				}
				if s.FirstToken(after(float64(i)), dec.ID, time.Duration(ttft*1e9)) != nil || s.Done(after(float64(i)), dec.ID, 0, Completed) != nil {
					t.Fatal("feedback")
				}
				s.Tick(after(float64(i)))
				if row++; dec.Chosen != 0 || i < 1200 {
					row = 0
				}
				if row == 10 {
					back = float64(i - 1200)
					break
				}
			}
			sum += back
		}
		if mean := sum / runs; mean > c.limit {
			t.Errorf("%d arms: back after %.0f s, want at most %.0f", c.arms, mean, c.limit)
		}
	}
}

// TestSafeLate has a request wait for its first token.
func TestSafeLate(t *testing.T) {
	s := newSafe(t, nil)
	d, _ := seeded(1)
	arms, out := vectorArms()[1:2], make([]SafeChoice, 1)
	dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16}, arms, out)
	// It should take 1024/9000 s.
	var at []float64
	for ms := 20; ms <= 4000; ms += 20 {
		if s.Tick(after(float64(ms)/1000)).Late > 0 {
			at = append(at, float64(ms)/1000)
		}
	}
	if len(at) < 3 || at[0] != 0.12 {
		t.Fatalf("learned from at %v", at)
	}
	for i := range at[1:] {
		if at[i+1] < 2*at[i]-1e-9 {
			t.Errorf("learned from at %v: more than once per doubling", at)
		}
	}
	before := s.heads[0].at(&out[0].X)
	if before <= 0 {
		t.Errorf("correction %v, want the arm to look slower", before)
	}
	if err := s.FirstToken(after(4), dec.ID, 4*time.Second); err != nil {
		t.Fatal(err)
	}
	if got := s.heads[0].at(&out[0].X); got <= before {
		t.Errorf("correction %v after the first token, %v before", got, before)
	}
	if s.Tick(after(100)).Late != 0 {
		t.Error("learned from after the first token")
	}
	unary := s.Decide(after(100), d, &Request{PromptTokens: 1024, BlockSize: 16, Unary: true}, arms, out)
	if s.Tick(after(200)).Late != 0 || s.Done(after(200), unary.ID, 0, Completed) != nil {
		t.Error("learned from waiting for what nobody can see")
	}
	if s.Tick(after(3601)); s.Stats().Pending != 0 {
		t.Error("pending for ever")
	}
}

// TestSafeLateByNow has the prediction become shorter while a request waits.
func TestSafeLateByNow(t *testing.T) {
	s := newSafe(t, nil)
	d, _ := seeded(1)
	arms, out := vectorArms()[1:2], make([]SafeChoice, 1)
	decide := func(at float64) uint64 {
		return s.Decide(after(at), d, &Request{PromptTokens: 1024, BlockSize: 16}, arms, out).ID
	}
	learn := func(at float64, ttft time.Duration) {
		t.Helper()
		id := decide(at)
		if s.FirstToken(after(at), id, ttft) != nil || s.Done(after(at), id, 0, Completed) != nil {
			t.Fatal("feedback")
		}
	}
	s.rate.reported = true // so that it stays
	for range 50 {
		learn(0, 2*time.Second)
	}
	decide(0)
	if s.Tick(after(0.5)).Late != 0 {
		t.Error("learned from before its time")
	}
	for range 500 {
		learn(0.5, 100*time.Millisecond)
	}
	if s.Tick(after(0.6)).Late != 1 {
		t.Error("not learned from when it takes longer than is predicted by now")
	}
	if s.Tick(after(1.1)).Late != 0 || s.Tick(after(1.2)).Late != 1 {
		t.Error("not learned from once per doubling")
	}
}

// TestSafeGivenUp has requests that took too long count in the comparison, and others that
// end without an answer not.
func TestSafeGivenUp(t *testing.T) {
	for _, c := range []struct {
		wait float64
		want int
	}{{0.01, 0}, {10, 1}} {
		s := newSafe(t, nil)
		d, _ := seeded(1)
		dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), make([]SafeChoice, 3))
		s.Tick(after(c.wait))
		if err := s.Done(after(c.wait), dec.ID, 0, Cancelled); err != nil {
			t.Fatal(err)
		}
		if got := s.Compare(after(c.wait)).Decisions; got != c.want {
			t.Errorf("given up after %v s: counted %d times, want %d", c.wait, got, c.want)
		}
	}
}

func TestSafePrefillRate(t *testing.T) {
	learn := func(s *Safe, tokens int, ttft time.Duration) {
		arm := vectorArms()[1]
		arm.PrefillTokens = tokens
		d, _ := seeded(1)
		dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16}, []Arm{arm}, make([]SafeChoice, 1))
		if err := s.FirstToken(start, dec.ID, ttft); err != nil {
			t.Fatal(err)
		}
	}
	s := newSafe(t, nil)
	for range 400 {
		learn(s, 2000, time.Second)
	}
	if got := s.Stats().PrefillRate; math.Abs(got-2000) > 20 {
		t.Errorf("inferred %v, want about 2000", got)
	}
	learn(s, 10, time.Nanosecond) // says nothing
	if got := s.Stats().PrefillRate; math.Abs(got-2000) > 20 {
		t.Errorf("after a short prompt %v", got)
	}
	s.PrefillRate(math.NaN())
	s.PrefillRate(-1)
	s.PrefillRate(50_000)
	learn(s, 2000, time.Second)
	if got := s.Stats().PrefillRate; math.Abs(got-50_000) > 1 {
		t.Errorf("reported 50000, got %v", got)
	}
}

func TestSafeConfigErrors(t *testing.T) {
	for want, change := range map[string]func(*SafeConfig){
		"safe policy: samples: 0: expected a number of at least 1 and at most 4096":                                 func(c *SafeConfig) { c.Samples = 0 },
		"safe policy: budget: 200: expected a number of at least 0 and at most 100":                                 func(c *SafeConfig) { c.Budget = 200 },
		"safe policy: epsilon: NaN: expected a number of at least 0 and at most 1":                                  func(c *SafeConfig) { c.Epsilon = math.NaN() },
		"safe policy: fixed delay in seconds: 0: expected a number above 0 and at most 3600":                        func(c *SafeConfig) { c.FixedDelay = 0 },
		"safe policy: prefill rate: 0: expected a number of at least 10 and at most 1e+08":                          func(c *SafeConfig) { c.PrefillRate = 0 },
		"safe policy: stop after: 1: expected a number of at least 2 and at most 2.147483647e+09":                   func(c *SafeConfig) { c.StopAfter = 1 },
		"safe policy: max KV usage: 0: expected a number above 0 and at most 1":                                     func(c *SafeConfig) { c.MaxKVUsage = 0 },
		"safe policy: baseline share: 2: expected a number of at least 0 and at most 1":                             func(c *SafeConfig) { c.BaselineShare = 2 },
		"safe policy: stop margin: -1: expected a number of at least 0 and at most 1e+06":                           func(c *SafeConfig) { c.StopMargin = -1 },
		"safe policy: busy after in seconds: -1: expected a number of at least 0 and at most 9.223372036854776e+18": func(c *SafeConfig) { c.BusyAfter = -time.Second },
		"safe policy: guard: -1: expected a number of at least 0 and at most 1e+06":                                 func(c *SafeConfig) { c.Guard = -1 },
		"safe policy: ITL reference in seconds: -1: expected a number above 0 and at most 3600":                     func(c *SafeConfig) { c.ITLReference = -time.Second },
	} {
		c := DefaultSafe()
		change(&c)
		if _, err := NewSafe(c); message(err) != want {
			t.Errorf("got %q, want %q", message(err), want)
		}
	}
}
