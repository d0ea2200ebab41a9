package learn

import (
	"math"
	"slices"
	"time"
)

// windowSize is how many observations a window keeps.
const windowSize = 32

// window keeps the latest observations of one kind.
type window struct {
	seen   uint32 // up to windowSize
	next   uint32 // where the next one goes
	values [windowSize]uint32
}

func (w *window) add(v uint32) {
	w.values[w.next] = v
	w.next = (w.next + 1) % windowSize
	w.seen = min(w.seen+1, windowSize)
}

// len is how many observations there are.
func (w *window) len() int { return int(w.seen) }

// quantile returns the value below which the share q of the observations lies,
// interpolated between the two next to it. There is at least one.
func (w *window) quantile(q float64) float64 {
	sorted := w.values
	all := sorted[:w.seen]
	slices.Sort(all)
	at := q * float64(len(all)-1)
	low := int(at)
	high := min(low+1, len(all)-1)
	return float64(all[low]) + (at-float64(low))*(float64(all[high])-float64(all[low]))
}

// lengthsSize is how many conversations a family remembers the length of.
const lengthsSize = 128

// lengths keeps how many calls the latest conversations had.
type lengths struct {
	seen   uint32
	next   uint32
	values [lengthsSize]uint32
}

func (l *lengths) add(v uint32) {
	l.values[l.next] = v
	l.next = (l.next + 1) % lengthsSize
	l.seen = min(l.seen+1, lengthsSize)
}

// len is how many conversations there are.
func (l *lengths) len() int { return int(l.seen) }

// beyond returns how many calls followed the nth on average, in the conversations that
// had it, and how many of those there are.
func (l *lengths) beyond(n int) (mean float64, samples int) {
	var sum uint64
	for _, v := range l.values[:l.seen] {
		if int(v) >= n {
			samples++
			sum += uint64(int(v) - n)
		}
	}
	if samples == 0 {
		return 0, 0
	}
	return float64(sum) / float64(samples), samples
}

// clamped returns n as a window has it.
func clamped(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }

// millis returns a span in whole milliseconds. One that is negative, because a clock was
// set back, is none.
func millis(d time.Duration) uint32 {
	return uint32(min(max(d, 0).Milliseconds(), math.MaxInt32))
}
