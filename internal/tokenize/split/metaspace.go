package split

import "bytes"

// scheme says which pieces a Metaspace step puts its replacement in front of.
type scheme uint8

const (
	always scheme = iota
	never
	firstOnly
)

// schemes has the names that files use.
var schemes = map[string]scheme{"always": always, "never": never, "first": firstOnly}

// metaspace writes a visible character for every space. The cut before that
// character is a step of its own.
type metaspace struct {
	replacement []byte
	scheme      scheme
}

func (m *metaspace) run(p *Pieces, base, from int, first bool) {
	p.rewrite(base, from, first, func(dst, piece []byte, zero bool) []byte {
		if m.scheme == always || m.scheme == firstOnly && zero {
			if piece[0] != ' ' && !bytes.HasPrefix(piece, m.replacement) {
				dst = append(dst, m.replacement...)
			}
		}
		for {
			i := bytes.IndexByte(piece, ' ')
			if i < 0 {
				return append(dst, piece...)
			}
			dst = append(dst, piece[:i]...)
			dst = append(dst, m.replacement...)
			piece = piece[i+1:]
		}
	})
}
