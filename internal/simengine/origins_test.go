package simengine

import (
	"testing"

	"github.com/stator-ai/stator/internal/kv"
)

// checkOrigins sees that the blocks of each event are those of its origin.
func checkOrigins(t testing.TB, p *Pass) {
	t.Helper()
	if len(p.Origins) != len(p.Events) {
		t.Fatalf("%d origins of %d events", len(p.Origins), len(p.Events))
	}
	for i, ev := range p.Events {
		from := p.Origins[i]
		if ev.Kind != kv.Stored {
			if from != (Origin{}) {
				t.Errorf("event %d, %v, is from %+v", i, ev.Kind, from)
			}
			continue
		}
		if ev.HasParent != (from.First > 0) || ev.HasParent && from.Content.Block(from.First-1).ID != ev.Parent {
			t.Errorf("event %d has parent %d, %v, before block %d", i, ev.Parent, ev.HasParent, from.First)
		}
		for k, b := range ev.Blocks {
			if got := from.Content.Block(from.First + k); got != b {
				t.Errorf("event %d has %+v at %d, its origin %+v", i, b, k, got)
			}
		}
	}
}
