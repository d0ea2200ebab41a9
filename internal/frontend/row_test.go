package frontend

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/trace"
)

// rowLog keeps the rows it is given.
type rowLog struct {
	mu   sync.Mutex
	rows []*trace.Row
}

func (l *rowLog) Do(f func(), _ int64) bool {
	f()
	return true
}

func (l *rowLog) Write(r *trace.Row) bool {
	if r.Prepare != nil {
		r.Prepare(r)
		r.Prepare = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, r)
	return true
}

// take returns the rows and forgets them.
func (l *rowLog) take() []*trace.Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	l.rows = nil
	return rows
}

func (l *rowLog) all() []*trace.Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rows
}

// plainEngine is an engine of which everything that matters to a row is fixed.
type plainEngine struct {
	engine.Engine
	tokenizer string
	panics    bool
	down      bool // it takes no requests
}

func (e plainEngine) Identify(context.Context) (*engine.Info, error) {
	m := engine.Model{ID: "m", Tokenizer: e.tokenizer, BlockSize: 8, TotalBlocks: 100, ContextLength: 1000}
	return &engine.Info{Kind: "plain", Models: []engine.Model{m}}, nil
}

func (e plainEngine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if e.panics {
		panic("adapter")
	}
	if e.down {
		return nil, &engine.OpenError{Failure: engine.FailConnect, Target: t, Err: errors.New("nobody there")}
	}
	return e.Engine.Open(ctx, t, r)
}

// answers returns an engine that takes 30 ms to answer with a status and a body,
// which it sends part by part with 10 ms between them.
func answers(status int, contentType string, parts ...string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(30 * time.Millisecond)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		for i, part := range parts {
			if i > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	}
}

func delta(text, finish string) string {
	return fmt.Sprintf(`data: {"id":"x","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`, text, finish) + "\n\n"
}

const (
	chunkUsage = `data: {"id":"x","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":16}}}` + "\n\n"
	whole      = `{"id":"x","choices":[{"index":0,"text":"ab","finish_reason":"length"}],"usage":{"prompt_tokens":12,"completion_tokens":2}}`
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"one two three"}]}`
	chatPath   = "/v1/chat/completions"
	textPath   = "/v1/completions"
)

var goodStream = answers(200, "text/event-stream", delta("a", "null"), delta("b", "null"), delta("c", `"stop"`), chunkUsage, "data: [DONE]\n\n")

// rowCases are requests, each with an id of its own, and what they meet.
var rowCases = []struct {
	name    string
	engines int
	front   Config
	router  router.Config
	plain   plainEngine
	fault   func(w http.ResponseWriter, r *http.Request, next http.Handler)
	path    string
	body    string
	busy    bool // someone else has all there is
	header  []string
	during  func(leave, stop func()) // 35 ms into the request
}{
	{
		name: "chat stream", engines: 3, fault: goodStream, path: chatPath,
		body: `{"model":"m","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"one two three"}],
			"nvext":{"agent_hints":{"priority":5,"osl":256,"prefix_id":"run-42"},"cache_salt":"salt","request_timestamp_ms":1250.5}}`,
		header: []string{"X-Request-Id", "mine-1", "X-Dynamo-Session-Id", "talk", "X-Dynamo-Parent-Session-Id", "plan"},
	},
	{
		name: "pinned", engines: 2, fault: goodStream, path: chatPath, router: router.Config{Mode: router.Random},
		body: `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}],"nvext":{"backend_instance_id":2,"allowed_worker_ids":[1,2]}}`,
	},
	{name: "unary", fault: answers(200, "application/json", whole), path: textPath,
		body: `{"model":"m","prompt":"twelve bytes","max_tokens":2}`},
	{name: "token ids", engines: 3, router: router.Config{Mode: router.PowerOfTwo}, fault: answers(200, "application/json", whole), path: textPath,
		body: `{"model":"m","prompt":[1,2,3,4,5,6,7,8,9],"n":3}`},
	{name: "several prompts", fault: answers(200, "application/json", whole), path: textPath,
		body: `{"model":"m","prompt":["a prompt of more than a block","and another one"]}`},
	{name: "unary without usage", fault: answers(200, "application/json", `{"choices":[{"index":0,"text":"ab","finish_reason":"stop"}]}`), path: textPath,
		body: `{"model":"m","prompt":"twelve bytes"}`},
	{name: "no tokenizer", plain: plainEngine{tokenizer: "none of ours"}, fault: answers(200, "application/json", whole), path: chatPath, body: chatBody},
	{name: "a prompt that cannot be rendered", fault: answers(200, "application/json", whole), path: chatPath,
		body: `{"model":"m","messages":[{"role":"user","content":[{"no":"type"}]}]}`},
	{name: "text", front: Config{TraceText: true}, fault: answers(200, "application/json", whole), path: chatPath, body: chatBody},
	{name: "engine error", fault: answers(500, "application/json", `{"message":"boom"}`), path: chatPath, body: chatBody},
	{name: "engine refuses", fault: answers(400, "application/json", `{"message":"no such sampler"}`), path: chatPath, body: chatBody},
	{name: "error in the stream", fault: answers(200, "text/event-stream", delta("a", "null"), `data: {"error":{"message":"boom"}}`+"\n\n"), path: chatPath,
		body: `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}`},
	{name: "broken off", fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		answers(200, "text/event-stream", delta("a", "null"), delta("b", "null"))(w, r, next)
		panic(http.ErrAbortHandler)
	}, path: textPath, body: `{"model":"m","stream":true,"prompt":"twelve bytes"}`},
	{name: "silent", front: Config{Limits: Limits{EngineIdle: 20 * time.Millisecond}}, fault: goodStream, path: chatPath, body: chatBody},
	{name: "unreachable", engines: 2, plain: plainEngine{down: true}, fault: goodStream, path: chatPath, body: chatBody},
	{name: "client leaves", fault: goodStream, path: chatPath,
		body:   `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}`,
		during: func(leave, _ func()) { leave() }},
	{name: "client leaves early", fault: answers(200, "application/json", "{", "}"), path: chatPath, body: chatBody,
		during: func(leave, _ func()) { leave() }},
	{name: "server stops", fault: goodStream, path: chatPath,
		body:   `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}`,
		during: func(_, stop func()) { stop() }},
	{name: "retry", engines: 3, path: chatPath, body: chatBody,
		fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Header.Get("X-Fault") == "1" {
				answers(503, "text/plain", "not now")(w, r, next)
				return
			}
			answers(200, "application/json", whole)(w, r, next)
		}},
	{name: "nobody else", engines: 1, path: chatPath, body: chatBody, fault: answers(503, "text/plain", "not now")},
	{name: "overloaded", busy: true, router: router.Config{Thresholds: router.Thresholds{PrefillTokens: new(uint64(10))}}, fault: goodStream, path: chatPath, body: chatBody},
	{name: "waits too long", busy: true, router: router.Config{Mode: router.KV, Queue: queueOf(sched.Class{BusyTokens: new(10)}, 25*time.Millisecond)},
		fault: goodStream, path: chatPath, body: chatBody},
	{name: "too many wait", busy: true, router: router.Config{Mode: router.KV, Queue: queueOf(sched.Class{BusyTokens: new(10), MaxRequests: new(0)}, 0)},
		fault: goodStream, path: chatPath, body: chatBody},
	{name: "leaves while it waits", busy: true, router: router.Config{Mode: router.KV, Queue: queueOf(sched.Class{BusyTokens: new(10)}, 0)},
		fault: goodStream, path: chatPath, body: chatBody, during: func(leave, _ func()) { leave() }},
	{name: "server stops while it waits", busy: true, router: router.Config{Mode: router.KV, Queue: queueOf(sched.Class{BusyTokens: new(10)}, 0)},
		fault: goodStream, path: chatPath, body: chatBody, during: func(_, stop func()) { stop() }},
	{name: "nobody has the taint", fault: goodStream, path: chatPath,
		body: `{"model":"m","messages":[{"role":"user","content":"hi"}],"nvext":{"routing_constraints":{"required_taints":["h200"]}}}`},
	{name: "by cost", engines: 2, router: router.Config{Mode: router.KV}, fault: goodStream, path: chatPath,
		body: `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}`},
	{name: "by cost, without tokens", engines: 2, router: router.Config{Mode: router.KV}, plain: plainEngine{tokenizer: "none of ours"},
		fault: goodStream, path: chatPath, body: `{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}`},
	{name: "unknown pin", fault: goodStream, path: chatPath,
		body: `{"model":"m","messages":[{"role":"user","content":"hi"}],"nvext":{"backend_instance_id":7}}`},
	{name: "bad request", fault: goodStream, path: chatPath, body: `{"model":"m","messages":"hi"}`},
	{name: "unknown model", fault: goodStream, path: chatPath, body: `{"model":"else","messages":[{"role":"user","content":"hi"}]}`},
	{name: "not JSON", fault: goodStream, path: chatPath, body: `{"model":"m"`},
	{name: "panic", plain: plainEngine{tokenizer: "bytes", panics: true}, fault: goodStream, path: chatPath, body: chatBody},
	{name: "with a key", front: Config{Keys: []Key{{Name: "alice", Hash: HashKey("sk-hush"), Tenant: "acme"}}}, fault: answers(200, "application/json", whole),
		path: chatPath, body: chatBody, header: []string{"Authorization", "Bearer sk-hush"}},
}

// queueOf returns a queue with one class.
func queueOf(c sched.Class, maxWait time.Duration) *router.QueueConfig {
	c.Name, c.Quantum = "default", 1
	return &router.QueueConfig{QueueConfig: sched.QueueConfig{Classes: []sched.Class{c}}, MaxWait: maxWait}
}

// TestRowGolden pins the whole row of a request for every way it can end, in
// virtual time.
func TestRowGolden(t *testing.T) {
	var got bytes.Buffer
	for _, c := range rowCases {
		synctest.Test(t, func(t *testing.T) {
			var rows rowLog
			c.front.Trace = &rows
			if c.plain.tokenizer == "" {
				c.plain.tokenizer = tokenize.Bytes{}.Fingerprint()
			}
			c.router.Seed = 7
			c.router.Mode = stdcmp.Or(c.router.Mode, router.RoundRobin)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			base, stop := context.WithCancelCause(context.Background())
			defer stop(nil)
			n := 0
			rg := newRig(t, rigConfig{
				engines: max(1, c.engines), front: c.front, router: c.router, fault: c.fault, base: base,
				wrap: func(e engine.Engine) engine.Engine {
					p := c.plain
					p.Engine = marked{e, n}
					n++
					return p
				},
			})
			if c.busy {
				m, err := rg.router.Lookup("m")
				if err != nil {
					t.Fatal(err)
				}
				p, err := rg.router.Place(t.Context(), &router.Request{Model: m, PromptTokens: 100})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Done(router.Completed)
			}
			header := append([]string{"Request-Id", "11111111-1111-4111-8111-111111111111"}, c.header...)
			req := rg.request(t, c.path, c.body, header...).WithContext(ctx)
			if c.during != nil {
				time.AfterFunc(35*time.Millisecond, func() { c.during(leave, func() { stop(ErrStopping) }) })
			}
			if resp, err := rg.client.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			time.Sleep(time.Second) // for the engines to notice
			all := rows.all()
			if len(all) != 1 {
				t.Fatalf("%s: %d rows, want one", c.name, len(all))
			}
			fmt.Fprintf(&got, "# %s\n%s\n", c.name, pretty(t, all[0]))
			for _, a := range all[0].Attempts {
				if a.Routing == nil {
					continue
				}
				if again, err := router.Rerun(a.Routing); err != nil || again.WorkerID != a.Routing.Chosen.WorkerID {
					t.Errorf("%s: made again, the decision comes to %d, %v", c.name, again.WorkerID, err)
				}
			}
			if n := rg.body.Load(); n != 0 {
				t.Errorf("%s: %d bytes of the body budget still held", c.name, n)
			}
			rg.stop()
		})
	}
	path := filepath.Join("testdata", "rows.golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("rows (-want +got; -update rewrites them):\n%s", diff)
	}
}

// marked tells the engine its number, for faults that only one has.
type marked struct {
	engine.Engine
	n int
}

func (m marked) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	if m.n == 0 {
		r.Header.Set("X-Fault", "1")
	}
	return m.Engine.Open(ctx, t, r)
}

// pretty returns a row as it is in the file, but on several lines.
func pretty(t *testing.T, r *trace.Row) string {
	t.Helper()
	line, err := r.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, line, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestRowBlocks: the hashes are those of the tokens that the engine sees, and a
// salt changes them all.
func TestRowBlocks(t *testing.T) {
	var rows rowLog
	rg := newRig(t, rigConfig{
		front: Config{Trace: &rows}, fault: answers(200, "application/json", whole), wrap: withBytes,
	})
	text := "a prompt that has four blocks and a rest"
	for _, salt := range []string{"", `,"cache_salt":"s1"`, `,"cache_salt":"s0","nvext":{"cache_salt":"s1"}`} {
		rg.post(t, textPath, `{"model":"m","prompt":"`+text+`"`+salt+`}`)
	}
	rg.drain(t)
	ids, err := tokenize.Bytes{}.Encode(nil, []byte(text), true)
	if err != nil {
		t.Fatal(err)
	}
	for i, salt := range []string{"", "s1", "s1"} {
		var want trace.Hashes
		for _, b := range kv.AppendBlocks(nil, kv.HashSeed("", salt), ids, 8) {
			want = append(want, b.ID)
		}
		r := rows.all()[i]
		if diff := cmp.Diff(want, r.BlockHashes); diff != "" || r.BlockSize != 8 || r.Salted != (salt != "") || len(want) != len(ids)/8 {
			t.Errorf("row %d: block size %d, salted %v, hashes (-want +got):\n%s", i, r.BlockSize, r.Salted, diff)
		}
	}
}

// TestRowWithoutBlocks: what no engine ran has no hashes and is not even tokenized
// for the trace, where caches do not matter to the router.
func TestRowWithoutBlocks(t *testing.T) {
	for _, c := range []struct {
		name   string
		prompt string
		fault  func(http.ResponseWriter, *http.Request, http.Handler)
		hashes int
	}{
		{"ran", strings.Repeat("x", 900), answers(200, "application/json", whole), 112},
		{"in escapes", strings.Repeat(`\u0041`, 150), answers(200, "application/json", whole), 18},
		{"refused", strings.Repeat("x", 900), answers(400, "application/json", `{"message":"no"}`), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rows rowLog
			rg := newRig(t, rigConfig{router: router.Config{Mode: router.RoundRobin}, front: Config{Trace: &rows}, fault: c.fault, wrap: withBytes})
			rg.post(t, textPath, `{"model":"m","prompt":"`+c.prompt+`"}`)
			rg.drain(t)
			r := rows.all()[0]
			if len(r.BlockHashes) != c.hashes || (r.BlockSize > 0) != (c.hashes > 0) || r.InputGuessed != (c.hashes == 0) {
				t.Errorf("%d hashes of %d tokens, guessed %v: %s", len(r.BlockHashes), r.BlockSize, r.InputGuessed, pretty(t, r))
			}
		})
	}
}

// withBytes gives an engine the byte tokenizer.
func withBytes(e engine.Engine) engine.Engine {
	return plainEngine{Engine: e, tokenizer: tokenize.Bytes{}.Fingerprint()}
}

// busyTrace is a trace that has no time for now, or never.
type busyTrace struct {
	rowLog
	refuses bool
	todo    []func()
}

func (b *busyTrace) Do(f func(), bytes int64) bool {
	if !b.refuses {
		b.todo = append(b.todo, f)
	}
	return !b.refuses
}

func (b *busyTrace) Write(r *trace.Row) bool {
	b.rows = append(b.rows, r)
	return true
}

// TestRowKeepsNobodyWaiting: where the router has no use for tokens, a request is
// answered before its prompt is looked at for the trace, and also when it never is.
func TestRowKeepsNobodyWaiting(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		rows := &busyTrace{refuses: refuses}
		rg := newRig(t, rigConfig{
			router: router.Config{Mode: router.RoundRobin},
			front:  Config{Trace: rows}, fault: answers(200, "application/json", whole), wrap: withBytes,
		})
		for i := range 3 { // more than one, so that a buffer used again would show
			rg.post(t, textPath, `{"model":"m","prompt":"`+strings.Repeat(string(rune('a'+i)), 64)+`"}`)
		}
		rg.drain(t)
		for _, f := range rows.todo {
			f()
		}
		if len(rows.rows) != 3 || len(rows.todo) != 3 && !refuses {
			t.Fatalf("%d rows, %d to do", len(rows.rows), len(rows.todo))
		}
		for i, r := range rows.rows {
			if r.Prepare != nil {
				r.Prepare(r)
			}
			if refuses {
				if r.BlockHashes != nil || !r.InputGuessed {
					t.Errorf("row %d knows its prompt: %s", i, pretty(t, r))
				}
				continue
			}
			ids, _ := tokenize.Bytes{}.Encode(nil, []byte(strings.Repeat(string(rune('a'+i)), 64)), true)
			want := kv.AppendBlocks(nil, kv.HashSeed("", ""), ids, 8)
			if len(r.BlockHashes) != 8 || r.BlockHashes[7] != want[7].ID || r.InputTokens != 64 {
				t.Errorf("row %d has another prompt: %s", i, pretty(t, r))
			}
		}
	}
}

// TestRowOfAQuery: asking where a request would run is none.
func TestRowOfAQuery(t *testing.T) {
	var rows rowLog
	rg := newRig(t, rigConfig{front: Config{Trace: &rows}})
	resp, body := rg.post(t, chatPath, strings.Replace(hello, `{`, `{"nvext":{"annotations":["query_instance_id:"]},`, 1))
	rg.drain(t)
	if resp.StatusCode != 200 || len(rows.all()) != 0 {
		t.Errorf("status %d, %d rows; %s", resp.StatusCode, len(rows.all()), body)
	}
}

// TestRowOfARefusal: a request that was not let in leaves nothing.
func TestRowOfARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rows rowLog
		rg := newRig(t, rigConfig{fault: goodStream, front: Config{Trace: &rows, Limits: Limits{Inflight: 1}}})
		first := rg.request(t, chatPath, helloStream)
		go func() {
			if resp, err := rg.client.Do(first); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		synctest.Wait()
		if resp, _ := rg.post(t, chatPath, hello); resp.StatusCode != 503 {
			t.Errorf("beyond the limit: %d", resp.StatusCode)
		}
		time.Sleep(time.Second)
		if n := len(rows.all()); n != 1 {
			t.Errorf("%d rows, want one", n)
		}
		rg.stop()
	})
}

// TestRowBeforeDrainEnds: who waits for the requests has waited for their rows.
func TestRowBeforeDrainEnds(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var rows rowLog
			rg := newRig(t, rigConfig{fault: goodStream, front: Config{Trace: &rows}})
			req := rg.request(t, chatPath, helloStream)
			go func() {
				if resp, err := rg.client.Do(req); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			synctest.Wait()
			if err := rg.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if n := len(rows.all()); n != 1 {
				t.Errorf("%d rows, want one", n)
			}
			time.Sleep(time.Second)
			rg.stop()
		})
	}
}

// drain waits for the ends of all requests, which come after their answers.
func (rg *rig) drain(t *testing.T) {
	t.Helper()
	if err := rg.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// openTrace returns a writer to a file and a function that closes it and returns
// what it holds.
func openTrace(t *testing.T) (*trace.Writer, func() []byte) {
	t.Helper()
	w, err := trace.Open(trace.Options{Path: filepath.Join(t.TempDir(), "trace.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	return w, func() []byte {
		t.Helper()
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(w.Path())
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

// TestRowPerRequest: as many rows as requests, at the same time or not, and all of
// them can be read and made again.
func TestRowPerRequest(t *testing.T) {
	w, read := openTrace(t)
	rg := newRig(t, rigConfig{engines: 4, front: Config{Trace: w}, router: router.Config{Mode: router.PowerOfTwo}})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			id := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
			body := strings.Replace(hello, `{`, fmt.Sprintf(`{"stream":%v,`, i%2 == 0), 1)
			if resp, text := rg.post(t, chatPath, body, "Request-Id", id); resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	wg.Wait()
	rg.drain(t)
	seen := make(map[string]bool)
	for line := range bytes.Lines(read()) {
		var r trace.Row
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		seen[r.RequestID] = true
		if r.Outcome != trace.OutcomeCompleted || r.OutputTokens == nil || *r.OutputTokens != 3 || len(r.Attempts) != 1 {
			t.Errorf("row %s", line)
			continue
		}
		ro := r.Attempts[0].Routing
		if c, err := router.Rerun(ro); err != nil || c.WorkerID != ro.Chosen.WorkerID || len(ro.Candidates) != 4 {
			t.Errorf("made again it comes to %d, %v: %s", c.WorkerID, err, line)
		}
	}
	if len(seen) != 64 {
		t.Errorf("%d rows of 64", len(seen))
	}
}

// TestRowHasNoSecrets looks for everything that must not be in the file.
func TestRowHasNoSecrets(t *testing.T) {
	for _, text := range []bool{false, true} {
		w, read := openTrace(t)
		rg := newRig(t, rigConfig{front: Config{Trace: w, TraceText: text, Keys: []Key{
			{Name: "alice", Hash: HashKey("sk-alice-hush"), Tenant: "tenant-hush"},
			{Name: "bob", Hash: HashKey("sk-bob-hush"), Trusted: true},
		}}})
		rows := []struct{ path, body, key string }{
			{chatPath, `{"model":"stator-sim","messages":[{"role":"user","content":"prompt-words"}],"max_tokens":3,"cache_salt":"body-hush"}`, "sk-alice-hush"},
			{chatPath, `{"model":"stator-sim","messages":[{"role":"user","content":"prompt-words"}],"nvext":{"cache_salt":"ext-hush","metadata_upload":{"url":"http://url-hush"}}}`, "sk-bob-hush"},
			{textPath, `{"model":"stator-sim","prompt":"prompt-words","cache_salt":"body-hush","user":"user-hush"}`, "sk-bob-hush"},
			{textPath, `{"model":"stator-sim","prompt":["prompt-words","prompt-words"],"nvext":{"agent_hints":{"unheard_of":"hint-hush"}}}`, "sk-bob-hush"},
			{textPath, `{"model":"model-hush","prompt":"prompt-words"}`, "sk-bob-hush"},
			{textPath, `{"model":"stator-sim","prompt":"prompt-words","nvext":"nvext-hush"}`, "sk-bob-hush"},
		}
		for _, row := range rows {
			rg.post(t, row.path, row.body, "Authorization", "Bearer "+row.key)
		}
		rg.drain(t)
		got := string(read())
		if n := strings.Count(got, "\n"); n != len(rows) {
			t.Fatalf("%d rows, want %d", n, len(rows))
		}
		if i := strings.Index(got, "hush"); i >= 0 {
			t.Errorf("a secret is in the file: %s", got[max(0, i-60):min(len(got), i+20)])
		}
		if n := strings.Count(got, "prompt-words"); (n > 0) != text {
			t.Errorf("with text %v the prompt is in the file %d times", text, n)
		}
	}
}

// TestRowsOnAFullDisk: requests do not notice.
func TestRowsOnAFullDisk(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skipf("there is no %s here", full)
	}
	var mu sync.Mutex
	dropped, errs := 0, 0
	w, err := trace.Open(trace.Options{
		Path: full,
		Dropped: func(n int) {
			mu.Lock()
			dropped += n
			mu.Unlock()
		},
		OnError: func(error) { errs++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	rg := newRig(t, rigConfig{front: Config{Trace: w}})
	for range 20 {
		if resp, body := rg.post(t, chatPath, hello); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	rg.drain(t)
	if err := w.Close(t.Context()); err == nil {
		t.Error("the disk is not full")
	}
	if dropped != 20 || errs != 1 {
		t.Errorf("%d rows dropped, %d errors told", dropped, errs)
	}
}
