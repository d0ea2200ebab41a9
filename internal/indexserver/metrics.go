package indexserver

import (
	"net/http"
	"strings"

	"github.com/stator-ai/stator/internal/kv"
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
			for _, rk := range s.members(p) {
				if rk.listener().Status == statusPending {
					n.Pending++
				} else {
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
		for _, r := range s.members(p) {
			out.Feeds = append(out.Feeds, r.sample())
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

func (r *rank) sample() metrics.FeedSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return metrics.FeedSample{
		Worker: uint64(r.src.Worker), Rank: r.src.Rank,
		Gaps: r.gaps, Missed: r.missed, Stale: r.stale, Restarts: r.restarts,
	}
}
