// Package kv models what engines say about their KV caches: which blocks a rank
// stored, removed or cleared.
//
// Every source of such news (the simulator, an engine's event socket, polling, a
// peer) produces the same value, a [Batch], and hands it to one [Applier]. Three
// wire forms become batches here: an event as JSON ([AppendJSON], [ParseJSON]), the
// same as MessagePack ([AppendMsgpack], [ParseMsgpack]), and what engines publish
// ([ParseMessage], [Decoder]). The package imports no network package and never
// reads the clock.
package kv

import "strconv"

// WorkerID names an engine server. Zero is never a worker. Ids given to workers
// by URL stay below 2^53 so that JavaScript reads them unharmed; ids taken from
// the wire may be any uint64 and must never pass through a float.
type WorkerID uint64

// LocalHash identifies the tokens of one block without regard to what precedes
// it.
type LocalHash uint64

// BlockID is an engine's own name for a block. It is opaque: two engines need
// not agree on it.
type BlockID uint64

// Tier is where a copy of a block lies.
type Tier uint8

// The tiers, from near to far.
const (
	Device   Tier = iota // the accelerator's own memory
	Host                 // the host's memory
	Disk                 // a disk of the host
	External             // a store that hosts share
	NumTiers = 4         // how many there are
)

var tierNames = [NumTiers]string{"device", "host_pinned", "disk", "external"}

// String returns the tier's name on the wire: device, host_pinned, disk or
// external.
func (t Tier) String() string {
	if t < NumTiers {
		return tierNames[t]
	}
	return "tier " + strconv.Itoa(int(t))
}

// ParseTier returns the tier that [Tier.String] writes as name, and whether there
// is one.
func ParseTier(name string) (Tier, bool) {
	for t, n := range tierNames {
		if n == name {
			return Tier(t), true
		}
	}
	return 0, false
}

// ParseMedium returns the tier that engines mean by a medium, in capital letters
// as they write it. None at all is the device. It reports false for a medium that
// is not a tier of the engine's own, such as the file and object stores of vLLM.
func ParseMedium(medium string) (Tier, bool) {
	switch medium {
	case "", "GPU", "DEVICE":
		return Device, true
	case "CPU", "CPU_PINNED", "CPU_TIER1":
		return Host, true
	case "CPU_TIER2", "DISK", "NVME", "STORAGE":
		return Disk, true
	case "EXTERNAL", "NETWORK", "REMOTE", "SHARED":
		return External, true
	}
	return 0, false
}

// Source is the origin of a batch, the unit that owns blocks and counts its
// messages: one data-parallel rank of one worker.
type Source struct {
	Worker WorkerID
	Rank   uint32
}

// Batch is what one source says at once. Within an epoch Seq grows by one per
// batch; a gap means loss, and a new epoch means that the source restarted with
// an empty cache. The receiver owns the batch.
type Batch struct {
	Source Source
	Epoch  uint64
	Seq    uint64
	Events []Event
	// Payload, where it is not nil, is what the batch was made of and Events are still
	// to be read from, see [Decoder]: they say only whether it clears the cache. No
	// Applier that looks at events takes such a batch.
	Payload []byte
}

// Applier takes batches in. Apply returns an error only when the batch as a
// whole could not be taken; a bad event inside is skipped and counted by the
// receiver. Implementations are safe for concurrent use by different sources;
// batches of one source come one after another.
type Applier interface {
	Apply(*Batch) error
}

// Kind says what an event does.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota + 1 // blocks were added after Parent
	Removed                 // blocks were evicted
	Cleared                 // the rank's cache is empty
)

// String returns stored, removed or cleared.
func (k Kind) String() string {
	switch k {
	case Stored:
		return "stored"
	case Removed:
		return "removed"
	case Cleared:
		return "cleared"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Event is one change of a rank's cache.
type Event struct {
	Kind Kind
	// Tier is where the blocks were stored or removed. Cleared empties all.
	Tier Tier
	// Counted says that the engine tells of every copy of a block: one that was
	// stored twice is there until it has been removed twice. Otherwise the first
	// removal ends it, however often it was stored.
	Counted bool
	// Bare says that only the IDs of the blocks stored are known: copies of blocks
	// that the rank holds, or has told of, in another tier.
	Bare bool
	// HasParent is whether the first of Blocks follows Parent; it is false for the
	// first block of a prompt. HasParentSeq is whether the sequence hash of that
	// block is known, as it is in a dump. Then ParentSeq counts, and not what Parent
	// has become meanwhile. Stored only.
	HasParent, HasParentSeq bool
	Parent, ParentSeq       BlockID
	// Blocks are the blocks stored, in prompt order, or the blocks removed, of
	// which only the ID is set.
	Blocks []Block
}

// Block is one block of an event.
type Block struct {
	ID     BlockID
	Tokens LocalHash // of Stored only
}
