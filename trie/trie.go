package trie

// Version is the version of the file format that this package writes.
const Version = "1.0"

// Trie predicts, from where in a workflow an LLM call is made and the how manieth it is
// there, what comes after it. [Parse], [Read], [Load] and [Builder.Build] make one; what they
// made is to be read, not changed: lookups go by tables of names and indices that they
// filled in. A Trie put together by hand has no tables and is searched in order. Lookups
// are safe for concurrent use.
type Trie struct {
	// Version is that of the file it was read from; [Version] for a new one.
	Version string
	// GeneratedAt is when it was built, as the file has it: ISO 8601 with microseconds
	// and an offset, which old files lack.
	GeneratedAt string
	// WorkflowName is what the traces were of.
	WorkflowName string
	// Root stands for all calls. Its name is "root".
	Root *Node
}

// Node is a function on the way from the workflow's entry to a call. It predicts for the
// calls that are made in it and in what it calls.
//
// In a trie that was built by full paths, the predictions by index of a function that makes
// calls of its own are for these alone, and only AnyIndex is for all. Where it makes none,
// and in one that was built by pairs, they are for the calls below it: the first in each
// function, the second, and so on.
type Node struct {
	// Name is the function's.
	Name string
	// ByCallIndex are the predictions for the first call in an invocation of the
	// function, the second, and so on, each index at most once.
	ByCallIndex []Indexed
	// AnyIndex is the prediction for calls whose index has none of its own; nil for none.
	AnyIndex *Prediction
	// Children are the functions that were called from this one, each name at most once. A
	// nil one is passed over.
	Children []*Node

	byName  map[string]int // where in Children a name is, once they are many
	byIndex map[int]int    // where in ByCallIndex an index is, once they are many
}

// Indexed is the prediction for calls of one index, which counts from 1.
type Indexed struct {
	Index int
	Prediction
}

// Prediction is what was seen of calls like one.
type Prediction struct {
	// RemainingCalls is how many calls came after it in the run.
	RemainingCalls Metrics
	// InterArrivalMS is how many milliseconds after its end the next call began.
	InterArrivalMS Metrics
	// OutputTokens is how long the answers were of which that is known.
	OutputTokens Metrics
	// LatencySensitivity is how much a run waits for it, from 1 to the scale that the
	// trie was built with; nil where that was not computed.
	LatencySensitivity *int
}

// Metrics sum up samples. All are 0 where there were none.
type Metrics struct {
	SampleCount         int
	Mean, P50, P90, P95 float64
}
