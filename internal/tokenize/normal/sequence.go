package normal

import (
	"sync"
	"unsafe"
)

// sequence applies its steps one after the other.
type sequence []Normalizer

func (s sequence) Normalize(dst, src []byte) []byte {
	// The text moves back and forth between dst and a buffer of ours.
	var scratch *[]byte
	text, free, moves := src, dst, 0
	for _, step := range s {
		if moves == 1 && scratch == nil {
			scratch = scratchPool.Get().(*[]byte)
			free = *scratch
		}
		next := step.Normalize(free, text)
		if same(next, text) {
			continue
		}
		if moves > 0 {
			free = text
		}
		text = next
		moves++
	}
	if scratch == nil {
		return text
	}
	if moves%2 == 0 {
		free, text = text, append(free[:0], text...)
	}
	if cap(free) <= maxPooled {
		*scratch = free
		scratchPool.Put(scratch)
	}
	return text
}

// same reports whether two texts are one piece of memory, as opposed to equal.
// No text is the same as no text.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || unsafe.SliceData(a) == unsafe.SliceData(b))
}

// maxPooled is the largest buffer that is kept for later, in bytes.
const maxPooled = 1 << 20

var scratchPool = sync.Pool{New: func() any { return new([]byte) }}
