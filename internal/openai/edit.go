package openai

import (
	"io"
	"slices"
)

// Edit changes one member of a body: it sets Key to Value, or removes the key
// when Value is empty.
type Edit struct {
	Key   string
	Value []byte
}

// Pieces is a byte string in parts, so that an edit of a large body copies none
// of it.
type Pieces [][]byte

// Len returns the number of bytes in all pieces.
func (p Pieces) Len() int64 {
	var n int64
	for _, b := range p {
		n += int64(len(b))
	}
	return n
}

// Bytes returns the pieces joined into a new slice.
func (p Pieces) Bytes() []byte {
	out := make([]byte, 0, p.Len())
	for _, b := range p {
		out = append(out, b...)
	}
	return out
}

// Reader returns a reader over the pieces. It implements [io.WriterTo], and its
// Close does nothing.
func (p Pieces) Reader() io.ReadCloser { return &piecesReader{p: p} }

type piecesReader struct {
	p   Pieces
	off int // into p[0]
}

func (r *piecesReader) Read(dst []byte) (int, error) {
	n := 0
	for len(r.p) > 0 && n < len(dst) {
		c := copy(dst[n:], r.p[0][r.off:])
		n += c
		r.off += c
		if r.off == len(r.p[0]) {
			r.p, r.off = r.p[1:], 0
		}
	}
	if n == 0 && len(r.p) == 0 && len(dst) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *piecesReader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for len(r.p) > 0 {
		rest := r.p[0][r.off:]
		n, err := w.Write(rest)
		total += int64(n)
		if err == nil && n < len(rest) {
			err = io.ErrShortWrite
		}
		if err != nil {
			r.off += n
			return total, err
		}
		r.p, r.off = r.p[1:], 0
	}
	return total, nil
}

func (r *piecesReader) Close() error { return nil }

// Edit returns the object's bytes with the edits applied; what no edit names is
// byte-identical and in place. Setting a key that exists replaces its value
// where it stands (the last of duplicates; the others go), a new key is appended
// as the last member, and removing takes every duplicate. Of edits that name the
// same key the last counts. Values must be valid JSON. The pieces alias the
// object and the values.
func (o *Object) Edit(edits []Edit) Pieces {
	if len(edits) == 0 {
		return Pieces{o.raw}
	}
	actions, added := o.plan(edits)
	out := make(Pieces, 0, 2*len(edits)+2+2*len(added))
	pos := 0 // bytes of raw before pos are written or dropped
	cut := func(end, next int) {
		if end > pos {
			out = append(out, o.raw[pos:end])
		}
		pos = next
	}
	kept := 0
	for i, m := range o.members {
		switch a := actions[i]; {
		case a == keepMember:
			kept++
		case a != dropMember:
			kept++
			cut(m.ValueStart, m.ValueEnd)
			out = append(out, edits[a].Value)
		case kept > 0: // the comma before it goes, too
			cut(o.members[i-1].ValueEnd, m.ValueEnd)
		case i+1 < len(o.members): // the comma after it goes, too
			cut(m.KeyStart, o.members[i+1].KeyStart)
		default:
			cut(m.KeyStart, m.ValueEnd)
		}
	}
	if len(added) > 0 {
		at := o.close
		if kept > 0 {
			at = o.members[len(o.members)-1].ValueEnd
		}
		cut(at, at)
		for i, ed := range added {
			head := make([]byte, 0, len(ed.Key)+4)
			if kept > 0 || i > 0 {
				head = append(head, ',')
			}
			head = AppendString(head, ed.Key)
			out = append(out, append(head, ':'), ed.Value)
		}
	}
	cut(len(o.raw), len(o.raw))
	return out
}

// What becomes of a member. Otherwise it gets the value of the edit with that
// index.
const (
	keepMember = -1
	dropMember = -2
)

// plan returns what becomes of each member, and the edits that add one.
func (o *Object) plan(edits []Edit) (actions []int, added []Edit) {
	actions = make([]int, len(o.members))
	for i := range actions {
		actions[i] = keepMember
	}
	for e, ed := range edits {
		if slices.ContainsFunc(edits[e+1:], func(later Edit) bool { return later.Key == ed.Key }) {
			continue
		}
		last := -1
		for i := range o.members {
			if o.is(i, ed.Key) {
				actions[i] = dropMember
				last = i
			}
		}
		switch {
		case len(ed.Value) == 0:
		case last >= 0:
			actions[last] = e
		default:
			added = append(added, ed)
		}
	}
	return actions, added
}
