package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/internal/doctor"
	"github.com/stator-ai/stator/internal/hub"
)

func doctorCommand() *cobra.Command {
	var (
		path           string
		engines        engineURLs
		tokenizers     tokenizerRefs
		asJSON, strict bool
		noRequests     bool
		timeout        time.Duration
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at engines and say what stands in the way of their best use",
		Long: `Look at engines as serve would use them, all at once, and say what was found:
problems first, with what to do about them.

Each engine gets a handful of requests of up to 200 tokens, one to each rank and
some more to the first, for one token each; and one for a long answer, which is
left after its first token to see that the engine notices. With --no-requests none
is sent, and less is found out. The events of TensorRT-LLM go to whoever asks first:
those that doctor gets, a server that runs does not.

A check fails where something is not as it was said, and warns where an engine works
but could be of more use. The exit code is 1 if a check has failed, or with --strict
warned, and 2 for a command line that cannot be meant.

With --json there is one document: status, problems (how many engines have any) and
engines; for each url, kind, version, models, status and checks; for each of those
name, status (ok, warn, fail or skip), text, advice and data:

  reach          it answers: latency_ms
  duplicate      it is none of the other engines: of
  kind           what it is: kind, version, configured
  models         what it serves: models (id, parent, context_length)
  block_size     tokens in a block: configured, stated, events
  kv_blocks      blocks of a rank: count, configured
  ranks          data-parallel ranks: count, configured
  max_seqs       requests that a rank runs at a time: count
  load           what it says of its load: ranks (rank, running, waiting, usage)
  answer         a prompt is answered: latency_ms, prompt_tokens
  events         KV events come: found, ranks (rank, address, connected, batches,
                 events, lag_ms, skipped, error), eagle, extra_keys
  gaps           none is lost: batches, gaps, missed
  replay         lost ones can be asked for: ranks (rank, address, error)
  match          they tell of our prompts by our hashes: ranks (rank, blocks, found)
  tokens         it makes the tokens that we make: source, compared, equal, refused,
                 first_difference (prompt, position, ours, engine, ours_tokens,
                 engine_tokens)
  cached_tokens  answers say what was cached: prompt_tokens, first, again
  usage          streams say what they used: prompt_tokens, completion_tokens
  priority       what becomes of priorities: priority
  cancel         requests end with their clients: after_ms
  salt           cache salts keep prompts apart: cached_tokens, told
  clock          its clock is right: skew_ms, by`,
		Example: `  stator doctor --engine http://gpu1:8000 --tokenizer Qwen/Qwen3-8B
  stator doctor --engine http://gpu1:8000,events=gpu1:5557 --engine http://gpu2:8000
  stator doctor --config stator.yaml --strict --json`,
		Args: atMost(0),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(&engines, "engine", "base `URL[,events=HOST:PORT][,…]` of an engine, with its kind, events, replay and topic after commas; repeat for more; replaces those of the file")
	fs.StringVar(&path, "config", "", "YAML `FILE` with the settings of serve (STATOR_CONFIG)")
	fs.Var(&tokenizers, "tokenizer", "where tokens come from, `[MODEL=]REF`: path, Hub repository, qwen3, engine or none; repeat for more models")
	fs.BoolVar(&asJSON, "json", false, "print one JSON document")
	fs.BoolVar(&strict, "strict", false, "exit with 1 for warnings, too")
	fs.DurationVar(&timeout, "timeout", 30*time.Second, "`TIME` that one engine may take")
	fs.BoolVar(&noRequests, "no-requests", false, "send no prompts")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if timeout <= 0 {
			return &usageError{err: fmt.Errorf("--timeout: expected a time above 0, got %s", formatDuration(timeout)), hint: true}
		}
		src := source{file: path, getenv: os.Getenv, flags: slices.Concat(engines.assignment(), tokenizers.assignment())}
		if src.file == "" {
			src.file = os.Getenv("STATOR_CONFIG")
		}
		cfg, err := load(src)
		if fromFlags(err) {
			return &usageError{err: err, hint: true}
		}
		if err != nil {
			return err
		}
		if len(cfg.Engines) == 0 {
			return &usageError{err: errors.New("no engine to look at: name one with --engine, or a file with --config"), hint: true}
		}
		if err := hubEnvironment(&cfg.Hub, os.Getenv); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		var progress func(string, int64, int64)
		if stderr := cmd.ErrOrStderr(); isTerminal(stderr) {
			bar := hub.NewBar(stderr)
			defer bar.Close()
			progress = bar.Update
		}
		exam := cfg.Examination(ctx, progress)
		exam.Timeout, exam.NoRequests, exam.Seed = timeout, noRequests, rand.Uint64()
		report := doctor.Examine(ctx, exam)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		out := cmd.OutOrStdout()
		if asJSON {
			err = report.WriteJSON(out)
		} else {
			err = report.WriteText(out, useColor("auto", isTerminal(out), os.Getenv))
		}
		if err != nil {
			return err
		}
		switch { // how many is in the report
		case report.Failed(false) > 0:
			return errors.New("a check has failed")
		case report.Failed(strict) > 0:
			return errors.New("a check has warned, which --strict does not pass")
		}
		return nil
	}
	return cmd
}

// fromFlags reports whether all that is wrong with a configuration was said by flags.
func fromFlags(err error) bool {
	var invalid *configError
	return errors.As(err, &invalid) && !slices.ContainsFunc(invalid.problems, func(p problem) bool {
		return !strings.HasPrefix(p.where.source, "--")
	})
}
