package sched

import "math"

// maxTokens bounds what a request counts for, so that no sum overflows.
const maxTokens = 1 << 30

func countedTokens(n int) int { return min(max(n, 0), maxTokens) }

// uncached is what a request takes of the share of its tenant and class: the tokens
// that are in no cache, at least one.
func (w *Waiter) uncached() int {
	return max(1, countedTokens(w.PromptTokens)-countedTokens(w.CachedTokens))
}

// headStart returns the seconds by which a request may go before others, from 0 to
// most. What is not a number is none.
func headStart(jump, most float64) float64 {
	if math.IsNaN(jump) {
		return 0
	}
	return min(max(jump, 0), most)
}

// policyKey returns what requests of a tier are ordered by, the larger first.
func policyKey(p Policy, w *Waiter, maxJump float64) float64 {
	jump := headStart(w.Jump, maxJump)
	switch p {
	case LCFS:
		return jump + w.Arrived.Seconds()
	case WSPT:
		return (1 + jump) / float64(w.uncached())
	default:
		return jump - w.Arrived.Seconds()
	}
}

// before orders the requests of a tenant: by tier, by the key of the policy, by
// when they were pushed.
func (w *Waiter) before(o *Waiter) bool {
	if w.Tier != o.Tier {
		return w.Tier > o.Tier
	}
	if w.key != o.key {
		return w.key > o.key
	}
	return w.order < o.order
}

func (w *Waiter) moved(i int) { w.at = i }
