package onig

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// TestClasses compares classes with the code points that Oniguruma 6.9.10 takes for
// members: how many, and the checksum of all of them as 32-bit little-endian numbers.
func TestClasses(t *testing.T) {
	tests := []struct {
		pattern string
		count   int
		sum     uint32
	}{
		{`\w`, 144671, 0xbd44d657},
		{`\W`, 967393, 0x38f4a824},
		{`\d`, 760, 0xde9ce32f},
		{`\s`, 25, 0xd19c46d5},
		{`\S`, 1112039, 0x861d1788},
		{`\h`, 22, 0x7fd459d9},
		{`.`, 1112063, 0x74260472},
		{`[\w]`, 144665, 0xbfe74417},
		{`[\W]`, 967399, 0xe8e4f81d},
		{`[[:alnum:]]`, 143519, 0x8eb21737},
		{`[[:alpha:]]`, 142759, 0x274fb68f},
		{`[[:blank:]]`, 18, 0xc31a0c3d},
		{`[[:cntrl:]]`, 65, 0x9144624f},
		{`[[:digit:]]`, 760, 0xde9ce32f},
		{`[[:graph:]]`, 292447, 0x47acc632},
		{`[[:lower:]]`, 2569, 0x314675d5},
		{`[[:print:]]`, 292464, 0x898d54f4},
		{`[[:punct:]]`, 9369, 0x954564b4},
		{`[[:space:]]`, 25, 0xd19c46d5},
		{`[[:upper:]]`, 1978, 0xf7347bc3},
		{`[[:xdigit:]]`, 22, 0x7fd459d9},
		{`[[:word:]]`, 144665, 0xbfe74417},
		{`[[:ascii:]]`, 128, 0x90d5523a},
		{`\p{Punct}`, 855, 0x416b577c},
		{`\p{L}`, 141028, 0xde227172},
		{`\p{Lu}`, 1858, 0xeedd1447},
		{`\p{Ll}`, 2258, 0x7453f1a7},
		{`\p{Lt}`, 31, 0xc8a1b5e4},
		{`\p{Lm}`, 404, 0x3bceb6d2},
		{`\p{Lo}`, 136477, 0x948dcc63},
		{`\p{LC}`, 4147, 0xad840838},
		{`\p{M}`, 2501, 0xda255f26},
		{`\p{Mn}`, 2020, 0x6b8b0340},
		{`\p{N}`, 1911, 0x6e156058},
		{`\p{Nd}`, 760, 0xde9ce32f},
		{`\p{Nl}`, 236, 0x2a5be6d1},
		{`\p{No}`, 915, 0xe78f4bb0},
		{`\p{P}`, 855, 0x416b577c},
		{`\p{Pc}`, 10, 0xa4a142c8},
		{`\p{S}`, 8514, 0x835595ac},
		{`\p{Sm}`, 950, 0xdfeee919},
		{`\p{Z}`, 19, 0xed8260cf},
		{`\p{Zs}`, 17, 0x02090531},
		{`\p{C}`, 957236, 0x0d9a95bc},
		{`\p{Cn}`, 819533, 0x1cd41297},
		{`\p{Co}`, 137468, 0x013598cc},
		{`\p{Han}`, 99030, 0xe9d785eb},
		{`\p{Hiragana}`, 381, 0x24043bcf},
		{`\p{Katakana}`, 321, 0x193d5836},
		{`\p{Hangul}`, 11739, 0x31ea8b16},
		{`\p{Latin}`, 1487, 0x40bf1506},
		{`\p{Cyrillic}`, 508, 0xf47deb5c},
		{`\p{Arabic}`, 1373, 0x54072619},
		{`\p{Common}`, 9053, 0x8091bdeb},
		{`\p{Inherited}`, 657, 0xcd673d04},
		{`\p{Unknown}`, 957001, 0x15882736},
		{`\p{Any}`, 1112064, 0x98b9572e},
		{`\p{Assigned}`, 292531, 0xb1621500},
		{`\p{Alphabetic}`, 142759, 0x274fb68f},
		{`\p{White_Space}`, 25, 0xd19c46d5},
		{`(?i)[\p{Lu}]`, 3266, 0xa5c7db7e},
		{`(?i)[^\p{Ll}]`, 1108388, 0x782cf840},
		{`(?i)[a-z]`, 54, 0x9c1f64f2},
		{`(?i)[ß-ÿ]`, 66, 0xb2f63abc},
		{`(?W)\w`, 63, 0x91cfa6fe},
		{`(?P)[[:^upper:]]`, 1112038, 0x8f61651c},
	}
	for _, tt := range tests {
		n, err := parse(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		for n.kind != kClass {
			n = n.kids[0]
		}
		var all []byte
		for _, s := range n.set.and(set{{0xd800, 0xdfff}}.not()) {
			for r := s.lo; r <= s.hi; r++ {
				all = binary.LittleEndian.AppendUint32(all, uint32(r))
			}
		}
		if count, sum := len(all)/4, crc32.ChecksumIEEE(all); count != tt.count || sum != tt.sum {
			t.Errorf("%s: %d code points with checksum %#x, want %d, %#x", tt.pattern, count, sum, tt.count, tt.sum)
		}
	}
}

// TestFolds checks which characters are alike. Oniguruma 6.9.10 was asked about each
// of them, and these are its answers.
func TestFolds(t *testing.T) {
	var all []byte
	count := 0
	f := caseFolds()
	for r := rune(0); r <= 0x1ffff; r++ {
		s := f.variants(r)
		if len(s) == 1 && s[0].lo == s[0].hi {
			continue
		}
		count++
		for _, s := range s {
			for v := s.lo; v <= s.hi; v++ {
				all = binary.LittleEndian.AppendUint32(all, uint32(v))
			}
		}
	}
	if sum := crc32.ChecksumIEEE(all); count != wantFolds || sum != wantFoldSum {
		t.Errorf("%d characters with variants, checksum %#x; want %d, %#x", count, sum, wantFolds, wantFoldSum)
	}
	for _, tt := range []struct {
		text  string
		took  int
		chars string
	}{
		{"ss", 2, "ßẞ"},
		{"Sſx", 2, "ßẞ"},
		{"ffi", 3, "ﬃ"},
		{"ffx", 2, "ﬀ"},
		{"ST", 2, "ﬅﬆ"},
		{"i\u0307", 2, "\u0130"},
		{"\u0399\u0308\u0301", 3, "\u0390\u1fd3"},
		{"sx", 0, ""},
		{"ß", 0, ""},
	} {
		m, took := f.prefix([]rune(tt.text))
		chars := ""
		if m != nil {
			for _, s := range m.chars {
				for r := s.lo; r <= s.hi; r++ {
					chars += string(r)
				}
			}
		}
		if took != tt.took || chars != tt.chars {
			t.Errorf("prefix(%q) = %q, %d, want %q, %d", tt.text, chars, took, tt.chars, tt.took)
		}
	}
}

const (
	wantFolds   = 2938
	wantFoldSum = uint32(0xddb4ab2c)
)
