package jinja

// The tree that the parser builds is the program that rendering runs: the binder
// puts the place of each variable into it, nodes know how to run themselves.

// An expr is an expression.
type expr interface {
	eval(st *state, e *env) (Value, error)
	// children calls f with each operand, in the order in which Jinja2 lists
	// them.
	children(f func(expr))
}

// A stmt is a statement.
type stmt interface {
	exec(st *state, e *env) (control, error)
}

// A target is what an assignment stores into.
type target interface {
	assign(st *state, e *env, v Value) error
	// names calls f with each variable that is stored.
	names(f func(*nameTarget))
}

// control says how a statement ended.
type control uint8

const (
	ctlNext control = iota
	ctlBreak
	ctlContinue
)

// A varRef is the place of a variable: a slot in the function that is so many
// functions out.
type varRef struct{ hops, slot int }

// Statements.
type (
	outputStmt struct {
		line  int
		nodes []expr
	}
	ifStmt struct {
		line  int
		test  expr
		body  []stmt
		elifs []*ifStmt
		els   []stmt
	}
	forStmt struct {
		line      int
		target    target
		iter      expr
		test      expr
		recursive bool
		body      []stmt
		els       []stmt

		// extended says whether the body uses the variable loop.
		extended bool
		loopSlot int
		frame    frameInfo
		elseInfo frameInfo
		// testUnit is the function that filters items, with its own copy of the
		// targets.
		testUnit   *unit
		testTarget target
		testInfo   frameInfo
		// unit is the function of a recursive loop.
		unit *unit
	}
	assignStmt struct {
		line   int
		target target
		value  expr
	}
	assignBlockStmt struct {
		line   int
		target target
		filter *filterExpr
		body   []stmt
		frame  frameInfo
	}
	withStmt struct {
		line    int
		targets []target
		values  []expr
		body    []stmt
		frame   frameInfo
	}
	filterBlockStmt struct {
		line   int
		filter *filterExpr
		body   []stmt
		frame  frameInfo
	}
	macroStmt struct {
		def  *macroDef
		slot int
	}
	callBlockStmt struct {
		line int
		// call is nil for a generation block, which prints its body.
		call *callExpr
		def  *macroDef
	}
	breakStmt    struct{ line int }
	continueStmt struct{ line int }
)

// A macroDef is the definition of a macro or of the body of a call block.
type macroDef struct {
	line     int
	name     string
	args     []*nameTarget
	defaults []expr
	body     []stmt

	unit  *unit
	frame frameInfo
	// callerSlot, kwargsSlot and varargsSlot are -1 where the body does not use
	// these variables.
	callerSlot, kwargsSlot, varargsSlot int
	// usesCaller says that the body calls its caller, explicitCaller that an
	// argument has that name.
	usesCaller, explicitCaller bool
}

// Targets.
type (
	nameTarget struct {
		line int
		name string
		// param says that the name is an argument or the variable of a with tag.
		param bool
		slot  int
	}
	tupleTarget struct {
		line  int
		items []target
	}
	nsTarget struct {
		line       int
		name, attr string
		ref        varRef
	}
)

// Expressions.
type (
	constExpr struct{ value Value }
	nameExpr  struct {
		line  int
		name  string
		ref   varRef
		undef Value
	}
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, values []expr }
	condExpr  struct {
		line               int
		test, then, orelse expr
		undef              Value
	}
	andExpr   struct{ left, right expr }
	orExpr    struct{ left, right expr }
	notExpr   struct{ node expr }
	unaryExpr struct {
		op   byte
		node expr
	}
	binaryExpr struct {
		op          string
		left, right expr
	}
	// addExpr is a chain of additions from the left: joining several strings
	// copies each once.
	addExpr     struct{ nodes []expr }
	concatExpr  struct{ nodes []expr }
	compareExpr struct {
		first expr
		ops   []compareOp
		nodes []expr
	}
	getattrExpr struct {
		line int
		node expr
		name string
		// dictMethod says whether dicts have an attribute of the name.
		dictMethod bool
		// undef is what a dict without the key gives.
		undef Value
	}
	getitemExpr struct {
		line int
		node expr
		arg  expr
	}
	sliceExpr struct {
		node              expr
		start, stop, step expr
	}
	callExpr struct {
		line   int
		callee expr
		args   argList
	}
	filterExpr struct {
		line int
		// node is nil for the filter of a block.
		node expr
		name string
		args argList
		// def is nil for a filter that does not exist; using it is an error.
		def *filterDef
	}
	testExpr struct {
		line int
		node expr
		name string
		args argList
		def  *testDef
	}
)

// An argList holds the arguments of a call, a filter or a test.
type argList struct {
	pos    []expr
	keys   []string
	kw     []expr
	dynPos expr
	dynKw  expr
}

type compareOp uint8

const (
	cmpEq compareOp = iota
	cmpNe
	cmpLt
	cmpLe
	cmpGt
	cmpGe
	cmpIn
	cmpNotIn
)

func each(f func(expr), nodes ...expr) {
	for _, n := range nodes {
		if n != nil {
			f(n)
		}
	}
}

func (a *argList) children(f func(expr)) {
	each(f, a.pos...)
	each(f, a.kw...)
	each(f, a.dynPos, a.dynKw)
}

func (n *constExpr) children(func(expr))    {}
func (n *nameExpr) children(func(expr))     {}
func (n *tupleExpr) children(f func(expr))  { each(f, n.items...) }
func (n *listExpr) children(f func(expr))   { each(f, n.items...) }
func (n *condExpr) children(f func(expr))   { each(f, n.test, n.then, n.orelse) }
func (n *andExpr) children(f func(expr))    { each(f, n.left, n.right) }
func (n *orExpr) children(f func(expr))     { each(f, n.left, n.right) }
func (n *notExpr) children(f func(expr))    { f(n.node) }
func (n *unaryExpr) children(f func(expr))  { f(n.node) }
func (n *binaryExpr) children(f func(expr)) { each(f, n.left, n.right) }
func (n *addExpr) children(f func(expr))    { each(f, n.nodes...) }
func (n *concatExpr) children(f func(expr)) { each(f, n.nodes...) }
func (n *compareExpr) children(f func(expr)) {
	f(n.first)
	each(f, n.nodes...)
}
func (n *getattrExpr) children(f func(expr)) { f(n.node) }
func (n *getitemExpr) children(f func(expr)) { each(f, n.node, n.arg) }
func (n *sliceExpr) children(f func(expr))   { each(f, n.node, n.start, n.stop, n.step) }
func (n *callExpr) children(f func(expr)) {
	f(n.callee)
	n.args.children(f)
}
func (n *filterExpr) children(f func(expr)) {
	each(f, n.node)
	n.args.children(f)
}
func (n *testExpr) children(f func(expr)) {
	f(n.node)
	n.args.children(f)
}
func (n *dictExpr) children(f func(expr)) {
	for i := range n.keys {
		f(n.keys[i])
		f(n.values[i])
	}
}

func (t *nameTarget) names(f func(*nameTarget)) { f(t) }
func (t *nsTarget) names(func(*nameTarget))     {}
func (t *tupleTarget) names(f func(*nameTarget)) {
	for _, it := range t.items {
		it.names(f)
	}
}

// walkStmts calls f with each expression of a statement list and the operands of
// each expression, and g with each stored name, in the order in which Jinja2's
// visitors meet them. Nil functions are not called.
func walkStmts(body []stmt, f func(expr), g func(*nameTarget)) {
	var visit func(expr)
	visit = func(x expr) {
		if f != nil {
			f(x)
		}
		x.children(visit)
	}
	store := func(t target) {
		if g != nil {
			t.names(g)
		}
	}
	var list func([]stmt)
	def := func(d *macroDef) {
		for _, a := range d.args {
			store(a)
		}
		each(visit, d.defaults...)
		list(d.body)
	}
	var one func(stmt)
	one = func(s stmt) {
		switch s := s.(type) {
		case *outputStmt:
			each(visit, s.nodes...)
		case *ifStmt:
			visit(s.test)
			list(s.body)
			for _, e := range s.elifs {
				one(e)
			}
			list(s.els)
		case *forStmt:
			store(s.target)
			visit(s.iter)
			list(s.body)
			list(s.els)
			each(visit, s.test)
		case *assignStmt:
			store(s.target)
			visit(s.value)
		case *assignBlockStmt:
			store(s.target)
			if s.filter != nil {
				visit(s.filter)
			}
			list(s.body)
		case *withStmt:
			for _, t := range s.targets {
				store(t)
			}
			each(visit, s.values...)
			list(s.body)
		case *filterBlockStmt:
			list(s.body)
			visit(s.filter)
		case *macroStmt:
			def(s.def)
		case *callBlockStmt:
			if s.call != nil {
				visit(s.call)
			}
			def(s.def)
		}
	}
	list = func(body []stmt) {
		for _, s := range body {
			one(s)
		}
	}
	list(body)
}

// walkStmtNodes calls f with each statement in the body, outer before inner.
func walkStmtNodes(body []stmt, f func(stmt)) {
	for _, s := range body {
		f(s)
		switch s := s.(type) {
		case *ifStmt:
			walkStmtNodes(s.body, f)
			for _, e := range s.elifs {
				walkStmtNodes([]stmt{e}, f)
			}
			walkStmtNodes(s.els, f)
		case *forStmt:
			walkStmtNodes(s.body, f)
			walkStmtNodes(s.els, f)
		case *assignBlockStmt:
			walkStmtNodes(s.body, f)
		case *withStmt:
			walkStmtNodes(s.body, f)
		case *filterBlockStmt:
			walkStmtNodes(s.body, f)
		case *macroStmt:
			walkStmtNodes(s.def.body, f)
		case *callBlockStmt:
			walkStmtNodes(s.def.body, f)
		}
	}
}
