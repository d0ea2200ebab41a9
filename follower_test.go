package stator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
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
