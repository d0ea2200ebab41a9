package indexserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

// ask sends a request without a socket.
func ask(s *Server, method, path, contentType, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	return rec
}

// newSmall returns a server with worker 1 of model m, whose blocks are single tokens.
func newSmall(t *testing.T, cfg Config) *Server {
	t.Helper()
	s := New(cfg)
	if err := s.ensure(wanted{poolKey{"m", defaultGroup}, 1, []kv.Source{{Worker: 1}}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// wantBusy expects an answer that tells the client to come again.
func wantBusy(t *testing.T, what string, rec *httptest.ResponseRecorder) {
	t.Helper()
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("%s: status %d, Retry-After %q: %.300s", what, rec.Code, rec.Header().Get("Retry-After"), rec.Body)
	}
}

// What is made of a body counts, and not only the body.
func TestMemoryOfRequests(t *testing.T) {
	const n = 40_000
	zeros := strings.Repeat("0,", n) + "0"
	removed := `{"worker_id":1,"event":{"event_id":1,"data":{"removed":{"block_hashes":[` + zeros + `]}}}}`
	packed := "\x92\x01\x92\x01\x81\xa7removed\x91" + string(msgp.AppendArrayHeader(nil, n)) + strings.Repeat("\x01", n)
	cleared := "\x92\x01\x92\x01\xa7cleared" // of one id, so that they make one batch
	for _, tc := range []struct{ name, path, contentType, body string }{
		{"tokens", "/query", "application/json", `{"model_name":"m","token_ids":[` + zeros + `]}`},
		{"hashes", "/query_by_hash", "application/json", `{"model_name":"m","block_hashes":[` + zeros + `]}`},
		{"route", "/route", "application/json", `{"instance_id":1,"model_name":"m","token_ids":[` + zeros + `]}`},
		{"plane", "/kv_indexer_query", "application/json", `{"FindMatchesTokens":{"tokens":[` + zeros + `]}}`},
		{"objects", "/query", "application/json", `{"model_name":"m","token_ids":[0],"block_mm_infos":[{"mm_objects":[` + strings.Repeat(`{"mm_hash":1},`, n/2) + `{"mm_hash":1}]}]}`},
		{"infos", "/query", "application/json", `{"model_name":"m","token_ids":[` + zeros[:n] + `0],"block_mm_infos":[` + strings.Repeat(`null,`, n/2) + `null]}`},
		{"JSON event", "/events", "application/json", removed},
		{"lines", "/events", "application/x-ndjson", removed},
		{"msgpack event", "/events", "application/msgpack", packed},
		{"one batch", "/events", "application/msgpack", strings.Repeat(cleared, 5_000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSmall(t, Config{})
			if rec := ask(s, "POST", tc.path, tc.contentType, tc.body); rec.Code != http.StatusOK {
				t.Errorf("with the usual memory: status %d: %.300s", rec.Code, rec.Body)
			}
			tight := newSmall(t, Config{MaxHeld: 1_200_000})
			wantBusy(t, "with little memory", ask(tight, "POST", tc.path, tc.contentType, tc.body))
			for _, s := range []*Server{s, tight} {
				if n := s.held.Load(); n != 0 {
					t.Errorf("%d bytes are still held", n)
				}
			}
		})
	}
}

// A batch that there is no room for is not taken in by half, or the other half would
// be stale when it comes again.
func TestBatchWithoutRoom(t *testing.T) {
	s := newSmall(t, Config{MaxHeld: 1 << 20})
	body := stored(1, 0, 4, kv.Device, blocks(16)) + stored(1, 0, 5, kv.Device, blocks(32)) +
		`{"worker_id":1,"event":{"event_id":5,"data":{"removed":{"block_hashes":[` + strings.Repeat("1,", 40_000) + `1]}}}}`
	rec := ask(s, "POST", "/events", "application/json", body)
	wantBusy(t, "a batch that is too large", rec)
	if !strings.Contains(rec.Body.String(), "after 1 events") {
		t.Errorf("got %s", rec.Body)
	}
	if got := ask(s, "GET", "/workers", "", "").Body.String(); !strings.Contains(got, `"last_event_id":4,"applied":1,`) {
		t.Errorf("workers: %s", got)
	}
}

func TestTooManyBlocks(t *testing.T) {
	s := newSmall(t, Config{MaxBody: 8 << 20})
	many := strings.Repeat("7,", maxHashes)
	for path, field := range map[string]string{"/query": "token_ids", "/query_by_hash": "block_hashes"} {
		for body, want := range map[string]int{many[:len(many)-1]: 200, many + "7": 400} {
			rec := ask(s, "POST", path, "application/json", `{"model_name":"m","`+field+`":[`+body+`]}`)
			if rec.Code != want || want == 400 && !strings.Contains(rec.Body.String(), "at most 1048576 blocks, got 1048577") {
				t.Errorf("%s: status %d, want %d: %.300s", path, rec.Code, want, rec.Body)
			}
		}
	}
}

// Rubbish ends soon, and what came before it stays.
func TestManyMalformed(t *testing.T) {
	good := stored(1, 0, 4, kv.Device, blocks(16))
	packed, err := kv.AppendMsgpack(nil, kv.Source{Worker: 1}, 4, &kv.Event{Kind: kv.Cleared})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, contentType, body string }{
		{"lines", "application/x-ndjson", good + "\n" + strings.Repeat("x\n", 2*maxMalformed)},
		{"array", "application/json", "[" + good + strings.Repeat(",1", 2*maxMalformed) + "]"},
		{"values", "application/json", good + strings.Repeat(" 1", 2*maxMalformed)},
		{"msgpack", "application/msgpack", string(packed) + strings.Repeat("\x01", 2*maxMalformed)},
		{"msgpack array", "application/msgpack", string(packed) + string(msgp.AppendArrayHeader(nil, 2*maxMalformed)) + strings.Repeat("\x80", 2*maxMalformed)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSmall(t, Config{})
			rec := ask(s, "POST", "/events", tc.contentType, tc.body)
			if rec.Code != http.StatusBadRequest || !strings.Contains(rec.Body.String(), "after 1 events, which were taken in: 131072 events that cannot be read") {
				t.Errorf("status %d: %s", rec.Code, rec.Body)
			}
			p, _ := s.find(poolKey{"m", defaultGroup})
			if n := p.skipped[skipMalformed].Load(); n != maxMalformed {
				t.Errorf("%d were looked at", n)
			}
		})
	}
}

// However deep something is nested, what is said about it is short, and says why.
func TestErrorsAreShort(t *testing.T) {
	s := newSmall(t, Config{})
	deep := `{"worker_id":1,"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,"event":{"event_id":1,"data":"cleared"}}`
	for path, body := range map[string]string{"/events": deep, "/restore": `{"m:default":{"block_size":1,"events":[` + deep + `]}}`} {
		rec := ask(s, "POST", path, "application/json", body)
		if got := rec.Body.String(); len(got) > 500 || !strings.Contains(got, "nested deeper than 100") || !strings.Contains(got, "kv event: x: [0]") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A worker has only so many ranks that it did not register, and one worker cannot take
// the places of all.
func TestUnannouncedRanks(t *testing.T) {
	s := newSmall(t, Config{MaxRanks: 2000})
	register := func(worker, rank int) int {
		return ask(s, "POST", "/register", "application/json", fmt.Sprintf(`{"instance_id":%d,"model_name":"m","block_size":1,"dp_rank":%d}`, worker, rank)).Code
	}
	if code := register(2, 0); code != 201 {
		t.Fatalf("status %d", code)
	}
	var body strings.Builder
	for rank := range maxUnannounced + 5 {
		body.WriteString(stored(1, rank, 0, kv.Device, blocks(16)))
	}
	rec := ask(s, "POST", "/events", "application/json", body.String())
	for _, want := range []string{`"applied":1024`, `"skipped":{"too_many_ranks":5}`, `no room for rank 1028 of worker 1`, `1024 ranks of a worker and 2000 in all`} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("events: got %s, want %s in it", rec.Body, want)
		}
	}
	rec = ask(s, "POST", "/route", "application/json", `{"instance_id":1,"model_name":"m","dp_rank":1024,"token_ids":[1]}`)
	wantBusy(t, "route", rec)
	if !strings.Contains(rec.Body.String(), `"field":"dp_rank"`) {
		t.Errorf("route: %s", rec.Body)
	}
	if got := ask(s, "GET", "/metrics", "", "").Body.String(); !strings.Contains(got, `stator_kv_events_skipped_total{model="m",reason="too_many_ranks"} 5`) {
		t.Error("the events that were left out are not in the metrics")
	}
	// It may register more, and other workers are as free as before.
	if code := register(1, 1024); code != 201 {
		t.Errorf("register: status %d", code)
	}
	for rank, want := range map[int]string{1024: `"applied":1`, 5: `"stale":1`} {
		if rec = ask(s, "POST", "/events", "application/json", stored(1, rank, 0, kv.Device, blocks(16))); !strings.Contains(rec.Body.String(), want) {
			t.Errorf("rank %d: %s", rank, rec.Body)
		}
	}
	if rec = ask(s, "POST", "/events", "application/json", stored(2, 7, 0, kv.Device, blocks(16))); !strings.Contains(rec.Body.String(), `"applied":1`) {
		t.Errorf("another worker: %s", rec.Body)
	}
}

// Where there are more blocks than allowed the oldest go, however they came.
func TestMaxBlocksKeepsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmall(t, Config{Index: kvindex.Config{MaxBlocks: 4, PruneRatio: 0.5}})
		tokens := func(from int) []kv.Block {
			return kv.AppendBlocks(nil, kv.HashSeed("", ""), []uint32{uint32(from), uint32(from + 1)}, 1)
		}
		held := func(from int) string {
			body := ask(s, "POST", "/query", "application/json", fmt.Sprintf(`{"model_name":"m","token_ids":[%d,%d]}`, from, from+1)).Body.String()
			return strings.TrimPrefix(strings.SplitAfter(body, "}}")[0], `{"scores":`)
		}
		for i := range 40 {
			ask(s, "POST", "/events", "application/json", stored(1, 0, i, kv.Device, tokens(10*i)))
			if got := held(10 * i); got != `{"1":{"0":2}}` {
				t.Fatalf("after %d events the newest blocks are %s", i+1, got)
			}
			time.Sleep(time.Second)
		}
		ask(s, "POST", "/restore", "application/json", `{"m:default":{"block_size":1,"events":[`+stored(2, 0, 0, kv.Device, tokens(1000))+`]}}`)
		ask(s, "POST", "/restore", "application/json", `{"m:default":{"block_size":1,"events":[`+stored(3, 0, 0, kv.Device, tokens(2000))+`]}}`)
		time.Sleep(time.Second)
		ask(s, "POST", "/restore", "application/json", `{"m:default":{"block_size":1,"events":[`+stored(4, 0, 0, kv.Device, tokens(3000))+`]}}`)
		if got := held(3000); got != `{"4":{"0":2}}` {
			t.Errorf("the newest that were restored are %s", got)
		}
	})
}

func TestTransfers(t *testing.T) {
	s := newSmall(t, Config{})
	all := []struct{ method, path, body string }{{"GET", "/dump", ""}, {"POST", "/kv_indexer_query", `"DumpTree"`}, {"POST", "/restore", "{}"}}
	for range maxTransfers { // as if they were under way
		if _, err := s.transfer(); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range all {
		wantBusy(t, r.path, ask(s, r.method, r.path, "application/json", r.body))
	}
	if rec := ask(s, "HEAD", "/dump", "", ""); rec.Code != http.StatusOK {
		t.Errorf("HEAD: status %d", rec.Code)
	}
	for range maxTransfers {
		<-s.transfers
	}
	for range maxTransfers + 1 { // each gives its place back
		for _, r := range all {
			if rec := ask(s, r.method, r.path, "application/json", r.body); rec.Code != http.StatusOK {
				t.Errorf("%s: status %d: %s", r.path, rec.Code, rec.Body)
			}
		}
	}
}

// slow is a client that takes its time for each part of a body and of an answer, on a
// connection with deadlines.
type slow struct {
	timed
	every time.Duration
	bytes int // of a part
	left  int // of the body
}

func (c *slow) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(c.every)
	if time.Now().After(c.read) {
		return 0, os.ErrDeadlineExceeded
	}
	n := min(c.bytes, c.left, len(b))
	c.left -= n
	return copy(b[:n], bytes.Repeat([]byte{' '}, n)), nil
}

func (c *slow) Write(b []byte) (int, error) {
	for at := 0; at < len(b); at += c.bytes {
		time.Sleep(c.every)
		if time.Now().After(c.write) {
			return at, os.ErrDeadlineExceeded
		}
	}
	return c.timed.Write(b)
}

// A client that is slow over all is given up, though it never stops.
func TestSlowTransfers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		client slow
		min    time.Duration // before which it is not given up
		max    time.Duration // after which it is; 0 if it is not
	}{
		{"a byte at a time", slow{every: 12 * time.Second, bytes: 1, left: 1000}, stall, 2 * stall},
		{"a stop", slow{every: stall + time.Second, bytes: 1 << 20, left: 8 << 20}, stall, 2 * stall},
		{"half of what is needed", slow{every: time.Second, bytes: minRate / 2, left: 100 * minRate}, stall, 3 * stall},
		{"slow, but enough", slow{every: time.Second, bytes: minRate + minRate/10, left: 100 * minRate}, 0, 0},
		{"fast, with pauses", slow{every: stall - time.Second, bytes: 32 * minRate, left: 200 * minRate}, 0, 0},
	} {
		check := func(t *testing.T, what string, failed bool, took time.Duration) {
			t.Helper()
			if failed != (tc.max > 0) || failed && (took < tc.min || took > tc.max) {
				t.Errorf("%s: failed: %v, after %v", what, failed, took)
			}
		}
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := tc.client
				in.timed.ResponseRecorder = httptest.NewRecorder()
				body := &patient{r: &in, control: http.NewResponseController(&in)}
				began := time.Now()
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, in.bytes))
				if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error(err)
				}
				check(t, "body", err != nil, time.Since(began))

				out := tc.client
				out.timed.ResponseRecorder = httptest.NewRecorder()
				answer := &steady{w: &out, control: http.NewResponseController(&out)}
				began, err = time.Now(), nil
				for left := out.left; left > 0 && err == nil; left -= out.bytes {
					_, err = answer.Write(make([]byte, min(left, out.bytes)))
				}
				check(t, "answer", err != nil, time.Since(began))

				// The same at the other end.
				peer := tc.client
				ctx, cancel := context.WithCancelCause(t.Context())
				peer.timed.read = time.Now().Add(1000 * time.Hour)
				d := &remoteDump{body: io.NopCloser(&peer), ctx: ctx, cancel: cancel, alarm: time.AfterFunc(firstByte, func() {}), begun: true, from: "peer"}
				began = time.Now()
				for err = nil; err == nil && ctx.Err() == nil; {
					_, err = d.Read(make([]byte, peer.bytes))
				}
				check(t, "peer", ctx.Err() != nil, time.Since(began))
				d.Close()
			})
		})
	}
}

// A client that sends a byte now and then does not keep its place.
func TestSlowRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		c := &slow{timed: timed{ResponseRecorder: httptest.NewRecorder()}, every: 12 * time.Second, bytes: 1, left: 1 << 20}
		r := httptest.NewRequest("POST", "/restore", nil)
		r.Body, r.ContentLength = io.NopCloser(c), 1<<20
		r.Header.Set("Content-Type", "application/json")
		began := time.Now()
		s.ServeHTTP(&c.timed, r)
		if c.Code != http.StatusRequestTimeout || time.Since(began) > 2*stall {
			t.Errorf("status %d after %v: %s", c.Code, time.Since(began), c.Body)
		}
		if n := len(s.transfers); n != 0 {
			t.Errorf("%d places are taken", n)
		}
	})
}
