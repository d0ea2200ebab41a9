package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/trie"
)

func trieBuildCommand() *cobra.Command {
	b := trieBuild{weights: trie.DefaultWeights(), maxSamples: trie.DefaultMaxSamples}
	cmd := &cobra.Command{
		Use:   "build FILE...",
		Short: "Build a trie from the traces of past runs",
		Long: `Build one trie from the traces of past runs, of which there may be several files in
different formats, plain or compressed with gzip or zstd; - is the standard input:

  all_requests_profiler_traces.json   of NeMo Agent Toolkit's profiler
  standardized_data_all.csv           the same with less in it: not what ran beside what,
                                      so that --w-parallel counts as 0 for it
  JSON lines of spans                 as package hints records them
  JSON lines of stator serve          --trace-out: requests with a prefix id or a session
                                      id; all that is known of the way to a call is its depth

Failed and cancelled calls are not counted. What is skipped, and why, is said on the
standard error.

How much a run waits for a call becomes its latency sensitivity, a level from 1 to
--scale. It comes from the share of the run's time that the call takes, how much comes
after it, how near it is to the beginning or the end, and against it, how little it
matters among what runs at the same time; --w-critical and the others weigh these.
--sensitivity tuned has weights for workflows that fan out.

--compat builds what NeMo Agent Toolkit builds on Python 3.12 or later; with an older
one, the last digits of a mean may differ.

SOURCE_DATE_EPOCH, where it is set, is when the trie says it was generated, in seconds.`,
		Example: `  stator trie build all_requests_profiler_traces.json -o prediction_trie.json
  stator trie build spans/*.jsonl.zst --workflow support -o prediction_trie.json
  stator trie build --compat run.json | diff -I generated_at -I workflow_name - prediction_trie.json`,
		Args: atLeast(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := b.options(cmd.Flags())
			if err != nil {
				return &usageError{err: err, hint: true}
			}
			now, err := generatedAt(os.Getenv("SOURCE_DATE_EPOCH"))
			if err != nil {
				return err
			}
			t, err := b.build(cmd.InOrStdin(), cmd.ErrOrStderr(), args, opts, now)
			if err == nil {
				err = writeTrie(cmd.OutOrStdout(), b.out, t)
			}
			return oneLine(err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&b.out, "output", "o", "-", "`FILE` to write, which is replaced once all is written; - for the standard output")
	flags.StringVar(&b.workflow, "workflow", "", "`NAME` of the workflow that the trie is of (default \"unknown\")")
	flags.StringVar(&b.paths, "paths", "full", "`NAMES` by which calls are filed: full for all functions on the way, pair for the last two")
	flags.StringVar(&b.sensitivity, "sensitivity", "on", "`HOW` to rate latency sensitivity: on, tuned or off")
	flags.Var(scalarFlag[int]{&b.weights.Scale}, "scale", "highest `LEVEL`")
	flags.Var(scalarFlag[float64]{&b.weights.Critical}, "w-critical", "`WEIGHT` of the call's share of the run's time (tuned: 0.35)")
	flags.Var(scalarFlag[float64]{&b.weights.Fanout}, "w-fanout", "`WEIGHT` of how much comes after it (tuned: 0.15)")
	flags.Var(scalarFlag[float64]{&b.weights.Position}, "w-position", "`WEIGHT` of how near it is to the beginning or the end (tuned: 0.5)")
	flags.Var(scalarFlag[float64]{&b.weights.Parallel}, "w-parallel", "`WEIGHT` of how little it matters among what runs beside it (tuned: 0.5)")
	flags.BoolVar(&b.compat, "compat", false, "build exactly what NeMo Agent Toolkit builds, pairs among others")
	flags.Var(scalarFlag[int]{&b.maxSamples}, "max-samples", "`NUMBER` of values kept for a percentile; of more, it is that of a sample; with --compat all by default")
	for flag, words := range map[string][]string{"paths": {"full", "pair"}, "sensitivity": {"on", "tuned", "off"}} {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// trieBuild is what the command line says about how to build.
type trieBuild struct {
	out, workflow, paths, sensitivity string
	weights                           trie.Weights
	compat                            bool
	maxSamples                        int
}

// options returns how to build, or what the flags cannot mean.
func (b *trieBuild) options(flags *pflag.FlagSet) (trie.Options, error) {
	o := trie.Options{WorkflowName: b.workflow, MaxSamples: b.maxSamples, Compat: b.compat}
	switch {
	case b.paths != "full" && b.paths != "pair":
		return o, fmt.Errorf("--paths: expected full or pair, got %q", b.paths)
	case b.compat && flags.Changed("paths") && b.paths == "full":
		return o, errors.New("--paths: expected pair with --compat, got full")
	case b.sensitivity != "on" && b.sensitivity != "tuned" && b.sensitivity != "off":
		return o, fmt.Errorf("--sensitivity: expected on, tuned or off, got %q", b.sensitivity)
	case b.maxSamples < 1:
		return o, fmt.Errorf("--max-samples: expected at least 1, got %d", b.maxSamples)
	case b.out == "":
		return o, errors.New("--output: expected a file, or - for the standard output")
	}
	if b.compat && !flags.Changed("max-samples") {
		o.MaxSamples = 0 // all
	}
	if b.paths == "pair" {
		o.PathMode = trie.PairPath
	}
	w := trie.DefaultWeights()
	if b.sensitivity == "tuned" {
		w = trie.TunedWeights()
	}
	for _, f := range []struct {
		name     string
		to, from *float64
	}{
		{"w-critical", &w.Critical, &b.weights.Critical}, {"w-fanout", &w.Fanout, &b.weights.Fanout},
		{"w-position", &w.Position, &b.weights.Position}, {"w-parallel", &w.Parallel, &b.weights.Parallel},
	} {
		if !flags.Changed(f.name) {
			continue
		}
		if b.sensitivity == "off" {
			return o, fmt.Errorf("--%s: expected without --sensitivity off", f.name)
		}
		*f.to = *f.from
	}
	const maxScale = 1_000_000
	if w.Scale = b.weights.Scale; w.Scale < 1 || w.Scale > maxScale {
		return o, fmt.Errorf("--scale: expected 1 to %d, got %d", maxScale, w.Scale)
	}
	if flags.Changed("scale") && b.sensitivity == "off" {
		return o, errors.New("--scale: expected without --sensitivity off")
	}
	if b.sensitivity != "off" {
		o.Sensitivity = &w
	}
	return o, nil
}

// generatedAt returns the time to put into the file: now, unless a number of seconds says
// another.
func generatedAt(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Now(), nil
	}
	s, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || s < 0 || s > math.MaxUint32 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: expected seconds since 1970, got %q", epoch)
	}
	return time.Unix(s, 0), nil
}

// build builds a trie from files and says what there was in them.
func (b *trieBuild) build(stdin io.Reader, stderr io.Writer, names []string, o trie.Options, now time.Time) (*trie.Trie, error) {
	in := newTrieInput(o)
	for _, name := range names {
		if err := in.read(stdin, name); err != nil {
			return nil, err
		}
	}
	if err := in.spans.Close(); err != nil {
		return nil, err
	}
	if in.builder.Calls() == 0 {
		return nil, fmt.Errorf("expected runs with LLM calls, got %s", in.summary())
	}
	fmt.Fprintln(stderr, in.summary())
	if n := in.builder.FiledHigher(); n > 0 {
		fmt.Fprintf(stderr, "note: too many different paths; filed under a part of theirs: %s\n", counted(n, "call"))
	}
	if in.builder.Sampled() {
		fmt.Fprintf(stderr, "note: percentiles of more than %s are those of a sample; --max-samples keeps more\n", counted(o.MaxSamples, "value"))
	}
	if in.oneRun() {
		fmt.Fprintf(stderr, "warning: all %d calls are of one run; recordings need a run id per run: X-Stator-Run or hints.WithRun\n", in.builder.Calls())
	}
	return in.builder.Build(now), nil
}

// trieInput is what files are read into. A run may be spread over several of them, where it
// is told by its spans.
type trieInput struct {
	builder *trie.Builder
	spans   *trie.Collector
	rows    trace.SpanRows

	withCalls int // runs
	fromSpans int // of those
}

func newTrieInput(o trie.Options) *trieInput {
	in := &trieInput{builder: trie.NewBuilder(o)}
	in.spans = trie.NewCollector(func(run []trie.Step) error {
		before := in.withCalls
		err := in.add(run)
		in.fromSpans += in.withCalls - before
		return err
	})
	return in
}

func (in *trieInput) add(run []trie.Step) error {
	before := in.builder.Calls()
	in.builder.Add(run)
	if in.builder.Calls() > before {
		in.withCalls++
	}
	return nil
}

// oneRun reports whether what was recorded has so many calls in a single run that they are
// rather those of several, which nobody told apart. Profiles always tell.
func (in *trieInput) oneRun() bool {
	const many = 50
	return in.withCalls == 1 && in.fromSpans == 1 && in.builder.Calls() > many
}

// read reads a file, or stdin for -. Errors name it.
func (in *trieInput) read(stdin io.Reader, name string) error {
	from, said := stdin, "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		from, said = f, name
	}
	plain, err := trace.Decompress(from)
	if err == nil {
		err = errors.Join(in.readPlain(plain), plain.Close())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	return nil
}

// readPlain reads a file in whatever format it is.
func (in *trieInput) readPlain(plain io.Reader) error {
	r := bufio.NewReaderSize(plain, 64<<10)
	head, err := r.Peek(r.Size())
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	switch trie.Sniff(head) {
	case trie.FormatNAT:
		return trie.ReadNAT(r, in.add)
	case trie.FormatNATCSV:
		return trie.ReadNATCSV(r, in.add)
	case trie.FormatSpans:
		return in.spans.AddLines(r)
	}
	head = bytes.TrimSpace(head)
	first, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case len(head) == 0:
		return errors.New("expected traces of runs, got nothing")
	case bytes.Contains(head, []byte(`"predictions_by_call_index"`)):
		return errors.New("expected traces of runs, got a trie; stator trie show prints one")
	case bytes.HasPrefix(first, []byte("{")) && containsAny(first, `"schema"`, `"hash_ids"`, `"event"`):
		rows, err := trace.ReadSpans(r, in.spans.Add)
		in.rows.Add(rows)
		return err
	}
	return errors.New("expected a profile of NeMo Agent Toolkit (JSON or CSV), lines of spans, or rows of stator serve")
}

func containsAny(text []byte, parts ...string) bool {
	for _, p := range parts {
		if bytes.Contains(text, []byte(p)) {
			return true
		}
	}
	return false
}

// summary says what was read, and what of it was not used.
func (in *trieInput) summary() string {
	text := counted(in.builder.Runs(), "run") + ", " + counted(in.builder.Calls(), "call")
	var skipped []string
	for _, s := range []struct {
		n          int
		thing, why string
	}{
		{in.spans.Unanswered(), "call", "failed or cancelled"},
		{in.rows.NotCompleted, "request", "not completed"},
		{in.rows.WithoutRun, "request", "without a prefix id or a session id"},
		{in.rows.WithoutEnd, "request", "without the time it took"},
		{in.rows.TooLong, "row", "too long"},
		{in.rows.CutOff, "row", "cut off"},
		{in.spans.CutOff(), "span", "cut off"},
		{in.builder.Skipped(), "step", "with a time that makes no sense"},
	} {
		if s.n > 0 {
			skipped = append(skipped, counted(s.n, s.thing)+" "+s.why)
		}
	}
	if len(skipped) > 0 {
		text += "; skipped: " + strings.Join(skipped, ", ")
	}
	return text
}

// writeTrie writes a trie to a file, or to stdout for -.
func writeTrie(stdout io.Writer, name string, t *trie.Trie) error {
	if name == "-" {
		data := t.AppendJSON(nil)
		if isTerminal(stdout) {
			data = append(data, '\n') // which is no part of the form
		}
		_, err := stdout.Write(data)
		return err
	}
	path, ok := replaceable(name)
	if ok {
		return t.Save(path)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(t.AppendJSON(nil))
	return errors.Join(err, f.Close())
}
