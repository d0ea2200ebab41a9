package router

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// Request is what the router has to know about a request. The router does not
// change it and does not keep it after Place returns, but for Expected.
type Request struct {
	Model *Model // from Lookup
	ID    string // for explanations
	// PromptTokens is the length of the prompt, or with Guess set a guess at it.
	PromptTokens int
	Guess        bool
	// Tokens are the prompt's tokens, if they are known and are one sequence, and
	// HashSeed is the seed of their blocks' hashes. Blocks are those hashes, for blocks
	// of BlockSize tokens, if somebody has computed them already.
	Tokens    []uint32
	HashSeed  uint64
	Blocks    []kv.Block
	BlockSize int
	// Text stands in for the tokens of a prompt that has none: bytes that are equal
	// as far as prompts are. No more than [MaxText] are looked at.
	Text []byte
	// Whole says that the answer comes at once, so that its first token is not seen.
	Whole bool
	// Arrived is when the request was first to be placed; zero means now. Its place in
	// the queue goes by that. Waited is how long it has waited there before.
	Arrived time.Time
	Waited  time.Duration
	// ExpectedOutput is how many tokens the answer is expected to have; 0 = unknown.
	ExpectedOutput int
	// Expected is all that is expected of the request, for policies and explanations; nil
	// if nothing is. It is kept, and must not change any more.
	Expected *nvext.Expected
	// Prefix names the conversation that the request belongs to, and TotalRequests is how
	// many requests its client says that has, 0 if it does not say.
	Prefix        string
	TotalRequests uint64
	// Jump is the head start in the queue, in seconds; Tier goes before all lower ones
	// of the same tenant; Class names a policy class or family; Tenant is whose the
	// request is.
	Jump   float64
	Tier   uint32
	Class  string
	Tenant string
	// Override changes settings for this request.
	Override *Override
	// RequiredTaints must all be on the worker; PreferredTaints attract or repel.
	RequiredTaints  []string
	PreferredTaints map[string]float64
	// Pinned restricts the choice to the worker Pin, and to PinRank if not nil.
	Pinned  bool
	Pin     kv.WorkerID
	PinRank *uint32
	// Allowed, if not nil, lists the workers that may be chosen.
	Allowed []uint64
	// Exclude lists the workers that failed this request already.
	Exclude []kv.WorkerID
	// Remote says that somebody else runs the request, and tells how it went only if they
	// like. [Router.Reserve] sets it.
	Remote bool
	// QueryOnly asks where the request would run; nothing is booked.
	QueryOnly bool
	// Explain asks for Placement.Routing, with at most nvext.MaxCandidates
	// candidates; ExplainAll asks for it with all of them.
	Explain    bool
	ExplainAll bool
	// Attempt counts the placements of this request before this one.
	Attempt int
	// Into, if not nil, becomes the placement, which then need not be allocated. It
	// must not be in use.
	Into *Placement
}

// MaxText is how many bytes of a text are looked at. Prompts that are equal so far
// belong together, whatever follows.
const MaxText = 64 << 10

// Override is what a request changes of the settings. Nil fields are as
// configured.
type Override struct {
	Temperature   *float64
	PrefillScale  *float64
	Credit        *float64
	SharedWeight  *float64
	AssumeReuse   *bool
	TrackPrefill  *bool
	OverlapWeight *float64 // the older name of PrefillScale; 0 also sets Credit
}

// apply returns c with the settings of o, which may be nil.
func (o *Override) apply(c sched.Cost) sched.Cost {
	if o == nil {
		return c
	}
	if w := o.OverlapWeight; w != nil {
		c.PrefillScale = *w
		if *w == 0 {
			c.Credit = 0
		}
	}
	set(&c.PrefillScale, o.PrefillScale)
	set(&c.Credit, o.Credit)
	set(&c.SharedWeight, o.SharedWeight)
	set(&c.Temperature, o.Temperature)
	if o.TrackPrefill != nil {
		c.NoPrefill = !*o.TrackPrefill
	}
	return c
}

func set(to *float64, from *float64) {
	if from != nil {
		*to = *from
	}
}
