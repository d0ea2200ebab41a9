package simserver

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/simengine"
)

// polledEvent is an event as TensorRT-LLM has it.
type polledEvent struct {
	ID   uint64 `json:"event_id"`
	Data struct {
		Type   string
		Levels []int         `json:"num_blocks_per_cache_level"`
		Parent *kv.BlockID   `json:"parent_hash"`
		Hashes []kv.BlockID  `json:"block_hashes"`
		Lora   string        `json:"lora_name"`
		Blocks []polledBlock `json:"blocks"`
	}
	Window int     `json:"window_size"`
	Rank   *uint32 `json:"attention_dp_rank"`
}

type polledBlock struct {
	Type   string
	Hash   kv.BlockID `json:"block_hash"`
	Tokens []struct {
		Type string
		ID   uint32 `json:"token_id"`
	}
	Salt string `json:"cache_salt"`
}

func poll(t *testing.T, s *Server) (events []polledEvent) {
	t.Helper()
	b, ok := s.queuedEvents(t.Context())
	if !ok {
		t.Fatal("no events are kept")
	}
	if err := json.Unmarshal(b, &events); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return events
}

// event makes the event one of ours.
func (e *polledEvent) event(t *testing.T) kv.Event {
	t.Helper()
	switch e.Data.Type {
	case "stored":
		ev := kv.Event{Kind: kv.Stored}
		if e.Data.Parent != nil {
			ev.HasParent, ev.Parent = true, *e.Data.Parent
		}
		for _, b := range e.Data.Blocks {
			var tokens []uint32
			for _, tok := range b.Tokens {
				tokens = append(tokens, tok.ID)
			}
			if b.Type != "stored_block" || len(tokens) != 4 {
				t.Fatalf("block %+v", b)
			}
			ev.Blocks = append(ev.Blocks, kv.Block{ID: b.Hash, Tokens: kv.HashTokens(kv.HashSeed(e.Data.Lora, b.Salt), tokens)})
		}
		return ev
	case "removed":
		ev := kv.Event{Kind: kv.Removed}
		for _, id := range e.Data.Hashes {
			ev.Blocks = append(ev.Blocks, kv.Block{ID: id})
		}
		return ev
	}
	t.Fatalf("event %+v", e)
	return kv.Event{}
}

// Whoever polls knows as much as one who is told by the model itself, and hears of no
// block that is there already.
func TestPolledEvents(t *testing.T) {
	own, told := kvindex.New(kvindex.Config{}), kvindex.New(kvindex.Config{})
	cfg := pressed(simengine.VLLM, PublishConfig{Format: "trtllm"})
	cfg.Ranks = 2
	cfg.Events = func(b *kv.Batch) { own.Apply(b) }
	s := newServer(t, cfg)
	defer s.Close()
	tr := newChatter(8, true, true)
	var next [2]uint64
	there := map[kv.Source]map[kv.BlockID]bool{}
	removals := 0
	for range 6 {
		for _, rank := range []string{"0", "1", "0"} {
			tr.send(t, s, "X-Data-Parallel-Rank: "+rank)
		}
		for _, e := range poll(t, s) {
			if e.Window != s.cfg.ContextLength || e.Rank == nil || e.ID != next[*e.Rank] {
				t.Fatalf("event %+v after %v", e, next)
			}
			src := kv.Source{Worker: cfg.Worker, Rank: *e.Rank}
			next[*e.Rank]++
			if e.ID == 0 {
				if e.Data.Type != "created" || !slices.Equal(e.Data.Levels, []int{cfg.TotalBlocks, 0}) {
					t.Fatalf("the first event is %+v", e)
				}
				there[src] = map[kv.BlockID]bool{}
				continue
			}
			ev := e.event(t)
			for _, b := range ev.Blocks {
				if there[src][b.ID] == (ev.Kind == kv.Stored) {
					t.Fatalf("%v of block %d, which is there: %v", ev.Kind, b.ID, there[src][b.ID])
				}
				there[src][b.ID] = ev.Kind == kv.Stored
			}
			if ev.Kind == kv.Removed {
				removals++
			}
			told.Apply(&kv.Batch{Source: src, Events: []kv.Event{ev}})
		}
		tr.compare(t, cfg.BlockSize, own, told)
	}
	if removals == 0 {
		t.Error("nothing was removed")
	}
}

func TestPolledClear(t *testing.T) {
	s := newServer(t, pressed(simengine.VLLM, PublishConfig{Format: "trtllm"}))
	defer s.Close()
	unary(t, s, "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`)
	s.ranks[0].publish(&simengine.Pass{Events: []kv.Event{{Kind: kv.Cleared}}, Origins: make([]simengine.Origin, 1)})
	events := poll(t, s)
	if len(events) != 3 || events[1].Rank != nil {
		t.Fatalf("events %+v", events)
	}
	var want []kv.BlockID
	for _, b := range events[1].Data.Blocks {
		want = append(want, b.Hash)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, events[2].Data.Hashes); diff != "" || len(want) != 2 {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	s.publisher.restart()
	if events := poll(t, s); len(events) != 1 || events[0].ID != 0 || events[0].Data.Type != "created" {
		t.Errorf("after a restart: %+v", events)
	}
}

func TestEventQueue(t *testing.T) {
	text := func(events [][]byte) (out []string) {
		for _, e := range events {
			out = append(out, string(e))
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		q := &eventQueue{limit: 3}
		for _, e := range []string{"a", "b", "c", "d"} {
			q.push([]byte(e))
		}
		if diff := cmp.Diff([]string{"b", "c", "d"}, text(q.take(t.Context(), nil))); diff != "" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}

		start := time.Now()
		if got := q.take(t.Context(), nil); got != nil || time.Since(start) != 2*time.Second {
			t.Errorf("got %q after %v", got, time.Since(start))
		}

		start = time.Now()
		time.AfterFunc(time.Second, func() { q.push([]byte("e")) })
		if got := text(q.take(t.Context(), nil)); !slices.Equal(got, []string{"e"}) || time.Since(start) != time.Second {
			t.Errorf("got %q after %v", got, time.Since(start))
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		life := make(chan struct{})
		close(life)
		start = time.Now()
		if got := slices.Concat(q.take(ctx, nil), q.take(t.Context(), life)); got != nil || time.Since(start) != 0 {
			t.Errorf("got %q after %v", got, time.Since(start))
		}
	})
}
