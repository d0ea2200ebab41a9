package main

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/thompson"
)

// policyRate is how many prompt tokens a second the ranks compute that policies learn about.
const policyRate = 9000

// moment is a request and the ranks that could have it, as they are when it comes: to the
// cost selector and to policies that learn.
type moment struct {
	decision  sched.Decision
	request   thompson.Request
	arms      []thompson.Arm
	ttft, itl []time.Duration // what it takes, by rank
}

// policyCase says how alike ranks are.
type policyCase struct {
	name string
	// load makes what a rank has to do, and holds how many blocks of a prompt of so many it
	// has in its cache.
	load  func(rng *rand.Rand) sched.Candidate
	holds func(rng *rand.Rand, prompt int) int
}

var (
	// evenLoad is what takes longest: ranks differ in what they have to do but cost nearly the
	// same, so that a policy chooses between all of them. None costs so much more that the
	// budget of a safe policy is ever spent.
	evenLoad = policyCase{
		name: "all admissible",
		load: func(rng *rand.Rand) sched.Candidate {
			wait := rng.IntN(400)
			return sched.Candidate{Requests: 4 + rng.IntN(8), PrefillTokens: wait * decideBlock, Blocks: 1000 - wait + rng.IntN(20)}
		},
		holds: func(rng *rand.Rand, prompt int) int { return prompt/2 + rng.IntN(20) },
	}
	// mixedLoad is ranks of a busy fleet: some have much of the prompt and many nothing, and
	// some have far more to do than others.
	mixedLoad = policyCase{
		name: "mixed load",
		load: func(rng *rand.Rand) (c sched.Candidate) {
			for range 2 + rng.IntN(12) {
				c.Requests++
				c.Blocks += 16 + rng.IntN(400)
			}
			if rng.IntN(4) == 0 {
				c.PrefillTokens = rng.IntN(8192)
			}
			return c
		},
		holds: func(rng *rand.Rand, prompt int) int {
			if rng.IntN(3) > 0 {
				return 0
			}
			return rng.IntN(prompt + 1)
		},
	}
)

// depthOf is so many blocks on the device.
func depthOf(n int) (d [kv.NumTiers]uint32) {
	for t := range d {
		d[t] = uint32(n)
	}
	return d
}

// moments returns n of them over so many ranks, the same each time. From one to the next
// comes another prompt, and an eighth of the ranks have something else to do.
func (pc *policyCase) moments(n, ranks int) []moment {
	rng := rand.New(rand.NewPCG(9, 10))
	loads := make([]sched.Candidate, ranks)
	for k := range loads {
		loads[k] = pc.load(rng)
	}
	out := make([]moment, n)
	for i := range out {
		for range (ranks + 7) / 8 {
			loads[rng.IntN(ranks)] = pc.load(rng)
		}
		out[i] = pc.moment(rng, i, loads)
	}
	return out
}

// moment returns one in which ranks have this to do.
func (pc *policyCase) moment(rng *rand.Rand, number int, loads []sched.Candidate) moment {
	blocks, ranks := 64+rng.IntN(448), len(loads)
	m := moment{
		decision: sched.Decision{
			PromptTokens: blocks * decideBlock, BlockSize: decideBlock,
			Candidates: slices.Clone(loads), Rand: rng,
		},
		arms: make([]thompson.Arm, ranks),
		ttft: make([]time.Duration, ranks), itl: make([]time.Duration, ranks),
	}
	cost := sched.DefaultCost()
	for k := range m.decision.Candidates {
		c := &m.decision.Candidates[k]
		c.Worker, c.NewBlocks, c.Depth = kv.WorkerID(k+1), blocks, depthOf(pc.holds(rng, blocks))
		c.Trust, c.Taint, c.Warmth = 1, 1, 1
	}
	base := cost.Select(&m.decision)
	for k := range m.arms {
		c := &m.decision.Candidates[k]
		arm := &m.arms[k]
		*arm = thompson.Arm{
			ID: kv.Source{Worker: c.Worker}, Cost: c.Score, Overlap: float64(c.Depth[kv.Device]) / float64(blocks),
			PrefillTokens: c.PrefillTokens + cost.PrefillTokens(&m.decision, c),
			KVTokens:      c.Blocks * decideBlock, InFlight: c.Requests, Healthy: true,
			Scraped: true, KVUsage: 0.9 * rng.Float64(), Queue: float64(rng.IntN(3)),
		}
		slow := 1 + 0.5*float64(k%4) // of which the cost knows nothing
		prefill := slow * (float64(arm.PrefillTokens)/policyRate + 0.02) * math.Exp(0.2*rng.NormFloat64())
		m.ttft[k] = time.Duration(prefill * float64(time.Second))
		m.itl[k] = time.Duration(slow * (10 + float64(arm.InFlight)) * float64(time.Millisecond))
	}
	m.request = thompson.Request{
		PromptTokens: m.decision.PromptTokens, BlockSize: decideBlock, Baseline: base,
		Prefix: thompson.NewPrefixID("", strconv.Itoa(number)), Budget: rng.IntN(6), TTL: time.Minute,
		OSL: thompson.OSL(float64(rng.IntN(2048))), IAT: thompson.IAT(float64(rng.IntN(1000))),
	}
	return m
}

// flight is a decision that nothing has been heard of yet.
type flight struct {
	id     uint64
	moment *moment
	chosen int
}

// learner is a policy that decides about moments one after the other and hears what becomes
// of its decisions later, in order. Its clock moves with the decisions.
type learner struct {
	name     string
	moments  []moment
	next     int
	now      time.Time
	flights  []flight
	decide   func(now time.Time, m *moment) (id uint64, chosen int)
	feedback func(now time.Time, f flight) error

	// What the latest decision was: whether the policy had a choice, and between how many.
	chose bool
	among func() int
}

// policyNames are the policies in the order in which they are measured.
var policyNames = []string{"safe", "shadow", "reference"}

// newLearner returns a policy of that name, with its defaults.
func newLearner(name string, moments []moment) (*learner, error) {
	l := &learner{name: name, moments: moments, now: time.Unix(1_800_000_000, 0)}
	draws := thompson.NewDraws(rand.New(rand.NewPCG(11, 12)))
	ranks := len(moments[0].arms)
	if name == "reference" {
		cfg, err := thompson.ReferenceSet(thompson.SetConfigYAML)
		if err != nil {
			return nil, err
		}
		p, err := thompson.NewReference(cfg)
		if err != nil {
			return nil, err
		}
		out := make([]thompson.Choice, ranks)
		l.chose, l.among = true, func() int { return ranks }
		l.decide = func(now time.Time, m *moment) (uint64, int) {
			d := p.Decide(now, draws, &m.request, m.arms, out)
			return d.ID, d.Chosen
		}
		l.feedback = func(now time.Time, f flight) error {
			const tokens = 100
			_, err := p.Feedback(now, f.id, thompson.Feedback{
				Latency: f.moment.ttft[f.chosen] + tokens*f.moment.itl[f.chosen], TokensOut: tokens,
			})
			return err
		}
		return l, nil
	}
	cfg := thompson.DefaultSafe()
	cfg.Shadow = name == "shadow"
	p, err := thompson.NewSafe(cfg)
	if err != nil {
		return nil, err
	}
	out := make([]thompson.SafeChoice, ranks)
	l.among = func() (n int) {
		for i := range out {
			if out[i].Admissible {
				n++
			}
		}
		return n
	}
	l.decide = func(now time.Time, m *moment) (uint64, int) {
		d := p.Decide(now, draws, &m.request, m.arms, out)
		l.chose = d.Why == thompson.WhySampled || d.Why == thompson.WhyShadow
		return d.ID, d.Chosen
	}
	l.feedback = func(now time.Time, f flight) error {
		return errors.Join(
			p.FirstToken(now, f.id, f.moment.ttft[f.chosen]),
			p.Done(now, f.id, f.moment.itl[f.chosen], thompson.Completed))
	}
	return l, nil
}

// step makes a decision.
func (l *learner) step() {
	m := &l.moments[l.next]
	if l.next++; l.next == len(l.moments) {
		l.next = 0
	}
	l.now = l.now.Add(5 * time.Millisecond)
	id, chosen := l.decide(l.now, m)
	l.flights = append(l.flights, flight{id, m, chosen})
}

// hear gives feedback for the n oldest decisions that have had none.
func (l *learner) hear(n int) error {
	for _, f := range l.flights[:n] {
		if err := l.feedback(l.now, f); err != nil {
			return err
		}
	}
	l.flights = l.flights[:copy(l.flights, l.flights[n:])]
	return nil
}

// learn makes n decisions and hears of all but the latest, of which there are so many. It
// returns in which share of them there was a choice, and between how many ranks on average.
func (l *learner) learn(n, flights int) (chose, among float64, err error) {
	for range flights {
		l.step()
	}
	chosen, ranks := 0, 0
	for range n {
		l.step()
		if l.chose {
			chosen++
			ranks += l.among()
		}
		if err := l.hear(1); err != nil {
			return 0, 0, err
		}
	}
	return float64(chosen) / float64(n), float64(ranks) / float64(max(chosen, 1)), nil
}
