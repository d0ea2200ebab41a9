// Package policyeval says, from recorded decisions, how another routing policy would have
// done.
//
// A trace row holds all candidates of a decision, how likely each was to be chosen, and
// what came of the choice. From rows in which chance had a part, the mean reward of a
// policy that was never run can be estimated: a choice that it would have made more often
// than the recorded policy counts for more. [Log.Read] collects such rows, and
// [Log.Evaluate] has policies choose among the same candidates and compares what they would
// have brought. A regression of the reward on what was known of request and candidate
// stands in for the choices that were not made; it is fitted on one half of the rows and
// asked about the other, so that no row vouches for itself.
//
// Decisions are taken one at a time. That a policy which decides differently fills queues
// and caches differently is not in the numbers.
//
// All of it is deterministic: there is no clock, and chance comes from the caller's seed.
package policyeval
