package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/prefix"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// stage is a part of the way of a request through the server.
type stage int

// The stages, in the order of a request.
const (
	stageRead     stage = iota // from the handler's first step until the body is there
	stageParse                 // until the template is rendered
	stageRender                // the template
	stageTokenize              // until the tokens are there, without stageHash
	stageHash                  // of the blocks that are not known from a prompt before
	stagePlace                 // until the engine is asked: lookup, decision, booking
	stageUpload                // until the engine's answer begins
	stageRelay                 // until the handler returns
	numStages
)

var stageNames = [numStages]string{
	"read the body", "parse and check it", "render the template", "tokenize", "hash blocks",
	"match and decide", "edit and upload", "relay the answer",
}

// The routes of a clocked server beside its own: to have its workers hold the blocks of
// the latest prompt, and to read the clock and set it to 0.
const (
	pathHold  = "/bench/hold"
	pathClock = "/bench/clock"
)

// clockedWorkers is how many workers the server has; the first holds least.
const clockedWorkers = 8

// clocked is the frontend with everything below it, and a clock that is read wherever a
// request passes from one stage to the next. It serves one request at a time, so that
// the processor time of the process is that of the stage.
type clocked struct {
	mu     sync.Mutex // held during a request
	clock  stageClock
	model  *clockedModel
	router *router.Router
	server *frontend.Server
}

// clockReading is what a clock says, over all requests since the one before.
type clockReading struct {
	Requests int
	Stages   [numStages]time.Duration
	Tokens   int // of their prompts
	Cached   int // those that were known from a prompt before
	Overlap  int // blocks of the latest prompt that the chosen worker held
}

// clockedHandler returns a server in front of the engine at target that makes tokens
// as Qwen3 does and places requests in mode kv.
func clockedHandler(ctx context.Context, target string) (http.Handler, error) {
	m, err := qwen3.Open(local.Options{})
	if err != nil {
		return nil, err
	}
	behind, err := openaihttp.New(openaihttp.Config{URL: target})
	if err != nil {
		return nil, err
	}
	c := &clocked{router: router.New(router.Config{
		Mode: router.KV, Seed: 1, Decisions: keptDecisions, ProbeInterval: time.Hour,
	})}
	c.model = &clockedModel{Model: m, clock: &c.clock}
	e := &clockedEngine{Engine: behind, clock: &c.clock}
	for k := range clockedWorkers {
		if err := c.router.Add(router.Spec{ID: kv.WorkerID(k + 1), Engine: e, Events: true}); err != nil {
			return nil, err
		}
	}
	c.router.WaitChecked(ctx)
	c.server = frontend.New(frontend.Config{Router: c.router})
	c.server.SetTokens(map[string]frontend.Tokens{model: {Local: c.model}})
	mux := http.NewServeMux()
	mux.HandleFunc(pathHold, c.hold)
	mux.HandleFunc(pathClock, c.read)
	mux.HandleFunc("/", c.serve)
	return mux, nil
}

// serve serves a request.
func (c *clocked) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.begin()
	r.Body = &clockedBody{r.Body, &c.clock}
	c.server.ServeHTTP(w, r)
	c.clock.mark(stageRelay)
}

// hold has each worker hold more of the latest prompt than the one before, the last
// all of it.
func (c *clocked) hold(http.ResponseWriter, *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	blocks := c.model.latest.Blocks
	for k := range clockedWorkers {
		src := kv.Source{Worker: kv.WorkerID(k + 1)}
		_ = c.router.Apply(storing(src, blocks, 0, (k+1)*len(blocks)/clockedWorkers)) // never fails
	}
}

// read answers with what the clock says and sets it to 0.
func (c *clocked) read(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := clockReading{Requests: c.clock.requests, Stages: c.clock.spent}
	st := c.model.Stats()
	got.Cached = int(st.Cached - c.model.before.Cached)
	got.Tokens = got.Cached + int(st.Uncached-c.model.before.Uncached)
	hashed, err := c.model.hashing(int(st.Hashed - c.model.before.Hashed))
	got.Stages[stageHash] += hashed
	got.Stages[stageTokenize] -= hashed
	for _, d := range c.router.Decisions(1, func(string, string, uint64) bool { return true }) {
		got.Overlap = d.Routing.Chosen.OverlapBlocks
	}
	if err := errors.Join(err, c.clock.err); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.clock, c.model.before = stageClock{}, st
	// The status is written, and whoever reads half an answer sees it.
	_ = json.NewEncoder(w).Encode(&got)
}

// stageClock adds up the processor time of stages.
type stageClock struct {
	requests int
	last     time.Duration
	spent    [numStages]time.Duration
	err      error
}

// begin starts the clock for a request.
func (c *stageClock) begin() {
	c.requests++
	c.last = c.now()
}

// mark says that what was spent since the mark before was spent on a stage.
func (c *stageClock) mark(s stage) {
	now := c.now()
	c.spent[s] += now - c.last
	c.last = now
}

func (c *stageClock) now() time.Duration {
	now, err := cpuTime(os.Getpid())
	if err != nil {
		c.err = err
	}
	return now
}

// clockedBody is a body being read.
type clockedBody struct {
	io.ReadCloser
	clock *stageClock
}

// Read implements [io.Reader].
func (b *clockedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.clock.mark(stageRead)
	return n, err
}

// clockedModel is a model whose steps are marked.
type clockedModel struct {
	*local.Model
	clock  *stageClock
	latest tokenize.Result
	before prefix.Stats // when the clock was read
}

// Render implements [tokenize.Renderer].
func (m *clockedModel) Render(dst *tokenize.Prompt, c tokenize.Chat) error {
	m.clock.mark(stageParse)
	err := m.Model.Render(dst, c)
	m.clock.mark(stageRender)
	return err
}

// EncodePrompt makes tokens of what was rendered.
func (m *clockedModel) EncodePrompt(p *tokenize.Prompt, h tokenize.Hashing) (tokenize.Result, error) {
	found, err := m.Model.EncodePrompt(p, h)
	m.latest = found
	m.clock.mark(stageTokenize)
	return found, err
}

// hashing returns what it takes to hash so many blocks, going by those of the latest
// prompt. They are hashed while tokens are made, piece by piece, where no clock can be
// read.
func (m *clockedModel) hashing(blocks int) (time.Duration, error) {
	const times = 10
	if len(m.latest.Blocks) == 0 {
		return 0, nil
	}
	dst := make([]kv.Block, 0, len(m.latest.Blocks))
	took, err := spent(func() error {
		for range times {
			dst = kv.AppendBlocks(dst[:0], 0, m.latest.IDs, kvBlock)
		}
		return nil
	})
	return time.Duration(took * float64(time.Second) * float64(blocks) / float64(times*len(dst))), err
}

// kvBlock is the number of tokens in a block of the engine.
const kvBlock = 16

// clockedEngine is an engine that is asked, and whose answers are waited for, on the
// clock.
type clockedEngine struct {
	*openaihttp.Engine
	clock *stageClock
}

// Open implements [engine.Engine].
func (e *clockedEngine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	e.clock.mark(stagePlace)
	resp, err := e.Engine.Open(ctx, t, r)
	e.clock.mark(stageUpload)
	return resp, err
}

// Identify says what the engine would if it could say anything but its answer.
func (e *clockedEngine) Identify(context.Context) (*engine.Info, error) {
	return &engine.Info{Kind: engine.OpenAI, Models: []engine.Model{{
		ID: model, Tokenizer: qwen3.Fingerprint, BlockSize: kvBlock, TotalBlocks: 1 << 16, MaxBatchedTokens: 8192, Ranks: 1,
	}}}, nil
}

// Probe implements [engine.Engine].
func (e *clockedEngine) Probe(context.Context) error { return nil }
