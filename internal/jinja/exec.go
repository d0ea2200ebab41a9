package jinja

func (st *state) run(e *env, body []stmt) (control, error) {
	for _, s := range body {
		if c, err := s.exec(st, e); err != nil || c != ctlNext {
			return c, err
		}
	}
	return ctlNext, nil
}

func (n *outputStmt) exec(st *state, e *env) (control, error) {
	for _, x := range n.nodes {
		if err := st.emit(e, x); err != nil {
			return 0, atLine(err, n.line)
		}
	}
	return ctlNext, nil
}

// emit prints the value of an expression. What is made of strings goes to the
// output piece by piece instead of through a string of its own.
func (st *state) emit(e *env, x expr) error {
	switch x := x.(type) {
	case *constExpr:
		return st.print(x.value)
	case *concatExpr:
		for _, n := range x.nodes {
			if err := st.emit(e, n); err != nil {
				return err
			}
		}
		return nil
	case *addExpr:
		return x.emit(st, e)
	case *callExpr:
		return x.emit(st, e)
	}
	v, err := x.eval(st, e)
	if err != nil {
		return err
	}
	return st.print(v)
}

func (n *ifStmt) exec(st *state, e *env) (control, error) {
	ok, err := st.test(e, n.test)
	if err != nil {
		return 0, atLine(err, n.line)
	}
	if ok {
		return st.run(e, n.body)
	}
	for _, alt := range n.elifs {
		if ok, err = st.test(e, alt.test); err != nil {
			return 0, atLine(err, alt.line)
		}
		if ok {
			return st.run(e, alt.body)
		}
	}
	return st.run(e, n.els)
}

// test evaluates a condition.
func (st *state) test(e *env, x expr) (bool, error) {
	v, err := x.eval(st, e)
	if err != nil {
		return false, err
	}
	return truth(st, v)
}

func (n *assignStmt) exec(st *state, e *env) (control, error) {
	if err := checkNamespaces(e, n.target); err != nil {
		return 0, atLine(err, n.line)
	}
	v, err := n.value.eval(st, e)
	if err == nil {
		err = n.target.assign(st, e, v)
	}
	return ctlNext, atLine(err, n.line)
}

// checkNamespaces fails when the target is an attribute of something else than a
// namespace.
func checkNamespaces(e *env, t target) error {
	switch t := t.(type) {
	case *nsTarget:
		if _, ok := e.get(t.ref).(*namespace); !ok {
			return errorf("cannot assign to attribute '%s' of '%s', which is not a namespace", t.attr, t.name)
		}
	case *tupleTarget:
		for _, it := range t.items {
			if err := checkNamespaces(e, it); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *nameTarget) assign(_ *state, e *env, v Value) error {
	e.slots[t.slot] = v
	return nil
}

func (t *nsTarget) assign(_ *state, e *env, v Value) error {
	if err := checkNamespaces(e, t); err != nil {
		return err
	}
	return e.get(t.ref).(*namespace).set(t.attr, v)
}

func (t *tupleTarget) assign(st *state, e *env, v Value) error {
	items, err := st.unpack(v, len(t.items))
	if err != nil {
		return err
	}
	for i, it := range t.items {
		if err := it.assign(st, e, items[i]); err != nil {
			return err
		}
	}
	return nil
}

// unpack returns the n items of v; more or fewer are an error.
func (st *state) unpack(v Value, n int) ([]Value, error) {
	items, ok := sliceOf(v)
	if !ok {
		it, err := iterate(st, v)
		if err != nil {
			return nil, err
		}
		for len(items) <= n {
			x, ok, err := it.next(st)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			items = append(items, x)
		}
	}
	if len(items) != n {
		return nil, errorf("cannot unpack %s into %d names: wrong number of items", typeName(v), n)
	}
	return items, nil
}

func (n *assignBlockStmt) exec(st *state, e *env) (control, error) {
	st.enter(e, &n.frame)
	var c control
	text, err := st.capture(func() (err error) {
		c, err = st.run(e, n.body)
		return err
	})
	if err != nil || c != ctlNext {
		return c, err
	}
	v := Value(text)
	if n.filter != nil {
		v, err = n.filter.apply(st, e, text)
	}
	if err == nil {
		err = n.target.assign(st, e, v)
	}
	st.leave(e, &n.frame)
	return ctlNext, atLine(err, n.line)
}

func (n *withStmt) exec(st *state, e *env) (control, error) {
	st.enter(e, &n.frame)
	for i, t := range n.targets {
		v, err := n.values[i].eval(st, e)
		if err == nil {
			err = t.assign(st, e, v)
		}
		if err != nil {
			return 0, atLine(err, n.line)
		}
	}
	c, err := st.run(e, n.body)
	if err == nil && c == ctlNext {
		st.leave(e, &n.frame)
	}
	return c, err
}

func (n *filterBlockStmt) exec(st *state, e *env) (control, error) {
	st.enter(e, &n.frame)
	var c control
	text, err := st.capture(func() (err error) {
		c, err = st.run(e, n.body)
		return err
	})
	if err != nil || c != ctlNext {
		return c, err
	}
	v, err := n.filter.apply(st, e, text)
	if err == nil {
		err = st.printString(v, "filter block")
	}
	st.leave(e, &n.frame)
	return ctlNext, atLine(err, n.line)
}

func (n *macroStmt) exec(_ *state, e *env) (control, error) {
	e.slots[n.slot] = &macro{def: n.def, env: e}
	return ctlNext, nil
}

func (n *callBlockStmt) exec(st *state, e *env) (control, error) {
	caller := &macro{def: n.def, env: e}
	if n.call == nil {
		return ctlNext, atLine(caller.emit(st, callArgs{}), n.line)
	}
	return ctlNext, atLine(n.call.emitCaller(st, e, caller), n.line)
}

func (n *breakStmt) exec(*state, *env) (control, error)    { return ctlBreak, nil }
func (n *continueStmt) exec(*state, *env) (control, error) { return ctlContinue, nil }
