package jinja

import "unicode/utf8"

// An iterator yields values one at a time; ok is false at the end.
type iterator interface {
	next(st *state) (v Value, ok bool, err error)
}

// iterFunc makes a function an iterator.
type iterFunc func(*state) (Value, bool, error)

func (f iterFunc) next(st *state) (Value, bool, error) { return f(st) }

// sliceIter yields the items of a slice.
type sliceIter struct {
	items []Value
	pos   int
}

func (it *sliceIter) next(*state) (Value, bool, error) {
	if it.pos == len(it.items) {
		return nil, false, nil
	}
	it.pos++
	return it.items[it.pos-1], true, nil
}

// A generator is a value that can be iterated over once: what filters such as
// map and select return. It works when asked for items, so that an error in it
// comes up only then.
type generator struct{ it iterator }

func generate(st *state, next func(st *state) (Value, bool, error)) (Value, error) {
	const size = 256 // with what the function holds, about
	return &generator{iterFunc(next)}, st.alloc(size)
}

// sliceOf returns the items of a list or tuple without copying them.
func sliceOf(v Value) ([]Value, bool) {
	switch v := v.(type) {
	case *List:
		return v.Items, true
	case *Tuple:
		return v.Items, true
	}
	return nil, false
}

// iterate is Python's iter(v).
func iterate(st *state, v Value) (iterator, error) {
	switch v := v.(type) {
	case *List:
		return &sliceIter{items: v.Items}, nil
	case *Tuple:
		return &sliceIter{items: v.Items}, nil
	case *generator:
		return v.it, nil
	case Undefined:
		return &sliceIter{}, nil
	case string:
		return runes(v), nil
	case markup:
		return runes(string(v)), nil
	case *Dict:
		return indexed(v.Len(), func(i int) Value { return v.entries[i].key }), nil
	case *dictView:
		return indexed(v.dict.Len(), v.at), nil
	case *rangeValue:
		return indexed(v.len(), func(i int) Value { return v.at(i) }), nil
	}
	return nil, errorf("%s object is not iterable", typeName(v))
}

// reversed is Python's reversed(v); ok is false where Python has none.
func reversed(v Value) (it iterator, ok bool) {
	down := func(n int, at func(int) Value) iterator {
		return indexed(n, func(i int) Value { return at(n - 1 - i) })
	}
	switch v := v.(type) {
	case *List:
		return down(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Tuple:
		return down(len(v.Items), func(i int) Value { return v.Items[i] }), true
	case *Dict:
		return down(v.Len(), func(i int) Value { return v.entries[i].key }), true
	case *dictView:
		return down(v.dict.Len(), v.at), true
	case *rangeValue:
		return down(v.len(), func(i int) Value { return v.at(i) }), true
	case Undefined:
		return &sliceIter{}, true
	}
	if s, ok := asString(v); ok {
		rest := s
		return iterFunc(func(*state) (Value, bool, error) {
			if rest == "" {
				return nil, false, nil
			}
			_, n := utf8.DecodeLastRuneInString(rest)
			c := rest[len(rest)-n:]
			rest = rest[:len(rest)-n]
			return restring(v, c), true, nil
		}), true
	}
	return nil, false
}

// indexed yields at(0) to at(n-1).
func indexed(n int, at func(int) Value) iterator {
	i := 0
	return iterFunc(func(*state) (Value, bool, error) {
		if i == n {
			return nil, false, nil
		}
		i++
		return at(i - 1), true, nil
	})
}

// runes yields the characters of s.
func runes(s string) iterator {
	return iterFunc(func(*state) (Value, bool, error) {
		if s == "" {
			return nil, false, nil
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return c, true, nil
	})
}

// drain returns what an iterator has left.
func drain(st *state, it iterator) ([]Value, error) {
	var items []Value
	for {
		v, ok, err := it.next(st)
		if err != nil || !ok {
			return items, err
		}
		if err := st.allocItems(1); err != nil {
			return nil, err
		}
		items = append(items, v)
	}
}

// collect is Python's list(v) as a slice; it may be shared with v.
func collect(st *state, v Value) ([]Value, error) {
	if items, ok := sliceOf(v); ok {
		return items, nil
	}
	it, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	return drain(st, it)
}

// contains is Python's item in v.
func contains(st *state, v, item Value) (bool, error) {
	if err := st.scanKey(item); err != nil {
		return false, err
	}
	switch v := v.(type) {
	case string, markup:
		s, _ := asString(v)
		sub, ok := asString(item)
		if !ok {
			return false, errorf("'in <string>' requires a string on the left, not %s", typeName(item))
		}
		return indexString(st, s, sub)
	case *Dict:
		_, ok, err := v.lookup(item)
		return ok, err
	case *dictView:
		if v.kind == viewKeys {
			_, ok, err := v.dict.lookup(item)
			return ok, err
		}
	}
	if items, ok := sliceOf(v); ok {
		for _, x := range items {
			if err := st.step(1); err != nil {
				return false, err
			}
			if same, err := equal(st, x, item); err != nil || same {
				return same, err
			}
		}
		return false, nil
	}
	it, err := iterate(st, v)
	if err != nil {
		return false, errorf("argument of type %s is not iterable", typeName(v))
	}
	for {
		x, ok, err := it.next(st)
		if err != nil || !ok {
			return false, err
		}
		if err := st.step(1); err != nil {
			return false, err
		}
		if same, err := equal(st, x, item); err != nil || same {
			return same, err
		}
	}
}
