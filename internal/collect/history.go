package collect

import (
	"math"
	"strings"
)

// History is the latest results, for lines that show how numbers went. The zero value is
// empty and keeps 32. Not safe for concurrent use.
type History struct {
	rows []map[string]float64
}

const historyLength = 32

// Add takes results up, and forgets the oldest.
func (h *History) Add(r *Results) {
	row := make(map[string]float64)
	put := func(name string, v *float64) {
		if v != nil && isFinite(*v) {
			row[name] = *v
		}
	}
	for _, m := range r.Metrics {
		put(string(m.Field), m.Value)
	}
	for _, q := range r.Custom {
		for i := range q.Values {
			put(customKey(q.Name, q.Values[i].Labels), &q.Values[i].Value)
		}
	}
	put(nameKVE, r.Core.Effective())
	put(nameScore, r.Score)
	h.rows = append(h.rows, row)
	if len(h.rows) > historyLength {
		h.rows = h.rows[1:]
	}
}

var bars = []rune("▁▂▃▄▅▆▇█")

// line draws the latest n numbers of a name, oldest first, from the smallest to the largest
// of them. Where there was none, there is a space.
func (h *History) line(name string, n int) string {
	rows := h.rows[max(0, len(h.rows)-n):]
	low, high := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		if v, ok := row[name]; ok {
			low, high = min(low, v), max(high, v)
		}
	}
	// What looks the same in figures is not drawn as a difference.
	flat := high/2-low/2 <= 0.0005*max(math.Abs(low), math.Abs(high))/2
	var out strings.Builder
	for _, row := range rows {
		v, ok := row[name]
		switch {
		case !ok:
			out.WriteByte(' ')
		case flat && v == 0:
			out.WriteRune(bars[0])
		case flat:
			out.WriteRune(bars[len(bars)/2-1])
		default:
			// Halved, so that the difference of two large numbers stays finite.
			at := (v/2 - low/2) / (high/2 - low/2) * float64(len(bars)-1)
			out.WriteRune(bars[int(math.Round(at))])
		}
	}
	return out.String()
}
