package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// repr returns v as Python's repr prints it. Of a value nested deeper than a
// thousand levels, or with a type that templates do not know, it returns a
// placeholder.
func repr(v Value) string {
	st := &state{steps: math.MaxInt, mem: math.MaxInt, maxOut: math.MaxInt}
	s, err := st.repr(v)
	if err != nil {
		return fmt.Sprintf("<%T>", v)
	}
	return s
}

// str is Python's str(v).
func (st *state) str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case markup:
		return string(v), nil
	case Undefined:
		return "", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return st.repr(v)
}

func (st *state) repr(v Value) (string, error) {
	var buf [64]byte
	b, err := st.appendRepr(buf[:0], v)
	if err != nil {
		return "", err
	}
	return string(b), st.alloc(len(b))
}

func (st *state) appendRepr(dst []byte, v Value) ([]byte, error) {
	if len(dst) > st.maxOut {
		return nil, &LimitError{What: "bytes of a value", Max: st.maxOut}
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "None"...), nil
	case bool:
		if v {
			return append(dst, "True"...), nil
		}
		return append(dst, "False"...), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case *big.Int:
		return appendBig(dst, v)
	case float64:
		return appendFloat(dst, v), nil
	case string:
		return appendStringRepr(dst, v), nil
	case markup:
		dst = append(dst, "Markup("...)
		return append(appendStringRepr(dst, string(v)), ')'), nil
	case Undefined:
		return append(dst, "Undefined"...), nil
	case *List:
		return st.appendItems(dst, "[", "]", len(v.Items), func(i int) Value { return v.Items[i] })
	case *Tuple:
		end := ")"
		if len(v.Items) == 1 {
			end = ",)"
		}
		return st.appendItems(dst, "(", end, len(v.Items), func(i int) Value { return v.Items[i] })
	case *Dict:
		return st.appendDict(dst, v)
	case *dictView:
		return st.appendItems(append(dst, typeName(v)...), "([", "])", v.dict.Len(), v.at)
	case *rangeValue:
		dst = fmt.Appendf(dst, "range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			dst = fmt.Appendf(dst, ", %d", v.step)
		}
		return append(dst, ')'), nil
	case *namespace:
		dst, err := st.appendDict(append(dst, "<Namespace "...), v.attrs)
		return append(dst, '>'), err
	case *macro:
		if v.def.name == "" {
			return append(dst, "<Macro anonymous>"...), nil
		}
		return append(appendStringRepr(append(dst, "<Macro "...), v.def.name), '>'), nil
	case *loopContext:
		n, err := v.length(st)
		return fmt.Appendf(dst, "<LoopContext %d/%d>", v.index0+1, n), err
	case *templateRef:
		return append(dst, "<TemplateReference None>"...), nil
	case *function, *generator, *cycler, *joiner:
		return nil, errorf("a %s cannot be printed: Python prints its address", typeName(v))
	}
	return nil, unknownType(v)
}

// appendItems appends the items with commas between them.
func (st *state) appendItems(dst []byte, open, end string, n int, at func(int) Value) ([]byte, error) {
	if err := st.descend(); err != nil {
		return nil, err
	}
	defer func() { st.nesting-- }()
	dst = append(dst, open...)
	for i := range n {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if err := st.step(1); err != nil {
			return nil, err
		}
		var err error
		if dst, err = st.appendRepr(dst, at(i)); err != nil {
			return nil, err
		}
	}
	return append(dst, end...), nil
}

func (st *state) appendDict(dst []byte, d *Dict) ([]byte, error) {
	if err := st.descend(); err != nil {
		return nil, err
	}
	defer func() { st.nesting-- }()
	dst = append(dst, '{')
	for i, e := range d.entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if err := st.step(1); err != nil {
			return nil, err
		}
		var err error
		if dst, err = st.appendRepr(dst, e.key); err != nil {
			return nil, err
		}
		dst = append(dst, ": "...)
		if dst, err = st.appendRepr(dst, e.value); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendBig appends an integer; like Python it refuses very long ones.
func appendBig(dst []byte, n *big.Int) ([]byte, error) {
	at := len(dst)
	dst = n.Append(dst, 10)
	if digits := len(strings.TrimPrefix(string(dst[at:]), "-")); digits > maxIntDigits {
		return nil, errorf("integer of %d digits is too long to print, at most %d", digits, maxIntDigits)
	}
	return dst, nil
}

// appendFloat appends a float in Python's shortest form.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		// Go writes exponents with a sign and two digits, like Python.
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[at:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// appendStringRepr appends a string in quotes: single ones, unless that would
// need escapes and double ones would not.
func appendStringRepr(dst []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < 0x80 && r >= ' ' && r != 0x7f || r >= 0x80 && unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r < 0x100:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r < 0x10000:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
	}
	return append(dst, quote)
}
