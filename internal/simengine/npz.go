package simengine

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxNPY bounds an array in its file form; a header is at most 64 KiB.
const maxNPY = 8*maxValues + 64<<10

// parseNPZ reads the arrays of a table from a zip archive that has each in a file
// of its name with .npy at the end. Other files are left alone.
func parseNPZ(data []byte) (map[string]*array, error) {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("NPZ: %w", err)
	}
	arrays := make(map[string]*array)
	for _, f := range archive.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok || !isTableArray(name) {
			continue
		}
		if arrays[name] != nil {
			return nil, fmt.Errorf("%s: expected once, got it again", name)
		}
		file, err := readZipped(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if arrays[name], err = parseNPY(name, file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return arrays, nil
}

// readZipped returns the content of a file. The reader gives no more than the size
// that the archive states.
func readZipped(f *zip.File) ([]byte, error) {
	if f.UncompressedSize64 > maxNPY {
		return nil, fmt.Errorf("expected at most %d bytes, got %d", maxNPY, f.UncompressedSize64)
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// parseNPY reads NumPy's file form of one array: a magic string, the version of
// the format, the length of the header, the header and the values.
func parseNPY(name string, file []byte) (*array, error) {
	rest, ok := bytes.CutPrefix(file, []byte("\x93NUMPY"))
	if !ok || len(rest) < 2 {
		return nil, errors.New("expected a file in NumPy's NPY format")
	}
	version, rest := rest[0], rest[2:]
	width := 4 // of the length
	switch version {
	case 1:
		width = 2
	case 2, 3:
	default:
		return nil, fmt.Errorf("expected version 1, 2 or 3 of the NPY format, got %d", version)
	}
	var length [4]byte
	if copy(length[:width], rest) < width {
		return nil, fmt.Errorf("NPY header: %w", io.ErrUnexpectedEOF)
	}
	rest = rest[width:]
	size := int64(binary.LittleEndian.Uint32(length[:]))
	if size > int64(len(rest)) {
		return nil, fmt.Errorf("NPY header: expected %d bytes, got %d", size, len(rest))
	}
	header, err := parseHeader(string(rest[:size]))
	if err != nil {
		return nil, fmt.Errorf("NPY header: %w", err)
	}
	values, err := header.values(rest[size:])
	if err != nil {
		return nil, err
	}
	return &array{name: name, shape: header.shape, values: values}, nil
}

// npyHeader describes the values that follow it.
type npyHeader struct {
	descr   string // their type
	fortran bool   // column by column
	shape   []int
}

// values decodes the values.
func (h *npyHeader) values(data []byte) ([]float64, error) {
	if h.fortran {
		return nil, errors.New("expected C order, got Fortran order")
	}
	if n := len(h.shape); n < 1 || n > 2 {
		return nil, fmt.Errorf("expected 1 or 2 dimensions, got %d", n)
	}
	n := 1
	for _, d := range h.shape {
		if d > maxValues || n*d > maxValues {
			return nil, fmt.Errorf("expected at most %d values, got shape %v", maxValues, h.shape)
		}
		n *= d
	}
	width := 8
	var decode func([]byte) float64
	switch h.descr {
	case "<f8":
		decode = func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
	case "<i8":
		decode = func(b []byte) float64 { return float64(int64(binary.LittleEndian.Uint64(b))) }
	case "<f4":
		width = 4
		decode = func(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }
	case "<i4":
		width = 4
		decode = func(b []byte) float64 { return float64(int32(binary.LittleEndian.Uint32(b))) }
	default:
		return nil, fmt.Errorf("expected type <f8, <f4, <i8 or <i4, got %.32q", h.descr)
	}
	if len(data) != n*width {
		return nil, fmt.Errorf("expected %d bytes of values, got %d", n*width, len(data))
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = decode(data[i*width:])
	}
	return out, nil
}

// parseHeader reads a header: a Python dictionary such as
//
//	{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }
//
// with its members in any order.
func parseHeader(text string) (*npyHeader, error) {
	s := headerScanner{rest: text}
	var h npyHeader
	seen := make(map[string]bool)
	s.expect("{")
	for s.err == nil && !s.accept("}") {
		key := s.quoted()
		s.expect(":")
		switch {
		case s.err != nil:
		case seen[key]:
			s.fail("each member once")
		case key == "descr":
			h.descr = s.quoted()
		case key == "fortran_order":
			if h.fortran = s.accept("True"); !h.fortran {
				s.expect("False")
			}
		case key == "shape":
			h.shape = s.tuple()
		default:
			s.fail("descr, fortran_order or shape, got %.32q,", key)
		}
		seen[key] = true
		if !s.accept(",") {
			s.expect("}")
			break
		}
	}
	if s.err == nil && strings.TrimSpace(s.rest) != "" {
		s.fail("nothing after the dictionary")
	}
	if s.err == nil && len(seen) != 3 {
		s.fail("descr, fortran_order and shape")
	}
	return &h, s.err
}

// headerScanner reads the few forms of a Python literal that a header has. After
// an error it reads nothing.
type headerScanner struct {
	rest string
	err  error
}

// fail records what was expected at this point.
func (s *headerScanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("expected %s before %.32q", fmt.Sprintf(format, args...), s.rest)
	}
}

// accept skips a word if it comes next.
func (s *headerScanner) accept(word string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(s.rest, " \t\r\n"), word)
	if s.err != nil || !ok {
		return false
	}
	s.rest = rest
	return true
}

// expect skips a word, which must come next.
func (s *headerScanner) expect(word string) {
	if !s.accept(word) {
		s.fail("%s", word)
	}
}

// quoted reads a string. The strings of a header have no escapes.
func (s *headerScanner) quoted() string {
	quote := "'"
	if !s.accept(quote) {
		quote = `"`
		if !s.accept(quote) {
			s.fail("a string")
			return ""
		}
	}
	text, rest, ok := strings.Cut(s.rest, quote)
	if !ok {
		s.fail("the end of a string")
		return ""
	}
	s.rest = rest
	return text
}

// tuple reads a tuple of whole numbers.
func (s *headerScanner) tuple() []int {
	var out []int
	s.expect("(")
	for s.err == nil && !s.accept(")") {
		s.accept("") // skips blanks
		end := strings.IndexFunc(s.rest, func(r rune) bool { return r < '0' || r > '9' })
		n, err := strconv.Atoi(s.rest[:max(end, 0)])
		if err != nil {
			s.fail("a number")
			return nil
		}
		out = append(out, n)
		s.rest = s.rest[end:]
		if !s.accept(",") {
			s.expect(")")
			break
		}
	}
	return out
}
