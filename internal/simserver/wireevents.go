package simserver

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/simengine"
)

// layout is how a release of an engine writes its events. Arrays have all members
// that the release knows, in the order in which releases added them; maps leave out
// those that have a default and nothing else to say.
type layout struct {
	name    string
	kind    simengine.Kind
	batch   int  // elements of a batch: the rank is the third
	stored  int  // elements of an event about blocks stored; 0 where events are maps
	removed int  // elements of one about blocks removed
	salts   bool // SGLang tells the cache salt
	topics  bool // the answers of the replay socket have the topic
	bytes   bool // vLLM writes whole hashes
	polled  bool // events wait to be asked for, as JSON
}

// layouts are all there are, those of each engine from old to new.
var layouts = []layout{
	{name: "vllm-0.9", kind: simengine.VLLM, batch: 2, stored: 6, removed: 2},
	{name: "vllm-0.10.2", kind: simengine.VLLM, batch: 3, stored: 7, removed: 3},
	{name: "vllm-0.14", kind: simengine.VLLM, batch: 3, stored: 8, removed: 3},
	{name: "vllm-0.17", kind: simengine.VLLM, batch: 3, stored: 9, removed: 3},
	{name: "vllm-0.20", kind: simengine.VLLM, batch: 3, stored: 10, removed: 4},
	{name: "vllm-0.22", kind: simengine.VLLM, batch: 3, stored: 12, removed: 4},
	{name: "vllm-0.24", kind: simengine.VLLM, batch: 3},
	{name: "vllm-0.26", kind: simengine.VLLM, batch: 3, topics: true},
	{name: "sglang-0.4.7", kind: simengine.SGLang, batch: 3, stored: 6, removed: 2},
	{name: "sglang-0.5.9", kind: simengine.SGLang, batch: 3, stored: 7, removed: 3},
	{name: "sglang-0.5.18", kind: simengine.SGLang, batch: 3, stored: 7, removed: 3, salts: true},
	{name: "trtllm", kind: simengine.VLLM, polled: true},
}

// cacheGroup is a group of caches: models with several kinds of attention have one for
// each.
type cacheGroup struct {
	index  int
	kind   string
	window int // tokens, 0 for all
}

var (
	mainGroup = cacheGroup{kind: "full_attention"}
	sideGroup = cacheGroup{index: 1, kind: "sliding_window", window: 1024}
)

// storedBlocks is what an event tells of blocks that follow each other.
type storedBlocks struct {
	hashes    []enginehash.Digest
	parent    enginehash.Digest
	hasParent bool // else they are the first of a prompt
	tokens    []uint32
	blockSize int
	adapter   int // its number from 1 on, 0 for none
	lora      string
	salt      string
	group     cacheGroup
}

// wireBatch collects events in MessagePack. Its memory is used again.
type wireBatch struct {
	layout
	n      int
	events []byte
	gone   []enginehash.Digest // the removal that is being collected
}

// The medium of everything here.
const deviceMedium = "GPU"

// reset begins a batch.
func (w *wireBatch) reset(l layout) {
	*w = wireBatch{layout: l, events: w.events[:0], gone: w.gone[:0]}
}

// isMap says whether events are maps.
func (w *wireBatch) isMap() bool { return w.layout.stored == 0 }

// hasGroups says whether events tell which cache group they are about.
func (w *wireBatch) hasGroups() bool {
	return w.kind == simengine.VLLM && (w.isMap() || w.layout.removed >= 4)
}

// begin starts an event of so many members, its type included.
func (w *wireBatch) begin(name string, members int) {
	w.flush()
	w.n++
	if w.isMap() {
		w.events = msgp.AppendMapHeader(w.events, uint32(members))
		w.events = msgp.AppendString(w.events, "type")
	} else {
		w.events = msgp.AppendArrayHeader(w.events, uint32(members))
	}
	w.events = msgp.AppendString(w.events, name)
}

// key names the next member, where members have names.
func (w *wireBatch) key(name string) {
	if w.isMap() {
		w.events = msgp.AppendString(w.events, name)
	}
}

// cleared adds the event that the cache is empty.
func (w *wireBatch) cleared() { w.begin("AllBlocksCleared", 1) }

// stored adds an event about blocks stored.
func (w *wireBatch) stored(s *storedBlocks) {
	members := w.layout.stored
	metadata := w.salts && s.salt != ""
	if w.isMap() {
		members = 11
		if s.group.window != 0 {
			members++
		}
	} else if metadata {
		members++
	}
	w.begin("BlockStored", members)
	w.key("block_hashes")
	w.hashes(s.hashes)
	w.key("parent_block_hash")
	if s.hasParent {
		w.hash(&s.parent)
	} else {
		w.events = msgp.AppendNil(w.events)
	}
	w.key("token_ids")
	w.events = appendTokens(w.events, s.tokens)
	w.key("block_size")
	w.events = msgp.AppendUint64(w.events, uint64(s.blockSize))
	w.key("lora_id")
	if s.adapter == 0 || w.kind == simengine.SGLang {
		w.events = msgp.AppendNil(w.events)
	} else {
		w.events = msgp.AppendUint64(w.events, uint64(s.adapter))
	}
	if w.kind == simengine.VLLM {
		w.storedTail(s)
		return
	}
	if w.layout.stored >= 7 {
		w.events = msgp.AppendString(w.events, deviceMedium)
	}
	if metadata {
		w.events = msgp.AppendMapHeader(w.events, 1)
		w.events = msgp.AppendString(w.events, "cache_salt")
		w.events = msgp.AppendString(w.events, s.salt)
	}
}

// storedTail adds what later releases of vLLM added to an event about blocks stored.
func (w *wireBatch) storedTail(s *storedBlocks) {
	most := w.layout.stored
	if w.isMap() {
		most = 12
	}
	for i := 6; i < most; i++ {
		switch i {
		case 6:
			w.key("medium")
			w.events = msgp.AppendString(w.events, deviceMedium)
		case 7:
			w.key("lora_name")
			if s.lora == "" {
				w.events = msgp.AppendNil(w.events)
			} else {
				w.events = msgp.AppendString(w.events, s.lora)
			}
		case 8:
			w.key("extra_keys")
			w.extraKeys(s)
		case 9:
			w.key("group_idx")
			w.events = msgp.AppendUint64(w.events, uint64(s.group.index))
		case 10:
			w.key("kv_cache_spec_kind")
			w.events = msgp.AppendString(w.events, s.group.kind)
		case 11:
			if s.group.window != 0 {
				w.key("kv_cache_spec_sliding_window")
				w.events = msgp.AppendUint64(w.events, uint64(s.group.window))
			} else if !w.isMap() {
				w.events = msgp.AppendNil(w.events)
			}
		}
	}
}

// extraKeys adds what besides tokens each block is made of.
func (w *wireBatch) extraKeys(s *storedBlocks) {
	w.events = msgp.AppendArrayHeader(w.events, uint32(len(s.hashes)))
	for i := range s.hashes {
		salted := s.salt != "" && i == 0 && !s.hasParent
		n := uint32(0)
		if s.lora != "" {
			n++
		}
		if salted {
			n++
		}
		if n == 0 {
			w.events = msgp.AppendNil(w.events)
			continue
		}
		w.events = msgp.AppendArrayHeader(w.events, n)
		if s.lora != "" {
			w.events = msgp.AppendString(w.events, s.lora)
		}
		if salted {
			w.events = msgp.AppendString(w.events, s.salt)
		}
	}
}

// removed adds a block that was removed. vLLM has an event for each; SGLang has one
// for those that go together.
func (w *wireBatch) removed(d enginehash.Digest, g cacheGroup) {
	if w.kind == simengine.SGLang {
		w.gone = append(w.gone, d)
		return
	}
	members := w.layout.removed
	if w.isMap() {
		members = 4
	}
	w.begin("BlockRemoved", members)
	w.key("block_hashes")
	w.events = msgp.AppendArrayHeader(w.events, 1)
	w.hash(&d)
	if members >= 3 {
		w.key("medium")
		w.events = msgp.AppendString(w.events, deviceMedium)
	}
	if members >= 4 {
		w.key("group_idx")
		w.events = msgp.AppendUint64(w.events, uint64(g.index))
	}
}

// flush writes the removal that was being collected.
func (w *wireBatch) flush() {
	if len(w.gone) == 0 {
		return
	}
	gone := w.gone
	w.gone = w.gone[:0]
	w.begin("BlockRemoved", w.layout.removed)
	w.hashes(gone)
	if w.layout.removed >= 3 {
		w.events = msgp.AppendString(w.events, deviceMedium)
	}
}

func (w *wireBatch) hashes(ds []enginehash.Digest) {
	w.events = msgp.AppendArrayHeader(w.events, uint32(len(ds)))
	for i := range ds {
		w.hash(&ds[i])
	}
}

// hash adds a block's hash as the engine shows it.
func (w *wireBatch) hash(d *enginehash.Digest) {
	switch {
	case w.kind == simengine.SGLang:
		if h := int64(d.First()); h < 0 {
			w.events = msgp.AppendInt64(w.events, h)
		} else {
			w.events = msgp.AppendUint64(w.events, uint64(h))
		}
	case w.bytes:
		w.events = msgp.AppendBytes(w.events, d[:])
	default:
		w.events = msgp.AppendUint64(w.events, uint64(d.Last()))
	}
}

// payload returns the batch as a message of its own memory. At is Unix time in
// seconds.
func (w *wireBatch) payload(at float64, rank int) []byte {
	w.flush()
	b := make([]byte, 0, len(w.events)+24)
	b = msgp.AppendArrayHeader(b, uint32(w.batch))
	b = msgp.AppendFloat64(b, at)
	b = msgp.AppendArrayHeader(b, uint32(w.n))
	b = append(b, w.events...)
	if w.batch >= 3 {
		b = msgp.AppendUint64(b, uint64(rank))
	}
	return b
}

// appendTokens appends an array of tokens, each in its shortest form.
func appendTokens(b []byte, tokens []uint32) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, t := range tokens {
		switch {
		case t < 1<<7:
			b = append(b, byte(t))
		case t <= math.MaxUint8:
			b = append(b, 0xcc, byte(t))
		case t <= math.MaxUint16:
			b = binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(t))
		default:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), t)
		}
	}
	return b
}

// endOfReplay is the sequence number that ends the answers of a replay socket.
var endOfReplay = binary.BigEndian.AppendUint64(nil, math.MaxUint64)
