package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// Config is a router's configuration. The zero value works.
type Config struct {
	// Mode is how a rank is chosen; empty means the first of Modes.
	Mode Mode
	// Thresholds apply to every model until SetThresholds changes one.
	Thresholds Thresholds
	// Inhibit is how long a worker is left alone after a failure, unless a
	// probe succeeds earlier; 0 means 5 s.
	Inhibit time.Duration
	// ProbeInterval is the time between health probes of a worker that is well;
	// 0 means 5 s. One that is not is probed every second.
	ProbeInterval time.Duration
	// LoadInterval is the time between questions about the load of a worker that
	// tells; 0 means 1 s.
	LoadInterval time.Duration
	// CanaryInterval is after how long without an answer a worker is asked to compute
	// a token, to see whether it still can; 0 means never.
	CanaryInterval time.Duration
	// KV says how mode kv weighs caches and load.
	KV KVConfig
	// Queue says how requests wait while all ranks are busy; nil means that none do. It
	// must be one that [sched.NewQueue] takes.
	Queue *QueueConfig
	// Selector, if not nil, takes the place of the cost in mode kv, and SelectorName
	// is its name in explanations. It is called with a lock held and must not call the
	// router.
	Selector     sched.Selector
	SelectorName string
	// Bandit, if not nil, has a policy that learns choose in mode kv. It must be one that
	// the policies take.
	Bandit *BanditConfig
	// Decisions is how many of the latest decisions are kept for Decisions.
	Decisions int
	// Lease is how long a booking of Reserve lives without a sign of life; 0 means
	// 5 min.
	Lease time.Duration
	// ForgetModels is after how long a model leaves that no worker has any more, be it
	// because its workers were removed or because they list others; 0 means 1 h. Until
	// then it is known to have no worker. One whose workers cannot be reached stays. In
	// virtual time all do.
	ForgetModels time.Duration
	// MaxModels is how many models and adapters are known at most; 0 means 10,000.
	// Others get no requests.
	MaxModels int
	// Seed makes random choices repeatable; 0 means a random seed.
	Seed uint64
	// Now is the clock; nil means time.Now. Virtual says that it is not the time of
	// the world: nothing is done by a timer then.
	Now     func() time.Time
	Virtual bool
	// LockHeld, if not nil, is told after each placement how long it held the lock of
	// its pool. It is for measurements.
	LockHeld func(time.Duration)
	// Log gets one line per change of a worker's state; nil means none.
	Log *slog.Logger
	// Metrics receives the router's series; nil means a private set.
	Metrics *metrics.Set
}

// Router places requests. Make one with [New], give it workers with [Router.Add],
// and end it with [Router.Close]. It is safe for concurrent use.
type Router struct {
	cfg Config

	mu      sync.RWMutex
	models  map[string]*Model
	pools   map[poolKey]*pool
	workers map[kv.WorkerID]*worker
	order   []*worker // in the order they were added
	added   int       // how many were

	decisions atomic.Uint64 // how many there were
	ring      *ring         // of the latest; nil if none are kept
	leases    leases
	began     time.Time
	follower  Follower // of what engines say about their caches; may be nil
	learned   banditStates

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a router without workers.
func New(cfg Config) *Router {
	if cfg.Mode == "" {
		cfg.Mode = Modes[0]
	}
	cfg.Inhibit = cmp.Or(cfg.Inhibit, 5*time.Second)
	cfg.ProbeInterval = cmp.Or(cfg.ProbeInterval, 5*time.Second)
	cfg.LoadInterval = cmp.Or(cfg.LoadInterval, time.Second)
	cfg.ForgetModels = cmp.Or(cfg.ForgetModels, time.Hour)
	cfg.MaxModels = cmp.Or(cfg.MaxModels, 10_000)
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = metrics.New(metrics.Options{})
	}
	cfg.KV = cfg.KV.withDefaults()
	cfg.Lease = cmp.Or(cfg.Lease, 5*time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	r := &Router{
		cfg:     cfg,
		models:  make(map[string]*Model),
		pools:   make(map[poolKey]*pool),
		ring:    newRing(cfg.Decisions),
		began:   cfg.Now(),
		workers: make(map[kv.WorkerID]*worker),
		ctx:     ctx,
		cancel:  cancel,
	}
	if cfg.Bandit != nil && cfg.Mode == KV && !cfg.Virtual {
		r.wg.Go(r.tickBandits)
	}
	return r
}

// Mode returns the configured mode.
func (r *Router) Mode() Mode { return r.cfg.Mode }

// Place chooses a rank for q and books it there; the booking lives until the
// placement's Done. Where there is a queue it waits for its turn, until ctx ends.
// Errors are [ErrNoWorkers], [ErrOverloaded], [ErrNoneAllowed], [ErrNoneTainted],
// [ErrPinMissing], *[PinError], *[WaitError] and *[sched.LimitError].
func (r *Router) Place(ctx context.Context, q *Request) (*Placement, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pl, err := r.placeNow(ctx, q)
	if err != nil && ctx.Err() == nil {
		if m := r.moved(q.Model); m != nil {
			again := *q
			again.Model = m
			return r.placeNow(ctx, &again)
		}
	}
	return pl, err
}

func (r *Router) placeNow(ctx context.Context, q *Request) (*Placement, error) {
	pl, w, err := r.place(q, nil)
	if w != nil {
		return w.wait(ctx)
	}
	return pl, err
}

// moved returns the model as it is now if its workers have gone to other pools since it
// was looked up, and nil if they have not.
func (r *Router) moved(m *Model) *Model {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if latest := r.models[m.ID]; latest != nil && len(latest.pools) > 0 && !slices.Equal(latest.pools, m.pools) {
		return latest
	}
	return nil
}

// Submit is Place for callers that cannot wait: done is called with what came of it,
// before Submit returns or, from another call into the router, when it is the
// request's turn. The longest wait does not apply.
func (r *Router) Submit(q *Request, done func(*Placement, error)) {
	pl, w, err := r.place(q, done)
	if w == nil {
		done(pl, err)
	}
}

// decision is what a placement depends on besides the request and the pool: its
// ordinal, which with the seed makes its random source, and where the model has
// several pools, how they stood when one of them was chosen.
type decision struct {
	ordinal uint64
	pools   []nvext.Pool // nil when there was nothing to choose
	pool    int          // the chosen one
}

// place tries the model's pools: the one with the pinned worker, or all of them
// one after another. Who has to wait gets a waiter.
func (r *Router) place(q *Request, call func(*Placement, error)) (*Placement, *waiter, error) {
	if r.cfg.Mode == Direct && !q.Pinned {
		return nil, nil, ErrPinMissing
	}
	now := r.cfg.Now()
	d := decision{ordinal: r.decisions.Add(1)}
	pools := q.Model.pools
	if q.Pinned {
		i := slices.IndexFunc(pools, func(p *pool) bool { return p.has(q.Pin) })
		if i < 0 {
			return nil, nil, r.unknownPin(q.Pin)
		}
		return pools[i].place(now, q, d, call)
	}
	switch len(pools) {
	case 0:
		return nil, nil, ErrNoWorkers
	case 1:
		return pools[0].place(now, q, d, call)
	}
	d.pools = make([]nvext.Pool, len(pools))
	ready := false // some pool can take it at once
	waits := make([]bool, len(pools))
	for i, p := range pools {
		d.pools[i], waits[i] = p.standing(now, q)
		ready = ready || d.pools[i].Eligible > 0 && !waits[i]
	}
	for i := range pools {
		if ready && waits[i] {
			d.pools[i].Eligible = 0
		}
	}
	// A pool that turns the request away, because things have changed since, has
	// nothing to offer, and the choice is made anew as if that had been known.
	var err error
	refused := make([]bool, len(pools))
	for range pools {
		if d.pool = choosePool(r.cfg.Mode, r.cfg.Seed, d.ordinal, d.pools); d.pool < 0 {
			d.pool = slices.Index(refused, false) // for its reason
		}
		pl, w, e := pools[d.pool].place(now, q, d, call)
		if e == nil {
			return pl, w, nil
		}
		if err == nil || telling(e) > telling(err) {
			err = e
		}
		refused[d.pool] = true
		d.pools[d.pool].Eligible = 0
	}
	return nil, nil, err
}

// unknownPin says why a pinned worker is in no pool of the model: it is not there, or
// has not said yet what it serves.
func (r *Router) unknownPin(id kv.WorkerID) error {
	r.mu.RLock()
	w := r.workers[id]
	r.mu.RUnlock()
	if w != nil && w.info.Load() == nil {
		return &PinError{Worker: id, Reason: PinUnavailable}
	}
	return &PinError{Worker: id, Reason: PinUnknown}
}

// telling orders the reasons for which pools refuse a request by how much they
// tell the client.
func telling(err error) int {
	var limit *sched.LimitError
	switch {
	case err == ErrOverloaded, errors.As(err, &limit):
		return 3
	case err == ErrNoWorkers:
		return 2
	default:
		return 1
	}
}

// Model is one served model: the pools of ranks that serve it and what the
// frontend has to know about it. Its exported fields do not change.
type Model struct {
	ID            string
	Created       time.Time // when the model was first seen
	ContextLength int       // the longest of its workers'; 0 = unknown
	Tokenizer     string    // name of a built-in tokenizer, if all workers use it
	EngineTokens  bool      // all workers are of kinds that give the tokens of prompts when asked
	BlockSize     int       // tokens in a KV block, if all workers agree; else 0
	Adapter       bool      // a worker serves it as an adapter of another model
	Parent        string    // that other model
	Metrics       *metrics.Model

	pools      []*pool // those of the model that it is an adapter of
	thresholds *atomic.Pointer[Thresholds]
	booked     *atomic.Int64 // requests

	left time.Time   // when no worker had it any more
	last kv.WorkerID // the one that had it until then; 0 while there is one that has it
}

// Lookup returns the model with that name, or [ErrUnknownModel]. An adapter has two
// names: its own, and "model:adapter" with that of its model.
func (r *Router) Lookup(name string) (*Model, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if m := r.models[name]; m != nil {
		return m, nil
	}
	for i := len(name) - 1; i > 0; i-- {
		if name[i] != ':' {
			continue
		}
		if m := r.models[name[i+1:]]; m != nil && m.Adapter && m.Parent == name[:i] {
			return m, nil
		}
	}
	return nil, ErrUnknownModel
}

// Family returns the names of a model and of its adapters, or with an empty name those
// of all models, in no order.
func (r *Router) Family(name string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []string
	for id, m := range r.models {
		if name == "" || id == name || m.Parent == name {
			out = append(out, id)
		}
	}
	return out
}

// Tokenizer returns an engine that gives tokens for m: of those that can be reached
// and are not resting the one with the fewest requests. It returns nil if there is
// none.
func (r *Router) Tokenizer(m *Model) engine.Tokenizer {
	now, th := r.cfg.Now(), m.Thresholds()
	var best engine.Tokenizer
	fewest := math.MaxInt
	for _, p := range m.pools {
		p.tokenizers(m.ID, now, &th, func(t engine.Tokenizer, inflight int) {
			if inflight < fewest && !t.Resting() {
				best, fewest = t, inflight
			}
		})
	}
	return best
}

// ModelStatus is a model with the state of its workers.
type ModelStatus struct {
	Model   *Model
	Workers []WorkerStatus
	index   int // of the first worker in the order of Add
}

// Routable reports whether a worker of the model can be reached. One that is busy
// counts: it will take requests again without anybody's doing.
func (s ModelStatus) Routable() bool {
	return slices.ContainsFunc(s.Workers, func(w WorkerStatus) bool {
		return w.State == nvext.StateEligible || w.State == nvext.StateOverloaded
	})
}

// Discovered reports whether a worker is known to serve the model.
func (s ModelStatus) Discovered() bool {
	return slices.ContainsFunc(s.Workers, func(w WorkerStatus) bool { return w.State != StateGone })
}

// WorkerStatus is one rank of a worker as an operator sees it.
type WorkerStatus struct {
	Target   engine.Target
	Name     string
	Kind     string
	State    nvext.State
	Inflight int
}

// Status returns all models, in the order in which the first worker of each was
// added and adapters after models, with their workers sorted by (worker, rank).
func (r *Router) Status() []ModelStatus {
	now := r.cfg.Now()
	r.mu.RLock()
	out := make([]ModelStatus, 0, len(r.models))
	for _, m := range r.models {
		out = append(out, ModelStatus{Model: m, index: math.MaxInt})
	}
	r.mu.RUnlock()
	for i := range out {
		st := &out[i]
		th := st.Model.Thresholds()
		for _, p := range st.Model.pools {
			workers, index := p.status(st.Model.ID, now, th)
			st.Workers = append(st.Workers, workers...)
			st.index = min(st.index, index)
		}
		slices.SortFunc(st.Workers, func(a, b WorkerStatus) int {
			return cmp.Or(cmp.Compare(a.Target.Worker, b.Target.Worker), cmp.Compare(a.Target.Rank, b.Target.Rank))
		})
	}
	slices.SortFunc(out, func(a, b ModelStatus) int {
		return cmp.Or(cmp.Compare(a.index, b.index), compareBool(a.Model.Adapter, b.Model.Adapter), cmp.Compare(a.Model.ID, b.Model.ID))
	})
	return out
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// Thresholds returns the busy thresholds in force for m.
func (m *Model) Thresholds() Thresholds { return *m.thresholds.Load() }

// SetThresholds changes the thresholds of m that are set in patch and returns
// what is in force then. It takes effect with the next placement.
func (m *Model) SetThresholds(patch Thresholds) Thresholds {
	for {
		old := m.thresholds.Load()
		merged := old.Merge(patch)
		if m.thresholds.CompareAndSwap(old, &merged) {
			for _, p := range m.pools {
				p.wake(p.router.cfg.Now())
			}
			return merged
		}
	}
}
