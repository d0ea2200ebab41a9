package jinja

import (
	"slices"
	"strings"
)

// maxRange bounds the number of items of a range, as the sandbox does.
const maxRange = 100_000

// globals are the functions that every template has.
var globals = map[string]*function{
	"range":           {name: "range", call: newRange},
	"dict":            {name: "dict", call: newDict, attrs: map[string]*function{"fromkeys": {name: "fromkeys", call: dictFromKeys}}},
	"namespace":       {name: "namespace", call: newNamespace},
	"cycler":          {name: "cycler", call: newCycler},
	"joiner":          {name: "joiner", call: newJoiner},
	"raise_exception": {name: "raise_exception", call: raise},
	"strftime_now":    {name: "strftime_now", call: strftimeNow},
	"lipsum": {name: "lipsum", call: func(*state, callArgs) (Value, error) {
		return nil, errorf("the function lipsum is not supported: its text is random")
	}},
}

func newRange(_ *state, a callArgs) (Value, error) {
	if err := a.only("range", 1, 3); err != nil {
		return nil, err
	}
	var n [3]int64
	for i, v := range a.pos {
		b, ok := asBig(v)
		if !ok {
			return nil, notInt(v)
		}
		if !b.IsInt64() {
			return nil, &LimitError{What: "items of a range", Max: maxRange}
		}
		n[i] = b.Int64()
	}
	r := &rangeValue{n[0], n[1], n[2]}
	switch len(a.pos) {
	case 1:
		*r = rangeValue{0, n[0], 1}
	case 2:
		r.step = 1
	}
	if r.step == 0 {
		return nil, errorf("range() expects a step that is not zero")
	}
	if l := r.len(); l < 0 || l > maxRange {
		return nil, &LimitError{What: "items of a range", Max: maxRange}
	}
	return r, nil
}

// newDict is Python's dict(...): a mapping or pairs, then keyword arguments.
func newDict(st *state, a callArgs) (Value, error) {
	if len(a.pos) > 1 {
		return nil, errorf("dict() expects at most one argument, got %d", len(a.pos))
	}
	d := &Dict{}
	if len(a.pos) == 1 {
		if err := fillDict(st, d, a.pos[0]); err != nil {
			return nil, err
		}
	}
	if err := st.allocItems(4 * len(a.kw)); err != nil {
		return nil, err
	}
	for _, k := range a.kw {
		d.Set(k.name, k.value)
	}
	return d, nil
}

func fillDict(st *state, d *Dict, v Value) error {
	switch v := v.(type) {
	case *Dict:
		if err := st.allocItems(4 * v.Len()); err != nil {
			return err
		}
		*d = *v.clone()
		return nil
	case Undefined:
		// Python asks whether there is a method keys, which undefined values refuse.
		return v.err()
	}
	it, err := iterate(st, v)
	if err != nil {
		return err
	}
	for {
		pair, ok, err := it.next(st)
		if err != nil || !ok {
			return err
		}
		kv, err := st.unpack(pair, 2)
		if err != nil {
			return err
		}
		if err := st.allocItems(4); err != nil {
			return err
		}
		if err := st.scanKey(kv[0]); err != nil {
			return err
		}
		if err := d.insert(kv[0], kv[1]); err != nil {
			return err
		}
	}
}

func newNamespace(st *state, a callArgs) (Value, error) {
	v, err := newDict(st, a)
	if err != nil {
		return nil, err
	}
	d := v.(*Dict)
	for _, e := range d.entries {
		if name, ok := asString(e.key); ok && strings.HasPrefix(name, "_") {
			return nil, errorf("attribute '%s' of a namespace: names that begin with an underscore are not allowed", name)
		}
	}
	return &namespace{d}, nil
}

func newCycler(_ *state, a callArgs) (Value, error) {
	if err := a.noKeywords("cycler"); err != nil {
		return nil, err
	}
	if len(a.pos) == 0 {
		return nil, errorf("cycler() expects at least one item")
	}
	return &cycler{items: slices.Clone(a.pos)}, nil
}

func newJoiner(_ *state, a callArgs) (Value, error) {
	args, err := a.bind("joiner", []string{"sep"}, 0)
	if err != nil {
		return nil, err
	}
	if args[0] == missing {
		return &joiner{sep: ", "}, nil
	}
	return &joiner{sep: args[0]}, nil
}

func raise(st *state, a callArgs) (Value, error) {
	args, err := a.bind("raise_exception", []string{"message"}, 1)
	if err != nil {
		return nil, err
	}
	s, err := st.str(args[0])
	if err != nil {
		return nil, err
	}
	return nil, &RaiseError{Message: s}
}

func strftimeNow(st *state, a callArgs) (Value, error) {
	args, err := a.bind("strftime_now", []string{"format"}, 1)
	if err != nil {
		return nil, err
	}
	format, err := strArg("strftime_now", args[0])
	if err != nil {
		return nil, err
	}
	if err := st.alloc(4 * len(format)); err != nil {
		return nil, err
	}
	return strftime(st.now, format), nil
}
