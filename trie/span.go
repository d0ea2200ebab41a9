package trie

import "time"

// SpanKind is what a [Span] is of.
type SpanKind string

const (
	// KindLLM is one call of a model.
	KindLLM SpanKind = "llm"
	// KindTool is one call of a tool.
	KindTool SpanKind = "tool"
	// KindFunction is one invocation of a function.
	KindFunction SpanKind = "function"
)

// Span is something that a run did, from its beginning to its end. Its JSON form is a line
// of an agent's trace: what package hints records and a trie is built from.
type Span struct {
	// RunID names the run; spans of one run make one trace.
	RunID string `json:"run_id"`
	// SpanID is unique in the run.
	SpanID string `json:"span_id"`
	// ParentSpanID is the innermost span that was open when this one began; empty at the
	// top.
	ParentSpanID string   `json:"parent_span_id,omitzero"`
	Kind         SpanKind `json:"kind"`
	// Name is the model's, the tool's or the function's.
	Name string `json:"name"`
	// Path is the functions from the workflow's entry to the one in which it happened, and
	// for a function its own name.
	Path []string `json:"path"`
	// FunctionID is the invocation in which it happened, for a function its own;
	// ParentFunctionID the one that called that.
	FunctionID       string `json:"function_id,omitzero"`
	ParentFunctionID string `json:"parent_function_id,omitzero"`
	// Start and End are when it began and ended.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// PrefixID is the prefix id that the call had.
	PrefixID string `json:"prefix_id,omitzero"`
	// PromptTokens, CompletionTokens and CachedTokens are what the server said was used;
	// nil where it did not say.
	PromptTokens     *int `json:"prompt_tokens,omitzero"`
	CompletionTokens *int `json:"completion_tokens,omitzero"`
	CachedTokens     *int `json:"cached_tokens,omitzero"`
	// TTFTMS is after how many milliseconds the first byte of the answer came.
	TTFTMS *float64 `json:"ttft_ms,omitzero"`
	// Status is "ok", "error" or "cancelled".
	Status string `json:"status,omitzero"`
}
