package stator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/nvext"
)

// patience is how long a test waits for something that should come at once.
const patience = 15 * time.Second

// await waits until check finds nothing missing.
func await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// watchLeaks fails the test if it leaves goroutines. It comes before everything that is
// to be closed at the end.
func watchLeaks(t *testing.T) {
	t.Helper()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		deadline := time.Now().Add(patience)
		for runtime.NumGoroutine() > before {
			if time.Now().After(deadline) {
				var all bytes.Buffer
				pprof.Lookup("goroutine").WriteTo(&all, 1)
				t.Errorf("%d goroutines, and %d before\n%s", runtime.NumGoroutine(), before, &all)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// dressedModel is the model that dressed engines serve.
const dressedModel = "m"

// dressed is a simulated engine that looks like a real one, on sockets.
type dressed struct {
	t    testing.TB
	sim  *simserver.Server
	id   uint64
	addr string // of its HTTP server
	http *http.Server

	truth *kvindex.Index // of what its caches hold
	epoch uint64         // of that

	mu    sync.Mutex
	asked []asked // all that it was asked
}

// asked is one request as an engine got it.
type asked struct {
	path   string
	header http.Header
	body   string
}

// member returns a member of the body as JSON, empty if there is none.
func (a *asked) member(name string) string {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(a.body), &all) != nil {
		return ""
	}
	return string(all[name])
}

// dress starts an engine that takes no time, with a cache of 512 blocks of 16 tokens of
// which it tells as its kind does.
func dress(t testing.TB, d simserver.Dress, change func(*simserver.Config)) *dressed {
	t.Helper()
	e := &dressed{t: t, truth: kvindex.New(kvindex.Config{})}
	cfg := simserver.Config{
		Model: dressedModel, Dress: d, ContextLength: 8192,
		Engine: &simengine.Config{Timing: simengine.Fixed{}},
		Events: e.told,
	}
	if d != simserver.DressLlamaCpp {
		cfg.BlockSize, cfg.TotalBlocks = 16, 512
	}
	switch d {
	case simserver.DressVLLM:
		cfg.DevMode = true // so that it says where its sockets are
		cfg.Publish = &simserver.PublishConfig{Listen: "*:0", Replay: "*:0"}
	case simserver.DressSGLang:
		cfg.Publish = &simserver.PublishConfig{Listen: "127.0.0.1:0", Replay: "127.0.0.1:0"}
	case simserver.DressTRTLLM:
		cfg.Publish = &simserver.PublishConfig{}
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if e.sim, err = simserver.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.sim.Close)
	e.serve("127.0.0.1:0")
	t.Cleanup(func() { e.http.Close() })
	return e
}

// serve answers HTTP at an address.
func (e *dressed) serve(addr string) {
	e.t.Helper()
	ln, err := e.sim.Listen(addr)
	if err != nil {
		e.t.Fatal(err)
	}
	e.addr = ln.Addr().String()
	e.http = &http.Server{Handler: e}
	go e.http.Serve(ln)
}

// kill ends the HTTP server with all its connections, as if its process had died, and
// the caches with it.
func (e *dressed) kill() {
	e.http.Close()
	e.restart()
}

// revive begins it anew where it was.
func (e *dressed) revive() { e.serve(e.addr) }

// restart has the engine begin anew in place.
func (e *dressed) restart() {
	e.sim.Restart()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget()
}

func (e *dressed) forget() {
	for _, src := range e.truth.Ranks() {
		e.truth.ClearRank(src)
	}
	e.epoch++
}

// told hears of the changes of the caches.
func (e *dressed) told(b *kv.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.Epoch > e.epoch { // it began anew by itself
		e.forget()
		e.epoch = b.Epoch
	}
	b.Source.Worker = 1
	e.truth.Apply(b)
}

// held returns how many blocks are in the cache of a rank.
func (e *dressed) held(rank uint32) int64 {
	src := kv.Source{Worker: 1, Rank: rank}
	if _, ok := e.truth.Rank(src); !ok {
		return 0
	}
	return e.truth.Held(src).Load()
}

func (e *dressed) url() string { return "http://" + e.addr }

// ServeHTTP notes the request and has the engine answer it.
func (e *dressed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	e.mu.Lock()
	e.asked = append(e.asked, asked{r.URL.Path, r.Header.Clone(), string(body)})
	e.mu.Unlock()
	e.sim.ServeHTTP(w, r)
}

// calls returns what came on a path, in order.
func (e *dressed) calls(path string) []asked {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []asked
	for _, a := range e.asked {
		if a.path == path {
			out = append(out, a)
		}
	}
	return out
}

// last returns the latest request for text.
func (e *dressed) last(t testing.TB) asked {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range slices.Backward(e.asked) {
		if strings.HasSuffix(a.path, "/completions") {
			return a
		}
	}
	t.Fatal("it was asked for nothing")
	return asked{}
}

// fault makes something go wrong with the engine.
func (e *dressed) fault(t testing.TB, text string) {
	t.Helper()
	f, err := simserver.ParseFault(text)
	if err == nil {
		err = e.sim.Fault(f)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testFleet is a server over dressed engines.
type testFleet struct {
	t       testing.TB
	srv     *Server
	client  *http.Client // whose requests all go to the server
	engines []*dressed
}

// fleetOf starts a server over engines, which have the worker ids 1, 2 and so on, and
// waits until it has found them and follows those that tell of their caches.
func fleetOf(t testing.TB, change func(*Config), engines ...*dressed) *testFleet {
	t.Helper()
	cfg := fleetConfig()
	for i, e := range engines {
		e.id = uint64(i + 1)
		cfg.Engines = append(cfg.Engines, e.config())
	}
	if change != nil {
		change(&cfg)
	}
	f := startFleet(t, cfg)
	f.engines = engines
	f.settle()
	return f
}

// config is what the fleet is told of an engine.
func (e *dressed) config() EngineConfig { return EngineConfig{URL: e.url(), ID: e.id} }

// fleetConfig looks often at engines.
func fleetConfig() Config {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Models = []ModelConfig{{Name: "*", Tokenizer: "qwen3"}}
	cfg.Router.Seed = 1
	cfg.Router.ProbeInterval = 50 * time.Millisecond
	cfg.Router.LoadInterval = 20 * time.Millisecond
	return cfg
}

func startFleet(t testing.TB, cfg Config) *testFleet {
	t.Helper()
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testFleet{t: t, srv: srv, client: &http.Client{Transport: tr}}
}

// settle waits until every engine is there and what is known of its caches is what they
// hold, and nothing is under way.
func (f *testFleet) settle() {
	f.t.Helper()
	for _, e := range f.engines {
		await(f.t, fmt.Sprintf("worker %d", e.id), func() error { return f.settled(e) })
	}
}

func (f *testFleet) settled(e *dressed) error {
	st := f.status(e.id)
	switch {
	case st == nil || st.Info == nil:
		return errors.New("not found")
	case st.State != nvext.StateEligible:
		return fmt.Errorf("is %s", st.State)
	case e.sim.Inflight() != 0:
		return fmt.Errorf("%d requests run there", e.sim.Inflight())
	}
	for _, r := range st.Ranks {
		if r.Inflight != 0 || r.PrefillTokens != 0 || r.ActiveBlocks != 0 {
			return fmt.Errorf("rank %d: %d requests are booked, with %d tokens and %d blocks", r.Rank, r.Inflight, r.PrefillTokens, r.ActiveBlocks)
		}
		if st.Info.Kind == engine.LlamaCpp || len(st.Info.Streams) == 0 && st.Info.Kind != engine.TRTLLM {
			continue
		}
		link := f.link(e.id, r.Rank)
		if link.State == kvlink.Silent && link.Replay == "" && e.held(r.Rank) == 0 {
			continue // there is nothing to say, and nobody to ask whether there was
		}
		if want := e.held(r.Rank); link.State != kvlink.Live || want > 0 && !r.Told || r.Told && r.Held != want {
			return fmt.Errorf("rank %d: link is %s, told %t, %d blocks are known and %d there; last error %v", r.Rank, link.State, r.Told, r.Held, want, link.LastError)
		}
	}
	return nil
}

// status returns what the router says of a worker, nil if it is not there.
func (f *testFleet) status(id uint64) *router.EngineStatus {
	for _, st := range f.srv.router.Engines() {
		if uint64(st.ID) == id {
			return &st
		}
	}
	return nil
}

// link returns how the events of a rank are followed.
func (f *testFleet) link(id uint64, rank uint32) kvlink.Stats {
	for _, l := range f.srv.links.Stats() {
		if uint64(l.Source.Worker) == id && l.Source.Rank == rank {
			return l
		}
	}
	return kvlink.Stats{}
}

// ask sends a chat or a completion to the server and reads all of the answer.
func (f *testFleet) ask(path string, request map[string]any) *heard {
	return post(f.client, "http://stator"+path, request)
}

// chat sends a chat about a document, whose blocks are those of no other, and asks for
// reasons.
func (f *testFleet) chat(doc, question string, change func(map[string]any)) *heard {
	f.t.Helper()
	q := explained(essay(doc, 80), question)
	q["model"] = dressedModel
	if change != nil {
		change(q)
	}
	return f.ask("/v1/chat/completions", q)
}

// knows waits until of a chat about a document as many blocks are taken to be in an
// engine's cache as there are.
func (f *testFleet) knows(e *dressed, doc string) {
	f.t.Helper()
	await(f.t, fmt.Sprintf("what worker %d has of %s", e.id, doc), func() error {
		got := f.chat(doc, "?", both(pinned(e), func(q map[string]any) { nvextOf(q)["annotations"] = []string{"query_instance_id:"} }))
		if got.routing == nil || len(got.prompt) == 0 {
			return fmt.Errorf("%v", got)
		}
		there := 0
		prompt := kv.AppendBlocks(nil, kv.HashSeed("", ""), got.prompt, got.routing.BlockSize)
		for _, o := range e.truth.Match(nil, prompt) {
			if o.Source.Rank == got.routing.Chosen.DPRank {
				there = int(o.Depth[kv.Device])
			}
		}
		if known := int(got.routing.Chosen.OverlapBlocks); known != there {
			return fmt.Errorf("%d blocks are known and %d there", known, there)
		}
		return nil
	})
}

// get fetches a document of the server.
func (f *testFleet) get(path string, into any) {
	f.t.Helper()
	resp, err := f.client.Get("http://stator" + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		f.t.Fatalf("%s: %v", path, err)
	}
}

// pinned has a request go to a worker.
func pinned(e *dressed) func(map[string]any) {
	return func(q map[string]any) { nvextOf(q)["backend_instance_id"] = e.id }
}

// streamed has a request be streamed with its usage.
func streamed(q map[string]any) {
	q["stream"], q["stream_options"] = true, map[string]any{"include_usage": true}
}

// both makes several changes.
func both(changes ...func(map[string]any)) func(map[string]any) {
	return func(q map[string]any) {
		for _, c := range changes {
			c(q)
		}
	}
}

func nvextOf(q map[string]any) map[string]any {
	if q["nvext"] == nil {
		q["nvext"] = map[string]any{}
	}
	return q["nvext"].(map[string]any)
}

// heard is what a client sees of an answer.
type heard struct {
	status int
	err    error // the connection broke
	body   string
	events []string // of a stream: the data of each event

	text    string
	finish  string
	done    bool // [DONE] came, and nothing after it
	usage   *tokenUsage
	failure string // the message of an error
	routing *nvext.Routing
	prompt  []uint32 // the tokens of the prompt, of a request that was not run
}

type tokenUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// cached returns how many tokens the engine found in its cache, -1 if it did not say.
func (h *heard) cached() int {
	if h.usage == nil || h.usage.Details == nil || h.usage.Details.Cached == nil {
		return -1
	}
	return *h.usage.Details.Cached
}

// whole reports whether the answer is complete and there is nothing wrong with it.
func (h *heard) whole() bool {
	return h.err == nil && h.status == http.StatusOK && h.failure == "" && h.finish != "" && (h.events == nil || h.done)
}

func (h *heard) String() string {
	return fmt.Sprintf("status %d, finish %q, done %t, error %q, %v: %s", h.status, h.finish, h.done, h.failure, h.err, h.body)
}

// post sends a request and reads all of the answer.
func post(client *http.Client, url string, request map[string]any) *heard {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return postContext(ctx, client, url, request, nil)
}

// postContext is post for requests that are to be left early. It calls first, if that
// is not nil, once something of a stream is there.
func postContext(ctx context.Context, client *http.Client, url string, request map[string]any, first func()) *heard {
	body, err := json.Marshal(request)
	if err != nil {
		return &heard{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return &heard{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return &heard{err: err}
	}
	defer resp.Body.Close()
	var all bytes.Buffer
	if first != nil {
		io.CopyN(&all, resp.Body, 1)
		first()
	}
	_, err = io.Copy(&all, resp.Body)
	h := &heard{status: resp.StatusCode, err: err, body: all.String()}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		h.take(h.body)
		return h
	}
	h.events = []string{}
	for event := range strings.SplitSeq(h.body, "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			continue
		}
		h.events = append(h.events, data)
		if h.done = data == "[DONE]"; !h.done {
			h.take(data)
		}
	}
	return h
}

// take looks at a chunk or a whole answer.
func (h *heard) take(data string) {
	type message struct{ Content string }
	var chunk struct {
		Choices []struct {
			Text           string
			Delta, Message message
			Finish         string `json:"finish_reason"`
		}
		Usage *tokenUsage
		Error *struct{ Message string }
		NVExt struct {
			Routing *nvext.Routing
			Prompt  []uint32 `json:"token_ids"`
		}
	}
	if json.Unmarshal([]byte(data), &chunk) != nil {
		return // it is one of those that are spoiled
	}
	for _, c := range chunk.Choices {
		h.text += c.Text + c.Delta.Content + c.Message.Content
		if c.Finish != "" {
			h.finish = c.Finish
		}
	}
	if chunk.Usage != nil {
		h.usage = chunk.Usage
	}
	if chunk.Error != nil {
		h.failure = chunk.Error.Message
	}
	if r := chunk.NVExt.Routing; r != nil {
		h.routing = r
	}
	if chunk.NVExt.Prompt != nil {
		h.prompt = chunk.NVExt.Prompt
	}
}

// dresses are all there are, with what their engines are called.
var dresses = map[simserver.Dress]string{
	simserver.DressVLLM: engine.VLLM, simserver.DressSGLang: engine.SGLang,
	simserver.DressTRTLLM: engine.TRTLLM, simserver.DressLlamaCpp: engine.LlamaCpp,
}

// forDresses runs a test for each of some dresses, all for none.
func forDresses(t *testing.T, test func(t *testing.T, d simserver.Dress), only ...simserver.Dress) {
	for _, name := range simserver.Dresses() {
		d := simserver.Dress(name)
		if len(only) > 0 && !slices.Contains(only, d) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			watchLeaks(t)
			test(t, d)
		})
	}
}

// newHTTPServer is httptest's, closed with the test.
func newHTTPServer(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}
