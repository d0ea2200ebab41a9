// Package kvindex knows which rank holds which KV-cache blocks, and how much of a
// prompt each rank could take from its cache.
//
// An [Index] takes in what engines say about their caches ([Index.Apply]) and
// answers, for the blocks of a prompt, how many of them each rank holds from the
// first one on ([Index.Match]). Engines name blocks as they like; the index
// translates a rank's names into the content of the block and of all before it, so
// that two engines need not agree on names.
//
// An answer given while events come in is, for each rank, the truth of some instant
// during the call or less than that; it never counts a block that the rank did not
// hold together with all blocks before it.
//
// The package reads no clock and starts no goroutine.
package kvindex

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
)

// Config says how an index behaves. The zero value is an index of what engines
// say, without bounds.
type Config struct {
	// TTL is how long a block is kept after it was last routed or stored. 0 keeps
	// it until it is removed.
	TTL time.Duration
	// MaxBlocks bounds the blocks that all ranks together hold on their devices, a
	// block once for each name that a rank has for it; 0 means no bound. When there
	// are more, those that were routed or stored longest ago go until MaxBlocks times
	// PruneRatio are left. Blocks in other tiers, and orphans, are not counted.
	MaxBlocks int
	// PruneRatio is between 0 and 1; 0 means 0.8.
	PruneRatio float64
	// MaxOrphans bounds, for each rank, the blocks that cannot be placed because a
	// block before them is missing; the oldest are forgotten first. 0 means 65536.
	MaxOrphans int
	// ClearWorker makes an event Cleared of one rank clear all ranks of the worker.
	ClearWorker bool
}

const (
	defaultPruneRatio = 0.8
	defaultMaxOrphans = 65536
)

// Overlap is how much of a prompt a rank holds.
type Overlap struct {
	Source kv.Source
	// Depth is a number of blocks from the beginning of the prompt, by tier:
	// Depth[kv.Device] are in the device's memory, Depth[kv.Host] are these and the
	// ones that follow them in the host's memory, and so on. It never falls from a
	// tier to the next.
	Depth [kv.NumTiers]uint32
}

// Status is how an event ended.
type Status uint8

// The ends of events.
const (
	OK             Status = iota
	ParentNotFound        // the block before those stored is not there (yet); they wait for it
	BlockNotFound         // a block to be removed is not there; the others were removed
	Invalid               // names a block twice, without effect; or a hash of it stands for something else, and the rest is left out
	NumStatus      = 4    // how many there are
)

// Stats is a view of an index at about one instant.
type Stats struct {
	Ranks int
	// Blocks counts blocks of all ranks and tiers, a block once for each rank and
	// tier that holds it. Orphans are those among them that no lookup sees,
	// because a block before them is missing.
	Blocks, Orphans int
	// Bytes is an estimate of the memory that all of it takes.
	Bytes int
	// Applied counts events by kind (Applied[kv.Stored]…) and end.
	Applied [kv.Cleared + 1][NumStatus]uint64
	// Forgotten counts orphans given up because there were too many, Duplicates
	// blocks stored again while they were there, Expired and Pruned blocks that
	// went because of Config.TTL and Config.MaxBlocks.
	Forgotten, Duplicates, Expired, Pruned uint64
}

// RankStats is a view of one rank.
type RankStats struct {
	Source          kv.Source
	Blocks, Orphans int
	// Lost counts the orphans behind a block of which the rank never told. An
	// engine whose words all arrive has none for long.
	Lost int
	// Epoch and Seq are those of the last batch applied or restored, and Known is
	// whether there was one.
	Epoch, Seq uint64
	Known      bool
}
