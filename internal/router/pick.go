package router

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/stator-ai/stator/internal/sched"
)

// Mode is how a rank is chosen among the eligible ones.
type Mode string

// The modes.
const (
	// KV weighs what each rank has in its cache against what it has to do.
	KV          Mode = "kv"
	RoundRobin  Mode = "round-robin"
	Random      Mode = "random"
	PowerOfTwo  Mode = "power-of-two"
	LeastLoaded Mode = "least-loaded"
	// Direct takes every request to the worker it names.
	Direct Mode = "direct"
)

// Modes lists all modes, the default first.
var Modes = []Mode{KV, RoundRobin, Random, PowerOfTwo, LeastLoaded, Direct}

// ParseMode reads a mode; underscores and the long name power_of_two_choices are
// understood, and an empty string is the default.
func ParseMode(s string) (Mode, error) {
	name := Mode(strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(s), "_", "-"), "-choices"))
	if name == "" {
		return Modes[0], nil
	}
	for _, m := range Modes {
		if m == name {
			return m, nil
		}
	}
	return "", fmt.Errorf("router mode %q: expected one of kv, round-robin, random, power-of-two, least-loaded, direct", s)
}

// pick returns the index of the chosen candidate. cands is not empty and sorted
// by (worker, rank); turn is the pool's count of round-robin choices.
func pick(mode Mode, turn uint64, rng *rand.Rand, cands []sched.Candidate) int {
	n := len(cands)
	if n == 1 {
		return 0
	}
	switch mode {
	case Random:
		return rng.IntN(n)
	case PowerOfTwo:
		a := rng.IntN(n)
		b := rng.IntN(n - 1)
		if b >= a {
			b++
		}
		if cands[b].Requests < cands[a].Requests {
			return b
		}
		return a
	case LeastLoaded, Direct: // direct: among the ranks of the pinned worker
		best, ties := 0, 1
		for i := 1; i < n; i++ {
			switch d := cands[i].Requests - cands[best].Requests; {
			case d < 0:
				best, ties = i, 1
			case d == 0:
				ties++
				if rng.IntN(ties) == 0 {
					best = i
				}
			}
		}
		return best
	default:
		return int(turn % uint64(n))
	}
}
