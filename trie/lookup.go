package trie

import "slices"

// Way is how a lookup came to its prediction.
type Way string

const (
	// WholePath is when every name of the path was there. The prediction may still be
	// that of a node on the way, where the last had none.
	WholePath Way = "whole path"
	// Suffix is when the end of the path was there, as in tries that are built by pairs.
	Suffix Way = "suffix"
	// PartOfPath is when the path's first names were there.
	PartOfPath Way = "part of the path"
	// AtRoot is when the root's prediction was all there was.
	AtRoot Way = "root"
)

// Match is what a lookup found.
type Match struct {
	// Prediction belongs to the trie and must not be changed; nil if there is none.
	Prediction *Prediction
	// Path is the node that predicts it, by the names from the root, whose own is left
	// out.
	Path []string
	// Exact is whether the prediction is for the call's own index, not for any.
	Exact bool
	// Way is how it was found; empty if nothing was.
	Way Way
}

// Find returns the prediction for the call with an index, from 1, at a path, and whether
// there is one; the package comment says which of several it is. It belongs to the trie and
// must not be changed. Find allocates nothing, and on a nil Trie finds nothing.
func (t *Trie) Find(path []string, callIndex int) (*Prediction, bool) {
	f := t.find(path, callIndex)
	return f.prediction, f.prediction != nil
}

// FindPlain is [Trie.Find] as NeMo Agent Toolkit has it: the path is walked from the root
// as far as it is there, and the deepest prediction on the way is the one. Neither the end of
// the path is tried nor a node "root" below the root.
func (t *Trie) FindPlain(path []string, callIndex int) (*Prediction, bool) {
	if t == nil || t.Root == nil {
		return nil, false
	}
	p := t.Root.walk(path, callIndex).prediction
	return p, p != nil
}

// Lookup is [Trie.Find] with an account of where the prediction was found.
func (t *Trie) Lookup(path []string, callIndex int) Match {
	f := t.find(path, callIndex)
	if f.prediction == nil {
		return Match{}
	}
	m := Match{Prediction: f.prediction, Exact: f.exact, Way: f.way}
	if f.underRoot {
		m.Path = []string{rootName, path[0]}[:f.depth]
	} else {
		m.Path = slices.Clone(f.names[:f.depth])
	}
	if f.depth == 0 {
		m.Way = AtRoot
	}
	return m
}

// found is the outcome of a walk from the root.
type found struct {
	prediction *Prediction
	exact      bool
	names      []string // what was walked
	matched    int      // how many of the names were there
	depth      int      // how many of them lead to the prediction
	underRoot  bool     // the names were those below a node "root" below the root
	way        Way
}

// find looks in the order of the package comment.
func (t *Trie) find(path []string, callIndex int) found {
	if t == nil || t.Root == nil {
		return found{}
	}
	if len(path) == 1 {
		if c := t.Root.child(rootName); c != nil {
			if f := c.walk(path, callIndex); f.matched == 1 && f.prediction != nil && f.depth == 1 {
				f.underRoot, f.depth, f.way = true, 2, Suffix
				return f
			}
		}
	}
	whole := t.Root.walk(path, callIndex)
	if len(path) > 1 && path[0] == rootName && whole.matched < len(path) {
		if f := t.Root.walk(path[1:], callIndex); f.matched > 0 && f.matched >= whole.matched {
			whole = f
		}
	}
	if whole.matched == len(whole.names) && whole.prediction != nil {
		whole.way = WholePath
		return whole
	}
	if len(path) > 2 {
		if f := t.Root.walk(path[len(path)-2:], callIndex); f.matched == 2 && f.depth > 0 {
			f.way = Suffix
			return f
		}
	}
	whole.way = PartOfPath
	return whole
}

// walk goes down from n by as many of the names as there are, and takes the deepest
// prediction on the way.
func (n *Node) walk(names []string, callIndex int) found {
	f := found{names: names}
	f.prediction, f.exact = n.pick(callIndex)
	for _, name := range names {
		if n = n.child(name); n == nil {
			break
		}
		f.matched++
		if p, exact := n.pick(callIndex); p != nil {
			f.prediction, f.exact, f.depth = p, exact, f.matched
		}
	}
	return f
}

// pick returns the node's prediction for an index, nil if it has none, and whether it is
// for that index alone.
func (n *Node) pick(callIndex int) (p *Prediction, exact bool) {
	if i := n.position(callIndex); i >= 0 {
		return &n.ByCallIndex[i].Prediction, true
	}
	return n.AnyIndex, false
}

// many is from how many children or indices on a node has a table of them.
const many = 16

// child returns the child with a name, which a builder may have shortened; nil if there is
// none.
func (n *Node) child(name string) *Node {
	c := childNamed(n, name)
	if c == nil && len(name) > maxName {
		var short [maxName]byte
		c = childNamed(n, appendShort(short[:0], name))
	}
	return c
}

// childNamed returns the child with exactly that name, nil if there is none.
func childNamed[T string | []byte](n *Node, name T) *Node {
	if n.byName != nil {
		if i, ok := n.byName[string(name)]; ok {
			return n.Children[i]
		}
		return nil
	}
	for _, c := range n.Children {
		if c != nil && c.Name == string(name) {
			return c
		}
	}
	return nil
}

// position returns where in ByCallIndex an index is, -1 if it is not there.
func (n *Node) position(index int) int {
	if i := index - 1; i >= 0 && i < len(n.ByCallIndex) && n.ByCallIndex[i].Index == index {
		return i // as in every trie whose indices are in order without a gap
	}
	if n.byIndex != nil {
		if i, ok := n.byIndex[index]; ok {
			return i
		}
		return -1
	}
	for i := range n.ByCallIndex {
		if n.ByCallIndex[i].Index == index {
			return i
		}
	}
	return -1
}

// addChild adds a child, in the place of the one with its name if there is one.
func (n *Node) addChild(c *Node) {
	i := len(n.Children)
	if n.byName != nil {
		if at, ok := n.byName[c.Name]; ok {
			i = at
		}
	} else if at := slices.IndexFunc(n.Children, func(o *Node) bool { return o.Name == c.Name }); at >= 0 {
		i = at
	}
	if i < len(n.Children) {
		n.Children[i] = c
		return
	}
	n.Children = append(n.Children, c)
	switch {
	case n.byName != nil:
		n.byName[c.Name] = i
	case i == many:
		n.byName = make(map[string]int, 2*many)
		for i, c := range n.Children {
			n.byName[c.Name] = i
		}
	}
}

// addIndexed adds a prediction, in the place of the one with its index if there is one.
func (n *Node) addIndexed(p Indexed) {
	i := len(n.ByCallIndex)
	if at := n.position(p.Index); at >= 0 {
		n.ByCallIndex[at] = p
		return
	}
	n.ByCallIndex = append(n.ByCallIndex, p)
	switch {
	case n.byIndex != nil:
		n.byIndex[p.Index] = i
	case i == many:
		n.byIndex = make(map[int]int, 2*many)
		for i := range n.ByCallIndex {
			n.byIndex[n.ByCallIndex[i].Index] = i
		}
	}
}
