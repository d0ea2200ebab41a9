package trie

import (
	"cmp"
	"slices"
)

// invocations returns who called whom, by the ids of invocations, as far as the run's steps
// say; nil if it does not matter.
func (b *Builder) invocations() map[string]Invocation {
	paths := b.o.PathMode == FullPath &&
		slices.ContainsFunc(b.steps, func(s *Step) bool { return s.Type == LLMEnd && s.Path == nil })
	slack := b.o.Sensitivity != nil && b.o.Sensitivity.Parallel > 0 && !b.o.Compat
	if !paths && !slack {
		return nil
	}
	known := make(map[string]Invocation)
	for _, s := range b.steps {
		if f := s.Function; f.ID != "" {
			if _, ok := known[f.ID]; !ok {
				known[f.ID] = f
			}
		}
	}
	return known
}

// path appends the names under which a call is filed.
func (b *Builder) path(dst []string, s *Step, known map[string]Invocation) []string {
	from := len(dst)
	switch {
	case b.o.PathMode == PairPath:
		dst = pair(dst, s)
		if f := s.Function; b.o.Compat && f.Name == "" && f != (Invocation{}) && s.Path == nil {
			dst = append(dst, "") // a name like others
		}
		return dst
	case len(s.Path) > MaxDepth:
		return appendNames(dst, s.Path[len(s.Path)-2:]...)
	case s.Path != nil:
		dst = appendNames(dst, s.Path...)
	default:
		var ok bool
		if dst, ok = appendCallers(dst, s.Function, known); !ok {
			dst = pair(dst, s)
		}
	}
	if path := dst[from:]; len(path) > 1 && path[0] == rootName {
		dst = slices.Delete(dst, from, from+1)
	}
	return dst
}

// appendCallers appends the functions from the entry to an invocation, which are its
// callers as far as they are known, and its own. It appends nothing and returns false if
// they call each other in a circle or are too many.
func appendCallers(dst []string, f Invocation, known map[string]Invocation) ([]string, bool) {
	from := len(dst)
	dst = appendNames(dst, f.Name)
	for range MaxDepth {
		caller, ok := known[f.ParentID]
		if !ok || f.ParentID == rootName {
			if f.ParentID != rootName {
				dst = appendNames(dst, f.ParentName)
			}
			slices.Reverse(dst[from:])
			return dst, true
		}
		dst = appendNames(dst, cmp.Or(caller.Name, f.ParentName))
		f = caller
	}
	return dst[:from], false
}

// pair appends the names of a call's function and of that one's caller.
func pair(dst []string, s *Step) []string {
	if s.Function.Name == "" && len(s.Path) > 0 {
		return appendNames(dst, s.Path[max(0, len(s.Path)-2):]...)
	}
	return appendNames(dst, s.Function.ParentName, s.Function.Name)
}

// appendNames appends the names that are not empty.
func appendNames(dst []string, names ...string) []string {
	for _, name := range names {
		if name != "" {
			dst = append(dst, name)
		}
	}
	return dst
}
