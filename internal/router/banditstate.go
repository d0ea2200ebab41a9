package router

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/nvext"
)

// String names the pool where what was learned is kept.
func (k poolKey) String() string {
	name := fmt.Sprintf("%s/%d", k.model, k.blockSize)
	if k.tokenizer != "" {
		name += "/" + k.tokenizer
	}
	if k.eagle {
		name += "/eagle"
	}
	return name
}

// banditStates is what policies had learned before, by pool, until that pool comes.
type banditStates struct {
	mu    sync.Mutex
	saved map[string]json.RawMessage
}

// take returns what was saved for a pool, once.
func (s *banditStates) take(pool string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := s.saved[pool]
	delete(s.saved, pool)
	return data
}

// put keeps what the policy of a pool has learned that nobody is in any more.
func (s *banditStates) put(p *pool) {
	p.mu.Lock()
	data, err := p.bandit.snapshot()
	p.mu.Unlock()
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		s.saved = make(map[string]json.RawMessage)
	}
	s.saved[p.key.String()] = data
}

// newBandit returns the policy of a new pool, with what was saved for it.
func (r *Router) newBandit(key poolKey) *bandit {
	b, err := newBandit(r.cfg.Bandit, r.cfg.Metrics)
	if err != nil {
		panic("router: Bandit: " + err.Error()) // which it must not be
	}
	if data := r.learned.take(key.String()); data != nil {
		if err := b.restore(data); err != nil {
			r.cfg.Log.Warn("what a policy had learned cannot be used; it begins anew", "pool", key.String(), "error", err)
		}
	}
	return b
}

func (b *bandit) snapshot() (json.RawMessage, error) {
	if b.reference != nil {
		return b.reference.Snapshot()
	}
	return b.safe.Snapshot()
}

func (b *bandit) restore(data []byte) error {
	if b.reference != nil {
		return b.reference.Restore(data)
	}
	return b.safe.Restore(data)
}

// tickBandits does what time brings to the policies, until the router is closed.
func (r *Router) tickBandits() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-t.C:
		}
		now := r.cfg.Now()
		for _, p := range r.bandits() {
			p.mu.Lock()
			p.bandit.tick(now)
			if decisions, prefixes := p.bandit.pending(); !p.closed {
				p.bandit.metrics.Gauges(p.key.String(), decisions, prefixes)
			}
			p.mu.Unlock()
		}
	}
}

// bandits returns the pools that have a policy, sorted by name.
func (r *Router) bandits() []*pool {
	r.mu.RLock()
	var out []*pool
	for _, p := range r.pools {
		if p.bandit != nil {
			out = append(out, p)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(out, func(a, b *pool) int { return cmp.Compare(a.key.String(), b.key.String()) })
	return out
}

// banditFile is what was learned, as it is kept between two runs.
type banditFile struct {
	Version int                        `json:"version"`
	Pools   map[string]json.RawMessage `json:"pools"`
}

// SaveBandits returns what policies have learned, as JSON, or nil where none learns. What
// was restored for pools that have not come is part of it.
func (r *Router) SaveBandits() ([]byte, error) {
	if r.cfg.Bandit == nil {
		return nil, nil
	}
	f := banditFile{Version: 1, Pools: make(map[string]json.RawMessage)}
	r.learned.mu.Lock()
	for name, data := range r.learned.saved {
		f.Pools[name] = data
	}
	r.learned.mu.Unlock()
	for _, p := range r.bandits() {
		p.mu.Lock()
		data, err := p.bandit.snapshot()
		p.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.key, err)
		}
		f.Pools[p.key.String()] = data
	}
	return json.MarshalIndent(&f, "", " ")
}

// RestoreBandits takes in what SaveBandits returned, for pools that are still to come. It is
// called before any worker is added.
func (r *Router) RestoreBandits(data []byte) error {
	var f banditFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	if f.Version != 1 {
		return fmt.Errorf("version: expected 1, got %d", f.Version)
	}
	r.learned.mu.Lock()
	r.learned.saved = f.Pools
	r.learned.mu.Unlock()
	return nil
}

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
