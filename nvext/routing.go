package nvext

// Routing explains where a request went and why. It is one JSON contract for
// three readers: the client that asks for extra field "routing", the trace, and
// the dashboard.
type Routing struct {
	// RequestID names the request in logs and traces.
	RequestID string `json:"request_id"`
	// Model is the model as routed.
	Model string `json:"model"`
	// Phase is "prefill" or "decode" in disaggregated serving, else empty.
	Phase string `json:"phase,omitzero"`
	// Mode is the router mode, as "kv" or "round_robin".
	Mode string `json:"mode"`
	// Policy is what ranked the candidates, as "cost" or "thompson".
	Policy string `json:"policy"`
	// Reason is what decided.
	Reason Reason `json:"reason"`
	// Chosen is the candidate that got the request, as it was when chosen.
	Chosen Candidate `json:"chosen"`
	// Candidates are those considered, the best first and those that could not be
	// chosen last: all of them in a trace, elsewhere at most [MaxCandidates], so
	// that Chosen need not be among them.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Considered is how many candidates there were before the list was cut.
	Considered int `json:"considered"`
	// Tied is how many candidates shared the best score, if more than one did.
	Tied int `json:"tied,omitzero"`
	// Seed is that of the random source, where chance had a part: with it,
	// Decision and the same candidates the choice comes out the same. A string in
	// JSON, since it may not fit a JavaScript number.
	Seed *uint64 `json:"seed,string,omitzero"`
	// Decision is the ordinal of this decision in its router. Set with Seed: each
	// decision has a random source of its own, made from the two.
	Decision uint64 `json:"decision,omitzero"`
	// Turn is how many turns there were before this one, where candidates take
	// turns: of n that could be chosen, in the order of worker and rank, the one
	// at Turn modulo n is next.
	Turn uint64 `json:"turn,omitzero"`
	// Pools are the groups of alike ranks that the model has, where there are
	// several and the choice fell on one of them first. Candidates are those of
	// the chosen pool.
	Pools []Pool `json:"pools,omitzero"`
	// Attempt is 1 for the first placement, more after a retry or a migration.
	Attempt int `json:"attempt"`
	// QueueWaitMS is the time spent in the router's queue.
	QueueWaitMS Float `json:"queue_wait_ms"`
	// PolicyClass is the class in which the request waited, empty where there is no
	// queue.
	PolicyClass string `json:"policy_class,omitzero"`
	// Expected is what was expected of the request; nil where nothing was.
	Expected *Expected `json:"expected,omitzero"`
	// PromptTokens is the length of the prompt as the decision took it, and BlockSize
	// the number of tokens in a KV block.
	PromptTokens int `json:"prompt_tokens,omitzero"`
	BlockSize    int `json:"block_size,omitzero"`
	// Cost is what the costs of the candidates were computed with, where costs
	// decided.
	Cost *CostParams `json:"cost,omitzero"`
	// PolicyDecision is why a policy that learns decided as it did; nil where none was
	// asked.
	PolicyDecision *PolicyDecision `json:"policy_decision,omitzero"`
	// OverlapBlocks is how many prompt blocks the chosen rank holds.
	OverlapBlocks int `json:"overlap_blocks"`
	// TotalBlocks is how many blocks the prompt has.
	TotalBlocks int `json:"total_blocks"`
	// BestOverlapBlocks is how many prompt blocks that candidate held which held
	// most of them and could be chosen.
	BestOverlapBlocks int `json:"best_overlap_blocks,omitzero"`
	// PredictedCachedTokens is how many prompt tokens the engine should find in
	// its cache; nil, null in JSON, where nothing predicts it.
	PredictedCachedTokens *int `json:"predicted_cached_tokens"`
	// ActualCachedTokens is how many it says it has found; nil until it says so.
	ActualCachedTokens *int `json:"actual_cached_tokens,omitzero"`
	// CacheVerdict is what the two say about each other, once the engine has answered.
	CacheVerdict Verdict `json:"cache_verdict,omitzero"`
}

// Expected is what a request and those after it are expected to come to: what the client
// hints, and what the server inferred where the client says nothing.
type Expected struct {
	// OSL is the length of the answer in tokens, no more than the client would take.
	OSL *uint32 `json:"osl,omitzero"`
	// RemainingCalls is how many calls of the conversation follow this one, as a header
	// says or a server that learns has counted. What agent_hints has is how many there are
	// in all.
	RemainingCalls *uint64 `json:"remaining_calls,omitzero"`
	// IATMS is the time to the next call in milliseconds.
	IATMS *uint64 `json:"iat_ms,omitzero"`
	// Inferred says which of the members above the server inferred, in their order; the
	// others are the client's.
	Inferred []Inferred `json:"inferred,omitzero"`
}

// Inferred says what the server inferred a member of [Expected] from.
type Inferred struct {
	// Field names the member.
	Field InferredField `json:"field"`
	// Source is what it was inferred from.
	Source Source `json:"source"`
	// Samples is how many observations there were.
	Samples int `json:"samples"`
}

// InferredField names a member of [Expected] that can be inferred, as it is called in JSON.
type InferredField string

// The members that can be inferred.
const (
	InferredOSL            InferredField = "osl"
	InferredRemainingCalls InferredField = "remaining_calls"
	InferredIAT            InferredField = "iat_ms"
)

// Source is what something was inferred from.
type Source string

const (
	// SourceSession: earlier calls of the same conversation.
	SourceSession Source = "session"
	// SourceFamily: other conversations that began alike.
	SourceFamily Source = "family"
)

// Verdict compares what the engine found in its cache with what was predicted.
type Verdict string

const (
	// VerdictAgreed: the engine found what was predicted, give or take a block, and
	// nobody held more.
	VerdictAgreed Verdict = "agreed"
	// VerdictTokensDiffer: the engine counts other prompt tokens than we do.
	VerdictTokensDiffer Verdict = "tokens_differ"
	// VerdictNoReuse: no candidate held anything of the prompt, and the engine found
	// nothing.
	VerdictNoReuse Verdict = "no_reuse"
	// VerdictUnforeseen: the engine found something, and nobody was known to hold any of
	// the prompt.
	VerdictUnforeseen Verdict = "unforeseen"
	// VerdictIndexStale: the engine found less than was predicted.
	VerdictIndexStale Verdict = "index_stale"
	// VerdictTraded: another candidate held more and had too much to do.
	VerdictTraded Verdict = "traded_for_load"
	// VerdictUnknown: the engine does not say what it found, or the prompt's tokens are
	// not known here.
	VerdictUnknown Verdict = "unknown"
)

// CostParams are the parameters of a cost, as a request's override and the
// configuration made them.
type CostParams struct {
	PrefillLoadScale          Float `json:"prefill_load_scale"`
	OverlapScoreCredit        Float `json:"overlap_score_credit"`
	OverlapScoreCreditDecay   Float `json:"overlap_score_credit_decay,omitzero"`
	HostCacheHitWeight        Float `json:"host_cache_hit_weight"`
	DiskCacheHitWeight        Float `json:"disk_cache_hit_weight"`
	SharedCacheMultiplier     Float `json:"shared_cache_multiplier,omitzero"`
	DecodeActiveRequestWeight Float `json:"decode_active_request_weight,omitzero"`
	RouterTemperature         Float `json:"router_temperature"`
	// AbsoluteTemperature takes the temperature in blocks.
	AbsoluteTemperature bool `json:"absolute_temperature,omitzero"`
	// NoPrefill leaves prompt tokens out of the cost, and NoLive counts blocks of
	// requests under way as not cached.
	NoPrefill bool `json:"no_prefill,omitzero"`
	NoLive    bool `json:"no_live,omitzero"`
}

// PolicyDecision is why a policy that learns decided as it did, or left the decision to the
// cost.
type PolicyDecision struct {
	// Variant is which policy it is: "safe", "shadow" or "reference".
	Variant string `json:"variant"`
	// Why says what decided: "sampled" if the policy did, otherwise why the cost's choice
	// was taken, as "only" where the policy admits no other, "budget" where it has lost as
	// much as it may, "stopped" where it did worse than the cost, "busy" where too much
	// waits, "baseline" where the cost is no number, and "shadow" where it only looks on.
	// There may be more words.
	Why string `json:"why"`
	// P is the probability with which the chosen candidate was chosen; 1 where chance had
	// no part.
	P Float `json:"p"`
	// Would is whom the policy would have chosen, where it did not decide. That is the
	// cost's choice unless it was compared with others.
	Would *Rank `json:"would,omitzero"`
	// Budget is what the policy may still lose after the decision, in requests that cost
	// twice as much as they could, and Limit the highest cost that it admits. Both are of
	// the policies safe and shadow.
	Budget *Float `json:"budget,omitzero"`
	Limit  *Float `json:"limit,omitzero"`
	// Features are the names of what the policy knows about each candidate: see
	// [Candidate.PolicyX].
	Features []string `json:"features,omitzero"`
}

// Rank is one rank of one worker.
type Rank struct {
	WorkerID uint64 `json:"worker_id"`
	DPRank   uint32 `json:"dp_rank"`
}

// MaxCandidates is how many candidates a client is shown besides the chosen.
const MaxCandidates = 8

// Reason is what decided a placement.
type Reason string

const (
	// ReasonPinned: the request named the worker.
	ReasonPinned Reason = "pinned"
	// ReasonSession: the request belongs to a session bound to the worker.
	ReasonSession Reason = "session"
	// ReasonOnly: no other candidate was left.
	ReasonOnly Reason = "only"
	// ReasonRoundRobin: it was the worker's turn.
	ReasonRoundRobin Reason = "round_robin"
	// ReasonRandom: chance alone.
	ReasonRandom Reason = "random"
	// ReasonLeastLoaded: it had the least to do.
	ReasonLeastLoaded Reason = "least_loaded"
	// ReasonCost: the cost of cache misses and load was lowest there.
	ReasonCost Reason = "cost"
	// ReasonSelector: a selector of the program's own chose it.
	ReasonSelector Reason = "selector"
	// ReasonThompson: the bandit policy chose it.
	ReasonThompson Reason = "thompson"
)

// State is whether a candidate could be chosen, and if not, why.
type State string

const (
	// StateEligible could be chosen.
	StateEligible State = "eligible"
	// StateInhibited failed lately and rests.
	StateInhibited State = "inhibited"
	// StateOverloaded is beyond its busy threshold.
	StateOverloaded State = "overloaded"
	// StateExcluded was tried for this request before, or lacks a taint it requires.
	StateExcluded State = "excluded"
	// StateNotAllowed is not among the workers the request allows.
	StateNotAllowed State = "not_allowed"
	// StateNotPinned would do, but the request names another worker or rank.
	StateNotPinned State = "not_pinned"
)

// Pool is a group of ranks that serve a model alike, in the eyes of a decision.
type Pool struct {
	// BlockSize is the number of tokens in its KV blocks; 0 if unknown.
	BlockSize int `json:"block_size"`
	// Eligible is how many of its ranks could be chosen.
	Eligible int `json:"eligible"`
	// Inflight is how many requests the least loaded of these was working on.
	Inflight int `json:"inflight"`
	// CostTokens is the lowest cost among these, in tokens, where costs decide.
	CostTokens Float `json:"cost_tokens,omitzero"`
	// Chosen marks the pool that got the request.
	Chosen bool `json:"chosen,omitzero"`
}

// Candidate is one rank of one worker in the eyes of a decision.
//
// If there are terms, they sum to the score, up to rounding: a reader can see
// from the numbers alone what made the difference.
type Candidate struct {
	WorkerID uint64 `json:"worker_id"`
	DPRank   uint32 `json:"dp_rank"`
	State    State  `json:"state"`
	// Inflight is how many requests the rank was working on.
	Inflight int `json:"inflight"`
	// ActivePrefillTokens is how many prompt tokens it still had to compute.
	ActivePrefillTokens int64 `json:"active_prefill_tokens"`
	// ActiveDecodeBlocks is how many blocks its running requests held.
	ActiveDecodeBlocks int64 `json:"active_decode_blocks"`
	// NewBlocks is how many prompt blocks none of these requests held.
	NewBlocks int64 `json:"new_blocks,omitzero"`
	// OverlapBlocks is how many leading prompt blocks it held. Of these HostBlocks
	// were in the host's memory, DiskBlocks on its disk and SharedBlocks in a store
	// that hosts share, the others on the device.
	OverlapBlocks int `json:"overlap_blocks"`
	HostBlocks    int `json:"host_blocks,omitzero"`
	DiskBlocks    int `json:"disk_blocks,omitzero"`
	SharedBlocks  int `json:"shared_blocks,omitzero"`
	// LiveBlocks is how many leading prompt blocks belonged to requests under way.
	LiveBlocks int `json:"live_blocks,omitzero"`
	// HeldBlocks is how many blocks its cache held in all; it decides between equal
	// scores.
	HeldBlocks int `json:"held_blocks,omitzero"`
	// Trust is how much of what was predicted to be in its cache has been found there
	// of late; nil means all.
	Trust *Float `json:"trust,omitzero"`
	// TaintFactor is what the request's preferred taints made of the score; nil means
	// nothing.
	TaintFactor *Float `json:"taint_factor,omitzero"`
	// Warmth is what a worker's score was divided by because it had just come; nil
	// means by nothing.
	Warmth *Float `json:"warmth,omitzero"`
	// Score is the policy's own measure, comparable within one decision only; NaN,
	// null in JSON, for a candidate that was not scored.
	Score Float `json:"score"`
	// Terms are the parts of the score.
	Terms []Term `json:"terms,omitzero"`
	// PolicyScore is the measure of a policy that learns, where one ranked the candidates
	// beside the cost, and PolicyTerms are its parts.
	PolicyScore *Float `json:"policy_score,omitzero"`
	PolicyTerms []Term `json:"policy_terms,omitzero"`
	// PolicyX is what the policy knows about the candidate, in the order of
	// [PolicyDecision.Features].
	PolicyX []Float `json:"policy_x,omitzero"`
	// Propensity is the probability with which the policy would choose the
	// candidate, where the policy is a random one.
	Propensity *Float `json:"propensity,omitzero"`
}

// TermSum is the sum of the terms, which is the score if there are any.
func (c *Candidate) TermSum() float64 {
	var sum float64
	for _, t := range c.Terms {
		sum += float64(t.Value)
	}
	return sum
}

// Term is one part of a score.
type Term struct {
	Name  string `json:"name"`
	Value Float  `json:"value"`
}
