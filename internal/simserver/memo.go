package simserver

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"github.com/stator-ai/stator/internal/tokenize"
)

const (
	memoSlots = 256
	maxMemo   = 4 << 10 // bytes of a body that is remembered
)

// memo remembers the prompts of chats by their bodies. Who measures a proxy sends the
// same request over and over, and should not wait for it to be rendered each time. A
// body that falls into the slot of another takes its place. Safe for concurrent use.
type memo struct {
	seed  maphash.Seed
	slots [memoSlots]atomic.Pointer[remembered]
}

type remembered struct {
	body    string
	dress   Dress // which decides what the body means
	hashing tokenize.Hashing
	prompt  prompt
}

func newMemo() *memo { return &memo{seed: maphash.MakeSeed()} }

func (m *memo) slot(body []byte) *atomic.Pointer[remembered] {
	return &m.slots[maphash.Bytes(m.seed, body)%memoSlots]
}

// get returns the prompt of a body that was put.
func (m *memo) get(body []byte, d Dress, h tokenize.Hashing) (prompt, bool) {
	if len(body) > maxMemo {
		return prompt{}, false
	}
	if r := m.slot(body).Load(); r != nil && r.dress == d && r.hashing == h && r.body == string(body) {
		return r.prompt, true
	}
	return prompt{}, false
}

// put remembers a prompt, which must not be changed after that.
func (m *memo) put(body []byte, d Dress, h tokenize.Hashing, p prompt) {
	if len(body) > maxMemo {
		return
	}
	p.ids, p.blocks = slices.Clip(p.ids), slices.Clip(p.blocks)
	m.slot(body).Store(&remembered{string(body), d, h, p})
}
