// Package detect finds out what kind of engine a server is and gives it the adapter
// that knows it.
//
// It goes by what the server says and has, never by versions, and asks anew each time,
// so that an address may be taken over by another engine.
package detect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/engine/llamacpp"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/engine/sglang"
	"github.com/stator-ai/stator/internal/engine/trtllm"
	"github.com/stator-ai/stator/internal/engine/vllm"
)

// Auto is the kind of a server that is to be found out.
const Auto = "auto"

// Options say what is known of a server beforehand. The zero value is nothing.
type Options struct {
	// Kind is one of the kinds of engines. Empty or Auto is found out.
	Kind string
	// Events says where the engine's event sockets are, if it has any.
	Events eventsocket.Options
}

var kinds = []string{Auto, engine.VLLM, engine.SGLang, engine.TRTLLM, engine.LlamaCpp, engine.Sim, engine.OpenAI}

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	if o.Kind != "" && !slices.Contains(kinds, o.Kind) {
		return fmt.Errorf("kind: expected one of %s, got %q", strings.Join(kinds, ", "), o.Kind)
	}
	return o.Events.Validate()
}

// adapter knows a kind of servers.
type adapter interface {
	engine.Engine
	Describe(ctx context.Context, cards []openaihttp.Card) *engine.Info
}

// Engine is a server of a kind that is found out. Requests go through the adapter that
// was found last, and before that as most servers understand them. It is this engine
// that has to be asked again what the server is: an adapter would answer for its own
// kind.
type Engine struct {
	*openaihttp.Engine
	opt     Options
	current atomic.Pointer[adapter]

	mu       sync.Mutex
	adapters map[string]adapter // by kind; each is made once, so that it keeps what it has learned
	used     string             // the kind of current
	looked   string             // the model list for which found was found
	found    string
	sure     bool      // what the server has was answered, and tells its kind
	again    time.Time // when to look again, if not
}

// lookAgain is how long a server counts as one of no known kind before its documents
// are looked at again: it may have been too busy to answer.
const lookAgain = time.Minute

var (
	_ engine.Engine    = (*Engine)(nil)
	_ engine.Tokenizer = (*Engine)(nil)
)

// New returns the engine at cfg.URL. It does not connect.
func New(cfg openaihttp.Config, opt Options) (*Engine, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("engine %s: %w", cfg.URL, err)
	}
	base, err := openaihttp.New(cfg)
	if err != nil {
		return nil, err
	}
	e := &Engine{Engine: base, opt: opt, adapters: make(map[string]adapter)}
	if opt.Kind != "" && opt.Kind != Auto {
		e.use(opt.Kind)
	} else {
		e.use(engine.OpenAI)
	}
	return e, nil
}

// use makes requests go through the adapter of a kind, and returns it. One whose place
// another kind had taken in between knows nothing of the server that is there now.
func (e *Engine) use(kind string) adapter {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.adapters[kind]
	if a == nil {
		switch kind {
		case engine.VLLM:
			a = vllm.New(e.Engine, e.opt.Events)
		case engine.SGLang:
			a = sglang.New(e.Engine, e.opt.Events)
		case engine.TRTLLM:
			a = trtllm.New(e.Engine)
		case engine.LlamaCpp:
			a = llamacpp.New(e.Engine)
		default:
			a = e.Engine
		}
		e.adapters[kind] = a
	}
	if f, ok := a.(interface{ Forget() }); ok && kind != e.used {
		f.Forget()
	}
	e.used = kind
	e.current.Store(&a)
	return a
}

// Open implements [engine.Engine].
func (e *Engine) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	return (*e.current.Load()).Open(ctx, t, r)
}

// Probe implements [engine.Engine].
func (e *Engine) Probe(ctx context.Context) error { return (*e.current.Load()).Probe(ctx) }

// Tokenize implements [engine.Tokenizer].
func (e *Engine) Tokenize(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	return (*e.current.Load()).(engine.Tokenizer).Tokenize(ctx, r)
}

// Identify implements [engine.Engine]. The error is that of the model list; whatever
// else a server does not have is left out, and what it does not answer is taken to be
// as it was.
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, func(ctx context.Context, cards []openaihttp.Card) *engine.Info {
		kind := e.opt.Kind
		if kind == "" || kind == Auto {
			kind = e.kind(ctx, cards)
		}
		a := e.use(kind)
		info := a.Describe(ctx, cards)
		if a != adapter(e.Engine) {
			info.Engine = a
		}
		return info
	})
}

// kind says what kind of server has this model list.
func (e *Engine) kind(ctx context.Context, cards []openaihttp.Card) string {
	owner := ""
	for _, c := range cards {
		if c.Stator != nil {
			return engine.Sim
		}
		if owner == "" {
			owner = strings.ToLower(c.OwnedBy)
		}
	}
	switch owner {
	case "vllm":
		return engine.VLLM
	case "sglang":
		return engine.SGLang
	case "tensorrt_llm":
		return engine.TRTLLM
	case "llamacpp":
		return engine.LlamaCpp
	}
	// The name may have been changed. What the server has tells, too, and is looked at
	// once for each list.
	list, _ := json.Marshal(cards)
	e.mu.Lock()
	found := e.found
	known := e.looked == string(list) && (e.sure || time.Now().Before(e.again))
	e.mu.Unlock()
	if known {
		return found
	}
	found, answered := e.look(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if found == engine.OpenAI && !answered && e.found != "" {
		found = e.found
		e.sure = false
	} else {
		e.sure = found != engine.OpenAI
	}
	e.looked, e.found, e.again = string(list), found, time.Now().Add(lookAgain)
	return found
}

// look tells the kind of a server by the documents it has, and whether all that were
// asked for were answered.
func (e *Engine) look(ctx context.Context) (kind string, answered bool) {
	type props struct {
		Slots    *openaihttp.Int `json:"total_slots"`
		Settings *struct{}       `json:"default_generation_settings"`
	}
	type info struct {
		PageSize *openaihttp.Int `json:"page_size"`
	}
	paths := []string{"/props", "/server_info", "/get_server_info", "/metrics"}
	docs := make([][]byte, len(paths))
	answers := make([]openaihttp.Answer, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		wg.Go(func() { docs[i], answers[i] = e.AskFor(ctx, path) })
	}
	wg.Wait()
	answered = !slices.Contains(answers, openaihttp.Unanswered)
	if p := openaihttp.JSON[props](docs[0]); p != nil && (p.Slots != nil || p.Settings != nil) {
		return engine.LlamaCpp, answered
	}
	for _, doc := range docs[1:3] {
		if s := openaihttp.JSON[info](doc); s != nil && s.PageSize != nil {
			return engine.SGLang, answered
		}
	}
	return kindOfMetrics(docs[3]), answered
}

// kindOfMetrics tells the kind of a server by its metrics: series that bear a name, or
// a list of iterations.
func kindOfMetrics(text []byte) string {
	for _, k := range []struct{ prefix, kind string }{
		{"vllm:", engine.VLLM}, {"sglang:", engine.SGLang}, {"llamacpp:", engine.LlamaCpp},
	} {
		if strings.HasPrefix(string(text), k.prefix) || strings.Contains(string(text), "\n"+k.prefix) {
			return k.kind
		}
	}
	var iterations []struct {
		Iteration *openaihttp.Int `json:"iter"`
	}
	if json.Unmarshal(text, &iterations) == nil && len(iterations) > 0 && iterations[0].Iteration != nil {
		return engine.TRTLLM
	}
	return engine.OpenAI
}
