package router

import (
	"cmp"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
)

// Report takes in what an engine says about its load.
func (r *Router) Report(w kv.WorkerID, loads []engine.Load) {
	for _, p := range r.worker(w).in() {
		p.report(w, loads)
	}
}

func (p *pool) report(w kv.WorkerID, loads []engine.Load) {
	now := p.router.cfg.Now()
	p.mu.Lock()
	for _, s := range p.slots {
		if s.target.Worker != w {
			continue
		}
		for i := range loads {
			if loads[i].Rank == s.target.Rank {
				p.reported(s, now, &loads[i])
			}
		}
	}
	granted := p.drain(now)
	p.mu.Unlock()
	p.tell(now, granted)
}

// reported notes what the engine says about a rank. What runs there beyond what was
// sent from here is somebody else's. Requests begin and end while the engine is asked,
// so that only what two reports in a row have is counted.
func (p *pool) reported(s *slot, now time.Time, l *engine.Load) {
	s.totalBlocks = cmp.Or(l.TotalBlocks, s.totalBlocks)
	s.maxBatched = cmp.Or(l.BatchedLimit, s.maxBatched)
	s.usedBlocks = l.UsedBlocks
	if s.usedBlocks == 0 {
		s.usedBlocks = int(l.Usage * float64(s.totalBlocks))
	}
	ours := p.ledger.Totals(s.seat, true)
	seen := foreign{requests: max(0, l.Running+l.Waiting-ours.Requests)}
	if seen.requests > 0 {
		seen.blocks = max(0, s.usedBlocks-ours.Blocks)
	}
	s.others = foreign{min(seen.requests, s.othersLast.requests), min(seen.blocks, s.othersLast.blocks)}
	s.othersLast, s.reported, s.said = seen, now, *l
}

// staleReports is how many reports may be missing before the last one counts no more.
const staleReports = 3

// fresh reports whether what the engine last said still counts.
func (s *slot) fresh(now time.Time) bool {
	return now.Sub(s.reported) < max(staleReports*s.worker.loadInterval, 15*time.Second)
}
