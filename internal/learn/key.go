package learn

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// Hash stands for some content. The zero Hash stands for nothing at all, which is not the
// same as for no bytes.
type Hash struct{ Hi, Lo uint64 }

// Add returns the hash of what h stands for, followed by b as a piece of its own: two
// pieces are not the same as one that joins them. It is never zero.
func (h Hash) Add(b []byte) Hash { return joined(xxh3.Hash128Seed(b, h.seed(len(b)))) }

// AddString is Add for a string.
func (h Hash) AddString(s string) Hash {
	return joined(xxh3.HashString128Seed(s, h.seed(len(s))))
}

func (h Hash) seed(size int) uint64 {
	const odd = 0x9E3779B97F4A7C15
	return (h.Hi*odd ^ bits.RotateLeft64(h.Lo, 32)) + uint64(size)*odd + h.Lo
}

func joined(sum xxh3.Uint128) Hash {
	if sum == (xxh3.Uint128{}) {
		sum.Lo = 1
	}
	return Hash{Hi: sum.Hi, Lo: sum.Lo}
}

// ScopeOf returns the scope of a tenant's calls to a model.
func ScopeOf(model, tenant string) Hash { return Hash{}.AddString(model).AddString(tenant) }

// Turn is what is known of a call's place in its conversation.
type Turn uint8

const (
	// AnyTurn: the conversation's name is the client's, and which call of it this is is
	// seen from the calls before.
	AnyTurn Turn = iota
	// FirstTurn: the call begins a conversation. One that had the same name is over.
	FirstTurn
	// LaterTurn: there were calls before, whether or not they were seen.
	LaterTurn
)

// Key says what a call belongs to.
type Key struct {
	// Scope is what its observations are kept apart by: [ScopeOf].
	Scope Hash
	// Family is what it has in common with other conversations.
	Family Hash
	// Conversation names its conversation. Zero is for a call that belongs to none: it is
	// the first of its kind, and nothing is expected to follow.
	Conversation Hash
	// Turn is its place in the conversation.
	Turn Turn
	// Last says that no call of the conversation will follow.
	Last bool
}

// name is that of a family or a conversation.
type name struct{ scope, id Hash }

func (k *Key) family() name       { return name{k.Scope, k.Family} }
func (k *Key) conversation() name { return name{k.Scope, k.Conversation} }

// alone reports whether the call belongs to no conversation.
func (k *Key) alone() bool { return k.Conversation == Hash{} }
