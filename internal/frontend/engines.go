package frontend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// EngineStatus is one worker as GET /v1/engines shows it. What is not known is zero and
// left out, apart from the fields that every worker has.
type EngineStatus struct {
	ID      uint64 `json:"id"`
	URL     string `json:"url"`
	Kind    string `json:"kind,omitzero"`    // one of the kinds of [engine.Info]
	Version string `json:"version,omitzero"` // as the engine spells it
	State   string `json:"state"`            // as in /health
	// Origin is how it came: config, dns, registered or sim.
	Origin      string        `json:"origin,omitzero"`
	Models      []EngineModel `json:"models"`
	Ranks       int           `json:"ranks,omitzero"`        // data-parallel ranks
	BlockSize   int           `json:"block_size,omitzero"`   // tokens in a KV block
	TotalBlocks int           `json:"total_blocks,omitzero"` // KV blocks of a rank
	Slots       int           `json:"slots,omitzero"`        // see [engine.Info]
	Priority    string        `json:"priority,omitzero"`     // what the engine makes of priorities
	Taints      []string      `json:"taints,omitzero"`
	// Events are the sources of what becomes of its caches, in the order of ranks.
	Events []EngineEvents `json:"events"`
	// Load is what goes on, in the order of ranks.
	Load []EngineLoad `json:"load"`
	// Warnings say what stands in the way of its best use.
	Warnings []EngineWarning `json:"warnings"`
}

// EngineModel is a model that an engine serves.
type EngineModel struct {
	ID            string `json:"id"`
	Parent        string `json:"parent,omitzero"` // the model that it is an adapter of
	ContextLength int    `json:"context_length,omitzero"`
}

// EngineEvents is one source of cache events of an engine.
type EngineEvents struct {
	Rank    uint32 `json:"rank"`
	State   string `json:"state"`            // such as live, dialing, none
	Address string `json:"address,omitzero"` // host:port, or the route that is polled
	Replay  string `json:"replay,omitzero"`  // host:port
	Batches uint64 `json:"batches"`          // applied
	Gaps    uint64 `json:"gaps"`             // times that some were missing
	Missed  uint64 `json:"missed"`           // batches that never came
	// LagSecs is how old the latest batch was when it was applied.
	LagSecs float64 `json:"lag_secs"`
	// LastSecs is how long ago the latest batch came; absent if none has.
	LastSecs *float64 `json:"last_secs,omitzero"`
	Error    string   `json:"error,omitzero"` // why there are none
}

// EngineLoad is what goes on at one rank of an engine: what we count, and what the engine
// itself says.
type EngineLoad struct {
	Rank          uint32 `json:"rank"`
	Inflight      int    `json:"inflight"`       // requests under way through this server
	PrefillTokens int    `json:"prefill_tokens"` // prompt tokens that it has yet to compute
	DecodeBlocks  int    `json:"decode_blocks"`  // blocks that its requests hold
	Running       int    `json:"running"`        // as the engine says
	Waiting       int    `json:"waiting"`        // as the engine says
	// Usage is the share of the KV cache in use, 0 to 1, as the engine says.
	Usage float64 `json:"usage"`
	// AgeSecs is how long ago the engine said so; absent if it never has.
	AgeSecs *float64 `json:"age_secs,omitzero"`
}

// EngineWarning is something about an engine for its operator.
type EngineWarning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// Registration is an engine that announces itself. Only URL is required; zero sizes mean
// what the engine says.
type Registration struct {
	URL string
	// Kind is one of the kinds of [engine.Info], empty to have it found out.
	Kind string
	// ID is the worker id, 0 to have it derived from URL.
	ID uint64
	// APIKey is sent to the engine; empty for none.
	APIKey           string
	Taints           []string
	Ranks            int
	BlockSize        int
	TotalBlocks      int
	MaxBatchedTokens int
}

// Registry takes engines that announce themselves and forgets those that fall silent.
// Its methods are safe for concurrent use.
type Registry interface {
	// Register adds an engine, or has one go on that was registered with the same id and
	// URL. It returns the worker id, and how long the engine stays without a heartbeat.
	// The error is [ErrEngineTaken], or says what is wrong with the registration.
	Register(ctx context.Context, r Registration) (id uint64, ttl time.Duration, err error)
	// Heartbeat says that an engine is still there. The error is [ErrUnknownEngine].
	Heartbeat(id uint64) error
	// Deregister has an engine go. The error is [ErrUnknownEngine].
	Deregister(id uint64) error
}

// Errors of a [Registry], to be told apart with errors.Is.
var (
	// ErrUnknownEngine: no engine is registered under that id. It may have been
	// forgotten, and is to register anew.
	ErrUnknownEngine = errors.New("no such engine is registered")
	// ErrEngineTaken: another engine has that id, or the engine is configured.
	ErrEngineTaken = errors.New("the worker id is in use")
)

// engineKinds are the kinds that an engine may claim to be.
var engineKinds = []string{engine.VLLM, engine.SGLang, engine.TRTLLM, engine.LlamaCpp, engine.Sim, engine.OpenAI}

// listEngines describes all workers.
func (s *Server) listEngines(w http.ResponseWriter, r *http.Request, _ *Key) {
	if s.cfg.Engines == nil {
		s.noRoute(w, r)
		return
	}
	list := struct {
		Object string         `json:"object"`
		Data   []EngineStatus `json:"data"`
	}{Object: "list", Data: s.cfg.Engines()}
	if list.Data == nil {
		list.Data = []EngineStatus{}
	}
	for i := range list.Data {
		e := &list.Data[i]
		e.Models, e.Events, e.Load, e.Warnings = full(e.Models), full(e.Events), full(e.Load), full(e.Warnings)
	}
	reply(w, http.StatusOK, list)
}

// full returns a list that is not null in JSON.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// registeredBody is the answer to a registration.
type registeredBody struct {
	ID      uint64  `json:"id"`
	TTLSecs float64 `json:"ttl_secs"`
}

// register takes an engine that announces itself.
func (s *Server) register(w http.ResponseWriter, r *http.Request, _ *Key) {
	if s.cfg.Registry == nil {
		s.noRegistry(w)
		return
	}
	f := s.readForm(w, r)
	defer f.close()
	reg := f.registration()
	if f.err != nil {
		s.answerError(w, f.err)
		return
	}
	id, ttl, err := s.cfg.Registry.Register(r.Context(), reg)
	if err != nil {
		s.registryError(w, err)
		return
	}
	reply(w, http.StatusOK, registeredBody{ID: id, TTLSecs: ttl.Seconds()})
}

// The bounds of what an engine says about itself.
const (
	maxEngineRanks = 1024
	maxTaint       = 256
)

// registration reads the body of a registration.
func (f *form) registration() Registration {
	reg := Registration{
		URL:              f.engineURL("url"),
		Kind:             f.text("kind"),
		ID:               f.workerID("id"),
		APIKey:           f.text("api_key"),
		Taints:           f.taints("taints"),
		Ranks:            int(f.uint32("ranks")),
		BlockSize:        int(f.uint32("block_size")),
		TotalBlocks:      int(f.uint32("total_kv_blocks")),
		MaxBatchedTokens: int(f.uint32("max_num_batched_tokens")),
	}
	if reg.Kind != "" && !slices.Contains(engineKinds, reg.Kind) {
		f.fail(openai.CodeInvalidValue, "kind", "one of "+strings.Join(engineKinds, ", ")+", got `"+short(reg.Kind)+"`")
	}
	if reg.Ranks > maxEngineRanks {
		f.fail(openai.CodeInvalidValue, "ranks", fmt.Sprintf("at most %d, got %d", maxEngineRanks, reg.Ranks))
	}
	return reg
}

// engineURL returns the base URL of an engine.
func (f *form) engineURL(field string) string {
	text := f.text(field)
	if f.err != nil {
		return ""
	}
	const expected = "the base URL of the engine, such as http://10.0.0.7:8000"
	if text == "" {
		f.fail(openai.CodeMissing, field, expected)
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		f.fail(openai.CodeInvalidValue, field, expected)
	}
	return text
}

// workerID returns a worker id, 0 if there is none.
func (f *form) workerID(field string) uint64 {
	v := f.Get(field)
	if !v.Present() {
		return 0
	}
	id, ok := v.Uint()
	switch {
	case !ok:
		f.wrong(field, "a whole number of 64 bits", v)
	case id == 0:
		f.fail(openai.CodeInvalidValue, field, "a worker id, which 0 is not")
	}
	return id
}

// taints returns the taints of an engine.
func (f *form) taints(field string) (out []string) {
	v := f.Get(field)
	if !v.Present() {
		return nil
	}
	err := v.Elements(func(e openai.Value) bool {
		at := fmt.Sprintf("%s[%d]", field, len(out))
		s, ok := e.Text()
		switch {
		case !ok:
			f.wrong(at, "a string", e)
		case s == "" || len(s) > maxTaint:
			f.fail(openai.CodeInvalidValue, at, fmt.Sprintf("1 to %d bytes, got %d", maxTaint, len(s)))
		case slices.Contains(out, s):
			f.fail(openai.CodeInvalidValue, at, "each taint once")
		case len(out) == maxTaints:
			f.fail(openai.CodeInvalidValue, field, fmt.Sprintf("at most %d", maxTaints))
		}
		out = append(out, s)
		return f.err == nil
	})
	if err != nil {
		f.wrong(field, "an array of strings", v)
	}
	return out
}

// heartbeat notes that a registered engine is still there.
func (s *Server) heartbeat(w http.ResponseWriter, r *http.Request, _ *Key) {
	s.onEngine(w, strings.TrimSuffix(r.URL.Path, heartbeat), Registry.Heartbeat)
}

// deregister has a registered engine go.
func (s *Server) deregister(w http.ResponseWriter, r *http.Request, _ *Key) {
	s.onEngine(w, r.URL.Path, Registry.Deregister)
}

// onEngine has do done to the engine that a path names.
func (s *Server) onEngine(w http.ResponseWriter, path string, do func(Registry, uint64) error) {
	if s.cfg.Registry == nil {
		s.noRegistry(w)
		return
	}
	text := strings.TrimPrefix(path, enginePrefix)
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.fail(w, &openai.Error{Code: openai.CodeInvalidValue, Param: "id",
			Message: "id: expected a worker id in the path, got `" + short(text) + "`"})
		return
	}
	if err := do(s.cfg.Registry, id); err != nil {
		s.registryError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// registryError says what a registry did not like.
func (s *Server) registryError(w http.ResponseWriter, err error) {
	e := &openai.Error{Code: openai.CodeInvalidValue, Message: err.Error(), Err: err}
	switch {
	case errors.Is(err, ErrUnknownEngine):
		e.Param, e.Status = "id", http.StatusNotFound
	case errors.Is(err, ErrEngineTaken):
		e.Param, e.Status = "id", http.StatusConflict
	}
	s.fail(w, e)
}

func (s *Server) noRegistry(w http.ResponseWriter) {
	s.fail(w, &openai.Error{Code: openai.CodeNotImplemented, Message: "engines cannot register with this server"})
}

// noRoute answers a request that nobody serves.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	s.fail(w, &openai.Error{Code: openai.CodeRouteNotFound,
		Message: "no route " + r.Method + " " + short(r.URL.Path) + "; see /docs for the routes there are"})
}
