package jinja

// expression parses an expression, conditional ones included.
func (p *parser) expression() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	line := p.cur().line
	x, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.skipName("if") {
		c := &condExpr{line: line, then: x}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.orelse, err = p.expression(); err != nil {
				return nil, err
			}
		}
		if x, err = p.made(c); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (p *parser) or() (expr, error) {
	x, err := p.and()
	for err == nil && p.skipName("or") {
		var y expr
		if y, err = p.and(); err == nil {
			x, err = p.made(&orExpr{x, y})
		}
	}
	return x, err
}

func (p *parser) and() (expr, error) {
	x, err := p.not()
	for err == nil && p.skipName("and") {
		var y expr
		if y, err = p.not(); err == nil {
			x, err = p.made(&andExpr{x, y})
		}
	}
	return x, err
}

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	x, err := p.not()
	if err != nil {
		return nil, err
	}
	return p.made(&notExpr{x})
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first}
	for {
		op, ok := p.compareOp()
		if !ok {
			break
		}
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops = append(c.ops, op)
		c.nodes = append(c.nodes, x)
	}
	if c.ops == nil {
		return first, nil
	}
	return p.made(c)
}

func (p *parser) compareOp() (compareOp, bool) {
	t := p.cur()
	if t.isName("not") && p.look().isName("in") {
		p.next()
		p.next()
		return cmpNotIn, true
	}
	if p.skipName("in") {
		return cmpIn, true
	}
	if t.kind != tokOp {
		return 0, false
	}
	for op, text := range [...]string{"==", "!=", "<", "<=", ">", ">="} {
		if t.text == text {
			p.next()
			return compareOp(op), true
		}
	}
	return 0, false
}

func (p *parser) sum() (expr, error) {
	x, err := p.concat()
	var chain *addExpr
	for err == nil && (p.cur().is("+") || p.cur().is("-")) {
		op := p.next().text
		var y expr
		if y, err = p.concat(); err != nil {
			break
		}
		switch {
		case op == "-":
			chain = nil
			x, err = p.made(&binaryExpr{"-", x, y})
		case chain != nil:
			chain.nodes = append(chain.nodes, y)
			p.heights[chain] = max(p.heights[chain], p.heights[y]+1)
		default:
			chain = &addExpr{[]expr{x, y}}
			x, err = p.made(chain)
		}
	}
	return x, err
}

func (p *parser) concat() (expr, error) {
	x, err := p.product()
	if err != nil || !p.cur().is("~") {
		return x, err
	}
	nodes := []expr{x}
	for p.skipOp("~") {
		if x, err = p.product(); err != nil {
			return nil, err
		}
		nodes = append(nodes, x)
	}
	return p.made(&concatExpr{nodes})
}

func (p *parser) product() (expr, error) {
	x, err := p.power()
	for err == nil {
		t := p.cur()
		if !t.is("*") && !t.is("/") && !t.is("//") && !t.is("%") {
			break
		}
		p.next()
		var y expr
		if y, err = p.power(); err == nil {
			x, err = p.made(&binaryExpr{t.text, x, y})
		}
	}
	return x, err
}

// power parses powers. As in Jinja2 and unlike Python they group from the left
// and a sign binds tighter.
func (p *parser) power() (expr, error) {
	x, err := p.unary(true)
	for err == nil && p.skipOp("**") {
		var y expr
		if y, err = p.unary(true); err == nil {
			x, err = p.made(&binaryExpr{"**", x, y})
		}
	}
	return x, err
}

func (p *parser) unary(withFilter bool) (expr, error) {
	var x expr
	var err error
	if t := p.cur(); t.is("-") || t.is("+") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		p.next()
		x, err = p.unary(false)
		p.leave()
		if err == nil {
			x, err = p.made(&unaryExpr{t.text[0], x})
		}
	} else {
		x, err = p.primary()
	}
	if err == nil {
		x, err = p.postfix(x)
	}
	if err == nil && withFilter {
		x, err = p.filterExpr(x)
	}
	return x, err
}

func (p *parser) primary() (expr, error) {
	t := p.cur()
	switch t.kind {
	case tokName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{true}, nil
		case "false", "False":
			return &constExpr{false}, nil
		case "none", "None":
			return &constExpr{nil}, nil
		}
		return &nameExpr{line: t.line, name: t.text}, nil
	case tokString:
		p.next()
		s := t.text
		for p.cur().kind == tokString {
			s += p.next().text
		}
		return &constExpr{s}, nil
	case tokInt, tokFloat:
		p.next()
		return &constExpr{t.num}, nil
	}
	switch {
	case t.is("("):
		p.next()
		x, err := p.tuple(tupleOpts{condExpr: true, parens: true})
		if err != nil {
			return nil, err
		}
		return x, p.expectOp(")")
	case t.is("["):
		return p.list()
	case t.is("{"):
		return p.dict()
	}
	return nil, p.unexpected("an expression")
}

// tupleOpts say where a tuple without brackets may stand.
type tupleOpts struct {
	condExpr bool
	// parens says that the tuple stands in parentheses, where it may be empty.
	parens bool
	// end is a name that ends the tuple.
	end string
}

// tuple parses one expression, or several with commas between them.
func (p *parser) tuple(o tupleOpts) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var items []expr
	isTuple := false
	for {
		if t := p.cur(); t.kind == tokVarEnd || t.kind == tokBlockEnd || t.is(")") || o.end != "" && t.isName(o.end) {
			break
		}
		one := p.or
		if o.condExpr {
			one = p.expression
		}
		x, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if items != nil {
			return items[0], nil
		}
		if !o.parens {
			return nil, p.unexpected("an expression")
		}
	}
	return p.made(&tupleExpr{items})
}

func (p *parser) list() (expr, error) {
	p.next()
	n := &listExpr{}
	for !p.cur().is("]") {
		if n.items != nil {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.cur().is("]") {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, x)
	}
	if err := p.expectOp("]"); err != nil {
		return nil, err
	}
	return p.made(n)
}

func (p *parser) dict() (expr, error) {
	p.next()
	n := &dictExpr{}
	for !p.cur().is("}") {
		if n.keys != nil {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.cur().is("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		n.keys = append(n.keys, k)
		n.values = append(n.values, v)
	}
	if err := p.expectOp("}"); err != nil {
		return nil, err
	}
	return p.made(n)
}
