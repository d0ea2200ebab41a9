package simengine

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// npyFile returns the NPY form of version 1 with the header given.
func npyFile(header string, data []byte) []byte {
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return append(append(out, header...), data...)
}

// npyFloats returns a vector of 8-byte floats.
func npyFloats(values ...float64) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	return npyFile(fmt.Sprintf("{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }\n", len(values)), data)
}

// zipped is a file of an archive.
type zipped struct {
	name string
	data []byte
}

// smallArrays are the files of a table.
func smallArrays() []zipped {
	return []zipped{
		{"prefill_isl.npy", npyFloats(1, 2)},
		{"prefill_ttft_ms.npy", npyFloats(10, 20)},
		{"decode_active_kv_tokens.npy", npyFloats(1, 2)},
		{"decode_context_length.npy", npyFloats(1, 2)},
		{"decode_itl.npy", npyFloats(1, 2, 3, 4)},
	}
}

// zeroChecksum leaves out the checksum of a file, so that it is not checked.
func zeroChecksum(h *zip.FileHeader) { h.CRC32 = 0 }

// writeNPZ returns an archive. Files are stored as they are if a function changes
// their headers.
func writeNPZ(tb testing.TB, files []zipped, change func(*zip.FileHeader)) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		create := w.CreateHeader
		if change != nil {
			size := uint64(len(f.data))
			h.Method, h.CompressedSize64, h.UncompressedSize64 = zip.Store, size, size
			change(h)
			create = w.CreateRaw
		}
		to, err := create(h)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := to.Write(f.data); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func TestParseNPZ(t *testing.T) {
	want := &Table{
		promptTokens: axis{1, 2}, prefill: []float64{10, 20},
		kvTokens: axis{1, 2}, meanContext: axis{1, 2}, decode: []float64{1, 2, 3, 4},
	}
	other := append(smallArrays(), zipped{"metadata.npy", []byte("not an array")}, zipped{"README", nil})
	for name, data := range map[string][]byte{
		"deflated": writeNPZ(t, smallArrays(), nil),
		"stored":   writeNPZ(t, smallArrays(), zeroChecksum),
		"others":   writeNPZ(t, other, nil),
	} {
		got, err := ParseTable(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Table{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNPZErrors(t *testing.T) {
	replaced := func(file []byte) []zipped {
		files := smallArrays()
		files[4].data = file
		return files
	}
	stored := writeNPZ(t, smallArrays(), zeroChecksum)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":     {writeNPZ(t, nil, nil), "prefill_isl, prefill_ttft_ms, decode_active_kv_tokens, decode_context_length, decode_itl: expected, not found"},
		"missing":   {writeNPZ(t, smallArrays()[1:], nil), "prefill_isl: expected, not found"},
		"twice":     {writeNPZ(t, append(smallArrays(), smallArrays()[0]), nil), "prefill_isl: expected once, got it again"},
		"cut off":   {stored[:len(stored)-30], "NPZ: zip: not a valid zip file"},
		"only PK":   {[]byte("PK"), "NPZ: zip: not a valid zip file"},
		"NaN":       {writeNPZ(t, replaced(npyFloats(1, math.NaN(), 3, 4)), nil), "decode_itl[1]: expected milliseconds from 0 to 1000000000, got NaN"},
		"infinite":  {writeNPZ(t, replaced(npyFloats(1, 2, math.Inf(1), 4)), nil), "decode_itl[2]: expected milliseconds from 0 to 1000000000, got +Inf"},
		"short":     {writeNPZ(t, replaced(npyFloats(1, 2, 3)), nil), "decode_itl: expected 2×2 values, decode_active_kv_tokens by decode_context_length, got 3"},
		"not NPY":   {writeNPZ(t, replaced([]byte("hello")), nil), "decode_itl: expected a file in NumPy's NPY format"},
		"too large": {writeNPZ(t, replaced(make([]byte, maxNPY+1)), nil), "decode_itl: expected at most 2162688 bytes, got 2162689"},
		"larger than stated": {
			writeNPZ(t, smallArrays(), func(h *zip.FileHeader) { h.UncompressedSize64 -= 8 }),
			"prefill_isl: zip: not a valid zip file",
		},
		"checksum": {
			writeNPZ(t, smallArrays(), func(h *zip.FileHeader) { h.CRC32 = 1 }),
			"prefill_isl: zip: checksum error",
		},
		"method": {
			writeNPZ(t, smallArrays(), func(h *zip.FileHeader) { h.Method = 99 }),
			"prefill_isl: zip: unsupported compression algorithm",
		},
	} {
		if _, err := ParseTable(c.data); err == nil || err.Error() != "simengine: table: "+c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

func TestParseNPY(t *testing.T) {
	eight := bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x40}, 2) // twice 2.0, or 1<<62
	long := append([]byte("\x93NUMPY\x03\x00"), 70, 0, 0, 0)
	long = append(long, fmt.Sprintf("%-69s\n", "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }")...)
	for _, c := range []struct {
		name   string
		file   []byte
		shape  []int
		values []float64
	}{
		{"floats", npyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }   \n", eight), []int{2}, []float64{2, 2}},
		{"integers", npyFile("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }", eight), []int{2}, []float64{1 << 62, 1 << 62}},
		{"short floats", npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", eight), []int{2, 2}, []float64{0, 2, 0, 2}},
		{"short integers", npyFile("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }", []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), []int{2, 1}, []float64{1, -1}},
		{"other order and quotes", npyFile(`{"shape":(1,2),"fortran_order":False,"descr":"<f8"}`, eight), []int{1, 2}, []float64{2, 2}},
		{"no values", npyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", nil), []int{0}, []float64{}},
		{"long header", append(long, eight...), []int{2}, []float64{2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseNPY("x", c.file)
			if err != nil {
				t.Fatal(err)
			}
			want := &array{name: "x", shape: c.shape, values: c.values}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(array{})); diff != "" {
				t.Errorf("array (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNPYErrors(t *testing.T) {
	const magic = "\x93NUMPY"
	header := func(h string) string { return string(npyFile(h, make([]byte, 16))) }
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", "expected a file in NumPy's NPY format"},
		{"magic only", magic, "expected a file in NumPy's NPY format"},
		{"version 0", magic + "\x00\x00\x00\x00", "expected version 1, 2 or 3 of the NPY format, got 0"},
		{"version 4", magic + "\x04\x00", "expected version 1, 2 or 3 of the NPY format, got 4"},
		{"no length", magic + "\x01\x00\x05", "NPY header: unexpected EOF"},
		{"no long length", magic + "\x02\x00\x05\x00\x00", "NPY header: unexpected EOF"},
		{"no header", magic + "\x01\x00\x05\x00{", "NPY header: expected 5 bytes, got 1"},
		{"huge header", magic + "\x02\x00\xff\xff\xff\xff{", "NPY header: expected 4294967295 bytes, got 1"},
		{"no dictionary", header("descr"), `NPY header: expected { before "descr"`},
		{"open dictionary", header("{'descr': '<f8', "), `NPY header: expected a string before " "`},
		{"open string", header("{'descr"), `NPY header: expected the end of a string before "descr"`},
		{"no colon", header("{'descr' '<f8'}"), `NPY header: expected : before " '<f8'}"`},
		{"no comma", header("{'descr': '<f8' 'shape': (2,)}"), `NPY header: expected } before " 'shape': (2,)}"`},
		{"nothing in it", header("{}"), `NPY header: expected descr, fortran_order and shape before ""`},
		{"no shape", header("{'descr': '<f8', 'fortran_order': False}"), `NPY header: expected descr, fortran_order and shape before ""`},
		{"shape twice", header("{'shape': (2,), 'shape': (3,), 'descr': '<f8', }"), `NPY header: expected each member once before " (3,), 'descr': '<f8', }"`},
		{"unknown member", header("{'shape': (2,), 'x': 1}"), `NPY header: expected descr, fortran_order or shape, got "x", before " 1}"`},
		{"something after it", header("{'descr': '<f8', 'fortran_order': False, 'shape': (2,)} x"), `NPY header: expected nothing after the dictionary before " x"`},
		{"not a boolean", header("{'fortran_order': 0}"), `NPY header: expected False before " 0}"`},
		{"shape is no tuple", header("{'shape': 2}"), `NPY header: expected ( before " 2}"`},
		{"negative shape", header("{'shape': (-2,)}"), `NPY header: expected a number before "-2,)}"`},
		{"shape too large for an integer", header("{'shape': (99999999999999999999,)}"), `NPY header: expected a number before "99999999999999999999,)}"`},
		{"shape cut off", header("{'shape': (2"), `NPY header: expected a number before "2"`},
		{"shape without commas", header("{'shape': (2 3)}"), `NPY header: expected ) before " 3)}"`},
		{"structure", header("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}"), `NPY header: expected a string before " [('a', '<f8')], 'fortran_order'"`},
		{"big endian", header("{'descr': '>f8', 'fortran_order': False, 'shape': (2,)}"), `expected type <f8, <f4, <i8 or <i4, got ">f8"`},
		{"text", header("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}"), `expected type <f8, <f4, <i8 or <i4, got "<U4"`},
		{"columns", header("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2)}"), "expected C order, got Fortran order"},
		{"scalar", header("{'descr': '<f8', 'fortran_order': False, 'shape': ()}"), "expected 1 or 2 dimensions, got 0"},
		{"cube", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 2)}"), "expected 1 or 2 dimensions, got 3"},
		{"huge", header("{'descr': '<f8', 'fortran_order': False, 'shape': (262145,)}"), "expected at most 262144 values, got shape [262145]"},
		{"huge product", header("{'descr': '<f8', 'fortran_order': False, 'shape': (1024, 512)}"), "expected at most 262144 values, got shape [1024 512]"},
		{"product beyond integers", header("{'descr': '<f8', 'fortran_order': False, 'shape': (262144, 9223372036854775807)}"), "expected at most 262144 values, got shape [262144 9223372036854775807]"},
		{"nothing times much", header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807)}"), "expected at most 262144 values, got shape [0 9223372036854775807]"},
		{"few values", header("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}"), "expected 24 bytes of values, got 16"},
		{"many values", header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), "expected 12 bytes of values, got 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseNPY("x", []byte(c.file))
			if err == nil || err.Error() != c.want {
				t.Errorf("array %+v, error %v, want %s", got, err, c.want)
			}
		})
	}
}

// FuzzNPY checks that any file gives an error or as many values as its shape says.
func FuzzNPY(f *testing.F) {
	for _, z := range smallArrays() {
		f.Add(z.data)
	}
	f.Add(npyFile(`{"shape":(1, 2),"fortran_order":False,"descr":"<i4"}`, make([]byte, 8)))
	f.Add([]byte("\x93NUMPY\x02\x00\x02\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := parseNPY("x", file)
		if err != nil {
			return
		}
		n := 1
		for _, d := range a.shape {
			n *= d
		}
		if n != len(a.values) {
			t.Errorf("%d values with shape %v", len(a.values), a.shape)
		}
	})
}
