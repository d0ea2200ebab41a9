package kvlink

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/zmtp"
	"github.com/tinylib/msgp/msgp"
)

const blockSize = 4

// held is a block as an engine holds it.
type held struct {
	ID, Parent kv.BlockID
	HasParent  bool
	Tokens     kv.LocalHash
}

// said is a batch as an engine published it.
type said struct {
	seq     uint64
	payload []byte
}

// model is a rank of an engine: a cache that changes and says so. Half of its prompts
// are salted, which only the event about their first block tells.
type model struct {
	rng   *rand.Rand
	rank  uint32
	mute  bool // batches do not name the rank
	clock float64
	seq   uint64
	cache map[kv.BlockID]held
	past  []said
}

func newModel(seed uint64, rank uint32) *model {
	m := &model{rng: rand.New(rand.NewPCG(seed, 7)), rank: rank, clock: 1_700_000_000}
	m.restart()
	return m
}

// restart empties the cache and forgets what was said.
func (m *model) restart() { m.cache, m.seq, m.past = map[kv.BlockID]held{}, 0, nil }

const salted kv.BlockID = 1 << 62

func child(parent kv.BlockID, local uint32) kv.BlockID { return parent*4 + kv.BlockID(local) + 1 }

// step changes the cache in some way and returns what it says.
func (m *model) step() said {
	var events [][]byte
	for range 1 + m.rng.IntN(3) {
		if m.rng.IntN(100) < 60 || len(m.cache) == 0 {
			events = append(events, m.store())
		} else {
			events = append(events, m.evict())
		}
	}
	return m.say(events...)
}

// say publishes events as the next batch.
func (m *model) say(events ...[]byte) said {
	m.clock += 0.125
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, m.clock)
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for _, ev := range events {
		b = append(b, ev...)
	}
	if m.mute {
		b = msgp.AppendNil(b)
	} else {
		b = msgp.AppendUint32(b, m.rank)
	}
	return m.keep(b)
}

// keep numbers a payload and keeps it for who asks.
func (m *model) keep(payload []byte) said {
	out := said{m.seq, payload}
	m.seq++
	m.past = append(m.past, out)
	return out
}

// store adds some blocks at the end of a prefix that is held.
func (m *model) store() []byte {
	var salt kv.BlockID
	if m.rng.IntN(2) == 0 {
		salt = salted
	}
	var parent kv.BlockID
	for m.rng.IntN(3) > 0 && parent < 1<<50 {
		id := child(parent, uint32(m.rng.IntN(3)))
		if _, ok := m.cache[id|salt]; !ok {
			break
		}
		parent = id
	}
	first := parent
	var ids []kv.BlockID
	var tokens []uint32
	for range 1 + m.rng.IntN(3) {
		local := uint32(m.rng.IntN(3))
		id := child(parent, local)
		if _, ok := m.cache[id|salt]; ok && len(ids) > 0 {
			break
		} else if ok {
			parent, first = id, id
			continue
		}
		seed := kv.HashSeed("", "")
		if salt != 0 {
			seed = kv.HashSeed("", "tenant")
		}
		of := []uint32{local, local, local, local}
		tokens, ids = append(tokens, of...), append(ids, id|salt)
		m.cache[id|salt] = held{id | salt, orZero(parent, salt), parent != 0, kv.HashTokens(seed, of)}
		parent = id
	}
	return stored(orZero(first, salt), first != 0, ids, tokens, salt != 0)
}

func orZero(id, salt kv.BlockID) kv.BlockID {
	if id == 0 {
		return 0
	}
	return id | salt
}

// stored is an event as vLLM 0.17 sends it.
func stored(parent kv.BlockID, has bool, ids []kv.BlockID, tokens []uint32, salt bool) []byte {
	b := msgp.AppendArrayHeader(nil, 9)
	b = msgp.AppendString(b, "BlockStored")
	b = hashes(b, ids)
	if has {
		b = msgp.AppendUint64(b, uint64(parent))
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(len(tokens)))
	for _, t := range tokens {
		b = msgp.AppendUint32(b, t)
	}
	b = msgp.AppendInt(b, blockSize)
	b = msgp.AppendNil(b)
	b = msgp.AppendString(b, "GPU")
	b = msgp.AppendNil(b)
	b = msgp.AppendArrayHeader(b, uint32(len(ids)))
	for i := range ids {
		if i > 0 || has || !salt {
			b = msgp.AppendNil(b)
			continue
		}
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendString(b, "tenant")
	}
	return b
}

func hashes(b []byte, ids []kv.BlockID) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(ids)))
	for _, id := range ids {
		b = msgp.AppendUint64(b, uint64(id))
	}
	return b
}

// evict removes a block that no other follows.
func (m *model) evict() []byte {
	var leaf kv.BlockID
	for id := range m.cache { // always the same one, so that a run can be repeated
		leafy := true
		for local := range uint32(3) {
			if _, ok := m.cache[child(id&^salted, local)|id&salted]; ok {
				leafy = false
			}
		}
		if leafy && (leaf == 0 || mix(id) < mix(leaf)) {
			leaf = id
		}
	}
	delete(m.cache, leaf)
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendString(b, "BlockRemoved")
	b = hashes(b, []kv.BlockID{leaf})
	return msgp.AppendString(b, "GPU")
}

func mix(id kv.BlockID) uint64 { return uint64(id) * 0x9E3779B97F4A7C15 }

// wipe empties the cache and says so.
func (m *model) wipe() said {
	clear(m.cache)
	return m.say(msgp.AppendString(msgp.AppendArrayHeader(nil, 1), "AllBlocksCleared"))
}

// message returns a batch in frames as a publisher sends it.
func (s said) message() zmtp.Message {
	return zmtp.Message{[]byte("kv"), binary.BigEndian.AppendUint64(nil, s.seq), s.payload}
}

// replies returns the messages of an answer, with the topic as vLLM sends it since 0.26 or
// without it, and the end marker.
func (m *model) replies(from uint64, topic bool) []zmtp.Message {
	var all []zmtp.Message
	head := func() zmtp.Message {
		if topic {
			return zmtp.Message{{}, []byte("kv")}
		}
		return zmtp.Message{{}}
	}
	for _, b := range m.past {
		if b.seq >= from {
			all = append(all, append(head(), b.message()[1:]...))
		}
	}
	end := head()
	if topic {
		end[1] = nil
	}
	return append(all, append(end, binary.BigEndian.AppendUint64(nil, 1<<64-1), nil))
}
