package kvlink

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/zmtp"
)

// Conn is a connection to a socket of an engine. Close may be called at any time and
// ends a Recv or Send that waits.
type Conn interface {
	Recv(zmtp.Message) (zmtp.Message, error)
	Send(frames ...[]byte) error
	Close() error
}

// Config is what links work with. Target and Now must be set.
type Config struct {
	// Target is what the events change.
	Target kvfeed.Target
	// Now tells the time that lags are measured by.
	Now func() time.Time
	// Log gets a line for each change of a rank's state. Nil for none.
	Log *slog.Logger
	// Changed, if set, is told when a rank's state is another than before. Calls come
	// one after another from a goroutine of their own, a little late; states that were
	// left meanwhile are left out. It must not call Close.
	Changed func(kv.Source, State)
	// Learned, if set, is told what the events of a worker say about its blocks: how
	// many tokens they have, and whether they depend on the token after them, see
	// [kv.Decoder]. It is called when that is new, and must not call the links.
	Learned func(worker kv.WorkerID, blockSize int, eagle bool)
	// Seed is where the chance comes from by which links do not all dial at once.
	Seed uint64
	// Dial connects to a publisher, and DialReplay to a replay socket. Nil means
	// [zmtp.DialSub] and [zmtp.DialDealer].
	Dial       func(ctx context.Context, addr string, topics ...string) (Conn, error)
	DialReplay func(ctx context.Context, addr string) (Conn, error)
}

// Links follows the events of many workers. All methods are safe for concurrent use.
type Links struct {
	cfg    Config
	hub    *kvfeed.Hub
	teller *teller
	seed   maphash.Seed // of the marks of batches
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	follow sync.Mutex // held while the set of links changes

	mu struct {
		sync.RWMutex
		closed  bool
		workers map[kv.WorkerID]*worker
		streams map[kv.Source]*stream // by the rank that they were found for
	}
}

// Open returns links that follow nobody yet. Close ends them. It panics without a
// target or a clock.
func Open(cfg Config) *Links {
	if cfg.Target == nil || cfg.Now == nil {
		panic("kvlink: links need a target and a clock")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string, topics ...string) (Conn, error) {
			return connection(zmtp.DialSub(ctx, addr, topics...))
		}
	}
	if cfg.DialReplay == nil {
		cfg.DialReplay = func(ctx context.Context, addr string) (Conn, error) {
			return connection(zmtp.DialDealer(ctx, addr))
		}
	}
	l := &Links{cfg: cfg, seed: maphash.MakeSeed()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.mu.workers = map[kv.WorkerID]*worker{}
	l.mu.streams = map[kv.Source]*stream{}
	l.teller = newTeller(l.told)
	l.wg.Go(l.teller.run)
	l.hub = kvfeed.Open(kvfeed.Config{
		Target: decoding{l}, Recoverer: replaying{l}, Now: cfg.Now, Changed: l.fed,
	})
	return l
}

// connection keeps a nil connection from becoming a Conn that is not nil.
func connection(c *zmtp.Conn, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Follow takes in what a worker said when it was identified, in place of what it said
// before: its streams, or poller for an engine without streams that is asked for its
// events, which may be nil. Streams that are as before go on, and so does polling, with
// the new poller; others end, and their ranks are forgotten. restarted says that the
// engine began anew since the last call, whether or not its links have noticed. A
// worker without streams and poller is the same as one that is forgotten.
func (l *Links) Follow(id kv.WorkerID, info *engine.Info, poller engine.EventPoller, restarted bool) {
	l.follow.Lock()
	defer l.follow.Unlock()
	if l.closed() {
		return
	}
	if len(info.Streams) > 0 {
		poller = nil
	} else if poller == nil {
		l.forget(id)
		return
	}
	w := l.worker(id)
	w.setRanks(info)
	want := map[uint32]engine.EventStream{}
	for _, s := range info.Streams {
		if _, twice := want[s.Rank]; !twice {
			want[s.Rank] = s
		}
	}
	for _, s := range w.all() {
		if spec, ok := want[s.spec.Rank]; !ok || spec != s.spec {
			l.end(s)
			continue
		}
		delete(want, s.spec.Rank)
		if noticed := s.noticed(); restarted && !noticed {
			s.renew()
		}
	}
	for _, spec := range want {
		l.begin(w, spec)
	}
	l.poll(w, poller, restarted)
	w.refresh()
}

// Forget stops following a worker and forgets its ranks.
func (l *Links) Forget(id kv.WorkerID) {
	l.follow.Lock()
	defer l.follow.Unlock()
	if !l.closed() {
		l.forget(id)
	}
}

func (l *Links) forget(id kv.WorkerID) {
	l.mu.RLock()
	w := l.mu.workers[id]
	l.mu.RUnlock()
	if w == nil {
		return
	}
	for _, s := range w.all() {
		l.end(s)
	}
	l.poll(w, nil, false)
	w.refresh()
	l.mu.Lock()
	delete(l.mu.workers, id)
	l.mu.Unlock()
}

// worker returns a worker, made if there is none.
func (l *Links) worker(id kv.WorkerID) *worker {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.mu.workers[id]
	if w == nil {
		w = newWorker(l, id)
		l.mu.workers[id] = w
	}
	return w
}

// begin starts a stream.
func (l *Links) begin(w *worker, spec engine.EventStream) {
	s := newStream(l, w, spec)
	l.mu.Lock()
	l.mu.streams[s.src] = s
	l.mu.Unlock()
	w.add(s)
	s.wg.Go(s.run)
}

// end stops a stream. When it returns, the ranks that it told of are forgotten.
func (l *Links) end(s *stream) {
	s.cancel()
	s.wg.Wait()
	l.hub.Remove(s.src)
	s.worker.remove(s)
	l.mu.Lock()
	delete(l.mu.streams, s.src)
	l.mu.Unlock()
}

// stream returns the stream that was found for a rank, nil if there is none.
func (l *Links) stream(src kv.Source) *stream {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.streams[src]
}

// fed hears how a feed stands.
func (l *Links) fed(src kv.Source, st kvfeed.State) {
	l.mu.RLock()
	w := l.mu.workers[src.Worker]
	l.mu.RUnlock()
	if w != nil {
		w.fed(src.Rank, st)
	}
}

// told hears of a rank's state, in the goroutine of the teller.
func (l *Links) told(src kv.Source, st State) {
	attrs := []slog.Attr{
		slog.Uint64("worker", uint64(src.Worker)), slog.Uint64("rank", uint64(src.Rank)), slog.String("state", st.String()),
	}
	if s := l.stream(src); s != nil {
		attrs = append(attrs, slog.String("address", s.spec.Address))
		if err := s.lastError(); err != nil {
			attrs = append(attrs, slog.Any("err", err))
		}
	}
	level := slog.LevelInfo
	if st == Dialing || st == Syncing { // on the way to another state
		level = slog.LevelDebug
	}
	l.cfg.Log.LogAttrs(l.ctx, level, "kv events", attrs...)
	if l.cfg.Changed != nil {
		l.cfg.Changed(src, st)
	}
}

// Stats returns a view of every link, sorted by worker and rank.
func (l *Links) Stats() []Stats {
	feeds := map[kv.Source]kvfeed.Stats{}
	for _, st := range l.hub.Stats() {
		feeds[st.Source] = st
	}
	l.mu.RLock()
	workers := make([]*worker, 0, len(l.mu.workers))
	for _, w := range l.mu.workers {
		workers = append(workers, w)
	}
	l.mu.RUnlock()
	var all []Stats
	for _, w := range workers {
		all = w.stats(all)
	}
	for i := range all {
		all[i].Feed = feeds[all[i].Source]
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Source.Worker, b.Source.Worker), cmp.Compare(a.Source.Rank, b.Source.Rank))
	})
	return all
}

// Flush waits until everything that was received before is applied, also what waits
// for a recovery. It returns ctx's error if that ends first.
func (l *Links) Flush(ctx context.Context) error { return l.hub.Flush(ctx) }

// Close stops following all workers and waits for every goroutine. Ranks stay as they
// are. Close may be called more than once.
func (l *Links) Close() {
	l.follow.Lock()
	defer l.follow.Unlock()
	l.mu.Lock()
	l.mu.closed = true
	workers := make([]*worker, 0, len(l.mu.workers))
	for _, w := range l.mu.workers {
		workers = append(workers, w)
	}
	l.mu.Unlock()
	l.cancel()
	for _, w := range workers {
		w.wait()
	}
	l.hub.Close()
	l.teller.close()
	l.wg.Wait()
}

func (l *Links) closed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.closed
}
