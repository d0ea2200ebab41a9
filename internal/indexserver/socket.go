package indexserver

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvlink"
)

// socket is where a rank publishes what becomes of its cache.
type socket struct {
	endpoint, replay string // as they were registered
	stream           engine.EventStream
}

// maxSocketRank is the highest rank that can have a socket. Those of an engine have
// consecutive ports.
const maxSocketRank = 1<<16 - 1

// socket returns the socket that a registration names, nil if it names none.
func (f *form) socket(rank uint32, blockSize int) *socket {
	x := &socket{endpoint: f.text("endpoint"), replay: f.text("replay_endpoint")}
	x.stream = engine.EventStream{Rank: rank, BlockSize: blockSize}
	switch kind := f.text("engine"); kind {
	case "", "sglang":
	case "vllm":
		x.stream.Counted = true
	default:
		f.fail("engine", `expected "vllm" or "sglang", got %s`, shortQuote(kind))
	}
	if x.endpoint == "" {
		if x.replay != "" {
			f.fail("replay_endpoint", "expected the endpoint whose past it is beside it")
		}
		return nil
	}
	if rank > maxSocketRank {
		f.fail("dp_rank", "expected at most %d for a rank with an endpoint, got %d", maxSocketRank, rank)
	}
	x.stream.Address = f.address("endpoint", x.endpoint)
	if x.replay != "" {
		x.stream.Replay = f.address("replay_endpoint", x.replay)
	}
	return x
}

// address returns the host:port of an endpoint as ZeroMQ writes it, or without the
// scheme.
func (f *form) address(field, text string) string {
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if rest = after; scheme != "tcp" {
			f.fail(field, "expected an address that other machines reach, such as tcp://10.0.0.7:5557, got %s", shortQuote(text))
			return ""
		}
	}
	host, port, err := net.SplitHostPort(rest)
	n, notPort := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || notPort != nil || n == 0 || len(host) > 255 || strings.ContainsFunc(host, notInHost):
		f.fail(field, "expected the address of a socket, such as tcp://10.0.0.7:5557, got %s", shortQuote(text))
	case host == "", host == "*", host == "0.0.0.0", host == "::":
		f.fail(field, "expected the name or address of the engine's machine, got %s, which is where the engine listens on it", shortQuote(text))
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10))
}

// notInHost reports whether neither names nor addresses have a character.
func notInHost(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`/\?#@,;"'`, c)
}

// sockets are those of a pool's workers.
type sockets struct {
	of map[kv.WorkerID]map[uint32]*socket // by rank; guarded by Server.linking

	mu    sync.Mutex        // held while links end: what they count is counted once
	links *kvlink.Links     // nil before the first socket
	ended map[string]uint64 // events that links left out which are no more, by reason
}

// listen registers a rank and follows what it publishes. Doing it again changes
// nothing.
func (s *Server) listen(want wanted, src kv.Source, x *socket) error {
	s.linking.Lock()
	defer s.linking.Unlock()
	if s.closed {
		return fail(http.StatusServiceUnavailable, "the service is about to end")
	}
	if err := s.mayListen(want.key, src, x); err != nil {
		return err
	}
	if err := s.ensure(want); err != nil {
		return err
	}
	// Nobody can unregister it now.
	p, r := s.registered(want.key, src)
	r.mu.Lock()
	again := r.socket != nil
	if !again {
		r.socket = x
	}
	r.mu.Unlock()
	if again {
		return nil
	}
	if p.sockets.of == nil {
		p.sockets.of = make(map[kv.WorkerID]map[uint32]*socket)
	}
	if p.sockets.of[src.Worker] == nil {
		p.sockets.of[src.Worker] = make(map[uint32]*socket)
	}
	p.sockets.of[src.Worker][src.Rank] = x
	p.sockets.mu.Lock()
	defer p.sockets.mu.Unlock()
	if p.sockets.links == nil {
		p.sockets.links = s.open(p)
		p.sockets.ended = make(map[string]uint64)
	}
	p.sockets.follow(src.Worker)
	return nil
}

// open returns the links of a pool.
func (s *Server) open(p *pool) *kvlink.Links {
	return kvlink.Open(kvlink.Config{
		Target: target{Index: p.index, server: s, pool: p}, Now: time.Now,
		Log: s.log.With("model", p.key.model, "group", p.key.group),
	})
}

// mayListen refuses a socket that would be a second source for a rank, or has one of
// its own already. Server.linking is held.
func (s *Server) mayListen(key poolKey, src kv.Source, x *socket) error {
	p, r := s.registered(key, src)
	if p == nil {
		return nil
	}
	conflict := func(format string, args ...any) error {
		return &failure{status: http.StatusConflict, field: "endpoint", message: fmt.Sprintf(format, args...)}
	}
	if r != nil {
		r.mu.Lock()
		has, told := r.socket, r.told
		r.mu.Unlock()
		switch {
		case has != nil && has.stream != x.stream:
			return conflict("rank %d of worker %d has another: %s; unregister it first", src.Rank, src.Worker, has)
		case has == nil && told:
			return conflict("rank %d of worker %d is told of by the socket of another rank, and cannot have two sources", src.Rank, src.Worker)
		}
	}
	for rank, other := range p.sockets.of[src.Worker] {
		if rank != src.Rank && other.stream.Address == x.stream.Address {
			return conflict("it is the socket of rank %d of worker %d already; batches say themselves which rank they are of", rank, src.Worker)
		}
	}
	return nil
}

// String says where a socket is and how it is read.
func (x *socket) String() string {
	text := "endpoint " + shortQuote(x.endpoint)
	if x.replay != "" {
		text += ", replay_endpoint " + shortQuote(x.replay)
	}
	if x.stream.Counted {
		text += `, engine "vllm"`
	}
	return text
}

// registered returns the pool of a model and a rank of it, nil where there is none.
func (s *Server) registered(key poolKey, src kv.Source) (*pool, *rank) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.pools[key]
	if p == nil {
		return nil, nil
	}
	return p, p.ranks[src]
}

// unlisten ends the sockets of a worker, or that of only one rank. When it returns
// nothing comes from them any more, and what they told is forgotten. Server.linking is
// held.
func (x *sockets) unlisten(worker kv.WorkerID, only *uint32) {
	of := x.of[worker]
	before := len(of)
	if only != nil {
		delete(of, *only)
	} else {
		clear(of)
	}
	if len(of) == before {
		return
	}
	if len(of) == 0 {
		delete(x.of, worker)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	links := x.links.Stats()
	x.follow(worker)
	for i := range links {
		if src := links[i].Source; src.Worker == worker && of[src.Rank] == nil {
			countSkipped(x.ended, &links[i])
		}
	}
}

// follow has the sockets of a worker followed that it has now. Server.linking and x.mu
// are held.
func (x *sockets) follow(worker kv.WorkerID) {
	// A batch that names another rank than its socket's is that rank's.
	info := &engine.Info{Models: []engine.Model{{Ranks: maxUnannounced}}}
	for _, one := range x.of[worker] {
		info.Streams = append(info.Streams, one.stream)
	}
	x.links.Follow(worker, info, nil, false)
}

// close ends all sockets of a pool. Ranks stay as they are.
func (x *sockets) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.links != nil {
		x.links.Close()
	}
}

// stats returns a view of the links, and how many events were ever left out, by reason.
func (x *sockets) stats() (links []kvlink.Stats, skipped map[string]uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.links == nil {
		return nil, nil
	}
	links = x.links.Stats()
	skipped = maps.Clone(x.ended)
	for i := range links {
		countSkipped(skipped, &links[i])
	}
	return links, skipped
}

// countSkipped adds what a link left out.
func countSkipped(sums map[string]uint64, l *kvlink.Stats) {
	for reason, n := range l.Skipped {
		if n > 0 {
			sums[kv.Reason(reason).String()] += n
		}
	}
	if l.Malformed > 0 {
		sums[kv.Malformed.String()] += l.Malformed
	}
}
