package trace

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Lines beyond all measure are passed over in a recording, and not kept.
func TestReadLongRows(t *testing.T) {
	row := `{"schema":"` + Schema + `","model":"m","arrival_us":5,"input_tokens":20,"output_tokens":1`
	const most = 100_000
	long := func(n int64) io.Reader {
		return io.MultiReader(strings.NewReader(row+`,"text":"`), io.LimitReader(endless{}, n), strings.NewReader("\"}\n"))
	}
	short := func() io.Reader { return strings.NewReader(row + "}\n") }
	rest := int64(most - len(row) - len(`,"text":""}`+"\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tr, err := read(io.MultiReader(long(10<<20), short(), long(rest+1), long(rest), long(10<<20), short()), ReadOptions{}, limits{1 << 10, most})
	runtime.ReadMemStats(&after)
	if err != nil || len(tr.Requests) != 3 || tr.Skipped != (Skipped{TooLong: 3}) {
		t.Errorf("%+v, %v", tr, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 10*most {
		t.Errorf("%d KiB were allocated for lines of up to %d", n>>10, most>>10)
	}
	// Without a row before it, there is no telling what a long line is.
	if _, err := read(io.MultiReader(strings.NewReader("\n"), io.LimitReader(endless{}, most+1), short()), ReadOptions{}, limits{1 << 10, 1 << 20}); err == nil {
		t.Error("a line of x is taken")
	}
}

func TestLineReader(t *testing.T) {
	type line struct {
		number    int
		text      string
		long, cut bool
	}
	for in, want := range map[string][]line{
		"":                                  nil,
		"\n \r\n":                           nil,
		"a":                                 {{1, "a", false, true}},
		"a\n":                               {{1, "a", false, false}},
		"\n a \r\n\nb":                      {{2, "a", false, false}, {4, "b", false, true}},
		"\ufeffa\n\ufeff b\n":               {{1, "a", false, false}, {2, "b", false, false}},
		strings.Repeat("x", 31) + "\ny\n":   {{1, strings.Repeat("x", 31), false, false}, {2, "y", false, false}},
		strings.Repeat("x", 32) + "\ny\n":   {{1, strings.Repeat("x", 32), true, false}, {2, "y", false, false}},
		strings.Repeat("x", 32):             {{1, strings.Repeat("x", 32), false, true}},
		strings.Repeat("x", 99) + "\n\ny\n": {{1, strings.Repeat("x", 32), true, false}, {3, "y", false, false}},
		strings.Repeat(" ", 99) + "\ny\n":   {{1, "", true, false}, {2, "y", false, false}},
	} {
		l := newLineReader(strings.NewReader(in), 32)
		var got []line
		for l.next() {
			got = append(got, line{l.number, string(l.text), l.long, l.cut})
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || l.err != io.EOF {
			t.Errorf("%q: %v, %v, want %v", in, got, l.err, want)
		}
	}
}
