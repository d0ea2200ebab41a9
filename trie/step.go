package trie

// EventType is what a [Step] tells.
type EventType string

// The steps that matter here. Others are known by their time alone: the first and the last
// step of a run say how long it took.
const (
	LLMStart      EventType = "LLM_START"
	LLMEnd        EventType = "LLM_END"
	ToolStart     EventType = "TOOL_START"
	ToolEnd       EventType = "TOOL_END"
	FunctionStart EventType = "FUNCTION_START"
	FunctionEnd   EventType = "FUNCTION_END"
	SpanStart     EventType = "SPAN_START"
	SpanEnd       EventType = "SPAN_END"
)

// Step is one event of a run, as NeMo Agent Toolkit's profiler records it.
type Step struct {
	Type EventType
	// Time is when it happened, in seconds since some instant that all steps of the run
	// share.
	Time float64
	// Began is, for the end of something, when that began; nil where it is not known.
	Began *float64
	// UUID is what the start and the end of one thing have in common.
	UUID string
	// ParentID is the UUID of the innermost thing that had begun and not ended.
	ParentID string
	// Function is the invocation in which it happened.
	Function Invocation
	// Path is the whole way from the workflow's entry to Function, its name included; nil
	// where only Function is known.
	Path []string
	// OutputTokens is how long the answer of an LLM call was; negative where that is not
	// known.
	OutputTokens int
}

// Invocation is one call of a function.
type Invocation struct {
	ID         string
	Name       string
	ParentID   string // of the invocation that called it; empty if not known
	ParentName string
}
