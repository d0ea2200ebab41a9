package simengine

import "github.com/stator-ai/stator/internal/kv"

// Content says what the tokens of a request are, as far as the cache must know.
// It is asked about the same block more than once and must not change its answer.
type Content interface {
	// Block returns full block i of the request, prompt and generated tokens
	// counted together: the hash of its tokens, and an ID that also stands for
	// all blocks before it. A generated block is asked for only after its last
	// token was returned by a pass.
	Block(i int) kv.Block
}

// Request is one sequence to compute. The caller sets the exported fields and
// leaves them alone until the request is done, rejected or dropped; it may then
// be used anew.
type Request struct {
	// ID names the request; the engine does not look at it except to draw
	// whether speculated tokens are accepted.
	ID uint64
	// Prompt is the number of prompt tokens, at least 1.
	Prompt int
	// MaxOutput is the number of tokens to generate, at least 1 unless WarmUp.
	// Fewer come when the cache or the model's context cannot hold them.
	MaxOutput int
	// Content identifies the blocks; nil for a request that shares nothing.
	Content Content
	// WarmUp asks for the prompt to be computed and kept, and for nothing else.
	// It generates no token, and has what others leave: it waits until no other
	// request waits, computes after them, and gives its blocks and its place up
	// when one of them has none.
	WarmUp bool
	// Priority is how urgent it is, more being more urgent. It counts with
	// [Config.Priority] only.
	Priority int64
	// Fresh has LlamaCpp compute all of the prompt, whatever a slot holds of it, and
	// Slot is the slot that it must run in, counted from 1; 0 for any.
	Fresh bool
	Slot  int
	// Owner is for the caller.
	Owner any

	state     state
	limit     int // tokens to generate, MaxOutput with what does not fit taken off
	generated int
	computed  int // tokens whose keys and values are in blocks
	admitted  bool
	cached    int // at first admission
	blocks    []int32
	arrival   uint64 // its number among all that came
	vllm      vllmState
	sglang    sglangState
}

// state is where a request is in its life.
type state uint8

const (
	idle state = iota // not the engine's
	waiting
	running
	preempted
)

// Generated returns how many tokens the request has so far.
func (r *Request) Generated() int { return r.generated }

// Cached returns how many prompt tokens were found in the cache when the request
// was first admitted; 0 before.
func (r *Request) Cached() int { return r.cached }

// before reports whether r is to be admitted before o by priority.
func (r *Request) before(o *Request) bool {
	if r.Priority != o.Priority {
		return r.Priority > o.Priority
	}
	return r.arrival < o.arrival
}

// length returns the tokens of prompt and answer so far.
func (r *Request) length() int { return r.Prompt + r.generated }
