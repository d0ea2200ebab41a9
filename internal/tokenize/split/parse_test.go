package split

import (
	"strings"
	"testing"
)

// TestParse has what loads and what does not, as in the library, and the word that
// an error must have.
func TestParse(t *testing.T) {
	for _, tt := range []struct{ raw, err string }{
		{``, ""},
		{`null`, ""},
		{` null `, ""},
		{`{}`, "type: missing"},
		{`[]`, "want an object"},
		{`"ByteLevel"`, "want an object"},
		{`{`, "want an object"},
		{`{"type":null}`, "type: must not be null"},
		{`{"type":1}`, "type: "},
		{`{"type":"Nope"}`, `type "Nope" is not supported`},
		{`{"type":"UnicodeScripts"}`, `type "UnicodeScripts" is not supported`},
		{`{"Type":"Whitespace"}`, "type: missing"},

		{`{"type":"ByteLevel"}`, "ByteLevel: add_prefix_space: missing"},
		{`{"type":"ByteLevel","add_prefix_space":false}`, "ByteLevel: trim_offsets: missing"},
		{`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}`, ""},
		{`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"x":1}`, ""},
		{`{"type":"ByteLevel","add_prefix_space":"a","trim_offsets":true}`, "add_prefix_space: "},
		{`{"type":"ByteLevel","add_prefix_space":null,"trim_offsets":true}`, "add_prefix_space: must not be null"},
		{`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":null}`, "use_regex: must not be null"},
		{`{"add_prefix_space":false,"trim_offsets":true}`, "type: missing"},

		{`{"type":"Digits"}`, "Digits: individual_digits: missing"},
		{`{"type":"Digits","individual_digits":true,"x":1}`, ""},
		{`{"type":"Digits","individual_digits":1}`, "Digits: individual_digits: "},

		{`{"type":"Whitespace","x":1}`, ""},
		{`{"type":"WhitespaceSplit","x":2}`, ""},
		{`{"type":"BertPreTokenizer","x":2}`, ""},
		{`{"type":"Punctuation"}`, ""},
		{`{"type":"Punctuation","behavior":"isolated"}`, `Punctuation: behavior: "isolated" is unknown`},
		{`{"type":"Punctuation","behavior":null}`, "behavior: must not be null"},
		{`{"type":"CharDelimiterSplit"}`, "delimiter: missing"},
		{`{"type":"CharDelimiterSplit","delimiter":"é","x":1}`, ""},
		{`{"type":"CharDelimiterSplit","delimiter":"--"}`, `delimiter: "--" is not one character`},
		{`{"type":"CharDelimiterSplit","delimiter":""}`, `delimiter: "" is not one character`},

		{`{"type":"Split","pattern":{"String":" "},"behavior":"Isolated","invert":false,"x":1}`, ""},
		{`{"type":"Split","pattern":{"String":" "},"behavior":"Isolated"}`, "Split: invert: missing"},
		{`{"type":"Split","pattern":{"String":" "},"invert":false}`, "Split: behavior: missing"},
		{`{"type":"Split","behavior":"Isolated","invert":false}`, "Split: pattern: missing"},
		{`{"type":"Split","pattern":" ","behavior":"Isolated","invert":false}`, "Split: pattern: "},
		{`{"type":"Split","pattern":null,"behavior":"Isolated","invert":false}`, "pattern: must not be null"},
		{`{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false}`, "Split: pattern: Regex: "},
		{`{"type":"Split","pattern":{"Regex":"a","String":"b"},"behavior":"Isolated","invert":false}`, "want one of String and Regex"},
		{`{"type":"Split","pattern":{"Nope":"a"},"behavior":"Isolated","invert":false}`, "want one of String and Regex"},
		{`{"type":"Split","pattern":{"String":null},"behavior":"Isolated","invert":false}`, "pattern: String: must not be null"},
		{`{"type":"Split","pattern":{"String":" "},"behavior":"isolated","invert":false}`, `behavior: "isolated" is unknown`},

		{`{"type":"Sequence"}`, "pretokenizers: missing"},
		{`{"type":"Sequence","pretokenizers":null}`, "pretokenizers: must not be null"},
		{`{"type":"Sequence","pretokenizers":[],"x":1}`, ""},
		{`{"type":"Sequence","pretokenizers":[null]}`, "pretokenizers[0]: "},
		{`{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"Nope"}]}`, `Sequence: pretokenizers[1]: type "Nope"`},

		{`{"type":"Metaspace"}`, "replacement: missing"},
		{`{"type":"Metaspace","replacement":"▁","x":1}`, ""},
		{`{"type":"Metaspace","replacement":"__"}`, `replacement: "__" is not one character`},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":true}`, ""},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":null}`, ""},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":false}`, "add_prefix_space: false does not agree"},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":false,"prepend_scheme":"first"}`, "add_prefix_space: false does not agree"},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":false,"prepend_scheme":"never"}`, ""},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":true,"prepend_scheme":"never"}`, ""},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"First"}`, `prepend_scheme: "First" is unknown`},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":null}`, "prepend_scheme: must not be null"},
		{`{"type":"Metaspace","replacement":"▁","split":null,"str_rep":"▁"}`, ""},
		{`{"type":"Metaspace","replacement":"▁","split":1}`, "split: "},
		{`{"type":"Metaspace","replacement":"▁","str_rep":1}`, "str_rep: "},

		{`{"type":"FixedLength"}`, ""},
		{`{"type":"FixedLength","length":0}`, "length: want more than 0"},
		{`{"type":"FixedLength","length":-1}`, "length: "},

		{`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}]}`, "ByteLevel: not supported after another"},
		{`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},{"type":"Metaspace","replacement":"▁"}]}`, "Metaspace: not supported after a ByteLevel"},
		{`{"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"▁"},{"type":"Metaspace","replacement":"▁","prepend_scheme":"first"}]}`, "prepend_scheme first: not supported after"},
	} {
		p, err := Parse([]byte(tt.raw))
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", tt.raw, err)
		case tt.err != "" && err == nil:
			t.Errorf("%s: loads", tt.raw)
		case tt.err != "" && (!strings.HasPrefix(err.Error(), "pre_tokenizer: ") || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: error %q, want %q in it", tt.raw, err, tt.err)
		case (p == nil) != (err != nil):
			t.Errorf("%s: plan %v and error %v", tt.raw, p, err)
		}
	}
}

func TestParseDepth(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(strings.Repeat(`{"type":"Sequence","pretokenizers":[`, n) + strings.Repeat(`]}`, n))
	}
	if _, err := Parse(nested(maxDepth)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(nested(maxDepth + 1)); err == nil || !strings.Contains(err.Error(), "more than 32 inside each other") {
		t.Errorf("error %v", err)
	}
}

func TestByteLevelIsKnown(t *testing.T) {
	for raw, want := range map[string]bool{
		`null`: false,
		`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}`:                                                             true,
		`{"type":"Sequence","pretokenizers":[{"type":"Whitespace"},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}]}`: true,
		`{"type":"Whitespace"}`: false,
	} {
		p, err := Parse([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if p.ByteLevel() != want {
			t.Errorf("%s: ByteLevel() = %v", raw, p.ByteLevel())
		}
	}
}

// FuzzParse checks that a plan that loads works, on any text.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"type":"Metaspace","replacement":"▁"}`), []byte("a b"))
	f.Add([]byte(`{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}]}`), []byte("a 1"))
	f.Add([]byte(`{"type":"Split","pattern":{"Regex":"\\d+|a*"},"behavior":"MergedWithNext","invert":true}`), []byte("a\xff1"))
	f.Add([]byte(`{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true},{"type":"Punctuation"}]}`), []byte("л,2"))
	f.Add([]byte(`{"type":"FixedLength","length":2}`), []byte("abc"))
	f.Fuzz(func(t *testing.T, raw, text []byte) {
		p, err := Parse(raw)
		if err != nil {
			return
		}
		var dst Pieces
		p.Append(&dst, text, true)
		last := 0
		for _, s := range dst.Spans {
			if s.Start < last || s.End <= s.Start || s.End > len(dst.Text) {
				t.Fatalf("%s: piece %v after %d in a text of %d", raw, s, last, len(dst.Text))
			}
			last = s.End
		}
	})
}
