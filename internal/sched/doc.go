// Package sched decides which rank gets a request, and when.
//
// It has three parts. The [Ledger] keeps what is booked on each rank: requests,
// prompt tokens yet to be computed, and KV-cache blocks, of which those that
// requests share count once. A [Selector] chooses among candidates; [Cost] is the
// one that weighs what a rank would have to compute against what it is doing. The
// [Queue] holds requests back while all ranks are busy and says which goes next.
//
// All of it is deterministic: time and chance are arguments, nothing is locked and
// nothing is kept that the caller did not give. Callers serialize.
package sched
