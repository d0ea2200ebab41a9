package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/internal/trace"
)

func traceCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "trace",
		Short: "Describe and convert request traces",
		Long: `Describe and convert traces of requests: those that stator serve records, and
those in Mooncake's format or Dynamo's. They may be compressed with gzip or zstd.`,
	})
	cmd.AddCommand(traceStatCommand(), traceConvertCommand())
	return cmd
}

func traceStatCommand() *cobra.Command {
	workers, capacities := []int{1, 4, 8, 16}, []int(nil)
	var opts trace.ReadOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stat FILE...",
		Short: "Say what traces are like",
		Long: `Say what traces are like: how many requests, how long, how often, and how much of
their prompts caches could hold. - is the standard input.

Requests are dealt out to workers in turn, each with a cache without limit. With
one worker, that is the most that any router could reach.`,
		Example: `  stator trace stat trace.jsonl
  cat trace.jsonl*.zst | stator trace stat -          # a trace in several files
  stator trace stat --json trace.jsonl | jq .requests`,
		Args: atLeast(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCounts("--workers", workers, 1, 1024); err != nil {
				return err
			}
			if err := checkCounts("--lru", capacities, 1, 1<<31); err != nil {
				return err
			}
			for i, name := range args {
				t, err := readTrace(cmd.InOrStdin(), name, opts)
				if err != nil {
					return err
				}
				report := trace.NewReport(name, t, workers, capacities)
				if asJSON {
					err = json.NewEncoder(cmd.OutOrStdout()).Encode(report)
				} else {
					if i > 0 {
						fmt.Fprintln(cmd.OutOrStdout())
					}
					_, err = io.WriteString(cmd.OutOrStdout(), report.String())
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntSliceVar(&workers, "workers", workers, "`NUMBERS` of workers to deal requests out to")
	fs.IntSliceVar(&capacities, "lru", nil, "`SIZES` of one cache for all, in blocks")
	fs.IntVar(&opts.BlockSize, "block-size", trace.DefaultBlockSize, "`TOKENS` in a block, for formats that do not say")
	fs.StringVar(&opts.Model, "model", "", "`NAME` of the model to look at, where the trace says")
	fs.BoolVar(&asJSON, "json", false, "print one JSON object per file")
	return cmd
}

// conversion is what is to be done to a trace.
type conversion struct {
	opts      trace.ReadOptions
	to        string
	blockSize int
	model     string
	speed     float64
	delays    float64
	jitter    time.Duration
	seed      uint64
}

func traceConvertCommand() *cobra.Command {
	c := conversion{to: "mooncake", model: "trace", speed: 1, delays: 1}
	cmd := &cobra.Command{
		Use:   "convert IN OUT",
		Short: "Write a trace in another format",
		Long: `Write a trace in another format. - is the standard input or output. What is
written to a name that ends in .zst or .gz is compressed.

Mooncake's format holds arrivals, lengths, blocks, sessions and priorities. It does
not say how large blocks are: 512 tokens unless --block-size makes it another
multiple of what the trace has.`,
		Example: `  stator trace convert trace.jsonl.zst mooncake.jsonl
  stator trace convert --speed 4 --jitter 3s conversation.jsonl faster.jsonl.zst`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &usageError{err: fmt.Errorf("expected an input and an output, got %d arguments", len(args)), hint: true}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.check(); err != nil {
				return &usageError{err: err, hint: true}
			}
			t, err := readTrace(cmd.InOrStdin(), args[0], c.opts)
			if err != nil {
				return err
			}
			if t, err = c.apply(t); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return c.write(cmd.OutOrStdout(), args[1], t)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&c.to, "to", c.to, "`FORMAT` to write: mooncake or stator")
	fs.IntVar(&c.blockSize, "block-size", 0, "`TOKENS` in a block of the output (default 512 for mooncake, as the input for stator)")
	fs.IntVar(&c.opts.BlockSize, "input-block-size", trace.DefaultBlockSize, "`TOKENS` in a block of the input, for formats that do not say")
	fs.StringVar(&c.opts.Model, "only-model", "", "`NAME` of the model whose requests to take, where the trace says")
	fs.StringVar(&c.model, "model", c.model, "`NAME` of the model for rows of stator, where the trace does not say")
	fs.Float64Var(&c.speed, "speed", 1, "`FACTOR` by which sessions begin faster")
	fs.Float64Var(&c.delays, "delay-speed", 1, "`FACTOR` by which a session's next request comes faster")
	fs.DurationVar(&c.jitter, "jitter", 0, "move each session by a random `TIME` below this")
	fs.Uint64Var(&c.seed, "seed", 1, "`NUMBER` that changes the jitter")
	return cmd
}

// check refuses what a flag cannot mean.
func (c *conversion) check() error {
	switch {
	case c.to != "mooncake" && c.to != "stator":
		return fmt.Errorf("--to: expected mooncake or stator, got %q", c.to)
	case c.blockSize < 0:
		return fmt.Errorf("--block-size: expected at least 1, got %d", c.blockSize)
	case !(c.speed > 0) || !(c.delays > 0):
		return errors.New("--speed, --delay-speed: expected a factor above 0")
	case c.jitter < 0:
		return errors.New("--jitter: expected a time that is not negative")
	case strings.TrimSpace(c.model) == "":
		return errors.New("--model: expected a name")
	}
	return nil
}

func (c *conversion) apply(t *trace.Trace) (*trace.Trace, error) {
	if c.to == "stator" && t.Format == "stator" {
		return nil, errors.New("rows of stator already; to write them again would lose most of what they say")
	}
	size := c.blockSize
	if size == 0 && c.to == "mooncake" {
		size = trace.DefaultBlockSize
	}
	if size != 0 && size != t.BlockSize {
		var err error
		if t, err = t.WithBlockSize(size); err != nil {
			return nil, err
		}
	}
	if c.speed != 1 || c.delays != 1 {
		if err := t.Speed(c.speed, c.delays); err != nil {
			return nil, err
		}
	}
	return t, t.Jitter(c.jitter, c.seed)
}

// write writes a trace to a file, compressed as its name says, or to stdout.
func (c *conversion) write(stdout io.Writer, name string, t *trace.Trace) error {
	if name == "-" {
		return c.writeTo(stdout, t)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	var z io.WriteCloser
	switch {
	case strings.HasSuffix(name, ".gz"):
		z = gzip.NewWriter(f)
	case strings.HasSuffix(name, ".zst"):
		z, err = zstd.NewWriter(f)
	}
	switch {
	case err != nil:
	case z != nil:
		err = errors.Join(c.writeTo(z, t), z.Close())
	default:
		err = c.writeTo(f, t)
	}
	return errors.Join(err, f.Close())
}

func (c *conversion) writeTo(w io.Writer, t *trace.Trace) error {
	if c.to == "stator" {
		return trace.WriteRows(w, t, c.model)
	}
	return trace.WriteMooncake(w, t)
}

// readTrace reads a file, or stdin for -. Errors name it.
func readTrace(stdin io.Reader, name string, opts trace.ReadOptions) (*trace.Trace, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	t, err := trace.Read(in, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// atLeast returns an argument check that is a usage error below n.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return &usageError{err: fmt.Errorf("expected %s", what), hint: true}
		}
		return nil
	}
}

// checkCounts refuses numbers of a flag that are out of range.
func checkCounts(flag string, values []int, low, high int) error {
	for _, v := range values {
		if v < low || v > high {
			return &usageError{err: fmt.Errorf("%s: expected %d to %d, got %d", flag, low, high, v), hint: true}
		}
	}
	return nil
}
