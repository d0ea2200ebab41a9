package indexserver

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	for _, row := range []struct {
		name, in string
		want     []string
		end      string // in the error; EOF is the end
	}{
		{"nothing", " \n", nil, "EOF"},
		{"numbers", "1 -2.5e3\n4", []string{"1", "-2.5e3", "4"}, "EOF"},
		{"words", "true null", []string{"true", "null"}, "EOF"},
		{"strings", `"a" "\"" "\\" "}]"`, []string{`"a"`, `"\""`, `"\\"`, `"}]"`}, "EOF"},
		{"objects", `{"a":[1,{"b":"}"}]}[]{}`, []string{`{"a":[1,{"b":"}"}]}`, `[]`, `{}`}, "EOF"},
		{"open object", `{"a":1`, nil, "unexpected EOF"},
		{"open string", `"a\"`, nil, "unexpected EOF"},
		{"escape at the end", `"a\`, nil, "unexpected EOF"},
		{"bracket", `]`, nil, "byte 0"},
		{"comma", ` ,`, nil, "byte 1"},
		{"glued", `1"a"`, nil, "byte 1"},
		{"glued object", `tru{}`, nil, "byte 3"},
		{"large", `"` + strings.Repeat("x", 100) + `"`, nil, "too large"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, r := range []io.Reader{
				strings.NewReader(row.in), iotest.OneByteReader(strings.NewReader(row.in)), iotest.DataErrReader(strings.NewReader(row.in)),
			} {
				v := newValues(r, 64)
				var got []string
				var err error
				for {
					if _, err = v.next(); err != nil {
						break
					}
					var raw []byte
					if raw, err = v.value(); err != nil {
						break
					}
					got = append(got, string(raw))
				}
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !strings.Contains(err.Error(), row.end) || (err == io.EOF) != (row.end == "EOF") {
					t.Errorf("error %v, want %s", err, row.end)
				}
			}
		})
	}
}

// A reader that returns nothing for ever is not read for ever.
func TestValuesNoProgress(t *testing.T) {
	if _, err := newValues(idle{}, 64).value(); err != io.ErrNoProgress {
		t.Errorf("got %v", err)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
