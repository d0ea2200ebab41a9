package trace

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is what is said about one trace. Its JSON form is a contract.
type Report struct {
	File   string `json:"file"`
	Format string `json:"format"`
	Stats
	// Ideal holds [IdealHits] for some numbers of workers.
	Ideal []IdealRow `json:"ideal_prefix_hits,omitempty"`
	// LRU holds [LRUHits] for some capacities.
	LRU []LRURow `json:"lru_hits,omitempty"`
}

// IdealRow is [IdealHits] of a number of workers.
type IdealRow struct {
	Workers int `json:"workers"`
	Hits
}

// LRURow is [LRUHits] of a capacity. Its FullBlocks are the hits of a second cache
// of that capacity: where partial blocks take no room, more full ones stay, so
// that they can be more than Blocks.
type LRURow struct {
	Capacity int `json:"capacity_blocks"`
	Hits
}

// NewReport describes a trace, with the hits of caches for each number of workers
// and for each capacity.
func NewReport(file string, t *Trace, workers, capacities []int) *Report {
	r := &Report{File: file, Format: t.Format, Stats: Stat(t)}
	for _, n := range workers {
		r.Ideal = append(r.Ideal, IdealRow{n, IdealHits(t, n)})
	}
	for _, c := range capacities {
		r.LRU = append(r.LRU, LRURow{c, LRUHits(t, c)})
	}
	return r
}

// String returns the report as tables for a person to read.
func (r *Report) String() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s (%s, blocks of %d tokens)\n", r.File, r.Format, r.BlockSize)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("requests", "%s in %s s, %.4f per s%s", group(r.Requests), decimal(r.SpanSeconds, 3), r.RequestsPerSecond, r.skipped())
	row("timestamps", "%s distinct, at most %s at one%s", group(r.Timestamps), counted(r.MaxSameTimestamp, "request"), r.gaps())
	if r.Clamped > 0 {
		row("clamped", "%s longer than their ids say", counted(r.Clamped, "prompt"))
	}
	if r.Unhashed > 0 {
		row("unknown", "%s without hashes, taken to share nothing", counted(r.Unhashed, "prompt"))
	}
	if r.Sessions > 0 {
		row("sessions", "%s, in which %s came after an answer", group(r.Sessions), counted(r.Follows, "request"))
	}
	row("blocks", "%s total, %s distinct, %s used once, %s full", group(r.Blocks), group(r.DistinctBlocks), group(r.OnceBlocks), group(r.FullBlocks))
	row("first block", "the most common one begins %s (%.1f %%)", counted(r.FirstBlockRequests, "request"), 100*ratio(r.FirstBlockRequests, r.Requests))
	w.Flush()

	out.WriteByte('\n')
	table(&out, "tokens\tsum\tmean\tmin\tp50\tp75\tp90\tp95\tp99\tmax", func(row func(...string)) {
		for _, l := range []struct {
			name string
			Lengths
		}{{"input", r.Input}, {"output", r.Output}} {
			row(l.name, group(int(l.Sum)), decimal(l.Mean, 2), group(l.Min), group(l.P50), group(l.P75), group(l.P90), group(l.P95), group(l.P99), group(l.Max))
		}
	})
	const columns = "\thit blocks\tblock ratio\ttoken ratio\tfull only"
	cells := func(n int, h *Hits) []string {
		return []string{group(n), group(h.Blocks), decimal(h.BlockRatio, 6), decimal(h.TokenRatio, 6), group(h.FullBlocks)}
	}
	if len(r.Ideal) > 0 {
		out.WriteString("\nprefix hits with unlimited caches, requests to workers in turn\n")
		table(&out, "workers"+columns, func(row func(...string)) {
			for i := range r.Ideal {
				row(cells(r.Ideal[i].Workers, &r.Ideal[i].Hits)...)
			}
		})
	}
	if len(r.LRU) > 0 {
		out.WriteString("\nprefix hits with one LRU cache for all requests\n")
		table(&out, "capacity"+columns, func(row func(...string)) {
			for i := range r.LRU {
				row(cells(r.LRU[i].Capacity, &r.LRU[i].Hits)...)
			}
		})
		out.WriteString("full only: in another such cache, where partial blocks take no room\n")
	}
	return out.String()
}

func (r *Report) skipped() string {
	if r.Skipped == 0 {
		return ""
	}
	return "; " + r.SkippedFor.String()
}

// gaps says how far timestamps are apart, and that they are ticks of a coarse
// clock if that is plain.
func (r *Report) gaps() string {
	if r.Timestamps < 2 {
		return ""
	}
	g := r.Gaps
	text := fmt.Sprintf(", %s to %s ms apart (median %s)", millisText(g.MinMS), millisText(g.MaxMS), millisText(g.MedianMS))
	if r.quantised() {
		text += ": ticks of a coarse clock"
	}
	return text
}

// quantised reports whether arrivals are plainly rounded: several requests share
// each timestamp, and these are evenly spaced.
func (r *Report) quantised() bool {
	return r.Requests >= 2*r.Timestamps && r.Gaps.MaxMS-r.Gaps.MinMS <= r.Gaps.MedianMS/10
}

func millisText(ms float64) string {
	if ms == float64(int(ms)) {
		return group(int(ms))
	}
	return decimal(ms, 3)
}

// table writes columns that are aligned on the right.
func table(out *bytes.Buffer, header string, rows func(row func(cells ...string))) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintf(w, "%s\t\n", strings.Join(cells, "\t")) }
	row(header)
	rows(row)
	w.Flush()
}

// group writes a number with separators of thousands.
func group(n int) string { return grouped(strconv.Itoa(n)) }

// counted writes a number of things.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return group(n) + " " + thing
}

// decimal writes a number with a fixed number of decimals.
func decimal(f float64, decimals int) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(f, 'f', decimals, 64), ".")
	return grouped(whole) + "." + fraction
}

func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
