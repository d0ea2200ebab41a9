package jinja

import "fmt"

// A binder resolves the names in a tree to slots, and finds the filters and
// tests. It walks the tree the way Jinja2 generates code from it.
type binder struct {
	err error
	// free holds the names that are looked up outside the template.
	free map[string]bool
}

// A scope is a place in the tree: the frame, and what the statements around it
// allow.
type scope struct {
	syms *symbols
	// soft says that the place is in an if statement or conditional expression of
	// the frame, where an unknown filter is an error only when it runs.
	soft bool
	// loop says that break and continue have a loop to act on.
	loop bool
}

func (s scope) inner() scope {
	return scope{syms: newSymbols(s.syms, s.syms.unit), loop: s.loop}
}

// function returns the scope of a nested function.
func (s scope) function() scope {
	return scope{syms: newSymbols(s.syms, newUnit(s.syms.unit))}
}

func (s scope) softened() scope {
	s.soft = true
	return s
}

// bind prepares the tree for running. It returns the main function, and the slot
// of the variable self, -1 when the template does not use it.
func (b *binder) bind(body []stmt) (u *unit, frame frameInfo, selfSlot int) {
	u = newUnit(nil)
	s := scope{syms: newSymbols(nil, u)}
	selfSlot = -1
	if undeclared(body, "self")["self"] {
		s.syms.param("self")
		selfSlot = u.slot(s.syms.refs["self"])
	}
	s.syms.stmts(body)
	frame = b.frame(s)
	b.stmts(body, s)
	return u, frame, selfSlot
}

func (b *binder) fail(line int, format string, a ...any) {
	if b.err == nil {
		b.err = &SyntaxError{Line: line, Message: fmt.Sprintf(format, a...)}
	}
}

// frame returns what to do on entering and leaving a frame.
func (b *binder) frame(s scope) frameInfo {
	var f frameInfo
	for _, id := range s.syms.order {
		slot := s.syms.unit.slot(id)
		f.leave = append(f.leave, slot)
		switch l := s.syms.loads[id]; l.kind {
		case loadResolve:
			b.free[id.name] = true
			f.enter = append(f.enter, loadOp{kind: loadResolve, slot: slot, name: id.name})
		case loadAlias:
			f.enter = append(f.enter, loadOp{kind: loadAlias, slot: slot, from: s.locate(l.alias)})
		case loadUndefined:
			f.enter = append(f.enter, loadOp{kind: loadUndefined, slot: slot})
		}
	}
	return f
}

// locate returns the place of an ident as seen from the scope.
func (s scope) locate(id ident) varRef {
	syms := s.syms
	hops := 0
	for syms.level != id.level {
		if p := syms.parent; p.unit != syms.unit {
			hops++
		}
		syms = syms.parent
	}
	return varRef{hops, syms.unit.slot(id)}
}

// ref returns the place of a name that the analysis of the frame has met.
func (b *binder) ref(name string, line int, s scope) varRef {
	id, ok := s.syms.find(name)
	if !ok {
		b.fail(line, "the name '%s' is not known in this place", name)
		return varRef{}
	}
	return s.locate(id)
}

func (b *binder) stmts(body []stmt, s scope) {
	for _, st := range body {
		b.stmt(st, s)
	}
}

func (b *binder) stmt(st stmt, s scope) {
	switch st := st.(type) {
	case *outputStmt:
		b.exprs(s, st.nodes...)
	case *ifStmt:
		in := s.softened()
		b.exprs(in, st.test)
		b.stmts(st.body, in)
		for _, e := range st.elifs {
			b.exprs(in, e.test)
			b.stmts(e.body, in)
		}
		b.stmts(st.els, in)
	case *forStmt:
		b.forStmt(st, s)
	case *assignStmt:
		b.target(st.target, s)
		b.exprs(s, st.value)
	case *assignBlockStmt:
		in := s.inner()
		in.syms.stmts(st.body)
		st.frame = b.frame(in)
		b.stmts(st.body, in)
		b.target(st.target, s)
		if st.filter != nil {
			b.exprs(in, st.filter)
		}
	case *withStmt:
		in := s.inner()
		for _, t := range st.targets {
			t.names(func(n *nameTarget) { in.syms.param(n.name) })
		}
		in.syms.stmts(st.body)
		st.frame = b.frame(in)
		for i, t := range st.targets {
			b.target(t, in)
			b.exprs(s, st.values[i])
		}
		b.stmts(st.body, in)
	case *filterBlockStmt:
		in := s.inner()
		in.syms.stmts(st.body)
		in.syms.expr(st.filter)
		st.frame = b.frame(in)
		b.stmts(st.body, in)
		b.exprs(in, st.filter)
	case *macroStmt:
		b.macro(st.def, s)
		st.slot = b.ref(st.def.name, st.def.line, s).slot
	case *callBlockStmt:
		b.macro(st.def, s)
		if st.call != nil {
			b.exprs(s, st.call)
		}
	case *breakStmt:
		if !s.loop {
			b.fail(st.line, "'break' outside a loop")
		}
	case *continueStmt:
		if !s.loop {
			b.fail(st.line, "'continue' outside a loop")
		}
	}
}

func (b *binder) forStmt(st *forStmt, s scope) {
	body, els := s.inner(), s.inner()
	if st.recursive {
		body = s.function()
		els = scope{syms: newSymbols(s.syms, body.syms.unit)}
		st.unit = body.syms.unit
	}
	body.loop = true
	st.extended = st.recursive || undeclared(st.body, "loop")["loop"]
	if st.extended {
		body.syms.param("loop")
		st.loopSlot = body.syms.unit.slot(body.syms.refs["loop"])
	}
	declare := func(s scope) {
		st.target.names(func(n *nameTarget) { s.syms.param(n.name) })
	}
	declare(body)
	body.syms.stmts(st.body)
	els.syms.stmts(st.els)
	if st.test != nil {
		test := s.function()
		declare(test)
		test.syms.expr(st.test)
		st.testUnit = test.syms.unit
		st.testInfo = b.frame(test)
		st.testTarget = cloneTarget(st.target)
		b.target(st.testTarget, test)
		b.exprs(test, st.test)
	}
	walkStmts([]stmt{st}, nil, func(n *nameTarget) {
		if n.name == "loop" && !n.param {
			b.fail(n.line, "cannot assign to the special variable 'loop' in a loop")
		}
	})
	b.exprs(s, st.iter)
	st.frame = b.frame(body)
	b.target(st.target, body)
	b.stmts(st.body, body)
	st.elseInfo = b.frame(els)
	b.stmts(st.els, els)
}

func cloneTarget(t target) target {
	switch t := t.(type) {
	case *nameTarget:
		c := *t
		return &c
	case *tupleTarget:
		c := &tupleTarget{line: t.line}
		for _, it := range t.items {
			c.items = append(c.items, cloneTarget(it))
		}
		return c
	}
	return t
}

func (b *binder) macro(d *macroDef, s scope) {
	in := s.function()
	d.unit = in.syms.unit
	d.callerSlot, d.kwargsSlot, d.varargsSlot = -1, -1, -1
	analyze := func() {
		for _, a := range d.args {
			in.syms.param(a.name)
		}
		in.syms.expr(d.defaults...)
		in.syms.stmts(d.body)
	}
	analyze()
	isArg := map[string]int{}
	for i, a := range d.args {
		isArg[a.name] = i + 1
	}
	d.explicitCaller = isArg["caller"] > 0
	used := undeclared(d.body, "caller", "kwargs", "varargs")
	special := func(name string) int {
		in.syms.param(name)
		return d.unit.slot(in.syms.refs[name])
	}
	d.usesCaller = used["caller"]
	if used["caller"] {
		if i := isArg["caller"]; i == 0 {
			d.callerSlot = special("caller")
		} else if i <= len(d.args)-len(d.defaults) {
			b.fail(d.line, "the argument 'caller' must be omitted or have a default")
		}
	}
	if used["kwargs"] && isArg["kwargs"] == 0 {
		d.kwargsSlot = special("kwargs")
	}
	if used["varargs"] && isArg["varargs"] == 0 {
		d.varargsSlot = special("varargs")
	}
	analyze()
	d.frame = b.frame(in)
	for _, a := range d.args {
		b.target(a, in)
	}
	b.exprs(in, d.defaults...)
	b.stmts(d.body, in)
}

func (b *binder) target(t target, s scope) {
	switch t := t.(type) {
	case *nameTarget:
		t.slot = b.ref(t.name, t.line, s).slot
	case *nsTarget:
		t.ref = b.ref(t.name, t.line, s)
	case *tupleTarget:
		for _, it := range t.items {
			b.target(it, s)
		}
	}
}

func (b *binder) exprs(s scope, xs ...expr) {
	for _, x := range xs {
		if x != nil {
			b.expr(x, s)
		}
	}
}

func (b *binder) expr(x expr, s scope) {
	switch x := x.(type) {
	case *nameExpr:
		x.ref = b.ref(x.name, x.line, s)
		x.undef = Undefined{name: x.name}
	case *condExpr:
		s = s.softened()
		if x.orelse == nil {
			x.undef = Undefined{hint: fmt.Sprintf("the inline if-expression on line %d was false and has no else", x.line)}
		}
	case *getattrExpr:
		_, ok := dictMethods[x.name]
		x.dictMethod = ok || dictMutators[x.name]
		x.undef = Undefined{owner: "'dict object'", name: x.name}
	case *filterExpr:
		x.def = filters[x.name]
		if x.def == nil && !s.soft {
			b.fail(x.line, "no filter named '%s'%s", x.name, unsupportedNote(x.name))
		}
	case *testExpr:
		x.def = tests[x.name]
		if x.def == nil && !s.soft {
			b.fail(x.line, "no test named '%s'", x.name)
		}
	}
	x.children(func(c expr) { b.expr(c, s) })
}

func unsupportedNote(filter string) string {
	if unsupportedFilters[filter] {
		return " (Jinja2 has one that is not supported)"
	}
	return ""
}
