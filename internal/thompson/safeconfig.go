package thompson

import (
	"fmt"
	"math"
	"time"
)

// SafeConfig configures [Safe]. It comes from [DefaultSafe]; the zero value is not useful.
type SafeConfig struct {
	// Shadow has the baseline decide everything, while the policy learns and says what it
	// would do. No budget is spent, and nothing is stopped.
	Shadow bool
	// Guard is by how much more than the baseline's an arm's cost may be, as a fraction. It
	// is never more than the blocks that are computed within MaxExtra: where much runs, the
	// fraction alone would be wider than whole prompts.
	Guard    float64
	MaxExtra time.Duration
	// MaxKVUsage keeps the policy away from arms whose caches are fuller than that, where
	// the engine tells.
	MaxKVUsage float64
	// BusyAfter is how long the prompts that wait where the baseline goes may take to
	// compute. Where they take longer, the baseline decides: a fleet that is behind needs
	// less work in all, and a request that goes where it waits less but where its prefix is
	// not cached makes more.
	BusyAfter time.Duration

	// Budget is what may be lost at the beginning, in decisions that cost twice as much as
	// the baseline's. Each decision adds Allowance, up to BudgetCap, and takes what its
	// choice costs more than the baseline's.
	Budget, BudgetCap, Allowance float64

	// Samples is how often the belief is sampled for a decision, and Epsilon how much of
	// the choice is left to chance alone. BaselineShare is the least probability of the
	// baseline's choice where there is one. It costs nothing compared with the baseline, and
	// bounds how much one decision counts when both are compared; with the default, at a
	// weight of 50, up to which all of it is taken.
	Samples                int
	Epsilon, BaselineShare float64

	// Lambda is the precision of the weights before anything is learned, V scales how far
	// their samples go, and OffsetSpread how far those of an arm's own offset do.
	Lambda, V, OffsetSpread float64
	// HalfLife is how long it takes until what was learned counts half.
	HalfLife time.Duration

	// FixedDelay is the part of the time to the first token that does not depend on the
	// prompt. PrefillRate is how many tokens a second are computed, until it is known
	// better.
	FixedDelay  time.Duration
	PrefillRate float64
	// ITLReference is the time between two tokens that costs nothing, and ITLWeight how
	// much the logarithm of the ratio to it counts. 0 leaves only the first token.
	ITLReference time.Duration
	ITLWeight    float64
	// OneHead learns the sum of both costs when a request ends. Otherwise the first token
	// is learned from when it comes, and the others by a belief of their own.
	OneHead bool

	// StopInterval is how often the policy is compared with its baseline, over the latest
	// StopWindow, which is a minute or more. If with 95 % confidence the logarithm of the
	// cost is higher by more than StopMargin, it stops for StopWindow. StopAfter is how many
	// decisions that takes at least. With the defaults a policy that does as well as its
	// baseline is hardly ever stopped, nor is one for the price of trying other arms where
	// the baseline is right; one that is 10 % worse is, within minutes. Logarithms are
	// compared: a policy that is a little faster nearly always and very much slower now and
	// then does better than its baseline in them, whatever its mean is.
	StopInterval, StopWindow time.Duration
	StopAfter                int
	StopMargin               float64

	// MaxPending bounds the decisions that wait for feedback; 0 means
	// [DefaultMaxPending].
	MaxPending int
}

// DefaultSafe returns the defaults.
func DefaultSafe() SafeConfig {
	return SafeConfig{
		Guard: 0.25, MaxExtra: time.Second, MaxKVUsage: 0.95, BusyAfter: 2 * time.Second,
		Budget: 20, BudgetCap: 100, Allowance: 0.05,
		Samples: 16, Epsilon: 0.01, BaselineShare: 0.02,
		Lambda: 1, V: 0.1, OffsetSpread: 0.2, HalfLife: 120 * time.Second,
		FixedDelay: 20 * time.Millisecond, PrefillRate: 9000,
		ITLReference: 15 * time.Millisecond, ITLWeight: 0.5,
		StopInterval: time.Minute, StopWindow: 10 * time.Minute, StopAfter: 200, StopMargin: math.Log(1.02),
	}
}

// check fills in what is left out and says what cannot be.
func (c *SafeConfig) check() error {
	number := func(name string, v, low, high float64, open bool) error {
		if v >= low && v <= high && (!open || v > low) {
			return nil
		}
		return fmt.Errorf("%s: %v: expected a number %s %v and at most %v", name, v, comparison(open), low, high)
	}
	for _, err := range []error{
		number("guard", c.Guard, 0, 1e6, false),
		number("max extra in seconds", c.MaxExtra.Seconds(), 0, math.MaxInt64, false),
		number("max KV usage", c.MaxKVUsage, 0, 1, true),
		number("busy after in seconds", c.BusyAfter.Seconds(), 0, math.MaxInt64, false),
		number("budget cap", c.BudgetCap, 0, 1e9, false),
		number("budget", c.Budget, 0, c.BudgetCap, false),
		number("allowance", c.Allowance, 0, 1e6, false),
		number("samples", float64(c.Samples), 1, 4096, false),
		number("epsilon", c.Epsilon, 0, 1, false),
		number("baseline share", c.BaselineShare, 0, 1, false),
		number("lambda", c.Lambda, 0, 1e9, true),
		number("v", c.V, 0, 1e6, false),
		number("offset spread", c.OffsetSpread, 0, 1e6, false),
		number("half-life in seconds", c.HalfLife.Seconds(), 0, math.MaxInt64, true),
		number("fixed delay in seconds", c.FixedDelay.Seconds(), 0, 3600, true),
		number("prefill rate", c.PrefillRate, minPrefillRate, maxPrefillRate, false),
		number("ITL reference in seconds", c.ITLReference.Seconds(), 0, 3600, true),
		number("ITL weight", c.ITLWeight, 0, 1e6, false),
		number("stop interval in seconds", c.StopInterval.Seconds(), 0, math.MaxInt64, true),
		number("stop window in seconds", c.StopWindow.Seconds(), 60, math.MaxInt64, false),
		number("stop after", float64(c.StopAfter), 2, math.MaxInt32, false),
		number("stop margin", c.StopMargin, 0, 1e6, false),
	} {
		if err != nil {
			return err
		}
	}
	if c.MaxPending <= 0 {
		c.MaxPending = DefaultMaxPending
	}
	return nil
}
