package trace

import "github.com/stator-ai/stator/internal/kv"

// Content is one request of a trace as an engine sees it whose blocks have
// another size than those of the trace.
//
// The prompt is thought of as its block ids, each repeated for all tokens of its
// block ([Content.Tokens]). Two engine blocks have the same Tokens hash exactly if
// these tokens are equal, and the same ID exactly if all tokens before them are
// as well, but neither is computed from tokens: see Block. A block that the trace
// has no id for counts as one with an id of its own; it takes no memory. Generated
// blocks are like no other.
//
// The hashes have nothing in common with those that [kv.AppendBlocks] makes of
// the tokens, and mean something only within one trace and one block size. A
// Content holds on to the request's Blocks. Its methods do not change it, and are
// safe for concurrent use.
type Content struct {
	ids     []uint32
	ordinal uint32
	input   int
	full    int // prompt blocks that are full
	trace   int // tokens in a block of the trace
	size    int // tokens in a block of the engine
}

// Content returns request i for an engine with blocks of blockSize tokens, which
// must be at least 1.
func (t *Trace) Content(i, blockSize int) Content {
	r := &t.Requests[i]
	return Content{
		ids:     r.Blocks,
		ordinal: uint32(i),
		input:   r.Input,
		full:    r.Input / blockSize,
		trace:   t.BlockSize,
		size:    blockSize,
	}
}

// Full returns the number of full blocks of the prompt.
func (c *Content) Full() int { return c.full }

// Block returns full block i of the request, prompt and generated tokens counted
// together. It does not allocate. A block that holds a generated token is unique
// to the request and its place there.
func (c *Content) Block(i int) kv.Block {
	// The top bit keeps these apart from blocks with an id, which is below it.
	own := 1<<63 | uint64(c.ordinal)<<32 | uint64(uint32(i))
	if i >= c.full {
		return kv.Block{ID: kv.BlockID(mix(own)), Tokens: kv.LocalHash(mix(own ^ localSalt))}
	}
	start := i * c.size
	first, last := start/c.trace, (start+c.size-1)/c.trace
	// The last id that the block covers says everything up to the block's end, and
	// mix is a bijection: no two IDs collide.
	id := own
	if last < len(c.ids) {
		id = uint64(c.ids[last])<<32 | uint64(uint32(i))
	}
	// The tokens are runs of ids. An id has one place in all prompts, so only one
	// block can hold the step from it to another: the ids say how long the runs are.
	local := uint64(localSalt)
	for k := first; k <= last; k++ {
		local = mix(local ^ c.at(k))
	}
	return kv.Block{ID: kv.BlockID(mix(id)), Tokens: kv.LocalHash(local)}
}

// at returns what identifies block k of the trace: its id, or where it is if it
// has none, with two bits that keep it apart from ids and from generated blocks.
func (c *Content) at(k int) uint64 {
	if k < len(c.ids) {
		return uint64(c.ids[k])
	}
	return 3<<62 | uint64(c.ordinal)<<32 | uint64(uint32(k))
}

// Tokens appends the prompt's tokens to dst. Those of a block without an id are
// above all ids, but 31 bits scattered: two such blocks may have the same tokens
// by chance.
func (c *Content) Tokens(dst []uint32) []uint32 {
	for i := range c.input {
		at := c.at(i / c.trace)
		if at>>63 != 0 {
			at = 1<<31 | mix(at)>>33
		}
		dst = append(dst, uint32(at))
	}
	return dst
}

// localSalt keeps hashes of tokens apart from IDs.
const localSalt = 0x3c6ef372fe94f82b

// mix scatters the bits of x over 64: the output function of the splitmix64
// generator, which is a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
