package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
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
	defaults := stator.DefaultConfig().Sim
	f := simFlags{cfg: simserver.Config{Worker: 1}}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated engine",
		Long: `Run a simulated engine: a server with an OpenAI-style API that makes text up
and takes the time a real one would.

An engine is modelled with its batches and its KV cache. How long it takes is its
profile: linear and polynomial are fitted to an 8B model on an H200; a file that
ends in .json or .npz has measurements of another. With the profile fixed each
request takes the same time, whatever else runs, and nothing is cached.`,
		Example: `  stator sim --blocks 4096 --ranks 2
  stator sim --ttft 200ms --itl 20ms
  stator serve --engine http://127.0.0.1:8100        # in another terminal`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd.Flags()); err != nil {
				return &usageError{err: err, hint: true}
			}
			if err := f.resolve(); err != nil {
				return err
			}
			return simulate(cmd.Context(), f.listen, f.cfg, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8100", "`HOST:PORT` to serve on")
	fs.StringVar(&f.cfg.Model, "model", defaults.Model, "`NAME` of the model")
	fs.StringArrayVar(&f.cfg.Adapters, "adapter", nil, "`NAME` of a LoRA adapter to serve as well; repeat for more")
	fs.StringVar(&f.kind, "kind", defaults.Kind, "engine to be like, `KIND`: vllm or sglang")
	fs.Uint64Var(&f.cfg.Seed, "seed", defaults.Seed, "`NUMBER` that changes the text")
	fs.StringVar(&f.profile, "profile", defaults.Profile, "how long it takes, `PROFILE`: linear, polynomial, fixed, instant or a file")
	fs.BoolVar(&f.instant, "instant", false, "the profile without any delay")
	fs.Float64Var(&f.speedup, "speedup", defaults.Speedup, "`FACTOR` by which the modelled engine is faster")
	fs.DurationVar(&f.cfg.TTFT, "ttft", 0, "`TIME` to the first token, with the profile fixed (default 50ms)")
	fs.DurationVar(&f.cfg.ITL, "itl", 0, "`TIME` between tokens, with the profile fixed (default 5ms)")
	fs.IntVar(&f.cfg.ContextLength, "context-length", defaults.ContextLength, "longest prompt and answer, in `TOKENS`")
	fs.IntVar(&f.cfg.BlockSize, "block-size", defaults.BlockSize, "`TOKENS` in a KV block")
	fs.IntVar(&f.cfg.TotalBlocks, "blocks", defaults.TotalKVBlocks, "`NUMBER` of KV blocks of a rank")
	fs.IntVar(&f.cfg.MaxBatchedTokens, "max-batched-tokens", defaults.MaxNumBatchedTokens, "`TOKENS` a rank computes in a step")
	fs.IntVar(&f.seqs, "max-seqs", defaults.MaxNumSeqs, "`NUMBER` of requests a rank computes in a step")
	fs.IntVar(&f.cfg.Ranks, "ranks", defaults.Ranks, "`NUMBER` of data-parallel ranks")
	fs.BoolVar(&f.virtual, "virtual-time", false, "go by nvext.request_timestamp_ms and POST /sim/drain instead of the wall clock")
	for flag, words := range map[string][]string{
		"kind":    {"vllm", "sglang"},
		"profile": {"linear", "polynomial", "fixed", "instant"},
	} {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveDefault))
	}
	return cmd
}

// simFlags is what the command line says about a simulated engine.
type simFlags struct {
	listen           string
	cfg              simserver.Config
	kind, profile    string
	instant, virtual bool
	speedup          float64
	seqs             int
}

// check refuses what flags cannot mean, and settles which profile they do.
func (f *simFlags) check(fs *pflag.FlagSet) error {
	if strings.TrimSpace(f.cfg.Model) == "" {
		return errors.New("--model: expected a name")
	}
	if f.kind != string(simengine.VLLM) && f.kind != string(simengine.SGLang) {
		return fmt.Errorf("--kind: expected vllm or sglang, got %q", f.kind)
	}
	if err := f.checkProfile(fs); err != nil {
		return err
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--context-length", f.cfg.ContextLength},
		{"--block-size", f.cfg.BlockSize},
		{"--blocks", f.cfg.TotalBlocks},
		{"--max-batched-tokens", f.cfg.MaxBatchedTokens},
		{"--max-seqs", f.seqs},
		{"--ranks", f.cfg.Ranks},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s: expected at least 1, got %d", n.flag, n.value)
		}
	}
	return nil
}

func (f *simFlags) checkProfile(fs *pflag.FlagSet) error {
	timed := fs.Changed("ttft") || fs.Changed("itl")
	switch {
	case f.instant && (timed || fs.Changed("profile")):
		return errors.New("--instant: expected without --profile, --ttft and --itl")
	case f.instant:
		f.profile = string(simserver.Instant)
	case timed && !fs.Changed("profile"):
		f.profile = string(simserver.Fixed)
	}
	profile := simserver.Profile(f.profile)
	if err := profile.Check(); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	switch {
	case timed && profile != simserver.Fixed:
		return fmt.Errorf("--ttft, --itl: expected with --profile fixed only, but it is %s", profile)
	case f.cfg.TTFT < 0 || f.cfg.ITL < 0:
		return errors.New("--ttft, --itl: expected a time that is not negative")
	case !(f.speedup > 0) || math.IsInf(f.speedup, 1):
		return fmt.Errorf("--speedup: expected a number above 0, got %v; for no delay at all there is --instant", f.speedup)
	case f.virtual && !profile.Modelled():
		return fmt.Errorf("--virtual-time: expected a profile with a modelled engine, but it is %s", profile)
	}
	if profile == simserver.Fixed {
		if !fs.Changed("ttft") {
			f.cfg.TTFT = simserver.FixedTTFT
		}
		if !fs.Changed("itl") {
			f.cfg.ITL = simserver.FixedITL
		}
	}
	return nil
}

// resolve puts the configuration together. It reads the profile if that is a file.
func (f *simFlags) resolve() error {
	f.cfg.Kind = simengine.Kind(f.kind)
	timing, err := simserver.Profile(f.profile).Timing()
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if timing != nil {
		f.cfg.Engine = &simengine.Config{Timing: timing, Speedup: f.speedup, MaxSeqs: f.seqs}
	}
	if f.virtual {
		f.cfg.Clock = new(simserver.Clock)
	}
	return nil
}

// simulate serves one simulated engine until a signal ends it.
func simulate(ctx context.Context, listen string, cfg simserver.Config, stdout io.Writer) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	sim, err := simserver.New(cfg)
	if err != nil {
		return err
	}
	defer sim.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return listenError(err, "")
	}
	srv := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	base := "http://" + reachable(l.Addr().String())
	fmt.Fprintf(stdout, "listening on %s\nsimulating %s\n\n  curl -N %s\n\n", base, cfg.Model, chatExample(base, cfg.Model))
	select {
	case err := <-failed:
		return err
	case <-signals:
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
