package jinja

import (
	"fmt"
	"strings"
)

// Bounds on the shape of a template, so that neither parsing nor running one
// needs an unbounded stack. Jinja2 itself gives up earlier.
const (
	maxNesting = 200
	maxHeight  = 400
)

// A parser builds the tree of a template.
type parser struct {
	toks  []token
	pos   int
	depth int
	// heights holds the heights of the trees of expressions; leaves have none.
	heights map[expr]int
	// ends are the tags that the open blocks wait for.
	ends [][]string
}

func parse(src string) ([]stmt, error) {
	toks, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, heights: map[expr]int{}}
	return p.body(nil)
}

func (p *parser) cur() token { return p.toks[p.pos] }

// look returns the token after the current one.
func (p *parser) look() token {
	if p.pos+1 < len(p.toks) {
		return p.toks[p.pos+1]
	}
	return p.cur()
}

// next moves past the current token and returns it; the last token stays.
func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) skipOp(op string) bool {
	if p.cur().is(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.cur().isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) fail(line int, format string, a ...any) error {
	return &SyntaxError{Line: line, Message: fmt.Sprintf(format, a...)}
}

func (p *parser) unexpected(want string) error {
	t := p.cur()
	return p.fail(t.line, "unexpected %v, expected %s", t, want)
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.unexpected("'" + op + "'")
	}
	return nil
}

func (p *parser) expectName() (token, error) {
	if p.cur().kind != tokName {
		return token{}, p.unexpected("a name")
	}
	return p.next(), nil
}

func (p *parser) expectKind(k tokenKind) error {
	if p.cur().kind != k {
		return p.unexpected(token{kind: k}.String())
	}
	p.next()
	return nil
}

// enter guards the recursion of the parser; leave undoes it.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxNesting {
		return p.fail(p.cur().line, "nested deeper than %d levels", maxNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// made takes note of a new expression over others. A chain of operators nests
// without the parser's recursion; its height is bounded here.
func (p *parser) made(x expr) (expr, error) {
	h := 0
	x.children(func(c expr) { h = max(h, p.heights[c]+1) })
	p.heights[x] = h
	if h > maxHeight {
		return nil, p.fail(p.cur().line, "expression nested deeper than %d levels", maxHeight)
	}
	return x, nil
}

// body parses statements up to a tag in ends, which becomes the current token,
// or up to the end of the template when ends is nil.
func (p *parser) body(ends []string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var body []stmt
	var out *outputStmt
	add := func(line int, x expr) {
		if out == nil {
			out = &outputStmt{line: line}
			body = append(body, out)
		}
		out.nodes = append(out.nodes, x)
	}
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			if ends != nil {
				return nil, p.fail(t.line, "unexpected end of template, expected %s", orList(ends))
			}
			return body, nil
		case tokData:
			p.next()
			add(t.line, &constExpr{t.text})
		case tokVarBegin:
			p.next()
			x, err := p.tuple(tupleOpts{condExpr: true})
			if err != nil {
				return nil, err
			}
			if err := p.expectKind(tokVarEnd); err != nil {
				return nil, err
			}
			add(t.line, x)
		default: // a block begins
			p.next()
			out = nil
			for _, e := range ends {
				if p.cur().isName(e) {
					return body, nil
				}
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if s != nil {
				body = append(body, s)
			}
			if err := p.expectKind(tokBlockEnd); err != nil {
				return nil, err
			}
		}
	}
}

func orList(names []string) string { return strings.Join(names, " or ") }

func (p *parser) statement() (stmt, error) {
	t := p.cur()
	if t.kind != tokName {
		return nil, p.fail(t.line, "unexpected %v, expected the name of a tag", t)
	}
	p.next()
	switch t.text {
	case "for":
		return p.forStmt(t.line)
	case "if":
		return p.ifStmt(t.line)
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.callBlock(t.line)
	case "filter":
		return p.filterBlock(t.line)
	case "with":
		return p.with(t.line)
	case "print":
		return p.print(t.line)
	case "break":
		return &breakStmt{t.line}, nil
	case "continue":
		return &continueStmt{t.line}, nil
	case "generation":
		d := &macroDef{line: t.line}
		var err error
		if d.body, err = p.block("endgeneration"); err != nil {
			return nil, err
		}
		return &callBlockStmt{line: t.line, def: d}, nil
	case "block", "extends", "include", "import", "from", "autoescape":
		return nil, p.fail(t.line, "the tag '%s' is not supported", t.text)
	}
	if n := len(p.ends); n > 0 {
		return nil, p.fail(t.line, "unknown tag '%s', expected %s", t.text, orList(p.ends[n-1]))
	}
	return nil, p.fail(t.line, "unknown tag '%s'", t.text)
}

// open parses the end of an opening tag and the body up to one of ends.
func (p *parser) open(ends ...string) ([]stmt, error) {
	p.skipOp(":")
	if err := p.expectKind(tokBlockEnd); err != nil {
		return nil, err
	}
	return p.body(ends)
}

// block is open with a single end tag, whose name it also takes.
func (p *parser) block(end string) ([]stmt, error) {
	body, err := p.open(end)
	if err != nil {
		return nil, err
	}
	p.next()
	return body, nil
}

func (p *parser) forStmt(line int) (stmt, error) {
	n := &forStmt{line: line}
	var err error
	if n.target, err = p.targetList(false, "in"); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, p.unexpected("'in'")
	}
	if n.iter, err = p.tuple(tupleOpts{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if n.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	n.recursive = p.skipName("recursive")
	if n.body, err = p.open("endfor", "else"); err != nil {
		return nil, err
	}
	if p.next().text == "else" {
		if n.els, err = p.block("endfor"); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (p *parser) ifStmt(line int) (stmt, error) {
	first := &ifStmt{line: line}
	for n := first; ; {
		var err error
		if n.test, err = p.tuple(tupleOpts{}); err != nil {
			return nil, err
		}
		if n.body, err = p.open("elif", "else", "endif"); err != nil {
			return nil, err
		}
		switch t := p.next(); t.text {
		case "elif":
			n = &ifStmt{line: t.line}
			first.elifs = append(first.elifs, n)
		case "else":
			first.els, err = p.block("endif")
			return first, err
		default:
			return first, nil
		}
	}
}

func (p *parser) set(line int) (stmt, error) {
	t, err := p.targetList(true, "")
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		x, err := p.tuple(tupleOpts{condExpr: true})
		return &assignStmt{line: line, target: t, value: x}, err
	}
	n := &assignBlockStmt{line: line, target: t}
	if p.cur().is("|") {
		if n.filter, err = p.filters(nil); err != nil {
			return nil, err
		}
	}
	n.body, err = p.block("endset")
	return n, err
}

func (p *parser) with(line int) (stmt, error) {
	n := &withStmt{line: line}
	for p.cur().kind != tokBlockEnd {
		if n.targets != nil {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		t, err := p.targetList(false, "")
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		t.names(func(n *nameTarget) { n.param = true })
		n.targets = append(n.targets, t)
		n.values = append(n.values, x)
	}
	var err error
	n.body, err = p.block("endwith")
	return n, err
}

func (p *parser) filterBlock(line int) (stmt, error) {
	n := &filterBlockStmt{line: line}
	f, err := p.filter(nil)
	if err != nil {
		return nil, err
	}
	if n.filter, err = p.filters(f); err != nil {
		return nil, err
	}
	n.body, err = p.block("endfilter")
	return n, err
}

func (p *parser) print(line int) (stmt, error) {
	n := &outputStmt{line: line}
	for p.cur().kind != tokBlockEnd {
		if n.nodes != nil {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		n.nodes = append(n.nodes, x)
	}
	return n, nil
}

func (p *parser) macro(line int) (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	d := &macroDef{line: line, name: name.text}
	if err := p.signature(d); err != nil {
		return nil, err
	}
	d.body, err = p.block("endmacro")
	return &macroStmt{def: d}, err
}

func (p *parser) callBlock(line int) (stmt, error) {
	d := &macroDef{line: line}
	if p.cur().is("(") {
		if err := p.signature(d); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(*callExpr)
	if !ok {
		return nil, p.fail(line, "the tag 'call' expects a call")
	}
	d.body, err = p.block("endcall")
	return &callBlockStmt{line: line, call: call, def: d}, err
}

// signature parses the parameters of a macro.
func (p *parser) signature(d *macroDef) error {
	if err := p.expectOp("("); err != nil {
		return err
	}
	for !p.cur().is(")") {
		if d.args != nil {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		t, err := p.expectName()
		if err != nil {
			return err
		}
		for _, a := range d.args {
			if a.name == t.text {
				return p.fail(t.line, "duplicate argument '%s'", t.text)
			}
		}
		d.args = append(d.args, &nameTarget{line: t.line, name: t.text, param: true})
		if p.skipOp("=") {
			x, err := p.expression()
			if err != nil {
				return err
			}
			d.defaults = append(d.defaults, x)
		} else if d.defaults != nil {
			return p.fail(t.line, "argument '%s' without a default follows one with a default", t.text)
		}
	}
	return p.expectOp(")")
}

// targetList parses the target of an assignment: a name, an attribute of a
// namespace where ns allows it, or several of them. The list ends before the
// name end.
func (p *parser) targetList(ns bool, end string) (target, error) {
	line := p.cur().line
	var items []target
	isTuple := false
	for {
		if t := p.cur(); t.kind == tokVarEnd || t.kind == tokBlockEnd || t.is(")") || end != "" && t.isName(end) {
			break
		}
		t, err := p.target(ns)
		if err != nil {
			return nil, err
		}
		items = append(items, t)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if isTuple {
		return &tupleTarget{line: line, items: items}, nil
	}
	if len(items) == 0 {
		return nil, p.unexpected("a name to assign to")
	}
	return items[0], nil
}

func (p *parser) target(ns bool) (target, error) {
	t := p.cur()
	switch {
	case t.is("("):
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		p.next()
		if p.skipOp(")") {
			return &tupleTarget{line: t.line}, nil
		}
		in, err := p.targetList(false, "")
		if err != nil {
			return nil, err
		}
		return in, p.expectOp(")")
	case t.kind != tokName || isConstName(t.text):
		return nil, p.fail(t.line, "cannot assign to %v", t)
	}
	p.next()
	if ns && p.skipOp(".") {
		attr, err := p.expectName()
		if err != nil {
			return nil, err
		}
		return &nsTarget{line: t.line, name: t.text, attr: attr.text}, nil
	}
	return &nameTarget{line: t.line, name: t.text}, nil
}

func isConstName(s string) bool {
	switch s {
	case "true", "True", "false", "False", "none", "None":
		return true
	}
	return false
}
