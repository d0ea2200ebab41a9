package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/simserver"
)

func simCommand() *cobra.Command {
	defaults := stator.DefaultConfig().Sim
	cfg := simserver.Config{Worker: 1}
	var listen string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated engine",
		Long: `Run a simulated engine: a server with an OpenAI-style API that makes text up
and takes the time a real one would.`,
		Example: `  stator sim --ttft 200ms --itl 20ms
  stator serve --engine http://127.0.0.1:8100        # in another terminal`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSim(&cfg); err != nil {
				return &usageError{err: err, hint: true}
			}
			return simulate(cmd.Context(), listen, cfg, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&listen, "listen", "127.0.0.1:8100", "`HOST:PORT` to serve on")
	fs.StringVar(&cfg.Model, "model", defaults.Model, "`NAME` of the model")
	fs.Uint64Var(&cfg.Seed, "seed", defaults.Seed, "`NUMBER` that changes the text")
	fs.DurationVar(&cfg.TTFT, "ttft", defaults.TTFT, "`TIME` to the first token")
	fs.DurationVar(&cfg.ITL, "itl", defaults.ITL, "`TIME` between tokens")
	fs.IntVar(&cfg.ContextLength, "context-length", defaults.ContextLength, "longest prompt and answer, in `TOKENS`")
	fs.IntVar(&cfg.BlockSize, "block-size", defaults.BlockSize, "`TOKENS` in a KV block")
	fs.IntVar(&cfg.TotalBlocks, "blocks", defaults.TotalKVBlocks, "`NUMBER` of KV blocks of a rank")
	fs.IntVar(&cfg.MaxBatchedTokens, "max-batched-tokens", defaults.MaxNumBatchedTokens, "prompt `TOKENS` a rank takes in a step")
	fs.IntVar(&cfg.Ranks, "ranks", defaults.Ranks, "`NUMBER` of data-parallel ranks")
	return cmd
}

// checkSim refuses what a flag cannot mean.
func checkSim(cfg *simserver.Config) error {
	if strings.TrimSpace(cfg.Model) == "" {
		return errors.New("--model: expected a name")
	}
	if cfg.TTFT < 0 || cfg.ITL < 0 {
		return errors.New("--ttft, --itl: expected a time that is not negative")
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--context-length", cfg.ContextLength},
		{"--block-size", cfg.BlockSize},
		{"--blocks", cfg.TotalBlocks},
		{"--max-batched-tokens", cfg.MaxBatchedTokens},
		{"--ranks", cfg.Ranks},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s: expected at least 1, got %d", n.flag, n.value)
		}
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
