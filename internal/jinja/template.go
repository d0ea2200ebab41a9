package jinja

import (
	"slices"
	"time"
	"unicode/utf8"
)

// maxSource bounds the size of a template in bytes. The largest in use have
// some tens of thousands.
const maxSource = 1 << 20

// A Template is a compiled template. It is immutable and safe for concurrent
// use.
type Template struct {
	body     []stmt
	unit     *unit
	frame    frameInfo
	selfSlot int
	free     []string
}

// Compile parses a template. The error is a [SyntaxError] that names the line: of
// what is not Jinja2, and of tags, filters and tests that are not supported.
// Like in Jinja2, an unknown filter or test inside an if statement or a
// conditional expression is an error only when rendering comes to it.
func Compile(src string) (*Template, error) {
	if len(src) > maxSource {
		return nil, &SyntaxError{Line: 1, Message: "template is too long: " + byteLimit(len(src), maxSource)}
	}
	if !utf8.ValidString(src) {
		return nil, &SyntaxError{Line: 1, Message: "template is not valid UTF-8"}
	}
	body, err := parse(src)
	if err != nil {
		return nil, err
	}
	b := &binder{free: map[string]bool{}}
	t := &Template{body: body}
	t.unit, t.frame, t.selfSlot = b.bind(body)
	if b.err != nil {
		return nil, b.err
	}
	for n := range b.free {
		if _, ok := globals[n]; !ok {
			t.free = append(t.free, n)
		}
	}
	slices.Sort(t.free)
	return t, nil
}

// Options are the circumstances of a rendering. The zero value has no time, and
// bounds that suit prompts of some megabytes.
type Options struct {
	// Now is what strftime_now formats, in its own location.
	Now time.Time
	// MaxSteps bounds the work: loop iterations, calls, and bytes copied count.
	// Default ten million, about a second.
	MaxSteps int
	// MaxOutput bounds the output and each string on the way to it, in bytes. All
	// intermediate values together may take three times as much. Default 32 MiB.
	MaxOutput int
	// MaxDepth bounds how deep macros call each other. Default 200.
	MaxDepth int
}

const (
	defaultSteps  = 10_000_000
	defaultOutput = 32 << 20
	defaultDepth  = 200
)

// Render appends the template's output for the variables to dst. It neither
// changes vars nor keeps it. The error is a [RaiseError] when the template
// refused the input, a [LimitError] when it went over a bound, else an [Error];
// the returned slice then ends in part of the output.
func (t *Template) Render(dst []byte, vars *Dict, o Options) ([]byte, error) {
	st := &state{
		out: dst, base: len(dst), vars: vars, now: o.Now,
		steps: orDefault(o.MaxSteps, defaultSteps), maxSteps: orDefault(o.MaxSteps, defaultSteps),
		maxOut: orDefault(o.MaxOutput, defaultOutput),
		depth:  orDefault(o.MaxDepth, defaultDepth), maxDepth: orDefault(o.MaxDepth, defaultDepth),
		filters: filters, tests: tests, strMethods: strMethods,
	}
	st.mem = memFactor * st.maxOut
	if vars == nil {
		st.vars = &Dict{}
	}
	e := newEnv(t.unit, nil)
	if t.selfSlot >= 0 {
		e.slots[t.selfSlot] = &templateRef{}
	}
	st.enter(e, &t.frame)
	_, err := st.run(e, t.body)
	return st.out, err
}

func orDefault(n, def int) int {
	if n > 0 {
		return n
	}
	return def
}

// Undeclared returns the names of the variables that the template reads and does
// not set itself, sorted; the functions that every template has are not among
// them.
func (t *Template) Undeclared() []string { return slices.Clone(t.free) }
