// Package prefix remembers the ids of prompts by their beginnings. A chat sends
// with every turn what it has sent before; with the cache only what is new is
// tokenized and hashed.
//
// The cache is a tree of pieces of text between places where a text can be cut. It
// compares text, byte by byte, and trusts no hash: equal text has equal ids, and
// nothing else does. Rendered text decides, not messages, since templates rewrite
// earlier turns.
package prefix

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
)

const (
	// gap is the least length of a piece. Shorter ones cost more to find than to
	// encode.
	gap = 128
	// overhead is about what a node takes besides its contents.
	overhead = 256
)

// Cache encodes texts with a tokenizer and remembers what came of their
// beginnings, up to a number of bytes; the least recently used go first. It is
// safe for concurrent use.
type Cache struct {
	tok   tokenize.Cutter
	limit int64
	seed  maphash.Seed

	mu    sync.Mutex
	root  node
	nodes map[key]*node
	ring  node // of all nodes, the most recently used first
	bytes int64
	count int // of the nodes
	stats Stats
}

// Stats counts what a cache has done. Tokens that were found are Cached, those that
// had to be made are Uncached.
type Stats struct {
	Hits, Misses     uint64 // texts of which a beginning was found, and others
	Cached, Uncached uint64
	Hashed           uint64 // blocks whose hashes had to be made
	Bytes            int64  // in use now
	Nodes            int
}

// key finds a node. Nodes with the same key differ in their text.
type key struct {
	parent *node
	hash   uint64
}

// node is a piece of text after the pieces of its parents.
type node struct {
	parent     *node
	hash       uint64
	text       []byte
	soft       bool
	ids        []uint32
	blocks     []kv.Block       // those that end in it
	hashing    tokenize.Hashing // of the blocks
	recent     *node            // the child that was used last
	sibling    *node            // the next node with the same key
	prev, next *node
	gone       bool
}

// New returns a cache of up to limit bytes in front of a tokenizer.
func New(tok tokenize.Cutter, limit int64) *Cache {
	c := &Cache{tok: tok, limit: limit, seed: maphash.MakeSeed(), nodes: make(map[key]*node)}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// Encode returns the ids of text, special tokens included, and the hashes of their
// blocks. Text, Fingerprint and Source of the result are not set. It is the
// caller's.
func (c *Cache) Encode(text []byte, h tokenize.Hashing) (tokenize.Result, error) {
	last, p, at, cuts := c.find(text, h)
	p.Cached = len(p.IDs)
	reused := len(p.Blocks)
	fresh, err := c.extend(&p, text, h, at, cuts)
	if err != nil {
		return tokenize.Result{}, err
	}
	c.insert(last, fresh)
	c.note(&p, last, h, reused)
	return p, nil
}

// Stats returns the counts so far.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Nodes = c.bytes, c.count
	return s
}

// note counts an encoded prompt, and gives the nodes it was found by the hashes of
// its blocks, unless they have just these.
func (c *Cache) note(p *tokenize.Result, last *node, h tokenize.Hashing, reused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Hashed += uint64(len(p.Blocks) - reused)
	if h.Size > 0 && !last.gone {
		c.giveBlocks(last, p.Blocks, p.Cached, h)
	}
	if p.Cached > 0 {
		c.stats.Hits++
	} else {
		c.stats.Misses++
	}
	c.stats.Cached += uint64(p.Cached)
	c.stats.Uncached += uint64(len(p.IDs) - p.Cached)
}

// giveBlocks walks from a node whose ids end at end to the root.
func (c *Cache) giveBlocks(n *node, blocks []kv.Block, end int, h tokenize.Hashing) {
	for ; n != &c.root; n = n.parent {
		start := end - len(n.ids)
		if n.hashing != h {
			c.bytes -= n.size()
			n.blocks, n.hashing = slices.Clone(blocks[start/h.Size:end/h.Size]), h
			c.bytes += n.size()
		}
		end = start
	}
	for c.bytes > c.limit {
		c.drop(c.ring.prev)
	}
}

// find returns the node that the known beginning of text ends with, what is known,
// and where the rest begins with the cuts in it.
func (c *Cache) find(text []byte, h tokenize.Hashing) (n *node, p tokenize.Result, at int, cuts []tokenize.Cut) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = &c.root
	for known := false; ; { // the cuts
		next := n.recent
		if next == nil || !c.goesOn(text, at, next) {
			if !known {
				cuts, known = c.cuts(text, at), true
				if n.gone { // dropped meanwhile
					n, at = &c.root, 0
				}
				continue
			}
			for len(cuts) > 0 && cuts[0].At <= at {
				cuts = cuts[1:]
			}
			if len(cuts) == 0 {
				break
			}
			if next = c.child(n, text[at:cuts[0].At]); next == nil {
				break
			}
			n.recent = next
		}
		n = next
		at += len(n.text)
	}
	return n, c.collect(n, len(text)-at, h), at, cuts
}

// cuts returns the cuts of a text, without holding the lock: a long one takes its
// time.
func (c *Cache) cuts(text []byte, from int) []tokenize.Cut {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.tok.Cuts(nil, text, from, gap)
}

// goesOn reports whether text has the node's piece at an offset.
func (c *Cache) goesOn(text []byte, at int, n *node) bool {
	return bytes.HasPrefix(text[at:], n.text) &&
		c.tok.Holds(text, tokenize.Cut{At: at + len(n.text), Soft: n.soft})
}

// child returns the child of n with the given text, nil if there is none.
func (c *Cache) child(n *node, text []byte) *node {
	next := c.nodes[key{n, maphash.Bytes(c.seed, text)}]
	for next != nil && !bytes.Equal(next.text, text) {
		next = next.sibling
	}
	return next
}

// collect puts together what the nodes from the root to n hold, with room for the
// ids of rest more bytes. Whoever uses a node uses its parents after it, so that the
// least recently used has no children.
func (c *Cache) collect(n *node, rest int, h tokenize.Hashing) (p tokenize.Result) {
	var path []*node
	ids, blocks := 0, 0
	for ; n != &c.root; n = n.parent {
		path = append(path, n)
		ids += len(n.ids)
		blocks += len(n.blocks)
		c.touch(n)
	}
	p.IDs = make([]uint32, 0, ids+rest/3+16)
	if h.Size > 0 {
		p.Blocks = make([]kv.Block, 0, max(blocks, cap(p.IDs)/h.Size+1))
	}
	same := h.Size > 0
	for i := len(path) - 1; i >= 0; i-- {
		n := path[i]
		p.IDs = append(p.IDs, n.ids...)
		if same = same && n.hashing == h; same {
			p.Blocks = append(p.Blocks, n.blocks...)
		}
	}
	return p
}

// extend encodes what find has not found and returns nodes for it, each the parent
// of the next.
func (c *Cache) extend(p *tokenize.Result, text []byte, h tokenize.Hashing, at int, cuts []tokenize.Cut) ([]*node, error) {
	var fresh []*node
	var err error
	p.Blocks = kv.ExtendBlocks(p.Blocks, h.Seed, p.IDs, h.Size)
	for _, cut := range cuts {
		if cut.At <= at {
			continue
		}
		ids, blocks := len(p.IDs), len(p.Blocks)
		if p.IDs, err = c.tok.EncodeFrom(p.IDs, text[:cut.At], at); err != nil {
			return nil, err
		}
		p.Blocks = kv.ExtendBlocks(p.Blocks, h.Seed, p.IDs, h.Size)
		fresh = append(fresh, &node{
			text:    bytes.Clone(text[at:cut.At]),
			soft:    cut.Soft,
			ids:     slices.Clone(p.IDs[ids:]),
			blocks:  slices.Clone(p.Blocks[blocks:]),
			hashing: h,
		})
		at = cut.At
	}
	if p.IDs, err = c.tok.EncodeFrom(p.IDs, text, at); err != nil {
		return nil, err
	}
	p.Blocks = kv.ExtendBlocks(p.Blocks, h.Seed, p.IDs, h.Size)
	return fresh, nil
}

// insert hangs fresh nodes below n, unless it has been dropped in the meantime, and
// drops what is too much.
func (c *Cache) insert(n *node, fresh []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.gone {
		return
	}
	for _, f := range fresh {
		if f.size() > c.limit/4 {
			break
		}
		next := c.child(n, f.text)
		if next == nil {
			f.parent, f.hash = n, maphash.Bytes(c.seed, f.text)
			k := key{n, f.hash}
			f.sibling = c.nodes[k]
			c.nodes[k] = f
			c.bytes += f.size()
			c.count++
			f.prev, f.next = f, f
			next = f
		}
		n.recent = next
		n = next
	}
	for ; n != &c.root; n = n.parent {
		c.touch(n)
	}
	for c.bytes > c.limit {
		c.drop(c.ring.prev)
	}
}

// size is what a node counts for.
func (n *node) size() int64 {
	return overhead + int64(len(n.text)) + 4*int64(len(n.ids)) + 16*int64(len(n.blocks))
}

// drop removes a node without children.
func (c *Cache) drop(n *node) {
	n.gone = true
	c.unlink(n)
	c.bytes -= n.size()
	c.count--
	if n.parent.recent == n {
		n.parent.recent = nil
	}
	k := key{n.parent, n.hash}
	switch first := c.nodes[k]; {
	case first != n:
		for first.sibling != n {
			first = first.sibling
		}
		first.sibling = n.sibling
	case n.sibling != nil:
		c.nodes[k] = n.sibling
	default:
		delete(c.nodes, k)
	}
}

func (c *Cache) unlink(n *node) {
	n.prev.next, n.next.prev = n.next, n.prev
}

// touch makes n the most recently used.
func (c *Cache) touch(n *node) {
	c.unlink(n)
	n.prev, n.next = &c.ring, c.ring.next
	n.prev.next, n.next.prev = n, n
}
