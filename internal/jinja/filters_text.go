package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// softStr is str(v), except that a Markup stays one.
func softStr(st *state, v Value) (Value, error) {
	if _, ok := asString(v); ok {
		return v, nil
	}
	return st.str(v)
}

// escaped is the text of escape(v).
func escaped(st *state, v Value) (string, error) {
	if m, ok := v.(markup); ok {
		return string(m), nil
	}
	s, err := st.str(v)
	if err != nil {
		return "", err
	}
	// An escape is at most five times as long as its character.
	if err := st.walk(len(s)); err != nil {
		return "", err
	}
	s = escapeHTML(s)
	return s, st.alloc(len(s))
}

// text makes a filter of a function from string to string.
func text(f func(string) string) *filterDef {
	return &filterDef{fn: func(st *state, v Value, _ []Value) (Value, error) {
		v, err := softStr(st, v)
		if err != nil {
			return nil, err
		}
		s, _ := asString(v)
		if err := st.alloc(len(s)); err != nil {
			return nil, err
		}
		return restring(v, f(s)), st.walk(len(s))
	}}
}

// filterTitle makes the first letter of each word large; words begin behind
// blanks, hyphens and opening brackets.
func filterTitle(st *state, v Value, _ []Value) (Value, error) {
	s, err := st.str(v)
	if err != nil {
		return nil, err
	}
	if err := st.alloc(len(s)); err != nil {
		return nil, err
	}
	if err := st.walk(len(s)); err != nil {
		return nil, err
	}
	isBreak := func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }
	var b strings.Builder
	for s != "" {
		// A run of word characters, or of characters between words.
		first, _ := utf8.DecodeRuneInString(s)
		n := strings.IndexFunc(s, func(r rune) bool { return isBreak(r) != isBreak(first) })
		if n < 0 {
			n = len(s)
		}
		upperRune(&b, first)
		b.WriteString(toLower(s[utf8.RuneLen(first):n]))
		s = s[n:]
	}
	return b.String(), nil
}

func filterTrim(st *state, v Value, a []Value) (Value, error) {
	v, err := softStr(st, v)
	if err != nil {
		return nil, err
	}
	s, _ := asString(v)
	out, err := strip(st, s, a[0], true, true)
	return restring(v, out), err
}

func filterReplace(st *state, v Value, a []Value) (Value, error) {
	var s [3]string
	for i, x := range []Value{v, a[0], a[1]} {
		var err error
		if s[i], err = st.str(x); err != nil {
			return nil, err
		}
	}
	n := -1
	if c := arg(a[2], nil); c != nil {
		var err error
		if n, err = asCount(c); err != nil {
			return nil, err
		}
	}
	return replaceString(st, s[0], s[1], s[2], n)
}

func filterFormat(st *state, v Value, a callArgs) (Value, error) {
	v, err := softStr(st, v)
	if err != nil {
		return nil, err
	}
	var args Value = &Tuple{Items: a.pos}
	if len(a.kw) > 0 {
		if len(a.pos) > 0 {
			return nil, errorf("filter 'format' cannot take positional and keyword arguments at the same time")
		}
		d := NewDict(len(a.kw))
		for _, k := range a.kw {
			d.Set(k.name, k.value)
		}
		args = d
	}
	s, _ := asString(v)
	out, err := printf(st, v, s, args)
	return restring(v, out), err
}

func filterIndent(st *state, v Value, a []Value) (Value, error) {
	s, ok := asString(v)
	if !ok {
		if u, ok := v.(Undefined); ok {
			return nil, u.err()
		}
		return nil, errorf("filter 'indent' expects a string, not %s", typeName(v))
	}
	by, ok := asString(arg(a[0], int64(4)))
	if !ok {
		n, err := asCount(arg(a[0], int64(4)))
		if err != nil {
			return nil, err
		}
		if by, err = st.repeat(" ", n); err != nil {
			return nil, err
		}
	}
	first, err := flag(st, a[1])
	if err != nil {
		return nil, err
	}
	blank, err := flag(st, a[2])
	if err != nil {
		return nil, err
	}
	if err := st.alloc(len(s)); err != nil {
		return nil, err
	}
	if err := st.walk(len(s)); err != nil {
		return nil, err
	}
	if err := st.fits(strings.Count(s, "\n")); err != nil {
		return nil, err
	}
	lines := splitLines(s+"\n", false)
	n := len(s)
	for i := range lines {
		if i > 0 && (blank || lines[i] != "") {
			n += len(by)
		}
		if n > 2*st.maxOut {
			break
		}
	}
	if err := st.alloc(n); err != nil {
		return nil, err
	}
	var b strings.Builder
	if first {
		b.WriteString(by)
	}
	for i, l := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if blank || l != "" {
				b.WriteString(by)
			}
		}
		b.WriteString(l)
	}
	return restring(v, b.String()), nil
}

func filterCenter(st *state, v Value, a []Value) (Value, error) {
	v, err := softStr(st, v)
	if err != nil {
		return nil, err
	}
	width, err := asCount(arg(a[0], int64(80)))
	if err != nil {
		return nil, err
	}
	s, _ := asString(v)
	out, err := pad(st, s, width, " ", true, true)
	return restring(v, out), err
}

func filterTruncate(st *state, v Value, a []Value) (Value, error) {
	size, err := length(st, v)
	if err != nil {
		return nil, err
	}
	length, err := asCount(arg(a[0], int64(255)))
	if err != nil {
		return nil, err
	}
	kill, err := flag(st, a[1])
	if err != nil {
		return nil, err
	}
	end, ok := asString(arg(a[2], "..."))
	if !ok {
		return nil, errorf("filter 'truncate' expects a string as end")
	}
	leeway := 5
	if l := arg(a[3], nil); l != nil {
		if leeway, err = asCount(l); err != nil {
			return nil, err
		}
	}
	if length < runeLen(end) || leeway < 0 {
		return nil, errorf("filter 'truncate' expects a length of at least %d and a leeway of at least 0", runeLen(end))
	}
	if size <= length || size-length <= leeway {
		return v, nil
	}
	s, ok := asString(v)
	if !ok {
		return nil, errorf("filter 'truncate' expects a string, not %s", typeName(v))
	}
	s = s[:offset(s, int64(length-runeLen(end)))]
	if !kill {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	return add(st, restring(v, s), arg(a[2], "..."))
}

// filterWordCount counts runs of letters, digits and underscores.
func filterWordCount(st *state, v Value, _ []Value) (Value, error) {
	s, err := st.str(v)
	if err != nil {
		return nil, err
	}
	n, inWord := int64(0), false
	for _, r := range s {
		word := r == '_' || unicode.IsLetter(r) || isNumeric(r)
		if word && !inWord {
			n++
		}
		inWord = word
	}
	return n, st.walk(len(s))
}

func filterSafe(st *state, v Value, _ []Value) (Value, error) {
	s, err := st.str(v)
	return markup(s), err
}

func filterForceEscape(st *state, v Value, _ []Value) (Value, error) {
	s, err := st.str(v)
	if err != nil {
		return nil, err
	}
	s, err = escaped(st, s)
	return markup(s), err
}

func filterXMLAttr(st *state, v Value, a []Value) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, errorf("filter 'xmlattr' expects a dict, not %s", typeName(v))
	}
	autospace := true
	if a[0] != missing {
		var err error
		if autospace, err = truth(st, a[0]); err != nil {
			return nil, err
		}
	}
	var items []string
	for _, e := range d.entries {
		if e.value == nil || isUndefined(e.value) {
			continue
		}
		key, ok := asString(e.key)
		if !ok || strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			return nil, errorf("filter 'xmlattr': bad attribute name %s", repr(e.key))
		}
		k, err := escaped(st, e.key)
		if err != nil {
			return nil, err
		}
		val, err := escaped(st, e.value)
		if err != nil {
			return nil, err
		}
		items = append(items, k+`="`+val+`"`)
	}
	out, err := joinSep(st, items, " ")
	if autospace && out != "" {
		out = " " + out
	}
	return out, err
}

// filterURLEncode quotes a string for a URL, or makes a query of pairs.
func filterURLEncode(st *state, v Value, _ []Value) (Value, error) {
	if _, ok := asString(v); ok || !isIterable(v) {
		s, err := st.str(v)
		if err != nil {
			return nil, err
		}
		if err := st.walk(len(s)); err != nil {
			return nil, err
		}
		return urlQuote(s, false), st.alloc(3 * len(s))
	}
	if d, ok := v.(*Dict); ok {
		v = &dictView{d, viewItems}
	}
	pairs, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	var items []string
	for _, p := range pairs {
		kv, err := st.unpack(p, 2)
		if err != nil {
			return nil, err
		}
		k, err := st.str(kv[0])
		if err != nil {
			return nil, err
		}
		val, err := st.str(kv[1])
		if err != nil {
			return nil, err
		}
		if err := st.alloc(3 * (len(k) + len(val))); err != nil {
			return nil, err
		}
		items = append(items, urlQuote(k, true)+"="+urlQuote(val, true))
	}
	return joinSep(st, items, "&")
}

// urlQuote percent-encodes s; in a query a slash too, and blanks become plus
// signs.
func urlQuote(s string, query bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case isASCIILetter(c) || isDigit(c) || strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func filterFileSize(st *state, v Value, a []Value) (Value, error) {
	n, err := parseFloat(v)
	if err != nil {
		return nil, err
	}
	binary, err := flag(st, a[0])
	if err != nil {
		return nil, err
	}
	base, i := 1000.0, ""
	if binary {
		base, i = 1024, "i"
	}
	if n == 1 {
		return "1 Byte", nil
	}
	if n < base {
		whole, err := truncate(n)
		if err != nil {
			return nil, err
		}
		s, err := st.str(whole)
		return s + " Bytes", err
	}
	prefixes := "kMGTPEZY"
	if binary {
		prefixes = "KMGTPEZY"
	}
	unit := base
	for k := range len(prefixes) {
		unit *= base
		if n < unit || k == len(prefixes)-1 {
			s, err := st.formatValue(base*n/unit, ".1f")
			return s + " " + prefixes[k:k+1] + i + "B", err
		}
	}
	return "", nil
}
