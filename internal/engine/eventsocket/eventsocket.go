// Package eventsocket finds the sockets on which engines publish what becomes of their
// caches.
//
// Where they are is said by the operator ([Options]), by the server ([Announced]), or
// by nobody: then the ports that engines use unless told otherwise are tried. Rank r
// has the port r after that of rank 0, for its events and for their replay, unless the
// server says where each rank is.
package eventsocket

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/zmtp"
)

// The codes of warnings about event sockets.
const (
	NoEvents    = "no_events"          // the engine does not tell of its cache
	Unreachable = "events_unreachable" // it does, but not to us
	Guessed     = "events_guessed"     // the socket was found by trying
)

// The values of [Options.Events] that are no address.
const (
	Auto = "auto"
	Off  = "off"
)

// Options say where an engine's sockets are, for operators who know better.
type Options struct {
	// Events is the host:port of rank 0's publisher; without a host, the engine's.
	// Off means that events are not wanted. Empty or Auto, the default, is what the
	// server says, and otherwise what is found.
	Events string
	// Replay is the host:port where rank 0 answers what it said before; empty for
	// what the server says.
	Replay string
	// Topic is the prefix of the topics to subscribe to; empty for what the server
	// says, and otherwise for all.
	Topic string
}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Events != "" && o.Events != Auto && o.Events != Off {
		if _, _, err := split(o.Events); err != nil {
			return fmt.Errorf("events: expected auto, off or host:port, got %q: %w", o.Events, err)
		}
	}
	if o.Replay != "" {
		if _, _, err := split(o.Replay); err != nil {
			return fmt.Errorf("replay: expected host:port, got %q: %w", o.Replay, err)
		}
	}
	return nil
}

// Announced is what a server says about its sockets, with endpoints as ZeroMQ writes
// them.
type Announced struct {
	On                      bool
	Endpoint, Replay, Topic string // of rank 0
	// ZeroBinds says that the engine listens at 0.0.0.0, as SGLang does. vLLM takes
	// that for an address to connect to.
	ZeroBinds bool
	// Ranks are the sockets by what the engine calls a rank, from a server that says
	// where each is. They stand in place of those of rank 0, and each is where it says.
	Ranks map[int]Sockets
}

// Sockets are those of one rank, as the server says.
type Sockets struct {
	Endpoint string
	Replay   string // empty for none
	Topic    string
}

// Query is what is known of an engine.
type Query struct {
	Options   Options
	Announced *Announced // nil for a server that does not say
	Host      string     // where the server is
	InMemory  bool       // it is at no address
	Ranks     int        // how many there are; 0 for one
	First     int        // what the engine calls its first rank
	Counted   bool       // see [engine.EventStream]
	BlockSize int        // see [engine.EventStream]
	Advice    string     // how the engine is made to tell
	// Probe says what kind of socket listens at an address; nil for [zmtp.Probe].
	Probe func(ctx context.Context, addr string) (zmtp.Type, error)
}

const (
	defaultPort  = 5557
	probeTimeout = time.Second
	maxPort      = 1<<16 - 1
)

// Find returns the sockets of the ranks, in their order, and what stands in the way. It
// takes little more than a second.
func Find(ctx context.Context, q Query) ([]engine.EventStream, []engine.Warning) {
	q.Ranks = max(q.Ranks, 1)
	if q.Probe == nil {
		q.Probe = zmtp.Probe
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch o := q.Options; {
	case o.Events == Off:
		return nil, nil
	case o.Events != "" && o.Events != Auto:
		return q.at(ctx, o.Events, o.Replay, o.Topic)
	case q.Announced != nil:
		return q.announced(ctx, *q.Announced)
	case q.InMemory:
		return nil, warn(NoEvents, "the engine does not say whether it publishes KV events; "+q.Advice)
	}
	return q.guess(ctx)
}

func warn(code, text string) []engine.Warning { return []engine.Warning{{Code: code, Text: text}} }

// announced goes by what the server says.
func (q Query) announced(ctx context.Context, a Announced) ([]engine.EventStream, []engine.Warning) {
	if !a.On {
		return nil, warn(NoEvents, "the engine does not publish KV events; "+q.Advice)
	}
	if a.Ranks != nil {
		return q.each(ctx, a.Ranks)
	}
	events, err := q.endpoint(a.Endpoint, a.ZeroBinds, a.ZeroBinds)
	if err != nil {
		return nil, warn(Unreachable, fmt.Sprintf("KV events are published at %q: %v; %s", a.Endpoint, err, q.Advice))
	}
	replay, topic := q.Options.Replay, q.Options.Topic
	var bad []engine.Warning
	if replay == "" && a.Replay != "" {
		if replay, err = q.replay(a.Replay); err != nil {
			bad = warn(Unreachable, fmt.Sprintf("KV events are replayed at %q: %v", a.Replay, err))
		}
	}
	if topic == "" {
		topic = a.Topic
	}
	streams, warnings := q.at(ctx, events, replay, topic)
	return streams, append(warnings, bad...)
}

// each goes by what the server says about each rank. Ranks are configured alike, so that
// what is wrong with one is said once.
func (q Query) each(ctx context.Context, told map[int]Sockets) ([]engine.EventStream, []engine.Warning) {
	var streams []engine.EventStream
	var unheard, unreplayed []engine.Warning
	missing := 0
	for rank := range q.Ranks {
		t, ok := told[q.First+rank]
		if !ok {
			missing++
			continue
		}
		// An engine that was to take any port says which one it took, at an address
		// of its own. One that connects to an address says that just so, and then
		// nobody listens there.
		addr, err := q.endpoint(t.Endpoint, false, true)
		if err == nil {
			addr, err = q.shifted(addr, 0)
		}
		if err != nil {
			if unheard == nil {
				unheard = warn(Unreachable, fmt.Sprintf("KV events of rank %d are published at %q: %v; %s", q.First+rank, t.Endpoint, err, q.Advice))
			}
			continue
		}
		s := q.stream(rank, addr, cmp.Or(q.Options.Topic, t.Topic))
		switch {
		case q.Options.Replay != "":
			s.Replay, err = q.address(q.Options.Replay, rank)
		case t.Replay != "":
			if s.Replay, err = q.replay(t.Replay); err == nil {
				s.Replay, err = q.shifted(s.Replay, 0)
			}
		}
		if err != nil && unreplayed == nil {
			unreplayed = warn(Unreachable, fmt.Sprintf("KV events of rank %d cannot be replayed: %v", q.First+rank, err))
		}
		streams = append(streams, s)
	}
	warnings := slices.Concat(q.unreached(ctx, streams), unheard, unreplayed)
	if missing > 0 {
		warnings = append(warnings, silentRanks(missing, q.Ranks))
	}
	return streams, warnings
}

// silentRanks warns of ranks that do not tell.
func silentRanks(missing, ranks int) engine.Warning {
	return engine.Warning{Code: Unreachable, Text: fmt.Sprintf("%d of %d ranks publish no KV events", missing, ranks)}
}

// at returns the sockets at given addresses, and warns of those where no publisher is.
func (q Query) at(ctx context.Context, events, replay, topic string) ([]engine.EventStream, []engine.Warning) {
	streams := make([]engine.EventStream, 0, q.Ranks)
	for rank := range q.Ranks {
		addr, err := q.address(events, rank)
		if err != nil {
			return nil, warn(Unreachable, "KV events: "+err.Error())
		}
		s := q.stream(rank, addr, topic)
		if replay != "" {
			if s.Replay, err = q.address(replay, rank); err != nil {
				return nil, warn(Unreachable, "replay of KV events: "+err.Error())
			}
		}
		streams = append(streams, s)
	}
	return streams, q.unreached(ctx, streams)
}

// unreached warns of streams where no publisher is.
func (q Query) unreached(ctx context.Context, streams []engine.EventStream) []engine.Warning {
	if q.InMemory {
		return nil
	}
	var silent []string
	for i, err := range q.publishers(ctx, streams) {
		if err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", streams[i].Address, err))
		}
	}
	if len(silent) > 0 {
		return warn(Unreachable, "KV events cannot be had from "+strings.Join(silent, ", "))
	}
	return nil
}

// guess tries the port that engines publish at unless told otherwise, and for replay
// the first one that the ranks leave free.
func (q Query) guess(ctx context.Context) ([]engine.EventStream, []engine.Warning) {
	streams := make([]engine.EventStream, q.Ranks)
	replays := make([]engine.EventStream, q.Ranks)
	for rank := range q.Ranks {
		events, err := q.address(":"+strconv.Itoa(defaultPort), rank)
		if err != nil {
			break // no engine has as many ranks
		}
		replay, _ := q.address(":"+strconv.Itoa(defaultPort+q.Ranks), rank)
		streams[rank] = q.stream(rank, events, q.Options.Topic)
		replays[rank].Address = replay
	}
	var found []engine.EventStream
	var answered, routers []error
	var probes sync.WaitGroup
	probes.Go(func() { answered = q.publishers(ctx, streams) })
	probes.Go(func() { routers = q.probe(ctx, replays, zmtp.TypeRouter) })
	probes.Wait()
	for i, s := range streams {
		if answered[i] != nil {
			continue
		}
		if routers[i] == nil {
			s.Replay = replays[i].Address
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, warn(NoEvents, fmt.Sprintf("no KV events at port %d of %s; %s", defaultPort+q.First, q.Host, q.Advice))
	}
	text := fmt.Sprintf("KV events were found at %s by trying; if several engines share the host, say for each which are its own", found[0].Address)
	warnings := warn(Guessed, text)
	if missing := q.Ranks - len(found); missing > 0 {
		warnings = append(warnings, silentRanks(missing, q.Ranks))
	}
	return found, warnings
}

func (q Query) stream(rank int, addr, topic string) engine.EventStream {
	return engine.EventStream{Rank: uint32(rank), First: uint32(max(q.First, 0)), Address: addr, Topic: topic, Counted: q.Counted, BlockSize: q.BlockSize}
}

// publishers probes each stream for a publisher.
func (q Query) publishers(ctx context.Context, streams []engine.EventStream) []error {
	return q.probe(ctx, streams, zmtp.TypePub, zmtp.TypeXPub)
}

// probe returns for each stream why there is no socket of these types.
func (q Query) probe(ctx context.Context, streams []engine.EventStream, types ...zmtp.Type) []error {
	errs := make([]error, len(streams))
	var wg sync.WaitGroup
	for i, s := range streams {
		wg.Go(func() {
			got, err := q.Probe(ctx, s.Address)
			if err != nil {
				errs[i] = err
				return
			}
			for _, t := range types {
				if got == t {
					return
				}
			}
			errs[i] = fmt.Errorf("expected a socket of type %s, got %s", types[0], got)
		})
	}
	wg.Wait()
	return errs
}

// address returns the one of a rank, given that of the engine's rank 0.
func (q Query) address(base string, rank int) (string, error) {
	return q.shifted(base, q.First+rank)
}

// shifted returns the address that is n ports after another, with the engine's host in
// place of a wildcard.
func (q Query) shifted(base string, n int) (string, error) {
	host, port, err := split(base)
	if err != nil {
		return "", err
	}
	if isWildcard(host) {
		host = q.Host
	}
	if port += n; port > maxPort {
		return "", fmt.Errorf("rank %d would have port %d", n, port)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// replay returns the host:port of an endpoint for replay, which an engine listens at
// whatever its host is.
func (q Query) replay(text string) (string, error) { return q.endpoint(text, true, true) }

// endpoint returns the host:port of an endpoint where an engine listens, possibly with
// a wildcard for its host. zero says that it listens at 0.0.0.0, and named that it does
// at a single address; otherwise it connects to those.
func (q Query) endpoint(text string, zero, named bool) (string, error) {
	u, err := url.Parse(strings.Replace(text, "://*", "://", 1))
	if err != nil {
		return "", fmt.Errorf("expected tcp://*:port: %w", err)
	}
	if u.Scheme != "tcp" {
		return "", fmt.Errorf("expected tcp://*:port, got a %s address, which ends at the engine's machine", u.Scheme)
	}
	host, port, err := split(u.Host)
	if err != nil {
		return "", err
	}
	// vLLM listens wherever it sees two colons.
	listens := named || isWildcard(host) || strings.Contains(host, "::")
	if host == "0.0.0.0" {
		listens = zero
	}
	switch {
	case !listens:
		return "", fmt.Errorf("the engine connects to that address and does not listen; expected tcp://*:%d", port)
	case isLoopback(host) && !q.InMemory && !isLoopback(q.Host):
		return "", fmt.Errorf("only the engine's own machine reaches that address; expected tcp://*:%d", port)
	}
	return u.Host, nil
}

// isWildcard reports whether a host stands for all addresses of a machine.
func isWildcard(host string) bool {
	return host == "" || host == "*" || host == "0.0.0.0" || host == "::"
}

// isLoopback reports whether a host is the machine that says its name.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// split cuts an address into host, possibly empty, and port.
func split(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("expected a port from 1 to %d, got %q", maxPort, text)
	}
	return host, int(n), nil
}
