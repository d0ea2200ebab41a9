package jinja

import "strings"

// strFormat is the method format of strings.
func strFormat(st *state, v Value, a callArgs) (Value, error) {
	return vformat(st, v, a.pos, func(name string) (Value, bool) {
		for _, k := range a.kw {
			if k.name == name {
				return k.value, true
			}
		}
		return nil, false
	})
}

// strFormatMap is the method format_map of strings.
func strFormatMap(st *state, v Value, a callArgs) (Value, error) {
	if err := a.only("format_map", 1, 1); err != nil {
		return nil, err
	}
	d, ok := a.pos[0].(*Dict)
	if !ok {
		return nil, errorf("format_map() expects a dict, not %s", typeName(a.pos[0]))
	}
	return vformat(st, v, nil, d.Get)
}

func vformat(st *state, v Value, pos []Value, named func(string) (Value, bool)) (Value, error) {
	s, _ := asString(v)
	_, safe := v.(markup)
	f := formatter{st: st, safe: safe, pos: pos, named: named}
	out, err := f.format(s, 2)
	return restring(v, out), err
}

// A formatter is a str.format in progress.
type formatter struct {
	st    *state
	safe  bool
	pos   []Value
	named func(string) (Value, bool)
	// auto counts the fields without a name; manual says that numbers were used.
	auto   int
	manual bool
}

func (f *formatter) format(s string, depth int) (string, error) {
	if depth < 0 {
		return "", errorf("format fields nested too deep")
	}
	if err := f.st.alloc(len(s)); err != nil {
		return "", err
	}
	var out []byte
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			break
		}
		out = append(out, s[:i]...)
		c := s[i]
		s = s[i+1:]
		if s != "" && s[0] == c {
			out = append(out, c)
			s = s[1:]
			continue
		}
		if c == '}' {
			return "", errorf("single '}' encountered in format string")
		}
		end := fieldEnd(s)
		if end < 0 {
			return "", errorf("expected '}' before end of format string")
		}
		text, err := f.field(s[:end], depth)
		if err != nil {
			return "", err
		}
		out = append(out, text...)
		if len(out) > f.st.maxOut {
			return "", &LimitError{What: "bytes of a value", Max: f.st.maxOut}
		}
		s = s[end+1:]
	}
	out = append(out, s...)
	return string(out), f.st.alloc(len(out))
}

// fieldEnd returns the index of the brace that closes a field, -1 without one.
func fieldEnd(s string) int {
	depth := 1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			// A brace in a subscript is part of it.
			if j := strings.IndexByte(s[i:], ']'); j >= 0 && depth == 1 && !strings.Contains(s[:i], ":") {
				i += j
			}
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

func (f *formatter) field(field string, depth int) (string, error) {
	name, spec, conv := field, "", ""
	// The name ends at the first colon or exclamation mark outside a subscript.
	for i, in := 0, false; i < len(field); i++ {
		if c := field[i]; c == '[' {
			in = true
		} else if c == ']' {
			in = false
		} else if !in && (c == ':' || c == '!') {
			name = field[:i]
			rest := field[i+1:]
			if c == '!' {
				if rest == "" || len(rest) > 1 && rest[1] != ':' {
					return "", errorf("expected ':' after conversion specifier")
				}
				conv = rest[:1]
				rest = strings.TrimPrefix(rest[1:], ":")
			}
			spec = rest
			break
		}
	}
	if strings.Contains(name, "{") {
		return "", errorf("unexpected '{' in field name")
	}
	v, err := f.value(name)
	if err != nil {
		return "", err
	}
	switch conv {
	case "":
	case "s":
		v, err = f.st.str(v)
	case "r", "a":
		var s string
		s, err = f.st.repr(v)
		if conv == "a" {
			s = asciiRepr(s)
		}
		v = s
	default:
		err = errorf("unknown conversion specifier %s", conv)
	}
	if err != nil {
		return "", err
	}
	if spec != "" {
		if spec, err = f.format(spec, depth-1); err != nil {
			return "", err
		}
	}
	if !f.safe {
		return f.st.formatValue(v, spec)
	}
	if m, ok := v.(markup); ok {
		if spec != "" {
			return "", errorf("unsupported format specification for Markup")
		}
		return string(m), nil
	}
	text, err := f.st.formatValue(v, spec)
	return escapeHTML(text), err
}

// value looks a field up: an argument, then attributes and items of it.
func (f *formatter) value(name string) (Value, error) {
	i := strings.IndexAny(name, ".[")
	rest := ""
	if i >= 0 {
		name, rest = name[:i], name[i:]
	}
	if name == "" && rest != "" {
		return nil, errorf("format: a field without name or number cannot have attributes")
	}
	v, err := f.arg(name)
	for err == nil && rest != "" {
		if rest[0] == '.' {
			rest = rest[1:]
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, errorf("empty attribute in format string")
			}
			v, err = getattr(f.st, v, rest[:end])
			rest = rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			return nil, errorf("bad subscript in format string")
		}
		var key Value = rest[1:end]
		if n, more, err := leadingInt(rest[1:end], -1); err == nil && more == "" && n >= 0 {
			key = int64(n)
		}
		v, err = getitem(f.st, v, key)
		rest = rest[end+1:]
	}
	return v, err
}

func (f *formatter) arg(name string) (Value, error) {
	n, more, err := leadingInt(name, -1)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		if f.manual {
			return nil, errorf("cannot switch from manual field specification to automatic field numbering")
		}
		n = f.auto
		f.auto++
	case n >= 0 && more == "":
		if f.auto > 0 {
			return nil, errorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	default:
		if v, ok := f.named(name); ok {
			return v, nil
		}
		return nil, errorf("format: no argument named %s", repr(name))
	}
	if n >= len(f.pos) {
		return nil, errorf("format: no argument number %d", n)
	}
	return f.pos[n], nil
}
