package model

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encoder is what both models are.
type encoder interface {
	Encode(dst []uint32, piece []byte) ([]uint32, error)
}

// row is one line of testdata/golden.jsonl: a model, and what the Hugging Face
// library makes of some texts with it.
type row struct {
	Pieces       [][2]any `json:"pieces"`
	Unk          int      `json:"unk"`
	ByteFallback bool     `json:"byte_fallback"`

	Tokens   []string `json:"tokens"`
	UnkToken string   `json:"unk_token"`
	Prefix   string   `json:"prefix"`
	MaxChars int      `json:"max_chars"`

	Texts [][2]any `json:"texts"`
}

func (r row) model(t *testing.T) encoder {
	if r.Pieces == nil {
		ids := make([]uint32, len(r.Tokens))
		for i := range ids {
			ids[i] = uint32(i)
		}
		m, err := NewWordPiece(r.Tokens, ids, r.UnkToken, r.Prefix, r.MaxChars)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var pieces []Piece
	for _, p := range r.Pieces {
		pieces = append(pieces, Piece{p[0].(string), p[1].(float64)})
	}
	m, err := NewUnigram(pieces, r.Unk, r.ByteFallback)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	rows, texts, refused := 0, 0, 0
	for lines.Scan() {
		rows++
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		m := r.model(t)
		for _, pair := range r.Texts {
			texts++
			text := pair[0].(string)
			want := []uint32{7}
			list, ok := pair[1].([]any)
			for _, id := range list {
				want = append(want, uint32(id.(float64)))
			}
			got, err := m.Encode([]uint32{7}, []byte(text))
			if !ok {
				refused++
				if !errors.Is(err, ErrNoUnknown) {
					t.Errorf("row %d: %q: error %v, want ErrNoUnknown", rows, text, err)
				}
			} else if err != nil {
				t.Errorf("row %d: %q: %v", rows, text, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("row %d: %q: (-want +got)\n%s", rows, text, diff)
			}
			if t.Failed() {
				t.Fatalf("row %d: %s", rows, lines.Text())
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if rows < 100 || refused == 0 || refused*2 > texts {
		t.Errorf("%d rows, %d texts, %d of them refused", rows, texts, refused)
	}
}
