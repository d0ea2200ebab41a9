package simserver

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/simengine"
)

// TestBounds makes servers at the bounds and beyond them. What is beyond is found
// before anything is made of it.
func TestBounds(t *testing.T) {
	adapters := make([]string, MaxAdapters+1)
	for i := range adapters {
		adapters[i] = fmt.Sprint("adapter-", i)
	}
	for _, tc := range []struct {
		cfg  Config
		want string // empty for a server
	}{
		{Config{Ranks: MaxRanks, TotalBlocks: MaxBlocks, BlockSize: MaxBlockSize}, ""},
		{Config{ContextLength: MaxTokens, MaxBatchedTokens: MaxTokens, Adapters: adapters[:MaxAdapters]}, ""},
		{Config{Ranks: 8, TotalBlocks: 64, BlockSize: MaxBlockSize, Engine: &simengine.Config{MaxSeqs: MaxSeqs}}, ""},
		{Config{Ranks: 1e8}, "ranks: expected at most 1024, got 100000000"},
		{Config{Ranks: -1}, "ranks: expected at least 1, got -1"},
		{Config{TotalBlocks: MaxBlocks + 1}, "total blocks: expected at most 16777216, got 16777217"},
		{Config{BlockSize: MaxBlockSize + 1}, "block size: expected at most 65536, got 65537"},
		{Config{ContextLength: 1}, "context length: expected at least 2, got 1"},
		{Config{ContextLength: MaxTokens + 1}, "context length: expected at most 1073741824, got 1073741825"},
		{Config{MaxBatchedTokens: math.MaxInt}, "max batched tokens: expected at most 1073741824, got 9223372036854775807"},
		{Config{Adapters: adapters}, "adapters: expected at most 1024, got 1025"},
		{Config{Engine: &simengine.Config{MaxSeqs: MaxSeqs + 1}}, "engine: max seqs: expected at most 1073741824, got 1073741825"},
		{Config{Ranks: 1024, TotalBlocks: 65537, Engine: &simengine.Config{}}, "total blocks: expected at most 65536 with 1024 ranks, got 65537"},
	} {
		s, err := New(tc.cfg)
		switch {
		case err == nil && tc.want == "":
			s.Close()
		case err == nil:
			s.Close()
			t.Errorf("made, want: %s", tc.want)
		case tc.want == "" || err.Error() != "simserver: "+tc.want:
			t.Errorf("got: %v\nwant: simserver: %s", err, tc.want)
		}
	}
}

// TestRoomIsTheEngines asks for as much as fits into a cache of eight tokens, by
// each set of rules: the server knows what the engine would turn away.
func TestRoomIsTheEngines(t *testing.T) {
	for _, tc := range []struct {
		rules simengine.Rules
		room  int
	}{{"", 9}, {simengine.Current, 9}, {simengine.Mocker, 8}, {simengine.MockerGated, 8}} {
		cfg := Config{TotalBlocks: 2, BlockSize: 4, Engine: &simengine.Config{Rules: tc.rules}}
		if got := cfg.mustDefault(t).room(); got != tc.room {
			t.Errorf("rules %q: room for %d tokens, want %d", tc.rules, got, tc.room)
		}
		model, err := cfg.mustDefault(t).model()
		if err != nil {
			t.Fatal(err)
		}
		e, err := simengine.New(model)
		if err != nil {
			t.Fatal(err)
		}
		for _, prompt := range []int{tc.room - 1, tc.room} {
			r := &simengine.Request{Prompt: prompt, MaxOutput: 1}
			e.Receive(r)
			rejected := len(e.Step().Rejected) > 0
			if rejected != (prompt >= tc.room) {
				t.Errorf("rules %q: a prompt of %d tokens: rejected %t", tc.rules, prompt, rejected)
			}
		}
	}
}

func (c Config) mustDefault(t *testing.T) *Config {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// TestApply gives a server the times of each profile.
func TestApply(t *testing.T) {
	for _, tc := range []struct {
		profile Profile
		speedup float64
		engine  string // timing and speedup
	}{
		{Linear, 3, "linear 3"},
		{Polynomial, 1, "polynomial 1"},
		{Linear, 0, "{0s 0s} 0"},
		{Instant, 1, ""},
	} {
		var cfg Config
		if err := tc.profile.Apply(&cfg, tc.speedup, nil, nil); err != nil {
			t.Errorf("%s: %v", tc.profile, err)
			continue
		}
		engine := ""
		if cfg.Engine != nil {
			engine = fmt.Sprint(cfg.Engine.Timing, " ", cfg.Engine.Speedup)
		}
		if engine != tc.engine || cfg.TTFT != 0 || cfg.ITL != 0 {
			t.Errorf("%s: %s, %v, %v; want %s", tc.profile, engine, cfg.TTFT, cfg.ITL, tc.engine)
		}
	}
	var cfg Config
	if err := Fixed.Apply(&cfg, 1, nil, new(FixedITL*2)); err != nil || cfg.Engine != nil || cfg.TTFT != FixedTTFT || cfg.ITL != 2*FixedITL {
		t.Errorf("fixed: %+v, %v", cfg, err)
	}
	if err := Profile("none").Apply(&cfg, 1, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "expected linear") {
		t.Errorf("no profile: %v", err)
	}
}
