package llamatest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The types of values and of tensors in a GGUF file, as many as are written here.
const (
	ggufUint32  uint32 = 4
	ggufInt32   uint32 = 5
	ggufFloat32 uint32 = 6
	ggufBool    uint32 = 7
	ggufString  uint32 = 8
	ggufArray   uint32 = 9

	tensorF32 uint32 = 0
	tensorF16 uint32 = 1
)

// ggufAlign is what the data of each tensor is aligned to, counted from where the
// data begins, which is aligned to it too.
const ggufAlign = 32

// ggufFile is what a GGUF file of version 3 holds.
type ggufFile struct {
	meta    []ggufMeta
	tensors []ggufTensor
}

// ggufMeta is a key and its value: uint32, float32, bool, string, []string or []int32.
type ggufMeta struct {
	key   string
	value any
}

// ggufTensor is a tensor: its shape, the dimension first whose elements are beside each
// other, and how its data is written.
type ggufTensor struct {
	name  string
	shape []int
	kind  uint32
	write func(w io.Writer, n int) error // writes n elements
}

func (t *ggufTensor) elements() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

func (t *ggufTensor) bytes() int {
	if t.kind == tensorF16 {
		return 2 * t.elements()
	}
	return 4 * t.elements()
}

// writeTo writes the file.
func (f *ggufFile) writeTo(dst io.Writer) error {
	w := &ggufWriter{w: bufio.NewWriterSize(dst, 1<<16)}
	w.bytes([]byte("GGUF"))
	w.uint32(3) // the version of the format
	w.uint64(uint64(len(f.tensors)))
	w.uint64(uint64(len(f.meta)))
	for _, m := range f.meta {
		w.string(m.key)
		w.value(m)
	}
	offset := 0
	for i := range f.tensors {
		t := &f.tensors[i]
		w.string(t.name)
		w.uint32(uint32(len(t.shape)))
		for _, d := range t.shape {
			w.uint64(uint64(d))
		}
		w.uint32(t.kind)
		w.uint64(uint64(offset))
		offset += padded(t.bytes())
	}
	w.pad()
	for i := range f.tensors {
		t := &f.tensors[i]
		start := w.n
		w.data(t)
		if got := w.n - start; w.err == nil && got != t.bytes() {
			return fmt.Errorf("tensor %s: wrote %d bytes, expected %d", t.name, got, t.bytes())
		}
		w.pad()
	}
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

func padded(n int) int { return (n + ggufAlign - 1) / ggufAlign * ggufAlign }

// ggufWriter writes little-endian values and keeps the first error.
type ggufWriter struct {
	w   *bufio.Writer
	n   int // bytes so far
	err error
}

// Write implements [io.Writer].
func (w *ggufWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.w.Write(b)
	w.n += n
	w.err = err
	return n, err
}

func (w *ggufWriter) bytes(b []byte)  { w.Write(b) }
func (w *ggufWriter) uint32(v uint32) { w.Write(binary.LittleEndian.AppendUint32(w.scratch(), v)) }
func (w *ggufWriter) uint64(v uint64) { w.Write(binary.LittleEndian.AppendUint64(w.scratch(), v)) }

// scratch is room for a few bytes in the buffer that they go to.
func (w *ggufWriter) scratch() []byte { return w.w.AvailableBuffer() }

func (w *ggufWriter) string(s string) {
	w.uint64(uint64(len(s)))
	w.bytes([]byte(s))
}

func (w *ggufWriter) pad() { w.bytes(make([]byte, padded(w.n)-w.n)) }

func (w *ggufWriter) data(t *ggufTensor) {
	if err := t.write(w, t.elements()); err != nil && w.err == nil {
		w.err = fmt.Errorf("tensor %s: %w", t.name, err)
	}
}

func (w *ggufWriter) value(m ggufMeta) {
	switch v := m.value.(type) {
	case uint32:
		w.uint32(ggufUint32)
		w.uint32(v)
	case float32:
		w.uint32(ggufFloat32)
		w.uint32(math.Float32bits(v))
	case bool:
		w.uint32(ggufBool)
		if v {
			w.bytes([]byte{1})
		} else {
			w.bytes([]byte{0})
		}
	case string:
		w.uint32(ggufString)
		w.string(v)
	case []string:
		w.uint32(ggufArray)
		w.uint32(ggufString)
		w.uint64(uint64(len(v)))
		for _, s := range v {
			w.string(s)
		}
	case []int32:
		w.uint32(ggufArray)
		w.uint32(ggufInt32)
		w.uint64(uint64(len(v)))
		for _, n := range v {
			w.uint32(uint32(n))
		}
	default:
		if w.err == nil {
			w.err = fmt.Errorf("%s: a value of type %T is not written here", m.key, m.value)
		}
	}
}
