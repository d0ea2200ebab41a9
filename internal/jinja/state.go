package jinja

import (
	"fmt"
	"time"
	"unsafe"
)

// A state is one rendering in progress.
type state struct {
	// out is the output so far. A block whose text is captured appends to it as
	// well; the text is cut off again when the block ends.
	out    []byte
	base   int
	maxOut int

	// What is left of each bound.
	steps, maxSteps int
	mem             int
	depth, maxDepth int

	now  time.Time
	vars *Dict
	// filters, tests and strMethods are the tables of these names. What the tables
	// hold reaches them here, because a variable cannot refer to itself.
	filters    map[string]*filterDef
	tests      map[string]*testDef
	strMethods map[string]method

	// nesting is how deep a walk through nested values is at the moment.
	nesting int
	// args is the stack of arguments of the calls in progress.
	args []Value
	// grow is the memory of the string that was joined last; see join.
	grow []byte
}

// An env holds the variables of a running function.
type env struct {
	slots  []Value
	parent *env
}

func newEnv(u *unit, parent *env) *env {
	e := &env{slots: make([]Value, len(u.slots)), parent: parent}
	for i := range e.slots {
		e.slots[i] = missing
	}
	return e
}

func (e *env) get(r varRef) Value {
	for range r.hops {
		e = e.parent
	}
	return e.slots[r.slot]
}

// enter gives the variables of a frame their first values.
func (st *state) enter(e *env, f *frameInfo) {
	for i := range f.enter {
		op := &f.enter[i]
		switch op.kind {
		case loadResolve:
			e.slots[op.slot] = st.resolve(op.name)
		case loadAlias:
			e.slots[op.slot] = e.get(op.from)
		default:
			e.slots[op.slot] = missing
		}
	}
}

func (st *state) leave(e *env, f *frameInfo) {
	for _, s := range f.leave {
		e.slots[s] = missing
	}
}

// resolve looks a name up outside the template.
func (st *state) resolve(name string) Value {
	if v, ok := st.vars.Get(name); ok {
		return v
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return missing
}

// step accounts for n units of work.
func (st *state) step(n int) error {
	st.steps -= n
	if st.steps < 0 {
		return &LimitError{What: "steps", Max: st.maxSteps}
	}
	return nil
}

// A step is about a tenth of a microsecond. That many bytes count as one when
// they are copied or searched, and when each character is looked at.
const (
	bytesPerStep = 256
	charsPerStep = 32
)

// memFactor is how many times the largest output all values may take together.
const memFactor = 3

// perValue is what a value costs besides its bytes, about.
const perValue = 48

// alloc accounts for a value of n bytes that is about to be made.
func (st *state) alloc(n int) error {
	if n < 0 || n > st.maxOut {
		return &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	st.mem -= perValue + n
	if st.mem < 0 {
		return &LimitError{What: "bytes of all values", Max: memFactor * st.maxOut}
	}
	return st.step(1 + n/bytesPerStep)
}

// allocItems accounts for a list of n items.
func (st *state) allocItems(n int) error {
	const itemSize = int(unsafe.Sizeof(Value(nil)))
	if n > st.maxOut {
		return &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	return st.alloc(n * itemSize)
}

// scan accounts for searching or comparing n bytes.
func (st *state) scan(n int) error { return st.step(1 + n/bytesPerStep) }

// walk accounts for looking at n bytes character by character.
func (st *state) walk(n int) error { return st.step(1 + n/charsPerStep) }

// scanKey accounts for hashing or comparing a key.
func (st *state) scanKey(v Value) error {
	if s, ok := asString(v); ok && len(s) > bytesPerStep {
		return st.scan(len(s))
	}
	return nil
}

// write appends s to the output.
func (st *state) write(s string) error {
	if len(st.out)-st.base+len(s) > st.maxOut {
		return &LimitError{What: "bytes of output", Max: st.maxOut}
	}
	st.out = append(st.out, s...)
	return nil
}

// print appends str(v) to the output.
func (st *state) print(v Value) error {
	switch v := v.(type) {
	case string:
		return st.write(v)
	case markup:
		return st.write(string(v))
	}
	s, err := st.str(v)
	if err != nil {
		return err
	}
	return st.write(s)
}

// printString appends the result of a block tag, which must be a string.
func (st *state) printString(v Value, what string) error {
	s, ok := asString(v)
	if !ok {
		return errorf("the result of a %s must be a string, not %s", what, typeName(v))
	}
	return st.write(s)
}

// capture runs f and returns what it wrote instead of leaving it in the output.
func (st *state) capture(f func() error) (string, error) {
	start := len(st.out)
	err := f()
	text := st.out[start:]
	st.out = st.out[:start]
	if err != nil {
		return "", err
	}
	if err := st.alloc(len(text)); err != nil {
		return "", err
	}
	return string(text), nil
}

// join returns the concatenation of the parts. A template that builds a long
// string piece by piece would copy it each time; so the memory of the last long
// result has room to grow, and when that result is the first part, the others
// are appended behind it. Strings that share the memory see only their own
// prefix of it, which never changes.
func (st *state) join(parts ...string) (string, error) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	const long = 1024
	if first := parts[0]; len(first) >= long && len(first) == len(st.grow) && unsafe.StringData(first) == unsafe.SliceData(st.grow) {
		if n > st.maxOut {
			return "", &LimitError{What: "bytes of a value", Max: st.maxOut}
		}
		before := cap(st.grow)
		for _, p := range parts[1:] {
			st.grow = append(st.grow, p...)
		}
		cost := n - len(first)
		if cap(st.grow) != before {
			cost = cap(st.grow)
			st.mem -= cost
			if st.mem < 0 {
				return "", &LimitError{What: "bytes of all values", Max: memFactor * st.maxOut}
			}
		}
		if err := st.scan(cost); err != nil {
			return "", err
		}
		return unsafe.String(unsafe.SliceData(st.grow), n), nil
	}
	if err := st.alloc(n); err != nil {
		return "", err
	}
	buf := make([]byte, 0, n)
	for _, p := range parts {
		buf = append(buf, p...)
	}
	if n >= long {
		st.grow = buf
	}
	return unsafe.String(unsafe.SliceData(buf), n), nil
}

// call enters a macro or another nested rendering; the caller undoes it with
// st.depth++.
func (st *state) call() error {
	if st.depth--; st.depth < 0 {
		return &LimitError{What: "depth of calls", Max: st.maxDepth}
	}
	const callSteps = 8
	return st.step(callSteps)
}

// maxNestedValues bounds how deep values may hold each other where that matters.
const maxNestedValues = 1000

// descend enters a value inside another; the caller undoes it with st.nesting--.
func (st *state) descend() error {
	if st.nesting++; st.nesting > maxNestedValues {
		return &LimitError{What: "depth of a value", Max: maxNestedValues}
	}
	return st.step(1)
}

func byteLimit(n, max int) string { return fmt.Sprintf("%d bytes, at most %d", n, max) }
