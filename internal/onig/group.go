package onig

import (
	"strings"

	"github.com/stator-ai/stator/internal/ucd"
)

// group parses what follows an opening parenthesis.
func (p *parser) group(inGroup bool) (n *node, whole, done bool) {
	off := p.tok.off
	rest := p.src[p.pos:]
	if rest == "" {
		p.fail(off, "group without closing parenthesis")
	}
	if rest[0] == '*' {
		p.unsupported(off, "callout (*…)")
	}
	if rest[0] != '?' {
		p.groups++
		return p.enclose(&node{kind: kCapture, off: off}), false, false
	}
	p.pos++
	rest = rest[1:]
	take := func(prefix string) bool {
		if !strings.HasPrefix(rest, prefix) {
			return false
		}
		p.pos += len(prefix)
		return true
	}
	switch {
	case take(":"):
		p.next()
		n = p.alternatives(true)
		p.next()
		return n, true, false
	case take("="):
		n = &node{kind: kAhead, off: off}
	case take("!"):
		n = &node{kind: kAhead, off: off, not: true}
	case take(">"):
		n = &node{kind: kAtomic, off: off}
	case take("<="):
		n = &node{kind: kBehind, off: off}
	case take("<!"):
		n = &node{kind: kBehind, off: off, not: true}
	case take("<"):
		p.groupName(off, '>')
		n = &node{kind: kCapture, off: off, named: true}
	case take("'"):
		p.groupName(off, '\'')
		n = &node{kind: kCapture, off: off, named: true}
	case take("~"):
		p.unsupported(off, "absent operator (?~…)")
	case take("{"):
		p.unsupported(off, "callout (?{…})")
	case take("("):
		p.unsupported(off, "conditional (?(…)…)")
	default:
		return p.optionGroup(off, inGroup)
	}
	return p.enclose(n), false, false
}

// enclose parses the alternatives of a group and its closing parenthesis.
func (p *parser) enclose(n *node) *node {
	p.next()
	n.kids = []*node{p.alternatives(true)}
	p.next()
	return n
}

// groupName skips the name of a group.
func (p *parser) groupName(off int, end byte) {
	name, _, ok := strings.Cut(p.src[p.pos:], string(end))
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		p.fail(off, "group with a bad name")
	}
	for _, r := range name {
		if ucd.Of(r)&ucd.Word == 0 {
			p.fail(off, "group with a bad name %q", name)
		}
	}
	p.pos += len(name) + 1
	p.groups++
	p.named = true
}

// optionGroup parses (?i) and (?i:…) behind the question mark. Options that stand
// alone hold up to the end of the group around them, alternatives included.
func (p *parser) optionGroup(off int, inGroup bool) (n *node, whole, done bool) {
	opts, on := p.opts, true
	for i := p.pos; ; i++ {
		if i == len(p.src) {
			p.fail(off, "group without closing parenthesis")
		}
		var flag options
		switch c := p.src[i]; c {
		case '-':
			on = false
			continue
		case 'i':
			flag = ignoreCase
		case 'm':
			flag = dotNewline
		case 'x':
			flag = extended
		case 'W':
			flag = asciiWord
		case 'D':
			flag = asciiDigit
		case 'S':
			flag = asciiSpace
		case 'P':
			flag = asciiPosix
		case 'C', 'I', 'L', 'y':
			p.unsupported(i, "option %c", c)
		case ')', ':':
			if i == p.pos {
				p.fail(off, "group without options")
			}
			p.pos = i + 1
			n = &node{kind: kOption, off: off}
			outer := p.opts
			p.opts = opts
			p.next()
			n.kids = []*node{p.alternatives(inGroup || c == ':')}
			p.opts = outer
			if c == ':' {
				p.next()
			}
			return n, false, c == ')'
		default:
			p.fail(i, "unknown group (?%c", c)
		}
		if on {
			opts |= flag
		} else {
			opts &^= flag
		}
	}
}
