package split

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/ucd"
)

// at returns the classes and the length of the rune at i.
func at(text []byte, i int) (ucd.Class, int) {
	if c := text[i]; c < utf8.RuneSelf {
		return ucd.ASCII[c], 1
	}
	r, n := decode(text[i:])
	return ucd.Of(r), n
}

// decode is utf8.DecodeRune for a text that does not begin with an ASCII character,
// quick where two or three bytes are valid.
func decode(text []byte) (rune, int) {
	if len(text) > 2 {
		c, d := text[0], text[1]
		if c-0xC2 < 0xE0-0xC2 && d&0xC0 == 0x80 {
			return rune(c&0x1F)<<6 | rune(d&0x3F), 2
		}
		if e := text[2]; c-0xE1 < 0xED-0xE1 && d&0xC0 == 0x80 && e&0xC0 == 0x80 {
			return rune(c&0x0F)<<12 | rune(d&0x3F)<<6 | rune(e&0x3F), 3
		}
	}
	return utf8.DecodeRune(text)
}

// isLetter reports whether c is one of A-Z and a-z.
func isLetter(c byte) bool { return (c|0x20)-'a' < 26 }

const (
	each  = 0x0101010101010101 // a byte in every byte
	highs = 0x80 * each        // the top bits
)

// nonLetters sets the top bit of every byte of x that is not an ASCII letter.
func nonLetters(x uint64) uint64 {
	y := (x | 0x20*each) &^ highs
	atLeast := y + (0x80-'a')*each
	above := y + (0x80-'z'-1)*each
	return (^atLeast | above | x) & highs
}

// nonLower sets the top bit of every byte of x that is not one of a-z.
func nonLower(x uint64) uint64 {
	y := x &^ highs
	atLeast := y + (0x80-'a')*each
	above := y + (0x80-'z'-1)*each
	return (^atLeast | above | x) & highs
}

// asciiLetters returns the end of the run of ASCII letters from i.
func asciiLetters(text []byte, i int) int {
	for ; len(text)-i >= 8; i += 8 {
		if m := nonLetters(binary.LittleEndian.Uint64(text[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(text) && isLetter(text[i]) {
		i++
	}
	return i
}

// letters returns the end of the run from i of ASCII letters and of other runes of
// class letter, to which the ASCII letters must belong.
func letters(text []byte, i int, letter ucd.Class) int {
	for {
		i = asciiLetters(text, i)
		if i == len(text) || text[i] < utf8.RuneSelf {
			return i
		}
		for i < len(text) && text[i] >= utf8.RuneSelf {
			r, n := decode(text[i:])
			if ucd.Of(r)&letter == 0 {
				return i
			}
			i += n
		}
	}
}

// run returns the end of the run from i of runes that have a class of want.
func run(text []byte, i int, want ucd.Class) int {
	for i < len(text) {
		k, n := at(text, i)
		if k&want == 0 {
			break
		}
		i += n
	}
	return i
}

// runNot returns the end of the run from i of runes that have no class of not.
func runNot(text []byte, i int, not ucd.Class) int {
	for i < len(text) {
		if c := text[i]; c < utf8.RuneSelf {
			if ucd.ASCII[c]&not != 0 {
				break
			}
			i++
			continue
		}
		r, n := decode(text[i:])
		if ucd.Of(r)&not != 0 {
			break
		}
		i += n
	}
	return i
}

// upTo returns the end of the run from i of at most n runes of class want.
func upTo(text []byte, i, n int, want ucd.Class) int {
	for ; n > 0 && i < len(text); n-- {
		k, size := at(text, i)
		if k&want == 0 {
			break
		}
		i += size
	}
	return i
}

// lines returns the end of the run from i of CR and LF, and of slashes if wanted.
func lines(text []byte, i int, slash bool) int {
	for i < len(text) && (text[i] == '\n' || text[i] == '\r' || slash && text[i] == '/') {
		i++
	}
	return i
}

// blanks looks at the run of white space that begins at i: its end, the start of
// its last rune, and the end of its last CR or LF, 0 when it has none.
func blanks(text []byte, i int) (end, last, line int) {
	last = i
	for i < len(text) {
		k, n := ucd.Class(0), 1
		if c := text[i]; c < utf8.RuneSelf {
			k = ucd.ASCII[c]
		} else {
			var r rune
			r, n = decode(text[i:])
			k = ucd.Of(r)
		}
		if k&ucd.Space == 0 {
			break
		}
		last = i
		i += n
		if k&ucd.NewLine != 0 {
			line = i
		}
	}
	return i, last, line
}

// blank returns the end of the piece that begins with the white space at i, by the
// rules \s*[\r\n]+|\s+(?!\S)|\s+.
func blank(text []byte, i int) int {
	end, last, line := blanks(text, i)
	switch {
	case line > 0:
		return line
	case end == len(text) || last == i:
		return end
	}
	return last
}

// contraction returns the end of one of 's 't 're 've 'm 'll 'd at i, in any case,
// or i. The long s folds to s.
func contraction(text []byte, i int) int {
	if len(text)-i < 2 || text[i] != '\'' {
		return i
	}
	switch text[i+1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if len(text)-i > 2 && text[i+2]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if len(text)-i > 2 && text[i+2]|0x20 == 'l' {
			return i + 3
		}
	case 0xC5 | 0x20:
		if len(text)-i > 2 && text[i+1] == 0xC5 && text[i+2] == 0xBF { // U+017F
			return i + 3
		}
	}
	return i
}

// smallContraction is contraction for lower case only.
func smallContraction(text []byte, i int) int {
	if len(text)-i < 2 || text[i] != '\'' {
		return i
	}
	switch text[i+1] {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if len(text)-i > 2 && text[i+2] == 'e' {
			return i + 3
		}
	case 'l':
		if len(text)-i > 2 && text[i+2] == 'l' {
			return i + 3
		}
	}
	return i
}

// rest returns the end of the piece at i when it is not a word: a number of at most
// digits runes, a run of other runes (not white space, letter or number) that may
// take a space in front and line ends behind, or white space. The rune at i has the
// classes k and n bytes.
func rest(text []byte, i int, k ucd.Class, n int, letter ucd.Class, digits int, slash bool) int {
	if k&ucd.Number != 0 {
		return upTo(text, i+n, digits-1, ucd.Number)
	}
	not := ucd.Space | ucd.Number | letter
	if k&not == 0 {
		return lines(text, runNot(text, i+n, not), slash)
	}
	if text[i] == ' ' && i+1 < len(text) {
		if k, n := at(text, i+1); k&not == 0 {
			return lines(text, runNot(text, i+1+n, not), slash)
		}
	}
	return blank(text, i)
}
