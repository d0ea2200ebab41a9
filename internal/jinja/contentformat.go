package jinja

// Formats of message content, as ContentFormat returns them.
const (
	contentString = "string"
	contentOpenAI = "openai"
)

// ContentFormat returns how the template expects the content of a message:
// "openai" when it loops over the parts of a content, else "string". The rule is
// vLLM's: some for loop goes over <message>.content, where <message> is the
// variable of a loop over messages or over an alias of it, or over a variable
// named content. Filters, tests and slices on the way do not matter.
func (t *Template) ContentFormat() string {
	var loops []*forStmt
	var assigns []*assignStmt
	walkStmtNodes(t.body, func(s stmt) {
		switch s := s.(type) {
		case *forStmt:
			loops = append(loops, s)
		case *assignStmt:
			assigns = append(assigns, s)
		}
	})
	lists, ok := aliases(assigns, "messages")
	if !ok {
		return contentString
	}
	messages := map[string]bool{}
	for _, l := range loops {
		if isVar(elements(l.iter), lists) {
			n, ok := l.target.(*nameTarget)
			if !ok {
				return contentString
			}
			messages[n.name] = true
		}
	}
	for _, l := range loops {
		name, plain := l.iter.(*nameExpr)
		if !isContent(elements(l.iter), messages) && !(plain && name.name == "content") {
			continue
		}
		if _, ok := l.target.(*nameTarget); !ok {
			return contentString
		}
		return contentOpenAI
	}
	return contentString
}

// aliases returns the names that hold the variable or a part of it; ok is false
// when one is assigned in a way that the rule does not cover.
func aliases(assigns []*assignStmt, name string) (names map[string]bool, ok bool) {
	names = map[string]bool{name: true}
	for more := true; more; {
		more = false
		for _, a := range assigns {
			if !isVar(elements(a.value), names) {
				continue
			}
			t, ok := a.target.(*nameTarget)
			if !ok {
				return nil, false
			}
			if !names[t.name] {
				names[t.name] = true
				more = true
			}
		}
	}
	return names, true
}

// elements strips filters, tests and slices.
func elements(x expr) expr {
	for {
		switch n := x.(type) {
		case *filterExpr:
			x = n.node
		case *testExpr:
			x = n.node
		case *sliceExpr:
			x = n.node
		default:
			return x
		}
	}
}

func isVar(x expr, names map[string]bool) bool {
	n, ok := x.(*nameExpr)
	return ok && names[n.name]
}

func isContent(x expr, messages map[string]bool) bool {
	switch n := x.(type) {
	case *getattrExpr:
		return n.name == "content" && isVar(n.node, messages)
	case *getitemExpr:
		c, ok := n.arg.(*constExpr)
		return ok && c.value == "content" && isVar(n.node, messages)
	}
	return false
}
