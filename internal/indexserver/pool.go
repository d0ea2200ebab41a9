package indexserver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// poolKey names an index.
type poolKey struct{ model, group string }

// check refuses names that cannot be told apart in a dump.
func (k poolKey) check() error {
	for _, name := range []struct{ field, value string }{{"model_name", k.model}, {"routing_group", k.group}} {
		switch {
		case name.value == "":
			return invalid(name.field, "expected a name")
		case len(name.value) > maxName:
			return invalid(name.field, "expected at most %d bytes, got %d", maxName, len(name.value))
		case !utf8.ValidString(name.value):
			return invalid(name.field, "expected valid UTF-8")
		}
	}
	if strings.Contains(k.group, ":") {
		return invalid("routing_group", "expected a name without ':', got %q", k.group)
	}
	return nil
}

// String is the key of a dump, and the model label of metrics.
func (k poolKey) String() string { return k.model + ":" + k.group }

// parseKey takes a dump's key apart. A name of a model may have a ':' in it.
func parseKey(s string) poolKey {
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		return poolKey{s[:i], s[i+1:]}
	}
	return poolKey{s, defaultGroup}
}

// pool is one index and the ranks that it is about.
type pool struct {
	key       poolKey
	blockSize int
	index     *kvindex.Index
	uses      *kvindex.Uses // nil where nobody asks for frequencies
	unwatch   func()
	skipped   map[string]*atomic.Uint64 // events, by each of skipReasons
	sockets   sockets

	// Guarded by Server.mu:
	ranks   map[kv.Source]*rank
	workers map[kv.WorkerID]int // their number of ranks
}

// add makes a rank. Server.mu is held.
func (s *Server) add(p *pool, src kv.Source) *rank {
	r := &rank{src: src, pool: p}
	p.ranks[src] = r
	p.workers[src.Worker]++
	s.ranks++
	return r
}

// rank is a registered rank. Its lock is held by who changes its blocks, so that
// what it says comes one after another.
type rank struct {
	src  kv.Source
	pool *pool

	mu     sync.Mutex
	gone   bool    // unregistered: what still comes is too late
	socket *socket // that it was registered with, nil if with none
	told   bool    // what it holds came from a socket, its own or another's
	// last is the id of the last event, of an epoch, once known.
	known       bool
	epoch, last uint64
	// Events, and for gaps and restarts how often.
	applied, stale, missed, gaps, restarts uint64
}

// find returns the pool of a model.
func (s *Server) find(key poolKey) (*pool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.pools[key]; p != nil {
		return p, nil
	}
	return nil, &failure{status: http.StatusNotFound, field: "model_name",
		message: "no worker is registered for model " + quoted(key)}
}

func quoted(k poolKey) string {
	if k.group == defaultGroup {
		return shortQuote(k.model)
	}
	return shortQuote(k.model) + " in routing group " + shortQuote(k.group)
}

// all returns the pools, sorted by name.
func (s *Server) all() []*pool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.pools), func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.key.model, b.key.model), cmp.Compare(a.key.group, b.key.group))
	})
}

// members returns the ranks of a pool, sorted.
func (s *Server) members(p *pool) []*rank {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(p.ranks), func(a, b *rank) int {
		return cmp.Or(cmp.Compare(a.src.Worker, b.src.Worker), cmp.Compare(a.src.Rank, b.src.Rank))
	})
}

// maxPools bounds the indexes of a server.
const maxPools = 1024

// wanted is a pool that has to be there, with the ranks it has to have.
type wanted struct {
	key       poolKey
	blockSize int
	ranks     []kv.Source
}

// ensure registers what is not registered yet, all or nothing.
func (s *Server) ensure(all ...wanted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pools, ranks := len(s.pools), s.ranks
	for _, want := range all {
		p := s.pools[want.key]
		if p == nil {
			pools++
		}
		if p != nil && p.blockSize != want.blockSize {
			return &failure{status: http.StatusConflict, field: "block_size",
				message: "model " + quoted(want.key) + " has blocks of " + tokens(p.blockSize) + ", not of " + tokens(want.blockSize)}
		}
		for _, src := range want.ranks {
			if p == nil || p.ranks[src] == nil {
				ranks++
			}
		}
	}
	if ranks > s.cfg.MaxRanks {
		return fail(http.StatusServiceUnavailable, "there would be %d ranks, and the limit is %d", ranks, s.cfg.MaxRanks)
	}
	if pools > maxPools {
		return fail(http.StatusServiceUnavailable, "there would be %d indexes, and the limit is %d", pools, maxPools)
	}
	for _, want := range all {
		p := s.pools[want.key]
		if p == nil {
			if len(want.ranks) == 0 {
				continue
			}
			p = s.newPool(want.key, want.blockSize)
			s.pools[want.key] = p
		}
		for _, src := range want.ranks {
			if p.ranks[src] == nil {
				s.add(p, src)
			}
		}
	}
	s.count()
	return nil
}

func (s *Server) newPool(key poolKey, blockSize int) *pool {
	p := &pool{
		key: key, blockSize: blockSize, index: kvindex.New(s.cfg.Index), skipped: make(map[string]*atomic.Uint64),
		ranks: make(map[kv.Source]*rank), workers: make(map[kv.WorkerID]int),
	}
	for _, reason := range skipReasons {
		p.skipped[reason] = new(atomic.Uint64)
	}
	if s.cfg.FrequencyWindow > 0 {
		p.uses = kvindex.NewUses(s.cfg.FrequencyWindow)
	}
	p.index.Tell(time.Now())
	p.unwatch = s.watch(p)
	return p
}

// remove takes a rank and its blocks away. It reports whether it was there.
func (s *Server) remove(r *rank) bool {
	r.mu.Lock()
	if r.gone {
		r.mu.Unlock()
		return false
	}
	r.gone = true
	r.pool.index.RemoveRank(r.src)
	last := s.drop(r) // only now may it be registered again
	r.mu.Unlock()
	if last {
		r.pool.sockets.close()
		r.pool.unwatch()
	}
	return true
}

// drop forgets a rank, and its pool with the last one.
func (s *Server) drop(r *rank) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := r.pool
	delete(p.ranks, r.src)
	if p.workers[r.src.Worker]--; p.workers[r.src.Worker] == 0 {
		delete(p.workers, r.src.Worker)
	}
	s.ranks--
	if last = len(p.ranks) == 0; last {
		delete(s.pools, p.key)
	}
	s.count()
	return last
}

// maxUnannounced bounds the ranks of a worker that are registered along with it.
const maxUnannounced = 1024

// The reasons for which there is no rank.
var (
	errUnregistered = errors.New("the worker is not registered")
	errTooManyRanks = errors.New("there are too many ranks")
)

// lookup returns the rank that an event or a decision is about. A rank that is not
// known itself is registered along with its worker, if there is room for it.
// Otherwise the error is errUnregistered or errTooManyRanks.
func (s *Server) lookup(p *pool, src kv.Source) (*rank, error) {
	s.mu.RLock()
	r, known := p.ranks[src], p.workers[src.Worker]
	full := s.ranks >= s.cfg.MaxRanks
	s.mu.RUnlock()
	switch {
	case r != nil:
		return r, nil
	case known == 0:
		return nil, errUnregistered
	case known >= maxUnannounced || full:
		return nil, errTooManyRanks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := p.workers[src.Worker]; {
	case p.ranks[src] != nil:
		return p.ranks[src], nil
	case known == 0:
		return nil, errUnregistered
	case known >= maxUnannounced || s.ranks >= s.cfg.MaxRanks:
		return nil, errTooManyRanks
	}
	r = s.add(p, src)
	s.count()
	return r, nil
}

// refusal is an error of lookup as the client sees it, whose field names the worker.
func (s *Server) refusal(err error, field string, p *pool, src kv.Source) *failure {
	if err == errTooManyRanks {
		return &failure{status: http.StatusServiceUnavailable, field: "dp_rank", err: err, message: fmt.Sprintf(
			"there is no room for rank %d of worker %d: it is not registered itself, and the limits are %d ranks of a worker and %d in all",
			src.Rank, src.Worker, maxUnannounced, s.cfg.MaxRanks)}
	}
	return &failure{status: http.StatusNotFound, field: field, err: err,
		message: fmt.Sprintf("worker %d is not registered for model %s", src.Worker, quoted(p.key))}
}
