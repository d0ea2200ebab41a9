package onig

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

var noNewline = singleton('\n').not()

type tokenKind uint8

const (
	tEnd  tokenKind = iota
	tChar           // a character that joins its neighbours to a string
	tNode           // something complete
	tRepeat
	tAlt
	tOpen
	tClose
	tBracket
)

// token is a piece of the pattern outside of brackets.
type token struct {
	kind               tokenKind
	off                int
	char               rune  // tChar
	node               *node // tNode
	lo, hi             int   // tRepeat
	greedy, possessive bool  // tRepeat
}

// next reads a token into tok.
func (p *parser) next() {
	p.skip()
	p.tok = token{off: p.pos}
	if p.pos == len(p.src) {
		return
	}
	c, size := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += size
	switch c {
	case '\\':
		p.escape()
	case '.':
		s := noNewline
		if p.opts&dotNewline != 0 {
			s = everything
		}
		p.dot(s)
	case '*':
		p.repeat(0, infinite)
	case '+':
		p.repeat(1, infinite)
	case '?':
		p.repeat(0, 1)
	case '{':
		if !p.interval() {
			p.tok.kind, p.tok.char = tChar, c
		}
	case '|':
		p.tok.kind = tAlt
	case '(':
		p.tok.kind = tOpen
	case ')':
		p.tok.kind = tClose
	case '^':
		p.anchor(beginLine)
	case '$':
		p.anchor(endLine)
	case '[':
		p.tok.kind = tBracket
	default:
		p.tok.kind, p.tok.char = tChar, c
	}
}

// skip passes over comments, and over white space where that does not count.
func (p *parser) skip() {
	for p.pos < len(p.src) {
		rest := p.src[p.pos:]
		switch {
		case strings.HasPrefix(rest, "(?#"):
			off := p.pos
			for p.pos += 3; ; p.pos++ {
				if p.pos >= len(p.src) {
					p.fail(off, "comment without closing parenthesis")
				}
				if p.src[p.pos] == ')' {
					p.pos++
					break
				}
				if p.src[p.pos] == '\\' {
					p.pos++
				}
			}
		case p.opts&extended != 0 && rest[0] == '#':
			if i := strings.IndexByte(rest, '\n'); i >= 0 {
				p.pos += i + 1
			} else {
				p.pos = len(p.src)
			}
		case p.opts&extended != 0 && strings.IndexByte(" \t\n\r\f", rest[0]) >= 0:
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) class(s set) {
	p.tok.kind = tNode
	p.tok.node = &node{kind: kClass, off: p.tok.off, set: s}
}

func (p *parser) dot(s set) {
	p.class(s)
	p.tok.node.dot = true
}

func (p *parser) anchor(a anchor) {
	p.tok.kind = tNode
	p.tok.node = &node{kind: kAnchor, off: p.tok.off, anchor: a}
}

// code makes a string of its own of a character.
func (p *parser) code(r rune) {
	if r > unicode.MaxRune || r >= 0xd800 && r < 0xe000 {
		p.unsupported(p.tok.off, "code point %X, which is no character", r)
	}
	p.tok.kind = tNode
	p.tok.node = &node{kind: kString, off: p.tok.off, runes: []rune{r}, fold: p.opts&ignoreCase != 0}
}

func (p *parser) peek(prefix string) bool { return strings.HasPrefix(p.src[p.pos:], prefix) }

// repeat makes a quantifier of *, + or ? and what follows.
func (p *parser) repeat(lo, hi int) {
	p.tok.kind, p.tok.lo, p.tok.hi, p.tok.greedy = tRepeat, lo, hi, true
	switch {
	case p.peek("?"):
		p.pos++
		p.tok.greedy = false
	case p.peek("+"):
		p.pos++
		p.tok.possessive = true
	}
}

// interval reads {n}, {n,}, {,m} or {n,m} behind the brace and tells whether there
// was one; a brace that begins none stands for itself. With n greater than m it is
// possessive. There is no lazy {n}, and + behind an interval is a quantifier of its
// own.
func (p *parser) interval() bool {
	pos := p.pos
	number := func() (n int, ok bool) {
		for pos < len(p.src) && p.src[pos] >= '0' && p.src[pos] <= '9' {
			if n = n*10 + int(p.src[pos]-'0'); n > maxRepeat {
				p.fail(p.tok.off, "repetition of more than %d times", maxRepeat)
			}
			ok = true
			pos++
		}
		return n, ok
	}
	lo, hasLo := number()
	hi, fixed := lo, true
	if pos < len(p.src) && p.src[pos] == ',' {
		pos++
		fixed = false
		var hasHi bool
		if hi, hasHi = number(); !hasHi {
			if !hasLo {
				return false
			}
			hi = infinite
		}
	} else if !hasLo {
		return false
	}
	if pos == len(p.src) || p.src[pos] != '}' {
		return false
	}
	p.pos = pos + 1
	p.tok.kind, p.tok.lo, p.tok.hi, p.tok.greedy = tRepeat, lo, hi, true
	switch {
	case lo > hi:
		p.tok.lo, p.tok.hi, p.tok.possessive = hi, lo, true
	case !fixed && p.peek("?"):
		p.pos++
		p.tok.greedy = false
	}
	return true
}
