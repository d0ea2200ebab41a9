package kvfeed

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

func ptr[T any](v T) *T { return &v }

// question asks for a range, of which -1 is an end that is not given.
func question(start, end int) Request {
	q := Request{Worker: testSource.Worker, Rank: ptr(testSource.Rank)}
	if start >= 0 {
		q.Start = ptr(uint64(start))
	}
	if end >= 0 {
		q.End = ptr(uint64(end))
	}
	return q
}

// show prints an answer in short.
func show(a Answer) string {
	switch a.Kind {
	case Events:
		var ids []string
		for _, b := range a.Batches {
			ids = append(ids, fmt.Sprint(b.Seq))
		}
		return fmt.Sprintf("events %s, last %d", strings.Join(ids, " "), a.Last)
	case Dump:
		n := 0
		for ev := range a.Dump {
			n += len(ev.Blocks)
		}
		if !a.Known {
			return fmt.Sprintf("dump of %d", n)
		}
		return fmt.Sprintf("dump of %d, last %d", n, a.Last)
	case TooNew:
		return fmt.Sprintf("too new, newest %d", a.Newest)
	case InvalidRange:
		return fmt.Sprintf("invalid range %d to %d", *a.Start, *a.End)
	case DumpFailed:
		return "dump failed: " + a.Err.Error()
	}
	return "failed: " + a.Err.Error()
}

func local(t *testing.T, ring int, first, last uint64) *Local {
	t.Helper()
	l := NewLocal(testSource.Worker, kvindex.New(kvindex.Config{}), ring)
	for seq := first; seq <= last; seq++ {
		if err := l.Apply(stored(0, seq)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func TestLocalQuery(t *testing.T) {
	type row struct {
		start, end int // -1 for none
		want       string
	}
	tests := []struct {
		name        string
		ring        int
		first, last uint64
		rows        []row
	}{
		{"ring of 5, ids 5..14", 5, 5, 14, []row{
			{11, -1, "events 11 12 13 14, last 14"},
			{10, 14, "events 10 11 12 13 14, last 14"},
			{-1, -1, "dump of 10, last 14"},
			{7, -1, "dump of 10, last 14"},
			{15, 10, "invalid range 15 to 10"},
			{100, 200, "too new, newest 14"},
			{15, -1, "too new, newest 14"},
			{9, 9, "dump of 10, last 14"},
			{14, -1, "events 14, last 14"},
			{-1, 3, "dump of 10, last 14"},
		}},
		{"ids 1..5", 0, 1, 5, []row{
			{2, 6, "events 2 3 4 5, last 5"},
			{0, 4, "dump of 5, last 5"},
			{3, 3, "events 3, last 3"},
			{5, 2, "invalid range 5 to 2"},
		}},
		{"nothing was said", 0, 1, 0, []row{
			{-1, -1, "dump of 0"},
			{0, -1, "dump of 0"},
			{3, -1, "dump failed: rank 1: nothing is known of it"},
			{5, 2, "invalid range 5 to 2"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := local(t, tt.ring, tt.first, tt.last)
			for _, r := range tt.rows {
				if got := show(l.Query(question(r.start, r.end))); got != r.want {
					t.Errorf("Query(%d, %d) = %s, want %s", r.start, r.end, got, r.want)
				}
			}
		})
	}
}

func TestLocalRankIsApart(t *testing.T) {
	l := local(t, 5, 0, 3)
	b := stored(0, 9)
	b.Source.Rank = 2
	if err := l.Apply(b); err != nil {
		t.Fatal(err)
	}
	q := question(-1, -1)
	for rank, want := range map[uint32]string{0: "dump of 0", 1: "dump of 4, last 3", 2: "dump of 1, last 9"} {
		q.Rank = ptr(rank)
		if got := show(l.Query(q)); got != want {
			t.Errorf("rank %d: %s, want %s", rank, got, want)
		}
	}
}

func TestLocalForeignWorker(t *testing.T) {
	l := local(t, 5, 0, 3)
	const want = "worker_id: expected 7, got 8"
	q := question(-1, -1)
	q.Worker = 8
	if got := show(l.Query(q)); got != "failed: "+want {
		t.Errorf("Query: %s", got)
	}
	b := stored(0, 4)
	b.Source.Worker = 8
	if err := l.Apply(b); err == nil || err.Error() != want {
		t.Errorf("Apply: %v", err)
	}
	if err := l.Restore(b.Source, 0, 9, nil); err == nil || err.Error() != want {
		t.Errorf("Restore: %v", err)
	}
	if l.RemoveRank(b.Source) {
		t.Errorf("RemoveRank of another worker")
	}
}

func TestLocalHistory(t *testing.T) {
	tests := []struct {
		name  string
		do    func(*Local)
		start int
		want  string // answer to start, then to all
	}{
		{"a hole forgets what was before it", func(l *Local) { l.Apply(stored(0, 6)); l.Apply(stored(0, 7)) }, 4, "dump of 7, last 7; dump of 7, last 7"},
		{"what comes after it is kept", func(l *Local) { l.Apply(stored(0, 6)); l.Apply(stored(0, 7)) }, 6, "events 6 7, last 7; dump of 7, last 7"},
		{"what is not newer is ignored", func(l *Local) { l.Apply(stored(0, 2)); l.Apply(stored(0, 5)) }, 3, "events 3 4 5, last 5; dump of 6, last 5"},
		{"another epoch begins empty", func(l *Local) { l.Apply(stored(1, 3)) }, 3, "events 3, last 3; dump of 1, last 3"},
		{"a cleared rank begins anew", func(l *Local) { l.ClearRank(testSource); l.Apply(stored(0, 0)) }, 3, "too new, newest 0; dump of 1, last 0"},
		{"nothing is known of a cleared rank", func(l *Local) { l.ClearRank(testSource) }, 3, "dump failed: rank 1: nothing is known of it; dump of 0"},
		{"a restored rank has no past", func(l *Local) {
			l.Restore(testSource, 0, 8, func(yield func(*kv.Event, error) bool) { yield(&stored(0, 1).Events[0], nil) })
		}, 3, "dump of 1, last 8; dump of 1, last 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := local(t, 5, 0, 4)
			tt.do(l)
			if got := show(l.Query(question(tt.start, -1))) + "; " + show(l.Query(question(-1, -1))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A rank that was heard of and is not in the index is no empty cache.
func TestLocalDumpFailed(t *testing.T) {
	l := NewLocal(testSource.Worker, nil, 5)
	if err := l.Apply(stored(0, 3)); err != nil {
		t.Fatal(err)
	}
	a := l.Query(question(-1, -1))
	if got, want := show(a), "dump failed: rank 1: not in the index"; got != want || a.Last != 3 {
		t.Errorf("got %s, last %d; want %s, last 3", got, a.Last, want)
	}
}

func TestLocalSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := local(t, 5, 0, 9)
		made, gate := 0, make(chan struct{})
		real := l.dump
		l.dump = func(src kv.Source) (*kvindex.Dump, bool) {
			d, ok := real(src)
			made++
			<-gate
			return d, ok
		}
		var mu sync.Mutex
		var got []string
		ask := func(start int) {
			go func() {
				s := show(l.Query(question(start, -1)))
				mu.Lock()
				defer mu.Unlock()
				got = append(got, s)
			}()
			synctest.Wait()
		}
		ask(-1)
		ask(2)
		if made != 1 {
			t.Errorf("%d dumps for two questions, want 1", made)
		}
		for seq := uint64(10); seq < 20; seq++ {
			l.Apply(stored(0, seq))
		}
		ask(12) // the dump that is being made ends at 9
		close(gate)
		synctest.Wait()
		slices.Sort(got)
		want := []string{"dump of 10, last 9", "dump of 10, last 9", "dump of 20, last 19"}
		if diff := cmp.Diff(want, got); diff != "" || made != 2 {
			t.Errorf("%d dumps, want 2\n%s", made, diff)
		}
	})
}

// One Local is the target of a hub that recovers from another.
func TestLocalToLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := local(t, 5, 0, 9)
		here := NewLocal(testSource.Worker, kvindex.New(kvindex.Config{}), 5)
		h := Open(Config{Target: here, Recoverer: locals{there}, Now: clock})
		defer h.Close()
		if err := h.Add(testSource, engine); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for seq := uint64(10); seq < 14; seq++ {
			there.Apply(stored(0, seq))
		}
		if err := h.Apply(stored(0, 13)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := show(here.Query(question(-1, -1))), "dump of 14, last 13"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := show(here.Query(question(11, -1))), "events 11 12 13, last 13"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A Local that was told that its source said nothing does not claim to know more.
func TestLocalToLocalNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := NewLocal(testSource.Worker, kvindex.New(kvindex.Config{}), 5)
		here := NewLocal(testSource.Worker, kvindex.New(kvindex.Config{}), 5)
		h := Open(Config{Target: here, Recoverer: locals{there}, Now: clock})
		defer h.Close()
		add(t, h, engine, testSource)
		synctest.Wait()
		if got, want := show(here.Query(question(-1, -1))), "dump of 0"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestAnswerJSON(t *testing.T) {
	two := &kv.Batch{Source: testSource, Seq: 43, Events: []kv.Event{
		{Kind: kv.Removed, Blocks: []kv.Block{{ID: 100}}},
		{Kind: kv.Stored, Parent: 5, HasParent: true, Blocks: []kv.Block{{ID: 1<<64 - 1, Tokens: 1<<53 + 1}}},
	}}
	events := Answer{Kind: Events, Last: 45, Known: true, Batches: []*kv.Batch{two, {Source: testSource, Seq: 44}, cleared(0, 45)}}
	const eventsJSON = `[{"worker_id":7,"event":{"event_id":43,"data":{"removed":{"block_hashes":[100]}},"dp_rank":1}},` +
		`{"worker_id":7,"event":{"event_id":43,"data":{"stored":{"parent_hash":5,"blocks":[{"block_hash":18446744073709551615,"tokens_hash":9007199254740993,"mm_extra_info":null}]}},"dp_rank":1}},` +
		`{"worker_id":7,"event":{"event_id":44,"data":{"removed":{"block_hashes":[]}},"dp_rank":1}},` +
		`{"worker_id":7,"event":{"event_id":45,"data":"cleared","dp_rank":1}}]`
	dump := Answer{Kind: Dump, Last: 9, Known: true, Epoch: 3, Dump: func(yield func(*kv.Event, error) bool) {
		_ = yield(&stored(0, 0).Events[0], nil) && yield(&stored(0, 1).Events[0], nil)
	}}
	const dumpJSON = `[{"worker_id":7,"event":{"event_id":0,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":100,"tokens_hash":1,"mm_extra_info":null}]}},"dp_rank":1}},` +
		`{"worker_id":7,"event":{"event_id":1,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":200,"tokens_hash":2,"mm_extra_info":null}]}},"dp_rank":1}}]`
	plain, marked, full := Request{Worker: 7}, question(-1, -1), question(-1, -1)
	full.DumpFailed = true
	rank0 := kv.Source{Worker: 7}
	failed := Answer{Kind: DumpFailed, Last: 9, Err: fmt.Errorf("no room")}

	tests := []struct {
		name string
		a    Answer
		q    Request
		want string
	}{
		{"events", events, marked, `{"Events":{"events":` + eventsJSON + `,"last_event_id":45}}`},
		{"events, plain", events, plain, `{"Events":` + strings.ReplaceAll(eventsJSON, `"dp_rank":1`, `"dp_rank":0`) + `}`},
		{"dump", dump, marked, `{"TreeDump":{"events":` + dumpJSON + `,"last_event_id":9,"epoch":3}}`},
		{"dump, plain", dump, plain, `{"TreeDump":` + strings.ReplaceAll(dumpJSON, `"dp_rank":1`, `"dp_rank":0`) + `}`},
		{"too new", Answer{Kind: TooNew, Start: ptr(uint64(100)), Newest: 14}, plain, `{"TooNew":{"requested_start":100,"requested_end":null,"newest_available":14}}`},
		{"invalid range", Answer{Kind: InvalidRange, Start: ptr(uint64(15)), End: ptr(uint64(10))}, plain, `{"InvalidRange":{"start_id":15,"end_id":10}}`},
		{"dump failed", failed, full, `{"TreeDumpFailed":{"last_event_id":9,"message":"no room"}}`},
		{"dump failed, to one who does not know", failed, marked, `{"Error":"no room"}`},
		{"error", Answer{Err: fmt.Errorf("worker_id: expected 7, got 8")}, plain, `{"Error":"worker_id: expected 7, got 8"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var buf bytes.Buffer
			if err := tt.a.Encode(&buf, tt.q); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, buf.String()); diff != "" {
				t.Fatal(diff)
			}
			src := tt.q.Source()
			back, err := ParseAnswer(buf.Bytes(), src)
			if err != nil {
				t.Fatal(err)
			}
			var again bytes.Buffer
			if err := back.Encode(&again, tt.q); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, again.String()); diff != "" {
				t.Errorf("read and written again:\n%s", diff)
			}
			if marked := tt.q.marked(); back.Kind == Events && (len(back.Batches) != 3 || len(back.Batches[0].Events) != 2 || back.Known != marked) {
				t.Errorf("read as %+v, want 3 batches, the first of 2 events, known %v", back, marked)
			}
		})
	}

	t.Run("a dump that breaks is unfinished", func(t *testing.T) {
		broken := Answer{Kind: Dump, Dump: func(yield func(*kv.Event, error) bool) {
			_ = yield(&stored(0, 0).Events[0], nil) && yield(nil, fmt.Errorf("lost"))
		}}
		var buf bytes.Buffer
		if err := broken.Encode(&buf, plain); err == nil {
			t.Error("Encode: no error")
		}
		if a, err := ParseAnswer(buf.Bytes(), rank0); err == nil {
			t.Errorf("ParseAnswer(%q) = %+v, want an error", buf.String(), a)
		}
	})
}

func TestParseAnswer(t *testing.T) {
	const event = `{"worker_id":7,"event":{"event_id":4,"data":"cleared","dp_rank":1}}`
	tests := []struct{ name, in, want string }{
		{"an empty dump of a source that said nothing", `{"TreeDump":{"events":[],"last_event_id":0,"reset_scope":"All"}}`, "dump of 0"},
		{"an empty dump", `{"TreeDump":{"events":[],"last_event_id":6}}`, "dump of 0, last 6"},
		{"a plain dump has no watermark", `{"TreeDump":[` + event + `]}`, "dump of 0"},
		{"no events", `{"Events":{"events":[],"last_event_id":6}}`, "events , last 6"},
		{"unknown members", `{"Events":{"events":[],"last_event_id":6,"x":[1]},"y":{}}`, "events , last 6"},
		{"part of a rank", `{"TreeDump":{"events":[],"last_event_id":6,"reset_scope":{"Domain":"cache_owner"}}}`, `error: answer: TreeDump: reset_scope: expected all of the rank, got {"Domain":"cache_owner"}`},
		{"nothing", `{}`, "error: answer: expected one of Events, TreeDump, TreeDumpFailed, TooNew, InvalidRange, Error"},
		{"null", `{"TreeDump":{}}`, "error: answer: TreeDump: events: expected an array"},
		{"out of order", `{"Events":[` + strings.Replace(event, "4", "5", 1) + `,` + event + `]}`, "error: answer: Events: event 1: event_id: expected at least 5, got 4"},
		{"another rank", `{"Events":[` + strings.Replace(event, `"dp_rank":1`, `"dp_rank":2`, 1) + `]}`, "error: answer: Events: event 0: expected worker 7 rank 1, got worker 7 rank 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := ParseAnswer([]byte(tt.in), testSource)
			got := ""
			if err != nil {
				got = "error: " + err.Error()
			} else {
				got = show(a)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"TreeDump":{"events":[{"worker_id":7,"event":{"event_id":4,"data":"cleared","dp_rank":1}}],"last_event_id":6}}`))
	f.Add([]byte(`{"Events":[{"worker_id":7,"event":{"event_id":4,"data":{"removed":{"block_hashes":[1]}},"dp_rank":1}}]}`))
	f.Add([]byte(`{"TooNew":{"requested_start":1,"requested_end":null,"newest_available":0}}`))
	f.Add([]byte(`{"InvalidRange":{"start_id":3,"end_id":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := ParseAnswer(raw, testSource)
		if err != nil {
			return
		}
		q := question(-1, -1)
		q.DumpFailed = true
		var first, second bytes.Buffer
		if err := a.Encode(&first, q); err != nil {
			t.Fatalf("%+v: %v", a, err)
		}
		back, err := ParseAnswer(first.Bytes(), testSource)
		if err != nil {
			t.Fatalf("%s: %v", first.String(), err)
		}
		if err := back.Encode(&second, q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.String(), second.String()); diff != "" {
			t.Error(diff)
		}
	})
}
