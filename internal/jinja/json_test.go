package jinja

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func dict(kv ...Value) *Dict {
	d := &Dict{}
	for i := 0; i < len(kv); i += 2 {
		if err := d.insert(kv[i], kv[i+1]); err != nil {
			panic(err)
		}
	}
	return d
}

func list(items ...Value) *List { return &List{Items: items} }

func tuple(items ...Value) *Tuple { return &Tuple{Items: items} }

// appendJSON appends v without bounds, with the usual separators unless others are
// given.
func appendJSON(dst []byte, v Value, o jsonOptions) ([]byte, error) {
	if o.itemSep == "" && o.keySep == "" {
		o.setSeparators()
	}
	w := jsonWriter{st: &state{steps: math.MaxInt, mem: math.MaxInt, maxOut: math.MaxInt}, o: o, dst: dst}
	err := w.value(v, 0)
	return w.dst, err
}

func bigInt(s string) *big.Int {
	n, _ := new(big.Int).SetString(s, 10)
	return n
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`null`, `None`},
		{` [true, false] `, `[True, False]`},
		{`[1, 1.0, -0, -0.0, 1e3, 1E-7]`, `[1, 1.0, 0, -0.0, 1000.0, 1e-07]`},
		{`9223372036854775807`, `9223372036854775807`},
		{`9223372036854775808`, `9223372036854775808`},
		{`-123456789012345678901234567890`, `-123456789012345678901234567890`},
		{`1e400`, `inf`},
		{`[NaN, Infinity, -Infinity]`, `[nan, inf, -inf]`},
		{`{"b": 1, "a": 2, "b": 3}`, `{'b': 3, 'a': 2}`},
		{`{"": {}, "x": []}`, `{'': {}, 'x': []}`},
		{`"a\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00"`, `'a"\\/\x08\x0c\n\r\téé😀'`},
		{`"\ud83d"`, `'�'`},
		{`"\ud83dx\ude00"`, `'�x�'`},
		{`"\ude00\ud83d"`, `'��'`},
		{`"\ud83d\ud83d\ude00"`, `'�😀'`},
		{`"\u0000"`, `'\x00'`},
		{strings.Repeat("[", 500) + strings.Repeat("]", 500), strings.Repeat("[", 500) + strings.Repeat("]", 500)},
	} {
		v, err := ParseJSON([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got := repr(v); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.in, got, c.want)
		}
	}
}

func TestParseJSONErrors(t *testing.T) {
	for _, in := range []string{
		``, ` `, `x`, `nul`, `[1,]`, `[1 2]`, `[`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:2}`,
		`01`, `-`, `1.`, `.5`, `1e`, `+1`, `0x1`, `1 2`, `"a`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"a\nb\"", `'a'`, `]`,
		"\"\xff\"", "[1]\x00", "\ufeff1",
		strings.Repeat("[", 502) + strings.Repeat("]", 502),
		strings.Repeat("1", maxIntDigits+1),
	} {
		if v, err := ParseJSON([]byte(in)); err == nil {
			t.Errorf("%.40q: got %.40s, want an error", in, repr(v))
		}
	}
}

func TestAppendJSON(t *testing.T) {
	v := dict("b", list(int64(1), 2.0, nil, true, "é<&>'\"/\u2028\x7f\x01"), "a", dict(), "C", list(), int64(3), tuple(bigInt("99999999999999999999")))
	for _, c := range []struct {
		name string
		o    jsonOptions
		want string
	}{
		{"plain", jsonOptions{}, `{"b": [1, 2.0, null, true, "é<&>'\"/` + "\u2028\x7f" + `\u0001"], "a": {}, "C": [], "3": [99999999999999999999]}`},
		{"ASCII", jsonOptions{ascii: true}, `{"b": [1, 2.0, null, true, "\u00e9<&>'\"/\u2028\u007f\u0001"], "a": {}, "C": [], "3": [99999999999999999999]}`},
		{"compact", jsonOptions{itemSep: ",", keySep: ":"}, `{"b":[1,2.0,null,true,"é<&>'\"/` + "\u2028\x7f" + `\u0001"],"a":{},"C":[],"3":[99999999999999999999]}`},
		{"pretty", jsonOptions{pretty: true, indent: "\t"}, "{\n\t\"b\": [\n\t\t1,\n\t\t2.0,\n\t\tnull,\n\t\ttrue,\n\t\t\"é<&>'\\\"/\u2028\x7f\\u0001\"\n\t],\n\t\"a\": {},\n\t\"C\": [],\n\t\"3\": [\n\t\t99999999999999999999\n\t]\n}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := appendJSON([]byte("x"), v, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff("x"+c.want, string(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	if got, err := appendJSON(nil, dict("b", int64(1), "a", int64(2)), jsonOptions{sortKeys: true}); err != nil || string(got) != `{"a": 2, "b": 1}` {
		t.Errorf("sorted: %s, %v", got, err)
	}
	for _, bad := range []Value{Undefined{}, list(Undefined{}), dict(tuple(int64(1)), nil), 1, []string{"a"}} {
		if got, err := appendJSON(nil, bad, jsonOptions{}); err == nil {
			t.Errorf("%v: got %s, want an error", bad, got)
		}
	}
}

// TestJSONRoundTrip writes what it read.
func TestJSONRoundTrip(t *testing.T) {
	for _, r := range readRows[chatRow](t, "chat.jsonl") {
		v := parseVars(t, r.Vars)
		out, err := appendJSON(nil, v, jsonOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(r.Vars), string(out)); d != "" {
			t.Errorf("%s (-want +got):\n%s", r.Name, d)
		}
	}
}

func TestRepr(t *testing.T) {
	deep := Value(list())
	for range 2000 {
		deep = list(deep)
	}
	for _, c := range []struct {
		v    Value
		want string
	}{
		{nil, "None"},
		{math.Copysign(0, -1), "-0.0"},
		{math.NaN(), "nan"},
		{1e16, "1e+16"},
		{9999999999999998.0, "9999999999999998.0"},
		{0.0001, "0.0001"},
		{0.00001, "1e-05"},
		{123456789.125, "123456789.125"},
		{5e-324, "5e-324"},
		{math.MaxFloat64, "1.7976931348623157e+308"},
		{"it's", `"it's"`},
		{`it's "x"`, `'it\'s "x"'`},
		{"\u00ad\u200b\U000e0001\u0085", `'\xad\u200b\U000e0001\x85'`},
		{tuple(), "()"},
		{tuple(int64(1)), "(1,)"},
		{dict("a", list(true), nil, 1.5), "{'a': [True], None: 1.5}"},
		{Undefined{}, "Undefined"},
		{deep, "<*jinja.List>"},
		{42, "<int>"},
	} {
		if got := repr(c.v); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestDict(t *testing.T) {
	d := &Dict{}
	// More entries than are looked through without an index, of all kinds.
	keys := []Value{
		"a", int64(1), nil, "b", 2.5, tuple("x", int64(1)), bigInt("18446744073709551616"), "c", "d", "e", int64(-7),
		tuple(tuple()), Undefined{}, "f",
	}
	for i, k := range keys {
		if err := d.insert(k, int64(i)); err != nil {
			t.Fatal(err)
		}
		for j, k := range keys {
			v, ok, err := d.lookup(k)
			if err != nil || ok != (j <= i) || ok && v != int64(j) {
				t.Fatalf("after %d entries: key %s gives %v, %v, %v", i+1, repr(k), v, ok, err)
			}
		}
	}
	same := []struct{ a, b Value }{
		{int64(1), true}, {int64(1), 1.0}, {"a", markup("a")}, {bigInt("18446744073709551616"), 18446744073709551616.0},
		{tuple("x", int64(1)), tuple(markup("x"), true)},
	}
	for _, c := range same {
		x, _, _ := d.lookup(c.a)
		y, ok, _ := d.lookup(c.b)
		if !ok || x != y {
			t.Errorf("%s and %s are different keys", repr(c.a), repr(c.b))
		}
	}
	for _, k := range []Value{"1", int64(2), tuple("x1"), tuple("x", "1"), ""} {
		if v, ok, _ := d.lookup(k); ok {
			t.Errorf("%s found: %v", repr(k), v)
		}
	}
	if err := d.insert(list(), nil); err == nil {
		t.Error("a list is a key")
	}
	d.Set("a", "new")
	var first Value
	for k, v := range d.All() {
		first = tuple(k, v)
		break
	}
	if got := repr(first); got != "('a', 'new')" {
		t.Errorf("first entry %s", got)
	}
	if d.Len() != len(keys) {
		t.Errorf("%d entries, want %d", d.Len(), len(keys))
	}
}
