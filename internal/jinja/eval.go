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
