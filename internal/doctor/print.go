package doctor

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stator-ai/stator/internal/terminal"
)

// styles are how states look on a terminal.
var styles = map[Status]string{OK: "\x1b[32m", Skip: "\x1b[2m", Warn: "\x1b[33m", Fail: "\x1b[1;31m"}

const (
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// WriteText writes the report for people: a table for each engine, with what is wrong
// first and what to do about it, and a line that sums up. Nothing that an engine said
// reaches a terminal as a command.
func (r *Report) WriteText(w io.Writer, color bool) error {
	p := &printer{w: bufio.NewWriter(w), color: color}
	for i := range r.Engines {
		p.engine(&r.Engines[i])
		p.w.WriteByte('\n')
	}
	engines := fmt.Sprintf("%d engines", len(r.Engines))
	if len(r.Engines) == 1 {
		engines = "1 engine"
	}
	var problems []string
	failed := r.Failed(false)
	if failed > 0 {
		problems = append(problems, fmt.Sprintf("%d failed", failed))
	}
	if warned := r.Problems - failed; warned > 0 {
		problems = append(problems, fmt.Sprintf("%d with warnings", warned))
	}
	if problems == nil {
		problems = append(problems, "no problems")
	}
	fmt.Fprintf(p.w, "%s: %s\n", engines, strings.Join(problems, ", "))
	return p.w.Flush()
}

// printer writes a report. Errors are those of Flush.
type printer struct {
	w     *bufio.Writer
	color bool
}

func (p *printer) styled(style, text string) string {
	if !p.color {
		return text
	}
	return style + text + plain
}

func (p *printer) engine(e *Engine) {
	title := terminal.Line(e.URL)
	p.w.WriteString(p.styled(bold, title))
	if e.Kind != "" {
		p.w.WriteString("  " + terminal.Line(e.Kind))
	}
	if e.Version != "" {
		p.w.WriteString(" " + terminal.Line(e.Version))
	}
	if len(e.Models) > 0 {
		p.w.WriteString("  " + terminal.Line(e.Models[0]))
		if more := len(e.Models) - 1; more > 0 {
			fmt.Fprintf(p.w, " and %d more", more)
		}
	}
	p.w.WriteByte('\n')
	checks := slices.Clone(e.Checks)
	slices.SortStableFunc(checks, func(a, b Check) int { return max(b.Status.severity(), 0) - max(a.Status.severity(), 0) })
	width := 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	problems := true
	for i, c := range checks {
		problem := c.Status.severity() > OK.severity()
		if i > 0 && problems && !problem {
			p.w.WriteByte('\n')
		}
		problems = problem
		fmt.Fprintf(p.w, "  %s  %-*s  %s\n", p.styled(styles[c.Status], fmt.Sprintf("%-4s", c.Status)), width, c.Name, terminal.Line(c.Text))
		if c.Advice != "" {
			fmt.Fprintf(p.w, "        %-*s  %s\n", width, "", p.styled(bold, "-> "+terminal.Line(c.Advice)))
		}
	}
}
