package router

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
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

// learner names what learns: safe and shadow learn the same.
func (c *BanditConfig) learner() string {
	if c.Reference != nil {
		return learnerReference
	}
	return learnerSafe
}

// Who learns.
const (
	learnerReference = "reference"
	learnerSafe      = "safe"
)

// poolStates is what was learned in pools, by the pool's name and by who has.
type poolStates map[string]map[string]json.Marshaler

func (s poolStates) set(pool, learner string, state json.Marshaler) {
	if s[pool] == nil {
		s[pool] = make(map[string]json.Marshaler)
	}
	s[pool][learner] = state
}

// banditStates is what policies had learned before, until their pools come or their models
// have long been unknown. What others had learned than the one that is configured stays
// here for its day.
type banditStates struct {
	mu    sync.Mutex
	saved poolStates
}

// take returns what a learner had learned in a pool, once, or nil.
func (s *banditStates) take(pool, learner string) json.Marshaler {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := s.saved[pool]
	state := states[learner]
	delete(states, learner)
	if len(states) == 0 {
		delete(s.saved, pool)
	}
	return state
}

// put keeps what the policy of a pool has learned that nobody is in any more.
func (s *banditStates) put(p *pool) {
	p.mu.Lock()
	last := p.bandit.tick(p, p.router.cfg.Now())
	state := p.bandit.state()
	p.mu.Unlock()
	p.bandit.publish(last)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		s.saved = make(poolStates)
	}
	s.saved.set(p.key.String(), p.router.cfg.Bandit.learner(), state)
}

// copy returns what is here, in maps of its own.
func (s *banditStates) copy() poolStates {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(poolStates, len(s.saved))
	for pool, states := range s.saved {
		for learner, state := range states {
			out.set(pool, learner, state)
		}
	}
	return out
}

// banditFor returns the policy of a new pool, with what was saved for it.
func (r *Router) banditFor(key poolKey) *bandit {
	b, err := newBandit(r.cfg.Bandit, r.cfg.Metrics)
	if err != nil {
		panic("router: Bandit: " + err.Error()) // which it must not be
	}
	if state := r.learned.take(key.String(), r.cfg.Bandit.learner()); state != nil {
		if err := b.restore(state); err != nil {
			r.cfg.Log.Warn("what a policy had learned cannot be used; it begins anew", "pool", key.String(), "error", err)
		}
	}
	return b
}

// state returns a copy of what was learned.
func (b *bandit) state() json.Marshaler {
	if b.reference != nil {
		return b.reference.State()
	}
	return b.safe.State()
}

func (b *bandit) restore(state json.Marshaler) error {
	data, err := state.MarshalJSON()
	if err != nil {
		return err
	}
	if b.reference != nil {
		return b.reference.Restore(data)
	}
	return b.safe.Restore(data)
}

// tickBandits does what time brings to the policies, until the router is closed.
func (r *Router) tickBandits() {
	t := time.NewTicker(r.cfg.Bandit.tickEvery())
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
			n := p.bandit.tick(p, now)
			if decisions, prefixes := p.bandit.pending(); !p.closed { // or they would stay for ever
				p.bandit.metrics.Gauges(p.key.String(), decisions, prefixes)
			}
			p.mu.Unlock()
			p.bandit.publish(n)
		}
	}
}

// bandits returns the pools that have a policy, sorted by name.
func (r *Router) bandits() []*pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.banditsLocked()
}

func (r *Router) banditsLocked() []*pool {
	var out []*pool
	for _, p := range r.pools {
		if p.bandit != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *pool) int { return cmp.Compare(a.key.String(), b.key.String()) })
	return out
}

// banditFile is what was learned, as it is kept between two runs: by pool, and since
// version 2 by who has learned it. In version 1 that is in what was learned.
type banditFile struct {
	Version int                        `json:"version"`
	Pools   map[string]json.RawMessage `json:"pools"`
}

// SaveBandits returns what policies have learned, as JSON, or nil where none learns. What
// was restored for pools that have not come, and what other policies had learned, is part
// of it until their models are forgotten, or have not come for as long.
func (r *Router) SaveBandits() ([]byte, error) {
	if r.cfg.Bandit == nil {
		return nil, nil
	}
	r.mu.RLock() // so that no pool comes or goes in between
	states, pools := r.learned.copy(), r.banditsLocked()
	r.mu.RUnlock()
	for _, p := range pools {
		p.mu.Lock()
		state := p.bandit.state()
		p.mu.Unlock()
		states.set(p.key.String(), r.cfg.Bandit.learner(), state)
	}
	f := banditFile{Version: 2, Pools: make(map[string]json.RawMessage)}
	for pool, learned := range states {
		data, err := json.Marshal(learned)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", pool, err)
		}
		f.Pools[pool] = data
	}
	return json.Marshal(&f)
}

// RestoreBandits takes in what SaveBandits returned, for pools that are still to come. It is
// called before any worker is added. Ranks are known by the ids of their workers.
func (r *Router) RestoreBandits(data []byte) error {
	var f banditFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	saved := make(poolStates)
	read := saved.read
	switch f.Version {
	case 1:
		read = saved.readOne
	case 2:
	default:
		return fmt.Errorf("version: expected 1 or 2, got %d", f.Version)
	}
	for pool, data := range f.Pools {
		if err := read(pool, data); err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
	}
	r.learned.mu.Lock()
	r.learned.saved = saved
	r.learned.mu.Unlock()
	return nil
}

// read takes in what was learned in a pool.
func (s poolStates) read(pool string, data json.RawMessage) error {
	var states map[string]json.RawMessage
	if err := json.Unmarshal(data, &states); err != nil {
		return err
	}
	for learner, state := range states {
		s.set(pool, learner, state)
	}
	return nil
}

// readOne takes in what one policy has learned in a pool, which says by itself who that is.
func (s poolStates) readOne(pool string, data json.RawMessage) error {
	var head struct {
		Policy string `json:"policy"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if head.Policy != learnerReference && head.Policy != learnerSafe {
		return fmt.Errorf("policy: expected %s or %s, got %q", learnerReference, learnerSafe, head.Policy)
	}
	s.set(pool, head.Policy, data)
	return nil
}
