package jinja

import (
	"slices"
	"strconv"
	"strings"
)

func filterList(st *state, v Value, _ []Value) (Value, error) {
	items, err := collect(st, v)
	return &List{Items: items}, err
}

// filterItems yields the pairs of a dict, of an undefined value none.
func filterItems(st *state, v Value, _ []Value) (Value, error) {
	var it iterator
	return generate(st, func(st *state) (Value, bool, error) {
		if it == nil {
			switch d := v.(type) {
			case *Dict:
				it = indexed(d.Len(), (&dictView{d, viewItems}).at)
			case Undefined:
				it = &sliceIter{}
			default:
				return nil, false, errorf("filter 'items' expects a mapping, not %s", typeName(v))
			}
		}
		return it.next(st)
	})
}

func filterFirst(st *state, v Value, _ []Value) (Value, error) {
	it, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	x, ok, err := it.next(st)
	if err == nil && !ok {
		x = Undefined{hint: "no first item, sequence was empty"}
	}
	return x, err
}

func filterLast(st *state, v Value, _ []Value) (Value, error) {
	it, ok := reversed(v)
	if !ok {
		return nil, errorf("filter 'last' expects a sequence that can be reversed, not %s", typeName(v))
	}
	x, ok, err := it.next(st)
	if err == nil && !ok {
		x = Undefined{hint: "no last item, sequence was empty"}
	}
	return x, err
}

func filterReverse(st *state, v Value, _ []Value) (Value, error) {
	if s, ok := asString(v); ok {
		b := sliceBounds{val: [3]int64{2: -1}, given: [3]bool{2: true}}
		out, err := sliceString(st, s, &b)
		return restring(v, out), err
	}
	if it, ok := reversed(v); ok {
		return &generator{it}, nil
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return &List{Items: items}, nil
}

func filterJoin(st *state, v Value, a []Value) (Value, error) {
	sep, err := st.str(arg(a[0], ""))
	if err != nil {
		return nil, err
	}
	get, err := attrGetter(st, arg(a[1], nil), nil, false)
	if err != nil {
		return nil, err
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	if err := st.fits(len(items)); err != nil {
		return nil, err
	}
	if err := st.step(len(items)); err != nil {
		return nil, err
	}
	ss := make([]string, len(items))
	for i, x := range items {
		if x, err = get(st, x); err != nil {
			return nil, err
		}
		if ss[i], err = st.str(x); err != nil {
			return nil, err
		}
	}
	return joinSep(st, ss, sep)
}

// A getter looks up what an attribute argument such as "a.b.0" names.
type getter func(st *state, v Value) (Value, error)

// attrGetter returns the getter for an attribute, nil for the value itself. A
// step that is undefined gives def unless that is nil. With fold, strings come
// out in lower case.
func attrGetter(st *state, attr, def Value, fold bool) (getter, error) {
	parts := []Value{}
	switch s, ok := asString(attr); {
	case ok:
		if err := st.fits(strings.Count(s, ".")); err != nil {
			return nil, err
		}
		for p := range strings.SplitSeq(s, ".") {
			parts = append(parts, attrPart(p))
		}
	case attr != nil:
		parts = append(parts, attr)
	}
	return func(st *state, v Value) (Value, error) {
		if err := st.step(len(parts)); err != nil {
			return nil, err
		}
		for _, p := range parts {
			var err error
			if v, err = getitem(st, v, p); err != nil {
				return nil, err
			}
			if def != nil && isUndefined(v) {
				v = def
			}
		}
		if !fold {
			return v, nil
		}
		return ignoreCase(st, v)
	}, nil
}

// attrPart returns the key that a part of an attribute path means: a number for
// digits.
func attrPart(p string) Value {
	if p == "" || strings.Trim(p, "0123456789") != "" {
		return p
	}
	if n, err := strconv.ParseInt(p, 10, 64); err == nil {
		return n
	}
	return p
}

// ignoreCase returns a string in lower case and other values as they are.
func ignoreCase(st *state, v Value) (Value, error) {
	if s, ok := asString(v); ok {
		return restring(v, toLower(s)), st.alloc(len(s))
	}
	return v, nil
}

func filterSum(st *state, v Value, a []Value) (Value, error) {
	get, err := attrGetter(st, arg(a[0], nil), nil, false)
	if err != nil {
		return nil, err
	}
	sum := arg(a[1], int64(0))
	if _, ok := asString(sum); ok {
		return nil, errorf("filter 'sum' cannot sum strings, use join")
	}
	it, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	for {
		x, ok, err := it.next(st)
		if err != nil || !ok {
			return sum, err
		}
		if err := st.step(1); err != nil {
			return nil, err
		}
		if x, err = get(st, x); err != nil {
			return nil, err
		}
		if sum, err = add(st, sum, x); err != nil {
			return nil, err
		}
	}
}

func filterGroupBy(st *state, v Value, a []Value) (Value, error) {
	exact, err := flag(st, a[2])
	if err != nil {
		return nil, err
	}
	def := arg(a[1], nil)
	get, err := attrGetter(st, a[0], def, !exact)
	if err != nil {
		return nil, err
	}
	name, err := attrGetter(st, a[0], def, false)
	if err != nil {
		return nil, err
	}
	items, err := withKeys(st, v, get)
	if err != nil {
		return nil, err
	}
	if err := sortBy(st, items, false, func(k keyed) Value { return k.key }); err != nil {
		return nil, err
	}
	groups := &List{}
	for i := 0; i < len(items); {
		j := i + 1
		for ; j < len(items); j++ {
			same, err := equal(st, items[i].key, items[j].key)
			if err != nil {
				return nil, err
			}
			if !same {
				break
			}
		}
		group := valuesOf(items[i:j])
		// The group is named after its first item, in the case that has there.
		key, err := name(st, group.Items[0])
		if err != nil {
			return nil, err
		}
		groups.Items = append(groups.Items, &Tuple{Items: []Value{key, group}, names: []string{"grouper", "list"}})
		i = j
	}
	return groups, nil
}

func filterBatch(st *state, v Value, a []Value) (Value, error) {
	size, fill := a[0], arg(a[1], nil)
	var it iterator
	var held []Value // the first item of the next batch
	return generate(st, func(st *state) (Value, bool, error) {
		n, err := asCount(size)
		if err != nil {
			// What is compared with a length may be any number.
			f, ok, ferr := toFloat(size)
			if !ok || ferr != nil {
				n = -1
			} else if n = int(f); float64(n) != f {
				n = -1
			}
		}
		if it == nil {
			if it, err = iterate(st, v); err != nil {
				return nil, false, err
			}
		}
		batch := held
		held = nil
		for {
			x, ok, err := it.next(st)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			if err := st.allocItems(1); err != nil {
				return nil, false, err
			}
			if len(batch) == n {
				held = []Value{x}
				return &List{Items: batch}, true, nil
			}
			batch = append(batch, x)
		}
		if len(batch) == 0 {
			return nil, false, nil
		}
		if fill != nil && len(batch) < n {
			more, _, err := repeat(st, &List{Items: []Value{fill}}, int64(n-len(batch)))
			if err != nil {
				return nil, false, err
			}
			batch = append(batch, more.(*List).Items...)
		}
		return &List{Items: batch}, true, nil
	})
}

func filterSlice(st *state, v Value, a []Value) (Value, error) {
	count, fill := a[0], arg(a[1], nil)
	var items []Value
	n, i, offset := 0, -1, 0
	return generate(st, func(st *state) (Value, bool, error) {
		if i < 0 {
			var err error
			if items, err = collect(st, v); err != nil {
				return nil, false, err
			}
			if n, err = asCount(count); err != nil {
				return nil, false, err
			}
			if n == 0 {
				return nil, false, errorf("filter 'slice': division by zero")
			}
			i = 0
		}
		if i >= n {
			return nil, false, nil
		}
		if err := st.allocItems(1); err != nil {
			return nil, false, err
		}
		per, extra := len(items)/n, len(items)%n
		start := offset + i*per
		if i < extra {
			offset++
		}
		end := offset + (i+1)*per
		part := slices.Clone(items[start:end])
		if fill != nil && i >= extra {
			part = append(part, fill)
		}
		i++
		return &List{Items: part}, true, nil
	})
}
