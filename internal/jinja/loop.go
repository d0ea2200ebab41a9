package jinja

func (n *forStmt) exec(st *state, e *env) (control, error) {
	v, err := n.iter.eval(st, e)
	if err != nil {
		return 0, atLine(err, n.line)
	}
	if n.recursive {
		return ctlNext, n.recurse(st, e, v, 0)
	}
	return n.loop(st, e, e, v, nil)
}

// recurse renders a recursive loop over v, each time in a function of its own.
func (n *forStmt) recurse(st *state, e *env, v Value, depth int) error {
	if err := st.call(); err != nil {
		return err
	}
	defer func() { st.depth++ }()
	lc := &loopContext{depth0: depth}
	lc.recurse = func(st *state, v Value) error { return n.recurse(st, e, v, depth+1) }
	_, err := n.loop(st, newEnv(n.unit, e), e, v, lc)
	return err
}

// loop runs the body in e for each item of v, and the else branch unless the body
// ran to its end at least once: break and continue do not count. outer is where the loop stands: e itself unless the loop is recursive.
func (n *forStmt) loop(st *state, e, outer *env, v Value, lc *loopContext) (control, error) {
	if n.test == nil && !n.extended {
		if items, ok := sliceOf(v); ok {
			return n.each(st, e, items)
		}
	}
	it, err := iterate(st, v)
	if err != nil {
		return 0, atLine(err, n.line)
	}
	if n.test != nil {
		it = n.filtered(st, it, outer)
		v = nil // its length does not count
	}
	if n.extended {
		if lc == nil {
			lc = &loopContext{}
		}
		lc.start(it, v)
		it = lc
	}
	ran := false
	for {
		x, ok, err := it.next(st)
		if err != nil {
			return 0, atLine(err, n.line)
		}
		if !ok {
			break
		}
		if n.extended {
			e.slots[n.loopSlot] = lc
		}
		c, err := n.iteration(st, e, x)
		if err != nil {
			return 0, err
		}
		if c == ctlBreak {
			break
		}
		ran = ran || c == ctlNext
	}
	return n.end(st, e, ran)
}

// each is loop for items that are at hand.
func (n *forStmt) each(st *state, e *env, items []Value) (control, error) {
	ran := false
	for _, x := range items {
		c, err := n.iteration(st, e, x)
		if err != nil {
			return 0, err
		}
		if c == ctlBreak {
			break
		}
		ran = ran || c == ctlNext
	}
	return n.end(st, e, ran)
}

func (n *forStmt) iteration(st *state, e *env, x Value) (control, error) {
	if err := st.step(1); err != nil {
		return 0, err
	}
	if err := n.target.assign(st, e, x); err != nil {
		return 0, atLine(err, n.line)
	}
	st.enter(e, &n.frame)
	return st.run(e, n.body)
}

func (n *forStmt) end(st *state, e *env, ran bool) (control, error) {
	st.leave(e, &n.frame)
	if ran || n.els == nil {
		return ctlNext, nil
	}
	st.enter(e, &n.elseInfo)
	c, err := st.run(e, n.els)
	st.leave(e, &n.elseInfo)
	return c, err
}

// filtered returns the items for which the loop's condition holds.
func (n *forStmt) filtered(st *state, it iterator, outer *env) iterator {
	e := newEnv(n.testUnit, outer)
	st.enter(e, &n.testInfo)
	return iterFunc(func(st *state) (Value, bool, error) {
		for {
			x, ok, err := it.next(st)
			if err != nil || !ok {
				return nil, false, err
			}
			if err := n.testTarget.assign(st, e, x); err != nil {
				return nil, false, err
			}
			ok, err = st.test(e, n.test)
			if err != nil {
				return nil, false, err
			}
			if ok {
				return targetValue(n.testTarget, e), true, nil
			}
		}
	})
}

// targetValue reads back what was assigned to a target: an item of another type
// that was unpacked becomes a tuple.
func targetValue(t target, e *env) Value {
	switch t := t.(type) {
	case *nameTarget:
		return e.slots[t.slot]
	case *tupleTarget:
		items := make([]Value, len(t.items))
		for i, it := range t.items {
			items[i] = targetValue(it, e)
		}
		return &Tuple{Items: items}
	}
	return nil
}

// A loopContext is the variable loop. It iterates over the items and can look
// one ahead.
type loopContext struct {
	it iterator
	// sized is what the length is taken from, nil when the items must be counted.
	sized  Value
	len    int
	lenSet bool

	index0                 int
	after, current, before Value
	changedTo              *Tuple

	depth0  int
	recurse func(*state, Value) error
}

func (l *loopContext) start(it iterator, sized Value) {
	l.it, l.sized = it, sized
	l.index0 = -1
	l.after, l.current, l.before = missing, missing, missing
}

func (l *loopContext) next(st *state) (Value, bool, error) {
	v := l.after
	if v == missing {
		var ok bool
		var err error
		if v, ok, err = l.it.next(st); err != nil || !ok {
			return nil, false, err
		}
	}
	l.after = missing
	l.index0++
	l.before, l.current = l.current, v
	return v, true, nil
}

// peek returns the next item, missing at the end.
func (l *loopContext) peek(st *state) (Value, error) {
	if l.after == missing {
		v, ok, err := l.it.next(st)
		if err != nil {
			return nil, err
		}
		if ok {
			l.after = v
		}
	}
	return l.after, nil
}

func (l *loopContext) length(st *state) (int, error) {
	if l.lenSet {
		return l.len, nil
	}
	n, err := -1, error(nil)
	switch l.sized.(type) {
	case nil, *generator:
	default:
		n, err = length(st, l.sized)
	}
	if n < 0 {
		var rest []Value
		if rest, err = drain(st, l.it); err == nil {
			l.it = &sliceIter{items: rest}
			n = len(rest) + l.index0 + 1
			if l.after != missing {
				n++
			}
		}
	}
	if err != nil {
		return 0, err
	}
	l.len, l.lenSet = n, true
	return n, nil
}

// attr returns an attribute of loop; ok is false when there is none.
func (l *loopContext) attr(st *state, name string) (v Value, ok bool, err error) {
	switch name {
	case "index0":
		return int64(l.index0), true, nil
	case "index":
		return int64(l.index0 + 1), true, nil
	case "first":
		return l.index0 == 0, true, nil
	case "last":
		v, err := l.peek(st)
		return v == missing, true, err
	case "length":
		n, err := l.length(st)
		return int64(n), true, err
	case "revindex":
		n, err := l.length(st)
		return int64(n - l.index0), true, err
	case "revindex0":
		n, err := l.length(st)
		return int64(n - l.index0 - 1), true, err
	case "previtem":
		if l.index0 == 0 {
			return Undefined{hint: "there is no previous item"}, true, nil
		}
		return l.before, true, nil
	case "nextitem":
		v, err := l.peek(st)
		if v == missing {
			v = Undefined{hint: "there is no next item"}
		}
		return v, true, err
	case "depth":
		return int64(l.depth0 + 1), true, nil
	case "depth0":
		return int64(l.depth0), true, nil
	case "cycle":
		return &function{name: "cycle", call: l.cycle}, true, nil
	case "changed":
		return &function{name: "changed", call: l.changed}, true, nil
	}
	return nil, false, nil
}

func (l *loopContext) cycle(_ *state, a callArgs) (Value, error) {
	if err := a.noKeywords("cycle"); err != nil {
		return nil, err
	}
	if len(a.pos) == 0 {
		return nil, errorf("loop.cycle: no items for cycling given")
	}
	return a.pos[l.index0%len(a.pos)], nil
}

func (l *loopContext) changed(st *state, a callArgs) (Value, error) {
	if err := a.noKeywords("changed"); err != nil {
		return nil, err
	}
	now := &Tuple{Items: append([]Value(nil), a.pos...)}
	if l.changedTo != nil {
		same, err := equal(st, l.changedTo, now)
		if err != nil || same {
			return false, err
		}
	}
	l.changedTo = now
	return true, nil
}

// call renders a recursive loop again, over other items.
func (l *loopContext) call(st *state, a callArgs) error {
	if l.recurse == nil {
		return errorf("the loop must be marked recursive to be called")
	}
	if len(a.pos) != 1 || len(a.kw) > 0 {
		return errorf("loop() takes one argument")
	}
	return l.recurse(st, a.pos[0])
}
