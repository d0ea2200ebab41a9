package router

import "math"

// Thresholds say when a rank counts as overloaded. A nil field is not checked.
type Thresholds struct {
	// DecodeBlocks is a share of the rank's KV blocks, 0 to 1.
	DecodeBlocks *float64
	// PrefillTokens is a number of prompt tokens waiting for their first token.
	PrefillTokens *uint64
	// PrefillFrac is the same as a multiple of the rank's max_num_batched_tokens.
	PrefillFrac *float64
}

// defaultBatchedTokens stands in for a max_num_batched_tokens that is unknown.
const defaultBatchedTokens = 10_000_000

// Set reports whether any threshold is checked.
func (t Thresholds) Set() bool {
	return t.DecodeBlocks != nil || t.PrefillTokens != nil || t.PrefillFrac != nil
}

// Merge returns t with the fields that are set in patch.
func (t Thresholds) Merge(patch Thresholds) Thresholds {
	if patch.DecodeBlocks != nil {
		t.DecodeBlocks = patch.DecodeBlocks
	}
	if patch.PrefillTokens != nil {
		t.PrefillTokens = patch.PrefillTokens
	}
	if patch.PrefillFrac != nil {
		t.PrefillFrac = patch.PrefillFrac
	}
	return t
}

// load is what is known about one rank. The router's own count and the engine's
// report are separate fields: neither overwrites the other.
type load struct {
	inflight      int
	prefillTokens int // prompt tokens booked, first token not seen
	activeBlocks  int // KV blocks of booked requests, as the router counts them
	usedBlocks    int // KV blocks in use, as the engine reports them; 0 if it does not
	totalBlocks   int // 0 = unknown
	maxBatched    int // 0 = unknown
}

// busy reports whether l is above a threshold. Decode blocks have two signals;
// the rank stays busy until the latest value of both is not above.
func (t Thresholds) busy(l *load) bool {
	if p := t.PrefillTokens; p != nil && uint64(l.prefillTokens) > *p {
		return true
	}
	if f := t.PrefillFrac; f != nil {
		limit := l.maxBatched
		if limit == 0 {
			limit = defaultBatchedTokens
		}
		if float64(l.prefillTokens) > math.Trunc(*f*float64(limit)) {
			return true
		}
	}
	if d := t.DecodeBlocks; d != nil && l.totalBlocks > 0 {
		limit := *d * float64(l.totalBlocks)
		return float64(l.activeBlocks) > limit || float64(l.usedBlocks) > limit
	}
	return false
}
