package detok

import (
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ raw, want string }{
		{`{"type":"Shout"}`, `decoder.type: unknown decoder "Shout"`},
		{`{}`, "decoder.type: missing"},
		{`[]`, "decoder: json:"},
		{`{"type":"Fuse","loud":true}`, `decoder: Fuse: json: unknown field "loud"`},
		{`{"type":"Fuse"`, "decoder: unexpected end"},
		{`{"type":"Sequence"}`, "decoder.decoders: missing"},
		{`{"type":"Sequence","decoders":null}`, "decoder.decoders: missing"},
		{`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Sequence","decoders":[{"type":"X"}]}]}`, `decoder.decoders[1].decoders[0].type: unknown decoder "X"`},
		{`{"type":"Replace","content":"a"}`, "decoder.pattern: expected either"},
		{`{"type":"Replace","pattern":{},"content":"a"}`, "decoder.pattern: expected either"},
		{`{"type":"Replace","pattern":{"String":"a","Regex":"b"},"content":"a"}`, "decoder.pattern: expected either"},
		{`{"type":"Replace","pattern":{"String":""},"content":"a"}`, "decoder.pattern.String: expected"},
		{`{"type":"Replace","pattern":{"Regex":"("},"content":"a"}`, "decoder.pattern.Regex: "},
		{`{"type":"Replace","pattern":{"String":"a"}}`, "decoder.content: missing"},
		{`{"type":"Strip","content":"ab","start":0,"stop":0}`, `decoder.content: expected one character, got "ab"`},
		{`{"type":"Strip","content":" ","stop":0}`, "decoder.start: missing"},
		{`{"type":"Strip","content":" ","start":0}`, "decoder.stop: missing"},
		{`{"type":"Strip","content":" ","start":-1,"stop":0}`, "decoder: Strip: json:"},
		{`{"type":"Metaspace"}`, "decoder.replacement: expected one character"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"sometimes"}`, `decoder.prepend_scheme: expected always, first or never, got "sometimes"`},
		{`{"type":"Metaspace","replacement":"▁","add_prefix_space":false}`, `decoder.add_prefix_space: false contradicts prepend_scheme "always"`},
		{`{"type":"WordPiece","cleanup":true}`, "decoder.prefix: missing"},
		{`{"type":"WordPiece","prefix":"##"}`, "decoder.cleanup: missing"},
		{`{"type":"BPEDecoder"}`, "decoder.suffix: expected"},
		{`{"type":"CTC","word_delimiter_token":"|","cleanup":true}`, "decoder.pad_token: missing"},
		{`{"type":"CTC","pad_token":"","word_delimiter_token":"","cleanup":true}`, "decoder.word_delimiter_token: expected"},
		{`{"type":"CTC","pad_token":"","word_delimiter_token":"|"}`, "decoder.cleanup: missing"},
		{strings.Repeat(`{"type":"Sequence","decoders":[`, 40) + strings.Repeat("]}", 40), "nested deeper than 32"},
	} {
		_, err := Parse([]byte(tc.raw))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.raw, err, tc.want)
		}
	}
}

func TestByteLevel(t *testing.T) {
	for _, tc := range []struct {
		raw  string
		want bool
	}{
		{`{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`, true},
		{`{"type":"Sequence","decoders":[{"type":"Sequence","decoders":[]},{"type":"ByteLevel"}]}`, true},
		{`{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"a"},"content":"b"},{"type":"ByteLevel"}]}`, false},
		{`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteLevel"}]}`, false},
		{`{"type":"Fuse"}`, false},
		{`null`, false},
		{``, false},
	} {
		d, err := Parse([]byte(tc.raw))
		if err != nil {
			t.Errorf("%s: %v", tc.raw, err)
		} else if d.ByteLevel() != tc.want {
			t.Errorf("%s: ByteLevel %v, want %v", tc.raw, d.ByteLevel(), tc.want)
		}
	}
}

func TestAppendBytes(t *testing.T) {
	for _, tc := range []struct{ token, want string }{
		{"", ""},
		{"Hello", "Hello"},
		{"ĠtheĊ", " the\n"},
		{"ĠæĹ¥", " 日"},
		{"Ā", "\x00"},
		{"ġ", "\x7F"},
		{"Ń", "\xAD"},
		{"ÿ", "\xFF"},
		{"ń", "ń"},               // one past the alphabet
		{"Ġa b", "Ġa b"},         // a space is not in it
		{"\u00AD", "\u00AD"},     // nor is this
		{"<｜User｜>", "<｜User｜>"}, // an added token
		{"\xFF", "\xFF"},
	} {
		if got := string(AppendBytes([]byte("x"), tc.token)); got != "x"+tc.want {
			t.Errorf("%q: %q, want %q", tc.token, got[1:], tc.want)
		}
	}
}

// FuzzParse shows that whatever Parse takes can be run.
func FuzzParse(f *testing.F) {
	for _, c := range knownChains {
		f.Add(c.spell())
	}
	f.Add([]byte(`{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"a*"},"content":"b"}]}`))
	f.Add([]byte(`{"type":"CTC","pad_token":"a","word_delimiter_token":"|","cleanup":true}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := Parse(raw)
		if err != nil {
			return
		}
		v := newVocab(d, []string{"▁a", "##b", "<0xE4>", "", " 's</w>"})
		ids := []uint32{0, 1, 2, 3, 4, 5, 4, 2}
		d.Decode(nil, v, ids, true)
		stream(d.NewStream(v, false), ids)
	})
}
