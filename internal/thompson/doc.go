// Package thompson places requests by Thompson sampling: each rank's quality is a
// distribution learned from what became of earlier requests, a decision draws from these
// distributions, and the draw that looks best wins.
//
// There are two policies. [Reference] is the policy of NVIDIA's NeMo Agent Toolkit to the
// last digit: a linear model and a Beta distribution per rank, terms for staying and for
// switching, a factor for load, and a softmax at the end. [Safe] learns by how much a cost
// model is wrong. It chooses only among ranks that cost little more than the one the cost
// model would take, pays for the difference from a budget, knows the exact probability of
// each of its choices, and stops by itself when it does worse than the cost model. In
// shadow mode it does all that except choosing.
//
// [Prefixes] counts how many requests of a conversation are still to come, [Evaluate]
// estimates from recorded decisions how another policy would have done, and both policies
// write what they learned to JSON and read it back.
//
// The package has no clock, chance, socket or log of its own: time is an argument, chance
// is a [Draws], and the same calls in the same order lead to the same decisions. Nothing
// in it is safe for concurrent use unless it says so; a caller with several goroutines
// holds a lock. State is bounded whatever the callers do, and a decision between known
// ranks allocates nothing.
package thompson

import (
	"errors"
	"math"
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// ErrUnknown is returned for a decision that is not pending: never made, finished, timed
// out, or dropped because there were too many.
var ErrUnknown = errors.New("unknown decision")

// Request is what a decision is about.
type Request struct {
	// PromptTokens is the length of the prompt and BlockSize the number of tokens in a
	// block.
	PromptTokens, BlockSize int
	// Baseline is the index of the arm that the cost model chooses. Only [Safe] looks at
	// it.
	Baseline int
	// Unary says that the answer will come at once, so that nobody sees its first token
	// and waiting for it says nothing. Only [Safe] looks at it.
	Unary bool
	// Prefix names the conversation; the zero value is none. Budget is how many of its
	// requests are expected after this one, and TTL how long to remember where it ran;
	// both come from [Prefixes.Next]. OSL and IAT are how long the answer will be and how
	// soon the next request will come. Only [Reference] looks at these.
	Prefix   PrefixID
	Budget   int
	TTL      time.Duration
	OSL, IAT Level
}

// Arm is a rank that could take a request, at the moment of the decision. What is not a
// number counts as not known.
type Arm struct {
	ID kv.Source
	// Overlap is how much of the prompt is in the rank's cache, from 0 to 1.
	Overlap float64
	// KVUsage is how full its cache is, from 0 to 1, and Queue how many requests wait in
	// the engine, if Scraped says that the engine told.
	KVUsage, Queue float64
	Scraped        bool

	// The rest is for [Safe]. Cost is what the cost model says, in blocks.
	Cost float64
	// PrefillTokens is how many prompt tokens the rank has to compute until this prompt
	// is done, those of requests before it included.
	PrefillTokens int
	// KVTokens is how many tokens the running requests hold, and InFlight how many
	// requests there are.
	KVTokens, InFlight int
	// Healthy ranks may be chosen instead of the baseline.
	Healthy bool
}

// unit returns v, limited to 0 to 1.
func unit(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 1)
}

// milliseconds returns d, without those that never happened.
func milliseconds(d time.Duration) float64 { return float64(max(d, 0)) / float64(time.Millisecond) }
