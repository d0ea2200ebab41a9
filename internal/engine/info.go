package engine

// The kinds of engines.
const (
	VLLM     = "vllm"
	SGLang   = "sglang"
	TRTLLM   = "trtllm"
	LlamaCpp = "llamacpp"
	Sim      = "sim"    // one that says so
	OpenAI   = "openai" // any other
)

// Info is what Identify found out.
type Info struct {
	Kind    string // one of the kinds
	Version string // as the server spells it; empty when it does not say
	Models  []Model
	// Engine is the adapter that knows this kind of server, over the connections of
	// the one that was asked; nil if that does.
	Engine Engine
	// Streams are the sockets on which ranks tell of their caches, in the order of
	// ranks. Engines that are asked for their events are an [EventPoller] instead.
	Streams []EventStream
	// Priority is what the engine makes of a request's priority.
	Priority Priority
	// Slots is how many requests run at a time on a server that keeps one prompt's
	// cache for each of them, as llama.cpp does; 0 for a cache of shared blocks.
	Slots int
	// Life changes when the server is started anew, as far as that can be told;
	// empty when it cannot.
	Life string
	// Warnings say what about the server stands in the way, in words for its
	// operator, sorted.
	Warnings []Warning
}

// Priority is what an engine makes of a request's priority.
type Priority uint8

// What an engine may make of it.
const (
	PriorityUnknown  Priority = iota // it does not say
	PriorityIgnored                  // nothing
	PriorityHonoured                 // it goes by it
)

func (p Priority) String() string {
	switch p {
	case PriorityIgnored:
		return "ignored"
	case PriorityHonoured:
		return "honoured"
	default:
		return "unknown"
	}
}

// Warning is something about an engine that stands in the way of its best use.
type Warning struct {
	Code string // one word or two, for metrics and scripts, such as no_events
	Text string // what is wrong and what to do
}

// EventStream is where one rank of an engine publishes what becomes of its cache.
type EventStream struct {
	Rank uint32
	// First is what the engine calls its first rank, where it counts those of other
	// servers too: in its events, rank 0 is First.
	First   uint32
	Address string // host:port of the publisher
	Replay  string // host:port where what it said can be asked for; empty if nowhere
	Topic   string // prefix of the topics to subscribe to; empty for all
	// Counted says that the engine tells of every copy of a block, see [kv.Event].
	Counted bool
	// BlockSize is the number of tokens in a block; 0 for what the events say.
	BlockSize int
}

// Model is one model as an engine serves it. Zero means unknown.
type Model struct {
	ID               string
	Parent           string // the model that this is an adapter of; empty for a model
	Tokenizer        string // name of a built-in tokenizer, when the engine uses one
	ContextLength    int
	BlockSize        int // tokens per KV block
	TotalBlocks      int // KV blocks per rank
	MaxBatchedTokens int // prefill tokens per step and rank
	MaxSeqs          int // requests at a time and rank
	Ranks            int // data-parallel ranks
}

// Load is an engine's own view of one rank. What it does not say is 0.
type Load struct {
	Rank         uint32
	Usage        float64 // share of the KV cache in use, 0 to 1
	UsedBlocks   int     // KV blocks in use
	Running      int
	Waiting      int
	TotalBlocks  int // 0 when not said
	BatchedLimit int // max_num_batched_tokens, 0 when not said
}
