package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// JSONOptions are the options of Python's json.dumps that templates use. The
// zero value is the form of the filter tojson without arguments.
type JSONOptions struct {
	// ASCII escapes all characters beyond ASCII.
	ASCII bool
	// Pretty puts each item on a line of its own, indented by Indent per level.
	Pretty bool
	Indent string
	// ItemSep and KeySep stand between items, and between key and value. When
	// both are empty they are ", " and ": "; with Pretty the former is ",".
	ItemSep, KeySep string
	SortKeys        bool
}

// AppendJSON appends v as Python's json.dumps writes it: with blanks after comma
// and colon, without HTML escapes, and with NaN and infinities as bare words. A
// value that has no JSON form is an error.
func AppendJSON(dst []byte, v Value, o JSONOptions) ([]byte, error) {
	st := &state{steps: math.MaxInt, mem: math.MaxInt, maxOut: math.MaxInt}
	if o.ItemSep == "" && o.KeySep == "" {
		o.setSeparators()
	}
	w := jsonWriter{st: st, o: o, dst: dst}
	err := w.value(v, 0)
	return w.dst, err
}

func (o *JSONOptions) setSeparators() {
	o.ItemSep, o.KeySep = ", ", ": "
	if o.Pretty {
		o.ItemSep = ","
	}
}

type jsonWriter struct {
	st  *state
	o   JSONOptions
	dst []byte
}

func (w *jsonWriter) value(v Value, level int) error {
	if len(w.dst) > w.st.maxOut {
		return &LimitError{What: "bytes of a value", Max: w.st.maxOut}
	}
	switch v := v.(type) {
	case string:
		w.string(v)
	case markup:
		w.string(string(v))
	case nil:
		w.dst = append(w.dst, "null"...)
	case bool:
		w.dst = strconv.AppendBool(w.dst, v)
	case int64:
		w.dst = strconv.AppendInt(w.dst, v, 10)
	case *big.Int:
		var err error
		w.dst, err = appendBig(w.dst, v)
		return err
	case float64:
		w.float(v)
	case *List:
		return w.list(v.Items, level)
	case *Tuple:
		return w.list(v.Items, level)
	case *Dict:
		return w.dict(v, level)
	default:
		return errorf("object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func (w *jsonWriter) float(f float64) {
	switch {
	case math.IsNaN(f):
		w.dst = append(w.dst, "NaN"...)
	case math.IsInf(f, 1):
		w.dst = append(w.dst, "Infinity"...)
	case math.IsInf(f, -1):
		w.dst = append(w.dst, "-Infinity"...)
	default:
		w.dst = appendFloat(w.dst, f)
	}
}

func (w *jsonWriter) newline(level int) {
	if !w.o.Pretty {
		return
	}
	w.dst = append(w.dst, '\n')
	for range level {
		w.dst = append(w.dst, w.o.Indent...)
	}
}

func (w *jsonWriter) list(items []Value, level int) error {
	if len(items) == 0 {
		w.dst = append(w.dst, "[]"...)
		return nil
	}
	if err := w.st.descend(); err != nil {
		return err
	}
	defer func() { w.st.nesting-- }()
	w.dst = append(w.dst, '[')
	for i, it := range items {
		if i > 0 {
			w.dst = append(w.dst, w.o.ItemSep...)
		}
		w.newline(level + 1)
		if err := w.item(it, level+1); err != nil {
			return err
		}
	}
	w.newline(level)
	w.dst = append(w.dst, ']')
	return nil
}

func (w *jsonWriter) item(v Value, level int) error {
	if err := w.st.step(1); err != nil {
		return err
	}
	return w.value(v, level)
}

func (w *jsonWriter) dict(d *Dict, level int) error {
	if d.Len() == 0 {
		w.dst = append(w.dst, "{}"...)
		return nil
	}
	if err := w.st.descend(); err != nil {
		return err
	}
	defer func() { w.st.nesting-- }()
	entries := d.entries
	if w.o.SortKeys {
		var err error
		if entries, err = sortedEntries(w.st, d); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, '{')
	for i, e := range entries {
		if i > 0 {
			w.dst = append(w.dst, w.o.ItemSep...)
		}
		w.newline(level + 1)
		if err := w.key(e.key); err != nil {
			return err
		}
		w.dst = append(w.dst, w.o.KeySep...)
		if err := w.item(e.value, level+1); err != nil {
			return err
		}
	}
	w.newline(level)
	w.dst = append(w.dst, '}')
	return nil
}

func sortedEntries(st *state, d *Dict) ([]dictEntry, error) {
	if err := st.allocItems(2 * d.Len()); err != nil {
		return nil, err
	}
	entries := slices.Clone(d.entries)
	err := sortBy(st, entries, false, func(e dictEntry) Value { return e.key })
	return entries, err
}

func (w *jsonWriter) key(k Value) error {
	switch k := k.(type) {
	case string:
		w.string(k)
		return nil
	case markup:
		w.string(string(k))
		return nil
	case nil, bool, int64, *big.Int, float64:
		w.dst = append(w.dst, '"')
		err := w.value(k, 0)
		w.dst = append(w.dst, '"')
		return err
	}
	return errorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

func (w *jsonWriter) string(s string) {
	dst := append(w.dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !w.o.ASCII) {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		n := 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			var r rune
			r, n = utf8.DecodeRuneInString(s[i:])
			if r >= 0x10000 {
				hi, lo := utf16.EncodeRune(r)
				dst = fmt.Appendf(dst, `\u%04x\u%04x`, hi, lo)
			} else {
				dst = fmt.Appendf(dst, `\u%04x`, r)
			}
		}
		i += n
		start = i
	}
	dst = append(dst, s[start:]...)
	w.dst = append(dst, '"')
}
