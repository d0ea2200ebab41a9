package jinja

import (
	"slices"
	"sort"
	"strings"
)

// sortBy sorts items by their keys, keeping the order of equal ones. Keys that
// cannot be ordered are an error.
func sortBy[T any](st *state, items []T, reverse bool, key func(T) Value) error {
	var failed error
	sort.SliceStable(items, func(i, j int) bool {
		if failed != nil {
			return false
		}
		if failed = st.step(1); failed != nil {
			return false
		}
		if reverse {
			i, j = j, i
		}
		less, err := ordered(st, cmpLt, key(items[i]), key(items[j]))
		failed = err
		return less
	})
	return failed
}

// keyed is an item with the key that it is sorted by.
type keyed struct{ key, value Value }

func withKeys(st *state, v Value, get getter) ([]keyed, error) {
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	if err := st.allocItems(2 * len(items)); err != nil {
		return nil, err
	}
	if err := st.step(len(items)); err != nil {
		return nil, err
	}
	out := make([]keyed, len(items))
	for i, x := range items {
		k, err := get(st, x)
		if err != nil {
			return nil, err
		}
		out[i] = keyed{k, x}
	}
	return out, nil
}

func valuesOf(items []keyed) *List {
	l := &List{Items: make([]Value, len(items))}
	for i, x := range items {
		l.Items[i] = x.value
	}
	return l
}

func filterSort(st *state, v Value, a []Value) (Value, error) {
	reverse, err := flag(st, a[0])
	if err != nil {
		return nil, err
	}
	exact, err := flag(st, a[1])
	if err != nil {
		return nil, err
	}
	// Several attributes are separated by commas; the key is a list of them all.
	paths := []Value{arg(a[2], nil)}
	if s, ok := asString(paths[0]); ok {
		paths = nil
		if err := st.fits(strings.Count(s, ",")); err != nil {
			return nil, err
		}
		for p := range strings.SplitSeq(s, ",") {
			paths = append(paths, p)
		}
	}
	getters := make([]getter, len(paths))
	for i, p := range paths {
		if getters[i], err = attrGetter(st, p, nil, !exact); err != nil {
			return nil, err
		}
	}
	items, err := withKeys(st, v, func(st *state, v Value) (Value, error) {
		key := &List{Items: make([]Value, len(getters))}
		for i, get := range getters {
			var err error
			if key.Items[i], err = get(st, v); err != nil {
				return nil, err
			}
		}
		return key, nil
	})
	if err != nil {
		return nil, err
	}
	if err := sortBy(st, items, reverse, func(k keyed) Value { return k.key }); err != nil {
		return nil, err
	}
	return valuesOf(items), nil
}

func filterDictSort(st *state, v Value, a []Value) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		if u, ok := v.(Undefined); ok {
			return nil, u.err()
		}
		return nil, errorf("filter 'dictsort' expects a dict, not %s", typeName(v))
	}
	exact, err := flag(st, a[0])
	if err != nil {
		return nil, err
	}
	reverse, err := flag(st, a[2])
	if err != nil {
		return nil, err
	}
	by, _ := asString(arg(a[1], "key"))
	at := slices.Index([]string{"key", "value"}, by)
	if at < 0 {
		return nil, errorf("filter 'dictsort' sorts by 'key' or 'value'")
	}
	items, err := withKeys(st, &dictView{d, viewItems}, func(st *state, v Value) (Value, error) {
		k := v.(*Tuple).Items[at]
		if exact {
			return k, nil
		}
		return ignoreCase(st, k)
	})
	if err != nil {
		return nil, err
	}
	if err := sortBy(st, items, reverse, func(k keyed) Value { return k.key }); err != nil {
		return nil, err
	}
	return valuesOf(items), nil
}

func filterUnique(st *state, v Value, a []Value) (Value, error) {
	exact, err := flag(st, a[0])
	if err != nil {
		return nil, err
	}
	get, err := attrGetter(st, arg(a[1], nil), nil, !exact)
	if err != nil {
		return nil, err
	}
	var it iterator
	seen := map[Value]bool{}
	return generate(st, func(st *state) (Value, bool, error) {
		if it == nil {
			var err error
			if it, err = iterate(st, v); err != nil {
				return nil, false, err
			}
		}
		for {
			x, ok, err := it.next(st)
			if err != nil || !ok {
				return nil, false, err
			}
			if err := st.allocItems(1); err != nil {
				return nil, false, err
			}
			k, err := get(st, x)
			if err != nil {
				return nil, false, err
			}
			if err := st.scanKey(k); err != nil {
				return nil, false, err
			}
			h, err := hashable(k)
			if err != nil {
				return nil, false, err
			}
			if !seen[h] {
				seen[h] = true
				return x, true, nil
			}
		}
	})
}

// extreme makes min and max.
func extreme(op compareOp) func(*state, Value, []Value) (Value, error) {
	return func(st *state, v Value, a []Value) (Value, error) {
		exact, err := flag(st, a[0])
		if err != nil {
			return nil, err
		}
		get, err := attrGetter(st, arg(a[1], nil), nil, !exact)
		if err != nil {
			return nil, err
		}
		items, err := withKeys(st, v, get)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return Undefined{hint: "no aggregated item, sequence was empty"}, nil
		}
		best := items[0]
		for _, x := range items[1:] {
			better, err := ordered(st, op, x.key, best.key)
			if err != nil {
				return nil, err
			}
			if better {
				best = x
			}
		}
		return best.value, nil
	}
}
