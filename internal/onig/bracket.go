package onig

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The state of a bracket expression between two items.
type bracketState uint8

const (
	atStart  bracketState = iota // nothing yet, or just behind &&
	hasValue                     // a character, which may begin a range, or a class
	inRange                      // a character and a hyphen
	complete                     // behind a range or a nested bracket
)

// bracketItem is a piece of a bracket expression.
type bracketItem struct {
	kind bracketKind
	off  int
	char rune // beyond Unicode at most if given by its number
	set  set
}

type bracketKind uint8

const (
	bChar bracketKind = iota
	bSet
	bHyphen
	bOpen
	bClose
	bAnd
	bEnd
)

// bracket parses a bracket expression behind its opening bracket.
func (p *parser) bracket() *node {
	off := p.tok.off
	base, not := p.brackets(off)
	n := &node{kind: kClass, off: off}
	if p.opts&ignoreCase == 0 {
		n.set = negateIf(base, not)
		return n
	}
	// Case is folded before the outermost negation, and only a class that is not
	// negated matches sequences of characters.
	f := caseFolds()
	n.set = negateIf(f.closure(base), not)
	alt := &node{kind: kAlt, off: off, kids: []*node{n}}
	for _, m := range f.multis {
		if not || !base.hasSome(m.chars) {
			continue
		}
		list := &node{kind: kList, off: off}
		for _, s := range m.parts {
			list.kids = append(list.kids, &node{kind: kClass, off: off, set: s})
		}
		alt.kids = append(alt.kids, list)
	}
	if len(alt.kids) > 1 {
		return alt
	}
	return n
}

// brackets returns the set in brackets before negation, and whether it is negated.
func (p *parser) brackets(off int) (base set, not bool) {
	p.enter()
	defer p.leave()
	if p.peek("^") {
		p.pos++
		not = true
	}
	b := bracketParser{p: p}
	it := p.item()
	if it.kind == bClose {
		if !strings.Contains(p.src[p.pos:], "]") {
			p.fail(off, "empty brackets")
		}
		it.kind, it.char = bChar, ']'
	}
	for it.kind != bClose {
		it = b.add(it)
	}
	b.flush()
	return b.result(), not
}

// bracketParser collects the items of one pair of brackets.
type bracketParser struct {
	p     *parser
	state bracketState
	value bracketItem // with hasValue and inRange
	spans []span      // of the current operand of &&
	sets  []set       // of the current operand of &&
	left  set         // the operands before
	and   bool        // there are some
}

// add takes an item and returns the one behind it.
func (b *bracketParser) add(it bracketItem) bracketItem {
	p := b.p
	switch it.kind {
	case bEnd:
		p.fail(it.off, "brackets without closing bracket")
	case bChar:
		b.char(it)
	case bSet:
		if b.state == inRange {
			p.fail(it.off, "range that ends with a class")
		}
		b.flush()
		b.sets = append(b.sets, it.set)
		b.state, b.value = hasValue, it
	case bHyphen:
		return b.hyphen(it)
	case bOpen:
		b.flush()
		s, not := p.brackets(it.off)
		b.sets = append(b.sets, negateIf(s, not))
		b.state = complete
	case bAnd:
		b.flush()
		b.left = b.result()
		b.and = true
		b.spans, b.sets, b.state = nil, nil, atStart
	}
	return p.item()
}

// hyphen decides whether a hyphen makes a range and returns the item behind it.
func (b *bracketParser) hyphen(it bracketItem) bracketItem {
	p := b.p
	self := bracketItem{kind: bChar, off: it.off, char: '-'}
	if b.state == inRange {
		b.char(self)
		return p.item()
	}
	next := p.item()
	switch {
	case b.state != hasValue || next.kind == bClose || next.kind == bAnd:
		b.char(self)
	case b.value.kind == bSet:
		p.fail(it.off, "range that begins with a class")
	default:
		b.state = inRange
	}
	return next
}

// char takes a character.
func (b *bracketParser) char(it bracketItem) {
	if b.state == inRange {
		lo, hi := b.value.char, it.char
		if lo > hi {
			b.p.fail(it.off, "range that ends before it begins")
		}
		b.spans = append(b.spans, span{lo, min(hi, unicode.MaxRune)})
		b.state = complete
		return
	}
	b.flush()
	if it.char > unicode.MaxRune {
		b.p.unsupported(it.off, "code point %X, which is no character", it.char)
	}
	b.state, b.value = hasValue, it
}

// flush puts a character that turned out not to begin a range into the set. One that
// is followed by a hyphen and an opening bracket is lost.
func (b *bracketParser) flush() {
	if b.state == hasValue && b.value.kind == bChar {
		b.spans = append(b.spans, span{b.value.char, b.value.char})
	}
	b.state = complete
}

func (b *bracketParser) result() set {
	s := newSet(b.spans...)
	for _, t := range b.sets {
		s = s.or(t)
	}
	if b.and {
		s = s.and(b.left)
	}
	return s
}

// item reads an item.
func (p *parser) item() bracketItem {
	it := bracketItem{off: p.pos}
	if p.pos == len(p.src) {
		it.kind = bEnd
		return it
	}
	c, size := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += size
	it.char = c
	switch {
	case c == ']':
		it.kind = bClose
	case c == '-':
		it.kind = bHyphen
	case c == '&' && p.peek("&"):
		p.pos++
		it.kind = bAnd
	case c == '[':
		it.kind = bOpen
		if s, ok := p.posixBracket(); ok {
			it.kind, it.set = bSet, s
		}
	case c == '\\':
		p.bracketEscape(&it)
	}
	return it
}

// posixBracket reads [:name:] behind the opening bracket, if that is what it begins.
func (p *parser) posixBracket() (set, bool) {
	if !p.peek(":") {
		return nil, false
	}
	rest := p.src[p.pos+1:]
	i := strings.Index(rest, ":")
	if i <= 0 || !strings.HasPrefix(rest[i:], ":]") {
		return nil, false
	}
	name := rest[:i]
	for j, r := range name {
		if !unicode.IsLetter(r) && (r != '^' || j > 0) {
			return nil, false
		}
	}
	positive, not := strings.CutPrefix(name, "^")
	t, ok := ctypes[positive]
	if !ok {
		p.fail(p.pos-1, "unknown class [:%s:]", name)
	}
	p.pos += len(name) + len("::]")
	return negateIf(p.sets.ctype(t, p.opts), not), true
}

// bracketEscape makes an item of what follows a backslash.
func (p *parser) bracketEscape(it *bracketItem) {
	if p.pos == len(p.src) {
		p.fail(it.off, "backslash at the end")
	}
	c, size := utf8.DecodeRuneInString(p.src[p.pos:])
	if s, ok := p.typeEscape(c); ok {
		p.pos += size
		it.kind, it.set = bSet, s
		return
	}
	it.char = c
	p.pos += size
	switch c {
	case 'p', 'P':
		if p.peek("{") {
			it.kind, it.set = bSet, p.property(c == 'P', true)
		}
	case 'x', 'u', 'o':
		if p.pos == len(p.src) {
			return
		}
		switch r, kind := p.number(c, it.off); kind {
		case isByte:
			it.char = p.character(r, 16, it.off)
		case isCode:
			it.char = r
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		p.pos--
		r, _ := p.scan(8, 3)
		if r > 0xff {
			p.fail(it.off, "octal number beyond 377")
		}
		it.char = p.character(r, 8, it.off)
	default:
		p.pos -= size
		it.char = p.controlEscape(it.off)
	}
}
