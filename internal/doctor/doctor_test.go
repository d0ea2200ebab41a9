package doctor

import (
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// sound returns the configuration of an engine with which nothing is wrong.
func sound(dress simserver.Dress) simserver.Config {
	cfg := simserver.Config{
		Model: "m", Dress: dress,
		Engine: &simengine.Config{Timing: simengine.Fixed{PrefillTime: time.Millisecond, DecodeTime: 4 * time.Millisecond}},
	}
	switch dress {
	case simserver.DressVLLM, simserver.DressSGLang:
		cfg.DevMode = dress == simserver.DressVLLM
		cfg.PriorityScheduling = true
		cfg.Publish = &simserver.PublishConfig{Listen: "*:0", Replay: "*:0"}
	case simserver.DressTRTLLM:
		cfg.Publish = &simserver.PublishConfig{}
	case simserver.DressLlamaCpp:
		cfg.ContextLength = 4096
	}
	return cfg
}

// start runs an engine until the test is over.
func start(t *testing.T, cfg simserver.Config) (*simserver.Server, string) {
	t.Helper()
	sim, err := simserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(func() {
		sim.Close()
		srv.Close()
	})
	return sim, srv.URL
}

func builtIn(context.Context, engine.Model) TokenSource {
	return TokenSource{Name: "qwen3", Local: qwen3.Model()}
}

// examine looks at engines with the built-in tokenizer, without much patience.
func examine(t *testing.T, cfg Config, targets ...Target) *Report {
	t.Helper()
	cfg.Targets = targets
	if cfg.Tokens == nil {
		cfg.Tokens = builtIn
	}
	cfg.patience = time.Second
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano())
	}
	r := Examine(t.Context(), cfg)
	var text bytes.Buffer
	if err := r.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("report:\n%s", &text)
	return r
}

// problems returns the checks of an engine that are not well.
func problems(e *Engine) map[string]Status {
	out := make(map[string]Status)
	for _, c := range e.Checks {
		if c.Status == Warn || c.Status == Fail {
			out[c.Name] = c.Status
		}
	}
	return out
}

func wantProblems(t *testing.T, e *Engine, want map[string]Status) {
	t.Helper()
	if diff := cmp.Diff(want, problems(e)); diff != "" {
		t.Errorf("problems of %s (-want +got):\n%s", e.URL, diff)
	}
}

// closedPort returns the address of a port where nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Engines with which nothing is wrong pass all checks that apply to them.
func TestSound(t *testing.T) {
	skipped := map[simserver.Dress][]string{
		simserver.DressVLLM:     nil,
		simserver.DressSGLang:   nil,
		simserver.DressTRTLLM:   {Replay, Priority, Salt, MaxSeqs},
		simserver.DressLlamaCpp: {Events, Gaps, Replay, Match, Priority, Salt},
		simserver.Plain:         {MaxSeqs, Load, Events, Gaps, Replay, Match, Priority, Cancel},
	}
	for dress, skipped := range skipped {
		t.Run(string(dress), func(t *testing.T) {
			t.Parallel()
			_, url := start(t, sound(dress))
			e := &examine(t, Config{}, Target{URL: url}).Engines[0]
			wantProblems(t, e, map[string]Status{})
			got := make(map[string]bool)
			for _, c := range e.Checks {
				if c.Status == Skip {
					got[c.Name] = true
				}
			}
			want := make(map[string]bool)
			for _, name := range skipped {
				want[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if len(e.Checks) != len(order) {
				t.Errorf("%d checks, want %d", len(e.Checks), len(order))
			}
		})
	}
}

// Each thing that is wrong is found by its own check, and by no other.
func TestPlanted(t *testing.T) {
	fault := func(text string) func(*simserver.Config, *Target) {
		return func(c *simserver.Config, _ *Target) {
			f, err := simserver.ParseFault(text)
			if err != nil {
				panic(err)
			}
			c.Faults = append(c.Faults, f)
		}
	}
	none := func(context.Context, engine.Model) TokenSource { return TokenSource{} }
	for _, tt := range []struct {
		name   string
		dress  simserver.Dress // default vllm
		plant  func(*simserver.Config, *Target)
		after  func(*simserver.Server)
		tokens func(context.Context, engine.Model) TokenSource
		want   map[string]Status
		says   string // a part of the text or the advice
	}{
		{
			name:  "events off",
			plant: func(c *simserver.Config, _ *Target) { c.Publish = nil },
			want:  map[string]Status{Events: Warn}, says: "--kv-events-config",
		},
		{
			name: "events off, sglang", dress: simserver.DressSGLang,
			plant: func(c *simserver.Config, _ *Target) { c.Publish = nil },
			want:  map[string]Status{Events: Warn}, says: "start SGLang with --kv-events-config",
		},
		{
			name: "events off, trtllm", dress: simserver.DressTRTLLM,
			plant: func(c *simserver.Config, _ *Target) { c.Publish = nil },
			want:  map[string]Status{Events: Warn}, says: "event_buffer_max_size",
		},
		{
			name:  "wrong block size stated",
			plant: fault("wrong-block-size:32"),
			after: func(s *simserver.Server) { s.SetEventFaults(simserver.EventFaults{}) },
			want:  map[string]Status{BlockSize: Fail},
			says:  "none configured, 32 stated by the engine, 16 in its events\nset block_size of this engine in the file",
		},
		{
			name:  "wrong block size stated and in events",
			plant: fault("wrong-block-size:32"),
			want:  map[string]Status{BlockSize: Fail}, says: "not as many as the size",
		},
		{
			name:  "wrong block size configured",
			plant: func(_ *simserver.Config, t *Target) { t.BlockSize = 64 },
			want:  map[string]Status{BlockSize: Fail},
			says:  "64 configured, 16 stated by the engine, 16 in its events\ncorrect or leave out block_size",
		},
		{
			name: "page size 1", dress: simserver.DressSGLang,
			plant: func(c *simserver.Config, _ *Target) { c.BlockSize = 1 },
			want:  map[string]Status{BlockSize: Warn}, says: "--page-size",
		},
		{
			name:  "wrong number of ranks configured",
			plant: func(c *simserver.Config, t *Target) { c.Ranks, t.Ranks = 2, 1 },
			want:  map[string]Status{Ranks: Fail}, says: "configured 1, but the engine has 2",
		},
		{
			name:  "wrong tokenizer",
			plant: func(c *simserver.Config, _ *Target) { c.Vocabulary = simserver.Bytes },
			want:  map[string]Status{Tokens: Fail}, says: "at position 0 here",
		},
		{
			name: "wrong tokenizer where tokens are only counted", dress: simserver.DressTRTLLM,
			plant: func(c *simserver.Config, _ *Target) { c.Vocabulary = simserver.Bytes },
			want:  map[string]Status{Tokens: Fail}, says: "the engine counts",
		},
		{
			name: "no tokenizer", tokens: none,
			want: map[string]Status{},
		},
		{
			name: "no tokenizer, trtllm", dress: simserver.DressTRTLLM, tokens: none,
			want: map[string]Status{Tokens: Warn}, says: "--tokenizer m=REF",
		},
		{
			name: "no tokenizer, and the engine gives no tokens", tokens: none, plant: fault("no-route:/tokenize"),
			want: map[string]Status{Tokens: Warn}, says: "--tokenizer m=REF",
		},
		{
			name: "tokenizer that cannot be had",
			tokens: func(context.Context, engine.Model) TokenSource {
				return TokenSource{Name: "nobody/nothing", Err: net.UnknownNetworkError("x")}
			},
			want: map[string]Status{Tokens: Fail}, says: "cannot be had",
		},
		{
			name:   "engine asked for tokens that has none",
			plant:  fault("no-route:/tokenize"),
			tokens: func(context.Context, engine.Model) TokenSource { return TokenSource{Name: "engine", Engine: true} },
			want:   map[string]Status{Tokens: Fail}, says: "status 404",
		},
		{
			name:  "priority off",
			plant: func(c *simserver.Config, _ *Target) { c.PriorityScheduling = false },
			want:  map[string]Status{Priority: Warn}, says: "--scheduling-policy priority",
		},
		{
			name: "priority off, sglang", dress: simserver.DressSGLang,
			plant: func(c *simserver.Config, _ *Target) { c.PriorityScheduling = false },
			want:  map[string]Status{Priority: Warn}, says: "--enable-priority-scheduling",
		},
		{
			name:  "prompt tokens details off",
			plant: fault("no-cached-tokens"),
			want:  map[string]Status{CachedTokens: Warn}, says: "--enable-prompt-tokens-details",
		},
		{
			name: "cache report off", dress: simserver.DressSGLang,
			plant: fault("no-cached-tokens"),
			want:  map[string]Status{CachedTokens: Warn}, says: "--enable-cache-report",
		},
		{
			name:  "prefix caching off",
			plant: func(c *simserver.Config, _ *Target) { c.Engine.NoPrefixCaching, c.Publish = true, nil },
			want:  map[string]Status{CachedTokens: Warn, Events: Warn}, says: "--enable-prefix-caching",
		},
		{
			name:  "cached tokens null where there are none",
			plant: fault("null-cached-tokens"),
			want:  map[string]Status{},
		},
		{
			name:  "replay missing",
			plant: func(c *simserver.Config, _ *Target) { c.Publish.Replay = "" },
			want:  map[string]Status{Replay: Warn}, says: "replay_endpoint",
		},
		{
			name:  "replay silent",
			plant: fault("no-replay"),
			want:  map[string]Status{Replay: Fail}, says: "no answer",
		},
		{
			name: "replay at a port of another rank",
			plant: func(c *simserver.Config, t *Target) {
				c.Ranks = 2
				c.Publish.Replay = ""
			},
			after: nil,
			want:  map[string]Status{Replay: Fail}, says: "is also where rank",
		},
		{
			name:  "replay truncated",
			plant: fault("replay-truncated"),
			want:  map[string]Status{},
		},
		{
			name:  "dropped events",
			plant: fault("drop-events"),
			want:  map[string]Status{Gaps: Warn}, says: "lost on the way",
		},
		{
			name: "dropped events, sglang", dress: simserver.DressSGLang,
			plant: fault("drop-events"),
			want:  map[string]Status{Gaps: Warn}, says: "lost on the way",
		},
		{
			name:  "dropped events that no later one shows",
			plant: fault("drop-events:3"),
			want:  map[string]Status{Gaps: Warn}, says: "1 batch was lost",
		},
		{
			name: "dropped events without replay",
			plant: func(c *simserver.Config, t *Target) {
				fault("drop-events")(c, t)
				c.Publish.Replay = ""
			},
			want: map[string]Status{Gaps: Fail, Replay: Warn}, says: "for good",
		},
		{
			name:  "events of other groups",
			plant: fault("group-events"),
			want:  map[string]Status{},
		},
		{
			name:  "blocks told of twice",
			plant: fault("duplicate-stores"),
			want:  map[string]Status{},
		},
		{
			name:  "salts not told",
			plant: func(c *simserver.Config, _ *Target) { c.Publish.Format = "vllm-0.10.2" },
			want:  map[string]Status{Salt: Warn}, says: "events do not say which salt",
		},
		{
			name:  "wrong kind forced",
			plant: func(_ *simserver.Config, t *Target) { t.Kind = engine.SGLang },
			want:  map[string]Status{Kind: Fail}, says: "configured as sglang, but it is vllm",
		},
		{
			name:  "kind openai forced",
			plant: func(_ *simserver.Config, t *Target) { t.Kind = engine.OpenAI },
			want:  map[string]Status{Kind: Warn}, says: "leave kind out",
		},
		{
			name: "no metrics", plant: fault("no-route:/metrics"),
			want: map[string]Status{Load: Warn}, says: "--disable-log-stats",
		},
		{
			name: "prompts not answered", plant: fault("hang:0"),
			want: map[string]Status{Answer: Fail}, says: "no answer in time",
		},
		{
			name: "prompts refused", dress: simserver.DressTRTLLM, plant: fault("status:500"),
			want: map[string]Status{Answer: Fail}, says: "answered status 500",
		},
		{
			name: "streams broken off", plant: fault("reset:1"),
			want: map[string]Status{Answer: Fail}, says: "a prompt for one token",
		},
		{
			name: "unhealthy", plant: fault("unhealthy"),
			want: map[string]Status{Reach: Fail}, says: "not well",
		},
		{
			name: "loading", plant: fault("loading:1h"),
			want: map[string]Status{Reach: Fail}, says: "not ready",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dress := tt.dress
			if dress == "" {
				dress = simserver.DressVLLM
			}
			cfg := sound(dress)
			var target Target
			if tt.plant != nil {
				tt.plant(&cfg, &target)
			}
			sim, url := start(t, cfg)
			target.URL = url
			if tt.after != nil {
				tt.after(sim)
			}
			if tt.name == "replay at a port of another rank" {
				publish, _ := sim.EventAddrs()
				target.Events = eventsocket.Options{Events: publish[0], Replay: publish[1]}
			}
			var timeout time.Duration
			if tt.want[Answer] == Fail {
				timeout = 6 * time.Second
			}
			e := &examine(t, Config{Tokens: tt.tokens, Timeout: timeout}, target).Engines[0]
			wantProblems(t, e, tt.want)
			if len(tt.want) == 0 {
				return
			}
			said := ""
			for name := range tt.want {
				if c := e.Check(name); c != nil {
					said += c.Text + "\n" + c.Advice + "\n"
				}
			}
			if !strings.Contains(said, tt.says) {
				t.Errorf("nothing says %q:\n%s", tt.says, said)
			}
		})
	}
}

func TestUnreachableEvents(t *testing.T) {
	_, url := start(t, sound(simserver.DressVLLM))
	e := &examine(t, Config{}, Target{URL: url, Events: eventsocket.Options{Events: closedPort(t)}}).Engines[0]
	wantProblems(t, e, map[string]Status{Events: Fail, Replay: Warn})
	if c := e.Check(Events); !strings.Contains(c.Text, "connection refused") || !strings.Contains(c.Advice, "0.0.0.0") {
		t.Errorf("%+v", c)
	}
}

// What speaks HTTP where events should be waits for us, as we do for it.
func TestEventsAtHTTP(t *testing.T) {
	_, url := start(t, sound(simserver.DressVLLM))
	at := strings.TrimPrefix(url, "http://")
	e := &examine(t, Config{NoRequests: true}, Target{URL: url, Events: eventsocket.Options{Events: at}}).Engines[0]
	c := e.Check(Events)
	if want := "cannot be had from " + at + " (no ZeroMQ greeting)"; c.Status != Fail || c.Text != want {
		t.Errorf("%s: %s, want %s", c.Status, c.Text, want)
	}
	if got := c.Data.(EventsData).Ranks[0].Error; got != "no ZeroMQ greeting" {
		t.Errorf("the error of the rank is %q", got)
	}
}

// What is no HTTP is not shown.
func TestNotHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// As a ZeroMQ socket greets, and hangs up on what it gets.
			c.Write([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"))
			c.Read(make([]byte, 1<<10))
			c.Close()
		}
	}()
	url := "http://" + l.Addr().String()
	c := examine(t, Config{NoRequests: true}, Target{URL: url}).Engines[0].Check(Reach)
	if want := "no answer: get " + url + "/v1/models: not HTTP"; c.Status != Fail || c.Text != want {
		t.Errorf("%s: %s, want %s", c.Status, c.Text, want)
	}
}

func TestDown(t *testing.T) {
	_, url := start(t, sound(simserver.DressVLLM))
	r := examine(t, Config{NoRequests: true}, Target{URL: "http://" + closedPort(t)}, Target{URL: url}, Target{URL: "http://x", Err: net.ErrClosed})
	wantProblems(t, &r.Engines[0], map[string]Status{Reach: Fail})
	wantProblems(t, &r.Engines[1], map[string]Status{})
	wantProblems(t, &r.Engines[2], map[string]Status{Reach: Fail})
	if r.Status != Fail || r.Problems != 2 || r.Failed(false) != 2 || len(r.Engines[0].Checks) != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestSameEngineTwice(t *testing.T) {
	t.Run("names of one address", func(t *testing.T) {
		_, url := start(t, sound(simserver.DressLlamaCpp))
		other := strings.Replace(url, "127.0.0.1", "localhost", 1)
		r := examine(t, Config{}, Target{URL: url}, Target{URL: other})
		wantProblems(t, &r.Engines[0], map[string]Status{})
		wantProblems(t, &r.Engines[1], map[string]Status{Duplicate: Fail})
	})
	for _, dress := range []simserver.Dress{simserver.DressVLLM, simserver.DressSGLang} {
		t.Run("addresses of one "+string(dress), func(t *testing.T) {
			t.Parallel()
			sim, url := start(t, sound(dress))
			second := httptest.NewServer(sim)
			defer second.Close()
			_, third := start(t, sound(dress))
			r := examine(t, Config{}, Target{URL: url}, Target{URL: third}, Target{URL: second.URL})
			wantProblems(t, &r.Engines[0], map[string]Status{})
			wantProblems(t, &r.Engines[1], map[string]Status{})
			wantProblems(t, &r.Engines[2], map[string]Status{Duplicate: Fail})
			if c := r.Engines[2].Check(Duplicate); c.Data != (DuplicateData{Of: url}) {
				t.Errorf("%+v", c)
			}
		})
	}
	t.Run("without requests", func(t *testing.T) {
		sim, url := start(t, sound(simserver.DressVLLM))
		second := httptest.NewServer(sim)
		defer second.Close()
		r := examine(t, Config{NoRequests: true}, Target{URL: url}, Target{URL: second.URL})
		wantProblems(t, &r.Engines[1], map[string]Status{Duplicate: Warn})
	})
}

// Nothing is computed, and no events are taken away, when no requests are wanted.
func TestNoRequests(t *testing.T) {
	for _, dress := range []simserver.Dress{simserver.DressVLLM, simserver.DressSGLang, simserver.DressTRTLLM, simserver.DressLlamaCpp} {
		t.Run(string(dress), func(t *testing.T) {
			t.Parallel()
			served := 0
			cfg := sound(dress)
			sim, err := simserver.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(counting(sim, &served, "/v1/completions", "/v1/chat/completions", "/kv_cache_events"))
			defer func() {
				sim.Close()
				srv.Close()
			}()
			e := &examine(t, Config{NoRequests: true}, Target{URL: srv.URL}).Engines[0]
			wantProblems(t, e, map[string]Status{})
			if served > 0 {
				t.Errorf("%d requests were sent", served)
			}
		})
	}
}

// Each rank is asked, and heard.
func TestRanks(t *testing.T) {
	cfg := sound(simserver.DressVLLM)
	cfg.Ranks = 3
	_, url := start(t, cfg)
	e := &examine(t, Config{}, Target{URL: url}).Engines[0]
	wantProblems(t, e, map[string]Status{})
	if data := e.Check(Match).Data.(MatchData); len(data.Ranks) != 3 || data.Ranks[2].Found == 0 {
		t.Errorf("match %+v", data)
	}
	if data := e.Check(Events).Data.(EventsData); len(data.Ranks) != 3 || data.Ranks[2].Batches == 0 {
		t.Errorf("events %+v", data)
	}
}

func TestDifference(t *testing.T) {
	for _, tt := range []struct {
		name         string
		ours, theirs []uint32
		want         string
	}{
		{"equal", []uint32{1, 2}, []uint32{1, 2}, ""},
		{"another token", []uint32{1, 2, 3}, []uint32{1, 5, 3}, "p has token 2 at position 1 here and 5 there (3 and 3 tokens)"},
		{"longer", []uint32{1, 2, 3}, []uint32{1, 2}, "p has 3 tokens here and 2 there, of which the first 2 are equal"},
		{"shorter", nil, []uint32{7}, "p has 0 tokens here and 1 there, of which the first 0 are equal"},
	} {
		d := difference("p", tt.ours, tt.theirs)
		got := ""
		if d != nil {
			got = d.String()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
