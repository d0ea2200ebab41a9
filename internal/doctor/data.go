package doctor

// ReachData is of [Reach].
type ReachData struct {
	LatencyMS float64 `json:"latency_ms"` // of the model list, with connecting
}

// DuplicateData is of [Duplicate].
type DuplicateData struct {
	Of string `json:"of"` // the URL that is the same engine
}

// KindData is of [Kind].
type KindData struct {
	Kind       string `json:"kind"`
	Version    string `json:"version"`
	Configured string `json:"configured"` // empty if it is to be found out
}

// ModelsData is of [Models].
type ModelsData struct {
	Models []ModelData `json:"models"`
}

// ModelData is one model, or an adapter of one.
type ModelData struct {
	ID            string `json:"id"`
	Parent        string `json:"parent,omitempty"`
	ContextLength int    `json:"context_length"` // 0 if not said
}

// BlockSizeData is of [BlockSize], in tokens; 0 is not known.
type BlockSizeData struct {
	Configured int `json:"configured"`
	Stated     int `json:"stated"`
	Events     int `json:"events"`
}

// CountData is of [KVBlocks] and [MaxSeqs], of one rank; and of [Ranks].
type CountData struct {
	Count      int `json:"count"`
	Configured int `json:"configured"` // 0 for what the engine says
}

// LoadData is of [Load].
type LoadData struct {
	Ranks []RankLoadData `json:"ranks"`
}

// RankLoadData is the load of a rank as the engine tells it.
type RankLoadData struct {
	Rank    uint32  `json:"rank"`
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	Usage   float64 `json:"usage"` // share of the KV cache
}

// AnswerData is of [Answer].
type AnswerData struct {
	LatencyMS    float64 `json:"latency_ms"`    // to one token
	PromptTokens int     `json:"prompt_tokens"` // 0 if not told
}

// EventsData is of [Events].
type EventsData struct {
	// Found is how the sockets were found: configured, announced by the engine or
	// guessed; polled for an engine that is asked.
	Found string           `json:"found"`
	Ranks []RankEventsData `json:"ranks"`
	// Eagle says that blocks depend on the token after them, ExtraKeys that events tell
	// what besides tokens a block is made of.
	Eagle     bool `json:"eagle"`
	ExtraKeys bool `json:"extra_keys"`
}

// RankEventsData is what was heard of a rank.
type RankEventsData struct {
	Rank      uint32            `json:"rank"`
	Address   string            `json:"address"`
	Connected bool              `json:"connected"`
	Batches   uint64            `json:"batches"`
	Events    uint64            `json:"events"`
	LagMS     *float64          `json:"lag_ms"` // of the last batch by two clocks; null if not told
	Skipped   map[string]uint64 `json:"skipped,omitempty"`
	Error     string            `json:"error,omitempty"`
}

// GapsData is of [Gaps].
type GapsData struct {
	Batches uint64 `json:"batches"`
	Gaps    uint64 `json:"gaps"`
	Missed  uint64 `json:"missed"`
}

// ReplayData is of [Replay].
type ReplayData struct {
	Ranks []RankReplayData `json:"ranks"`
}

// RankReplayData is what a replay socket answered.
type RankReplayData struct {
	Rank    uint32 `json:"rank"`
	Address string `json:"address"`
	Error   string `json:"error,omitempty"`
}

// MatchData is of [Match].
type MatchData struct {
	Ranks []RankMatchData `json:"ranks"`
}

// RankMatchData is how many blocks of a prompt events told of.
type RankMatchData struct {
	Rank   uint32 `json:"rank"`
	Blocks int    `json:"blocks"` // of the prompt
	Found  int    `json:"found"`
}

// TokensData is of [Tokens].
type TokensData struct {
	Source   string `json:"source"`   // of the tokens that were compared with the engine's
	Compared int    `json:"compared"` // prompts
	Equal    int    `json:"equal"`
	Refused  int    `json:"refused"` // prompts of which the engine gave no tokens
	// First is the first prompt whose tokens differ.
	First *DifferenceData `json:"first_difference,omitempty"`
}

// DifferenceData is where the tokens of a prompt begin to differ. A list that has ended
// there has null.
type DifferenceData struct {
	Prompt       string  `json:"prompt"` // its name
	Position     int     `json:"position"`
	Ours         *uint32 `json:"ours"`
	Engine       *uint32 `json:"engine"`
	OursTokens   int     `json:"ours_tokens"` // how many there are
	EngineTokens int     `json:"engine_tokens"`
}

// CachedData is of [CachedTokens], for a prompt that was sent twice; null is not told.
type CachedData struct {
	PromptTokens uint64  `json:"prompt_tokens"`
	First        *uint64 `json:"first"`
	Again        *uint64 `json:"again"`
}

// UsageData is of [Usage].
type UsageData struct {
	PromptTokens     uint64 `json:"prompt_tokens"`
	CompletionTokens uint64 `json:"completion_tokens"`
}

// PriorityData is of [Priority].
type PriorityData struct {
	Priority string `json:"priority"` // honoured, ignored or unknown
}

// CancelData is of [Cancel].
type CancelData struct {
	AfterMS float64 `json:"after_ms"` // from the end of the connection to that of the request
}

// SaltData is of [Salt].
type SaltData struct {
	CachedTokens *uint64 `json:"cached_tokens"` // of a prompt that was cached without the salt
	Told         *bool   `json:"told"`          // events say which salt a block has; null if not known
}

// ClockData is of [Clock].
type ClockData struct {
	SkewMS float64 `json:"skew_ms"` // how far the engine's clock is ahead
	By     string  `json:"by"`      // events or date
}
