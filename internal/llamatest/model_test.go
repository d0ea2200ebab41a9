package llamatest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// TestModelStaysTheSame compares with the file that the suite was made with: what
// servers say depends on its weights.
func TestModelStaysTheSame(t *testing.T) {
	b, err := modelBytes()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if got, want := hex.EncodeToString(sum[:]), "cfd2e1a3a3423b11485353f76f1280d28432b670a2385e847bf8135290eb5914"; got != want {
		t.Errorf("the model's SHA-256 is %s, want %s", got, want)
	}
	var again bytes.Buffer
	if err := WriteModel(&again); err != nil || !bytes.Equal(again.Bytes(), b) {
		t.Errorf("the second model is another: %v", err)
	}
}

// TestMerges merges words as a server does that has only what is in the file.
func TestMerges(t *testing.T) {
	list, err := merges()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 151387 {
		t.Errorf("%d merges, want 151387", len(list))
	}
	rank := make(map[string]int, len(list))
	for i, m := range list {
		rank[m] = i
	}
	tokens, _ := vocabulary()
	for _, word := range []string{"hello", " internationalization", "Straße", "日本語", "    ", "zzzzzzzz", "\n\n\n", " préféré"} {
		var parts []string
		for _, b := range []byte(word) {
			parts = append(parts, spell([]byte{b}))
		}
		for {
			best, at := math.MaxInt, -1
			for i := range len(parts) - 1 {
				if r, ok := rank[parts[i]+" "+parts[i+1]]; ok && r < best {
					best, at = r, i
				}
			}
			if at < 0 {
				break
			}
			parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
		}
		ids, err := qwen3.Tokenizer().Encode(nil, []byte(word), false /* special */)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, id := range ids {
			want = append(want, tokens[id])
		}
		if !slices.Equal(parts, want) {
			t.Errorf("%q: merged to %q, want %q", word, parts, want)
		}
	}
}

func TestVocabulary(t *testing.T) {
	tokens, kinds := vocabulary()
	rows := []struct {
		id    uint32
		token string
		kind  int32
	}{
		{0, "!", tokenNormal},
		{198, "Ċ", tokenNormal},
		{220, "Ġ", tokenNormal},
		{qwen3.EndOfText, "<|endoftext|>", tokenControl},
		{qwen3.IMEnd, "<|im_end|>", tokenControl},
		{151657, "<tool_call>", tokenAdded},
		{151667, "<think>", tokenAdded},
	}
	for _, row := range rows {
		if tokens[row.id] != row.token || kinds[row.id] != row.kind {
			t.Errorf("token %d is %q of kind %d, want %q of kind %d", row.id, tokens[row.id], kinds[row.id], row.token, row.kind)
		}
	}
	if len(tokens) != 151669 {
		t.Errorf("%d tokens, want 151669", len(tokens))
	}
}

func TestUnknownValue(t *testing.T) {
	f := &ggufFile{meta: []ggufMeta{{"general.name", 1.5}}}
	if err := f.writeTo(new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "general.name") {
		t.Errorf("got %v, want an error that names the key", err)
	}
}
