package onig

// pageShift makes pages of as many positions that they are worth their slice header
// and not much of one is wasted on a short text.
const pageShift = 8

// memo holds some bits for every position of a text, of which those before a moving
// start are forgotten. The zero value with a stride is empty.
type memo struct {
	stride int // bytes per position
	base   int // index of pages[0], in pages from the beginning of the text
	pages  [][]byte
	free   [][]byte
}

// page returns the page of a position, which must not be before the start, and makes
// it if need be.
func (m *memo) page(pos int) []byte {
	i := pos>>pageShift - m.base
	for i >= len(m.pages) {
		m.pages = append(m.pages, nil)
	}
	p := m.pages[i]
	if p == nil {
		if n := len(m.free); n > 0 {
			p = m.free[n-1]
			m.free = m.free[:n-1]
			clear(p)
		} else {
			p = make([]byte, m.stride<<pageShift)
		}
		m.pages[i] = p
	}
	return p
}

func (m *memo) at(pos, bit int) (b *byte, mask byte) {
	p := m.page(pos)
	return &p[pos&(1<<pageShift-1)*m.stride+bit>>3], 1 << (bit & 7)
}

// has returns a bit.
func (m *memo) has(pos, bit int) bool {
	b, mask := m.at(pos, bit)
	return *b&mask != 0
}

// set sets a bit and tells whether it was set.
func (m *memo) set(pos, bit int) bool {
	b, mask := m.at(pos, bit)
	was := *b&mask != 0
	*b |= mask
	return was
}

// clear forgets what is known of a position.
func (m *memo) clear(pos int) {
	if i := pos>>pageShift - m.base; i < 0 || i >= len(m.pages) || m.pages[i] == nil {
		return
	}
	p := m.page(pos)
	at := pos & (1<<pageShift - 1) * m.stride
	clear(p[at : at+m.stride])
}

// start forgets what is known before a position, and everything if that is before
// the last start.
func (m *memo) start(pos int) {
	i := pos >> pageShift
	if i == m.base {
		return
	}
	if i < m.base {
		m.reset(pos)
		return
	}
	n := min(i-m.base, len(m.pages))
	for j, p := range m.pages[:n] {
		if p != nil {
			m.free = append(m.free, p)
		}
		m.pages[j] = nil
	}
	m.pages = append(m.pages[:0], m.pages[n:]...)
	m.base = i
}

// reset forgets everything and starts at a position. It keeps a little memory.
func (m *memo) reset(pos int) {
	const keep = 64
	for j, p := range m.pages {
		if p != nil && len(m.free) < keep {
			m.free = append(m.free, p)
		}
		m.pages[j] = nil
	}
	m.pages = m.pages[:0]
	if len(m.free) > keep {
		clear(m.free[keep:])
		m.free = m.free[:keep]
	}
	m.base = pos >> pageShift
}
