package onig

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	maxPattern = 16 << 10 // bytes
	maxNesting = 500
	maxRepeat  = 100000
)

// ErrUnsupported is in the chain of errors about constructs that Oniguruma knows and
// this package does not. Other errors of Compile are about malformed patterns.
var ErrUnsupported = errors.New("not supported")

// SyntaxError is the error of Compile.
type SyntaxError struct {
	Offset int    // of the offending part, in bytes
	Reason string // what it is, and what was expected
	err    error
}

// Error describes the error.
func (e *SyntaxError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("regular expression: at byte %d: %s: %v", e.Offset, e.Reason, e.err)
	}
	return fmt.Sprintf("regular expression: at byte %d: %s", e.Offset, e.Reason)
}

// Unwrap returns ErrUnsupported, or nil.
func (e *SyntaxError) Unwrap() error { return e.err }

// parser turns a pattern into a tree. Its methods panic with a *SyntaxError, which
// parse recovers.
type parser struct {
	src    string
	pos    int // behind tok
	tok    token
	opts   options
	sets   tables
	groups int  // capturing groups so far
	named  bool // one of them has a name
	depth  int
}

// parse returns the tree of a pattern.
func parse(src string) (n *node, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *SyntaxError:
			n, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{src: src, sets: make(tables)}
	if len(src) > maxPattern {
		p.unsupported(maxPattern, "pattern longer than %d bytes", maxPattern)
	}
	if !utf8.ValidString(src) {
		p.fail(0, "invalid UTF-8")
	}
	p.next()
	n = p.alternatives(false)
	if p.named {
		n = n.dropUnnamed()
	}
	n.joinStrings()
	p.checkLead(n)
	p.checkBehinds(n)
	return n, nil
}

func (p *parser) fail(off int, format string, args ...any) {
	panic(&SyntaxError{Offset: off, Reason: fmt.Sprintf(format, args...)})
}

func (p *parser) unsupported(off int, format string, args ...any) {
	panic(unsupported(off, format, args...))
}

func unsupported(off int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Offset: off, Reason: fmt.Sprintf(format, args...), err: ErrUnsupported}
}

// enter counts a level of nesting; leave takes it back.
func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.unsupported(p.tok.off, "nesting deeper than %d", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

// alternatives parses up to the parenthesis that closes a group, or up to the end.
// The closing token is left in tok.
func (p *parser) alternatives(inGroup bool) *node {
	p.enter()
	defer p.leave()
	opts, off := p.opts, p.tok.off
	kids := []*node{p.branch(inGroup)}
	for p.tok.kind == tAlt {
		p.next()
		kids = append(kids, p.branch(inGroup))
	}
	if inGroup && p.tok.kind != tClose {
		p.fail(off, "group without closing parenthesis")
	}
	p.opts = opts
	if len(kids) == 1 {
		return kids[0]
	}
	return &node{kind: kAlt, off: off, kids: kids}
}

func (p *parser) atEndOfBranch(inGroup bool) bool {
	switch p.tok.kind {
	case tEnd, tAlt:
		return true
	case tClose:
		if !inGroup {
			p.fail(p.tok.off, "closing parenthesis without a group")
		}
		return true
	}
	return false
}

func (p *parser) branch(inGroup bool) *node {
	off := p.tok.off
	if p.atEndOfBranch(inGroup) {
		return &node{kind: kString, off: off}
	}
	first := p.repeated(inGroup)
	if p.atEndOfBranch(inGroup) {
		return first
	}
	list := &node{kind: kList, off: off, kids: []*node{first}}
	for !p.atEndOfBranch(inGroup) {
		if n := p.repeated(inGroup); n.kind == kList {
			list.kids = append(list.kids, n.kids...)
		} else {
			list.kids = append(list.kids, n)
		}
	}
	return list
}

// repeated parses something and the quantifiers behind it. A quantifier behind a
// string belongs to its last character; then the result is a list.
func (p *parser) repeated(inGroup bool) *node {
	n, whole, done := p.atom(inGroup)
	if done {
		return n
	}
	depth := p.depth
	var head *node
	for p.tok.kind == tRepeat {
		if n.unrepeatable() {
			p.fail(p.tok.off, "quantifier behind an assertion")
		}
		p.enter()
		t := p.tok
		q := &node{kind: kQuant, off: t.off, lo: t.lo, hi: t.hi, greedy: t.greedy}
		switch {
		case q.lo == 1 && q.hi == 1:
			q = n
			t.possessive = false
		case n.kind == kString && !whole && len(n.runes) > 1:
			last := len(n.runes) - 1
			head = &node{kind: kString, off: n.off, runes: n.runes[:last], fold: n.fold}
			q.kids = []*node{{kind: kString, off: n.off, runes: n.runes[last:], fold: n.fold}}
		case n.kind == kQuant:
			q = repeatAgain(q, n)
		default:
			q.kids = []*node{n}
		}
		if t.possessive {
			q = &node{kind: kAtomic, off: t.off, kids: []*node{q}}
		}
		n, whole = q, false
		p.next()
	}
	p.depth = depth
	if head != nil {
		return &node{kind: kList, off: head.off, kids: []*node{head, n}}
	}
	return n
}

// repeatAgain returns the quantifier q of the quantifier n.
func repeatAgain(q, n *node) *node {
	q.kids = []*node{n}
	inner := n.quantifier()
	if inner >= 0 && q.quantifier() < 0 {
		// More than the least number of rounds of x* or x+ take nothing more.
		if (inner == 1 || inner == 2) && q.hi != infinite && q.hi > 1 && q.greedy {
			q.hi = max(1, q.lo)
		}
		return q
	}
	return q.simplify()
}

// atom parses what a quantifier can follow. It tells whether a string is whole, so
// that a quantifier belongs to all of it, and whether no quantifier can follow.
func (p *parser) atom(inGroup bool) (n *node, whole, done bool) {
	t := p.tok
	switch t.kind {
	case tOpen:
		return p.group(inGroup)
	case tBracket:
		n = p.bracket()
	case tNode:
		n = t.node
	case tChar:
		n = &node{kind: kString, off: t.off, fold: p.opts&ignoreCase != 0}
		for p.tok.kind == tChar {
			n.runes = append(n.runes, p.tok.char)
			p.next()
		}
		return n, false, false
	case tRepeat:
		p.fail(t.off, "quantifier without something to repeat")
	}
	p.next()
	return n, false, false
}
