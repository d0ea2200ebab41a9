package simengine

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Pass is what one forward pass did.
type Pass struct {
	// Duration is how long it took: Prefill for prompts and Decode for answers.
	Duration, Prefill, Decode time.Duration
	// Outputs are the requests that got tokens or ended, in the order in which
	// they run.
	Outputs []Output
	// Admissions are the requests that began to run.
	Admissions []Admission
	// Rejected are the requests that can never run.
	Rejected []*Request
	// Preempted counts the requests that lost their blocks and wait again.
	Preempted int
	// Events are the changes of the cache, in order, of every copy of a block. Their
	// blocks are overwritten by the next Step, too.
	Events []kv.Event
	// Origins has an entry for each of Events: what the blocks stored are blocks of.
	Origins []Origin
	// Batch is the work, as Timing saw it.
	Batch Batch

	blocks []kv.Block // behind Events
}

// Origin is where the blocks of an event come from: they are blocks First, First+1
// and so on of Content. It is zero for an event that stores none. Where requests
// share what was stored, it is one of theirs.
type Origin struct {
	Content Content
	First   int
}

// Output is what a pass did for a request.
type Output struct {
	Request *Request
	// Tokens is the number of tokens it got; 0 for the end of a warm-up.
	Tokens int
	// Done says that it has ended, and is the caller's again.
	Done bool
	// Transfer is the time until a Decode engine can have it; 0 except at the end
	// of a request on a Prefill engine.
	Transfer time.Duration
}

// Admission is a request that began to run, with the prompt tokens that it found
// in the cache. Again marks one that had lost its blocks before: what it finds
// then is mostly its own.
type Admission struct {
	Request *Request
	Cached  int
	Again   bool
}

func (p *Pass) reset() {
	*p = Pass{
		Outputs:    p.Outputs[:0],
		Admissions: p.Admissions[:0],
		Rejected:   p.Rejected[:0],
		Events:     p.Events[:0],
		Origins:    p.Origins[:0],
		blocks:     p.blocks[:0],
	}
}

// stored records blocks that entered the cache behind parent, which is nil at the
// start of a prompt. Blocks that follow those stored last make one event with
// them: what they are blocks of has those before them, too.
func (p *Pass) stored(from Origin, parent *kv.Block, blocks ...kv.Block) {
	p.blocks = append(p.blocks, blocks...)
	end := len(p.blocks)
	if n := len(p.Events); n > 0 && parent != nil {
		// The blocks of the last event are the last ones.
		ev := &p.Events[n-1]
		if ev.Kind == kv.Stored && ev.Blocks[len(ev.Blocks)-1].ID == parent.ID {
			ev.Blocks = p.blocks[end-len(blocks)-len(ev.Blocks) : end : end]
			p.Origins[n-1].Content = from.Content
			return
		}
	}
	ev := kv.Event{Kind: kv.Stored, Counted: true, Blocks: p.blocks[end-len(blocks) : end : end]}
	if parent != nil {
		ev.Parent, ev.HasParent = parent.ID, true
	}
	p.Events = append(p.Events, ev)
	p.Origins = append(p.Origins, from)
}

// removed records a block that left the cache.
func (p *Pass) removed(id kv.BlockID) {
	at := len(p.blocks)
	p.blocks = append(p.blocks, kv.Block{ID: id})
	p.Events = append(p.Events, kv.Event{Kind: kv.Removed, Counted: true, Blocks: p.blocks[at : at+1 : at+1]})
	p.Origins = append(p.Origins, Origin{})
}

// cleared records that the cache was emptied.
func (p *Pass) cleared() {
	p.Events = append(p.Events, kv.Event{Kind: kv.Cleared})
	p.Origins = append(p.Origins, Origin{})
}
