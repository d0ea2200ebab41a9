package hf

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// goldenRow is a text and what Hugging Face's library made of it.
type goldenRow struct {
	Tokenizer   string   `json:"tokenizer"`
	Cat         string   `json:"cat"`
	Text        string   `json:"text"`
	IDs         []uint32 `json:"ids"`
	IDsSpecial  []uint32 `json:"ids_special"`  // with what the file puts around a text
	Decoded     *string  `json:"decoded"`      // of the ids, where it is not the text
	DecodedSkip *string  `json:"decoded_skip"` // without special tokens
}

func readRows(t *testing.T, path string) []goldenRow {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []goldenRow
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		var row goldenRow
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatalf("%s:%d: %v", path, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatalf("%s: no rows", path)
	}
	return rows
}

func checkGolden(t *testing.T, tok *Tokenizer, rows []goldenRow) {
	t.Helper()
	for _, row := range rows {
		ids, err := tok.Encode(nil, []byte(row.Text), true /* special */)
		if err != nil {
			t.Errorf("%s %q: %v", row.Cat, row.Text, err)
			continue
		}
		if !slices.Equal(ids, row.IDs) {
			t.Errorf("%s %q:\n got %d\nwant %d", row.Cat, row.Text, ids, row.IDs)
		}
		if row.IDsSpecial != nil {
			before, after := tok.Frame()
			if framed := slices.Concat(before, ids, after); !slices.Equal(framed, row.IDsSpecial) {
				t.Errorf("%s %q with special tokens:\n got %d\nwant %d", row.Cat, row.Text, framed, row.IDsSpecial)
			}
		}
		if row.DecodedSkip != nil {
			if got := string(tok.DecodeText(nil, row.IDs, true)); got != *row.DecodedSkip {
				t.Errorf("%s %d:\n decoded without special tokens %q\nexpected %q", row.Cat, row.IDs, got, *row.DecodedSkip)
			}
		}
		if row.Cat == "fuzz" { // these do not say what they decode to
			continue
		}
		want := row.Text
		if row.Decoded != nil {
			want = *row.Decoded
		}
		if got := string(tok.DecodeText(nil, row.IDs, false)); got != want {
			t.Errorf("%s %d:\n decoded %q\nexpected %q", row.Cat, row.IDs, got, want)
		}
	}
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"wordpiece", "unigram", "unigram_bytes"} {
		t.Run(name, func(t *testing.T) {
			tok, err := Open(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			checkGolden(t, tok, readRows(t, filepath.Join("testdata", name, "golden.jsonl")))
		})
	}
}

// TestGoldenElsewhere checks files that are not kept here, for whoever has them:
// STATOR_GOLDEN is a file of rows, STATOR_MODELS a directory that has, for each
// tokenizer, its tokenizer.json in a directory models below its name.
func TestGoldenElsewhere(t *testing.T) {
	golden, models := os.Getenv("STATOR_GOLDEN"), os.Getenv("STATOR_MODELS")
	if golden == "" || models == "" {
		t.Skip("STATOR_GOLDEN and STATOR_MODELS are not set")
	}
	byName := make(map[string][]goldenRow)
	for _, row := range readRows(t, golden) {
		byName[row.Tokenizer] = append(byName[row.Tokenizer], row)
	}
	for name, rows := range byName {
		t.Run(name, func(t *testing.T) {
			tok, err := Open(filepath.Join(models, name, "models"))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tok.Warnings() {
				t.Log(w)
			}
			checkGolden(t, tok, rows)
		})
	}
}
