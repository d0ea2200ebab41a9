package jinja

import "slices"

// filterMap applies a filter to each item, or looks an attribute of it up.
func filterMap(st *state, v Value, a callArgs) (Value, error) {
	args := a.keep()
	var it iterator
	var f getter
	return generate(st, func(st *state) (Value, bool, error) {
		if it == nil {
			var err error
			if it, err = iterateTrue(st, v); err != nil {
				return nil, false, err
			}
			if f, err = mapper(st, args); err != nil {
				if _, empty := it.(*sliceIter); !empty || isTrue(st, v) {
					return nil, false, err
				}
			}
		}
		x, ok, err := it.next(st)
		if err != nil || !ok {
			return nil, false, err
		}
		if err := st.step(1); err != nil {
			return nil, false, err
		}
		x, err = f(st, x)
		return x, err == nil, err
	})
}

// keep returns the arguments for use after the call.
func (a *callArgs) keep() callArgs {
	return callArgs{pos: slices.Clone(a.pos), kw: slices.Clone(a.kw)}
}

// iterateTrue iterates over a value that is true; one that is not has no items.
func iterateTrue(st *state, v Value) (iterator, error) {
	ok, err := truth(st, v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return &sliceIter{}, nil
	}
	return iterate(st, v)
}

func isTrue(st *state, v Value) bool {
	ok, err := truth(st, v)
	return ok && err == nil
}

// mapper returns what the arguments of map ask for.
func mapper(st *state, a callArgs) (getter, error) {
	attr, isAttr := a.keyword("attribute")
	if len(a.pos) == 0 && isAttr {
		def, _ := a.keyword("default")
		for _, k := range a.kw {
			if k.name != "attribute" && k.name != "default" {
				return nil, errorf("filter 'map' has no argument '%s'", k.name)
			}
		}
		return attrGetter(st, attr, def, false)
	}
	if len(a.pos) == 0 {
		return nil, errorf("filter 'map' expects the name of a filter")
	}
	name, _ := asString(a.pos[0])
	rest := callArgs{pos: a.pos[1:], kw: a.kw}
	return func(st *state, v Value) (Value, error) {
		def := st.filters[name]
		if def == nil {
			return nil, errorf("no filter named %s%s", Repr(a.pos[0]), unsupportedNote(name))
		}
		return def.call(st, name, v, rest)
	}, nil
}

func (a *callArgs) keyword(name string) (Value, bool) {
	for _, k := range a.kw {
		if k.name == name {
			return k.value, true
		}
	}
	return nil, false
}

// selection makes select, reject, selectattr and rejectattr: the items for which
// a test, or without one the item itself, is true, or is not.
func selection(want, byAttr bool) func(*state, Value, callArgs) (Value, error) {
	return func(st *state, v Value, a callArgs) (Value, error) {
		args := a.keep()
		var it iterator
		var test func(*state, Value) (bool, error)
		return generate(st, func(st *state) (Value, bool, error) {
			if it == nil {
				var err error
				if it, err = iterateTrue(st, v); err != nil {
					return nil, false, err
				}
				if test, err = selector(st, args, byAttr); err != nil {
					if !isTrue(st, v) {
						return nil, false, nil
					}
					return nil, false, err
				}
			}
			for {
				x, ok, err := it.next(st)
				if err != nil || !ok {
					return nil, false, err
				}
				if err := st.step(1); err != nil {
					return nil, false, err
				}
				ok, err = test(st, x)
				if err != nil {
					return nil, false, err
				}
				if ok == want {
					return x, true, nil
				}
			}
		})
	}
}

func selector(st *state, a callArgs, byAttr bool) (func(*state, Value) (bool, error), error) {
	get := func(_ *state, v Value) (Value, error) { return v, nil }
	pos := a.pos
	if byAttr {
		if len(pos) == 0 {
			return nil, errorf("missing the name of an attribute")
		}
		var err error
		if get, err = attrGetter(st, pos[0], nil, false); err != nil {
			return nil, err
		}
		pos = pos[1:]
	}
	if len(pos) == 0 {
		return func(st *state, v Value) (bool, error) {
			v, err := get(st, v)
			if err != nil {
				return false, err
			}
			return truth(st, v)
		}, nil
	}
	name, _ := asString(pos[0])
	rest := callArgs{pos: pos[1:], kw: a.kw}
	label := Repr(pos[0])
	return func(st *state, v Value) (bool, error) {
		v, err := get(st, v)
		if err != nil {
			return false, err
		}
		def := st.tests[name]
		if def == nil {
			return false, errorf("no test named %s", label)
		}
		return def.call(st, name, v, rest)
	}, nil
}
