package jinja

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
