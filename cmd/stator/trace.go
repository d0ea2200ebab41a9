package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	workers := counts{low: 1, high: 1024, values: []int{1, 4, 8, 16}}
	capacities := counts{low: 1, high: 1 << 31}
	in := input{sizeFlag: "block-size"}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stat FILE...",
		Short: "Say what traces are like",
		Long: `Say what traces are like: how many requests, how long, how often, and how much of
their prompts caches could hold. - is the standard input.

Requests are dealt out to workers in turn, each with a cache without limit. With
one worker, that is the most that any router could reach.

Rows of stator that are no single request that ran are skipped, and it is said how
many there were and why.`,
		Example: `  stator trace stat trace.jsonl
  cat trace.jsonl*.zst | stator trace stat -          # a trace in several files
  stator trace stat --json trace.jsonl | jq .requests`,
		Args: atLeast(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := in.check(cmd); err != nil {
				return &usageError{err: err, hint: true}
			}
			for i, name := range args {
				t, err := in.read(cmd.InOrStdin(), name)
				if err != nil {
					return err
				}
				report := trace.NewReport(name, t, workers.values, capacities.values)
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
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(&workers, "workers", "`NUMBERS` of workers to deal requests out to")
	flags.Var(&capacities, "lru", "`SIZES` of one cache for all, in blocks")
	in.addBlockSize(flags)
	flags.StringVar(&in.opts.Model, "model", "", "`NAME` of the model to look at, where the trace says")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object per file")
	return cmd
}

// conversion is what is to be done to a trace.
type conversion struct {
	in        input
	to        string
	blockSize int
	model     string
	speed     float64
	delays    float64
	jitter    time.Duration
	seed      uint64
}

func traceConvertCommand() *cobra.Command {
	c := conversion{in: input{sizeFlag: "input-block-size"}, to: "mooncake", model: "trace", speed: 1, delays: 1}
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
			if err := c.check(cmd); err != nil {
				return &usageError{err: err, hint: true}
			}
			t, err := c.in.read(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if t, err = c.apply(t); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return c.write(cmd.OutOrStdout(), args[1], t)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&c.to, "to", c.to, "`FORMAT` to write: mooncake or stator")
	flags.IntVar(&c.blockSize, "block-size", 0, "`TOKENS` in a block of the output (default 512 for mooncake, as the input for stator)")
	c.in.addBlockSize(flags)
	flags.StringVar(&c.in.opts.Model, "only-model", "", "`NAME` of the model whose requests to take, where the trace says")
	flags.StringVar(&c.model, "model", c.model, "`NAME` of the model for rows of stator, where the trace does not say")
	flags.Float64Var(&c.speed, "speed", 1, "`FACTOR` by which sessions begin faster")
	flags.Float64Var(&c.delays, "delay-speed", 1, "`FACTOR` by which a session's next request comes faster")
	flags.DurationVar(&c.jitter, "jitter", 0, "move each session by a random `TIME` below this")
	flags.Uint64Var(&c.seed, "seed", 1, "`NUMBER` that changes the jitter")
	return cmd
}

// check refuses what a flag cannot mean.
func (c *conversion) check(cmd *cobra.Command) error {
	if err := c.in.check(cmd); err != nil {
		return err
	}
	switch {
	case c.to != "mooncake" && c.to != "stator":
		return fmt.Errorf("--to: expected mooncake or stator, got %q", c.to)
	case cmd.Flags().Changed("block-size") && c.blockSize < 1:
		return fmt.Errorf("--block-size: expected at least 1, got %d", c.blockSize)
	case !isFactor(c.speed):
		return fmt.Errorf("--speed: expected a finite factor above 0, got %v", c.speed)
	case !isFactor(c.delays):
		return fmt.Errorf("--delay-speed: expected a finite factor above 0, got %v", c.delays)
	case c.jitter < 0:
		return errors.New("--jitter: expected a time that is not negative")
	case strings.TrimSpace(c.model) == "":
		return errors.New("--model: expected a name")
	}
	return nil
}

func isFactor(f float64) bool { return f > 0 && !math.IsInf(f, 0) }

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
	_, err := os.Lstat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
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
	if err = errors.Join(err, f.Close()); err != nil && fresh {
		_ = os.Remove(name) // nobody has use for a part of it
	}
	return err
}

func (c *conversion) writeTo(w io.Writer, t *trace.Trace) error {
	if c.to == "stator" {
		return trace.WriteRows(w, t, c.model)
	}
	return trace.WriteMooncake(w, t)
}

// input is how traces are read.
type input struct {
	opts     trace.ReadOptions
	sizeFlag string // name of the flag for the block size
}

// addBlockSize declares the flag for the block size.
func (in *input) addBlockSize(flags *pflag.FlagSet) {
	usage := fmt.Sprintf("`TOKENS` in a block, for formats that do not say (default %d); of others, take such rows only", trace.DefaultBlockSize)
	flags.IntVar(&in.opts.BlockSize, in.sizeFlag, 0, usage)
}

// check refuses a block size that cannot be meant.
func (in *input) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed(in.sizeFlag) && in.opts.BlockSize < 1 {
		return fmt.Errorf("--%s: expected at least 1, got %d", in.sizeFlag, in.opts.BlockSize)
	}
	return nil
}

// read reads a file, or stdin for -. Errors name it.
func (in *input) read(stdin io.Reader, name string) (*trace.Trace, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	t, err := trace.Read(from, in.opts)
	switch {
	case errors.Is(err, trace.ErrBlockSize):
		return nil, fmt.Errorf("%s: %w; --%s says how many tokens a block has", name, err, in.sizeFlag)
	case err != nil:
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

// counts is the value of a flag with whole numbers in a range, separated by
// commas. The first use replaces what it held, further ones add to it.
type counts struct {
	low, high int
	values    []int
	set       bool
}

func (c *counts) String() string {
	text := make([]string, len(c.values))
	for i, n := range c.values {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}

func (c *counts) Type() string { return "numbers" }

func (c *counts) Set(text string) error {
	if !c.set {
		c.values, c.set = nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < c.low || n > c.high {
			return fmt.Errorf("expected whole numbers from %d to %d such as 4,8, got %q", c.low, c.high, part)
		}
		c.values = append(c.values, n)
	}
	return nil
}
