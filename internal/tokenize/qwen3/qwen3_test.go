package qwen3

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
)

// TestGolden compares with what Hugging Face's library made of the same texts.
func TestGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var row struct {
			Cat, Text string
			IDs       []uint32
			Decoded   *string
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		ids, err := Tokenizer().Encode(nil, []byte(row.Text), true /* special */)
		if err != nil || !slices.Equal(ids, row.IDs) {
			t.Errorf("%s %q:\n got %d, %v\nwant %d", row.Cat, row.Text, ids, err, row.IDs)
		}
		if row.Cat == "fuzz" { // these do not say what they decode to
			continue
		}
		want := row.Text
		if row.Decoded != nil {
			want = *row.Decoded
		}
		if got := string(Tokenizer().DecodeText(nil, row.IDs, false)); got != want {
			t.Errorf("%s %d:\n decoded %q\nexpected %q", row.Cat, row.IDs, got, want)
		}
	}
	if n != 372 {
		t.Errorf("%d rows, expected 372", n)
	}
}

// TestGoldenChat compares with what the template rendered by Jinja gives.
func TestGoldenChat(t *testing.T) {
	plain, err := local.New(Tokenizer(), chat.Config{Template: template}, local.Options{Chat: chat.Config{Dialect: chat.HF}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("testdata/golden-chat.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var row struct {
			Name            string
			Messages, Tools json.RawMessage
			Generation      bool `json:"add_generation_prompt"`
			Kwargs          json.RawMessage
			Rendered        *string
			IDs             []uint32
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		chat := tokenize.Chat{Messages: row.Messages, Tools: row.Tools, Kwargs: row.Kwargs, NoGenerationPrompt: !row.Generation}
		if row.Rendered == nil {
			if _, err := plain.Chat(chat, tokenize.Hashing{}); err == nil {
				t.Errorf("%s: expected an error", row.Name)
			}
			continue
		}
		r, err := plain.Chat(chat, tokenize.Hashing{})
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		if diff := cmp.Diff(*row.Rendered, string(r.Text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.Name, diff)
		}
		if !slices.Equal(r.IDs, row.IDs) {
			t.Errorf("%s:\n got %d\nwant %d", row.Name, r.IDs, row.IDs)
		}
	}
	if n != 30 {
		t.Errorf("%d rows, expected 30", n)
	}
}

func TestFingerprint(t *testing.T) {
	if got := Tokenizer().Fingerprint(); got != Fingerprint {
		t.Errorf("got %s, want %s", got, Fingerprint)
	}
	for id, want := range map[uint32]string{EndOfText: "<|endoftext|>", IMStart: "<|im_start|>", IMEnd: "<|im_end|>"} {
		if text, special, ok := Tokenizer().Token(id); string(text) != want || !special || !ok {
			t.Errorf("token %d is %q, special %t", id, text, special)
		}
	}
}

// TestTurnsShareTheirBeginning shows what routing relies on: a chat that goes on has
// the tokens of its prompt and of its answer at its beginning.
func TestTurnsShareTheirBeginning(t *testing.T) {
	h := tokenize.Hashing{Size: 16}
	first, err := Model().Chat(tokenize.Chat{Messages: []byte(
		`[{"role":"system","content":"You are brief, and you like to explain what you do in a sentence or two."},{"role":"user","content":"Name the three primary colours."}]`)}, h)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := Tokenizer().Encode(nil, []byte("Red, yellow and blue."), true /* special */)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Model().Chat(tokenize.Chat{Messages: []byte(
		`[{"role":"system","content":"You are brief, and you like to explain what you do in a sentence or two."},{"role":"user","content":"Name the three primary colours."},` +
			`{"role":"assistant","content":"Red, yellow and blue."},{"role":"user","content":"And why these?"}]`)}, h)
	if err != nil {
		t.Fatal(err)
	}
	held := slices.Concat(first.IDs, answer, []uint32{IMEnd})
	if !slices.Equal(second.IDs[:len(held)], held) {
		t.Errorf("the second turn begins with %d, expected %d", second.IDs[:len(held)], held)
	}
	if n := len(first.Blocks); n == 0 || !slices.Equal(second.Blocks[:n], first.Blocks) {
		t.Errorf("the second turn does not begin with the %d blocks of the first", n)
	}
	if second.Cached == 0 {
		t.Error("nothing of the first turn was found in the cache")
	}
}
