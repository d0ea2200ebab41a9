package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/stator-ai/stator/internal/router"
)

// The targets of decisions.
const (
	decideLimit = 1.5     // of the time of hashing the prompt, hashing included
	decideRate  = 100_000 // decisions a second on a core
	stormLimit  = 1.5     // of the time without events

	wantOverPlain = 10 // times as fast as a router of maps, hashing included

	// keptDecisions is how many decisions a server keeps by default for those who look.
	keptDecisions = 256
)

// decideScales are the fleets that are measured.
type decideScales struct{ long, short, wide decideScale }

// decideScalesFull is prompts of 131,072 and of 1,024 tokens.
var decideScalesFull = decideScales{
	long:  decideScale{ranks: 64, blocks: 8192, families: 4, prompts: 32, live: 128},
	short: decideScale{ranks: 64, blocks: 64, families: 32, prompts: 1024, live: 512},
	wide:  decideScale{ranks: 1000, blocks: 64, families: 32, prompts: 1024, live: 4000},
}

// measureDecide measures what it takes to find the rank for a prompt, to book it, and
// to give the booking back, in a fleet that is busy and whose caches are known from
// events. Hashing the prompt is what a router cannot do without.
func measureDecide(ctx context.Context, o options, r *report) error {
	return measureDecisions(ctx, o, r, decideScalesFull)
}

// measureDecisions measures fleets of these scales.
func measureDecisions(ctx context.Context, o options, r *report, s decideScales) error {
	for _, m := range []struct {
		what  string
		run   func(context.Context, options, *report, decideScale) error
		scale decideScale
	}{
		{"long prompts", measureLongDecision, s.long},
		{"short prompts", measureShortDecision, s.short},
		{"events", measureStorm, s.short},
		{"lock", measureLock, s.short},
		{"lock", measureLock, s.long},
		{"many ranks", measureWideDecision, s.wide},
	} {
		o.progress("decide: %s, %d tokens over %d ranks", m.what, m.scale.tokens(), m.scale.ranks)
		if err := m.run(ctx, o, r, m.scale); err != nil {
			return fmt.Errorf("%s, %d tokens over %d ranks: %w", m.what, m.scale.tokens(), m.scale.ranks, err)
		}
	}
	return nil
}

// measureLongDecision compares hashing and placing with hashing alone, and with a
// router that is plain.
func measureLongDecision(ctx context.Context, o options, r *report, s decideScale) error {
	f, err := newDecideFleet(ctx, s, router.Config{Decisions: keptDecisions})
	if err != nil {
		return err
	}
	defer f.close()
	a := f.asker(0)
	took, err := inTurns(o.rounds, s.prompts, a.hashOnly, func() error { return a.decide(ctx) })
	if err != nil {
		return err
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = took[1][i] / took[0][i]
	}
	what := fmt.Sprintf("%d tokens × %d ranks", s.tokens(), s.ranks)
	r.ratio("hashing and deciding, "+what+", to hashing", seconds(took[0]), seconds(took[1]), ratios, decideLimit)
	if err := comparePlain(ctx, o, r, a); err != nil {
		return err
	}
	return allocates(ctx, r, "allocations per decision, "+what, a)
}

// comparePlain compares with a plain router, which has to agree about the choices.
func comparePlain(ctx context.Context, o options, r *report, a *asker) error {
	f := a.fleet
	p := newPlainRouter(f.ranks)
	if err := p.rebuild(f); err != nil {
		return err
	}
	for range f.prompts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.decide(ctx); err != nil {
			return err
		}
		if err := p.agrees(a.blocks, f.rank(&a.placement)); err != nil {
			return err
		}
	}
	plain := f.asker(0)
	took, err := inTurns(min(o.rounds, 3), max(1, f.prompts/16), func() error {
		plain.hash()
		b := p.place(plain.blocks)
		p.done(&b)
		return nil
	}, func() error { return a.decide(ctx) })
	if err != nil {
		return err
	}
	r.speedup(fmt.Sprintf("hashing and deciding, %d tokens × %d ranks, over maps", f.tokens(), f.ranks),
		seconds(took[0]), seconds(took[1]), took[0], took[1], wantOverPlain)
	return nil
}

// measureShortDecision measures how many decisions a core makes, while the latest are
// kept for those who look and while they are not.
func measureShortDecision(ctx context.Context, o options, r *report, s decideScale) error {
	kept, err := newDecideFleet(ctx, s, router.Config{Decisions: keptDecisions})
	if err != nil {
		return err
	}
	defer kept.close()
	none, err := newDecideFleet(ctx, s, router.Config{})
	if err != nil {
		return err
	}
	defer none.close()
	a, b := kept.asker(0), none.asker(0)
	took, err := inTurns(o.rounds, s.prompts, a.hashOnly,
		func() error { return a.decide(ctx) }, func() error { return b.decide(ctx) })
	if err != nil {
		return err
	}
	var together []float64 // seconds
	for range o.rounds {
		d, err := kept.everywhere(ctx, 4*s.prompts)
		if err != nil {
			return err
		}
		together = append(together, d.Seconds())
	}
	what := fmt.Sprintf("%d tokens × %d ranks", s.tokens(), s.ranks)
	rate := 1 / median(took[1])
	r.rows = append(r.rows, row{
		what:   "decisions a second and core, " + what,
		stator: fmt.Sprintf("%.0f k/s", rate/1e3),
		target: fmt.Sprintf("≥ %d k/s", decideRate/1000),
		ok:     rate >= decideRate,
	})
	cores := runtime.GOMAXPROCS(0)
	r.note("decide: %s: hashing takes %s, with deciding %s, and %s if the latest decisions are not kept; %d cores make %.0f k decisions a second",
		what, seconds(took[0]), seconds(took[1]), seconds(took[2]), cores, float64(cores*4*s.prompts)/median(together)/1e3)
	if err := allocates(ctx, r, "allocations per decision, "+what, a); err != nil {
		return err
	}
	return allocates(ctx, r, "allocations per decision, "+what+", none kept", b)
}

// measureWideDecision prints what a decision takes between many ranks.
func measureWideDecision(ctx context.Context, o options, r *report, s decideScale) error {
	f, err := newDecideFleet(ctx, s, router.Config{Decisions: keptDecisions})
	if err != nil {
		return err
	}
	defer f.close()
	a := f.asker(0)
	took, err := inTurns(o.rounds, max(1, s.prompts/16), func() error { return a.decide(ctx) })
	if err != nil {
		return err
	}
	r.note("decide: hashing and deciding, %d tokens × %d ranks: %s", s.tokens(), s.ranks, seconds(took[0]))
	return nil
}

// inTurns returns, by side and round, the processor time of a call in seconds: the
// median over turns, which the sides take after each other and in each of which they
// make so many calls. Turns are short, since what else the machine does comes and
// goes.
func inTurns(rounds, calls int, sides ...func() error) ([][]float64, error) {
	const turns = 12
	out := make([][]float64, len(sides))
	for range rounds {
		runtime.GC()
		took := make([][]float64, len(sides))
		for range turns {
			for i, call := range sides {
				before, err := cpuTime(os.Getpid())
				for n := 0; n < calls && err == nil; n++ {
					err = call()
				}
				if err != nil {
					return nil, err
				}
				after, err := cpuTime(os.Getpid())
				if err != nil {
					return nil, err
				}
				took[i] = append(took[i], (after-before).Seconds()/float64(calls))
			}
		}
		for i := range took {
			out[i] = append(out[i], median(took[i]))
		}
	}
	return out, nil
}

// allocates adds the row of what a decision allocates that nobody wants explained.
func allocates(ctx context.Context, r *report, what string, a *asker) error {
	var err error
	decide := func() {
		if e := a.decide(ctx); e != nil {
			err = e
		}
	}
	for range keptDecisions { // as many as make the memory that is used again
		decide()
	}
	// There is such memory for each core, and this may not move to one that has none.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	n := allocations(1000, decide)
	r.rows = append(r.rows, row{
		what:   what,
		stator: fmt.Sprintf("%.2g", n),
		target: "0",
		ok:     n < 0.01, // the runtime may make one of its own
	})
	return err
}

// seconds writes the median of times.
func seconds(s []float64) string { return micros(time.Duration(median(s) * 1e9)) }
