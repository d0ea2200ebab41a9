package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
)

func simCommand() *cobra.Command {
	f := simFlags{sim: stator.DefaultConfig().Sim}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated engine",
		Long: `Run a simulated engine: a server with an OpenAI-style API that makes text up
and takes the time a real one would.

An engine is modelled with its batches and its KV cache. How long it takes is its
profile: linear and polynomial are fitted to an 8B model on an H200; a file that
ends in .json or .npz has measurements of another. With the profile fixed each
request takes the same time, whatever else runs, and nothing is cached.

With --dress it looks like another engine: its routes, metrics, errors and KV
events. With --fault it fails in one of these ways, as does POST /sim/fault with a
body such as {"fault":"reset:3"} while it runs; DELETE /sim/fault ends all of them:

  ` + strings.Join(simserver.FaultHelp(), "\n  ") + `

AFTER counts events of a stream before it happens, EVERY says which requests it
happens to, TIMES how often it does, and TIME how long it lasts or delays.`,
		Example: `  stator sim --blocks 4096 --ranks 2
  stator sim --ttft 200ms --itl 20ms
  stator sim --dress vllm --events --replay 127.0.0.1:5657
  stator sim --dress llamacpp --slots 8 --fault hang:5:10
  stator serve --engine http://127.0.0.1:8100        # in another terminal`,
		Args: f.args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return &usageError{err: err, hint: true}
			}
			cfg, err := f.resolve()
			if err != nil {
				return err
			}
			return simulate(cmd.Context(), &f, cfg, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8100", "`HOST:PORT` to serve on")
	sim := &f.sim
	fs.StringVar(&sim.Model, "model", sim.Model, "`NAME` of the model")
	fs.StringArrayVar(&sim.Adapters, "adapter", nil, "`NAME` of a LoRA adapter to serve as well; repeat for more")
	fs.StringVar(&sim.Kind, "kind", sim.Kind, "engine to be like, `KIND`: vllm or sglang")
	fs.StringVar(&sim.Tokenizer, "tokenizer", sim.Tokenizer, "vocabulary of prompts and answers, `NAME`: qwen3 or bytes")
	fs.Uint64Var(&sim.Seed, "seed", sim.Seed, "`NUMBER` that changes the text")
	fs.StringVar(&sim.Profile, "profile", sim.Profile, "how long it takes, `PROFILE`: linear, polynomial, fixed, instant or a file")
	fs.BoolVar(&f.instant, "instant", false, "the profile without any delay")
	fs.Float64Var(&sim.Speedup, "speedup", sim.Speedup, "`FACTOR` by which the modelled engine is faster; 0 for no delay")
	fs.DurationVar(&f.ttft, "ttft", 0, "`TIME` to the first token, with the profile fixed (default 50ms)")
	fs.DurationVar(&f.itl, "itl", 0, "`TIME` between tokens, with the profile fixed (default 5ms)")
	fs.IntVar(&sim.ContextLength, "context-length", sim.ContextLength, "longest prompt and answer, in `TOKENS`")
	fs.IntVar(&sim.BlockSize, "block-size", sim.BlockSize, "`TOKENS` in a KV block")
	fs.IntVar(&sim.TotalKVBlocks, "blocks", sim.TotalKVBlocks, "`NUMBER` of KV blocks of a rank")
	fs.IntVar(&sim.MaxNumBatchedTokens, "max-batched-tokens", sim.MaxNumBatchedTokens, "`TOKENS` a rank computes in a step")
	fs.IntVar(&sim.MaxNumSeqs, "max-seqs", sim.MaxNumSeqs, "`NUMBER` of requests a rank computes in a step")
	fs.IntVar(&sim.Ranks, "ranks", sim.Ranks, "`NUMBER` of data-parallel ranks")
	f.dressFlags.add(cmd)
	fs.BoolVar(&sim.VirtualTime, "virtual-time", false, "go by nvext.request_timestamp_ms and POST /sim/drain instead of the wall clock")
	for flag, words := range map[string][]string{
		"kind":      {"vllm", "sglang"},
		"tokenizer": {"qwen3", "bytes"},
		"profile":   {"linear", "polynomial", "fixed", "instant"},
	} {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveDefault))
	}
	return cmd
}

// simFlags is what the command line says about a simulated engine.
type simFlags struct {
	dressFlags
	listen    string
	sim       stator.SimConfig
	instant   bool
	ttft, itl time.Duration
}

// simFlagOf has the flags of settings that are called something else.
var simFlagOf = map[string]string{
	"sim.adapters":               "--adapter",
	"sim.total_kv_blocks":        "--blocks",
	"sim.max_num_batched_tokens": "--max-batched-tokens",
	"sim.max_num_seqs":           "--max-seqs",
}

// flagOf returns the flag of a setting such as "sim.adapters[1]".
func flagOf(key string) string {
	key, _, _ = strings.Cut(key, "[")
	if flag, ok := simFlagOf[key]; ok {
		return flag
	}
	return "--" + strings.ReplaceAll(strings.TrimPrefix(key, "sim."), "_", "-")
}

// check settles which profile the flags mean, and refuses what they cannot mean:
// the rules are those of the configuration file.
func (f *simFlags) check(fs *pflag.FlagSet) error {
	if fs.Changed("ttft") {
		f.sim.TTFT = &f.ttft
	}
	if fs.Changed("itl") {
		f.sim.ITL = &f.itl
	}
	timed := f.sim.TTFT != nil || f.sim.ITL != nil
	switch {
	case f.instant && (timed || fs.Changed("profile")):
		return errors.New("--instant: expected without --profile, --ttft and --itl")
	case f.instant:
		f.sim.Profile = string(simserver.Instant)
	case timed && !fs.Changed("profile"): // it has no other meaning
		f.sim.Profile = string(simserver.Fixed)
	}
	if err := f.dressFlags.check(fs, simserver.Profile(f.sim.Profile).Modelled()); err != nil {
		return err
	}
	if kind := f.kind(); kind != "" {
		f.sim.Kind = kind
	}
	cfg := stator.DefaultConfig()
	cfg.Sim = f.sim
	cfg.Sim.Engines = 1
	err := cfg.Validate()
	var invalid *stator.ConfigError
	if !errors.As(err, &invalid) {
		return err
	}
	lines := make([]string, len(invalid.Problems))
	for i, p := range invalid.Problems {
		lines[i] = flagOf(p.Key) + ": " + p.Reason
	}
	if len(lines) == 1 {
		return errors.New(lines[0])
	}
	return fmt.Errorf("%d problems:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// resolve returns the configuration of the engine. It reads the profile if that is
// a file.
func (f *simFlags) resolve() (simserver.Config, error) {
	sim := &f.sim
	cfg := simserver.Config{
		Model:            sim.Model,
		Adapters:         sim.Adapters,
		Worker:           1,
		Kind:             simengine.Kind(sim.Kind),
		Vocabulary:       simserver.Vocabulary(sim.Tokenizer),
		Seed:             sim.Seed,
		ContextLength:    sim.ContextLength,
		BlockSize:        sim.BlockSize,
		TotalBlocks:      sim.TotalKVBlocks,
		MaxBatchedTokens: sim.MaxNumBatchedTokens,
		Ranks:            sim.Ranks,
	}
	if err := simserver.Profile(sim.Profile).Apply(&cfg, sim.Speedup, sim.TTFT, sim.ITL); err != nil {
		return cfg, fmt.Errorf("--profile: %w", err)
	}
	if cfg.Engine != nil {
		cfg.Engine.MaxSeqs = sim.MaxNumSeqs
	}
	if sim.VirtualTime {
		cfg.Clock = new(simserver.Clock)
	}
	f.apply(&cfg)
	return cfg, nil
}

// simulate serves one simulated engine until a signal ends it.
func simulate(ctx context.Context, f *simFlags, cfg simserver.Config, stdout io.Writer) error {
	sim, err := simserver.New(cfg)
	if err != nil {
		return err
	}
	defer sim.Close()
	l, err := sim.Listen(f.listen)
	if err != nil {
		return listenError(err, nil)
	}
	// Until here a signal ends the process, and nothing is lost by it.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	srv := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	base := "http://" + reachable(l.Addr().String())
	fmt.Fprintf(stdout, "listening on %s\nsimulating %s\n", base, cfg.Model)
	f.describe(stdout, sim)
	fmt.Fprintf(stdout, "\n  curl -N %s\n\n", chatExample(base, cfg.Model))
	select {
	case err := <-failed:
		return err
	case <-signals:
	}
	if cfg.Clock != nil {
		cfg.Clock.Close()
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), stator.DefaultConfig().Drain.Timeout)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- srv.Shutdown(drain) }()
	select {
	case err := <-drained:
		return err
	case <-signals:
		return errors.New("stopped while requests were running")
	}
}
