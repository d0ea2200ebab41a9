package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/trie"
)

func trieShowCommand() *cobra.Command {
	s := trieShow{depth: -1}
	var asJSON bool
	var color string
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print a trie as a tree",
		Long: `Print a trie as a tree of functions, with what is predicted for the calls that are
made in each and in what it calls: how many there were, how many calls come after one
(mean), after how many milliseconds the next one begins (mean), how long the answer is
(90th percentile), and the level of its latency sensitivity. - is the standard input.

#2 is the second call in an invocation of the function; where a function both makes
calls and calls others that do, these rows are of its own. If such a row would say the
same as the function's, it is left out, and of many only the first are shown, unless with
--all.`,
		Example: `  stator trie show prediction_trie.json
  stator trie show --depth 1 prediction_trie.json
  stator trie show --json prediction_trie.json | jq '.nodes[] | select(.calls > 100).path'`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case s.depth < 0 && cmd.Flags().Changed("depth"):
				return &usageError{err: fmt.Errorf("--depth: expected at least 0, got %d", s.depth), hint: true}
			case color != "auto" && color != "always" && color != "never":
				return &usageError{err: fmt.Errorf("--color: expected auto, always or never, got %q", color), hint: true}
			}
			t, err := loadTrie(cmd.InOrStdin(), args[0])
			if err != nil {
				return oneLine(err)
			}
			if asJSON {
				return s.json(cmd.OutOrStdout(), t)
			}
			s.color = useColor(color, isTerminal(cmd.OutOrStdout()), os.Getenv)
			return s.print(cmd.OutOrStdout(), t)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(scalarFlag[int]{&s.depth}, "depth", "`NUMBER` of levels below the root to show (default all)")
	flags.BoolVar(&s.all, "all", false, "show all rows of calls by number")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object with the nodes in a list, each with its path")
	flags.StringVar(&color, "color", "auto", "`WHEN` to use colours: auto, always or never")
	flags.Lookup("depth").DefValue = "0" // which is not printed, nor is -1 taken
	// The error is about a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions([]string{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// trieShow prints a trie.
type trieShow struct {
	depth int // negative for all
	all   bool
	color bool

	rows []trieRow
	top  int // highest level
}

// trieRow is a line of the tree.
type trieRow struct {
	lines string // of the tree, up to its name
	name  string
	node  bool
	cells []string
	level int
}

const (
	shownIndices = 3
	boldStyle    = "\x1b[1m"
	dimStyle     = "\x1b[2m"
	topStyle     = "\x1b[1;33m"
)

func (s *trieShow) print(w io.Writer, t *trie.Trie) error {
	nodes := countNodes(t.Root)
	s.node(t.Root, "", "", 0)
	rows := [][]string{{"", "calls", "remaining", "next ms", "out p90", "level"}}
	for _, r := range s.rows {
		rows = append(rows, append([]string{r.lines + r.name}, r.cells...))
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s, %s, %s", visible(t.WorkflowName), counted(calls(t.Root), "call"), counted(nodes, "node"))
	if t.GeneratedAt != "" {
		fmt.Fprintf(out, ", generated %s", visible(t.GeneratedAt))
	}
	out.WriteString("\n\n")
	for i, line := range alignColumns(rows) {
		if s.color {
			line = s.paint(i-1, line)
		}
		out.WriteString(line)
		out.WriteByte('\n')
	}
	return out.Flush()
}

// paint colours a line of the tree; the header is -1.
func (s *trieShow) paint(i int, line string) string {
	if i < 0 {
		return dimStyle + line + plainStyle
	}
	r := &s.rows[i]
	rest := line[len(r.lines)+len(r.name):]
	name := r.name
	if r.node {
		name = boldStyle + name + plainStyle
	}
	if r.level > 0 && r.level == s.top {
		at := strings.LastIndexByte(rest, ' ') + 1
		rest = rest[:at] + topStyle + rest[at:] + plainStyle
	}
	if r.lines == "" {
		return name + rest
	}
	return dimStyle + r.lines + plainStyle + name + rest
}

// node adds the rows of a node. Its own begins with own, those below it with below.
func (s *trieShow) node(n *trie.Node, own, below string, depth int) {
	s.row(own, visible(n.Name), true, calls(n), n.AnyIndex)
	indices, more := s.indices(n)
	children, hidden := n.Children, 0
	if s.depth >= 0 && depth >= s.depth {
		children, hidden = nil, countNodes(n)-1
	}
	left := len(indices) + len(children)
	if more > 0 {
		left++
	}
	if hidden > 0 {
		left++
	}
	branch := func() (string, string) {
		left--
		if left == 0 {
			return below + "└─ ", below + "   "
		}
		return below + "├─ ", below + "│  "
	}
	for i := range indices {
		lines, _ := branch()
		p := &indices[i].Prediction
		s.row(lines, "#"+strconv.Itoa(indices[i].Index), false, p.RemainingCalls.SampleCount, p)
	}
	if more > 0 {
		lines, _ := branch()
		s.rows = append(s.rows, trieRow{lines: lines, name: fmt.Sprintf("… %d more", more)})
	}
	for _, c := range children {
		lines, deeper := branch()
		s.node(c, lines, deeper, depth+1)
	}
	if hidden > 0 {
		lines, _ := branch()
		s.rows = append(s.rows, trieRow{lines: lines, name: fmt.Sprintf("… %s below", counted(hidden, "node"))})
	}
}

// indices returns the rows by number to show, and how many others there are.
func (s *trieShow) indices(n *trie.Node) (shown []trie.Indexed, more int) {
	shown = n.ByCallIndex
	switch {
	case s.all:
	case len(shown) == 1 && n.AnyIndex != nil && n.AnyIndex.RemainingCalls.SampleCount == shown[0].RemainingCalls.SampleCount:
		return nil, 0 // the node's own row says it
	case len(shown) > shownIndices+1:
		shown, more = shown[:shownIndices], len(shown)-shownIndices
	}
	return shown, more
}

func (s *trieShow) row(lines, name string, node bool, calls int, p *trie.Prediction) {
	r := trieRow{lines: lines, name: name, node: node, cells: []string{strconv.Itoa(calls), "–", "–", "–", "–"}}
	if p != nil {
		for i, m := range []struct {
			n int
			f float64
		}{
			{p.RemainingCalls.SampleCount, p.RemainingCalls.Mean},
			{p.InterArrivalMS.SampleCount, p.InterArrivalMS.Mean},
			{p.OutputTokens.SampleCount, p.OutputTokens.P90},
		} {
			if m.n > 0 {
				r.cells[1+i] = rounded(m.f)
			}
		}
		if p.LatencySensitivity != nil {
			r.level = *p.LatencySensitivity
			r.cells[4] = strconv.Itoa(r.level)
			s.top = max(s.top, r.level)
		}
	}
	s.rows = append(s.rows, r)
}

// calls returns how many calls a node has seen.
func calls(n *trie.Node) int {
	if n.AnyIndex != nil {
		return n.AnyIndex.RemainingCalls.SampleCount
	}
	sum := 0
	for i := range n.ByCallIndex {
		sum += n.ByCallIndex[i].RemainingCalls.SampleCount
	}
	return sum
}

func countNodes(n *trie.Node) int {
	sum := 1
	for _, c := range n.Children {
		sum += countNodes(c)
	}
	return sum
}

// alignColumns returns rows as lines, the first column to the left and the others to the
// right. Rows may be shorter than the first.
func alignColumns(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for k, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				line.WriteString(cell + pad)
			} else {
				line.WriteString("  " + pad + cell)
			}
		}
		lines[k] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// nodeJSON is a node in a list of all.
type nodeJSON struct {
	Path     []string                `json:"path"`
	Calls    int                     `json:"calls"`
	AnyIndex *predictionJSON         `json:"any_index"`
	ByIndex  map[int]*predictionJSON `json:"by_call_index"`
}

// json prints the nodes in a list.
func (s *trieShow) json(w io.Writer, t *trie.Trie) error {
	all := struct {
		Version      string     `json:"version"`
		GeneratedAt  string     `json:"generated_at"`
		WorkflowName string     `json:"workflow_name"`
		Nodes        []nodeJSON `json:"nodes"`
	}{t.Version, t.GeneratedAt, t.WorkflowName, nil}
	var add func(n *trie.Node, path []string)
	add = func(n *trie.Node, path []string) {
		node := nodeJSON{Path: path, Calls: calls(n), AnyIndex: toJSON(n.AnyIndex), ByIndex: make(map[int]*predictionJSON, len(n.ByCallIndex))}
		for i := range n.ByCallIndex {
			node.ByIndex[n.ByCallIndex[i].Index] = toJSON(&n.ByCallIndex[i].Prediction)
		}
		all.Nodes = append(all.Nodes, node)
		if s.depth >= 0 && len(path) >= s.depth {
			return
		}
		for _, c := range n.Children {
			add(c, append(path[:len(path):len(path)], c.Name))
		}
	}
	add(t.Root, []string{})
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(all)
}
