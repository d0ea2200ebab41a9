package kv

import "strconv"

// Reason says why a [Decoder] left an event out.
type Reason uint8

// The reasons.
const (
	// IgnoredEvent is an event of a type that says nothing about blocks, or of one
	// that is not known.
	IgnoredEvent Reason = iota
	// NonLocalLocality is an event about storage that another engine owns.
	NonLocalLocality
	// UnknownMedium is an event about a medium that is none of the tiers.
	UnknownMedium
	// AmbiguousCacheNamespace is a block after one that was stored under two cache
	// salts, so that its own is not known.
	AmbiguousCacheNamespace
	// NonMainAttentionKind is an event about a cache that holds less than the whole
	// prompt, such as that of a sliding window.
	NonMainAttentionKind
	// UnknownKind is an event about a kind of cache that is not known.
	UnknownKind
	// NonMainAttentionGroup is an event about a group of such caches.
	NonMainAttentionGroup
	// UnlearnedGroupIdx is an event about a group of which no event has told the kind,
	// unless it is the first and no other is known to hold whole prompts.
	UnlearnedGroupIdx
	// OtherMainGroup is an event about a group of caches that hold whole prompts, but
	// is not the lowest of them. Each such group tells of the same blocks.
	OtherMainGroup
	// BlockSizeMismatch is an event with a block size other than that of the rank,
	// see [Decoder.Mismatch].
	BlockSizeMismatch
	// PartialBlock is a single block that is smaller than the others.
	PartialBlock
	// TokenCount is an event whose tokens are too few or too many for its blocks, so
	// that it is not known which belong to which.
	TokenCount
	// UnnamedAdapter is an event about an adapter that is known by number only.
	UnnamedAdapter
	// SelfReference is an event that names a block twice, or a block as its own
	// parent.
	SelfReference
	// TooLarge is an event with more blocks, tokens or objects than an engine sends, or
	// one after more events or blocks than a batch has.
	TooLarge
	// Malformed is an event that lacks something, or has it in another type. A batch
	// whose rank is not one counts as well, though its events are used.
	Malformed

	NumReasons = 16 // how many there are
)

var reasonNames = [NumReasons]string{
	"ignored_event",
	"non_local_locality",
	"unknown_medium",
	"ambiguous_cache_namespace",
	"non_main_attention_kind",
	"unknown_kind",
	"non_main_attention_group",
	"unlearned_group_idx",
	"other_main_group",
	"block_size_mismatch",
	"partial_block",
	"token_count",
	"unnamed_adapter",
	"self_reference",
	"too_large",
	"malformed",
}

// String returns the reason as a label, such as unknown_medium.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}
