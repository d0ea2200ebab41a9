package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
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
written to a name that ends in .zst or .gz is compressed. A file of that name is
replaced once all is written.

Mooncake's format holds arrivals, lengths, blocks, sessions and priorities. It does
not say how large blocks are: 512 tokens unless --block-size makes it another
multiple or divisor of what the trace has. Larger blocks hide what prompts share of
less than a block, and it is said how much that is.`,
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
			if err := checkApart(cmd.InOrStdin(), args[0], args[1]); err != nil {
				return &usageError{err: err}
			}
			read, err := c.in.read(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			t, err := c.resize(read)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			note := hidden(read, t)
			if err := c.move(t); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if err := c.write(cmd.OutOrStdout(), args[1], t); err != nil {
				return err
			}
			fmt.Fprint(cmd.ErrOrStderr(), note)
			return nil
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

// checkApart refuses to write a trace to the file that it is read from.
func checkApart(stdin io.Reader, in, out string) error {
	if out == "-" {
		return nil
	}
	to, err := os.Stat(out)
	if err != nil || !to.Mode().IsRegular() {
		return nil // where there is no file yet, or a device that may be both
	}
	var from fs.FileInfo
	if f, ok := stdin.(*os.File); ok && in == "-" {
		from, err = f.Stat()
	} else {
		from, err = os.Stat(in)
	}
	if err == nil && os.SameFile(from, to) {
		return fmt.Errorf("%s: expected another file than the input, got the same", out)
	}
	return nil
}

// resize returns the trace with the blocks that the output is to have.
func (c *conversion) resize(t *trace.Trace) (*trace.Trace, error) {
	if c.to == "stator" && t.Format == "stator" {
		return nil, errors.New("rows of stator already; to write them again would lose most of what they say")
	}
	size := c.blockSize
	if size == 0 && c.to == "mooncake" {
		size = trace.DefaultBlockSize
	}
	if size == 0 || size == t.BlockSize {
		return t, nil
	}
	return t.WithBlockSize(size)
}

// hidden returns a line that says how much less prompts share in the larger blocks
// of after, or nothing if that cannot be seen.
func hidden(before, after *trace.Trace) string {
	if after.BlockSize <= before.BlockSize {
		return ""
	}
	shared := func(t *trace.Trace) string { return fmt.Sprintf("%.4f", trace.IdealHits(t, 1).TokenRatio) }
	was, is := shared(before), shared(after)
	if was == is {
		return ""
	}
	return fmt.Sprintf("shared tokens: %s before, %s after: blocks of %d tokens hide what shorter ones share\n", was, is, after.BlockSize)
}

// move changes when requests arrive.
func (c *conversion) move(t *trace.Trace) error {
	if c.speed != 1 || c.delays != 1 {
		if err := t.Speed(c.speed, c.delays); err != nil {
			return err
		}
	}
	return t.Jitter(c.jitter, c.seed)
}

// write writes a trace to a file, compressed as its name says, or to stdout. A
// file that is there already stays as it is if that fails.
func (c *conversion) write(stdout io.Writer, name string, t *trace.Trace) error {
	if name == "-" {
		return c.writeTo(stdout, t)
	}
	path, ok := replaceable(name)
	if !ok {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		return errors.Join(c.compress(f, name, t), f.Close())
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	if err = c.compress(f, name, t); err == nil {
		err = f.Sync() // a name for what may not be on the disk would be no file at all
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // nobody has use for a part of it
	}
	return err
}

// replaceable returns the file that a name stands for, links followed, and whether
// another can take its place: not so for devices and pipes, nor for names of open
// files such as /dev/stdout.
func replaceable(name string) (string, bool) {
	info, err := os.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return name, false
	}
	const links = 40 // as many as Linux follows
	for range links {
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil || dir == "/dev" || dir == "/dev/fd" || strings.HasPrefix(dir, "/proc/") {
			return name, false
		}
		target, err := os.Readlink(name)
		if err != nil {
			return name, true // no link
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		name = target
	}
	return name, false
}

// createBeside creates a file in the directory of another, which need not exist.
// If it does, it must be writable, and its permissions are those of the new one.
func createBeside(path string) (*os.File, error) {
	old, err := os.OpenFile(path, os.O_WRONLY, 0)
	exists := err == nil
	mode := fs.FileMode(0o666)
	switch {
	case exists:
		info, err := old.Stat()
		if err = errors.Join(err, old.Close()); err != nil {
			return nil, err
		}
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	name := fmt.Sprintf(".stator-%016x.tmp", rand.Uint64())
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: write beside it first: %w", path, err)
	}
	if exists { // the umask counts for new files only
		if err := f.Chmod(mode); err != nil {
			return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}
	return f, nil
}

// compress writes a trace as the name of its file says.
func (c *conversion) compress(w io.Writer, name string, t *trace.Trace) error {
	var z io.WriteCloser
	switch {
	case strings.HasSuffix(name, ".gz"):
		z = gzip.NewWriter(w)
	case strings.HasSuffix(name, ".zst"):
		var err error
		if z, err = zstd.NewWriter(w); err != nil {
			return err
		}
	default:
		return c.writeTo(w, t)
	}
	return errors.Join(c.writeTo(z, t), z.Close())
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
