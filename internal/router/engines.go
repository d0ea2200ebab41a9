package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/nvext"
)

// EngineStatus is a worker as its operator sees it.
type EngineStatus struct {
	ID    kv.WorkerID
	Name  string
	State nvext.State // of the worker; what is overloaded is a rank
	// Tripped says that it is left alone because its requests kept failing.
	Tripped bool
	// Info is what it said it is, nil if it never did. It must not be changed.
	Info *engine.Info
	// Since is when it came, and Answered when it last gave a first token; zero if it
	// did not.
	Since, Answered time.Time
	Ranks           []RankStatus
	// Warnings are those of Info and what showed since.
	Warnings []engine.Warning
}

// RankStatus is one rank of a worker in the pool of one model.
type RankStatus struct {
	Rank      uint32
	Model     string
	BlockSize int // tokens in a block, 0 if unknown
	Inflight  int // requests sent from here
	// PrefillTokens are prompt tokens of those that have to be computed yet, and
	// ActiveBlocks the blocks that they hold.
	PrefillTokens, ActiveBlocks int
	Foreign                     int // requests that came from elsewhere, as far as the engine tells
	TotalBlocks                 int // 0 if unknown
	// Running, Waiting and UsedBlocks are what the engine said at Reported, which is
	// zero if it did not.
	Running, Waiting, UsedBlocks int
	Reported                     time.Time
	// Told says that what the rank holds is known from its events; Held is how many
	// blocks that are, or what was sent there lately.
	Told bool
	Held int64
	// Trust is how far predictions about its cache come true, 0 to 1.
	Trust float64
}

// Warnings that show while a worker is used.
const (
	WarnTokens = "tokens_differ"
	WarnSilent = "events_silent"
	WarnFails  = "keeps_failing"
	WarnModels = "models_refused"
)

// Engines returns all workers, in the order in which they were added.
func (r *Router) Engines() []EngineStatus {
	now := r.cfg.Now()
	r.mu.RLock()
	workers := slices.Clone(r.order)
	r.mu.RUnlock()
	out := make([]EngineStatus, len(workers))
	for i, w := range workers {
		out[i] = w.status(now)
		for _, p := range w.in() {
			out[i].Ranks = append(out[i].Ranks, p.ranks(w, now)...)
		}
		slices.SortStableFunc(out[i].Ranks, func(a, b RankStatus) int {
			return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Rank, b.Rank))
		})
	}
	return out
}

func (w *worker) status(now time.Time) EngineStatus {
	st := EngineStatus{ID: w.ID, Name: w.Name, Info: w.info.Load(), Tripped: w.tripped.Load(), State: nvext.StateEligible}
	switch {
	case !w.discovered.Load():
		st.State = StateGone
	case w.inhibited(now):
		st.State = nvext.StateInhibited
	}
	if t := w.since.Load(); t != 0 {
		st.Since = time.Unix(0, t)
	}
	if t := w.answered.Load(); t != 0 {
		st.Answered = time.Unix(0, t)
	}
	if st.Info != nil {
		st.Warnings = slices.Clone(st.Info.Warnings)
	}
	warn := func(code, text string) { st.Warnings = append(st.Warnings, engine.Warning{Code: code, Text: text}) }
	if st.Tripped {
		warn(WarnFails, "its requests keep failing although it says that it is well")
	}
	if w.refused.Load() {
		warn(WarnModels, "as many models are known as may be: some of its models get no requests")
	}
	if w.differing.Load() >= differing {
		warn(WarnTokens, "it counts other prompt tokens than the tokenizer configured for its model: nothing is found in its cache; check the tokenizer, its dialect and its chat template")
	}
	if w.voice.lost.Load() {
		warn(WarnSilent, "it computes prompts and publishes no events: check its --kv-events-config and that its event port can be reached; until then what is sent there is taken to be cached")
	}
	return st
}

// ranks returns the worker's ranks in the pool.
func (p *pool) ranks(w *worker, now time.Time) (out []RankStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.slots {
		if s.worker != w {
			continue
		}
		st := RankStatus{
			Rank: s.target.Rank, Model: p.key.model, BlockSize: p.key.blockSize,
			TotalBlocks: s.totalBlocks, Running: s.said.Running, Waiting: s.said.Waiting, UsedBlocks: s.usedBlocks,
			Reported: s.reported, Told: p.tells(s), Trust: s.trustAt(now),
		}
		l := p.ledger.Totals(s.seat, true)
		st.Inflight, st.PrefillTokens, st.ActiveBlocks = l.Requests, l.PrefillTokens, l.Blocks
		if s.held != nil {
			st.Held = s.held.Load()
		}
		if s.fresh(now) {
			st.Foreign = s.others.requests
		}
		out = append(out, st)
	}
	return out
}
