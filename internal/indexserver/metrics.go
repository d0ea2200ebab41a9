package indexserver

import (
	"net/http"
	"strings"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/metrics"
)

// count exposes the size of the service. Server.mu is held.
func (s *Server) count() {
	workers := 0
	for _, p := range s.pools {
		workers += len(p.workers)
	}
	s.service.SetSize(len(s.pools), workers)
}

// scrape serves the metrics. Listeners are counted by the statuses that /workers shows.
func (s *Server) scrape(exposition http.Handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var n metrics.ListenerCounts
		for _, p := range s.all() {
			links := p.tellers()
			for _, rk := range s.members(p) {
				switch l, _ := rk.listener(links); l.Status {
				case statusPending:
					n.Pending++
				case statusFailed:
					n.Failed++
				default:
					n.Active++
				}
			}
		}
		s.service.SetListeners(n)
		exposition.ServeHTTP(w, r)
		return nil
	}
}

// watch exposes an index until the function it returns is called, without
// Server.mu.
func (s *Server) watch(p *pool) (stop func()) {
	return s.metrics.WatchIndex(p.label(), func() metrics.IndexSample {
		st := p.index.Stats()
		out := metrics.IndexSample{
			Ranks: st.Ranks, Blocks: st.Blocks, Orphans: st.Orphans, Bytes: st.Bytes,
			Stored:     eventCounts(st.Applied[kv.Stored]),
			Removed:    eventCounts(st.Applied[kv.Removed]),
			Cleared:    eventCounts(st.Applied[kv.Cleared]),
			Duplicates: st.Duplicates, Forgotten: st.Forgotten, Expired: st.Expired, Pruned: st.Pruned,
			Skipped: make(map[string]uint64, len(p.skipped)),
		}
		for reason, n := range p.skipped {
			out.Skipped[reason] = n.Load()
		}
		links, told := p.sockets.stats()
		for reason, n := range told {
			out.Skipped[reason] += n
		}
		feeds := make(map[kv.Source]*kvfeed.Stats, len(links))
		for i := range links {
			feeds[links[i].Source] = &links[i].Feed
		}
		for _, r := range s.members(p) {
			out.Feeds = append(out.Feeds, r.sample(feeds[r.src]))
		}
		return out
	})
}

func eventCounts(n [kvindex.NumStatus]uint64) metrics.EventCounts {
	return metrics.EventCounts{n[kvindex.OK], n[kvindex.ParentNotFound], n[kvindex.BlockNotFound], n[kvindex.Invalid]}
}

// label is the model label of a pool's series. The usual group goes without saying,
// unless the model could be taken for one with a group.
func (p *pool) label() string {
	if p.key.group == defaultGroup && !strings.Contains(p.key.model, ":") {
		return p.key.model
	}
	return p.key.String()
}

// sample returns what is counted of a rank, and of the feed of its socket if it has one.
func (r *rank) sample(feed *kvfeed.Stats) metrics.FeedSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := metrics.FeedSample{
		Worker: uint64(r.src.Worker), Rank: r.src.Rank,
		Gaps: r.gaps, Missed: r.missed, Stale: r.stale, Restarts: r.restarts,
	}
	if feed == nil {
		return out
	}
	out.Queue, out.Lag = feed.Queued, feed.Lag
	out.Gaps += feed.Gaps
	out.Missed += feed.Missed
	out.Stale += feed.Stale
	out.Restarts += feed.Restarts
	out.Dropped = feed.Dropped + feed.Overflowed
	out.Recoveries = make(map[string]uint64)
	for o, n := range feed.Recoveries {
		out.Recoveries[kvfeed.Outcome(o).String()] = n
	}
	return out
}
