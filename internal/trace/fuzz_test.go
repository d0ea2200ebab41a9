package trace

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzRead: nothing makes Read panic, what it returns is sound, and it comes back
// from Mooncake's format as it was.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"timestamp": 27482, "input_length": 1300, "output_length": 52, "hash_ids": [46, 47, 2353]}`), uint16(512))
	f.Add([]byte(`{"timestamp": 1.25, "output_tokens": 2, "hash_ids": [1, 1, 18446744073709551615], "session_id": "s", "priority": -1}
{"created_time": 1e1, "output_length": 2, "hash_ids": [1], "session_id": "s", "delay": 0.000001, "request_id": "\u00e4"}`), uint16(16))
	f.Add([]byte(`{"schema":"stator.request.trace.v1","model":"m","session_id":"s","arrival_us":5,"input_tokens":20,"output_tokens":1,"block_size":16,"block_hashes":["00000000000000aa"],"total_time_ms":2.5,"hints":{"osl":3}}
{"schema":"stator.request.trace.v1","model":"m","session_id":"s","arrival_us":9,"input_tokens":20,"output_tokens":1}
{"schema":"stator`), uint16(0))
	f.Add([]byte(`{"schema":"stator.request.trace.v1","key":"k","model":"m","session_id":"s","arrival_us":5,"input_tokens":20,"output_tokens":0,"outcome":"completed","block_size":16,"block_hashes":["00000000000000aa"]}
{"schema":"stator.request.trace.v1","mod{"schema":"stator.request.trace.v1","model":"n","session_id":"s","arrival_us":9,"input_tokens":32,"output_tokens":1,"block_size":16,"block_hashes":["00000000000000aa","00000000000000ab"]}
{"schema":"stator.request.trace.v1","model":"m","session_id":"s","arrival_us":7,"input_tokens":32,"output_tokens":1,"prompts":2}`), uint16(16))
	f.Add([]byte(`{"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","agent_context":{"session_id":"s"},"request":{"request_id":"a","output_tokens":1,"request_received_ms":5,"replay":{"trace_block_size":16,"input_length":20,"input_sequence_hashes":[1,2]}}}}`), uint16(1))
	f.Add([]byte("\x1f\x8b"), uint16(3))
	f.Add([]byte("\x28\xb5\x2f\xfd"), uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, blockSize uint16) {
		first, err := read(bytes.NewReader(data), ReadOptions{BlockSize: int(blockSize)}, limits{1 << 14, MaxLine})
		if err != nil {
			return
		}
		if len(first.Requests) == 0 {
			t.Fatal("a trace without requests")
		}
		predecessor := make(map[uint32]uint32)
		models := make(map[string]uint32)
		next := uint32(0)
		for i := range first.Requests {
			r := &first.Requests[i]
			if _, known := models[r.Model]; !known {
				models[r.Model] = uint32(len(models))
			}
			if r.Input < 1 || r.Output < 0 || r.Arrival < 0 || r.Delay < 0 || len(r.Blocks) > blocksOf(r.Input, first.BlockSize) {
				t.Fatalf("request %d: %+v", i, r)
			}
			before := noParent - models[r.Model]
			for _, id := range r.Blocks {
				if p, ok := predecessor[id]; ok && p != before {
					t.Fatalf("request %d: id %d follows %d and %d", i, id, p, before)
				} else if !ok {
					if id != next {
						t.Fatalf("request %d: id %d, want %d", i, id, next)
					}
					next++
				}
				predecessor[id] = before
				before = id
			}
		}
		second := rewriteMooncake(t, first)
		checkRows(t, first)
		if first.Format == "mooncake" {
			first.Clamped = 0
			if diff := cmp.Diff(first, second); diff != "" {
				t.Fatalf("-first +second:\n%s", diff)
			}
		}
		// Mooncake's format holds less than a recording, but holds that. In it, all
		// blocks have an id.
		if diff := cmp.Diff(first.Previous(), second.Previous()); diff != "" {
			t.Fatalf("-first +second:\n%s", diff)
		}
		if diff := cmp.Diff(second, rewriteMooncake(t, second)); diff != "" {
			t.Fatalf("-second +third:\n%s", diff)
		}
		a, b := Stat(first), Stat(second)
		if a.Blocks != b.Blocks || a.DistinctBlocks != b.DistinctBlocks || a.OnceBlocks != b.OnceBlocks || a.FirstBlockRequests != b.FirstBlockRequests {
			t.Fatalf("%+v, with all ids %+v", a, b)
		}
		for _, n := range []int{1, 3, 100} {
			if a, b := LRUHits(first, n), LRUHits(second, n); a != b {
				t.Fatalf("LRU of %d: %+v, with all ids %+v", n, a, b)
			}
			if a, b := IdealHits(first, n), IdealHits(second, n); a != b {
				t.Fatalf("%d workers: %+v, with all ids %+v", n, a, b)
			}
		}
		checkOrder(t, first)
	})
}

// checkRows reads rows of a trace back, unless its times are not those of a clock.
func checkRows(t *testing.T, tr *Trace) {
	t.Helper()
	var out bytes.Buffer
	if WriteRows(&out, tr, "m") != nil {
		return
	}
	again, err := read(&out, ReadOptions{}, limits{1 << 14, MaxLine})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	if len(again.Requests) != len(tr.Requests) || again.Skipped.Rows() != 0 {
		t.Fatalf("%d requests, %v, want %d", len(again.Requests), again.Skipped, len(tr.Requests))
	}
	count := func(tr *Trace) (n int) {
		for _, p := range tr.Previous() {
			if p >= 0 {
				n++
			}
		}
		return n
	}
	if a, b := count(tr), count(again); a != b {
		t.Fatalf("%d requests follow another, %d as rows", a, b)
	}
}

// checkOrder changes the arrivals, which must not change who follows whom.
func checkOrder(t *testing.T, tr *Trace) {
	t.Helper()
	for i := range tr.Requests {
		tr.Requests[i].ID = strconv.Itoa(i)
	}
	want := followers(tr)
	if err := tr.Speed(7, 0.5); err != nil {
		t.Fatal(err)
	}
	if err := tr.Jitter(time.Second, 1); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, followers(tr)); diff != "" {
		t.Fatalf("-before +after:\n%s", diff)
	}
}

// followers returns the id of the request that each follows.
func followers(tr *Trace) map[string]string {
	out := make(map[string]string)
	for i, p := range tr.Previous() {
		if p >= 0 {
			out[tr.Requests[i].ID] = tr.Requests[p].ID
		}
	}
	return out
}

func rewriteMooncake(t *testing.T, tr *Trace) *Trace {
	t.Helper()
	var out bytes.Buffer
	if err := WriteMooncake(&out, tr); err != nil {
		t.Fatal(err)
	}
	again, err := read(&out, ReadOptions{BlockSize: tr.BlockSize}, limits{1 << 14, MaxLine})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	return again
}
