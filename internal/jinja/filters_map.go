package jinja

import "slices"

// keep returns the arguments for use after the call.
func (a *callArgs) keep() callArgs {
	return callArgs{pos: slices.Clone(a.pos), kw: slices.Clone(a.kw)}
}

func (a *callArgs) keyword(name string) (Value, bool) {
	for _, k := range a.kw {
		if k.name == name {
			return k.value, true
		}
	}
	return nil, false
}

// An itemFunc turns an item into another; ok says whether it is kept at all.
type itemFunc func(st *state, v Value) (x Value, ok bool, err error)

// transform yields what a function makes of the items of v. The function is
// prepared when the first item is asked for, and only for a value that is true:
// others have no items.
func transform(st *state, v Value, prepare func(*state) (itemFunc, error)) (Value, error) {
	var it iterator
	var f itemFunc
	return generate(st, func(st *state) (Value, bool, error) {
		if it == nil {
			some, err := truth(st, v)
			if err != nil || !some {
				return nil, false, err
			}
			if f, err = prepare(st); err != nil {
				return nil, false, err
			}
			if it, err = iterate(st, v); err != nil {
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
			if x, ok, err = f(st, x); err != nil || ok {
				return x, ok, err
			}
		}
	})
}

// filterMap applies a filter to each item, or looks an attribute of it up.
func filterMap(st *state, v Value, a callArgs) (Value, error) {
	args := a.keep()
	return transform(st, v, func(st *state) (itemFunc, error) {
		get, err := mapper(st, args)
		return func(st *state, v Value) (Value, bool, error) {
			v, err := get(st, v)
			return v, err == nil, err
		}, err
	})
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
			return nil, errorf("no filter named %s%s", repr(a.pos[0]), unsupportedNote(name))
		}
		return def.call(st, name, v, rest)
	}, nil
}

// selection makes select, reject, selectattr and rejectattr: the items for which
// a test, or without one the item itself, is true, or is not.
func selection(want, byAttr bool) func(*state, Value, callArgs) (Value, error) {
	return func(st *state, v Value, a callArgs) (Value, error) {
		args := a.keep()
		return transform(st, v, func(st *state) (itemFunc, error) {
			test, err := selector(st, args, byAttr)
			return func(st *state, v Value) (Value, bool, error) {
				ok, err := test(st, v)
				return v, ok == want, err
			}, err
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
	return func(st *state, v Value) (bool, error) {
		v, err := get(st, v)
		if err != nil {
			return false, err
		}
		def := st.tests[name]
		if def == nil {
			return false, errorf("no test named %s", repr(a.pos[len(a.pos)-len(rest.pos)-1]))
		}
		return def.call(st, name, v, rest)
	}, nil
}
