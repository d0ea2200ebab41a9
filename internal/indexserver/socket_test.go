package indexserver

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

const matched = `{"scores":{"1":{"0":%[1]d}},"frequencies":[],"instances":{"1":{"longest_matched":%[1]d,"gpu":%[1]d,"dp":{"0":%[1]d},"cpu":%[1]d,"disk":%[1]d}}}`

// What an engine said before it was registered, says then, and was not heard saying is
// all in the index.
func TestSocket(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	s.say(0, storing(0, 2, 16, ""))
	s.say(0, storing(0, 1, 16, "tenant"), storing(1, 1, 16, "tenant"))
	for range 2 {
		if status, out := l.post(t, "/register", s.registration(1, 0, true, "")); status != 201 || out != "{\"status\":\"ok\"}\n" {
			t.Fatalf("status %d: %s", status, out)
		}
	}
	l.holds(t, "0", 4)
	same(t, fmt.Sprintf(matched, 32), l.must(t, "/query", tokenQuery("m", 100)))
	salted := strings.Replace(tokenQuery("m", 100), "{", `{"cache_salt":"tenant",`, 1)
	same(t, fmt.Sprintf(matched, 32), l.must(t, "/query", salted))

	s.subscribed(1)
	s.publish(0, storing(2, 1, 16, ""))
	l.holds(t, "0", 5)
	s.say(0, storing(3, 1, 16, "")) // nobody hears
	s.say(0, storing(4, 1, 16, ""))
	s.publish(0, storing(5, 1, 16, ""))
	l.holds(t, "0", 8)
	same(t, fmt.Sprintf(matched, 96), l.must(t, "/query", tokenQuery("m", 100)))

	same(t, fmt.Sprintf(`[{"instance_id":1,"model_name":"m","routing_group":"default","block_size":16,"status":"active",
		"endpoints":{"0":"tcp://%s"},
		"listeners":{"0":{"status":"active","blocks":8,"orphans":0,"epoch":0,"last_event_id":5,"applied":7,"stale":0,"missed":2,
		"socket":{"dp_rank":0,"replay_endpoint":"tcp://%s","state":"live","connects":1,"batches":2,"gaps":1,"restarts":0,"misplaced":0,"skipped":{},"eagle":false}}}}]`,
		s.pub.Addr(), s.router.Addr()), l.get(t, "/workers"))
	var want []kv.Batch
	for seq := range uint64(6) {
		want = append(want, kv.Batch{Source: kv.Source{Worker: 1}, Seq: seq})
	}
	if diff := cmp.Diff(want, l.recorded()); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	got := l.get(t, "/metrics")
	for _, want := range []string{
		`dynamo_kvindexer_listeners{status="active"} 1`,
		`dynamo_kvindexer_listeners{status="failed"} 0`,
		`stator_feed_gaps_total{dp_rank="0",model="m",worker_id="1"} 1`,
		`stator_feed_missed_batches_total{dp_rank="0",model="m",worker_id="1"} 2`,
		`stator_index_blocks{model="m"} 8`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// An engine that is started anew at its place begins empty, and its numbers are of
// another epoch.
func TestSocketRestart(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	l.must(t, "/register", s.registration(1, 0, true, ""))
	s.subscribed(1)
	for i := range 3 {
		s.publish(0, storing(i, 1, 16, ""))
	}
	l.holds(t, "0", 3)
	s.close()
	s = newSpeaker(t, s)
	s.say(0, storing(0, 2, 16, ""))
	got := l.holds(t, "0", 2)
	// It may be noticed when the link is made anew, and once more by what comes over it.
	if got.Socket.Restarts == 0 || got.Epoch == 0 || *got.LastEventID != 0 {
		t.Errorf("%d restarts, last id %d of epoch %d; want some, and 0 of another epoch", got.Socket.Restarts, *got.LastEventID, got.Epoch)
	}
	same(t, fmt.Sprintf(matched, 32), l.must(t, "/query", tokenQuery("m", 100)))
	all := l.recorded()
	if diff := cmp.Diff(kv.Batch{Source: kv.Source{Worker: 1}, Epoch: got.Epoch}, all[len(all)-1]); diff != "" {
		t.Errorf("recorded last (-want +got):\n%s", diff)
	}
}

// Of an engine that does not have what was missed any more, only what it says since is
// known, and that is of another epoch.
func TestSocketPastIsGone(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	l.must(t, "/register", s.registration(1, 0, true, ""))
	l.holds(t, "0", 0)
	s.subscribed(1)
	s.publish(0, storing(0, 2, 16, ""))
	l.holds(t, "0", 2)
	s.say(0, storing(2, 1, 16, ""))
	s.mu.Lock()
	s.past = nil
	s.mu.Unlock()
	s.publish(0, storing(0, 1, 16, ""))
	l.until(t, "what is left", func() bool { return l.worker(t, 1).Listeners["0"].Socket.State == "degraded" })
	if got := l.worker(t, 1).Listeners["0"]; got.Status != statusActive || got.Blocks != 1 || got.Epoch != 1 || *got.LastEventID != 2 {
		t.Errorf("%s with %d blocks, id %d of epoch %d; want active, 1, 2 and 1", got.Status, got.Blocks, *got.LastEventID, got.Epoch)
	}
}

// A rank that is unregistered is not heard any more, and its blocks are gone. Nothing is
// left running.
func TestSocketUnregister(t *testing.T) {
	l := newListening(t)
	s, other := newSpeaker(t, nil), newSpeaker(t, nil)
	l.must(t, "/register", s.registration(1, 0, true, ""))
	l.must(t, "/register", other.registration(1, 1, true, ""))
	l.holds(t, "0", 0) // it has been asked for its past
	s.subscribed(1)
	other.subscribed(1)
	s.publish(0, storing(0, 2, 16, ""), []byte{0x91, 0xa5, 'o', 't', 'h', 'e', 'r'})
	other.publish(1, storing(0, 1, 16, ""))
	l.holds(t, "0", 2)
	l.holds(t, "1", 1)
	const skipped = `stator_kv_events_skipped_total{model="m",reason="ignored_event"} 1` + "\n"
	if !strings.Contains(l.get(t, "/metrics"), skipped) {
		t.Errorf("metrics lack %s", skipped)
	}
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m","dp_rank":0}`)
	same(t, `{"scores":{"1":{"1":16}},"frequencies":[],"instances":{"1":{"longest_matched":16,"gpu":16,"dp":{"1":16},"cpu":16,"disk":16}}}`,
		l.must(t, "/query", tokenQuery("m", 100)))
	s.publish(0, storing(2, 1, 16, ""))
	other.publish(1, storing(1, 1, 16, ""))
	l.holds(t, "1", 2)
	if w := l.worker(t, 1); len(w.Listeners) != 1 || len(w.Endpoints) != 1 {
		t.Errorf("listeners %v, endpoints %v; want one of each", w.Listeners, w.Endpoints)
	}
	if !strings.Contains(l.get(t, "/metrics"), skipped) {
		t.Error("what was skipped is not counted any more")
	}
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m"}`)
	if got := l.get(t, "/workers"); got != "[]\n" {
		t.Errorf("workers: %s", got)
	}
	noLinks(t)
	// It can be registered again, and is heard again.
	l.must(t, "/register", s.registration(1, 0, true, ""))
	l.holds(t, "0", 3)
}

// noLinks checks that no link runs. What closes a connection may just be returning.
func noLinks(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for patience := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		running := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(running, "internal/kvlink") {
			return
		}
		if time.Now().After(patience) {
			t.Fatalf("a link is left:\n%s", running)
		}
	}
}

func TestSocketClose(t *testing.T) {
	e := newEar()
	srv := New(e.config())
	l := &listening{&rig{Server: srv}, e}
	ask := func(path, body string) (int, string) {
		req := httptest.NewRequest("POST", path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		l.ServeHTTP(rec, req)
		return rec.Code, rec.Body.String()
	}
	s := newSpeaker(t, nil)
	s.say(0, storing(0, 2, 16, ""))
	for _, group := range []string{"a", "b"} {
		if status, out := ask("/register", s.registration(1, 0, true, `,"routing_group":"`+group+`"`)); status != 201 {
			t.Fatalf("status %d: %s", status, out)
		}
	}
	l.until(t, "both groups to know", func() bool { return len(l.recorded()) == 2 })
	for range 2 {
		srv.Close()
	}
	noLinks(t)
	if status, out := ask("/register", s.registration(2, 0, true, "")); status != 503 {
		t.Errorf("registered after the end: status %d: %s", status, out)
	}
	// What is known can still be written, and read by another, who has to be told of
	// the sockets.
	var dump bytes.Buffer
	if err := srv.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	next := newListening(t)
	if done, err := next.Restore(&dump); err != nil || done != (Restored{2, 2, 4}) {
		t.Fatalf("restored %+v: %v", done, err)
	}
	if got := next.get(t, "/workers"); strings.Contains(got, "tcp://") {
		t.Errorf("workers: %s", got)
	}
}

// One rank has one source.
func TestSocketConflicts(t *testing.T) {
	l := newListening(t)
	s, other := newSpeaker(t, nil), newSpeaker(t, nil)
	l.must(t, "/register", s.registration(1, 0, false, ""))
	l.must(t, "/register", `{"instance_id":1,"model_name":"m","block_size":16}`) // says nothing about the socket
	l.must(t, "/register", `{"instance_id":1,"model_name":"m","block_size":16,"dp_rank":3}`)
	l.must(t, "/register", strings.Replace(s.registration(1, 0, false, ""), "tcp://", "", 1)) // the same
	for _, row := range []struct{ name, path, body, field, message string }{
		{"another endpoint", "/register", other.registration(1, 0, false, ""), "endpoint", "unregister it first"},
		{"another replay endpoint", "/register", s.registration(1, 0, true, ""), "endpoint", "unregister it first"},
		{"another engine", "/register", s.registration(1, 0, false, `,"engine":"vllm"`), "endpoint", "unregister it first"},
		{"one socket for two", "/register", s.registration(1, 1, false, ""), "endpoint", "the socket of rank 0"},
		{"events", "/events", stored(1, 3, 1, kv.Device, blocks(16)) + stored(1, 0, 1, kv.Device, blocks(16)) + stored(1, 3, 2, kv.Device, blocks(32)),
			"worker_id", "after 1 events, which were taken in: rank 0 of worker 1 of model \\\"m\\\" is told of by an event socket"},
		{"one event", "/events", stored(1, 0, 1, kv.Device, blocks(16)), "worker_id", "two sources"},
		{"dump", "/restore", `{"m":{"block_size":16,"ranks":[{"worker_id":1,"dp_rank":7},{"worker_id":1}]}}`, "worker_id", "two sources"},
	} {
		if status, out := l.post(t, row.path, row.body); status != 409 || !strings.Contains(out, row.message) || !strings.Contains(out, `"field":"`+row.field+`"`) {
			t.Errorf("%s: status %d: %s", row.name, status, out)
		}
	}
	w := l.worker(t, 1)
	if len(w.Listeners) != 2 || w.Listeners["3"].Applied != 1 || w.Listeners["0"].Applied != 0 {
		t.Errorf("listeners %+v, want rank 0 with nothing and rank 3 with one event", w.Listeners)
	}
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m","dp_rank":0}`)
	l.must(t, "/register", registered)
	l.must(t, "/events", stored(1, 0, 1, kv.Device, blocks(16)))
}

// A batch that names another rank than its socket's is that rank's.
func TestSocketOfAnotherRank(t *testing.T) {
	l := newListening(t)
	s, other := newSpeaker(t, nil), newSpeaker(t, nil)
	l.must(t, "/register", s.registration(1, 0, true, ""))
	l.holds(t, "0", 0)
	s.subscribed(1)
	s.publish(1, storing(0, 2, 16, ""))
	got := l.holds(t, "1", 2)
	if got.Socket.Rank != 0 || got.Socket.ReplayEndpoint != "" {
		t.Errorf("rank 1 is told of by the socket of rank %d", got.Socket.Rank)
	}
	for path, body := range map[string]string{
		"/register":   other.registration(1, 1, true, ""),
		"/events":     stored(1, 1, 7, kv.Device, blocks(16)),
		"/unregister": `{"instance_id":1,"model_name":"m","dp_rank":1}`,
	} {
		if status, out := l.post(t, path, body); status != 409 {
			t.Errorf("%s: status %d, want 409: %s", path, status, out)
		}
	}
	s.publish(0, storing(0, 3, 16, ""))
	l.holds(t, "0", 3)
	l.holds(t, "1", 2)
	s.publish(maxUnannounced, storing(0, 3, 16, ""))
	s.publish(0, storing(3, 1, 16, ""))
	if got := l.holds(t, "0", 4); got.Socket.Misplaced != 1 {
		t.Errorf("%d batches are misplaced, want 1", got.Socket.Misplaced)
	}
	// With its socket goes what it told.
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m","dp_rank":0}`)
	if got := l.worker(t, 1); len(got.Listeners) != 1 || got.Listeners["1"].Blocks != 0 || got.Listeners["1"].Socket != nil {
		t.Errorf("left: %+v", got.Listeners)
	}
	l.must(t, "/events", stored(1, 1, 7, kv.Device, blocks(16)))
}

// A socket that is of no use is said to be so, with the reason.
func TestSocketFailed(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	s.say(0, storing(0, 2, 32, ""))
	gone := newSpeaker(t, nil)
	gone.close()
	l.must(t, "/register", gone.registration(1, 0, true, ""))
	l.must(t, "/register", s.registration(2, 0, true, ""))
	reason := func(id int) string {
		w := l.worker(t, id)
		if x := w.Listeners["0"].Socket; x != nil && w.Status == statusFailed {
			return x.Error
		}
		return ""
	}
	l.until(t, "no connection", func() bool { return strings.Contains(reason(1), "refused") })
	l.until(t, "another block size", func() bool {
		return reason(2) == "the engine has blocks of 32 tokens, and was registered with 16 tokens"
	})
	for _, want := range []string{
		`dynamo_kvindexer_listeners{status="failed"} 2`,
		`stator_kv_events_skipped_total{model="m",reason="block_size_mismatch"} 1`,
	} {
		if got := l.get(t, "/metrics"); !strings.Contains(got, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	// It is tried again.
	newSpeaker(t, gone).say(0, storing(0, 1, 16, ""))
	l.holds(t, "0", 1)
	if got := l.worker(t, 1).Status; got != statusActive {
		t.Errorf("status %s, want active", got)
	}
}

// A rank that was posted, or restored, keeps its blocks when its socket takes over, until
// that tells from the beginning.
func TestSocketTakesOver(t *testing.T) {
	l := newListening(t)
	l.must(t, "/register", registered)
	l.must(t, "/events?epoch=3", stored(1, 0, 70, kv.Device, blocks(32)))
	s := newSpeaker(t, nil)
	s.say(0, storing(0, 1, 16, ""))
	for range 4 {
		s.say(0)
	}
	l.must(t, "/register", s.registration(1, 0, false, ""))
	if got := l.worker(t, 1); got.Status != statusPending || got.Listeners["0"].Blocks != 2 {
		t.Errorf("before anything is said: %+v", got)
	}
	s.subscribed(1)
	s.publish(0, storing(5, 1, 16, ""))
	l.until(t, "a batch", func() bool { return l.worker(t, 1).Listeners["0"].Socket.State == "dirty" })
	if got := l.worker(t, 1).Listeners["0"]; got.Blocks != 3 || got.Epoch != 4 || *got.LastEventID != 5 {
		t.Errorf("%d blocks, id %d of epoch %d; want 3, 5 and 4", got.Blocks, *got.LastEventID, got.Epoch)
	}
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m"}`)
	l.must(t, "/register", registered)
	l.must(t, "/events", stored(1, 0, 70, kv.Device, blocks(64)))
	l.must(t, "/register", s.registration(1, 0, true, ""))
	l.holds(t, "0", 2)
}

// vLLM tells of every copy of a block, and others do not.
func TestSocketCopies(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	s.say(0, storing(0, 2, 16, ""))
	s.say(0, storing(0, 2, 16, ""))
	s.say(0, removing(1))
	l.must(t, "/register", s.registration(1, 0, true, `,"engine":"vllm"`))
	l.must(t, "/register", s.registration(1, 0, true, `,"engine":"sglang","routing_group":"g"`))
	l.holds(t, "0", 2)
	l.until(t, "the other group", func() bool {
		return strings.Contains(l.get(t, "/workers?routing_group=g"), `"status":"active","blocks":1`)
	})
	l.must(t, "/unregister", `{"instance_id":1,"model_name":"m"}`) // of both groups
	if got := l.get(t, "/workers"); got != "[]\n" {
		t.Errorf("workers: %s", got)
	}
}

// Sockets come and go, speak, break and are asked about, all at once.
func TestSocketsConcurrent(t *testing.T) {
	l := newListening(t)
	s := newSpeaker(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			s.publish(uint32(i%3), storing(i%5, 1, 16, ""), removing(i%7))
			if i%50 == 0 {
				s.pub.Disconnect()
			}
		}
	}()
	for i := 0; ctx.Err() == nil; i++ {
		worker := 1 + i%3
		l.must(t, "/register", s.registration(worker, 0, i%2 == 0, ""))
		l.get(t, "/workers")
		l.get(t, "/metrics")
		l.post(t, "/events?model_name=m", stored(worker, i%4, i, kv.Device, blocks(64)))
		l.must(t, "/query", tokenQuery("m", 64))
		l.get(t, "/dump")
		if i%2 == 0 {
			l.must(t, "/unregister", fmt.Sprintf(`{"instance_id":%d,"model_name":"m"}`, worker))
		}
		l.post(t, "/unregister", `{"instance_id":1,"model_name":"m","dp_rank":1}`)
		l.post(t, "/unregister", fmt.Sprintf(`{"instance_id":%d,"model_name":"m","dp_rank":0}`, worker))
		l.must(t, "/register", registered)
	}
	<-done
	l.Close()
	ranks := 0
	for _, p := range l.all() {
		ranks += len(l.members(p))
		for _, src := range p.index.Ranks() {
			if p.ranks[src] == nil {
				t.Errorf("the index knows rank %v, which is not registered", src)
			}
		}
	}
	if ranks != l.ranks {
		t.Errorf("%d ranks are counted, there are %d", l.ranks, ranks)
	}
}
