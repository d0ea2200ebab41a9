package sched

// heaped is an element of a heap that knows its place there, so that it can be
// taken out from the middle.
type heaped[T any] interface {
	// before reports whether it leaves the heap earlier than the other.
	before(T) bool
	// moved tells it its index.
	moved(int)
}

func heapPush[T heaped[T]](h []T, x T) []T {
	h = append(h, x)
	heapUp(h, len(h)-1)
	return h
}

// heapRemove takes the element at i out. It must stand where it belongs or be the
// only one that does not.
func heapRemove[T heaped[T]](h []T, i int) []T {
	last := len(h) - 1
	x := h[last]
	var zero T
	h[last] = zero
	h = h[:last]
	if i < last {
		h[i] = x
		heapFix(h, i)
	}
	return h
}

// heapFix puts the element at i, the only one that may have changed, where it
// belongs.
func heapFix[T heaped[T]](h []T, i int) {
	if heapDown(h, i) == i {
		heapUp(h, i)
	}
}

func heapUp[T heaped[T]](h []T, i int) {
	x := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].moved(i)
		i = parent
	}
	h[i] = x
	x.moved(i)
}

// heapDown moves the element at i away from the top as far as it must go, and
// returns its index.
func heapDown[T heaped[T]](h []T, i int) int {
	x := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		h[i].moved(i)
		i = child
	}
	h[i] = x
	x.moved(i)
	return i
}
