package jinja

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonOptions are the options of Python's json.dumps that templates use.
type jsonOptions struct {
	// ascii escapes all characters beyond ASCII.
	ascii bool
	// pretty puts each item on a line of its own, indented by indent per level.
	pretty bool
	indent string
	// itemSep and keySep stand between items, and between key and value.
	itemSep, keySep string
	sortKeys        bool
}

// setSeparators sets the separators that are usual for the other options.
func (o *jsonOptions) setSeparators() {
	o.itemSep, o.keySep = ", ", ": "
	if o.pretty {
		o.itemSep = ","
	}
}

// jsonWriter appends values as Python's json.dumps writes them: with blanks after
// comma and colon, without HTML escapes, and with NaN and infinities as bare words.
// A value that has no JSON form is an error.
type jsonWriter struct {
	st  *state
	o   jsonOptions
	dst []byte
}

// room is an error where n more bytes would be too many.
func (w *jsonWriter) room(n int) error {
	if n > w.st.maxOut-len(w.dst) {
		return &LimitError{What: "bytes of a value", Max: w.st.maxOut}
	}
	return nil
}

func (w *jsonWriter) value(v Value, level int) error {
	if err := w.room(0); err != nil {
		return err
	}
	switch v := v.(type) {
	case string:
		return w.string(v)
	case markup:
		return w.string(string(v))
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
	if !w.o.pretty {
		return
	}
	w.dst = append(w.dst, '\n')
	for range level {
		w.dst = append(w.dst, w.o.indent...)
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
			w.dst = append(w.dst, w.o.itemSep...)
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
	if w.o.sortKeys {
		var err error
		if entries, err = sortedEntries(w.st, d); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, '{')
	for i, e := range entries {
		if i > 0 {
			w.dst = append(w.dst, w.o.itemSep...)
		}
		w.newline(level + 1)
		if err := w.key(e.key); err != nil {
			return err
		}
		w.dst = append(w.dst, w.o.keySep...)
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
		return w.string(k)
	case markup:
		return w.string(string(k))
	case nil, bool, int64, *big.Int, float64:
		w.dst = append(w.dst, '"')
		err := w.value(k, 0)
		w.dst = append(w.dst, '"')
		return err
	}
	return errorf("keys must be str, int, float, bool or None, not %s", typeName(k))
}

func (w *jsonWriter) string(s string) error {
	if err := w.room(len(s)); err != nil {
		return err
	}
	w.dst = append(w.dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !w.o.ascii) {
			i++
			continue
		}
		w.dst = append(w.dst, s[start:i]...)
		i += w.escape(s[i:])
		start = i
		// Escapes make up to six bytes of one.
		if err := w.room(len(s) - i); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, s[start:]...)
	w.dst = append(w.dst, '"')
	return nil
}

// escape writes the first character of s as an escape and returns its length.
func (w *jsonWriter) escape(s string) int {
	switch c := s[0]; c {
	case '"', '\\':
		w.dst = append(w.dst, '\\', c)
	case '\n':
		w.dst = append(w.dst, `\n`...)
	case '\r':
		w.dst = append(w.dst, `\r`...)
	case '\t':
		w.dst = append(w.dst, `\t`...)
	case '\b':
		w.dst = append(w.dst, `\b`...)
	case '\f':
		w.dst = append(w.dst, `\f`...)
	default:
		r, n := utf8.DecodeRuneInString(s)
		if r >= 0x10000 {
			hi, lo := utf16.EncodeRune(r)
			w.unit(hi)
			w.unit(lo)
		} else {
			w.unit(r)
		}
		return n
	}
	return 1
}

// unit writes the escape of one unit of UTF-16.
func (w *jsonWriter) unit(r rune) {
	const hex = "0123456789abcdef"
	w.dst = append(w.dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
