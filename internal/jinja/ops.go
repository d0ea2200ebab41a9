package jinja

import (
	"math"
	"math/big"
	"strings"
)

// binary computes l op r for the arithmetic operators.
func binary(st *state, op string, l, r Value) (Value, error) {
	if op == "+" {
		return add(st, l, r)
	}
	if v, ok, err := arith(st, op, l, r); ok || err != nil {
		return v, err
	}
	if u, ok := l.(Undefined); ok {
		return nil, u.err()
	}
	if op == "%" {
		if s, ok := asString(l); ok {
			out, err := printf(st, l, s, r)
			return restring(l, out), err
		}
	}
	if u, ok := r.(Undefined); ok {
		return nil, u.err()
	}
	if op == "*" {
		if v, ok, err := repeat(st, l, r); ok {
			return v, err
		}
		if v, ok, err := repeat(st, r, l); ok {
			return v, err
		}
	}
	return nil, unsupportedOperands(op, l, r)
}

func unsupportedOperands(op string, l, r Value) error {
	return errorf("unsupported operand types for %s: %s and %s", op, typeName(l), typeName(r))
}

// add is l + r.
func add(st *state, l, r Value) (Value, error) {
	switch a := l.(type) {
	case string:
		switch b := r.(type) {
		case string:
			return st.join(a, b)
		case markup:
			s, err := st.join(escapeHTML(a), string(b))
			return markup(s), err
		}
	case markup:
		switch b := r.(type) {
		case string:
			s, err := st.join(string(a), escapeHTML(b))
			return markup(s), err
		case markup:
			s, err := st.join(string(a), string(b))
			return markup(s), err
		}
	case *List:
		if b, ok := r.(*List); ok {
			items, err := concatItems(st, a.Items, b.Items)
			return &List{Items: items}, err
		}
	case *Tuple:
		if b, ok := r.(*Tuple); ok {
			items, err := concatItems(st, a.Items, b.Items)
			return &Tuple{Items: items}, err
		}
	case Undefined:
		return nil, a.err()
	}
	if u, ok := r.(Undefined); ok {
		return nil, u.err()
	}
	if v, ok, err := arith(st, "+", l, r); ok || err != nil {
		return v, err
	}
	return nil, unsupportedOperands("+", l, r)
}

func concatItems(st *state, a, b []Value) ([]Value, error) {
	if err := st.allocItems(len(a) + len(b)); err != nil {
		return nil, err
	}
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...), nil
}

// repeat is seq * n; ok is false when seq is no sequence or n no integer.
func repeat(st *state, seq, n Value) (Value, bool, error) {
	big, ok := asBig(n)
	if !ok {
		return nil, false, nil
	}
	count := int(min(max(clampInt64(big), 0), math.MaxInt32))
	items, isItems := sliceOf(seq)
	if isItems {
		if len(items) == 0 || count == 0 {
			count = 0
		} else if count > st.maxOut/len(items) {
			return nil, true, &LimitError{What: "bytes of a value", Max: st.maxOut}
		}
		if err := st.allocItems(count * len(items)); err != nil {
			return nil, true, err
		}
		out := make([]Value, 0, count*len(items))
		for range count {
			out = append(out, items...)
		}
		if _, ok := seq.(*Tuple); ok {
			return &Tuple{Items: out}, true, nil
		}
		return &List{Items: out}, true, nil
	}
	s, ok := asString(seq)
	if !ok {
		return nil, false, nil
	}
	out, err := st.repeat(s, count)
	return restring(seq, out), true, err
}

// repeat is strings.Repeat within bounds.
func (st *state) repeat(s string, n int) (string, error) {
	if s == "" || n <= 0 {
		return "", nil
	}
	if n > st.maxOut/len(s) {
		return "", &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	if err := st.alloc(n * len(s)); err != nil {
		return "", err
	}
	return strings.Repeat(s, n), nil
}

// compare computes l op r for the comparison operators.
func compare(st *state, op compareOp, l, r Value) (bool, error) {
	switch op {
	case cmpEq:
		return equal(st, l, r)
	case cmpNe:
		ok, err := equal(st, l, r)
		return !ok, err
	case cmpIn:
		return contains(st, r, l)
	case cmpNotIn:
		ok, err := contains(st, r, l)
		return !ok, err
	}
	return ordered(st, op, l, r)
}

// equal is l == r.
func equal(st *state, l, r Value) (bool, error) {
	switch a := l.(type) {
	case string:
		switch b := r.(type) {
		case string:
			return equalStrings(st, a, b)
		case markup:
			return equalStrings(st, a, string(b))
		}
		return false, nil
	case markup:
		b, ok := asString(r)
		if !ok {
			return false, nil
		}
		return equalStrings(st, string(a), b)
	case nil:
		return r == nil, nil
	case Undefined:
		_, ok := r.(Undefined)
		return ok, nil
	case bool, int64, *big.Int, float64:
		c, ok := compareNumbers(l, r)
		return ok && c == 0, nil
	case *List:
		if b, ok := r.(*List); ok {
			return equalItems(st, a.Items, b.Items)
		}
		return false, nil
	case *Tuple:
		if b, ok := r.(*Tuple); ok {
			return equalItems(st, a.Items, b.Items)
		}
		return false, nil
	case *Dict:
		if b, ok := r.(*Dict); ok {
			return equalDicts(st, a, b)
		}
		return false, nil
	case *rangeValue:
		b, ok := r.(*rangeValue)
		if !ok || a.len() != b.len() {
			return false, nil
		}
		n := a.len()
		return n == 0 || a.start == b.start && (n == 1 || a.step == b.step), nil
	case *dictView:
		if b, ok := r.(*dictView); ok && a.kind == b.kind && a.kind != viewValues {
			return equalViews(st, a, b)
		}
	case *namespace, *macro, *function, *generator, *loopContext, *cycler, *joiner, *templateRef:
	default:
		return false, unknownType(l)
	}
	return l == r, nil
}

func equalStrings(st *state, a, b string) (bool, error) {
	if len(a) == len(b) && len(a) > bytesPerStep {
		if err := st.scan(len(a)); err != nil {
			return false, err
		}
	}
	return a == b, nil
}

func equalItems(st *state, a, b []Value) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	if err := st.descend(); err != nil {
		return false, err
	}
	defer func() { st.nesting-- }()
	for i := range a {
		if err := st.step(1); err != nil {
			return false, err
		}
		if same, err := same(st, a[i], b[i]); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// same is equality inside containers, where an object equals itself without
// asking.
func same(st *state, a, b Value) (bool, error) {
	switch x := a.(type) {
	case *List:
		if y, ok := b.(*List); ok && x == y {
			return true, nil
		}
	case *Dict:
		if y, ok := b.(*Dict); ok && x == y {
			return true, nil
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok && x == y {
			return true, nil
		}
	}
	return equal(st, a, b)
}

func equalDicts(st *state, a, b *Dict) (bool, error) {
	if a == b {
		return true, nil
	}
	if a.Len() != b.Len() {
		return false, nil
	}
	if err := st.descend(); err != nil {
		return false, err
	}
	defer func() { st.nesting-- }()
	for _, e := range a.entries {
		if err := st.step(1); err != nil {
			return false, err
		}
		v, ok, err := b.lookup(e.key)
		if err != nil || !ok {
			return false, err
		}
		if same, err := same(st, e.value, v); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func equalViews(st *state, a, b *dictView) (bool, error) {
	if a.kind == viewItems {
		return equalDicts(st, a.dict, b.dict)
	}
	if a.dict.Len() != b.dict.Len() {
		return false, nil
	}
	for _, e := range a.dict.entries {
		if _, ok, err := b.dict.lookup(e.key); err != nil || !ok {
			return false, err
		}
	}
	return true, st.step(a.dict.Len())
}

// ordered is l op r for the operators that need an order.
func ordered(st *state, op compareOp, l, r Value) (bool, error) {
	c, ok, err := order(st, l, r)
	if err != nil {
		return false, err
	}
	if !ok {
		if u, ok := l.(Undefined); ok {
			return false, u.err()
		}
		if u, ok := r.(Undefined); ok {
			return false, u.err()
		}
		return false, errorf("%s and %s cannot be ordered", typeName(l), typeName(r))
	}
	switch op {
	case cmpLt:
		return c == -1, nil
	case cmpLe:
		return c == -1 || c == 0, nil
	case cmpGt:
		return c == 1, nil
	}
	return c == 1 || c == 0, nil
}

// unordered is the order of NaN and anything.
const unordered = 2

// order compares two values: -1, 0, 1 or unordered. ok is false for types
// without an order.
func order(st *state, l, r Value) (c int, ok bool, err error) {
	if a, aok := asString(l); aok {
		if b, bok := asString(r); bok {
			return strings.Compare(a, b), true, st.scan(min(len(a), len(b)))
		}
		return 0, false, nil
	}
	if c, ok := compareNumbers(l, r); ok {
		return c, true, nil
	}
	a, aok := l.(*List)
	b, bok := r.(*List)
	if aok && bok {
		return orderItems(st, a.Items, b.Items)
	}
	x, xok := l.(*Tuple)
	y, yok := r.(*Tuple)
	if xok && yok {
		return orderItems(st, x.Items, y.Items)
	}
	return 0, false, nil
}

// orderItems orders sequences by their first items that differ.
func orderItems(st *state, a, b []Value) (int, bool, error) {
	if err := st.descend(); err != nil {
		return 0, false, err
	}
	defer func() { st.nesting-- }()
	for i := range min(len(a), len(b)) {
		if err := st.step(1); err != nil {
			return 0, false, err
		}
		same, err := same(st, a[i], b[i])
		if err != nil {
			return 0, false, err
		}
		if !same {
			return order(st, a[i], b[i])
		}
	}
	switch {
	case len(a) < len(b):
		return -1, true, nil
	case len(a) > len(b):
		return 1, true, nil
	}
	return 0, true, nil
}

// compareNumbers compares ints, bools and floats exactly; ok is false when
// another type is among them.
func compareNumbers(l, r Value) (int, bool) {
	if a, aok := asInt64(l); aok {
		if b, bok := asInt64(r); bok {
			switch {
			case a < b:
				return -1, true
			case a > b:
				return 1, true
			}
			return 0, true
		}
	}
	a, aok := l.(float64)
	b, bok := r.(float64)
	switch {
	case aok && bok:
		return orderFloats(a, b), true
	case aok:
		n, ok := asBig(r)
		if !ok {
			return 0, false
		}
		return orderFloatInt(a, n), true
	case bok:
		n, ok := asBig(l)
		if !ok {
			return 0, false
		}
		if c := orderFloatInt(b, n); c != unordered {
			return -c, true
		}
		return unordered, true
	}
	x, xok := asBig(l)
	y, yok := asBig(r)
	if !xok || !yok {
		return 0, false
	}
	return x.Cmp(y), true
}

func orderFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return unordered
}

func orderFloatInt(f float64, n *big.Int) int {
	if math.IsNaN(f) {
		return unordered
	}
	if math.IsInf(f, 0) {
		return orderFloats(f, 0)
	}
	return new(big.Float).SetFloat64(f).Cmp(new(big.Float).SetInt(n))
}
