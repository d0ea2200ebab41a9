package stator

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
)

// simEngine is a simulated engine behind an in-memory listener.
type simEngine struct {
	server *simserver.Server
	http   *http.Server
	listen *simserver.MemListener
}

// addSims starts the simulated engines and has the router watch them, through the
// same adapter as every other engine.
func (s *Server) addSims() error {
	if s.cfg.Sim.Engines == 0 {
		return nil
	}
	cfg, err := s.cfg.Sim.server()
	if err != nil {
		return err
	}
	if s.cfg.Sim.VirtualTime {
		cfg.Clock = &s.clock
	}
	for n := 1; n <= s.cfg.Sim.Engines; n++ {
		cfg.Worker = kv.WorkerID(n)
		if err := s.addSim(cfg); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) addSim(cfg simserver.Config) error {
	cfg.Events = func(b *kv.Batch) { _ = s.router.Apply(b) } // it never fails
	server, err := simserver.New(cfg)
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	name := fmt.Sprintf("http://sim-%d", cfg.Worker)
	sim := &simEngine{server: server, http: &http.Server{Handler: server}, listen: simserver.NewMemListener(name)}
	s.sims = append(s.sims, sim)
	s.wg.Go(func() { _ = sim.http.Serve(sim.listen) })
	engine, err := openaihttp.New(openaihttp.Config{URL: name, Dial: sim.listen.Dial})
	if err != nil {
		return err
	}
	return s.router.Add(router.Spec{ID: cfg.Worker, Name: name, Engine: engine, Events: true})
}

// server returns the configuration of one such engine. It reads the profile if
// that is a file.
func (c *SimConfig) server() (simserver.Config, error) {
	out := simserver.Config{
		Model:            c.Model,
		Adapters:         c.Adapters,
		Kind:             simengine.Kind(c.Kind),
		Vocabulary:       simserver.Vocabulary(c.Tokenizer),
		Seed:             c.Seed,
		ContextLength:    c.ContextLength,
		BlockSize:        c.BlockSize,
		TotalBlocks:      c.TotalKVBlocks,
		MaxBatchedTokens: c.MaxNumBatchedTokens,
		Ranks:            c.Ranks,
	}
	if err := simserver.Profile(c.Profile).Apply(&out, c.Speedup, c.TTFT, c.ITL); err != nil {
		return out, fmt.Errorf("sim.profile: %w", err)
	}
	if out.Engine != nil {
		c.model(out.Engine)
	}
	return out, nil
}

// model completes the configuration of the engine model, which has its timing
// already, with what the server does not say about it.
func (c *SimConfig) model(e *simengine.Config) {
	e.Rules = simengine.Rules(c.Rules)
	e.MaxSeqs = c.MaxNumSeqs
	e.NoPrefixCaching = !c.PrefixCaching
	e.NoChunkedPrefill = !c.ChunkedPrefill
	e.Watermark = c.Watermark
	e.Victim = simengine.Victim(c.Preemption)
	e.DecodeSpeedup = c.DecodeSpeedup
	e.Draft = c.DraftTokens
	e.Accept = c.DraftAcceptance
	if c.Kind == string(simengine.SGLang) {
		e.SGLang = simengine.SGLangConfig{
			Policy:           simengine.Policy(c.SchedulePolicy),
			MaxPrefillTokens: c.MaxPrefillTokens,
			ClipMaxNewTokens: c.ClipMaxNewTokens,
			Conservativeness: c.ScheduleConservativeness,
		}
	}
}

// api returns the handler of the API. In virtual time it also has the route that
// lets the clock go on.
func (s *Server) api() http.Handler {
	if !s.cfg.Sim.VirtualTime {
		return s.front
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sim/drain" && r.Method == http.MethodPost {
			s.clock.ServeDrain(w, r)
			return
		}
		s.front.ServeHTTP(w, r)
	})
}

const (
	// maxSim bounds the simulated engines of one process, and maxSimRanks the
	// ranks they have together.
	maxSim      = 4096
	maxSimRanks = 1 << 16
	// minSpeedup is the least speedup but for 0.
	minSpeedup = 1e-6
	// maxDraft bounds the tokens speculated in a step.
	maxDraft = 5
)

func (v *validator) sim(c *Config) {
	s := &c.Sim
	v.intBetween("sim.engines", s.Engines, 0, maxSim)
	if strings.TrimSpace(s.Model) == "" {
		v.add("sim.model", "expected the name of a model")
	}
	if n := len(s.Adapters); n > simserver.MaxAdapters {
		v.add("sim.adapters", "expected at most %d, got %d", simserver.MaxAdapters, n)
	} else {
		for i, name := range s.Adapters {
			if name == "" || name == s.Model || slices.Contains(s.Adapters[:i], name) {
				v.add(fmt.Sprintf("sim.adapters[%d]", i), "expected a name of its own, got %q", name)
			}
		}
	}
	v.oneOf("sim.kind", s.Kind, string(simengine.VLLM), string(simengine.SGLang))
	v.oneOf("sim.tokenizer", s.Tokenizer, string(simserver.Qwen3), string(simserver.Bytes))
	v.simTimes(s)
	v.simSizes(s)
	v.simScheduler(s)
	v.simIdle(s)
	if s.VirtualTime && len(c.Keys) > 0 {
		v.add("sim.virtual_time", "expected no API keys with it: everybody sets the clock")
	}
}

// simTimes checks how long simulated engines take.
func (v *validator) simTimes(s *SimConfig) {
	p := simserver.Profile(s.Profile)
	if _, err := p.Timing(); err != nil {
		v.add("sim.profile", "%v", err)
	}
	switch x := s.Speedup; {
	case x == 0 && s.VirtualTime:
		v.add("sim.speedup", "expected a number above 0 in virtual time, where nothing would take any")
	case x != 0 && (!(x >= minSpeedup) || math.IsInf(x, 1)):
		v.add("sim.speedup", "expected a number of at least %v, or 0 for no delay, got %v", minSpeedup, x)
	}
	if x := s.DecodeSpeedup; !(x >= minSpeedup) || math.IsInf(x, 1) {
		v.add("sim.decode_speedup", "expected a number of at least %v, got %v", minSpeedup, x)
	}
	for _, f := range []struct {
		key   string
		value *time.Duration
	}{{"sim.ttft", s.TTFT}, {"sim.itl", s.ITL}} {
		switch {
		case f.value == nil:
		case p != simserver.Fixed:
			v.add(f.key, "expected with profile %s only, but the profile is %s", simserver.Fixed, p)
		default:
			v.atLeast(f.key, *f.value, 0)
		}
	}
	if s.VirtualTime && !p.Modelled() {
		v.add("sim.virtual_time", "expected a profile with a modelled engine, but the profile is %s", p)
	}
}

// simSizes checks how large simulated engines are, each and all together.
func (v *validator) simSizes(s *SimConfig) {
	v.intBetween("sim.context_length", s.ContextLength, 2, simserver.MaxTokens)
	modelled := simserver.Profile(s.Profile).Modelled()
	if modelled && s.Kind == string(simengine.VLLM) && s.BlockSize == 1 {
		v.add("sim.block_size", "expected at least 2 for a modelled vllm, got 1")
	} else {
		v.intBetween("sim.block_size", s.BlockSize, 1, simserver.MaxBlockSize)
	}
	v.intBetween("sim.max_num_batched_tokens", s.MaxNumBatchedTokens, 1, simserver.MaxTokens)
	v.intBetween("sim.max_num_seqs", s.MaxNumSeqs, 1, simserver.MaxSeqs)
	v.intBetween("sim.total_kv_blocks", s.TotalKVBlocks, 1, simserver.MaxBlocks)
	v.intBetween("sim.ranks", s.Ranks, 1, simserver.MaxRanks)

	engines := min(max(s.Engines, 1), maxSim)
	ranks := engines * min(max(s.Ranks, 1), simserver.MaxRanks)
	blocks := min(s.TotalKVBlocks, simserver.MaxBlocks)
	if ranks > maxSimRanks {
		v.add("sim.ranks", "expected at most %d with %d engines, got %d", maxSimRanks/engines, engines, s.Ranks)
	} else if most := simserver.MaxAllBlocks / ranks; modelled && blocks > most {
		v.add("sim.total_kv_blocks", "expected at most %d with %d ranks in all, got %d", most, ranks, s.TotalKVBlocks)
	}
}

// simScheduler checks how modelled engines schedule.
func (v *validator) simScheduler(s *SimConfig) {
	if !(s.Watermark >= 0 && s.Watermark < 1) {
		v.add("sim.watermark", "expected a share from 0 to below 1, got %v", s.Watermark)
	}
	v.oneOf("sim.preemption", s.Preemption, string(simengine.Newest), string(simengine.Oldest))
	v.oneOf("sim.rules", s.Rules, string(simengine.Current), string(simengine.Mocker), string(simengine.MockerGated))

	v.intBetween("sim.draft_tokens", s.DraftTokens, 0, maxDraft)
	if s.DraftTokens > 0 && (s.Kind != string(simengine.VLLM) || s.Rules != string(simengine.Current)) {
		v.add("sim.draft_tokens", "expected 0 unless the kind is %s and the rules are %s, got %d", simengine.VLLM, simengine.Current, s.DraftTokens)
	}
	switch n := len(s.DraftAcceptance); {
	case n > maxDraft:
		v.add("sim.draft_acceptance", "expected at most %d probabilities, got %d", maxDraft, n)
	case n < min(s.DraftTokens, maxDraft):
		v.add("sim.draft_acceptance", "expected %d probabilities, one for each of sim.draft_tokens, got %d", s.DraftTokens, n)
	}
	for i, p := range s.DraftAcceptance[:min(len(s.DraftAcceptance), maxDraft)] {
		v.between(fmt.Sprintf("sim.draft_acceptance[%d]", i), p, 0, 1)
	}

	v.oneOf("sim.schedule_policy", s.SchedulePolicy, string(simengine.FIFO), string(simengine.FCFS), string(simengine.LPM))
	v.intBetween("sim.max_prefill_tokens", s.MaxPrefillTokens, 1, simserver.MaxTokens)
	v.intBetween("sim.clip_max_new_tokens", s.ClipMaxNewTokens, 1, simserver.MaxTokens)
	if x := s.ScheduleConservativeness; !(x > 0 && x <= 1) {
		v.add("sim.schedule_conservativeness", "expected a number above 0 and up to 1, got %v", x)
	}
}

// simIdle refuses settings that the engine asked for does not have, unless there
// is something wrong with them already.
func (v *validator) simIdle(s *SimConfig) {
	p := simserver.Profile(s.Profile)
	for _, key := range s.changed() {
		if slices.ContainsFunc(v.problems, func(known Problem) bool { return known.Key == key }) {
			continue
		}
		switch key {
		case "sim.schedule_policy", "sim.max_prefill_tokens", "sim.clip_max_new_tokens", "sim.schedule_conservativeness":
			if s.Kind == string(simengine.VLLM) {
				v.add(key, "expected with kind %s only, but the kind is %s", simengine.SGLang, s.Kind)
				continue
			}
		case "sim.preemption":
			if s.Kind == string(simengine.SGLang) {
				v.add(key, "expected with kind %s only, but the kind is %s", simengine.VLLM, s.Kind)
				continue
			}
		case "sim.speedup", "sim.decode_speedup", "sim.max_num_seqs", "sim.prefix_caching", "sim.chunked_prefill",
			"sim.watermark", "sim.draft_tokens", "sim.rules":
		default:
			continue
		}
		if !p.Modelled() {
			v.add(key, "expected with a modelled engine only, but the profile is %s", p)
		}
	}
}

// changed returns the keys of the settings that are not at their defaults, except
// for the number of engines.
func (c *SimConfig) changed() []string {
	var keys []string
	got, def := reflect.ValueOf(*c), reflect.ValueOf(DefaultConfig().Sim)
	for i := range got.NumField() {
		a, b := got.Field(i), def.Field(i)
		if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		if key := "sim." + got.Type().Field(i).Tag.Get("koanf"); key != "sim.engines" {
			keys = append(keys, key)
		}
	}
	return keys
}
