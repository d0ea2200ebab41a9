package frontend

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/internal/engine"
)

// told is an engine that notes what it is asked, and what it is told to abort. It serves
// an adapter besides its model.
type told struct {
	engine.Engine
	mu      sync.Mutex
	asked   []engine.Request
	aborted []string
	block   bool // Abort waits until it may not
}

func (e *told) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	e.mu.Lock()
	e.asked = append(e.asked, *r)
	e.mu.Unlock()
	return e.Engine.Open(ctx, t, r)
}

func (e *told) Identify(ctx context.Context) (*engine.Info, error) {
	info, err := e.Engine.Identify(ctx)
	if err == nil {
		sql := info.Models[0]
		sql.ID, sql.Parent = "sql", info.Models[0].ID
		info.Models = append(info.Models, sql)
	}
	return info, err
}

func (e *told) Abort(ctx context.Context, id string) error {
	e.mu.Lock()
	e.aborted = append(e.aborted, id)
	e.mu.Unlock()
	if e.block {
		<-ctx.Done()
	}
	return ctx.Err()
}

// take returns what it was asked and told since it was last called.
func (e *told) take() (asked []engine.Request, aborted []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked, aborted = e.asked, e.aborted
	e.asked, e.aborted = nil, nil
	return asked, aborted
}

// newToldRig starts a rig whose engines are all told.
func newToldRig(t testing.TB, cfg rigConfig) (*rig, *told) {
	e := new(told)
	cfg.wrap = func(inner engine.Engine) engine.Engine {
		e.Engine = inner
		return e
	}
	return newRig(t, cfg), e
}

func TestWishes(t *testing.T) {
	keys := []Key{
		{Name: "tenant", Hash: HashKey("tenant"), Tenant: "acme"},
		{Name: "user", Hash: HashKey("user")},
		{Name: "trusted", Hash: HashKey("trusted"), Trusted: true},
		{Name: "nat", Hash: HashKey("nat"), Trusted: true, PreferSensitivity: true},
	}
	const rest = `"messages":[{"role":"user","content":"hi"}],"max_tokens":1`
	for _, tc := range []struct {
		name, key, members string // without a key there are none
		want               engine.Wishes
	}{
		{"nothing", "", `"model":"stator-sim"`, engine.Wishes{}},
		{"a stream", "", `"model":"stator-sim","stream":true`, engine.Wishes{Usage: true}},
		{"a stream with usage", "", `"model":"stator-sim","stream":true,"stream_options":{"include_usage":true}`, engine.Wishes{}},
		{"a stream with false usage", "", `"model":"stator-sim","stream":true,"stream_options":{"include_usage":false}`, engine.Wishes{Usage: true}},
		{"a stream with running usage", "", `"model":"stator-sim","stream":true,"stream_options":{"continuous_usage_stats":true}`, engine.Wishes{}},
		{"an adapter", "", `"model":"sql"`, engine.Wishes{Model: "sql", Parent: "stator-sim"}},
		{"an adapter by its long name", "", `"model":"stator-sim:sql"`, engine.Wishes{Model: "sql", Parent: "stator-sim"}},

		{"priority 5", "", `"model":"stator-sim","nvext":{"agent_hints":{"priority":5}}`, engine.Wishes{Priority: new(int32(5))}},
		{"priority -3", "", `"model":"stator-sim","nvext":{"agent_hints":{"priority":-3}}`, engine.Wishes{Priority: new(int32(-3))}},
		{"sensitivity 2.5", "", `"model":"stator-sim","nvext":{"agent_hints":{"latency_sensitivity":2.5}}`, engine.Wishes{}},
		{"both", "", `"model":"stator-sim","nvext":{"agent_hints":{"priority":0,"latency_sensitivity":9}}`, engine.Wishes{Priority: new(int32(0))}},
		{"both, of a key whose priority counts downwards", "nat", `"model":"stator-sim","nvext":{"agent_hints":{"priority":100,"latency_sensitivity":900}}`, engine.Wishes{Priority: new(int32(900))}},
		{"priority of a trusted key", "trusted", `"model":"stator-sim","nvext":{"agent_hints":{"priority":5}}`, engine.Wishes{Priority: new(int32(5))}},
		{"nobody passes others", "user", `"model":"stator-sim","nvext":{"agent_hints":{"priority":5}}`, engine.Wishes{Priority: new(int32(0))}},
		{"everybody may give way", "user", `"model":"stator-sim","nvext":{"agent_hints":{"priority":-5}}`, engine.Wishes{Priority: new(int32(-5))}},
		{"the engine's own priority", "", `"model":"stator-sim","priority":-9`, engine.Wishes{}},
		{"the engine's own priority of a trusted key", "trusted", `"model":"stator-sim","priority":-9`, engine.Wishes{}},
		{"the engine's own priority counts for none", "user", `"model":"stator-sim","priority":-9`, engine.Wishes{Priority: new(int32(0))}},
		{"the engine's own priority is null", "user", `"model":"stator-sim","priority":null`, engine.Wishes{}},
		{"the engine's own priority and one that counts", "user", `"model":"stator-sim","priority":-9,"nvext":{"agent_hints":{"priority":-5}}`, engine.Wishes{Priority: new(int32(-5))}},
		{"the engine's own priority and other hints", "user", `"model":"stator-sim","priority":-9,"nvext":{"agent_hints":{"osl":5}}`, engine.Wishes{Priority: new(int32(0))}},

		{"greedy", "", `"model":"stator-sim","nvext":{"greed_sampling":true}`, engine.Wishes{Greedy: true}},
		{"not greedy", "", `"model":"stator-sim","nvext":{"greed_sampling":false}`, engine.Wishes{}},
		{"thinking", "", `"model":"stator-sim","nvext":{"max_thinking_tokens":64}`, engine.Wishes{MaxThinking: new(uint32(64))}},
		{"no thinking", "", `"model":"stator-sim","nvext":{"max_thinking_tokens":0}`, engine.Wishes{MaxThinking: new(uint32(0))}},

		{"salt of the body", "", `"model":"stator-sim","cache_salt":"s"`, engine.Wishes{Salt: "s"}},
		{"salt of nvext", "", `"model":"stator-sim","cache_salt":"s","nvext":{"cache_salt":"t"}`, engine.Wishes{Salt: "t"}},
		{"no salt of nvext", "", `"model":"stator-sim","cache_salt":"s","nvext":{"cache_salt":""}`, engine.Wishes{Unsalted: true}},
		{"salt of the tenant", "tenant", `"model":"stator-sim","cache_salt":"s","nvext":{"cache_salt":"t"}`, engine.Wishes{Salt: "acme"}},
		{"salt that does not count", "user", `"model":"stator-sim","cache_salt":"s","nvext":{"cache_salt":"t"}`, engine.Wishes{Unsalted: true}},
		{"salt of a trusted key", "trusted", `"model":"stator-sim","cache_salt":"s"`, engine.Wishes{Salt: "s"}},
		{"salt of no kind", "", `"model":"stator-sim","cache_salt":7`, engine.Wishes{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var cfg rigConfig
			if tc.key != "" {
				cfg.front.Keys = keys
			}
			rg, e := newToldRig(t, cfg)
			resp, body := rg.post(t, "/v1/chat/completions", `{`+tc.members+`,`+rest+`}`, "Authorization", "Bearer "+tc.key)
			asked, _ := e.take()
			if len(asked) != 1 {
				t.Fatalf("%d %s; asked %d times", resp.StatusCode, body, len(asked))
			}
			if diff := cmp.Diff(tc.want, asked[0].Wishes, cmpopts.IgnoreFields(engine.Wishes{}, "ID")); diff != "" {
				t.Errorf("wishes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAttemptsHaveNamesOfTheirOwn: engines refuse a name twice, and some abort all
// requests whose names begin like one.
func TestAttemptsHaveNamesOfTheirOwn(t *testing.T) {
	fault, _ := failFirst(1, answer(503, `{}`))
	var all []*told
	rg := newRig(t, rigConfig{engines: 2, fault: fault, wrap: func(e engine.Engine) engine.Engine {
		all = append(all, &told{Engine: e})
		return all[len(all)-1]
	}})
	const id = "11111111-1111-4111-8111-111111111111"
	for range 3 {
		rg.post(t, "/v1/chat/completions", hello, "Request-Id", id)
	}
	seen := make(map[string]bool)
	for _, e := range all {
		asked, _ := e.take()
		for _, r := range asked {
			if seen[r.ID] || len(r.ID) != len(id)+9 || !strings.HasPrefix(r.ID, id) {
				t.Errorf("name %q", r.ID)
			}
			seen[r.ID] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d names of 4 attempts: %v", len(seen), seen)
	}
}
