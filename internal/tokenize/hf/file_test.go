package hf

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
)

func TestBrokenFiles(t *testing.T) {
	const rest = `"pre_tokenizer":null,"decoder":null`
	model := func(m string) string { return `{"version":"1.0",` + rest + `,"model":` + m + `}` }
	for _, tc := range []struct{ name, file, want string }{
		{"empty", "", `expected '{', got the end of the file`},
		{"not an object", "[]", `expected '{', got '['`},
		{"cut short", `{"version": "1.0", "model": {"vocab": {"a": 0`, `model: vocab: line 1`},
		{"no model", `{"version":"1.0"}`, "model: expected an object, got nothing"},
		{"version", `{"version":"2.0","model":{}}`, `version: expected "1.0", got "2.0"`},
		{"something after it", model(`{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}`) + "x", "something follows"},
		{"comma", `{"version":"1.0",}`, "expected a string"},
		{"unknown model", model(`{"type":"Magic","vocab":{}}`), `model: type "Magic" is not supported`},
		{"no vocabulary", model(`{"type":"BPE","merges":[]}`), "model: vocab: expected an object, got nothing"},
		{"no merges", model(`{"type":"BPE","vocab":{"a":0}}`), "model: merges: expected an array, got nothing"},
		{"bad id", model(`{"type":"BPE","vocab":{"a":-1},"merges":[]}`), "model: vocab: line 1, byte 88: expected a token id between 0 and 16777215"},
		{"huge id", model(`{"type":"BPE","vocab":{"a":99999999999999999999},"merges":[]}`), "expected a token id between 0 and 16777215"},
		{"two tokens, one id", model(`{"type":"BPE","vocab":{"a":3,"b":3},"merges":[]}`), "model: vocab: two tokens have the id 3"},
		{"one token twice", model(`{"type":"BPE","vocab":{"a":3,"b":1,"a":2},"merges":[]}`), "model: vocab: a token is given twice"},
		{"merge of three", model(`{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}`), `model: merges: [0]: expected two tokens with a space between, got "a a a"`},
		{"merge list of three", model(`{"type":"BPE","vocab":{"a":0,"aa":1},"merges":[["a","a","a"]]}`), "model: merges: [0]: expected two tokens"},
		{"merge list of one", model(`{"type":"BPE","vocab":{"a":0,"aa":1},"merges":[["a"]]}`), "model: merges: [0]: expected two tokens"},
		{"merge of nothing known", model(`{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`), `model: merges: [0]: "b" is not in the vocabulary`},
		{"merge into nothing known", model(`{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}`), `model: merges: [0]: "ab" is not in the vocabulary`},
		{"unknown unknown", model(`{"type":"BPE","vocab":{"a":0},"merges":[],"unk_token":"<unk>"}`), `model: unk_token: "<unk>" is not in the vocabulary`},
		{"dropout", model(`{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}`), "model: dropout: ids that depend on chance are not supported"},
		{"prefix", model(`{"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"##"}`), "model: continuing_subword_prefix is not supported"},
		{"suffix", model(`{"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"}`), "model: end_of_word_suffix is not supported"},
		{"surrogate", model(`{"type":"BPE","vocab":{"\ud800":0},"merges":[]}`), `a \u escape that is no character`},
		{"bad UTF-8", model("{\"type\":\"BPE\",\"vocab\":{\"\xff\":0},\"merges\":[]}"), "not valid UTF-8"},
		{"deep", `{"version":"1.0","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `,"model":{}}`, "nested more than 200 deep"},
		{"normalizer", `{"version":"1.0","normalizer":{"type":"Shout"},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, `Shout`},
		{"pre_tokenizer", `{"version":"1.0","pre_tokenizer":{"type":"Chop"},"model":{"vocab":{"a":0},"merges":[]}}`, `Chop`},
		{"post_processor", `{"version":"1.0","post_processor":{"type":"Polish"},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, `post_processor: type "Polish" is not supported`},
		{"template", `{"version":"1.0","post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[X]"}}],"special_tokens":{}},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, `post_processor: single[0]: "[X]" is not in special_tokens`},
		{"one sided", `{"version":"1.0","decoder":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},"model":{"vocab":{"a":0},"merges":[]}}`, "only one is ByteLevel"},
		{"long added token", `{"version":"1.0","added_tokens":[{"id":1,"content":"` + strings.Repeat("x", 5000) + `"}],` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, "expected at most 1024 bytes, got 5000"},
		{"nothing left", `{"version":"1.0","added_tokens":[{"id":1,"content":" ","normalized":true}],"normalizer":{"type":"Strip","strip_left":true,"strip_right":true},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, `added_tokens: " ": nothing is left of it`},
		{"the same twice", `{"version":"1.0","added_tokens":[{"id":1,"content":"X","normalized":true},{"id":2,"content":"x","normalized":true}],"normalizer":{"type":"Lowercase"},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, `"X" and "x" are the same when they are normalized`},
		{"an id twice", `{"version":"1.0","added_tokens":[{"id":1,"content":"X"},{"id":2,"content":"c"}],` + rest + `,"model":{"vocab":{"a":0,"c":2},"merges":[]}}`, `"c": its id 2 is that of another`},
		{"bytes twice", `{"version":"1.0","decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},"model":{"vocab":{"a":0},"merges":[],"byte_fallback":true}}`, "byte_fallback with a ByteLevel pre_tokenizer is not supported"},
		{"first and strip", `{"version":"1.0","normalizer":{"type":"Strip","strip_left":true,"strip_right":true},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"model":{"vocab":{"a":0},"merges":[]}}`, `prepend_scheme "first" with the normalizer Strip is not supported`},
		{"first and a sequence", `{"version":"1.0","normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip","strip_left":true,"strip_right":true}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}]},"model":{"vocab":{"a":0},"merges":[]}}`, `prepend_scheme "first" with the normalizer Strip is not supported`},
		{"two that add", `{"version":"1.0","post_processor":{"type":"Sequence","processors":[{"type":"BertProcessing","sep":["a",0],"cls":["a",0]},{"type":"BertProcessing","sep":["a",0],"cls":["a",0]}]},` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, "processors[1]: a second one that adds tokens is not supported"},
		{"no vocabulary and no such model", model(`{"type":"Foo"}`), `model: type "Foo" is not supported`},
		{"two types", `{"pre_tokenizer":null,"model":{"type":"BPE","vocab":{"a":0},"type":""}}`, "model: type: given twice"},
		{"added id", `{"version":"1.0","added_tokens":[{"id":-1,"content":"x"}],` + rest + `,"model":{"vocab":{"a":0},"merges":[]}}`, "added_tokens: [0]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.file))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestModelWithoutType(t *testing.T) {
	for _, tc := range []struct{ model, text, want string }{
		{`{"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`, "ab", "[2]"},
		{`{"vocab":{"a":0,"b":1,"ab":2},"merges":[]}`, "abba", "[0 1 1 0]"},
		{`{"vocab":{"[UNK]":0,"a":1,"##b":2},"continuing_subword_prefix":"##","max_input_chars_per_word":100,"unk_token":"[UNK]"}`, "ab", "[1 2]"},
		{`{"vocab":[["<unk>",0],["a",-1],["b",-1]],"unk_id":0}`, "ab", "[1 2]"},
		{`{"vocab":{"ab":0,"?":1},"unk_token":"?"}`, "abc", "[1]"},
	} {
		tok, err := Parse([]byte(`{"version":"1.0","model":` + tc.model + `}`))
		if err != nil {
			t.Errorf("%s: %v", tc.model, err)
			continue
		}
		if ids, err := tok.Encode(nil, []byte(tc.text), true); err != nil || fmt.Sprint(ids) != tc.want {
			t.Errorf("%s: got %v, %v, want %s", tc.model, ids, err, tc.want)
		}
	}
}

func TestAddedIDs(t *testing.T) {
	tok, err := Parse([]byte(`{"version":"1.0","model":{"vocab":{"a":0,"b":1,"[B]":7},"merges":[]},"added_tokens":[
		{"id":7,"content":"[B]","normalized":false,"special":true},
		{"id":9,"content":"[C]","normalized":false,"special":false},
		{"id":9,"content":"","normalized":false},
		{"id":9,"content":"[D]","normalized":true}]}`), AddedToken{ID: 10, Content: "[E]"}, AddedToken{ID: 7, Content: "[B]"})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(nil, []byte("a[B][C][D][E]b"), true)
	if want := []uint32{0, 7, 3, 4, 8, 1}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %d, %v, want %d: the library numbers them itself", ids, err, want)
	}
	if w := tok.Warnings(); len(w) != 3 || !strings.Contains(w[0], `added_tokens[1]: "[C]" has id 9 in the file, but the library gives it 3`) {
		t.Errorf("got %q", w)
	}
	if n := tok.Size(); n != 9 {
		t.Errorf("%d ids, want 9", n)
	}
	for id, want := range map[uint32]string{7: "[B]", 3: "[C]", 1: "b"} {
		if text, special, ok := tok.Token(id); !ok || string(text) != want || special != (id == 7) {
			t.Errorf("token %d: %q, special %t", id, text, special)
		}
	}
	if _, _, ok := tok.Token(6); ok {
		t.Error("there is no token 6")
	}
}

// TestExtraIDs has tokens of another file, which the library adds after those of the
// first: it goes on behind the largest id of an added token.
func TestExtraIDs(t *testing.T) {
	for _, added := range []string{`{"id":10,"content":"c"}`, `{"id":10,"content":"c"},{"id":3,"content":"<x>"}`} {
		tok, err := Parse([]byte(`{"version":"1.0","model":{"vocab":{"a":0,"b":1,"c":10},"merges":[]},"added_tokens":[`+added+`]}`), AddedToken{ID: 11, Content: "<z>"})
		if err != nil {
			t.Fatal(err)
		}
		if ids, _ := tok.Encode(nil, []byte("a<z>"), true); !slices.Equal(ids, []uint32{0, 11}) || len(tok.Warnings()) > 0 {
			t.Errorf("%s: got %d, %q", added, ids, tok.Warnings())
		}
	}
}

// TestNormalizedTokens decode to what is looked for in the text.
func TestNormalizedTokens(t *testing.T) {
	tok, err := Parse([]byte(`{"version":"1.0","normalizer":{"type":"Lowercase"},"model":{"vocab":{"a":0},"merges":[]},"added_tokens":[
		{"id":1,"content":"<V>","normalized":true,"special":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := tok.Encode(nil, []byte("A<V>"), true)
	if got := tok.DecodeText(nil, ids, true); !slices.Equal(ids, []uint32{0, 1}) || string(got) != "a <v>" {
		t.Errorf("got %d, %q", ids, got)
	}
}

// TestFingerprints of files with different tokens differ, however these are spelled.
func TestFingerprints(t *testing.T) {
	file := []byte(`{"version":"1.0","model":{"vocab":{"a":0},"merges":[]}}`)
	one, err := Parse(file, AddedToken{ID: 1, Content: "X"}, AddedToken{ID: 2, Content: "Y"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := Parse(file, AddedToken{ID: 1, Content: "X SingleWord:false LStrip:false RStrip:false Normalized:false Special:false} {ID:2 Content:Y"})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := one.Fingerprint(), two.Fingerprint(), plain.Fingerprint(); a == b || b == c || a == c {
		t.Errorf("got %s, %s, %s", a, b, c)
	}
}

func TestFrames(t *testing.T) {
	for _, tc := range []struct{ post, before, after string }{
		{`null`, "[]", "[]"},
		{`{"type":"ByteLevel"}`, "[]", "[]"},
		{`{"type":"BertProcessing","sep":["[SEP]",4],"cls":["[CLS]",3]}`, "[3]", "[4]"},
		{`{"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0]}`, "[0]", "[2]"},
		{`{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"B","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"E","type_id":0}}],"special_tokens":{"B":{"id":"B","ids":[5,6],"tokens":["x","y"]},"E":{"id":"E","ids":[7],"tokens":["z"]}}}]}`, "[5 6]", "[7]"},
	} {
		f, err := parsePost([]byte(tc.post))
		if err != nil || fmt.Sprint(f.before) != tc.before || fmt.Sprint(f.after) != tc.after {
			t.Errorf("%s: got %d, %d, %v", tc.post, f.before, f.after, err)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	tok, err := Parse([]byte(cutFile(AddedToken{Content: "<a>"})))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.Decode([]byte("before "), []uint32{258, 259, 0xc3})
	if err != nil || string(got) != "before  ab<a>\xc3" {
		t.Errorf("got %q, %v", got, err)
	}
	var unknown *tokenize.UnknownIDError
	if got, err := tok.Decode([]byte("x"), []uint32{1, 260}); !errors.As(err, &unknown) || unknown.ID != 260 || unknown.Index != 1 || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := tok.DecodeText(nil, []uint32{0xc3, 260, 'a', 259}, true); string(got) != "\ufffda" {
		t.Errorf("got %q", got)
	}
}

func TestInvalidText(t *testing.T) {
	tok, err := Parse([]byte(cutFile()))
	if err != nil {
		t.Fatal(err)
	}
	var bad *TextError
	if ids, err := tok.Encode([]uint32{1}, []byte("ab\xed\xa0\x80"), true); !errors.As(err, &bad) || bad.Offset != 2 || len(ids) != 1 {
		t.Errorf("got %d, %v", ids, err)
	}
	if ids, err := tok.Encode(nil, []byte("a\x00b"), true); err != nil || !slices.Equal(ids, []uint32{'a', 0, 'b'}) {
		t.Errorf("got %d, %v", ids, err)
	}
}

// TestCompact makes the compact form and compares what it gives.
func TestCompact(t *testing.T) {
	file := []byte(cutFile(AddedToken{Content: "<a>"}))
	compact, err := Compact(file)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	small, err := ReadCompact(compact)
	if err != nil {
		t.Fatal(err)
	}
	if small.Fingerprint() != whole.Fingerprint() {
		t.Errorf("fingerprints %s and %s", small.Fingerprint(), whole.Fingerprint())
	}
	for _, text := range []string{"", "ab ab<a> a b\x00é", strings.Repeat("ab", 100)} {
		want, _ := whole.Encode(nil, []byte(text), true)
		if got, err := small.Encode(nil, []byte(text), true); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for n := range compact {
		if _, err := ReadCompact(compact[:n]); err == nil {
			t.Fatalf("the first %d bytes are taken for all %d", n, len(compact))
		}
	}
	for _, bad := range []string{
		strings.Replace(string(file), `"Ġ a","Ġ ab"`, `"Ġ ab","Ġ a"`, 1), // ranks are not in the order of ids
		strings.Replace(string(file), `"a b",`, ``, 1),                   // "ab" cannot be reached
		strings.Replace(string(file), `"Ġab": 258`, `"Ġab": 300`, 1),     // a gap
	} {
		if _, err := Compact([]byte(bad)); err == nil {
			t.Error("a tokenizer that merges by rank is made to merge by id")
		}
	}
}

func TestTiktoken(t *testing.T) {
	var file bytes.Buffer
	for b := range 256 {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(b)}), b)
	}
	for i, s := range []string{"ab", " a", " ab", "abab"} {
		fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), 256+i)
	}
	special := []AddedToken{{ID: 300, Content: "<|é|>", Special: true}}
	tok, err := ParseTiktoken(file.Bytes(), `\s?[a-z]+|[\s\S]`, special)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(nil, []byte("abab ab<|é|>ab!"), true)
	if want := []uint32{259, 258, 300, 256, '!'}; err != nil || !slices.Equal(ids, want) {
		t.Errorf("got %d, %v, want %d", ids, err, want)
	}
	if got := tok.DecodeText(nil, ids, false); string(got) != "abab ab<|é|>ab!" {
		t.Errorf("got %q", got)
	}
	for _, tc := range []struct{ file, pattern, want string }{
		{"YQ==", "a", "line 1: expected a token in base64, a space and a rank"},
		{"!! 0\n", "a", `line 1: expected a token in base64, got "!!"`},
		{"YQ== x\n", "a", `line 1: expected a rank between 0 and 16777215, got "x"`},
		{"YQ== 0\nYg== 0\n", "a", "two tokens have the rank 0"},
		{"YQ== 0\n", "a", "expected a token for each of the 256 bytes"},
		{file.String(), "(", "pattern: "},
	} {
		if _, err := ParseTiktoken([]byte(tc.file), tc.pattern, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
	if _, err := ParseTiktoken(file.Bytes(), "a", []AddedToken{{ID: 3, Content: "<x>"}}); err == nil {
		t.Error("an added token takes the id of another token")
	}
}

// TestConcurrent encodes from several goroutines with one tokenizer.
func TestConcurrent(t *testing.T) {
	tok, err := Parse([]byte(cutFile(AddedToken{Content: "<a>"})))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for g := range 8 {
		go func() {
			text := strings.Repeat(fmt.Sprintf("ab a%d<a>", g), 50)
			want, err := tok.Encode(nil, []byte(text), true)
			for i := 0; i < 50 && err == nil; i++ {
				var got []uint32
				if got, err = tok.Encode(nil, []byte(text), true); err == nil && !slices.Equal(got, want) {
					err = fmt.Errorf("got %d, want %d", got, want)
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(cutFile(AddedToken{Content: "<a>", LStrip: true})), "ab <a>")
	f.Add([]byte(`{"version":"1.0","normalizer":{"type":"Prepend","prepend":"▁"},"model":{"vocab":{"▁":0,"a":1,"▁a":2,"<unk>":3},"unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,"merges":["▁ a"]}}`), "a b")
	f.Add([]byte(`{"version":"1.0","normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},"model":{"type":"WordPiece","unk_token":"[U]","continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"[U]":0,"a":1,"##b":2}}}`), "Ab, b")
	f.Add([]byte(`{"version":"1.0","pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"decoder":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},"model":{"type":"Unigram","unk_id":0,"vocab":[["?",0],["▁",-1],["a",-2.5],["▁a",-3]]}}`), "a aa b")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		ids, err := tok.Encode(nil, []byte(text), true)
		if err != nil {
			return
		}
		again, err := tok.Encode(nil, []byte(text), true)
		if err != nil || !slices.Equal(ids, again) {
			t.Errorf("%q: %d, then %d, %v", text, ids, again, err)
		}
		for _, id := range ids {
			if _, _, ok := tok.Token(id); !ok {
				t.Errorf("%q: id %d is not a token", text, id)
			}
		}
		tok.DecodeText(nil, ids, true)
		for _, c := range tok.Cuts(nil, []byte(text), 0, 1) {
			checkCut(t, tok, text, c.At)
		}
	})
}
