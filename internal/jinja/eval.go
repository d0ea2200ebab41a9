package jinja

func (n *constExpr) eval(*state, *env) (Value, error) { return n.value, nil }

func (n *nameExpr) eval(_ *state, e *env) (Value, error) {
	if v := e.get(n.ref); v != missing {
		return v, nil
	}
	return n.undef, nil
}

// evalAll evaluates the expressions into a new slice.
func (st *state) evalAll(e *env, nodes []expr) ([]Value, error) {
	if err := st.allocItems(len(nodes)); err != nil {
		return nil, err
	}
	vals := make([]Value, len(nodes))
	for i, n := range nodes {
		v, err := n.eval(st, e)
		if err != nil {
			return nil, err
		}
		vals[i] = v
	}
	return vals, nil
}

func (n *tupleExpr) eval(st *state, e *env) (Value, error) {
	items, err := st.evalAll(e, n.items)
	return &Tuple{Items: items}, err
}

func (n *listExpr) eval(st *state, e *env) (Value, error) {
	items, err := st.evalAll(e, n.items)
	return &List{Items: items}, err
}

func (n *dictExpr) eval(st *state, e *env) (Value, error) {
	if err := st.allocItems(4 + 3*len(n.keys)); err != nil {
		return nil, err
	}
	d := NewDict(len(n.keys))
	for i := range n.keys {
		k, err := n.keys[i].eval(st, e)
		if err != nil {
			return nil, err
		}
		v, err := n.values[i].eval(st, e)
		if err != nil {
			return nil, err
		}
		if err := st.scanKey(k); err != nil {
			return nil, err
		}
		if err := d.insert(k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (n *condExpr) eval(st *state, e *env) (Value, error) {
	ok, err := st.test(e, n.test)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return n.then.eval(st, e)
	case n.orelse != nil:
		return n.orelse.eval(st, e)
	}
	return n.undef, nil
}

func (n *andExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.left.eval(st, e)
	if err != nil {
		return nil, err
	}
	if ok, err := truth(st, v); err != nil || !ok {
		return v, err
	}
	return n.right.eval(st, e)
}

func (n *orExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.left.eval(st, e)
	if err != nil {
		return nil, err
	}
	if ok, err := truth(st, v); err != nil || ok {
		return v, err
	}
	return n.right.eval(st, e)
}

func (n *notExpr) eval(st *state, e *env) (Value, error) {
	ok, err := st.test(e, n.node)
	return !ok, err
}

func (n *unaryExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	if n.op == '-' {
		return negate(v)
	}
	return positive(v)
}

func (n *binaryExpr) eval(st *state, e *env) (Value, error) {
	l, err := n.left.eval(st, e)
	if err != nil {
		return nil, err
	}
	r, err := n.right.eval(st, e)
	if err != nil {
		return nil, err
	}
	return binary(st, n.op, l, r)
}

// strings evaluates the operands of a chain. When all are strings of type str it
// returns them; else it returns the sum.
func (n *addExpr) strings(st *state, e *env, buf []string) (parts []string, sum Value, err error) {
	for i, x := range n.nodes {
		v, err := x.eval(st, e)
		if err != nil {
			return nil, nil, err
		}
		if s, ok := v.(string); ok && (sum == nil && i == len(buf)) {
			buf = append(buf, s)
			continue
		}
		if i == 0 {
			sum = v
			buf = nil
			continue
		}
		if buf != nil {
			s, err := st.join(buf...)
			if err != nil {
				return nil, nil, err
			}
			sum, buf = s, nil
		}
		if sum, err = add(st, sum, v); err != nil {
			return nil, nil, err
		}
	}
	return buf, sum, nil
}

func (n *addExpr) eval(st *state, e *env) (Value, error) {
	var arr [8]string
	parts, sum, err := n.strings(st, e, arr[:0])
	if err != nil || parts == nil {
		return sum, err
	}
	return st.join(parts...)
}

func (n *addExpr) emit(st *state, e *env) error {
	var arr [8]string
	parts, sum, err := n.strings(st, e, arr[:0])
	if err != nil {
		return err
	}
	if parts == nil {
		return st.print(sum)
	}
	for _, p := range parts {
		if err := st.write(p); err != nil {
			return err
		}
	}
	return nil
}

func (n *concatExpr) eval(st *state, e *env) (Value, error) {
	var arr [8]string
	parts := arr[:0]
	for _, x := range n.nodes {
		v, err := x.eval(st, e)
		if err != nil {
			return nil, err
		}
		s, err := st.str(v)
		if err != nil {
			return nil, err
		}
		parts = append(parts, s)
	}
	return st.join(parts...)
}

func (n *compareExpr) eval(st *state, e *env) (Value, error) {
	l, err := n.first.eval(st, e)
	if err != nil {
		return nil, err
	}
	for i, op := range n.ops {
		r, err := n.nodes[i].eval(st, e)
		if err != nil {
			return nil, err
		}
		ok, err := compare(st, op, l, r)
		if err != nil || !ok {
			return false, err
		}
		l = r
	}
	return true, nil
}

func (n *getattrExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	if d, ok := v.(*Dict); ok && !n.dictMethod {
		if v, ok := d.Get(n.name); ok {
			return v, nil
		}
		return n.undef, nil
	}
	return getattr(st, v, n.name)
}

func (n *getitemExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	k, err := n.arg.eval(st, e)
	if err != nil {
		return nil, err
	}
	return getitem(st, v, k)
}

func (n *sliceExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	var b sliceBounds
	for i, x := range [...]expr{n.start, n.stop, n.step} {
		if x == nil {
			continue
		}
		arg, err := x.eval(st, e)
		if err != nil {
			return nil, err
		}
		if err := b.set(i, arg); err != nil {
			return nil, err
		}
	}
	return getslice(st, v, &b)
}

// push evaluates the arguments onto the argument stack and returns them. The
// caller drops them with st.args = st.args[:base].
func (a *argList) push(st *state, e *env) (c callArgs, base int, err error) {
	base = len(st.args)
	for _, x := range a.pos {
		v, err := x.eval(st, e)
		if err != nil {
			return c, base, err
		}
		st.args = append(st.args, v)
	}
	for i, x := range a.kw {
		v, err := x.eval(st, e)
		if err != nil {
			return c, base, err
		}
		c.kw = append(c.kw, keyword{a.keys[i], v})
	}
	if a.dynPos != nil {
		v, err := a.dynPos.eval(st, e)
		if err != nil {
			return c, base, err
		}
		items, err := collect(st, v)
		if err != nil {
			return c, base, err
		}
		if err := st.allocItems(len(items)); err != nil {
			return c, base, err
		}
		st.args = append(st.args, items...)
	}
	if a.dynKw != nil {
		v, err := a.dynKw.eval(st, e)
		if err != nil {
			return c, base, err
		}
		if err := c.spread(v); err != nil {
			return c, base, err
		}
	}
	c.pos = st.args[base:len(st.args):len(st.args)]
	return c, base, nil
}

// spread adds the entries of a dict as keyword arguments.
func (a *callArgs) spread(v Value) error {
	d, ok := v.(*Dict)
	if !ok {
		return errorf("argument after ** must be a mapping, not %s", typeName(v))
	}
	for _, e := range d.entries {
		name, ok := asString(e.key)
		if !ok {
			return errorf("keywords must be strings, not %s", typeName(e.key))
		}
		for _, k := range a.kw {
			if k.name == name {
				return errorf("several values for keyword argument '%s'", name)
			}
		}
		a.kw = append(a.kw, keyword{name, e.value})
	}
	return nil
}

// target evaluates what is called. For a method of a string or dict it returns
// the method itself and its receiver instead of a function that holds both.
func (n *callExpr) target(st *state, e *env) (f, self Value, m method, err error) {
	g, ok := n.callee.(*getattrExpr)
	if !ok {
		f, err = n.callee.eval(st, e)
		return f, nil, nil, err
	}
	self, err = g.node.eval(st, e)
	if err != nil {
		return nil, nil, nil, err
	}
	switch self.(type) {
	case string:
		m = st.strMethods[g.name]
	case *Dict:
		m = dictMethods[g.name]
	}
	if m == nil {
		f, err = getattr(st, self, g.name)
	}
	return f, self, m, err
}

func (n *callExpr) eval(st *state, e *env) (Value, error) {
	f, self, m, err := n.target(st, e)
	if err != nil {
		return nil, err
	}
	a, base, err := n.args.push(st, e)
	if err != nil {
		return nil, err
	}
	var v Value
	if m != nil {
		if err = st.step(1); err == nil {
			v, err = m(st, self, a)
		}
	} else {
		v, err = invoke(st, f, a)
	}
	st.args = st.args[:base]
	return v, err
}

// emit prints the result of the call; a macro prints itself.
func (n *callExpr) emit(st *state, e *env) error {
	f, self, m, err := n.target(st, e)
	if err != nil {
		return err
	}
	return n.emitCall(st, e, f, self, m, nil)
}

// emitCaller is emit for a call block: caller is passed as a keyword argument.
func (n *callExpr) emitCaller(st *state, e *env, caller *macro) error {
	f, self, m, err := n.target(st, e)
	if err != nil {
		return err
	}
	return n.emitCall(st, e, f, self, m, caller)
}

func (n *callExpr) emitCall(st *state, e *env, f, self Value, m method, caller *macro) error {
	a, base, err := n.args.push(st, e)
	if err != nil {
		return err
	}
	if caller != nil {
		for _, k := range a.kw {
			if k.name == "caller" {
				return errorf("several values for keyword argument 'caller'")
			}
		}
		a.kw = append(a.kw, keyword{"caller", caller})
	}
	defer func() { st.args = st.args[:base] }()
	switch f := f.(type) {
	case *macro:
		return f.emit(st, a)
	case *loopContext:
		return f.call(st, a)
	}
	var v Value
	if m != nil {
		if err = st.step(1); err == nil {
			v, err = m(st, self, a)
		}
	} else {
		v, err = invoke(st, f, a)
	}
	if err != nil {
		return err
	}
	if caller != nil {
		return st.printString(v, "call block")
	}
	return st.print(v)
}

// invoke calls a value.
func invoke(st *state, f Value, a callArgs) (Value, error) {
	switch f := f.(type) {
	case *function:
		if err := st.step(1); err != nil {
			return nil, err
		}
		return f.call(st, a)
	case *macro:
		s, err := st.capture(func() error { return f.emit(st, a) })
		return s, err
	case *loopContext:
		s, err := st.capture(func() error { return f.call(st, a) })
		return s, err
	case *joiner:
		if err := a.only("joiner", 0, 0); err != nil {
			return nil, err
		}
		if !f.used {
			f.used = true
			return "", nil
		}
		return f.sep, nil
	case Undefined:
		return nil, f.err()
	}
	return nil, errorf("%s object is not callable", typeName(f))
}

func (n *filterExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	return n.filter(st, e, v)
}

// filter applies the filter to v.
func (n *filterExpr) filter(st *state, e *env, v Value) (Value, error) {
	a, base, err := n.args.push(st, e)
	if err != nil {
		return nil, err
	}
	if n.def == nil {
		return nil, errorf("no filter named '%s'%s", n.name, unsupportedNote(n.name))
	}
	// Arguments that are not given are added on the stack, where they need no
	// memory of their own.
	for n.def.raw == nil && len(st.args)-base < len(n.def.params) {
		st.args = append(st.args, missing)
		a.pos = st.args[base:len(st.args):len(st.args)]
	}
	v, err = n.def.call(st, n.name, v, a)
	st.args = st.args[:base]
	return v, err
}

// apply applies the filters of a block to its text: n and those below it.
func (n *filterExpr) apply(st *state, e *env, text string) (Value, error) {
	if n.node == nil {
		return n.filter(st, e, text)
	}
	v, err := n.node.(*filterExpr).apply(st, e, text)
	if err != nil {
		return nil, err
	}
	return n.filter(st, e, v)
}

func (n *testExpr) eval(st *state, e *env) (Value, error) {
	v, err := n.node.eval(st, e)
	if err != nil {
		return nil, err
	}
	if n.def != nil && n.def.simple != nil && len(n.args.pos) == 0 && n.args.keys == nil && n.args.dynPos == nil && n.args.dynKw == nil {
		return n.def.simple(v), nil
	}
	a, base, err := n.args.push(st, e)
	if err != nil {
		return nil, err
	}
	if n.def == nil {
		return nil, errorf("no test named '%s'", n.name)
	}
	ok, err := n.def.call(st, n.name, v, a)
	st.args = st.args[:base]
	return ok, err
}
