package normal

import (
	"bytes"
	"strings"
	"testing"
)

// Samples of text of about 64 KB each.
var samples = []struct{ name, text string }{
	{"english", strings.Repeat("The quick brown fox jumps over the lazy dog, and then it does so again. ", 900)},
	{"cyrillic", strings.Repeat("Съешь ещё этих мягких французских булок, да выпей чаю. ", 700)},
	{"cjk", strings.Repeat("天地玄黄宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏。", 850)},
	{"kana", strings.Repeat("いろはにほへとちりぬるを、ワカヨタレソツネナラム。", 850)},
	{"korean", strings.Repeat("키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. ", 700)},
	{"vietnamese", strings.Repeat("Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm. ", 700)},
	{"devanagari", strings.Repeat("सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है। ", 350)},
}

// benchmark reports the speed of n on all samples.
func benchmark(b *testing.B, n Normalizer) {
	for _, s := range samples {
		b.Run(s.name, func(b *testing.B) { benchmarkText(b, n, []byte(s.text)) })
	}
}

func benchmarkText(b *testing.B, n Normalizer, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		if out := n.Normalize(dst, text); !same(out, text) {
			dst = out
		}
	}
}

// All texts but the last two are in form. On one core of a shared Xeon, in
// MB/s: english 5787, cyrillic 1825, cjk 1752, kana 540, korean 1081,
// vietnamese 552, devanagari 457, decomposed 93, marks 49.
func BenchmarkNFC(b *testing.B) {
	benchmark(b, nfc)
	for _, s := range samples {
		if s.name == "vietnamese" {
			b.Run("decomposed", func(b *testing.B) { benchmarkText(b, nfc, nfd.Normalize(nil, []byte(s.text))) })
		}
	}
	b.Run("marks", func(b *testing.B) { benchmarkText(b, nfc, bytes.Repeat([]byte("\u0301\u0323"), 1<<18)) })
}

func BenchmarkNFKC(b *testing.B) { benchmark(b, nfkc) }

func BenchmarkLowercase(b *testing.B) { benchmark(b, lowercase) }

// On the same machine: english 885, cyrillic 1514, vietnamese 1133, spaces 290.
func BenchmarkReplaceSpace(b *testing.B) {
	benchmark(b, newReplaceByte(' ', "▁"))
	b.Run("spaces", func(b *testing.B) { benchmarkText(b, newReplaceByte(' ', "▁"), bytes.Repeat([]byte(" "), 1<<16)) })
}

func BenchmarkBert(b *testing.B) {
	n, err := Parse([]byte(`{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true}`))
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, n)
}

func BenchmarkPrecompiled(b *testing.B) {
	n, err := newPrecompiled(charsMap(nfkcMap()))
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, n)
}
