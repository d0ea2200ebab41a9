package tokenize

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ids returns the byte ids of a string.
func ids(s string) []uint32 {
	out := make([]uint32, 0, len(s))
	for _, b := range []byte(s) {
		out = append(out, uint32(b))
	}
	return out
}

func join(parts ...any) []uint32 {
	out := []uint32{}
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, ids(p)...)
		case uint32:
			out = append(out, p)
		}
	}
	return out
}

func TestBytesEncode(t *testing.T) {
	for _, tc := range []struct {
		text    string
		special bool
		want    []uint32
	}{
		{"", true, join()},
		{"aé\x00\xff", false, []uint32{97, 0xc3, 0xa9, 0, 255}},
		{"<|im_start|>user", true, join(IMStart, "user")},
		{"<|im_start|>user", false, ids("<|im_start|>user")},
		{"a<|bos|><|eos|>b<|im_end|>", true, join("a", BOS, EOS, "b", IMEnd)},
		{"<|<|eos|>", true, join("<|", EOS)},
		{"<<|eos|>|>", true, join("<", EOS, "|>")},
		{"<|unk|><|eos|", true, ids("<|unk|><|eos|")},
	} {
		got, err := Bytes{}.Encode([]uint32{}, []byte(tc.text), tc.special)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("Encode(%q, %v) (-want +got):\n%s", tc.text, tc.special, diff)
		}
		back, err := Bytes{}.Decode(nil, got)
		if err != nil || string(back) != tc.text {
			t.Errorf("Decode(Encode(%q)) = %q, %v", tc.text, back, err)
		}
	}
}

func TestBytesDecodeUnknown(t *testing.T) {
	got, err := Bytes{}.Decode([]byte("kept"), []uint32{104, 105, BytesVocab})
	var unknown *UnknownIDError
	if !errors.As(err, &unknown) || unknown.ID != BytesVocab || unknown.Index != 2 {
		t.Errorf("err = %v, want the id %d at index 2", err, BytesVocab)
	}
	if want := "token id 260 at index 2 is not in the vocabulary"; err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	if string(got) != "kept" {
		t.Errorf("dst = %q, want it as it came", got)
	}
}

func TestBytesAllocs(t *testing.T) {
	text := []byte(strings.Repeat("<|im_start|>user\nHello there<|", 100))
	dst := make([]uint32, 0, len(text))
	back := make([]byte, 0, len(text))
	for _, special := range []bool{false, true} {
		if n := testing.AllocsPerRun(100, func() {
			dst, _ = Bytes{}.Encode(dst[:0], text, special)
			back, _ = Bytes{}.Decode(back[:0], dst)
		}); n != 0 {
			t.Errorf("special=%v: %v allocations", special, n)
		}
	}
}

func FuzzBytes(f *testing.F) {
	f.Add([]byte("<|im_start|>user\n<|<|bos|>\xff<|im_end|>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, special := range []bool{false, true} {
			got, err := Bytes{}.Encode(nil, text, special)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range got {
				if !special && id > 255 {
					t.Errorf("special id %d in literal text", id)
				}
			}
			back, err := Bytes{}.Decode(nil, got)
			if err != nil || !bytes.Equal(back, text) {
				t.Errorf("special=%v: %q became %q, %v", special, text, back, err)
			}
		}
	})
}

func BenchmarkBytesEncode(b *testing.B) {
	text := make([]byte, 32<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range text {
		text[i] = byte(' ' + rng.IntN(95))
	}
	dst := make([]uint32, 0, len(text))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = Bytes{}.Encode(dst[:0], text, true)
	}
}

func TestSourceString(t *testing.T) {
	for s, want := range map[Source]string{None: "none", Local: "local", Engine: "engine", Client: "client", 9: "source(9)"} {
		if got := s.String(); got != want {
			t.Errorf("Source(%d) = %q, want %q", s, got, want)
		}
	}
}
