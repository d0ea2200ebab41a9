package stator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine/detect"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
)

// dnsScheme begins the URL of engines that are found by a name: each address that it
// has is one.
const dnsScheme = "dns+"

// Where members of a fleet come from, besides the names that were looked up.
const (
	fromConfig       = "config"
	fromRegistration = "registered"
	fromSim          = "sim"
	fromDNS          = "dns"
)

// member is one engine that the router watches.
type member struct {
	config  EngineConfig
	from    string    // how it came
	name    string    // the URL that was looked up, for one found by name
	expires time.Time // when it is forgotten without a heartbeat; zero for never
}

// fleet keeps the router's workers in line with what is configured, looked up and
// registered.
type fleet struct {
	server *Server

	mu      sync.Mutex // held while the router is changed, too
	members map[kv.WorkerID]*member
	closed  bool
	names   map[string]context.CancelFunc // that are looked up
	first   []chan struct{}               // closed when they have been once
	waited  bool                          // nobody waits for first any more
	wg      sync.WaitGroup
}

// set has the configured engines be these: those that are gone are removed, those that
// changed begin anew, and the others go on undisturbed.
func (f *fleet) set(engines []EngineConfig) error {
	wanted := make(map[kv.WorkerID]EngineConfig)
	names := make(map[string]EngineConfig)
	for _, e := range engines {
		if strings.HasPrefix(e.URL, dnsScheme) {
			names[e.URL] = e
			continue
		}
		id, err := e.worker()
		if err != nil {
			return err
		}
		wanted[id] = e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	errs := f.reconcileLocked(fromConfig, "", wanted)
	for name, cancel := range f.names {
		if _, ok := names[name]; !ok {
			cancel()
			delete(f.names, name)
			errs = append(errs, f.reconcileLocked(fromDNS, name, nil)...)
		}
	}
	for name, e := range names {
		if cancel := f.names[name]; cancel != nil {
			cancel() // with what else is configured by now
		}
		ctx, cancel := context.WithCancel(f.server.running)
		f.names[name] = cancel
		first := make(chan struct{})
		if !f.waited {
			f.first = append(f.first, first)
		}
		f.wg.Go(func() { f.lookUp(ctx, name, e, first) })
	}
	return errors.Join(errs...)
}

// reconcileLocked makes the members that came from somewhere those that are wanted.
func (f *fleet) reconcileLocked(from, name string, wanted map[kv.WorkerID]EngineConfig) (errs []error) {
	for id, m := range f.members {
		if m.from != from || m.name != name {
			continue
		}
		if e, ok := wanted[id]; !ok || !reflect.DeepEqual(e, m.config) {
			f.removeLocked(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		other := f.members[id]
		switch {
		case other == nil:
		case other.from == from && other.name == name:
			continue
		case from != fromConfig: // who was there first
			continue
		case reflect.DeepEqual(other.config, wanted[id]): // what is configured stays, whatever else is said of it
			other.from, other.name, other.expires = from, name, time.Time{}
			continue
		default:
			f.removeLocked(id)
		}
		errs = append(errs, f.addLocked(id, &member{config: wanted[id], from: from, name: name}))
	}
	return errs
}

func (f *fleet) addLocked(id kv.WorkerID, m *member) error {
	e := &m.config
	engine, err := detect.New(openaihttp.Config{URL: e.URL, APIKey: e.APIKey}, detect.Options{
		Kind:   e.Kind,
		Events: eventsocket.Options{Events: e.Events, Replay: e.Replay, Topic: e.Topic},
	})
	if err != nil {
		return err
	}
	if err := f.server.router.Add(router.Spec{
		ID:               id,
		Name:             engine.URL(),
		Engine:           engine,
		Ranks:            e.Ranks,
		BlockSize:        e.BlockSize,
		TotalBlocks:      e.TotalKVBlocks,
		MaxBatchedTokens: e.MaxNumBatchedTokens,
		Taints:           e.allTaints(),
	}); err != nil {
		return err
	}
	f.members[id] = m
	return nil
}

func (f *fleet) removeLocked(id kv.WorkerID) {
	delete(f.members, id)
	f.server.router.Remove(id)
}

// worker returns the id of an engine.
func (e *EngineConfig) worker() (kv.WorkerID, error) {
	if e.ID != 0 {
		return kv.WorkerID(e.ID), nil
	}
	return openaihttp.ID(e.URL)
}

// lookUp keeps the engines of a name in line with the addresses it has, until ctx ends.
// A name that cannot be looked up leaves them as they were. It closes first after the
// first look.
func (f *fleet) lookUp(ctx context.Context, name string, e EngineConfig, first chan struct{}) {
	ticker := time.NewTicker(f.server.cfg.Discovery.DNSInterval)
	defer ticker.Stop()
	looked := sync.OnceFunc(func() { close(first) })
	defer looked()
	failed := false
	for {
		wanted, err := resolve(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed = false
			f.mu.Lock()
			if ctx.Err() == nil && !f.closed {
				err = errors.Join(f.reconcileLocked(fromDNS, name, wanted)...)
			}
			f.mu.Unlock()
		}
		if err != nil && !failed {
			failed = true
			f.server.log.Warn("cannot look up engines", "name", name, "error", err)
		}
		looked()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// wait returns when all names have been looked up once, or ctx ends.
func (f *fleet) wait(ctx context.Context) {
	f.mu.Lock()
	first := f.first
	f.first, f.waited = nil, true
	f.mu.Unlock()
	for _, looked := range first {
		select {
		case <-looked:
		case <-ctx.Done():
			return
		}
	}
}

// resolve returns the engines behind a name, one for each address.
func resolve(ctx context.Context, e EngineConfig) (map[kv.WorkerID]EngineConfig, error) {
	u, err := url.Parse(strings.TrimPrefix(e.URL, dnsScheme))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, err
	}
	out := make(map[kv.WorkerID]EngineConfig)
	for _, a := range addrs {
		one := e
		at := *u
		at.Host = withPort(a.Unmap(), u.Port())
		one.URL = at.String()
		id, err := openaihttp.ID(one.URL)
		if err != nil {
			return nil, err
		}
		out[id] = one
	}
	return out, nil
}

func withPort(a netip.Addr, port string) string {
	switch {
	case port != "":
		return net.JoinHostPort(a.String(), port)
	case a.Is6():
		return "[" + a.String() + "]"
	default:
		return a.String()
	}
}

// Register implements [frontend.Registry].
func (f *fleet) Register(_ context.Context, r frontend.Registration) (uint64, time.Duration, error) {
	e := EngineConfig{
		URL: r.URL, Kind: r.Kind, ID: r.ID, APIKey: r.APIKey, Taints: r.Taints, Ranks: r.Ranks,
		BlockSize: r.BlockSize, TotalKVBlocks: r.TotalBlocks, MaxNumBatchedTokens: r.MaxBatchedTokens,
	}
	if strings.HasPrefix(e.URL, dnsScheme) {
		return 0, 0, errors.New("url: expected http:// or https://")
	}
	id, err := e.worker()
	if err != nil {
		return 0, 0, err
	}
	ttl := f.server.cfg.Discovery.RegisterTTL
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, 0, errors.New("the server is closing")
	}
	if m := f.members[id]; m != nil {
		switch same := canonical(m.config.URL) == canonical(e.URL); {
		case m.from != fromRegistration && same:
			return 0, 0, fmt.Errorf("%w: %s is there already, by %s", frontend.ErrEngineTaken, e.URL, m.from)
		case m.from != fromRegistration || !same:
			return 0, 0, fmt.Errorf("%w: %d is that of %s", frontend.ErrEngineTaken, id, m.config.URL)
		}
		if reflect.DeepEqual(m.config, e) {
			m.expires = time.Now().Add(ttl)
			return uint64(id), ttl, nil
		}
		f.removeLocked(id)
	}
	if err := f.addLocked(id, &member{config: e, from: fromRegistration, expires: time.Now().Add(ttl)}); err != nil {
		return 0, 0, err
	}
	return uint64(id), ttl, nil
}

func canonical(raw string) string {
	u, err := openaihttp.Normalize(raw)
	if err != nil {
		return raw
	}
	return u.String()
}

// Heartbeat implements [frontend.Registry].
func (f *fleet) Heartbeat(id uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := f.registeredLocked(id)
	if err != nil {
		return err
	}
	m.expires = time.Now().Add(f.server.cfg.Discovery.RegisterTTL)
	return nil
}

// Deregister implements [frontend.Registry].
func (f *fleet) Deregister(id uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.registeredLocked(id); err != nil {
		return err
	}
	f.removeLocked(kv.WorkerID(id))
	return nil
}

// registeredLocked returns the engine that announced itself under an id.
func (f *fleet) registeredLocked(id uint64) (*member, error) {
	m := f.members[kv.WorkerID(id)]
	switch {
	case m == nil:
		return nil, frontend.ErrUnknownEngine
	case m.from != fromRegistration:
		return nil, fmt.Errorf("%w: %s came by %s", frontend.ErrUnknownEngine, m.config.URL, m.from)
	}
	return m, nil
}

// sweep forgets, until the server ends, engines that have not been heard of.
func (f *fleet) sweep(ctx context.Context) {
	ticker := time.NewTicker(max(f.server.cfg.Discovery.RegisterTTL/10, 10*time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f.mu.Lock()
			for id, m := range f.members {
				if !m.expires.IsZero() && now.After(m.expires) {
					f.server.log.Warn("engine fell silent and is forgotten", "worker", id, "url", m.config.URL)
					f.removeLocked(id)
				}
			}
			f.mu.Unlock()
		}
	}
}

// origin says how a worker came.
func (f *fleet) origin(id kv.WorkerID) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[id]; m != nil {
		return m.from
	}
	return fromSim
}

// close ends the looking up. Workers stay with the router.
func (f *fleet) close() {
	f.mu.Lock()
	f.closed = true
	for _, cancel := range f.names {
		cancel()
	}
	f.mu.Unlock()
	f.wg.Wait()
}
