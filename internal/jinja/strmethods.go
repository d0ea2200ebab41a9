package jinja

import "strings"

// strMethods are the methods of str. On a Markup they return Markup where Python
// does.
var strMethods = map[string]method{
	"upper":      mapped(toUpper),
	"lower":      mapped(toLower),
	"title":      mapped(toTitle),
	"capitalize": mapped(capitalize),
	"swapcase":   mapped(swapCase),

	"strip":  stripper(true, true),
	"lstrip": stripper(true, false),
	"rstrip": stripper(false, true),

	"startswith": affix("startswith", strings.HasPrefix),
	"endswith":   affix("endswith", strings.HasSuffix),

	"removeprefix": cutter("removeprefix", strings.TrimPrefix),
	"removesuffix": cutter("removesuffix", strings.TrimSuffix),

	"find":   finder("find", strings.Index, false),
	"rfind":  finder("rfind", strings.LastIndex, false),
	"index":  finder("index", strings.Index, true),
	"rindex": finder("rindex", strings.LastIndex, true),
	"count":  strCount,

	"split":      strSplit,
	"rsplit":     strRSplit,
	"splitlines": strSplitLines,
	"partition":  partition("partition", strings.Index),
	"rpartition": partition("rpartition", strings.LastIndex),
	"join":       strJoin,
	"replace":    strReplace,

	"center":     padder("center", true, true),
	"ljust":      padder("ljust", false, true),
	"rjust":      padder("rjust", true, false),
	"zfill":      strZfill,
	"expandtabs": strExpandTabs,

	"format":     strFormat,
	"format_map": strFormatMap,

	"isalnum":      predicate(func(r rune) bool { return isAlpha(r) || isNumeric(r) }),
	"isalpha":      predicate(isAlpha),
	"isdecimal":    predicate(isDecimal),
	"isdigit":      predicate(isPyDigit),
	"isnumeric":    predicate(isNumeric),
	"isspace":      predicate(isSpace),
	"isascii":      whole(isASCII),
	"isprintable":  whole(func(s string) bool { return strings.IndexFunc(s, notPrintable) < 0 }),
	"isidentifier": whole(isIdentifier),
	"islower":      whole(isLowerString),
	"isupper":      whole(isUpperString),
	"istitle":      whole(isTitleString),
}

// unsupportedStrMethods are those that templates have no use for.
var unsupportedStrMethods = map[string]bool{"encode": true, "casefold": true, "maketrans": true, "translate": true}

// self returns the text of a method's receiver and accounts for reading it.
func self(st *state, v Value) (string, error) {
	s, _ := asString(v)
	return s, st.scan(len(s))
}

// strArg returns a string argument.
func strArg(f string, v Value) (string, error) {
	if s, ok := asString(v); ok {
		return s, nil
	}
	return "", errorf("%s() expects a string, not %s", f, typeName(v))
}

// mapped makes a method of a function from string to string.
func mapped(f func(string) string) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only("this method", 0, 0); err != nil {
			return nil, err
		}
		s, _ := asString(v)
		// No mapping makes a character more than three times as long.
		if err := st.alloc(len(s)); err != nil {
			return nil, err
		}
		if err := st.walk(len(s)); err != nil {
			return nil, err
		}
		return restring(v, f(s)), nil
	}
}

func stripper(left, right bool) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only("strip", 0, 1); err != nil {
			return nil, err
		}
		s, _ := asString(v)
		out, err := strip(st, s, a.at(0), left, right)
		return restring(v, out), err
	}
}

// strip removes characters from the ends of s: those in chars, a string, or
// whitespace when it is missing or None.
func strip(st *state, s string, chars Value, left, right bool) (string, error) {
	n := len(s)
	if chars == missing || chars == nil {
		if left {
			s = trimLeftSpace(s)
		}
		if right {
			s = trimRightSpace(s)
		}
		return s, st.walk(n - len(s))
	}
	set, ok := asString(chars)
	if !ok {
		return "", errorf("strip() expects None or a string, not %s", typeName(chars))
	}
	if left {
		s = strings.TrimLeft(s, set)
	}
	if right {
		s = strings.TrimRight(s, set)
	}
	// Each character is looked for in the set, the first that stays too.
	return s, st.scan((n - len(s) + 2) * len(set))
}

// window returns s[start:end] for the optional arguments at i, and whether start
// lies within s. n is the length of the part of s before it in code points.
func window(st *state, s string, a callArgs, i int) (part string, n int, ok bool, err error) {
	var b sliceBounds
	for j := range 2 {
		if v := a.at(i + j); v != missing {
			if err := b.set(j, v); err != nil {
				return "", 0, false, err
			}
		}
	}
	if !b.given[0] && !b.given[1] {
		return s, 0, true, nil
	}
	if err := st.walk(len(s)); err != nil {
		return "", 0, false, err
	}
	start, end := 0, len(s)
	if b.given[0] {
		if b.val[0] > 0 && b.val[0] > int64(runeLen(s)) {
			return "", 0, false, nil
		}
		start = offset(s, b.val[0])
	}
	if b.given[1] {
		end = offset(s, b.val[1])
	}
	if start > end {
		return "", 0, false, nil
	}
	return s[start:end], runeLen(s[:start]), true, nil
}

// affix makes startswith and endswith.
func affix(name string, has func(s, affix string) bool) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 1, 3); err != nil {
			return nil, err
		}
		s, _ := asString(v)
		ok := true
		if len(a.pos) > 1 {
			var err error
			if s, _, ok, err = window(st, s, a, 1); err != nil {
				return nil, err
			}
		}
		options := []Value{a.pos[0]}
		if t, isTuple := a.pos[0].(*Tuple); isTuple {
			options = t.Items
		}
		for _, o := range options {
			x, err := strArg(name, o)
			if err != nil {
				return nil, err
			}
			if err := st.scan(len(x)); err != nil {
				return nil, err
			}
			if ok && has(s, x) {
				return true, nil
			}
		}
		return false, nil
	}
}

func cutter(name string, cut func(s, affix string) string) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 1, 1); err != nil {
			return nil, err
		}
		x, err := strArg(name, a.pos[0])
		if err != nil {
			return nil, err
		}
		s, _ := asString(v)
		return restring(v, cut(s, x)), st.scan(len(x))
	}
}

// finder makes find and its kin; must says that not finding is an error.
func finder(name string, find func(s, sub string) int, must bool) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 1, 3); err != nil {
			return nil, err
		}
		s, err := self(st, v)
		if err != nil {
			return nil, err
		}
		sub, err := strArg(name, a.pos[0])
		if err != nil {
			return nil, err
		}
		part, before, ok, err := window(st, s, a, 1)
		if err != nil {
			return nil, err
		}
		if ok {
			if i := find(part, sub); i >= 0 {
				return int64(before + runeLen(part[:i])), st.walk(i)
			}
		}
		if must {
			return nil, errorf("%s(): substring not found", name)
		}
		return int64(-1), nil
	}
}

func strCount(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("count", 1, 3); err != nil {
		return nil, err
	}
	s, err := self(st, v)
	if err != nil {
		return nil, err
	}
	sub, err := strArg("count", a.pos[0])
	if err != nil {
		return nil, err
	}
	part, _, ok, err := window(st, s, a, 1)
	if err != nil || !ok {
		return int64(0), err
	}
	return int64(strings.Count(part, sub)), nil
}

// joinSep is strings.Join within bounds.
func joinSep(st *state, ss []string, sep string) (string, error) {
	n := 0
	for _, s := range ss {
		n += len(s) + len(sep)
		if n > 2*st.maxOut {
			break
		}
	}
	if err := st.alloc(max(n-len(sep), 0)); err != nil {
		return "", err
	}
	return strings.Join(ss, sep), st.step(len(ss))
}

func strReplace(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("replace", 2, 3); err != nil {
		return nil, err
	}
	old, err := strArg("replace", a.pos[0])
	if err != nil {
		return nil, err
	}
	var repl string
	if _, safe := v.(markup); safe {
		repl, err = escaped(st, a.pos[1])
	} else {
		repl, err = strArg("replace", a.pos[1])
	}
	if err != nil {
		return nil, err
	}
	n := -1
	if len(a.pos) > 2 {
		if n, err = asCount(a.pos[2]); err != nil {
			return nil, err
		}
	}
	s, _ := asString(v)
	out, err := replaceString(st, s, old, repl, n)
	return restring(v, out), err
}

// replaceString is s.replace(old, repl, n) within bounds.
func replaceString(st *state, s, old, repl string, n int) (string, error) {
	if err := st.scan(len(s)); err != nil {
		return "", err
	}
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	if count == 0 {
		return s, nil
	}
	if len(repl) > 0 && count > 2*st.maxOut/len(repl) {
		return "", &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	if err := st.alloc(len(s) + count*(len(repl)-len(old))); err != nil {
		return "", err
	}
	return strings.Replace(s, old, repl, count), nil
}

func padder(name string, left, right bool) method {
	return func(st *state, v Value, a callArgs) (Value, error) {
		if err := a.only(name, 1, 2); err != nil {
			return nil, err
		}
		width, err := asCount(a.pos[0])
		if err != nil {
			return nil, err
		}
		fill := " "
		if len(a.pos) > 1 {
			if fill, err = strArg(name, a.pos[1]); err != nil {
				return nil, err
			}
			if _, safe := v.(markup); safe {
				fill = escapeHTML(fill)
			}
			if runeLen(fill) != 1 {
				return nil, errorf("%s(): the fill character must be exactly one character long", name)
			}
		}
		s, _ := asString(v)
		out, err := pad(st, s, width, fill, left, right)
		return restring(v, out), err
	}
}

func strZfill(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("zfill", 1, 1); err != nil {
		return nil, err
	}
	width, err := asCount(a.pos[0])
	if err != nil {
		return nil, err
	}
	s, _ := asString(v)
	zeros, err := st.repeat("0", width-runeLen(s))
	if err != nil {
		return nil, err
	}
	sign := ""
	if zeros != "" && s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	out, err := st.join(sign, zeros, s)
	return restring(v, out), err
}

func strExpandTabs(st *state, v Value, a callArgs) (Value, error) {
	args, err := a.bind("expandtabs", []string{"tabsize"}, 0)
	if err != nil {
		return nil, err
	}
	size := 8
	if args[0] != missing {
		if size, err = asCount(args[0]); err != nil {
			return nil, err
		}
	}
	s, _ := asString(v)
	tabs := strings.Count(s, "\t")
	if tabs > 0 && size > st.maxOut/tabs {
		return nil, &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	if err := st.alloc(len(s) + tabs*max(size, 0)); err != nil {
		return nil, err
	}
	if err := st.walk(len(s)); err != nil {
		return nil, err
	}
	var b strings.Builder
	col := 0
	for _, r := range s {
		switch {
		case r == '\t':
			if size > 0 {
				n := size - col%size
				b.WriteString(strings.Repeat(" ", n))
				col += n
			}
			continue
		case r == '\n' || r == '\r':
			col = -1
		}
		col++
		b.WriteRune(r)
	}
	return restring(v, b.String()), nil
}
