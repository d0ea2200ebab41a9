package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// EventCounts counts events of one kind by how they ended, in this order: they
// were applied, the parent of the blocks was not found, a block was not found,
// they were invalid.
type EventCounts [4]uint64

var eventStatuses = [len(EventCounts{})]string{"ok", "parent_block_not_found", "block_not_found", "invalid_block"}

// IndexSample is the state of an index and its feeds at about one instant. What
// is counted never goes down from one sample to the next.
type IndexSample struct {
	Ranks int
	// Blocks counts blocks of all ranks and tiers, Orphans those among them that
	// no lookup finds.
	Blocks, Orphans int
	Bytes           int

	// What was counted since the beginning.
	Stored, Removed, Cleared               EventCounts
	Duplicates, Forgotten, Expired, Pruned uint64
	// Skipped counts events of engines that were left out, by reason.
	Skipped map[string]uint64

	Feeds []FeedSample
}

// FeedSample is the state of the feed of one rank, counted since it began.
type FeedSample struct {
	Worker uint64
	Rank   uint32
	// Queue is how many batches wait, and Lag how long the oldest has waited.
	Queue int
	Lag   time.Duration

	Gaps, Missed, Stale, Restarts, Dropped uint64
	// Recoveries counts attempts to recover what was missed, by outcome.
	Recoveries map[string]uint64
}

// The reasons for which events are left out and the outcomes of recoveries. Any
// other value is counted as "other".
var (
	eventSkipReasons = []string{
		"ignored_event", "non_local_locality", "unknown_medium", "unsupported_ownership",
		"unknown_ownership", "ambiguous_cache_namespace", "non_main_attention_kind",
		"unknown_kind", "non_main_attention_group", "unlearned_group_idx", "other_main_group",
		"block_size_mismatch", "partial_block", "token_count", "unnamed_adapter",
		"self_reference", "too_large", "malformed", "not_registered", "too_many_ranks", other,
	}
	recoveryOutcomes = []string{
		"events", "dump", "too_new", "gone", "failed", "superseded", "exhausted", other,
	}
)

// WatchIndex exposes the index of a served model. The sample function is called
// whenever metrics are scraped, from any goroutine and with no lock held. Indexes
// of the same model share their series, which show sums.
//
// Call stop once when the index goes: it takes a last sample, so that sums with
// other indexes keep what this one counted. The series of its feeds end. A scrape
// that is under way may call sample once more after that.
func (s *Set) WatchIndex(model string, sample func() IndexSample) (stop func()) {
	w := &indexWatch{labelValue(model), sample}
	s.fam.indexes.add(w)
	return sync.OnceFunc(func() { s.fam.indexes.remove(w, sample()) })
}

type indexWatch struct {
	model  string
	sample func() IndexSample
}

// indexTotals are sums over indexes.
type indexTotals struct {
	IndexSample // without the two that are below
	skipped     []uint64
	feeds       map[feedKey]*feedTotals
}

type feedKey struct {
	worker uint64
	rank   uint32
}

type feedTotals struct {
	FeedSample
	recoveries []uint64
}

// addCounted adds what an index counted. Its feeds count for themselves.
func (t *indexTotals) addCounted(s *IndexSample) {
	for i := range eventStatuses {
		t.Stored[i] += s.Stored[i]
		t.Removed[i] += s.Removed[i]
		t.Cleared[i] += s.Cleared[i]
	}
	t.Duplicates += s.Duplicates
	t.Forgotten += s.Forgotten
	t.Expired += s.Expired
	t.Pruned += s.Pruned
	t.skipped = addListed(t.skipped, eventSkipReasons, s.Skipped)
}

// add adds all there is to an index.
func (t *indexTotals) add(s *IndexSample) {
	t.addCounted(s)
	t.Ranks += s.Ranks
	t.Blocks += s.Blocks
	t.Orphans += s.Orphans
	t.Bytes += s.Bytes
	for i := range s.Feeds {
		f := &s.Feeds[i]
		key := feedKey{f.Worker, f.Rank}
		sum := t.feeds[key]
		if sum == nil {
			sum = new(feedTotals)
			t.feeds[key] = sum
		}
		sum.Queue += f.Queue
		sum.Lag = max(sum.Lag, f.Lag)
		sum.Gaps += f.Gaps
		sum.Missed += f.Missed
		sum.Stale += f.Stale
		sum.Restarts += f.Restarts
		sum.Dropped += f.Dropped
		sum.recoveries = addListed(sum.recoveries, recoveryOutcomes, f.Recoveries)
	}
}

// addListed adds counts to sums that are in the order of a list.
func addListed(sums []uint64, list []string, counts map[string]uint64) []uint64 {
	if sums == nil {
		sums = make([]uint64, len(list))
	}
	for name, n := range counts {
		sums[index(list, name)] += n
	}
	return sums
}

// indexCollector exposes the indexes that are watched.
type indexCollector struct {
	descs
	fam *families

	mu      sync.Mutex
	watched map[*indexWatch]struct{}
	used    bool                    // there was an index
	past    indexTotals             // what indexes counted that are gone
	gone    map[string]*indexTotals // the same for models that have others
}

var _ prometheus.Collector = (*indexCollector)(nil)

func newIndexCollector(r registrar) *indexCollector {
	return &indexCollector{descs: descs{r: r}, watched: make(map[*indexWatch]struct{}), gone: make(map[string]*indexTotals)}
}

func (c *indexCollector) add(w *indexWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched[w] = struct{}{}
	c.used = true
}

func (c *indexCollector) remove(w *indexWatch, last IndexSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watched, w)
	c.past.addCounted(&last)
	for o := range c.watched {
		if o.model != w.model {
			continue
		}
		if c.gone[w.model] == nil {
			c.gone[w.model] = new(indexTotals)
		}
		c.gone[w.model].addCounted(&last)
		return
	}
	delete(c.gone, w.model)
}

// Collect implements prometheus.Collector.
func (c *indexCollector) Collect(ch chan<- prometheus.Metric) {
	all, models, watched := c.begin()
	if all == nil {
		return
	}
	for _, w := range watched {
		s := w.sample()
		all.addCounted(&s)
		models[w.model].add(&s)
	}
	e := exposer{ch}
	for i, status := range eventStatuses {
		e.counter(c.fam.eventsApplied, all.Stored[i], "stored", status)
		e.counter(c.fam.eventsApplied, all.Removed[i], "removed", status)
		e.counter(c.fam.eventsApplied, all.Cleared[i], "cleared", status)
	}
	e.counter(c.fam.eventWarnings, all.Duplicates, "duplicate_store")
	for model, t := range models {
		c.collectModel(e, model, t)
	}
}

// begin returns what is known before any index is asked, and the indexes to ask;
// nil if there never was one.
func (c *indexCollector) begin() (all *indexTotals, models map[string]*indexTotals, watched []*indexWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.used {
		return nil, nil, nil
	}
	all = c.past.clone()
	models = make(map[string]*indexTotals)
	for w := range c.watched {
		watched = append(watched, w)
		if models[w.model] != nil {
			continue
		}
		if g := c.gone[w.model]; g != nil {
			models[w.model] = g.clone()
		} else {
			models[w.model] = new(indexTotals).clone()
		}
	}
	return all, models, watched
}

// clone copies what was counted.
func (t *indexTotals) clone() *indexTotals {
	c := &indexTotals{feeds: make(map[feedKey]*feedTotals)}
	c.addCounted(&t.IndexSample)
	copy(c.skipped, t.skipped)
	return c
}

func (c *indexCollector) collectModel(e exposer, model string, t *indexTotals) {
	e.gauge(c.fam.indexRanks, float64(t.Ranks), model)
	e.gauge(c.fam.indexBlocks, float64(t.Blocks), model)
	e.gauge(c.fam.indexOrphans, float64(t.Orphans), model)
	e.gauge(c.fam.indexBytes, float64(t.Bytes), model)
	e.counter(c.fam.indexForgotten, t.Forgotten, model)
	e.counter(c.fam.indexExpired, t.Expired, model)
	e.counter(c.fam.indexPruned, t.Pruned, model)
	for i, n := range t.skipped {
		if n > 0 {
			e.counter(c.fam.eventsSkipped, n, model, eventSkipReasons[i])
		}
	}
	for key, f := range t.feeds {
		rank := "none"
		if key.rank != NoRank {
			rank = strconv.FormatUint(uint64(key.rank), 10)
		}
		labels := []string{model, strconv.FormatUint(key.worker, 10), rank}
		e.gauge(c.fam.feedQueueDepth, float64(f.Queue), labels...)
		e.gauge(c.fam.feedLag, seconds(f.Lag), labels...)
		e.counter(c.fam.feedGaps, f.Gaps, labels...)
		e.counter(c.fam.feedMissed, f.Missed, labels...)
		e.counter(c.fam.feedStale, f.Stale, labels...)
		e.counter(c.fam.feedRestarts, f.Restarts, labels...)
		e.counter(c.fam.feedDropped, f.Dropped, labels...)
		for i, n := range f.recoveries {
			if n > 0 {
				e.counter(c.fam.feedRecoveries, n, append(labels, recoveryOutcomes[i])...)
			}
		}
	}
}
