package router

import (
	"cmp"
	"time"

	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/sched"
)

// KVConfig says how mode kv works. The zero value is the default.
type KVConfig struct {
	// Cost is what a placement costs; nil means [sched.DefaultCost]. With a prefill
	// scale of 0 nothing is asked about caches.
	Cost *sched.Cost
	// NoEvents takes no notice of what engines say about their caches: what has been
	// sent to a rank is taken to be there, for as long as TTL.
	NoEvents bool
	// TTL, MaxBlocks and PruneRatio bound what is taken to be in the caches of ranks
	// that do not tell; 0 means 2 min, 1,048,576 and 0.8, and a negative TTL for ever.
	TTL        time.Duration
	MaxBlocks  int
	PruneRatio float64
	// NoReuse counts the blocks of every request as its own.
	NoReuse bool
	// NoActiveBlocks leaves blocks out of the load.
	NoActiveBlocks bool
	// TrackOutput counts the blocks of answers into the load, less and less as an
	// answer nears its expected length.
	TrackOutput bool
	// SlowStart is for how long a worker that has just come is chosen less.
	SlowStart time.Duration
	// NoTrust gives the same credit for cached blocks to a worker whose cache holds
	// less than predicted.
	NoTrust bool
	// NoText leaves prompts without tokens to load alone.
	NoText bool
}

func (c KVConfig) withDefaults() KVConfig {
	if c.Cost == nil {
		c.Cost = new(sched.DefaultCost())
	}
	c.TTL = cmp.Or(c.TTL, 2*time.Minute)
	c.MaxBlocks = cmp.Or(c.MaxBlocks, 1<<20)
	c.PruneRatio = cmp.Or(c.PruneRatio, 0.8)
	return c
}

// indexes returns the index of what engines tell and that of what was sent to those
// that do not. They are nil where nobody asks.
func (c *Config) indexes() (told, sent *kvindex.Index) {
	if c.Mode != KV || c.KV.Cost.PrefillScale == 0 && c.Selector == nil {
		return nil, nil
	}
	if !c.KV.NoEvents {
		told = kvindex.New(kvindex.Config{})
	}
	return told, kvindex.New(kvindex.Config{TTL: max(c.KV.TTL, 0), MaxBlocks: c.KV.MaxBlocks, PruneRatio: c.KV.PruneRatio})
}

// QueueConfig says how requests wait.
type QueueConfig struct {
	sched.QueueConfig
	// MaxWait is how long; 0 means for ever.
	MaxWait time.Duration
	// RefreshAfter is after how long a request that waits is looked up again in the
	// caches before it is placed; 0 means 10 s, and less never.
	RefreshAfter time.Duration
}
