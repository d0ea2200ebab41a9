package jinja

import "math/big"

// A testDef is a test, as in "x is defined".
type testDef struct {
	// simple is set for tests that look at the value alone and cannot fail.
	simple func(v Value) bool
	// fn takes exactly n arguments.
	fn func(st *state, v Value, a []Value) (bool, error)
	n  int
}

func (d *testDef) call(st *state, name string, v Value, a callArgs) (bool, error) {
	if err := a.noKeywords("test '" + name + "'"); err != nil {
		return false, err
	}
	if len(a.pos) != d.n {
		return false, errorf("test '%s' takes %d arguments, got %d", name, d.n, len(a.pos))
	}
	if err := st.step(1); err != nil {
		return false, err
	}
	if d.simple != nil {
		return d.simple(v), nil
	}
	return d.fn(st, v, a.pos)
}

var tests = map[string]*testDef{
	"defined":   {simple: func(v Value) bool { return !isUndefined(v) }},
	"undefined": {simple: isUndefined},
	"none":      {simple: func(v Value) bool { return v == nil }},
	"boolean":   {simple: func(v Value) bool { _, ok := v.(bool); return ok }},
	"true":      {simple: func(v Value) bool { return v == true }},
	"false":     {simple: func(v Value) bool { return v == false }},
	"integer":   {simple: isInteger},
	"float":     {simple: func(v Value) bool { _, ok := v.(float64); return ok }},
	"number":    {simple: isNumber},
	"string":    {simple: isString},
	"mapping":   {simple: func(v Value) bool { _, ok := v.(*Dict); return ok }},
	"sequence":  {simple: isSequence},
	"iterable":  {simple: isIterable},
	"callable":  {simple: isCallable},
	"escaped":   {simple: func(v Value) bool { _, ok := v.(markup); return ok }},

	"lower": {fn: caseTest(isLowerString)},
	"upper": {fn: caseTest(isUpperString)},

	"odd":         {fn: remainderTest(2, 1)},
	"even":        {fn: remainderTest(2, 0)},
	"divisibleby": {fn: divisible, n: 1},

	"filter": {fn: func(st *state, v Value, _ []Value) (bool, error) {
		s, _ := asString(v)
		return st.filters[s] != nil || unsupportedFilters[s], unhashable(v)
	}},
	"test": {fn: func(st *state, v Value, _ []Value) (bool, error) {
		s, _ := asString(v)
		return st.tests[s] != nil, unhashable(v)
	}},

	"in":     {fn: func(st *state, v Value, a []Value) (bool, error) { return contains(st, a[0], v) }, n: 1},
	"sameas": {fn: func(_ *state, v Value, a []Value) (bool, error) { return identical(v, a[0]), nil }, n: 1},

	"==":          comparison(cmpEq),
	"eq":          comparison(cmpEq),
	"equalto":     comparison(cmpEq),
	"!=":          comparison(cmpNe),
	"ne":          comparison(cmpNe),
	"<":           comparison(cmpLt),
	"lt":          comparison(cmpLt),
	"lessthan":    comparison(cmpLt),
	"<=":          comparison(cmpLe),
	"le":          comparison(cmpLe),
	">":           comparison(cmpGt),
	"gt":          comparison(cmpGt),
	"greaterthan": comparison(cmpGt),
	">=":          comparison(cmpGe),
	"ge":          comparison(cmpGe),
}

func comparison(op compareOp) *testDef {
	return &testDef{n: 1, fn: func(st *state, v Value, a []Value) (bool, error) { return compare(st, op, v, a[0]) }}
}

func isUndefined(v Value) bool { _, ok := v.(Undefined); return ok }

func isString(v Value) bool { _, ok := asString(v); return ok }

func isInteger(v Value) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// isSequence reports whether a value has a length and items; Jinja2 holds dicts
// to be sequences, and undefined values.
func isSequence(v Value) bool {
	switch v.(type) {
	case string, markup, *List, *Tuple, *Dict, *rangeValue, Undefined:
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.(type) {
	case string, markup, *List, *Tuple, *Dict, *dictView, *rangeValue, *generator, *loopContext, Undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *joiner, *loopContext, Undefined:
		return true
	}
	return false
}

func caseTest(is func(string) bool) func(*state, Value, []Value) (bool, error) {
	return func(st *state, v Value, _ []Value) (bool, error) {
		s, err := st.str(v)
		if err != nil {
			return false, err
		}
		return is(s), st.walk(len(s))
	}
}

func remainderTest(div, want int64) func(*state, Value, []Value) (bool, error) {
	return func(st *state, v Value, _ []Value) (bool, error) {
		m, err := binary(st, "%", v, div)
		if err != nil {
			return false, err
		}
		return equal(st, m, want)
	}
}

func divisible(st *state, v Value, a []Value) (bool, error) {
	m, err := binary(st, "%", v, a[0])
	if err != nil {
		return false, err
	}
	return equal(st, m, int64(0))
}

func unhashable(v Value) error {
	_, err := hashable(v)
	return err
}

// identical is Python's "is": the same object. Equal strings and small integers
// are taken for the same object, as constants are.
func identical(a, b Value) bool {
	switch x := a.(type) {
	case string, markup:
		s, _ := asString(x)
		t, ok := asString(b)
		_, xm := a.(markup)
		_, ym := b.(markup)
		return ok && s == t && xm == ym
	case *big.Int:
		y, ok := b.(*big.Int)
		return ok && x.Cmp(y) == 0
	case Undefined:
		y, ok := b.(Undefined)
		return ok && x == y
	}
	return a == b
}
