package router

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// choosePool returns the index of the pool that a request goes to: the one with the
// lowest cost or the least loaded rank where the mode goes by these, else drawn by the
// number of ranks that could take the request. It returns -1 when no rank could.
func choosePool(mode Mode, seed, decision uint64, pools []nvext.Pool) int {
	total, best := 0, -1
	for i := range pools {
		if pools[i].Eligible == 0 {
			continue
		}
		total += pools[i].Eligible
		if best < 0 || mode == KV && pools[i].CostTokens < pools[best].CostTokens ||
			(mode != KV || pools[i].CostTokens == pools[best].CostTokens) && pools[i].Inflight < pools[best].Inflight {
			best = i
		}
	}
	if total == 0 || mode == KV || mode == LeastLoaded || mode == PowerOfTwo {
		return best
	}
	// The complement keeps this draw apart from those inside the pool. A rand.Rand
	// over the source would be allocated.
	var chance rand.PCG
	chance.Seed(seed, ^decision)
	drawn, _ := bits.Mul64(chance.Uint64(), uint64(total))
	k := int(drawn)
	for best = 0; k >= pools[best].Eligible; best++ {
		k -= pools[best].Eligible
	}
	return best
}

// ErrIncomplete means that a record does not hold all a decision was made of.
var ErrIncomplete = errors.New("the record does not hold all candidates")

// Rerun makes a recorded decision again, from what the record says about the
// candidates and not from what was chosen, and returns the candidate that it
// comes to. The record has to list all candidates: [Request.ExplainAll]. The
// order of the list does not matter.
//
// It reads no clock and draws nothing but what the record's seed gives, so that a
// record always comes to the same candidate. Errors are [ErrIncomplete] and those
// of records that no decision left.
func Rerun(rec *nvext.Routing) (nvext.Candidate, error) {
	none := nvext.Candidate{}
	if len(rec.Candidates) != rec.Considered {
		return none, fmt.Errorf("candidates: expected %d, got %d: %w", rec.Considered, len(rec.Candidates), ErrIncomplete)
	}
	mode, err := ParseMode(rec.Mode)
	if err != nil {
		return none, err
	}
	var seed uint64
	if rec.Seed != nil {
		seed = *rec.Seed
	}
	if rec.Pools != nil {
		if err := rerunPool(mode, seed, rec); err != nil {
			return none, err
		}
	}
	eligible := slices.DeleteFunc(slices.Clone(rec.Candidates), func(c nvext.Candidate) bool { return c.State != nvext.StateEligible })
	if len(eligible) == 0 {
		return none, errors.New("candidates: expected one that is eligible")
	}
	slices.SortStableFunc(eligible, func(a, b nvext.Candidate) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.DPRank, b.DPRank))
	})
	if rec.Seed == nil && mode != RoundRobin && len(eligible) > 1 {
		return none, fmt.Errorf("seed: expected one, since %s draws among %d: %w", mode, len(eligible), ErrIncomplete)
	}
	cands := make([]sched.Candidate, len(eligible))
	for i := range eligible {
		cands[i] = RecallCandidate(&eligible[i])
	}
	rng := rand.New(rand.NewPCG(seed, rec.Decision))
	if mode != KV {
		return eligible[pick(mode, rec.Turn, rng, cands)], nil
	}
	if rec.Cost == nil || rec.Policy == policyThompson {
		return none, fmt.Errorf("cost: expected its parameters, since policy %q cannot be run again: %w", rec.Policy, ErrIncomplete)
	}
	if rec.PromptTokens < 1 || rec.BlockSize < 1 {
		return none, fmt.Errorf("prompt_tokens, block_size: expected at least 1, got %d and %d", rec.PromptTokens, rec.BlockSize)
	}
	cost := RecallCost(rec.Cost)
	return eligible[cost.Select(&sched.Decision{PromptTokens: rec.PromptTokens, BlockSize: rec.BlockSize, Candidates: cands, Rand: rng})], nil
}

// rerunPool chooses among the record's pools again and returns an error unless it
// comes to the pool whose candidates are recorded.
func rerunPool(mode Mode, seed uint64, rec *nvext.Routing) error {
	const most = 1 << 32 // ranks of a pool
	for i, p := range rec.Pools {
		if p.Eligible < 0 || p.Eligible > most {
			return fmt.Errorf("pools[%d].eligible: expected a number of ranks, got %d", i, p.Eligible)
		}
	}
	if rec.Seed == nil {
		return fmt.Errorf("seed: expected one, since there are %d pools: %w", len(rec.Pools), ErrIncomplete)
	}
	i := choosePool(mode, seed, rec.Decision, rec.Pools)
	if i < 0 || !rec.Pools[i].Chosen {
		return fmt.Errorf("pools: the choice comes to pools[%d], which is not marked as chosen", i)
	}
	return nil
}
