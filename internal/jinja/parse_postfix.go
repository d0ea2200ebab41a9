package jinja

// postfix parses attributes, items and calls after x.
func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch t := p.cur(); {
		case t.is("."):
			x, err = p.attribute(x)
		case t.is("["):
			x, err = p.subscript(x)
		case t.is("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filterExpr parses filters, tests and calls after x.
func (p *parser) filterExpr(x expr) (expr, error) {
	for {
		var err error
		switch t := p.cur(); {
		case t.is("|"):
			p.next()
			var f *filterExpr
			if f, err = p.filter(x); err == nil {
				x = f
			}
		case t.isName("is"):
			x, err = p.test(x)
		case t.is("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(x expr) (expr, error) {
	line := p.next().line
	t := p.next()
	switch t.kind {
	case tokName:
		return p.made(&getattrExpr{line: line, node: x, name: t.text})
	case tokInt:
		return p.made(&getitemExpr{line: line, node: x, arg: &constExpr{t.num}})
	}
	return nil, p.fail(t.line, "unexpected %v, expected a name or a number", t)
}

func (p *parser) subscript(x expr) (expr, error) {
	line := p.next().line
	var args []expr
	slices := 0
	for !p.cur().is("]") {
		if args != nil {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		a, err := p.subscripted()
		if err != nil {
			return nil, err
		}
		if s, ok := a.(*sliceExpr); ok && s.node == nil {
			slices++
		}
		args = append(args, a)
	}
	if err := p.expectOp("]"); err != nil {
		return nil, err
	}
	if len(args) == 1 {
		if s, ok := args[0].(*sliceExpr); ok && s.node == nil {
			s.node = x
			return p.made(s)
		}
		return p.made(&getitemExpr{line: line, node: x, arg: args[0]})
	}
	if slices > 0 {
		return nil, p.fail(line, "several subscripts with a slice among them are not supported")
	}
	key, err := p.made(&tupleExpr{args})
	if err != nil {
		return nil, err
	}
	return p.made(&getitemExpr{line: line, node: x, arg: key})
}

// subscripted parses an index or a slice; the slice has no node yet.
func (p *parser) subscripted() (expr, error) {
	part := func() (expr, error) {
		if t := p.cur(); t.is(":") || t.is("]") || t.is(",") {
			return nil, nil
		}
		return p.expression()
	}
	start, err := part()
	if err != nil {
		return nil, err
	}
	if !p.cur().is(":") {
		if start == nil {
			return nil, p.unexpected("an expression")
		}
		return start, nil
	}
	p.next()
	s := &sliceExpr{start: start}
	if s.stop, err = part(); err != nil {
		return nil, err
	}
	if p.skipOp(":") {
		s.step, err = part()
	}
	return s, err
}

func (p *parser) call(x expr) (expr, error) {
	n := &callExpr{line: p.cur().line, callee: x}
	var err error
	if n.args, err = p.args(); err != nil {
		return nil, err
	}
	return p.made(n)
}

func (p *parser) args() (argList, error) {
	var a argList
	line := p.next().line
	bad := p.fail(line, "invalid syntax for a call: positional arguments come first")
	for first := true; !p.cur().is(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.cur().is(")") {
				break
			}
		}
		key := p.cur()
		switch {
		case p.cur().is("*"):
			if a.dynPos != nil || a.dynKw != nil {
				return a, bad
			}
			p.next()
			x, err := p.expression()
			if err != nil {
				return a, err
			}
			a.dynPos = x
		case p.cur().is("**"):
			if a.dynKw != nil {
				return a, bad
			}
			p.next()
			x, err := p.expression()
			if err != nil {
				return a, err
			}
			a.dynKw = x
		case key.kind == tokName && p.look().is("="):
			if a.dynKw != nil {
				return a, bad
			}
			for _, k := range a.keys {
				if k == key.text {
					return a, p.fail(line, "keyword argument '%s' repeated", k)
				}
			}
			p.next()
			p.next()
			x, err := p.expression()
			if err != nil {
				return a, err
			}
			a.keys = append(a.keys, key.text)
			a.kw = append(a.kw, x)
		default:
			if a.dynPos != nil || a.dynKw != nil || a.kw != nil {
				return a, bad
			}
			x, err := p.expression()
			if err != nil {
				return a, err
			}
			a.pos = append(a.pos, x)
		}
	}
	return a, p.expectOp(")")
}

// dottedName parses the name of a filter or test.
func (p *parser) dottedName() (token, error) {
	t, err := p.expectName()
	for err == nil && p.skipOp(".") {
		var more token
		more, err = p.expectName()
		t.text += "." + more.text
	}
	return t, err
}

// filter parses one filter on x, behind the bar.
func (p *parser) filter(x expr) (*filterExpr, error) {
	t, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	n := &filterExpr{line: t.line, node: x, name: t.text}
	if p.cur().is("(") {
		if n.args, err = p.args(); err != nil {
			return nil, err
		}
	}
	_, err = p.made(n)
	return n, err
}

// filters parses filters, each with its bar, on the block's text or on f.
func (p *parser) filters(f *filterExpr) (*filterExpr, error) {
	for p.skipOp("|") {
		var x expr
		if f != nil {
			x = f
		}
		var err error
		if f, err = p.filter(x); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (p *parser) test(x expr) (expr, error) {
	p.next()
	negated := p.skipName("not")
	t, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	n := &testExpr{line: t.line, node: x, name: t.text}
	switch a := p.cur(); {
	case a.is("("):
		n.args, err = p.args()
	case a.isName("is"):
		return nil, p.fail(a.line, "tests with 'is' cannot be chained")
	case a.isName("else"), a.isName("or"), a.isName("and"):
	case a.kind == tokName, a.kind == tokString, a.kind == tokInt, a.kind == tokFloat, a.is("["), a.is("{"):
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		n.args.pos = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		if _, err := p.made(n); err != nil {
			return nil, err
		}
		return p.made(&notExpr{n})
	}
	return p.made(n)
}
