package detok

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// row is one line of testdata/golden.jsonl: what the Hugging Face library says.
type row struct {
	Decoder json.RawMessage `json:"decoder"`
	Tokens  []string        `json:"tokens"`
	Special []int           `json:"special"`
	IDs     []uint32        `json:"ids"`
	Text    string          `json:"text"`
	Skipped string          `json:"skipped"`
}

// chain returns the decoder for the reference.
func (r row) chain(t *testing.T) chain {
	var c chain
	if err := json.Unmarshal(r.Decoder, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// kept returns the tokens of the row's ids.
func (r row) kept(skip bool) []string {
	special := map[int]bool{}
	for _, i := range r.Special {
		special[i] = true
	}
	var out []string
	for _, id := range r.IDs {
		if int(id) < len(r.Tokens) && !(skip && special[int(id)]) {
			out = append(out, r.Tokens[id])
		}
	}
	return out
}

func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n, bad := 0, 0
	for lines.Scan() && bad < 10 {
		n++
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		d, err := Parse(r.Decoder)
		if err != nil {
			t.Fatalf("row %d: %s: %v", n, r.Decoder, err)
		}
		v := newVocab(d, r.Tokens, r.Special...)
		for _, skip := range []bool{false, true} {
			want := r.Text
			if skip {
				want = r.Skipped
			}
			if got := string(d.Decode(nil, v, r.IDs, skip)); got != want {
				bad++
				t.Errorf("row %d: %s\ntokens %q\nDecode %q\n  want %q", n, r.Decoder, r.kept(skip), got, want)
			}
			if got := r.chain(t).decode(r.kept(skip), false); got != want {
				bad++
				t.Errorf("row %d: %s\ntokens %q\nreference %q\n     want %q", n, r.Decoder, r.kept(skip), got, want)
			}
			want = r.chain(t).decode(r.kept(skip), true)
			if got := stream(d.NewStream(v, skip), r.IDs); got != want {
				bad++
				t.Errorf("row %d: %s\ntokens %q\nStream %q\n  want %q", n, r.Decoder, r.kept(skip), got, want)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if n < 500 {
		t.Errorf("%d rows, want at least 500", n)
	}
}

// stream pushes ids one by one and returns all that came out.
func stream(s *Stream, ids []uint32) string {
	var out []byte
	for _, id := range ids {
		out = s.Push(out, id)
	}
	return string(s.Flush(out))
}
