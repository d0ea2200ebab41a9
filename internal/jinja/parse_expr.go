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
	for n := 0; p.skipName("if"); n++ {
		if err := p.link(n); err != nil {
			return nil, err
		}
		c := &condExpr{line: line, then: x}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.orelse, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = c
	}
	return x, nil
}

// link counts the links of a chain of operators, each of which makes the tree
// deeper.
func (p *parser) link(n int) error {
	if n >= maxChain {
		return p.fail(p.cur().line, "more than %d operators in a row", maxChain)
	}
	return nil
}

func (p *parser) or() (expr, error) {
	x, err := p.and()
	for n := 0; err == nil && p.skipName("or"); n++ {
		var y expr
		if err = p.link(n); err == nil {
			y, err = p.and()
		}
		x = &orExpr{x, y}
	}
	return x, err
}

func (p *parser) and() (expr, error) {
	x, err := p.not()
	for n := 0; err == nil && p.skipName("and"); n++ {
		var y expr
		if err = p.link(n); err == nil {
			y, err = p.not()
		}
		x = &andExpr{x, y}
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
	return &notExpr{x}, err
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
	return c, nil
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
	for n := 0; err == nil && (p.cur().is("+") || p.cur().is("-")); n++ {
		op := p.next().text
		if err = p.link(n); err != nil {
			break
		}
		var y expr
		if y, err = p.concat(); err != nil {
			break
		}
		if op == "-" {
			x = &binaryExpr{"-", x, y}
		} else if a, ok := x.(*addExpr); ok && n > 0 {
			a.nodes = append(a.nodes, y)
		} else {
			x = &addExpr{[]expr{x, y}}
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
	return &concatExpr{nodes}, nil
}

func (p *parser) product() (expr, error) {
	x, err := p.power()
	for n := 0; err == nil; n++ {
		t := p.cur()
		if !t.is("*") && !t.is("/") && !t.is("//") && !t.is("%") {
			break
		}
		p.next()
		var y expr
		if err = p.link(n); err == nil {
			y, err = p.power()
		}
		x = &binaryExpr{t.text, x, y}
	}
	return x, err
}

// power parses powers. As in Jinja2 and unlike Python they group from the left
// and a sign binds tighter.
func (p *parser) power() (expr, error) {
	x, err := p.unary(true)
	for n := 0; err == nil && p.skipOp("**"); n++ {
		var y expr
		if err = p.link(n); err == nil {
			y, err = p.unary(true)
		}
		x = &binaryExpr{"**", x, y}
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
		x = &unaryExpr{t.text[0], x}
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
	return &tupleExpr{items}, nil
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
	return n, p.expectOp("]")
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
	return n, p.expectOp("}")
}

// postfix parses attributes, items and calls after x.
func (p *parser) postfix(x expr) (expr, error) {
	for n := 0; ; n++ {
		if err := p.link(n); err != nil {
			return nil, err
		}
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
	for n := 0; ; n++ {
		if err := p.link(n); err != nil {
			return nil, err
		}
		var err error
		switch t := p.cur(); {
		case t.is("|"):
			p.next()
			x, err = p.filter(x)
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
		return &getattrExpr{line: line, node: x, name: t.text}, nil
	case tokInt:
		return &getitemExpr{line: line, node: x, arg: &constExpr{t.num}}, nil
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
			return s, nil
		}
		return &getitemExpr{line: line, node: x, arg: args[0]}, nil
	}
	if slices > 0 {
		return nil, p.fail(line, "several subscripts with a slice among them are not supported")
	}
	return &getitemExpr{line: line, node: x, arg: &tupleExpr{args}}, nil
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
	n.args, err = p.args()
	return n, err
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
		n.args, err = p.args()
	}
	return n, err
}

// filters parses filters, each with its bar, on the block's text or on f.
func (p *parser) filters(f *filterExpr) (*filterExpr, error) {
	for n := 0; p.skipOp("|"); n++ {
		if err := p.link(n); err != nil {
			return nil, err
		}
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
		return &notExpr{n}, nil
	}
	return n, nil
}
