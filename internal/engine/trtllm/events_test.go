package trtllm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/kv"
)

// tokens are those of a block, as the server writes them.
func tokens(ids ...int) string {
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf(`{"type":"unique_token","token_id":%d,"token_extra_id":0}`, id))
	}
	return "[" + strings.Join(out, ",") + "]"
}

func storedBlock(hash string, more string, ids ...int) string {
	return `{"type":"stored_block","block_hash":` + hash + `,"tokens":` + tokens(ids...) + `,"cache_level":0,"priority":35` + more + `}`
}

func storedEvent(id int, parent string, blocks ...string) string {
	return fmt.Sprintf(`{"event_id":%d,"data":{"type":"stored","parent_hash":%s,"blocks":[%s]},"window_size":4096}`, id, parent, strings.Join(blocks, ","))
}

func local(lora, salt string, ids ...uint32) kv.LocalHash {
	return kv.HashTokens(kv.HashSeed(lora, salt), ids)
}

func stored(seq uint64, ev ...kv.Event) *kv.Batch { return &kv.Batch{Seq: seq, Events: ev} }

const created = `{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[1000,200]},"window_size":4096}`

func TestEvents(t *testing.T) {
	const big = "18441921395520346504"
	rows := []struct {
		name string
		in   []string
		want []*kv.Batch
	}{
		{"a prompt and its end", []string{created, storedEvent(1, "null", storedBlock(big, "", 1, 2, 3, 4), storedBlock("2", "", 5, 6, 7, 8), storedBlock("3", "", 9)),
			`{"event_id":2,"data":{"type":"removed","block_hashes":[3,2]},"window_size":4096}`},
			[]*kv.Batch{stored(0),
				stored(1, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 0xffeeddccbbaa9988, Tokens: local("", "", 1, 2, 3, 4)}, {ID: 2, Tokens: local("", "", 5, 6, 7, 8)}}}),
				stored(2, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: 2}}})}},
		{"after a parent", []string{storedEvent(4, "-1", storedBlock("2", "", 5, 6, 7, 8))},
			[]*kv.Batch{stored(4, kv.Event{Kind: kv.Stored, HasParent: true, Parent: 1<<64 - 1, Blocks: []kv.Block{{ID: 2, Tokens: local("", "", 5, 6, 7, 8)}}})}},
		{"after a partial one", []string{storedEvent(1, "null", storedBlock("1", "", 1, 2, 3, 4), storedBlock("2", "", 5)), storedEvent(2, "2", storedBlock("3", "", 1, 2, 3, 4))},
			[]*kv.Batch{stored(1, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 1, Tokens: local("", "", 1, 2, 3, 4)}}}), stored(2)}},
		{"a salt and an adapter", []string{`{"event_id":1,"data":{"type":"stored","parent_hash":null,"lora_name":"sql","blocks":[` + storedBlock("1", `,"cache_salt":"tenant"`, 1, 2) + `]}}`},
			[]*kv.Batch{stored(1, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 1, Tokens: local("sql", "tenant", 1, 2)}}})}},
		{"offloaded, taken back, removed", []string{storedEvent(1, "null", storedBlock("1", "", 1, 2)),
			`{"event_id":2,"data":{"type":"updated","block_hash":1,"cache_level":{"type":"event_diff","new_value":1,"old_value":0},"priority":null}}`,
			`{"event_id":3,"data":{"type":"removed","block_hashes":[1]}}`},
			[]*kv.Batch{stored(1, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 1, Tokens: local("", "", 1, 2)}}}),
				stored(2, kv.Event{Kind: kv.Stored, Tier: kv.Host, Bare: true, Blocks: []kv.Block{{ID: 1}}}, kv.Event{Kind: kv.Removed, Blocks: []kv.Block{{ID: 1}}}),
				stored(3, kv.Event{Kind: kv.Removed, Tier: kv.Host, Blocks: []kv.Block{{ID: 1}}})}},
		{"layers with a window", []string{created, `{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[` + storedBlock("1", "", 1, 2) + `]},"window_size":128}`},
			[]*kv.Batch{stored(0), stored(1)}},
		{"a larger block than before", []string{storedEvent(1, "null", storedBlock("1", "", 1, 2)), storedEvent(2, "null", storedBlock("2", "", 1, 2, 3, 4))},
			[]*kv.Batch{stored(1, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 1, Tokens: local("", "", 1, 2)}}}),
				stored(2, kv.Event{Kind: kv.Cleared}, kv.Event{Kind: kv.Stored, Blocks: []kv.Block{{ID: 2, Tokens: local("", "", 1, 2, 3, 4)}}})}},
		{"a single block that cannot be full", []string{storedEvent(1, "null", storedBlock("1", "", 1, 2, 3))}, []*kv.Batch{stored(1)}},
		{"on another rank", []string{`{"event_id":1,"data":{"type":"removed","block_hashes":[9]},"attention_dp_rank":3}`},
			[]*kv.Batch{{Source: kv.Source{Rank: 3}, Seq: 1, Events: []kv.Event{{Kind: kv.Removed, Blocks: []kv.Block{{ID: 9}}}}}}},
		{"what cannot be read", []string{`{}`, `7`, `{"event_id":-1}`, `{"event_id":1.5}`, `{"event_id":1,"attention_dp_rank":99999}`,
			`{"event_id":5,"data":{"type":"stored","blocks":[{"block_hash":"x"}]}}`, `{"event_id":6,"data":{"type":"mystery"}}`}, []*kv.Batch{stored(6)}},
	}
	for _, row := range rows {
		got, err := newDecoder().read(strings.NewReader("[" + strings.Join(row.in, ",") + "]"))
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

// TestRestart: after numbers that begin anew nothing of before counts.
func TestRestart(t *testing.T) {
	d := newDecoder()
	in := "[" + storedEvent(5, "null", storedBlock("1", "", 1, 2), storedBlock("2", "", 3)) + "," + storedEvent(0, "2", storedBlock("3", "", 1, 2)) + "]"
	got, err := d.read(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if last := got[1].Events; len(last) != 1 || last[0].Parent != 2 {
		t.Errorf("the second life has %+v", last)
	}
}

func TestPollEvents(t *testing.T) {
	script := enginetest.NewScript(t, map[string]string{"/kv_cache_events": "[" + created + "," + storedEvent(1, "null", storedBlock("1", "", 1, 2)) + "]", "/v1/models": models})
	e := open(t, script.URL).(*Engine)
	got, err := e.PollEvents(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if line := script.Asked()[0]; line.Line != "POST /kv_cache_events" || line.Body != "" {
		t.Errorf("asked %+v", line)
	}
	if m := identify(t, e).Models[0]; m.BlockSize != 2 || m.TotalBlocks != 1000 {
		t.Errorf("events told %+v", m)
	}
	script.Set("/kv_cache_events", "["+storedEvent(2, "null")+`,{"event`)
	if got, err := e.PollEvents(t.Context()); err == nil || len(got) != 1 {
		t.Errorf("an answer that breaks off: %v, %v", got, err)
	}
	script.Set("/kv_cache_events", "")
	if _, err := e.PollEvents(t.Context()); err == nil {
		t.Error("no route: no error")
	}
	// Nothing, at once, is not asked for again at once.
	script.Set("/kv_cache_events", "[]")
	start := time.Now()
	if got, err := e.PollEvents(t.Context()); err != nil || len(got) != 0 || time.Since(start) < pollPause {
		t.Errorf("%v, %v after %v", got, err, time.Since(start))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.PollEvents(ctx); err == nil {
		t.Error("cancelled: no error")
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("[" + created + "," + storedEvent(1, "null", storedBlock("1", "", 1, 2, 3, 4), storedBlock("2", "", 5)) + `,{"event_id":2,"data":{"type":"updated","block_hash":1,"cache_level":{"new_value":1,"old_value":0}}}]`))
	f.Add([]byte(`[{"event_id":1,"data":{"type":"stored","blocks":[]}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDecoder()
		for range 2 {
			batches, _ := d.read(strings.NewReader(string(b)))
			for _, batch := range batches {
				for _, ev := range batch.Events {
					if ev.Kind != kv.Cleared && len(ev.Blocks) == 0 {
						t.Errorf("an event without blocks: %+v", ev)
					}
				}
			}
		}
		readIterations(b)
	})
}
