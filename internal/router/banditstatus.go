package router

import (
	"time"

	"github.com/stator-ai/stator/nvext"
)

// BanditStatus is how the policy of a pool stands.
type BanditStatus struct {
	Model     string `json:"model"`
	BlockSize int    `json:"block_size"`
	// Mode is reference, safe or shadow.
	Mode string `json:"mode"`
	// Pending is how many decisions wait for what becomes of them, Lost how many were
	// dropped because there were too many, and Prefixes how many conversations are
	// remembered.
	Pending  int    `json:"pending"`
	Lost     uint64 `json:"lost"`
	Prefixes int    `json:"prefixes"`
	// Timeouts is how many decisions of the reference policy had no feedback in time.
	Timeouts *uint64 `json:"timeouts,omitzero"`
	// Safe is of the other policies.
	Safe  *SafeStatus  `json:"safe,omitzero"`
	Ranks []BanditRank `json:"ranks"`
}

// SafeStatus is how a safe policy stands.
type SafeStatus struct {
	// Budget is what may still be lost, and PrefillRate how many prompt tokens a second are
	// computed.
	Budget      nvext.Float `json:"budget"`
	PrefillRate nvext.Float `json:"prefill_rate"`
	// Stops is how often the policy stopped because it did worse than the cost, and
	// StoppedUntil when it goes on, if it has.
	Stops        uint64     `json:"stops"`
	StoppedUntil *time.Time `json:"stopped_until,omitzero"`
	// Compared is how many decisions the comparison with the cost comes from, and
	// Difference by how much the logarithm of what requests take is higher with the policy,
	// from Low to High with 95 % confidence.
	Compared   int         `json:"compared"`
	Difference nvext.Float `json:"difference"`
	Low        nvext.Float `json:"low"`
	High       nvext.Float `json:"high"`
}

// BanditRank is what a policy has learned about a rank.
type BanditRank struct {
	WorkerID uint64 `json:"worker_id"`
	DPRank   uint32 `json:"dp_rank"`
	// Alpha and Beta are of the reference policy.
	Alpha *nvext.Float `json:"alpha,omitzero"`
	Beta  *nvext.Float `json:"beta,omitzero"`
	// Offset is by how much the logarithm of the time to the first token differs from what
	// is predicted for all ranks, and Observations how many that comes from.
	Offset       *nvext.Float `json:"offset,omitzero"`
	Observations *nvext.Float `json:"observations,omitzero"`
}

// Bandits returns how the policies stand, sorted by model and block size.
func (r *Router) Bandits() []BanditStatus {
	now := r.cfg.Now()
	out := []BanditStatus{}
	for _, p := range r.bandits() {
		p.mu.Lock()
		out = append(out, p.banditStatus(now))
		p.mu.Unlock()
	}
	return out
}

// banditStatus describes the pool's policy. The caller holds the pool's lock.
func (p *pool) banditStatus(now time.Time) BanditStatus {
	b := p.bandit
	st := BanditStatus{Model: p.key.model, BlockSize: p.key.blockSize, Mode: p.router.cfg.Bandit.mode(), Ranks: []BanditRank{}}
	st.Pending, st.Prefixes = b.pending()
	if b.reference != nil {
		n := b.reference.Stats()
		st.Lost, st.Timeouts = n.Lost, &n.Timeouts
	} else {
		n, cmp := b.safe.Stats(), b.safe.Compare(now)
		st.Lost = n.Lost
		st.Safe = &SafeStatus{
			Budget: nvext.Float(n.Budget), PrefillRate: nvext.Float(n.PrefillRate), Stops: n.Stops,
			Compared: cmp.Decisions, Difference: nvext.Float(cmp.Difference), Low: nvext.Float(cmp.Low), High: nvext.Float(cmp.High),
		}
		if n.StoppedUntil.After(now) {
			st.Safe.StoppedUntil = new(n.StoppedUntil.UTC())
		}
	}
	for _, s := range p.slots {
		rank := BanditRank{WorkerID: uint64(s.target.Worker), DPRank: s.target.Rank}
		if b.reference != nil {
			if l, ok := b.reference.Learned(s.source()); ok {
				rank.Alpha, rank.Beta = new(nvext.Float(l.Alpha)), new(nvext.Float(l.Beta))
			}
		} else {
			mean, n := b.safe.Offset(s.source())
			rank.Offset, rank.Observations = new(nvext.Float(mean)), new(nvext.Float(n))
		}
		st.Ranks = append(st.Ranks, rank)
	}
	return st
}
