package stator

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/router"
)

// follow connects what engines publish with the router.
func (s *Server) follow() {
	s.links = kvlink.Open(kvlink.Config{
		Target:  s.router,
		Now:     time.Now,
		Log:     s.log,
		Learned: s.router.Learned,
		Changed: func(src kv.Source, state kvlink.State) {
			switch state {
			case kvlink.Live, kvlink.Dirty, kvlink.Degraded:
				s.router.Tells(src, true, state != kvlink.Live || !s.follower.replays(src))
			case kvlink.None, kvlink.Silent:
				s.router.Tells(src, false, false)
			case kvlink.Dialing, kvlink.Syncing: // what it said is still the best there is
			}
			if state != kvlink.None {
				s.router.Doubt(src.Worker) // its connection was lost or made anew
			}
		},
	})
	s.follower = &follower{Links: s.links, workers: make(map[kv.WorkerID]*followed)}
	s.router.SetFollower(s.follower)
	s.metrics.WatchEngines(s.sampleEngines)
}

// follower follows the events of workers. A socket that was found by trying may be that
// of another engine on the same host; where two workers lay claim to one, it is nobody's
// unless one of them says itself that it is there.
type follower struct {
	*kvlink.Links

	mu      sync.Mutex
	workers map[kv.WorkerID]*followed
}

// followed is what a worker said.
type followed struct {
	info     *engine.Info
	poller   engine.EventPoller
	sockets  []string // of its streams, by address where it has one
	guessed  bool     // its sockets were found by trying
	disputed bool     // so were another's, or they are another's
}

var _ router.FeedSampler = (*follower)(nil)

// Feeds go by what the router knows of a rank to see that something is missing.
var _ interface {
	Rank(kv.Source) (kvindex.RankStats, bool)
} = (*router.Router)(nil)

// Follow implements [router.Follower].
func (f *follower) Follow(id kv.WorkerID, info *engine.Info, poller engine.EventPoller, restarted bool) {
	w := &followed{info: info, poller: poller}
	for _, s := range info.Streams {
		w.sockets = append(w.sockets, socketOf(s.Address))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	w.guessed = slices.ContainsFunc(info.Warnings, func(w engine.Warning) bool { return w.Code == eventsocket.Guessed })
	if old := f.workers[id]; old != nil {
		w.disputed = old.disputed
	}
	f.workers[id] = w
	f.settleLocked(id)
	f.followLocked(id, restarted)
}

// socketOf returns what tells a socket from others: its address and port, whatever name
// its host goes by.
func socketOf(hostport string) string {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return hostport
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return hostport
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	// A host that is this one is the same by all its names.
	if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap().IsLoopback() }) {
		return net.JoinHostPort("localhost", port)
	}
	return net.JoinHostPort(addrs[0].Unmap().String(), port)
}

// Forget implements [router.Follower].
func (f *follower) Forget(id kv.WorkerID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workers, id)
	f.settleLocked(id)
	f.Links.Forget(id)
}

// settleLocked decides anew whose the sockets are, and has all but one worker follow
// from that.
func (f *follower) settleLocked(but kv.WorkerID) {
	claims := make(map[string]map[kv.WorkerID]bool)
	for id, w := range f.workers {
		for _, s := range w.sockets {
			if claims[s] == nil {
				claims[s] = make(map[kv.WorkerID]bool)
			}
			claims[s][id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.workers)) {
		w := f.workers[id]
		disputed := w.guessed && slices.ContainsFunc(w.sockets, func(s string) bool { return len(claims[s]) > 1 })
		if disputed != w.disputed {
			w.disputed = disputed
			if id != but {
				f.followLocked(id, false)
			}
		}
	}
}

func (f *follower) followLocked(id kv.WorkerID, restarted bool) {
	w := f.workers[id]
	info := w.info
	if w.disputed {
		none := *info
		none.Streams = nil
		info = &none
	}
	f.Links.Follow(id, info, w.poller, restarted)
}

// replays reports whether a rank's past can be asked for.
func (f *follower) replays(src kv.Source) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[src.Worker]
	return w != nil && slices.ContainsFunc(w.info.Streams, func(s engine.EventStream) bool { return s.Rank == src.Rank && s.Replay != "" })
}

// shared reports whether another worker says that it publishes where this one does.
func (f *follower) shared(id kv.WorkerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[id]
	if w == nil || w.guessed {
		return false
	}
	for other, o := range f.workers {
		if other != id && !o.guessed && slices.ContainsFunc(w.sockets, func(s string) bool { return slices.Contains(o.sockets, s) }) {
			return true
		}
	}
	return false
}

// disputed reports whether a worker's sockets may be another's.
func (f *follower) disputed(id kv.WorkerID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.workers[id]
	return w != nil && w.disputed
}
