package simserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/simengine"
)

// Faults that a listener can see through: what it knows is right all the same, also
// while they come and go.
func TestEventFaultsSeenThrough(t *testing.T) {
	for _, tc := range []struct {
		name   string
		faults EventFaults
	}{
		{"duplicate-stores", EventFaults{DuplicateStores: true}},
		{"group-events", EventFaults{GroupEvents: true}},
		{"bytes-hash", EventFaults{ByteHashes: true}},
	} {
		for _, f := range formats {
			t.Run(tc.name+"/"+f.format, func(t *testing.T) {
				own, told := kvindex.New(kvindex.Config{}), kvindex.New(kvindex.Config{})
				cfg := pressed(f.kind, PublishConfig{Format: f.format})
				cfg.Events = func(b *kv.Batch) { own.Apply(b) }
				s := newServer(t, cfg)
				defer s.Close()
				l := listen(s, 0)
				tr := newChatter(4, f.adapters, f.salts)
				for i := range 24 {
					if i%2 == 0 {
						s.SetEventFaults(tc.faults)
					} else {
						s.SetEventFaults(EventFaults{})
					}
					tr.send(t, s)
				}
				l.apply(t, told)
				tr.compare(t, cfg.BlockSize, own, told)
				b := wireBatch{layout: s.publisher.layout}
				if n := l.skipped(); (len(n) > 0) != (tc.faults.GroupEvents && b.hasGroups()) {
					t.Errorf("skipped %v", n)
				}
			})
		}
	}
}

// Every copy that was told of is told of as removed, where the engine does so.
func TestDuplicateStores(t *testing.T) {
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t, pressed(kind, PublishConfig{}))
			defer s.Close()
			s.SetEventFaults(EventFaults{DuplicateStores: true})
			tr := newChatter(5, false, false)
			for range 15 {
				tr.send(t, s)
			}
			l := listen(s, 0)
			left := map[kv.BlockID]int{}
			stored, removed := 0, 0
			_, payloads := l.stream.since(0)
			for i, p := range payloads {
				b, err := l.dec.Decode(uint64(i), p)
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range b.Events {
					for _, block := range ev.Blocks {
						if ev.Kind == kv.Stored {
							stored++
							left[block.ID]++
						} else {
							removed++
							if left[block.ID]--; left[block.ID] < 0 && kind == simengine.VLLM {
								t.Fatalf("block %d removed more often than stored", block.ID)
							}
						}
					}
				}
			}
			copies := 0
			for id, n := range l.stream.mu.names.known {
				copies += int(n.copies + n.spare)
				if id == 0 {
					t.Error("a block without a name")
				}
			}
			if kind == simengine.VLLM && (stored-removed != copies || copies%2 != 0) {
				t.Errorf("%d stored, %d removed, %d copies left", stored, removed, copies)
			}
			if kind == simengine.SGLang && stored != 2*(removed+copies) {
				t.Errorf("%d stored, %d removed, %d left", stored, removed, copies)
			}
		})
	}
}

// A block size that is stated wrongly is noticed by who knows the right one.
func TestWrongBlockSize(t *testing.T) {
	s := newServer(t, pressed(simengine.VLLM, PublishConfig{}))
	defer s.Close()
	s.SetEventFaults(EventFaults{BlockSize: 8})
	newChatter(6, false, false).send(t, s)
	l := listen(s, 0)
	l.apply(t, kvindex.New(kvindex.Config{}))
	if got := l.dec.Mismatch(); got != 8 {
		t.Errorf("mismatch %d in %v", got, l.skipped())
	}
}

// Adapters without a name cannot be told apart, and are said to be there.
func TestUnnamedAdapter(t *testing.T) {
	s := newServer(t, pressed(simengine.VLLM, PublishConfig{Format: "vllm-0.10.2"}))
	defer s.Close()
	unary(t, s, "/v1/completions", `{"prompt":[1,2,3,4,5],"max_tokens":1,"model":"clerk"}`)
	l := listen(s, 0)
	l.apply(t, kvindex.New(kvindex.Config{}))
	if diff := cmp.Diff(map[string]uint64{kv.UnnamedAdapter.String(): 1}, l.skipped()); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}
