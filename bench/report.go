package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one thing that has a target.
type row struct {
	what             string
	baseline, stator string // the figures, empty where there is none
	ratio, spread    string // stator over baseline, and its range over the rounds
	target           string
	ok               bool
}

// detail is one line of what is printed for information.
type detail struct{ what, who, cpu, time, reads string }

// report collects results. The zero value is empty.
type report struct {
	rows    []row
	details []detail
	tables  [][][]string // of cells, each with its head
	notes   []string
}

// ratio adds a row that is decided by the median of per-round ratios.
func (r *report) ratio(what, baseline, stator string, ratios []float64, limit float64) {
	r.rows = append(r.rows, row{
		what:     what,
		baseline: baseline,
		stator:   stator,
		ratio:    fmt.Sprintf("%.2f", median(ratios)),
		spread:   fmt.Sprintf("%.2f–%.2f", slices.Min(ratios), slices.Max(ratios)),
		target:   fmt.Sprintf("≤ %.1f×", limit),
		ok:       median(ratios) <= limit,
	})
}

// below adds a row that is decided by a figure itself. baseline may be 0 where
// there is none.
func (r *report) below(what string, baseline, value, limit float64, unit string) {
	w := row{
		what:   what,
		stator: fmt.Sprintf("%.3g %s", value, unit),
		target: fmt.Sprintf("< %g %s", limit, unit),
		ok:     value < limit,
	}
	if baseline > 0 {
		w.baseline = fmt.Sprintf("%.3g %s", baseline, unit)
		w.ratio = fmt.Sprintf("%.2f", value/baseline)
	}
	r.rows = append(r.rows, w)
}

// compared adds the row of a load that was measured against a baseline, and the
// details of everything measured with it. The baseline is the first process,
// stator the second.
func (r *report) compared(l *load, ps []*process, rounds [][]round, limit float64) {
	cpu := func(r round) time.Duration { return r.cpu }
	r.ratio("CPU per "+l.name,
		micros(medianOf(rounds[0], cpu)), micros(medianOf(rounds[1], cpu)), ratios(rounds[1], rounds[0]), limit)
	r.details = append(r.details, processDetails(l, ps, rounds)...)
}

// processDetails returns what each process showed under a load.
func processDetails(l *load, ps []*process, rounds [][]round) []detail {
	var out []detail
	for i, p := range ps {
		out = append(out, detail{
			what:  l.name,
			who:   p.name,
			cpu:   micros(medianOf(rounds[i], func(r round) time.Duration { return r.cpu })),
			time:  micros(medianOf(rounds[i], func(r round) time.Duration { return r.took })),
			reads: fmt.Sprintf("%.2f", medianOf(rounds[i], func(r round) float64 { return r.reads })),
		})
	}
	return out
}

// direct adds what the load costs without a proxy.
func (r *report) direct(l *load, d round) {
	r.details = append(r.details, detail{
		what: l.name, who: "direct", cpu: "–", time: micros(d.took), reads: fmt.Sprintf("%.2f", d.reads),
	})
}

// note adds a line to be printed at the end, once.
func (r *report) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(r.notes, n) {
		r.notes = append(r.notes, n)
	}
}

// over reports whether a target was missed.
func (r *report) over() bool {
	return slices.ContainsFunc(r.rows, func(w row) bool { return !w.ok })
}

// write prints everything: what has a target first.
func (r *report) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tbaseline\tstator\tratio\trange\ttarget\t")
	for _, row := range r.rows {
		verdict := "ok"
		if !row.ok {
			verdict = "over"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			row.what, row.baseline, row.stator, row.ratio, row.spread, row.target, verdict)
	}
	if len(r.details) > 0 {
		fmt.Fprintln(t)
		fmt.Fprintln(t, "for information\tthrough\tCPU\tmedian time\tclient reads")
		for _, d := range r.details {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.what, d.who, d.cpu, d.time, d.reads)
		}
	}
	for _, table := range r.tables {
		fmt.Fprintln(t)
		for _, cells := range table {
			fmt.Fprintln(t, strings.Join(cells, "\t"))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range r.notes {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return err
		}
	}
	return nil
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}
