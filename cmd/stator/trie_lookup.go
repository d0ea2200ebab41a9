package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

func trieLookupCommand() *cobra.Command {
	var path string
	var asJSON bool
	call := 1
	cmd := &cobra.Command{
		Use:   "lookup FILE",
		Short: "Say what a trie predicts for a call",
		Long: `Say what a trie predicts for a call, where in the trie that was found, and the hints
that a client would send with the call. - is the standard input.

The path is the functions from the workflow's entry to the one that makes the call,
separated by slashes; a JSON array if a name has one in it. Where the whole path is
not in the trie, the last two names are looked for, then as much of the path as there
is; without any, it is what holds for all calls.

A client counts calls twice: in the invocation, for which a prediction is looked up, and
with the same prefix, which total_requests goes on from. Here --call stands for both; in
a run where invocations share a prefix, a client's total_requests is higher.`,
		Example: `  stator trie lookup prediction_trie.json --path '<workflow>/agent'
  stator trie lookup prediction_trie.json --path support/agent --call 2 --json
  stator trie lookup prediction_trie.json --path '["a/b", "c"]'`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parseFunctionPath(path)
			if err == nil && call < 1 {
				err = fmt.Errorf("--call: expected at least 1, got %d", call)
			}
			if err != nil {
				return &usageError{err: err, hint: true}
			}
			t, err := loadTrie(cmd.InOrStdin(), args[0])
			if err != nil {
				return oneLine(err)
			}
			l := newLookup(t, names, call)
			if l.Prediction == nil {
				return fmt.Errorf("%s: no prediction: the trie is empty", args[0])
			}
			return l.print(cmd.OutOrStdout(), asJSON)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&path, "path", "", "`NAMES` of the functions on the way to the call")
	flags.Var(scalarFlag[int]{&call}, "call", "`NUMBER` of the call in its invocation of the last function, from 1")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// parseFunctionPath reads the names of functions.
func parseFunctionPath(text string) ([]string, error) {
	if strings.HasPrefix(text, "[") {
		var names []string
		if err := json.Unmarshal([]byte(text), &names); err != nil {
			return nil, fmt.Errorf("--path: expected a JSON array of names, got %q", text)
		}
		return names, nil
	}
	text = strings.Trim(text, "/")
	if text == "" {
		return []string{}, nil
	}
	names := strings.Split(text, "/")
	for _, name := range names {
		if name == "" {
			return nil, errors.New("--path: expected names between slashes, got none")
		}
	}
	return names, nil
}

// trieLookup is what was asked and what was found.
type trieLookup struct {
	Path       []string        `json:"path"`
	Call       int             `json:"call"`
	Found      foundJSON       `json:"found"`
	Prediction *predictionJSON `json:"prediction"`
	Hints      *hintsJSON      `json:"hints"`
}

type foundJSON struct {
	Path  []string `json:"path"`
	Way   trie.Way `json:"way"`
	Exact bool     `json:"exact"`
}

// hintsJSON is what a prediction makes of hints, written as a client writes them.
type hintsJSON struct {
	LatencySensitivity json.Number `json:"latency_sensitivity,omitempty"`
	OSL                *uint32     `json:"osl,omitempty"`
	Priority           *int32      `json:"priority,omitempty"`
	TotalRequests      *uint64     `json:"total_requests,omitempty"`
	IATMS              *uint64     `json:"iat,omitempty"`
}

func toHintsJSON(h *nvext.AgentHints) *hintsJSON {
	out := &hintsJSON{OSL: h.OSL, Priority: h.Priority, TotalRequests: h.TotalRequests, IATMS: h.IATMS}
	if s := h.LatencySensitivity; s != nil {
		out.LatencySensitivity = json.Number(strconv.FormatFloat(*s, 'f', 1, 64)) // a whole number
	}
	return out
}

func newLookup(t *trie.Trie, path []string, call int) *trieLookup {
	m := t.Lookup(path, call)
	l := &trieLookup{Path: path, Call: call, Prediction: toJSON(m.Prediction)}
	if m.Prediction != nil {
		l.Found = foundJSON{append([]string{}, m.Path...), m.Way, m.Exact}
		l.Hints = toHintsJSON(hints.Predicted(m.Prediction, call))
	}
	return l
}

func (l *trieLookup) print(w io.Writer, asJSON bool) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if asJSON {
		if err := enc.Encode(l); err != nil {
			return err
		}
		_, err := w.Write(out.Bytes())
		return err
	}
	fmt.Fprintf(&out, "%s, call %d\n", shownPath(l.Path), l.Call)
	index := "for calls of any number"
	if l.Found.Exact {
		index = fmt.Sprintf("for call %d", l.Call)
	}
	fmt.Fprintf(&out, "found at %s%s, %s\n\n", shownPath(l.Found.Path), l.Found.how(), index)
	l.Prediction.table(&out)
	out.WriteString("\nagent_hints  ")
	if err := enc.Encode(l.Hints); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}

// how says by which way the prediction was found.
func (f *foundJSON) how() string {
	switch f.Way {
	case trie.WholePath:
		return " by the whole path"
	case trie.Suffix:
		return " by the end of the path"
	case trie.PartOfPath:
		return " by the beginning of the path"
	default:
		return ", which is all there is"
	}
}

func shownPath(names []string) string {
	if len(names) == 0 {
		return "the root"
	}
	return visible(strings.Join(names, "/"))
}

// table prints the numbers of a prediction.
func (p *predictionJSON) table(out *bytes.Buffer) {
	rows := [][]string{{"", "samples", "mean", "p50", "p90", "p95"}}
	for _, m := range []struct {
		name string
		metricsJSON
	}{{"remaining calls", p.RemainingCalls}, {"next call after ms", p.InterArrivalMS}, {"output tokens", p.OutputTokens}} {
		row := []string{m.name, strconv.Itoa(m.SampleCount)}
		for _, f := range []float64{m.Mean, m.P50, m.P90, m.P95} {
			cell := rounded(f)
			if m.SampleCount == 0 {
				cell = "–"
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	level := "–"
	if p.LatencySensitivity != nil {
		level = strconv.Itoa(*p.LatencySensitivity)
	}
	for _, line := range alignColumns(rows) {
		out.WriteString(line + "\n")
	}
	fmt.Fprintf(out, "latency sensitivity  %s\n", level)
}
