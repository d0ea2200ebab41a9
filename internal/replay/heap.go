package replay

import "time"

// event is something that happens to an engine or a request, by its index. Of two
// at one instant the one of lower order comes first.
type event struct {
	at    time.Duration
	order uint64
	index int
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// eventHeap is a binary heap, written out because it is the innermost part of the
// loop and container/heap allocates with every push.
type eventHeap []event

func (h *eventHeap) push(e event) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			break
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
	*h = s
}

func (h *eventHeap) pop() event {
	s := *h
	top := s[0]
	n := len(s) - 1
	s[0] = s[n]
	s = s[:n]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if s[c].before(s[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}
