package collect

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/terminal"
)

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// The names of what is summed up, in tables.
const (
	nameKVE   = "kv_efficiency"
	nameScore = "score"
)

// Look is how a table is written.
type Look struct {
	Color bool
	// History, if it is not nil, is drawn beside the numbers.
	History *History
	// Width and Height are what a screen has room for; 0 means any. Lines that are longer
	// are cut. If there are more, what went wrong comes first, there are no empty lines,
	// and the last line says how many are not there.
	Width, Height int
}

// WriteText writes the results for people: a table with what matters most first, and then
// what is missing, with the likely reasons, and what went wrong; only the last if that is
// all there is. Nothing that a server said reaches a terminal as a command.
func (r *Results) WriteText(w io.Writer, look Look) error {
	p := &printer{look: look}
	p.write(r, false)
	if look.Height > 0 && bytes.Count(p.w.Bytes(), []byte("\n")) > look.Height {
		p.w.Reset()
		p.write(r, true)
	}
	_, err := io.WriteString(w, fit(p.w.String(), look.Width, look.Height))
	return err
}

// write writes all there is to say; with tight, so that what matters most is on top.
func (p *printer) write(r *Results, tight bool) {
	p.tight = tight
	p.head(r)
	problems := func() {
		p.list("down", r.down())
		p.list("errors", collapse(r.Errors))
	}
	if tight {
		problems()
	}
	if r.Collected() > 0 || len(r.Errors) == 0 {
		p.table(r)
		p.missing(r)
	}
	if !tight {
		problems()
	}
	p.list("warnings", r.Warnings)
}

func (p *printer) table(r *Results) {
	rows := r.rows()
	note := 0
	for _, row := range rows {
		p.name = max(p.name, utf8.RuneCountInString(row.name))
		p.value = max(p.value, utf8.RuneCountInString(row.value))
		note = max(note, utf8.RuneCountInString(row.note))
	}
	p.bars = historyLength
	if p.look.Width > 0 {
		const gaps = 8 // before the name, and between the columns
		p.bars = min(max(p.look.Width-p.name-p.value-note-gaps, minBars), historyLength)
	}
	section := ""
	for _, row := range rows {
		if row.section != section {
			section = row.section
			p.title(bold, section)
		}
		p.row(row)
	}
}

// sections are the parts of the table that groups are in.
var sections = map[Group]string{
	GroupInflight:        "requests",
	GroupThroughput:      "requests",
	GroupTTFT:            "latency",
	GroupITL:             "latency",
	GroupKVCache:         "KV cache",
	GroupTokenThroughput: "tokens",
	GroupAlways:          "engines and policy",
}

// row is a line of the table.
type row struct {
	section, name, value, note string
	history                    string // the name in the history
	absent                     bool
}

func (r *Results) rows() []row {
	var rows []row
	add := func(section, name string, v *float64, unit, note string) {
		rows = append(rows, row{section: section, name: name, value: withUnit(v, unit), note: note, history: name, absent: v == nil})
	}
	var note string
	if r.Core.Effective() != nil {
		note = r.Core.Source + r.Core.Method.note(r)
	}
	add("core", nameKVE, r.Core.Effective(), "", note)
	for _, c := range []struct {
		name  string
		value *float64
		field Field
	}{{"ttft_p95_seconds", r.Core.TTFTP95, TTFTP95}, {"itl_p95_seconds", r.Core.ITLP95, ITLP95}} {
		add("core", c.name, c.value, "s", "")
		rows[len(rows)-1].history = string(c.field)
	}
	add("core", nameScore, r.Score, "", "")
	for _, m := range r.Metrics {
		add(sections[m.Group], string(m.Field), m.Value, m.Unit, m.note(r))
	}
	for _, q := range r.Custom {
		if len(q.Values) == 0 {
			add("queries", q.Name, nil, "", "")
		}
		for i := range q.Values {
			v := &q.Values[i]
			add("queries", q.Name, &v.Value, "", strings.TrimSpace(labelText(v.Labels)+q.Method.note(r)))
			rows[len(rows)-1].history = customKey(q.Name, v.Labels)
		}
		if q.More > 0 {
			rows = append(rows, row{section: "queries", name: q.Name, value: fmt.Sprintf("and %d more", q.More)})
		}
	}
	return rows
}

// note says where a number came from, if that is not what the field is called after.
func (m *Metric) note(r *Results) string {
	if m.Value == nil {
		return ""
	}
	for _, s := range fields {
		if s.field == m.Field && m.Source != "" && m.Source != s.sound[0].names()[0] {
			return "from " + m.Source + m.Method.note(r)
		}
	}
	return strings.TrimSpace(m.Method.note(r))
}

// note says of a number that it is not of the latest moment, unless none is.
func (m Method) note(r *Results) string {
	if m != OverWindow || r.Window.Chosen {
		return ""
	}
	return " over " + spoken(r.Window.End.Sub(r.Window.Start))
}

// printer writes results.
type printer struct {
	w                 bytes.Buffer
	look              Look
	tight             bool // no empty lines
	name, value, bars int  // widths
}

// minBars is how many bars there are at least, however narrow the screen.
const minBars = 8

func (p *printer) title(style, text string) {
	if !p.tight {
		p.w.WriteByte('\n')
	}
	fmt.Fprintf(&p.w, "%s\n", p.styled(style, text))
}

func (p *printer) styled(style, text string) string {
	if !p.look.Color {
		return text
	}
	return style + text + plain
}

func (p *printer) head(r *Results) {
	const stamp = "2006-01-02 15:04:05Z"
	when := r.Time.UTC().Format(stamp) + ", range " + r.Range
	if r.Window.Chosen {
		when = "from " + r.Window.Start.UTC().Format(stamp) + " to " + r.Window.End.UTC().Format(stamp)
	}
	if r.Compat != "" {
		when += ", compat " + string(r.Compat)
	}
	fmt.Fprintf(&p.w, "%s  %s\n", p.styled(bold, terminal.Line(r.PrometheusURL)), when)
}

func (p *printer) row(row row) {
	line := fmt.Sprintf("  %-*s  %*s", p.name, terminal.Line(row.name), p.value, row.value)
	if row.absent {
		line = p.styled(dim, line)
	}
	if p.look.History != nil && row.history != "" {
		// Bars have one rune each; %-*s counts them so.
		line += fmt.Sprintf("  %-*s", p.bars, p.look.History.line(row.history, p.bars))
	}
	if row.note != "" {
		line += "  " + p.styled(dim, terminal.Line(row.note))
	}
	p.w.WriteString(strings.TrimRight(line, " ") + "\n")
}

// missing lists the fields without a number and the series that they lack, by reason.
func (p *printer) missing(r *Results) {
	type gap struct{ field, series string }
	var order []string
	gaps := make(map[string][]gap)
	width := 0
	add := func(field, series, reason string) {
		if reason == "" {
			return
		}
		if gaps[reason] == nil {
			order = append(order, reason)
		}
		gaps[reason] = append(gaps[reason], gap{field, series})
		width = max(width, len(field))
	}
	if r.Core.Effective() == nil {
		add(nameKVE, "", r.Core.Reason)
	}
	for _, m := range r.Metrics {
		if m.Value == nil {
			add(string(m.Field), m.Missing, m.Reason)
		}
	}
	if len(order) == 0 {
		return
	}
	p.title(bold, "missing")
	for _, reason := range order {
		for _, g := range gaps[reason] {
			p.w.WriteString(strings.TrimRight(fmt.Sprintf("  %-*s  %s", width, g.field, g.series), " ") + "\n")
		}
		fmt.Fprintf(&p.w, "    %s\n", p.styled(bold, "-> "+terminal.Line(reason)))
	}
}

func (p *printer) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	style := bold
	if title == "errors" {
		style = bold + red
	}
	p.title(style, title)
	for _, line := range lines {
		fmt.Fprintf(&p.w, "  %s\n", terminal.Line(line))
	}
}

func (r *Results) down() []string {
	if r.Health == nil {
		return nil
	}
	var out []string
	for _, t := range r.Health.Down {
		out = append(out, t.Job+" "+t.Instance)
	}
	return out
}

// collapse puts errors with the same cause into one line.
func collapse(errs []string) []string {
	const prefix = "Failed to collect "
	var order []string
	who := make(map[string][]string)
	for _, e := range errs {
		rest, isField := strings.CutPrefix(e, prefix)
		field, cause, ok := strings.Cut(rest, ": ")
		if !isField || !ok {
			field, cause = "", e
		}
		if who[cause] == nil {
			order = append(order, cause)
		}
		who[cause] = append(who[cause], field)
	}
	out := make([]string, 0, len(order))
	for _, cause := range order {
		switch names := who[cause]; {
		case names[0] == "":
			out = append(out, cause)
		case len(names) <= 3:
			out = append(out, prefix+strings.Join(names, ", ")+": "+cause)
		default:
			out = append(out, fmt.Sprintf("%s%s and %d more: %s", prefix, names[0], len(names)-1, cause))
		}
	}
	return out
}

func withUnit(v *float64, unit string) string {
	if v == nil {
		return "-"
	}
	text := formatNumber(*v)
	if unit != "" {
		text += " " + unit
	}
	return text
}

// formatNumber writes a number with four digits that count, and all of those before the
// point.
func formatNumber(v float64) string {
	size := math.Abs(v)
	switch {
	case v == 0 || !isFinite(v):
		return strconv.FormatFloat(v, 'g', -1, 64)
	case size >= 1e15 || size < 1e-6:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	decimals := max(0, 3-int(math.Floor(math.Log10(size))))
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func labelText(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name == "__name__" {
			continue
		}
		out = append(out, name+"="+strconv.Quote(labels[name]))
	}
	if out == nil {
		return ""
	}
	return "{" + strings.Join(out, ",") + "}"
}

func customKey(name string, labels map[string]string) string { return name + labelText(labels) }
