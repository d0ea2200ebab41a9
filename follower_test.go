package stator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/kvlink"
)

// TestDisputedSockets: a socket that two engines may have published on is followed for
// neither, unless one of them says that it is its own.
func TestDisputedSockets(t *testing.T) {
	links := kvlink.Open(kvlink.Config{
		Target: kvindex.New(kvindex.Config{}), Now: time.Now,
		Dial: func(context.Context, string, ...string) (kvlink.Conn, error) { return nil, errors.New("nobody") },
	})
	defer links.Close()
	f := &follower{Links: links, workers: make(map[kv.WorkerID]*followed)}
	info := func(guessed bool, address string) *engine.Info {
		i := &engine.Info{Streams: []engine.EventStream{{Address: address}}}
		if guessed {
			i.Warnings = []engine.Warning{{Code: eventsocket.Guessed}}
		}
		return i
	}
	followed := func(want ...kv.WorkerID) {
		t.Helper()
		got := make(map[kv.WorkerID]bool)
		for _, s := range links.Stats() {
			got[s.Source.Worker] = true
		}
		for _, id := range want {
			if !got[id] {
				t.Errorf("worker %d is not followed", id)
			}
			delete(got, id)
		}
		if len(got) > 0 {
			t.Errorf("%v are followed, too", got)
		}
	}
	f.Follow(1, info(true, "host:5557"), nil, true)
	followed(1)
	f.Follow(2, info(true, "host:5557"), nil, true)
	followed()
	if !f.disputed(1) || !f.disputed(2) {
		t.Error("nobody says that the socket is disputed")
	}
	f.Follow(3, info(true, "other:5557"), nil, true)
	followed(3)
	f.Follow(2, info(true, "host:5557"), nil, false) // identified again
	followed(3)
	f.Follow(2, info(false, "host:5557"), nil, false) // which says so by now
	followed(2, 3)
	f.Forget(2)
	followed(1, 3)
	if f.disputed(1) {
		t.Error("disputed with nobody")
	}
}

// TestDisputedAliases: a host has several names, and a worker may publish for several
// ranks on one socket.
func TestDisputedAliases(t *testing.T) {
	links := kvlink.Open(kvlink.Config{
		Target: kvindex.New(kvindex.Config{}), Now: time.Now,
		Dial: func(context.Context, string, ...string) (kvlink.Conn, error) { return nil, errors.New("nobody") },
	})
	defer links.Close()
	f := &follower{Links: links, workers: make(map[kv.WorkerID]*followed)}
	guessed := func(streams ...engine.EventStream) *engine.Info {
		return &engine.Info{Streams: streams, Warnings: []engine.Warning{{Code: eventsocket.Guessed}}}
	}
	f.Follow(1, guessed(engine.EventStream{Address: "127.0.0.1:5557"}), nil, true)
	f.Follow(2, guessed(engine.EventStream{Address: "localhost:5557"}), nil, true)
	if !f.disputed(1) || !f.disputed(2) {
		t.Error("one socket by two names is followed for both workers")
	}
	f.Follow(3, guessed(engine.EventStream{Address: "127.0.0.2:5557"}, engine.EventStream{Rank: 1, Address: "127.0.0.2:5559"}), nil, true)
	f.Follow(4, guessed(engine.EventStream{Address: "192.0.2.1:5557"}, engine.EventStream{Rank: 1, Address: "192.0.2.1:5557"}), nil, true)
	if f.disputed(4) {
		t.Error("a worker disputes with itself")
	}
}

// TestConfiguredTakesOver: what is configured stays when its registration lapses, and an
// id that is configured is not another's.
func TestConfiguredTakesOver(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Discovery.Register = true
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const a, b = "http://127.0.0.1:1", "http://127.0.0.1:2"
	register := func(r frontend.Registration) kv.WorkerID {
		t.Helper()
		id, _, err := s.fleet.Register(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return kv.WorkerID(id)
	}
	id := register(frontend.Registration{URL: a})
	register(frontend.Registration{URL: b, ID: 77})
	if err := s.SetEngines([]EngineConfig{{URL: a}, {URL: "http://127.0.0.1:3", ID: 77}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []kv.WorkerID{id, 77} {
		if m := s.fleet.members[id]; m == nil || m.from != fromConfig || !m.expires.IsZero() {
			t.Errorf("worker %d: %+v, want it configured", id, m)
		}
	}
	if urls := []string{s.Engines()[0].URL, s.Engines()[1].URL}; !slices.Contains(urls, a) || !slices.Contains(urls, "http://127.0.0.1:3") {
		t.Errorf("engines %v", urls)
	}
	if err := s.fleet.Deregister(77); !errors.Is(err, frontend.ErrUnknownEngine) {
		t.Errorf("a configured engine was registered away: %v", err)
	}
}
