package openai

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seen is an event as strings; Data is nil for an event without data.
type seen struct {
	Raw  string
	Data *string
	Name string
}

func data(s string) *string { return &s }

func see(ev Event) seen {
	s := seen{Raw: string(ev.Raw), Name: string(ev.Name)}
	if ev.Data != nil {
		s.Data = data(string(ev.Data))
	}
	return s
}

// scanAll reads r to its end.
func scanAll(t *testing.T, r io.Reader, size, max int) []seen {
	t.Helper()
	s := NewScanner(make([]byte, size), max)
	var all []seen
	for {
		err := s.Fill(r)
		for ev, ok := s.Next(); ok; ev, ok = s.Next() {
			all = append(all, see(ev))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if ev, ok := s.Last(); ok {
		all = append(all, see(ev))
	}
	if ev, ok := s.Next(); ok {
		t.Errorf("an event after the last: %q", ev.Raw)
	}
	if ev, ok := s.Last(); ok {
		t.Errorf("a second last event: %q", ev.Raw)
	}
	return all
}

var streams = []struct {
	name, in string
	want     []seen
}{
	{"nothing", "", nil},
	{"blank lines only", "\n\r\n\r\n\n", nil},
	{"one", "data: {\"a\":1}\n\n", []seen{{"data: {\"a\":1}\n\n", data(`{"a":1}`), ""}}},
	{"two", "data: a\n\ndata: b\n\n", []seen{{"data: a\n\n", data("a"), ""}, {"data: b\n\n", data("b"), ""}}},
	{"done", "data: [DONE]\n\n", []seen{{"data: [DONE]\n\n", data("[DONE]"), ""}}},
	{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []seen{{"data: a\r\n\r\n", data("a"), ""}, {"data: b\r\n\r\n", data("b"), ""}}},
	{"CR", "data: a\r\rdata: b\r\r", []seen{{"data: a\r\r", data("a"), ""}, {"data: b\n\n", data("b"), ""}}},
	{"CR and LF mixed", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\rdata: e\n\n",
		[]seen{{"data: a\r\n\n", data("a"), ""}, {"data: b\n\r\n", data("b"), ""}, {"data: c\r\r\n", data("c"), ""}, {"data: d\n\r", data("d"), ""}, {"data: e\n\n", data("e"), ""}}},
	{"no space", "data:a\n\n", []seen{{"data:a\n\n", data("a"), ""}}},
	{"two spaces", "data:  a \n\n", []seen{{"data:  a \n\n", data(" a "), ""}}},
	{"empty data", "data:\n\ndata\n\ndata: \n\n", []seen{{"data:\n\n", data(""), ""}, {"data\n\n", data(""), ""}, {"data: \n\n", data(""), ""}}},
	{"two data lines", "data: a\ndata: b\n\n", []seen{{"data: a\ndata: b\n\n", data("a\nb"), ""}}},
	{"three data lines", "data: {\ndata:\ndata: }\n\n", []seen{{"data: {\ndata:\ndata: }\n\n", data("{\n\n}"), ""}}},
	{"ping", ": ping\n\n:\n\ndata: a\n\n", []seen{{": ping\n\n", nil, ""}, {":\n\n", nil, ""}, {"data: a\n\n", data("a"), ""}}},
	{"comment before data", ": x\ndata: a\n\n", []seen{{": x\ndata: a\n\n", data("a"), ""}}},
	{"name", "event: error\ndata: a\n\n", []seen{{"event: error\ndata: a\n\n", data("a"), "error"}}},
	{"name after data, CRLF", "data: a\r\nevent:x\r\n\r\n", []seen{{"data: a\r\nevent:x\r\n\r\n", data("a"), "x"}}},
	{"annotation", "event: request_id\n: \"1\"\n\n", []seen{{"event: request_id\n: \"1\"\n\n", nil, "request_id"}}},
	{"other fields", "id: 1\nretry: 5\ndatax: b\nDATA: c\n data: d\ndata: a\n\n", []seen{{"id: 1\nretry: 5\ndatax: b\nDATA: c\n data: d\ndata: a\n\n", data("a"), ""}}},
	{"colons in data", "data: data: x\n\n", []seen{{"data: data: x\n\n", data("data: x"), ""}}},
	{"blank lines before and between", "\n\ndata: a\n\n\r\n\ndata: b\n\n", []seen{{"\n\ndata: a\n\n", data("a"), ""}, {"\r\n\ndata: b\n\n", data("b"), ""}}},
	{"no blank line at the end", "data: a\n\ndata: b\n", []seen{{"data: a\n\n", data("a"), ""}, {"data: b\n\n", data("b"), ""}}},
	{"no line end at the end", "data: a\n\ndata: b", []seen{{"data: a\n\n", data("a"), ""}, {"data: b\n\n", data("b"), ""}}},
	{"CR at the end", "data: b\r", []seen{{"data: b\n\n", data("b"), ""}}},
	{"byte order mark", "\ufeffdata: a\n\ndata: b\n\n", []seen{{"data: a\n\n", data("a"), ""}, {"data: b\n\n", data("b"), ""}}},
	{"byte order mark later", "data: a\n\n\ufeffdata: b\n\n", []seen{{"data: a\n\n", data("a"), ""}, {"\ufeffdata: b\n\n", nil, ""}}},
	{"two byte order marks", "\ufeff\ufeffdata: a\n\n", []seen{{"\ufeffdata: a\n\n", nil, ""}}},
	{"byte order mark alone", "\ufeff", nil},
	{"part of a byte order mark", "\xef\xbbdata: a\n\n", []seen{{"\xef\xbbdata: a\n\n", nil, ""}}},
	{"part of a byte order mark alone", "\xef\xbb", []seen{{"\xef\xbb\n\n", nil, ""}}},
	{"not UTF-8", "data: \xff\n\n", []seen{{"data: \xff\n\n", data("\xff"), ""}}},
	{"NUL", "data: \x00\n\n", []seen{{"data: \x00\n\n", data("\x00"), ""}}},
	{"line separators are no line breaks", "data: a\u2028b\u0085c\x0bd\n\n", []seen{{"data: a\u2028b\u0085c\x0bd\n\n", data("a\u2028b\u0085c\x0bd"), ""}}},
}

// cutReader returns what it has in two reads.
type cutReader struct{ parts []string }

func (r *cutReader) Read(b []byte) (int, error) {
	for len(r.parts) > 0 && r.parts[0] == "" {
		r.parts = r.parts[1:]
	}
	if len(r.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.parts[0])
	r.parts[0] = r.parts[0][n:]
	return n, nil
}

func TestScanner(t *testing.T) {
	for _, tc := range streams {
		t.Run(tc.name, func(t *testing.T) {
			check := func(how string, got []seen) {
				t.Helper()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
			check("whole", scanAll(t, strings.NewReader(tc.in), 4096, 4096))
			check("byte by byte", scanAll(t, iotest.OneByteReader(strings.NewReader(tc.in)), 0, 4096))
			check("error with data", scanAll(t, iotest.DataErrReader(strings.NewReader(tc.in)), 4096, 4096))
			for i := range len(tc.in) + 1 {
				check(fmt.Sprintf("cut at %d", i), scanAll(t, &cutReader{[]string{tc.in[:i], tc.in[i:]}}, 16, 4096))
			}
		})
	}
}

func TestScannerIsDone(t *testing.T) {
	for in, want := range map[string]bool{
		"data: [DONE]\n\n": true, "data:[DONE]\r\n\r\n": true, "data: [DONE] \n\n": false, "data: [done]\n\n": false,
		": [DONE]\n\n": false, "data: \"[DONE]\"\n\n": false, string(Done): true,
	} {
		s := NewScanner(nil, 4096)
		if err := s.Fill(strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if ev, ok := s.Next(); !ok || ev.IsDone() != want {
			t.Errorf("%q: ok %v, done %v", in, ok, ev.IsDone())
		}
	}
}

func TestScannerTooLarge(t *testing.T) {
	const limit = 1000
	for _, tc := range []struct {
		size int // of one event
		want error
	}{
		{limit - 1, nil}, {limit, nil}, {limit + 1, ErrEventTooLarge}, {10 * limit, ErrEventTooLarge},
	} {
		event := "data: " + strings.Repeat("x", tc.size-len("data: \n\n")) + "\n\n"
		s := NewScanner(make([]byte, 0, 16), limit)
		r := strings.NewReader("data: first\n\n" + event + "data: next\n\n")
		var got []string
		var err error
		for err == nil {
			err = s.Fill(r)
			for ev, ok := s.Next(); ok; ev, ok = s.Next() {
				got = append(got, string(ev.Raw))
			}
		}
		want := []string{"data: first\n\n"}
		if tc.want == nil {
			tc.want = io.EOF
			want = append(want, event, "data: next\n\n")
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("size %d: err = %v, want %v", tc.size, err, tc.want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("size %d (-want +got):\n%s", tc.size, diff)
		}
		if n := len(s.Buffer()); n > limit {
			t.Errorf("size %d: the buffer grew to %d", tc.size, n)
		}
	}
}

func TestScannerPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	s := NewScanner(make([]byte, 64), 64)
	r := iotest.DataErrReader(io.MultiReader(strings.NewReader("data: a\n\ndata:"), iotest.ErrReader(broken)))
	if err := s.Fill(r); err != nil {
		t.Fatalf("bytes came, yet err = %v", err)
	}
	if ev, ok := s.Next(); !ok || string(ev.Data) != "a" {
		t.Errorf("got %q, %v", ev.Raw, ok)
	}
	for range 2 {
		if err := s.Fill(r); !errors.Is(err, broken) {
			t.Errorf("err = %v, want %v", err, broken)
		}
	}
	// A reader that returns its error once, together with the last bytes.
	s = NewScanner(nil, 64)
	once := &errOnce{err: broken}
	if err := s.Fill(once); err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(once); !errors.Is(err, broken) {
		t.Errorf("err = %v, want %v", err, broken)
	}
	s = NewScanner(nil, 64)
	if err := s.Fill(idle{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("err = %v, want %v", err, io.ErrNoProgress)
	}
}

type errOnce struct{ err error }

func (r *errOnce) Read(b []byte) (int, error) {
	err := r.err
	r.err = nil
	return copy(b, "data: x\n\n"), err
}

// idle is a reader that never has anything.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// A large event in small reads, and many small lines in one buffer: anything
// that is not linear takes minutes.
func TestScannerIsLinear(t *testing.T) {
	const size = 1 << 20
	for name, in := range map[string]string{
		"one line":    "data: " + strings.Repeat("x", 8*size) + "\n\n",
		"many lines":  strings.Repeat(":\n", size/2) + "\n",
		"blank lines": strings.Repeat("\n", size) + "data: x\n\n",
		"CR only":     strings.Repeat("data: x\r\r", size/9),
		"data lines":  strings.Repeat("data: x\n", size/8) + "\n",
	} {
		start := time.Now()
		r := smallReader{strings.NewReader(in)}
		s := NewScanner(nil, 16*size)
		for s.Fill(r) == nil {
			for _, ok := s.Next(); ok; _, ok = s.Next() {
			}
		}
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
}

type smallReader struct{ r io.Reader }

func (r smallReader) Read(b []byte) (int, error) { return r.r.Read(b[:min(len(b), 64)]) }

func TestScannerDoesNotAllocate(t *testing.T) {
	stream := []byte(strings.Repeat("data: "+benchChunk+"\r\n\r\n: ping\n\nevent: x\ndata: y\n\n", 50))
	r := bytes.NewReader(stream)
	buf := make([]byte, 4096)
	s := NewScanner(buf, 4096)
	events := 0
	if n := testing.AllocsPerRun(10, func() {
		r.Reset(stream)
		*s = Scanner{buf: buf, max: 4096}
		for s.Fill(r) == nil {
			for _, ok := s.Next(); ok; _, ok = s.Next() {
				events++
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if events != 11*150 { // AllocsPerRun runs it once more
		t.Errorf("%d events", events)
	}
}

func TestAppendDataRoundTrip(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`:     "data: {\"a\":1}\n\n",
		"":            "data: \n\n",
		"{\n}":        "data: {\ndata: }\n\n",
		"{\r\n1\r2\n": "data: {\ndata: 1\ndata: 2\ndata: \n\n",
	} {
		got := AppendData([]byte("x"), []byte(in))
		if string(got) != "x"+want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		events := scanAll(t, bytes.NewReader(got[1:]), 64, 64)
		if len(events) != 1 || *events[0].Data != strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(in) {
			t.Errorf("%q: read back as %v", in, events)
		}
	}
}

func TestAppendWith(t *testing.T) {
	for _, tc := range []struct{ event, payload, want string }{
		{"data: a\n\n", "b", "data: b\n\n"},
		{"data:a\n\n", "b", "data:b\n\n"},
		{"data: a\n\n", "", "data: \n\n"},
		{"data: a\n\n", "b\nc", "data: b\ndata: c\n\n"},
		{"data: a\r\n\r\n", "b\nc", "data: b\r\ndata: c\r\n\r\n"},
		{"data: a\rid: 1\r\r", "b\r\nc", "data: b\rdata: c\rid: 1\r\r"},
		{"\n: c\nevent: e\ndata: a\nretry: 5\ndata: a\nid: 1\ndatum: a\n\n", "b", "\n: c\nevent: e\ndata: b\nretry: 5\nid: 1\ndatum: a\n\n"},
		{"data\ndata: a\n\n", "b", "data:b\n\n"},
		{": c\n\n", "b", ": c\n\n"},
	} {
		s := NewScanner(make([]byte, 256), 256)
		if err := s.Fill(strings.NewReader(tc.event + "x")); err != nil {
			t.Fatal(err)
		}
		ev, ok := s.Next()
		if !ok {
			t.Fatalf("%q is no event", tc.event)
		}
		if got := ev.AppendWith([]byte("x"), []byte(tc.payload)); string(got) != "x"+tc.want {
			t.Errorf("%q with %q: got %q, want %q", tc.event, tc.payload, got[1:], tc.want)
		}
		before, c := see(ev), ev.Clone()
		clear(s.Buffer())
		if diff := cmp.Diff(before, see(c)); diff != "" {
			t.Errorf("clone of %q (-event +clone):\n%s", tc.event, diff)
		}
	}
}

func TestAppendAnnotationCannotBeEscaped(t *testing.T) {
	got := AppendAnnotation(nil, "a\ndata: x", []byte("v\r\n\r\ndata: [DONE]"))
	if want := "event: a data: x\n: v    data: [DONE]\n\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if events := scanAll(t, bytes.NewReader(got), 64, 64); len(events) != 1 || events[0].Data != nil {
		t.Errorf("read back as %v", events)
	}
}

func FuzzScanner(f *testing.F) {
	for _, tc := range streams {
		f.Add([]byte(tc.in), uint16(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		if len(in) > 1<<12 {
			return
		}
		whole := scanAll(t, bytes.NewReader(in), 2*len(in)+16, 1<<13)
		at := min(int(cut), len(in))
		parts := &cutReader{[]string{string(in[:at]), string(in[at:])}}
		if diff := cmp.Diff(whole, scanAll(t, parts, 8, 1<<13)); diff != "" {
			t.Fatalf("cut at %d (-whole +cut):\n%s", at, diff)
		}
		if diff := cmp.Diff(whole, scanAll(t, iotest.OneByteReader(bytes.NewReader(in)), 1, 1<<13)); diff != "" {
			t.Fatalf("byte by byte (-whole +bytes):\n%s", diff)
		}
		var raw strings.Builder
		for _, ev := range whole {
			raw.WriteString(ev.Raw)
		}
		if got, want := raw.String(), strings.TrimPrefix(string(in), "\ufeff"); !sameLines(got, want) {
			t.Fatalf("got %q of %q", got, want)
		}
	})
}

// sameLines compares what is left when blank lines are dropped.
func sameLines(a, b string) bool {
	lines := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '\r' || r == '\n' })
	}
	return cmp.Equal(lines(a), lines(b))
}
