package jinja

import (
	"fmt"
	"math/big"
)

// A Value is what a template computes with. The values that a caller may pass
// in are a closed set:
//
//	nil          None
//	bool         bool
//	int64        int
//	*big.Int     int beyond int64; owned by the template engine, never changed
//	float64      float
//	string       str, in UTF-8; positions and lengths are code points
//	*List        list
//	*Tuple       tuple
//	*Dict        dict
//	Undefined    Jinja's undefined
//
// Any other Go type is an error as soon as a template does something with it.
// Rendering makes further kinds for itself (macros, iterators, namespaces); they
// never leave it. Values passed to Render must not change while it runs, and it
// does not change them.
type Value = any

// A List is Python's list. Templates cannot change one.
type List struct{ Items []Value }

// A Tuple is Python's tuple.
type Tuple struct {
	Items []Value
	// names are the attributes of the items, for the pairs that groupby makes.
	names []string
}

// Undefined is the value of a variable that nobody set, of a missing key and of
// an attribute that does not exist. It prints as nothing and is false; most
// other uses of it are errors.
type Undefined struct {
	// hint is a whole message, for the cases that are not a missing name.
	hint string
	// owner is the type of the object that has no such attribute or item, empty
	// for a variable.
	owner string
	name  string
}

func (u Undefined) message() string {
	switch {
	case u.hint != "":
		return u.hint
	case u.owner != "":
		return fmt.Sprintf("%s has no attribute %s", u.owner, repr(u.name))
	}
	return repr(u.name) + " is undefined"
}

func (u Undefined) err() error { return &Error{Message: u.message()} }

// markup is a string that the safe and escape filters marked. It behaves like a
// string that escapes what is joined to it.
type markup string

// A namespace is the one kind of value that templates may change.
type namespace struct{ attrs *Dict }

// A function is a global function or a method bound to its receiver.
type function struct {
	name string
	call func(st *state, a callArgs) (Value, error)
	// attrs are attributes that the function itself has.
	attrs map[string]*function
}

// A rangeValue is Python's range.
type rangeValue struct{ start, stop, step int64 }

func (r *rangeValue) len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((uint64(r.stop)-uint64(r.start)-1)/uint64(r.step)) + 1
	case r.step < 0 && r.start > r.stop:
		return int((uint64(r.start)-uint64(r.stop)-1)/-uint64(r.step)) + 1
	}
	return 0
}

func (r *rangeValue) at(i int) int64 { return r.start + int64(i)*r.step }

// A dictView is what the keys, values and items methods return.
type dictView struct {
	dict *Dict
	kind viewKind
}

type viewKind uint8

const (
	viewKeys viewKind = iota
	viewValues
	viewItems
)

func (v *dictView) at(i int) Value {
	e := &v.dict.entries[i]
	switch v.kind {
	case viewKeys:
		return e.key
	case viewValues:
		return e.value
	}
	return &Tuple{Items: []Value{e.key, e.value}}
}

// A cycler and a joiner are what the global functions of these names return.
type cycler struct {
	items []Value
	pos   int
}

type joiner struct {
	sep  Value
	used bool
}

// A templateRef is the value of the variable self.
type templateRef struct{}

// missingType is the type of missing, which stands for a variable that has no
// value and for an argument that was not given. Templates never see it.
type missingType struct{}

var missing Value = missingType{}

// typeName returns the name of v's type as Python prints it.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *function:
		return "function"
	case *rangeValue:
		return "range"
	case *dictView:
		return [...]string{"dict_keys", "dict_values", "dict_items"}[v.kind]
	case *generator:
		return "generator"
	case *loopContext:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *templateRef:
		return "TemplateReference"
	}
	return fmt.Sprintf("%T", v)
}

// asString returns the text of a str or Markup.
func asString(v Value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// restring gives s the type of the string like: str or Markup.
func restring(like Value, s string) Value {
	if _, ok := like.(markup); ok {
		return markup(s)
	}
	return s
}

// truth is Python's bool(v).
func truth(st *state, v Value) (bool, error) {
	switch v := v.(type) {
	case bool:
		return v, nil
	case nil, Undefined:
		return false, nil
	case string:
		return v != "", nil
	case markup:
		return v != "", nil
	case int64:
		return v != 0, nil
	case *big.Int:
		return v.Sign() != 0, nil
	case float64:
		return v != 0, nil
	case *List:
		return len(v.Items) > 0, nil
	case *Tuple:
		return len(v.Items) > 0, nil
	case *Dict:
		return v.Len() > 0, nil
	case *dictView:
		return v.dict.Len() > 0, nil
	case *rangeValue:
		return v.len() > 0, nil
	case *loopContext:
		n, err := v.length(st)
		return n > 0, err
	case *namespace, *macro, *function, *generator, *cycler, *joiner, *templateRef:
		return true, nil
	}
	return false, unknownType(v)
}

// length is Python's len(v).
func length(st *state, v Value) (int, error) {
	switch v := v.(type) {
	case Undefined:
		return 0, nil
	case string:
		return runeLen(v), st.walk(len(v))
	case markup:
		return runeLen(string(v)), st.walk(len(v))
	case *List:
		return len(v.Items), nil
	case *Tuple:
		return len(v.Items), nil
	case *Dict:
		return v.Len(), nil
	case *dictView:
		return v.dict.Len(), nil
	case *rangeValue:
		return v.len(), nil
	case *loopContext:
		return v.length(st)
	}
	return 0, errorf("object of type %s has no len()", typeName(v))
}

func unknownType(v Value) error {
	return errorf("value of Go type %T, expected one that templates know", v)
}
