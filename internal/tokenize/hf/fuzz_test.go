package hf

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

// maxRead is what reading a small file may allocate: tables are as long as the
// largest id is great.
const maxRead = 24 * (maxID + 1)

// allocated returns the bytes that have been allocated until now.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// checkRead reads a tokenizer and uses it: what it gives must be the same twice,
// and be tokens.
func checkRead(t *testing.T, data []byte, text string, read func([]byte) (*Tokenizer, error)) {
	t.Helper()
	before := allocated()
	tok, err := read(data)
	if n := allocated() - before; n > maxRead+1000*uint64(len(data)) {
		t.Errorf("%d bytes allocated for a file of %d", n, len(data))
	}
	if err != nil {
		return
	}
	ids, err := tok.Encode(nil, []byte(text), true)
	if err != nil {
		return
	}
	if again, err := tok.Encode(nil, []byte(text), true); err != nil || !slices.Equal(ids, again) {
		t.Errorf("%q: %d, then %d, %v", text, ids, again, err)
	}
	for _, id := range ids {
		if _, _, ok := tok.Token(id); !ok {
			t.Errorf("%q: id %d is not a token", text, id)
		}
	}
	tok.DecodeText(nil, ids, true)
	tok.DecodeText(nil, []uint32{0, 255, 256, maxID, none}, false)
}

// byteLines are the lines of a file in tiktoken's form for the 256 bytes.
var byteLines = func() []byte {
	var b bytes.Buffer
	for c := range 256 {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(c)}), c)
	}
	return b.Bytes()
}()

func FuzzParseTiktoken(f *testing.F) {
	f.Add([]byte("YWI= 256\nIGE= 257\n"), true, `\s?[a-z]+|[\s\S]`, "<a>", uint32(258), "ab ab<a>")
	f.Add([]byte("YWI= 16777215\r\n\n"), true, `\p{L}+`, "", uint32(0), "ab")
	f.Add([]byte("YQ== 0\nYg== 99999999999\n"), false, "a", "a", uint32(1<<31), "")
	f.Add([]byte("YQ==  1"), false, "(", "<a>", uint32(1), "a")
	f.Fuzz(func(t *testing.T, data []byte, whole bool, pattern, added string, id uint32, text string) {
		if whole { // or no input would ever have all the bytes
			data = append(slices.Clone(byteLines), data...)
		}
		checkRead(t, data, text, func(data []byte) (*Tokenizer, error) {
			return ParseTiktoken(data, pattern, []AddedToken{{ID: id, Content: added, Special: true}})
		})
	})
}

// compactFile makes a file in the compact form of a header, lengths and text.
func compactFile(header string, lengths []uint64, text string) []byte {
	out := binary.AppendUvarint([]byte(compactMagic), uint64(len(header)))
	out = append(out, header...)
	for _, n := range lengths {
		out = binary.AppendUvarint(out, n)
	}
	return append(out, text...)
}

func FuzzReadCompact(f *testing.F) {
	whole, err := Compact([]byte(cutFile(AddedToken{Content: "<a>", LStrip: true})))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, "ab <a> ab")
	for _, file := range hugeFiles() {
		f.Add(file, "ab")
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		checkRead(t, data, text, ReadCompact)
	})
}

// hugeFiles are files in compact form that claim to hold more than they do.
func hugeFiles() map[string][]byte {
	header := func(tokens string) string {
		return `{"fingerprint":"00","pre_tokenizer":null,"decoder":null,"added_tokens":null,"tokens":` + tokens + `}`
	}
	return map[string][]byte{
		"header":                 binary.AppendUvarint([]byte(compactMagic), 1<<62),
		"tokens":                 compactFile(header("1000000000000"), nil, "ab"),
		"more tokens than bytes": compactFile(header("4"), []uint64{1}, "ab"),
		"fewer than none":        compactFile(header("-1"), nil, "ab"),
		"length":                 compactFile(header("1"), []uint64{1 << 62}, "ab"),
		"lengths of 64 bits":     compactFile(header("2"), []uint64{1<<64 - 1, 3}, "ab"),
		"lengths of 32 bits":     compactFile(header("3"), []uint64{1 << 31, 1 << 31, 2}, "ab"),
		"sum of lengths":         compactFile(header("3"), []uint64{2, 2, 2}, "ab"),
	}
}

// TestHugeClaims: what a file says that it holds is not believed.
func TestHugeClaims(t *testing.T) {
	for name, file := range hugeFiles() {
		t.Run(name, func(t *testing.T) {
			before := allocated()
			if _, err := ReadCompact(file); err == nil {
				t.Error("no error")
			}
			if n := allocated() - before; n > 1<<20 {
				t.Errorf("%d bytes allocated", n)
			}
		})
	}
	for _, line := range []string{"YQ== 16777216\n", "YQ== 18446744073709551615\n", "YQ== " + strings.Repeat("9", 1000) + "\n"} {
		before := allocated()
		if _, err := ParseTiktoken([]byte(line), "a", nil); err == nil {
			t.Errorf("%.40q: no error", line)
		}
		if n := allocated() - before; n > 1<<20 {
			t.Errorf("%.40q: %d bytes allocated", line, n)
		}
	}
}
