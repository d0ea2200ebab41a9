package stator

import (
	"fmt"
	"net/http"

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
		return fmt.Errorf("sim: %w", err)
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
	return s.router.Add(router.Spec{ID: cfg.Worker, Name: name, Engine: engine})
}

// server returns the configuration of one such engine. It reads the profile if
// that is a file.
func (c *SimConfig) server() (simserver.Config, error) {
	out := simserver.Config{
		Model:            c.Model,
		Adapters:         c.Adapters,
		Kind:             simengine.Kind(c.Kind),
		Seed:             c.Seed,
		ContextLength:    c.ContextLength,
		BlockSize:        c.BlockSize,
		TotalBlocks:      c.TotalKVBlocks,
		MaxBatchedTokens: c.MaxNumBatchedTokens,
		Ranks:            c.Ranks,
	}
	profile := simserver.Profile(c.Profile)
	timing, err := profile.Timing()
	switch {
	case err != nil:
		return out, fmt.Errorf("profile: %w", err)
	case timing != nil:
		out.Engine = &simengine.Config{Timing: timing, Speedup: c.Speedup, MaxSeqs: c.MaxNumSeqs}
	case profile == simserver.Fixed:
		out.TTFT, out.ITL = simserver.FixedTTFT, simserver.FixedITL
		if c.TTFT != nil {
			out.TTFT = *c.TTFT
		}
		if c.ITL != nil {
			out.ITL = *c.ITL
		}
	}
	return out, nil
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
