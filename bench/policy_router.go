package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/nvext"
)

// The targets of placements with policies that learn.
const (
	// placeLimit is of the time of a placement by cost: a policy may take three times what
	// all else takes.
	placeLimit = 4.0
	// lockLimit is of the time for which a placement by cost holds the lock, most of which
	// is the choice itself.
	lockLimit = 8.0
)

// measurePlacements compares placements by policies with those by cost, on fleets that are
// made alike: the request's way from the prompt's blocks to its end.
func (s *policyScale) measurePlacements(ctx context.Context, o options, r *report) error {
	for _, ranks := range s.ranks {
		o.progress("policy: placements over %d ranks", ranks)
		if err := s.measurePlacement(ctx, o, r, ranks); err != nil {
			return fmt.Errorf("placements over %d ranks: %w", ranks, err)
		}
	}
	return nil
}

func (s *policyScale) measurePlacement(ctx context.Context, o options, r *report, ranks int) error {
	var fleets []*policyFleet
	defer func() {
		for _, f := range fleets {
			f.close()
		}
	}()
	var calls []func() error
	for _, name := range slices.Insert(slices.Clone(policyNames), 0, "cost") {
		f, err := s.newPolicyFleet(ctx, name, ranks)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fleets = append(fleets, f)
		calls = append(calls, func() error { return f.decide(ctx) })
	}
	took, err := inTurns(o.rounds, s.fleet.prompts, calls...)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d tokens × %d ranks", fleets[0].tokens(), ranks)
	for i, f := range fleets[1:] {
		ratios := make([]float64, o.rounds)
		for k := range ratios {
			ratios[k] = took[i+1][k] / took[0][k]
		}
		r.ratio(fmt.Sprintf("placement by policy %s, %s, to one by cost", f.name, what), seconds(took[0]), seconds(took[i+1]), ratios, placeLimit)
	}
	var allocations worst
	for _, f := range fleets[1:] {
		n, err := f.allocates(ctx)
		if err != nil {
			return err
		}
		allocations.add(n, f.name)
	}
	r.rows = append(r.rows, row{
		what:   "allocations per placement by a policy, " + what,
		stator: fmt.Sprintf("%.2g", allocations.value),
		target: "0",
		ok:     allocations.value < 0.01, // the runtime may make one of its own
	})
	if err := r.locks(ctx, o.rounds, what, fleets); err != nil {
		return err
	}
	sampled, err := fleets[1].sampled(ctx)
	if err != nil {
		return err
	}
	r.note("policy: of placements of %s policy safe decides %.0f %% itself", what, 100*sampled)
	return nil
}

// locks adds the row of how long placements hold the lock, which the policy decides that
// holds it longest, beside the first fleet, which places by cost.
func (r *report) locks(ctx context.Context, rounds int, what string, fleets []*policyFleet) error {
	half, most := make([][]float64, len(fleets)), make([][]float64, len(fleets))
	for range rounds {
		for i, f := range fleets {
			p50, p99, err := f.locked(ctx)
			if err != nil {
				return err
			}
			half[i], most[i] = append(half[i], p50.Seconds()), append(most[i], p99.Seconds())
		}
	}
	longest := 1
	var all []string
	for i, f := range fleets {
		if i > 0 && median(half[i]) > median(half[longest]) {
			longest = i
		}
		all = append(all, fmt.Sprintf("%s %s (p99 %s)", f.name, seconds(half[i]), seconds(most[i])))
	}
	ratios := make([]float64, rounds)
	for i := range ratios {
		ratios[i] = half[longest][i] / half[0][i]
	}
	r.ratio(fmt.Sprintf("lock held by a placement by a policy, %s, p50, to one by cost", what),
		seconds(half[0]), fmt.Sprintf("%s (%s)", seconds(half[longest]), fleets[longest].name), ratios, lockLimit)
	r.note("policy: a placement of %s holds the lock for: %s", what, strings.Join(all, ", "))
	return nil
}

// policyFleet is a fleet that places by a policy, or by cost. Its time moves with the
// requests, of which each ends before the next one comes, beside those that run for ever.
type policyFleet struct {
	*decideFleet
	name      string
	clock     atomic.Int64 // nanoseconds of Unix
	blocks    [][]kv.Block // of the prompts
	noise     []float64    // in what they take
	next      int
	request   *router.Request
	placement router.Placement
	held      []time.Duration // the lock, while it has room
}

// newPolicyFleet returns one whose policy has learned.
func (s *policyScale) newPolicyFleet(ctx context.Context, name string, ranks int) (*policyFleet, error) {
	f := &policyFleet{name: name}
	f.clock.Store(1_800_000_000 * int64(time.Second))
	cfg := router.Config{
		Decisions: keptDecisions,
		Now:       func() time.Time { return time.Unix(0, f.clock.Load()) },
		LockHeld: func(d time.Duration) {
			if n := len(f.held); n < cap(f.held) {
				f.held = append(f.held, d)
			}
		},
		KV: router.KVConfig{TTL: -1}, // all ranks tell; nothing is to be forgotten
	}
	switch name {
	case "safe", "shadow":
		cfg.Bandit = &router.BanditConfig{Safe: thompson.DefaultSafe()}
		cfg.Bandit.Safe.Shadow = name == "shadow"
	case "reference":
		ref, err := thompson.ReferenceSet(thompson.SetConfigYAML)
		if err != nil {
			return nil, err
		}
		cfg.Bandit = &router.BanditConfig{Reference: &ref}
	}
	scale := s.fleet
	scale.ranks, scale.live = ranks, ranks*s.fleet.live
	var err error
	if f.decideFleet, err = newDecideFleet(ctx, scale, cfg); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(13, 14))
	for i := range f.asked {
		f.blocks = append(f.blocks, kv.AppendBlocks(nil, f.seed, f.asked[i].tokens, decideBlock))
		f.noise = append(f.noise, math.Exp(0.2*rng.NormFloat64()))
	}
	f.request = f.decideFleet.request(nil, &f.placement)
	for range s.learned {
		if err := f.decide(ctx); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

// decide places the next prompt and has it run to its end.
func (f *policyFleet) decide(ctx context.Context) error {
	i := f.next
	if f.next++; f.next == len(f.asked) {
		f.next = 0
	}
	f.request.Blocks = f.blocks[i]
	pl, err := f.router.Place(ctx, f.request)
	if err != nil {
		return err
	}
	slow := f.noise[i] * (1 + 0.5*float64(f.rank(pl)%4))
	todo := f.tokens() - decideBlock*pl.Last().OverlapBlocks
	f.advance(slow * (float64(todo)/policyRate + 0.02))
	pl.FirstToken()
	const tokens = 17
	f.advance(slow * tokens * 0.015)
	pl.Output(tokens)
	pl.Done(router.Completed)
	return nil
}

func (f *policyFleet) advance(seconds float64) { f.clock.Add(int64(seconds * 1e9)) }

// allocates returns what a placement allocates that nobody wants explained.
func (f *policyFleet) allocates(ctx context.Context) (float64, error) {
	// There is memory for each core, and this may not move to one that has none.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var failed error
	decide := func() {
		if err := f.decide(ctx); err != nil {
			failed = err
		}
	}
	for range keptDecisions { // as many as make the memory that is used again
		decide()
	}
	return allocations(1000, decide), failed
}

// locked returns for how long placements hold the lock, and 99 % of them at most.
func (f *policyFleet) locked(ctx context.Context) (p50, p99 time.Duration, err error) {
	f.held = slices.Grow(f.held[:0], 2*f.prompts)
	for len(f.held) < cap(f.held) {
		if err := f.decide(ctx); err != nil {
			return 0, 0, err
		}
	}
	slices.Sort(f.held)
	return percentile(f.held, 0.5), percentile(f.held, 0.99), nil
}

// sampled returns the share of decisions that are the policy's own.
func (f *policyFleet) sampled(ctx context.Context) (float64, error) {
	f.request.Explain = true
	defer func() { f.request.Explain = false }()
	n := 0
	for range f.prompts {
		if err := f.decide(ctx); err != nil {
			return 0, err
		}
		if f.placement.Routing.Reason == nvext.ReasonThompson {
			n++
		}
	}
	return float64(n) / float64(f.prompts), nil
}
