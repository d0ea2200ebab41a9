package jinja

// Scoping. Jinja2 compiles a template to Python: the template, each macro, each
// call block, each recursive loop and the condition of each loop are functions,
// and a variable is a Python variable named after its nesting level and its
// name. The types here follow that construction, because templates depend on
// what it does in corners: which assignments outlive a block, what a macro sees,
// when an unset name falls back to a variable from outside.

// An ident is a variable of the generated code: loops that follow each other at
// the same level share it.
type ident struct {
	level int
	name  string
}

type loadKind uint8

const (
	// loadParam is set by whoever enters the frame.
	loadParam loadKind = iota
	// loadResolve takes the value from the variables of the render call.
	loadResolve
	// loadAlias copies a variable of an outer frame.
	loadAlias
	// loadUndefined starts without a value.
	loadUndefined
)

type load struct {
	kind  loadKind
	alias ident
}

// symbols are the names of one frame.
type symbols struct {
	level  int
	parent *symbols
	unit   *unit
	refs   map[string]ident
	loads  map[ident]load
	// order holds the idents of loads in the order in which they came.
	order  []ident
	stores map[string]bool
}

// A unit is a function of the generated code. It has a slot for each ident.
type unit struct {
	parent *unit
	slots  map[ident]int
}

func (u *unit) slot(id ident) int {
	s, ok := u.slots[id]
	if !ok {
		s = len(u.slots)
		u.slots[id] = s
	}
	return s
}

// frameInfo is what entering and leaving a frame does at run time.
type frameInfo struct {
	enter []loadOp
	leave []int
}

// A loadOp gives a slot its first value.
type loadOp struct {
	kind loadKind
	slot int
	from varRef
	name string
}

func newUnit(parent *unit) *unit { return &unit{parent: parent, slots: map[ident]int{}} }

func newSymbols(parent *symbols, u *unit) *symbols {
	s := &symbols{parent: parent, unit: u, refs: map[string]ident{}, loads: map[ident]load{}, stores: map[string]bool{}}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

func (s *symbols) define(name string, l load) {
	id := ident{s.level, name}
	s.refs[name] = id
	s.setLoad(id, l)
}

func (s *symbols) setLoad(id ident, l load) {
	if _, ok := s.loads[id]; !ok {
		s.order = append(s.order, id)
	}
	s.loads[id] = l
}

func (s *symbols) find(name string) (ident, bool) {
	for ; s != nil; s = s.parent {
		if id, ok := s.refs[name]; ok {
			return id, true
		}
	}
	return ident{}, false
}

func (s *symbols) load(name string) {
	if _, ok := s.find(name); !ok {
		s.define(name, load{kind: loadResolve})
	}
}

func (s *symbols) param(name string) {
	s.stores[name] = true
	s.define(name, load{kind: loadParam})
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if outer, ok := s.parent.find(name); ok {
		s.define(name, load{loadAlias, outer})
		return
	}
	s.define(name, load{kind: loadUndefined})
}

func (s *symbols) copy() *symbols {
	c := newSymbols(s.parent, s.unit)
	c.level = s.level
	c.merge(s)
	return c
}

func (s *symbols) merge(o *symbols) {
	for n, id := range o.refs {
		s.refs[n] = id
	}
	for _, id := range o.order {
		s.setLoad(id, o.loads[id])
	}
	for n := range o.stores {
		s.stores[n] = true
	}
}

// branches takes in what the branches of an if statement did. What only some of
// them store keeps its value from outside where they do not run.
func (s *symbols) branches(bs ...*symbols) {
	stored := map[string]bool{}
	for _, b := range bs {
		for n := range b.stores {
			if !s.stores[n] {
				stored[n] = true
			}
		}
	}
	for _, b := range bs {
		s.merge(b)
	}
	for n := range stored {
		id, _ := s.find(n)
		if outer, ok := s.parent.find(n); ok {
			s.setLoad(id, load{loadAlias, outer})
		} else {
			s.setLoad(id, load{kind: loadResolve})
		}
	}
}

// expr notes the names that an expression reads.
func (s *symbols) expr(xs ...expr) {
	for _, x := range xs {
		if x == nil {
			continue
		}
		if n, ok := x.(*nameExpr); ok {
			s.load(n.name)
		}
		x.children(func(c expr) { s.expr(c) })
	}
}

func (s *symbols) target(t target) {
	switch t := t.(type) {
	case *nameTarget:
		s.store(t.name)
	case *nsTarget:
		s.load(t.name)
	case *tupleTarget:
		for _, it := range t.items {
			s.target(it)
		}
	}
}

// stmts notes the names that statements use in this frame; it does not look into
// blocks with a frame of their own.
func (s *symbols) stmts(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outputStmt:
			s.expr(st.nodes...)
		case *ifStmt:
			s.expr(st.test)
			inner := func(body []stmt) *symbols {
				c := s.copy()
				c.stmts(body)
				return c
			}
			elifs := make([]stmt, len(st.elifs))
			for i, e := range st.elifs {
				elifs[i] = e
			}
			s.branches(inner(st.body), inner(elifs), inner(st.els))
		case *forStmt:
			s.expr(st.iter)
		case *assignStmt:
			s.expr(st.value)
			s.target(st.target)
		case *assignBlockStmt:
			s.target(st.target)
		case *withStmt:
			s.expr(st.values...)
		case *filterBlockStmt:
			s.expr(st.filter)
		case *macroStmt:
			s.store(st.def.name)
		case *callBlockStmt:
			if st.call != nil {
				s.expr(st.call)
			}
		}
	}
}

// undeclared returns which of the names the body reads before it stores them,
// nested blocks included.
func undeclared(body []stmt, names ...string) map[string]bool {
	open := map[string]bool{}
	for _, n := range names {
		open[n] = true
	}
	found := map[string]bool{}
	walkStmts(body,
		func(x expr) {
			if n, ok := x.(*nameExpr); ok && open[n.name] {
				found[n.name] = true
			}
		},
		func(t *nameTarget) { delete(open, t.name) })
	return found
}
