package simserver

import (
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/simengine"
)

// wording is what the tokens of a sequence are, for events that tell them. It is kept
// only where events are published.
type wording struct {
	prompt, answer []uint32
	adapter        int // its number from 1 on, 0 for none
	lora, salt     string
}

// appendTokens appends the tokens from one place in the sequence to another.
func (w *wording) appendTokens(dst []uint32, from, to int) []uint32 {
	n := len(w.prompt)
	if from < n {
		dst = append(dst, w.prompt[from:min(to, n)]...)
	}
	if to > n {
		dst = append(dst, w.answer[max(from, n)-n:to-n]...)
	}
	return dst
}

// names knows what the engine calls the blocks that a rank holds. Such a name depends
// on all blocks before, like the ID by which the model knows the block, so that one
// stands for the other as long as the block is there.
type names struct {
	kind      simengine.Kind
	none      enginehash.Digest // vLLM: what the first block of a prompt follows
	blockSize int
	known     map[kv.BlockID]named
	vllm      *enginehash.VLLM
	sglang    *enginehash.SGLang
	extra     []enginehash.Extra

	// The blocks looked at last; overwritten by the next.
	blocks storedBlocks
}

// named is a block that is there, with how many copies of it were told of: by the
// model, and besides.
type named struct {
	digest        enginehash.Digest
	copies, spare int32
}

func newNames(kind simengine.Kind, none enginehash.Digest, blockSize int) *names {
	return &names{
		kind:      kind,
		none:      none,
		blockSize: blockSize,
		known:     make(map[kv.BlockID]named),
		vllm:      enginehash.NewVLLM(none),
		sglang:    enginehash.NewSGLang(""),
	}
}

// add takes in blocks that were stored, each once more than it was before, and returns
// what there is to tell of them. It is valid until the next add.
func (n *names) add(ev *kv.Event, from simengine.Origin) *storedBlocks {
	w := from.Content.(*contents).wording
	s := &n.blocks
	size := n.blockSize
	*s = storedBlocks{
		hashes:    s.hashes[:0],
		hasParent: ev.HasParent,
		tokens:    w.appendTokens(s.tokens[:0], from.First*size, (from.First+len(ev.Blocks))*size),
		blockSize: size,
		adapter:   w.adapter,
		lora:      w.lora,
		salt:      w.salt,
		group:     mainGroup,
	}
	if ev.HasParent {
		s.parent = n.known[ev.Parent].digest // it is there as long as another follows it
		n.follow(s.parent)
	} else {
		n.start(w)
	}
	for i, b := range ev.Blocks {
		name, ok := n.known[b.ID]
		if ok {
			n.follow(name.digest)
		} else {
			name.digest = n.next(w, s.tokens[i*size:(i+1)*size], from.First+i)
		}
		name.copies++
		n.known[b.ID] = name
		s.hashes = append(s.hashes, name.digest)
	}
	return s
}

// start has the next block be the first of its prompt.
func (n *names) start(w *wording) {
	if n.kind == simengine.SGLang {
		n.sglang = enginehash.NewSGLang(w.salt)
	} else {
		n.vllm.Follow(n.none)
	}
}

// follow has the next block come after another.
func (n *names) follow(last enginehash.Digest) {
	if n.kind == simengine.SGLang {
		n.sglang.Follow(last)
	} else {
		n.vllm.Follow(last)
	}
}

// next returns the name of the next block, which is number i of its sequence.
func (n *names) next(w *wording, tokens []uint32, i int) enginehash.Digest {
	if n.kind == simengine.SGLang {
		return n.sglang.Page(tokens)
	}
	n.extra = n.extra[:0]
	if w.lora != "" {
		n.extra = append(n.extra, enginehash.Text(w.lora))
	}
	if w.salt != "" && i == 0 {
		n.extra = append(n.extra, enginehash.Text(w.salt))
	}
	return n.vllm.Block(tokens, n.extra...)
}

// spare notes that one more copy of each block was told of than there is.
func (n *names) spare(blocks []kv.Block) {
	for _, b := range blocks {
		name := n.known[b.ID]
		name.spare++
		n.known[b.ID] = name
	}
}

// remove takes a copy of a block away. It returns the block's name, how many copies
// are to be told of as removed, and whether none is left; 0 copies if there was none.
func (n *names) remove(id kv.BlockID) (d enginehash.Digest, copies int, last bool) {
	name, ok := n.known[id]
	if !ok {
		return d, 0, false
	}
	copies = 1
	if name.spare > 0 {
		name.spare--
		copies++
	}
	if name.copies--; name.copies == 0 {
		delete(n.known, id)
		return name.digest, copies, true
	}
	n.known[id] = name
	return name.digest, copies, false
}
