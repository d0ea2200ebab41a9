package jinja

import (
	"math/big"
	"strings"
)

// A method is a method of a type, called with its receiver.
type method func(st *state, self Value, a callArgs) (Value, error)

func bound(name string, m method, self Value) *function {
	return &function{name: name, call: func(st *state, a callArgs) (Value, error) { return m(st, self, a) }}
}

// attribute returns the attribute of an object as Python's getattr does; ok is
// false when there is none. What the sandbox forbids is undefined.
func attribute(st *state, obj Value, name string) (v Value, ok bool, err error) {
	switch o := obj.(type) {
	case *Dict:
		return methodOf(o, name, dictMethods, dictMutators)
	case string, markup:
		if v, ok, err := methodOf(obj, name, st.strMethods, nil); ok || err != nil {
			return v, ok, err
		}
		if unsupportedStrMethods[name] {
			return nil, false, errorf("the method '%s' of str is not supported", name)
		}
	case *List:
		return methodOf(o, name, listMethods, listMutators)
	case *Tuple:
		for i, n := range o.names {
			if n == name {
				return o.Items[i], true, nil
			}
		}
		return methodOf(o, name, tupleMethods, nil)
	case *namespace:
		if v, ok := o.attrs.Get(name); ok {
			return v, true, nil
		}
	case *loopContext:
		return o.attr(st, name)
	case *macro:
		v, ok := o.attr(name)
		return v, ok, nil
	case *function:
		if f, ok := o.attrs[name]; ok {
			return f, true, nil
		}
	case *cycler:
		v, ok := o.attr(name)
		return v, ok, nil
	case *joiner:
		switch name {
		case "sep":
			return o.sep, true, nil
		case "used":
			return o.used, true, nil
		}
	case *rangeValue:
		switch name {
		case "start":
			return o.start, true, nil
		case "stop":
			return o.stop, true, nil
		case "step":
			return o.step, true, nil
		}
	case bool, int64, *big.Int, float64:
		return numberAttr(o, name)
	case Undefined:
		return nil, false, o.err()
	case nil, *generator, *dictView, *templateRef:
	default:
		return nil, false, unknownType(obj)
	}
	return nil, false, nil
}

// methodOf looks a method up in the tables of a type.
func methodOf(self Value, name string, methods map[string]method, mutators map[string]bool) (Value, bool, error) {
	if m, ok := methods[name]; ok {
		return bound(name, m, self), true, nil
	}
	if mutators[name] {
		return Undefined{hint: "access to attribute '" + name + "' of " + typeName(self) + " object is unsafe: templates cannot change it"}, true, nil
	}
	return nil, false, nil
}

func numberAttr(v Value, name string) (Value, bool, error) {
	f, isFloat := v.(float64)
	switch name {
	case "real", "numerator":
		if isFloat && name == "numerator" {
			break
		}
		n, err := positive(v)
		return n, true, err
	case "imag", "denominator":
		if isFloat {
			if name == "imag" {
				return 0.0, true, nil
			}
			break
		}
		if name == "imag" {
			return int64(0), true, nil
		}
		return int64(1), true, nil
	case "is_integer":
		if isFloat {
			return bound(name, func(*state, Value, callArgs) (Value, error) { return isWhole(f), nil }, v), true, nil
		}
	case "bit_length":
		if n, ok := asBig(v); ok {
			return bound(name, func(*state, Value, callArgs) (Value, error) { return int64(n.BitLen()), nil }, v), true, nil
		}
	case "as_integer_ratio", "conjugate", "bit_count", "to_bytes", "from_bytes", "hex", "fromhex":
		return nil, false, errorf("the method '%s' of numbers is not supported", name)
	}
	return nil, false, nil
}

func undefinedAttr(obj Value, name string) Undefined {
	return Undefined{owner: "'" + typeName(obj) + " object'", name: name}
}

// getattr is obj.name: the attribute, else the item.
func getattr(st *state, obj Value, name string) (Value, error) {
	v, ok, err := attribute(st, obj, name)
	if err != nil {
		return nil, err
	}
	if ok {
		if strings.HasPrefix(name, "_") {
			return Undefined{hint: "access to attribute '" + name + "' is unsafe"}, nil
		}
		return v, nil
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.Get(name); ok {
			return v, nil
		}
	}
	return undefinedAttr(obj, name), nil
}

// getitem is obj[key]: the item, else the attribute.
func getitem(st *state, obj, key Value) (Value, error) {
	v, ok, err := item(st, obj, key)
	if err != nil || ok {
		return v, err
	}
	if name, ok := asString(key); ok {
		v, ok, err := attribute(st, obj, name)
		if err != nil {
			return nil, err
		}
		if ok && !strings.HasPrefix(name, "_") {
			return v, nil
		}
		return undefinedAttr(obj, name), nil
	}
	return Undefined{hint: typeName(obj) + " object has no such element"}, nil
}

// item returns obj[key]; ok is false where Python raises a TypeError or
// LookupError, which Jinja2 takes for an undefined value.
func item(st *state, obj, key Value) (v Value, ok bool, err error) {
	switch o := obj.(type) {
	case *Dict:
		if err := st.scanKey(key); err != nil {
			return nil, false, err
		}
		v, ok, err := o.lookup(key)
		if err != nil {
			return nil, false, nil
		}
		return v, ok, nil
	case *List:
		if i, ok := index(key, len(o.Items)); ok {
			return o.Items[i], true, nil
		}
	case *Tuple:
		if i, ok := index(key, len(o.Items)); ok {
			return o.Items[i], true, nil
		}
	case *rangeValue:
		if i, ok := index(key, o.len()); ok {
			return o.at(i), true, nil
		}
	case string, markup:
		s, _ := asString(o)
		if i, ok := asInt64(key); ok {
			if err := st.walk(int(min(max(i, -i), int64(len(s))))); err != nil {
				return nil, false, err
			}
			if c, ok := runeAt(s, i); ok {
				return restring(o, c), true, nil
			}
		}
	case Undefined:
		return nil, false, o.err()
	}
	return nil, false, nil
}

// index returns the place that key means in a sequence of length n.
func index(key Value, n int) (int, bool) {
	i, ok := asInt64(key)
	if !ok {
		return 0, false
	}
	if i < 0 {
		i += int64(n)
	}
	return int(i), 0 <= i && i < int64(n)
}

// sliceBounds are the bounds of a slice.
type sliceBounds struct {
	val   [3]int64 // start, stop, step
	given [3]bool
}

func (b *sliceBounds) set(i int, v Value) error {
	if v == nil {
		return nil
	}
	n, ok := asBig(v)
	if !ok {
		if u, ok := v.(Undefined); ok {
			return u.err()
		}
		return errorf("slice indices must be integers or None, not %s", typeName(v))
	}
	b.val[i], b.given[i] = clampInt64(n), true
	return nil
}

// indices returns the bounds of the slice of a sequence of length n as those of a
// range of indices.
func (b *sliceBounds) indices(n int) (rangeValue, error) {
	r := rangeValue{step: 1}
	if b.given[2] {
		r.step = b.val[2]
	}
	if r.step == 0 {
		return r, errorf("slice step cannot be zero")
	}
	lo, hi := int64(0), int64(n)
	if r.step < 0 {
		lo, hi = -1, int64(n)-1
	}
	bound := func(i int, def int64) int64 {
		if !b.given[i] {
			return def
		}
		v := b.val[i]
		if v < 0 {
			v = max(v+int64(n), lo)
		}
		return min(v, hi)
	}
	if r.step > 0 {
		r.start, r.stop = bound(0, lo), bound(1, hi)
	} else {
		r.start, r.stop = bound(0, hi), bound(1, lo)
	}
	return r, nil
}

// getslice is obj[start:stop:step].
func getslice(st *state, obj Value, b *sliceBounds) (Value, error) {
	switch o := obj.(type) {
	case string, markup:
		s, _ := asString(o)
		s, err := sliceString(st, s, b)
		return restring(o, s), err
	case *List:
		items, err := sliceItems(st, o.Items, b)
		return &List{Items: items}, err
	case *Tuple:
		items, err := sliceItems(st, o.Items, b)
		return &Tuple{Items: items}, err
	case *rangeValue:
		r, err := b.indices(o.len())
		if err != nil {
			return nil, err
		}
		return &rangeValue{o.start + r.start*o.step, o.start + r.stop*o.step, o.step * r.step}, nil
	case Undefined:
		return nil, o.err()
	}
	return nil, errorf("%s object cannot be sliced", typeName(obj))
}

// sliceItems shares the items where it can: lists do not change.
func sliceItems(st *state, items []Value, b *sliceBounds) ([]Value, error) {
	r, err := b.indices(len(items))
	if err != nil {
		return nil, err
	}
	n := r.len()
	if n == 0 {
		return nil, nil
	}
	if r.step == 1 {
		return items[r.start:r.stop:r.stop], nil
	}
	if err := st.allocItems(n); err != nil {
		return nil, err
	}
	out := make([]Value, n)
	for i := range out {
		out[i] = items[r.at(i)]
	}
	return out, nil
}

// set sets an attribute of a namespace.
func (n *namespace) set(name string, v Value) error {
	if strings.HasPrefix(name, "_") {
		return errorf("attribute '%s' of a namespace: names that begin with an underscore are not allowed", name)
	}
	n.attrs.Set(name, v)
	return nil
}
