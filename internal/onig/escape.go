package onig

import (
	"math"
	"strings"
	"unicode/utf8"
)

// escape makes a token of what follows a backslash.
func (p *parser) escape() {
	off := p.tok.off
	if p.pos == len(p.src) {
		p.fail(off, "backslash at the end")
	}
	c, size := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += size
	switch c {
	case 'w', 'W':
		p.class(negateIf(p.sets.word(p.opts), c == 'W'))
	case 'd', 'D', 's', 'S', 'h', 'H':
		s, _ := p.typeEscape(c)
		p.class(s)
	case 'p', 'P':
		if !p.peek("{") {
			p.tok.kind, p.tok.char = tChar, c
			return
		}
		p.class(p.property(c == 'P', false))
	case 'b', 'B':
		a := wordBoundary
		if p.opts.ascii(ctWord) {
			a = wordBoundaryASCII
		}
		if c == 'B' {
			a++
		}
		p.anchor(a)
	case 'A':
		p.anchor(beginText)
	case 'Z':
		p.anchor(endTextOrLine)
	case 'z':
		p.anchor(endText)
	case 'G', 'K', 'X', 'y', 'Y':
		p.unsupported(off, `\%c`, c)
	case 'R':
		p.generalNewline()
	case 'N':
		p.dot(noNewline)
	case 'O':
		p.dot(everything)
	case 'k', 'g':
		if p.peek("<") || p.peek("'") {
			what := "back-reference"
			if c == 'g' {
				what = "subexpression call"
			}
			p.unsupported(off, `%s \%c%c…`, what, c, p.src[p.pos])
		}
		p.tok.kind, p.tok.char = tChar, c
	case 'x', 'u', 'o':
		p.numeric(c)
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		p.digits(c)
	default:
		p.pos -= size
		if r := p.controlEscape(off); r == c {
			p.tok.kind, p.tok.char = tChar, c
		} else {
			p.code(r)
		}
	}
}

func negateIf(s set, not bool) set {
	if not {
		return s.not()
	}
	return s
}

// typeEscape returns the class of \d, \s, \h and their opposites, and of \w as it is
// in brackets; false for other letters.
func (p *parser) typeEscape(c rune) (set, bool) {
	var t ctype
	switch c {
	case 'w', 'W':
		t = ctWord
	case 'd', 'D':
		t = ctDigit
	case 's', 'S':
		t = ctSpace
	case 'h', 'H':
		t = ctXDigit
	default:
		return nil, false
	}
	return negateIf(p.sets.ctype(t, p.opts), c < 'a'), true
}

// property reads the braces of \p{…}.
func (p *parser) property(not, inBrackets bool) set {
	off := p.pos - len(`\p`)
	p.pos++
	if p.peek("^") {
		p.pos++
		not = !not
	}
	i := strings.IndexAny(p.src[p.pos:], "}(){|")
	if i < 0 || p.src[p.pos+i] != '}' {
		p.fail(off, "property without closing brace")
	}
	name := p.src[p.pos : p.pos+i]
	p.pos += i + 1
	s, ok := p.sets.property(name, p.opts, inBrackets)
	if !ok {
		p.unsupported(off, "property %q, which is none of the general categories, scripts and POSIX names", name)
	}
	return negateIf(s, not)
}

// generalNewline makes the token of \R.
func (p *parser) generalNewline() {
	off := p.tok.off
	alt := &node{kind: kAlt, off: off, kids: []*node{
		{kind: kString, off: off, runes: []rune("\r\n")},
		{kind: kClass, off: off, set: set{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}},
	}}
	p.tok.kind = tNode
	p.tok.node = &node{kind: kAtomic, off: off, kids: []*node{alt}, newline: true}
}

// numeric makes a token of \x, \u or \o.
func (p *parser) numeric(c rune) {
	off := p.tok.off
	if p.pos == len(p.src) {
		p.tok.kind, p.tok.char = tChar, c
		return
	}
	r, kind := p.number(c, off)
	switch kind {
	case notNumber:
		p.tok.kind, p.tok.char = tChar, c
	case isByte:
		p.code(p.character(r, 0, off))
	default:
		p.code(r)
	}
}

// digits makes a token of a backslash and a digit: a back-reference, which is
// refused, or an octal number.
func (p *parser) digits(c rune) {
	off := p.tok.off
	if c != '0' {
		n := 0
		for i := p.pos - 1; i < len(p.src) && p.src[i] >= '0' && p.src[i] <= '9'; i++ {
			n = min(n*10+int(p.src[i]-'0'), 1001)
		}
		if n <= 1000 && (n <= 9 || n <= p.groups) {
			p.unsupported(off, `back-reference \%d`, n)
		}
		if c >= '8' {
			p.tok.kind, p.tok.char = tChar, c
			return
		}
		p.pos--
	}
	limit := 3
	if c == '0' {
		limit = 2
	}
	n, _ := p.scan(8, limit)
	p.code(p.character(n&0xff, 0, off))
}

type numberKind uint8

const (
	notNumber numberKind = iota
	isByte
	isCode
)

// number reads what follows \x, \u or \o. If that is no number it reads nothing.
func (p *parser) number(c rune, off int) (rune, numberKind) {
	base, limit := rune(16), 8
	switch {
	case c == 'u':
		r, n := p.scan(16, 4)
		if n < 4 {
			p.fail(off, `\u without four hexadecimal digits`)
		}
		return r, isCode
	case c == 'o':
		base, limit = 8, 11
	}
	if !p.peek("{") {
		if c == 'o' {
			return 0, notNumber
		}
		r, _ := p.scan(16, 2)
		return r, isByte
	}
	start := p.pos
	p.pos++
	r, n := p.scan(base, limit)
	if n == 0 {
		p.pos = start
		return 0, notNumber
	}
	switch {
	case p.peek("}"):
		p.pos++
	case p.peek(" ") || p.peek("\n") || p.peek("-"):
		p.unsupported(off, `sequence in \%c{…}`, c)
	default:
		p.fail(off, `\%c{ without a number and a closing brace`, c)
	}
	return r, isCode
}

// scan reads up to limit digits and returns their value and number. What does not
// fit becomes larger than any code point.
func (p *parser) scan(base rune, limit int) (v rune, n int) {
	for n < limit && p.pos < len(p.src) {
		d := rune(99)
		switch c := rune(p.src[p.pos]); {
		case c >= '0' && c <= '9':
			d = c - '0'
		case c >= 'a' && c <= 'f':
			d = c - 'a' + 10
		case c >= 'A' && c <= 'F':
			d = c - 'A' + 10
		}
		if d >= base {
			break
		}
		if v > (math.MaxInt32-d)/base {
			v = math.MaxInt32
		} else {
			v = v*base + d
		}
		n++
		p.pos++
	}
	return v, n
}

// character returns the character that begins with byte b, an escaped one. The rest
// of its encoding must follow as escaped bytes too; in brackets, where base is not
// 0, in the same base.
func (p *parser) character(b, base rune, off int) rune {
	if b < utf8.RuneSelf {
		return b
	}
	buf := []byte{byte(b)}
	for !utf8.FullRune(buf) {
		switch {
		case p.peek(`\x`) && !p.peek(`\x{`) && base != 8:
			p.pos += 2
			b, _ = p.scan(16, 2)
		case p.peek(`\`) && p.pos+1 < len(p.src) && p.src[p.pos+1] >= '0' && p.src[p.pos+1] <= '7' && base != 16:
			p.pos++
			limit := 3
			if p.src[p.pos] == '0' && base == 0 {
				p.pos++
				limit = 2
			}
			b, _ = p.scan(8, limit)
		default:
			p.fail(off, "escaped byte without the rest of a character")
		}
		buf = append(buf, byte(b))
	}
	r, size := utf8.DecodeRune(buf)
	if r == utf8.RuneError && size < len(utf8.AppendRune(nil, r)) {
		p.unsupported(off, "escaped bytes that are not UTF-8")
	}
	return r
}

// controlEscape reads \cx, \C-x, \M-x and their combinations behind the backslash,
// or a single character and returns the one it stands for.
func (p *parser) controlEscape(off int) rune {
	if p.pos == len(p.src) {
		p.fail(off, "escape without its end")
	}
	c, size := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += size
	arg := func() rune {
		if p.pos == len(p.src) {
			p.fail(off, "escape without its end")
		}
		c, size := utf8.DecodeRuneInString(p.src[p.pos:])
		p.pos += size
		if c == '\\' {
			return p.controlEscape(off)
		}
		return c
	}
	switch c {
	case 'M', 'C':
		if !p.peek("-") {
			p.fail(off, `\%c without -`, c)
		}
		p.pos++
		if c == 'M' {
			return arg()&0xff | 0x80
		}
		fallthrough
	case 'c':
		if p.peek("?") {
			p.pos++
			return 0x7f
		}
		return arg() & 0x9f
	}
	if i := strings.IndexRune("ntrfabev", c); i >= 0 {
		return rune("\n\t\r\f\a\b\x1b\v"[i])
	}
	return c
}
