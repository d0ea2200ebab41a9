package jinja

import (
	"math"
	"slices"
	"strings"
)

// splitArgs returns the arguments of split and rsplit; sep is empty for
// whitespace.
func splitArgs(name string, a callArgs) (sep string, max int, err error) {
	args, err := a.bind(name, []string{"sep", "maxsplit"}, 0)
	if err != nil {
		return "", 0, err
	}
	max = -1
	if args[1] != missing {
		if max, err = asCount(args[1]); err != nil {
			return "", 0, err
		}
	}
	if args[0] == missing || args[0] == nil {
		return "", max, nil
	}
	if sep, err = strArg(name, args[0]); err == nil && sep == "" {
		err = errorf("%s(): empty separator", name)
	}
	return sep, max, err
}

// parts returns a list of strings of the receiver's type.
func parts(st *state, like Value, ss []string) (Value, error) {
	if err := st.allocItems(2 * len(ss)); err != nil {
		return nil, err
	}
	l := &List{Items: make([]Value, len(ss))}
	for i, s := range ss {
		l.Items[i] = restring(like, s)
	}
	return l, nil
}

// fits fails when n strings are more than what memory is left for.
func (st *state) fits(n int) error {
	if n > st.mem/(3*perValue) {
		return &LimitError{What: "bytes of all values", Max: memFactor * st.maxOut}
	}
	return nil
}

// fitsSplit fails when splitting s gives too many parts.
func (st *state) fitsSplit(s, sep string) error {
	if sep != "" {
		return st.fits(strings.Count(s, sep))
	}
	if err := st.walk(len(s)); err != nil {
		return err
	}
	words, inWord := 0, false
	for _, r := range s {
		space := isSpace(r)
		if inWord = !space && inWord; !space && !inWord {
			words++
			inWord = true
		}
	}
	return st.fits(words)
}

func strSplit(st *state, v Value, a callArgs) (Value, error) {
	sep, max, err := splitArgs("split", a)
	if err != nil {
		return nil, err
	}
	s, err := self(st, v)
	if err != nil {
		return nil, err
	}
	if err := st.fitsSplit(s, sep); err != nil {
		return nil, err
	}
	if sep == "" {
		return parts(st, v, splitSpace(s, max))
	}
	if max >= 0 {
		return parts(st, v, strings.SplitN(s, sep, 1+min(max, math.MaxInt32)))
	}
	return parts(st, v, strings.Split(s, sep))
}

func strRSplit(st *state, v Value, a callArgs) (Value, error) {
	sep, max, err := splitArgs("rsplit", a)
	if err != nil {
		return nil, err
	}
	s, err := self(st, v)
	if err != nil {
		return nil, err
	}
	if err := st.fitsSplit(s, sep); err != nil {
		return nil, err
	}
	var ss []string
	if sep == "" {
		ss = rsplitSpace(s, max)
	} else {
		ss = rsplit(s, sep, max)
	}
	slices.Reverse(ss)
	return parts(st, v, ss)
}

func strSplitLines(st *state, v Value, a callArgs) (Value, error) {
	args, err := a.bind("splitlines", []string{"keepends"}, 0)
	if err != nil {
		return nil, err
	}
	keep := false
	if args[0] != missing {
		if keep, err = truth(st, args[0]); err != nil {
			return nil, err
		}
	}
	s, err := self(st, v)
	if err != nil {
		return nil, err
	}
	if err := st.walk(len(s)); err != nil {
		return nil, err
	}
	n := 0
	for _, end := range [...]string{"\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\u0085", "\u2028", "\u2029"} {
		n += strings.Count(s, end)
	}
	if err := st.fits(n); err != nil {
		return nil, err
	}
	return parts(st, v, splitLines(s, keep))
}

func partition(name string, find func(s, sub string) int) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 1, 1); err != nil {
			return nil, err
		}
		sep, err := strArg(name, a.pos[0])
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, errorf("%s(): empty separator", name)
		}
		s, err := self(st, v)
		if err != nil {
			return nil, err
		}
		before, mid, after := s, "", ""
		if i := find(s, sep); i >= 0 {
			before, mid, after = s[:i], sep, s[i+len(sep):]
		} else if name == "rpartition" {
			before, after = "", s
		}
		return &Tuple{Items: []Value{restring(v, before), restring(v, mid), restring(v, after)}}, nil
	}
}

func strJoin(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("join", 1, 1); err != nil {
		return nil, err
	}
	items, err := collect(st, a.pos[0])
	if err != nil {
		return nil, err
	}
	_, safe := v.(markup)
	ss := make([]string, len(items))
	for i, it := range items {
		if safe {
			if ss[i], err = escaped(st, it); err != nil {
				return nil, err
			}
			continue
		}
		s, ok := asString(it)
		if !ok {
			return nil, errorf("join() expects strings, item %d is %s", i, typeName(it))
		}
		ss[i] = s
	}
	sep, _ := asString(v)
	out, err := joinSep(st, ss, sep)
	return restring(v, out), err
}
