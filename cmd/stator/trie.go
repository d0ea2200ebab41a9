package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/trie"
)

func trieCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "trie",
		Short: "Build and look into prediction tries of agents",
		Long: `Build and look into prediction tries. A trie tells an agent, from where in its
workflow it calls a model, how many calls are still to come, how soon the next one,
and how long the answer will be. It is built from the traces of past runs; package
hints and stator hints send what it says along with each call.

The files are those of NeMo Agent Toolkit: prediction_trie.json.`,
	})
	cmd.AddCommand(trieBuildCommand(), trieShowCommand(), trieLookupCommand())
	return cmd
}

// loadTrie reads a trie from a file, which may be a pipe, or from stdin for -. Errors name
// it.
func loadTrie(stdin io.Reader, name string) (*trie.Trie, error) {
	from, said := stdin, "standard input"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from, said = f, name
	}
	r := bufio.NewReaderSize(from, 64<<10)
	head, err := r.Peek(r.Size())
	if err != nil && err != io.EOF {
		return nil, err
	}
	instead := recordsIn(head)
	t, err := trie.Read(r)
	switch {
	case err != nil && instead != "":
		return nil, fmt.Errorf("%s: expected a trie, got %s; stator trie build makes a trie of them", said, instead)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", said, err)
	}
	return t, nil
}

// recordsIn says which records of runs a file has that begins with head; empty for none.
func recordsIn(head []byte) string {
	switch trie.Sniff(head) {
	case trie.FormatNAT, trie.FormatNATCSV:
		return "steps of NeMo Agent Toolkit's profiler"
	case trie.FormatSpans:
		return "spans"
	}
	first, _, _ := bytes.Cut(head, []byte("\n"))
	if bytes.HasPrefix(first, []byte("{")) && bytes.Contains(first, []byte(strconv.Quote(trace.Schema))) {
		return "rows of stator serve"
	}
	return ""
}

// scalarFlag is the value of a flag with a number. Its errors say what was expected.
type scalarFlag[T int | float64] struct{ to *T }

func (f scalarFlag[T]) String() string { return fmt.Sprint(*f.to) }

// Type is shown nowhere, because each usage text names its value.
func (f scalarFlag[T]) Type() string { return "number" }

func (f scalarFlag[T]) Set(text string) error {
	v, err := parseValue(reflect.TypeFor[T](), text)
	if err == nil {
		*f.to = v.(T)
	}
	return err
}

// oneFile is the argument check of a command that takes one file.
func oneFile(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return &usageError{err: errors.New("expected a file"), hint: true}
	case 1:
		return nil
	default:
		return &usageError{err: fmt.Errorf("unexpected argument %q", args[1]), hint: true}
	}
}

// predictionJSON is a prediction by the names that it has in files.
type predictionJSON struct {
	RemainingCalls     metricsJSON `json:"remaining_calls"`
	InterArrivalMS     metricsJSON `json:"interarrival_ms"`
	OutputTokens       metricsJSON `json:"output_tokens"`
	LatencySensitivity *int        `json:"latency_sensitivity"`
}

type metricsJSON struct {
	SampleCount int     `json:"sample_count"`
	Mean        float64 `json:"mean"`
	P50         float64 `json:"p50"`
	P90         float64 `json:"p90"`
	P95         float64 `json:"p95"`
}

func toJSON(p *trie.Prediction) *predictionJSON {
	if p == nil {
		return nil
	}
	return &predictionJSON{
		RemainingCalls:     metricsJSON(p.RemainingCalls),
		InterArrivalMS:     metricsJSON(p.InterArrivalMS),
		OutputTokens:       metricsJSON(p.OutputTokens),
		LatencySensitivity: p.LatencySensitivity,
	}
}

// visible makes a name from a file safe to print.
func visible(name string) string { return string(appendVisible(nil, []byte(name), "")) }

// rounded returns a number with as many digits as one can take in: two after the point
// below 10, one below 1000.
func rounded(f float64) string {
	digits := 0
	switch {
	case f < 10:
		digits = 2
	case f < 1000:
		digits = 1
	default:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(f, 'f', digits, 64), "0"), ".")
}

// counted returns a number of things, as "1 run" or "2 runs".
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}
