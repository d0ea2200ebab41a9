package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

type pair struct{ Key, Value string }

// pairs lists the members of o.
func pairs(o *Object) []pair {
	var all []pair
	for i := range o.Len() {
		k, v := o.At(i)
		all = append(all, pair{k, string(v)})
	}
	return all
}

func TestParseObjectAgreesWithEncodingJSON(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []pair // nil where the input is refused
	}{
		{"empty", `{}`, []pair{}},
		{"empty with space", " \t\r\n{ \t\r\n} \t\r\n", []pair{}},
		{"scalars", `{"a":1,"b":-0.5e+3,"c":true,"d":false,"e":null,"f":"x"}`,
			[]pair{{"a", "1"}, {"b", "-0.5e+3"}, {"c", "true"}, {"d", "false"}, {"e", "null"}, {"f", `"x"`}}},
		{"space everywhere", " {\n\"a\" :\t[ 1 , { \"b\" : [ ] } ] ,\r\n\"c\"\n:\n{ } }\n",
			[]pair{{"a", `[ 1 , { "b" : [ ] } ]`}, {"c", "{ }"}}},
		{"nested", `{"a":[[],[{}],{"x":{"y":[1,2,{"z":null}]}}],"b":{}}`,
			[]pair{{"a", `[[],[{}],{"x":{"y":[1,2,{"z":null}]}}]`}, {"b", "{}"}}},
		{"brackets in strings", `{"a}":"]}","b":["{[","\"}"]}`,
			[]pair{{"a}", `"]}"`}, {"b", `["{[","\"}"]`}}},
		{"escaped keys", `{"\u006dodel":1,"a\"b":2,"\\":3,"\ud83d\ude00":4,"\n":5}`,
			[]pair{{"model", "1"}, {`a"b`, "2"}, {`\`, "3"}, {"😀", "4"}, {"\n", "5"}}},
		{"duplicates", `{"a":1,"b":2,"a":3}`, []pair{{"a", "1"}, {"b", "2"}, {"a", "3"}}},
		{"empty key", `{"":1}`, []pair{{"", "1"}}},
		{"not ASCII", `{"ключ":"значение","鍵":"値"}`, []pair{{"ключ", `"значение"`}, {"鍵", `"値"`}}},
		{"string ends in backslashes", `{"a":"\\\\\\\\","b":"\\\"","c":1}`,
			[]pair{{"a", `"\\\\\\\\"`}, {"b", `"\\\""`}, {"c", "1"}}},
		{"long run of backslashes", `{"a":"` + strings.Repeat(`\\`, 50_000) + `","b":1}`,
			[]pair{{"a", `"` + strings.Repeat(`\\`, 50_000) + `"`}, {"b", "1"}}},
		{"numbers", `{"a":[0,-0,10,1.5,1E5,1e-5,0.0,-0.0e0,123456789012345678901234567890]}`,
			[]pair{{"a", "[0,-0,10,1.5,1E5,1e-5,0.0,-0.0e0,123456789012345678901234567890]"}}},

		{"nothing", ``, nil},
		{"space only", " \n", nil},
		{"byte order mark", "\ufeff{}", nil},
		{"open", `{`, nil},
		{"comma only", `{,}`, nil},
		{"trailing comma", `{"a":1,}`, nil},
		{"leading comma", `{,"a":1}`, nil},
		{"two commas", `{"a":1,,"b":2}`, nil},
		{"no colon", `{"a" 1}`, nil},
		{"no value", `{"a":}`, nil},
		{"no comma", `{"a":1 "b":2}`, nil},
		{"bare key", `{a:1}`, nil},
		{"single quotes", `{'a':1}`, nil},
		{"number as key", `{1:1}`, nil},
		{"unclosed key", `{"a`, nil},
		{"unclosed string", `{"a":"x}`, nil},
		{"unclosed after escape", `{"a":"x\"}`, nil},
		{"odd run of backslashes", `{"a":"` + strings.Repeat(`\`, 50_001) + `"}`, nil},
		{"unclosed array", `{"a":[1}`, nil},
		{"wrong bracket", `{"a":[1}]`, nil},
		{"wrong brace", `{"a":{"b":1]}`, nil},
		{"trailing comma in array", `{"a":[1,]}`, nil},
		{"leading comma in array", `{"a":[,1]}`, nil},
		{"no comma in array", `{"a":[1 2]}`, nil},
		{"trailing comma in nested object", `{"a":{"b":1,}}`, nil},
		{"key without value in nested object", `{"a":{"b"}}`, nil},
		{"bare key in nested object", `{"a":{b:1}}`, nil},
		{"trailing garbage", `{"a":1} x`, nil},
		{"two objects", `{}{}`, nil},
		{"closing brace too many", `{}}`, nil},
		{"comment", `{/**/}`, nil},
		{"literal cut short", `{"a":tru}`, nil},
		{"literal too long", `{"a":truex}`, nil},
		{"literal in capitals", `{"a":True}`, nil},
		{"not a number", `{"a":NaN}`, nil},
		{"infinity", `{"a":-Infinity}`, nil},
		{"plus sign", `{"a":+1}`, nil},
		{"leading zero", `{"a":01}`, nil},
		{"leading point", `{"a":.5}`, nil},
		{"trailing point", `{"a":1.}`, nil},
		{"no exponent", `{"a":1e}`, nil},
		{"signed nothing", `{"a":-}`, nil},
		{"two points", `{"a":1.2.3}`, nil},
		{"two signs", `{"a":1-2}`, nil},
		{"hexadecimal", `{"a":0x10}`, nil},
		{"form feed is no space", "{\f}", nil},
		{"no-break space is no space", "{\u00a0}", nil},
		{"NUL", "{\"a\":\x00}", nil},
		{"bad escape in key", `{"mod\el":1}`, nil},
		{"short escape in key", `{"\u00e":1}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := ParseObject([]byte(tc.in))
			if valid := json.Valid([]byte(tc.in)); valid != (err == nil) {
				t.Fatalf("err = %v, encoding/json says valid = %v", err, valid)
			}
			if tc.want == nil {
				var syn *SyntaxError
				if !errors.As(err, &syn) {
					t.Fatalf("err = %v, want a *SyntaxError", err)
				}
				if syn.Offset < 0 || syn.Offset > len(tc.in) {
					t.Errorf("offset %d is outside of the input", syn.Offset)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, append([]pair{}, pairs(&o)...)); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if string(o.Raw()) != tc.in {
				t.Errorf("Raw() = %q", o.Raw())
			}
		})
	}
}

func TestParseObjectRefusesOtherValues(t *testing.T) {
	for _, in := range []string{`[]`, `"a"`, `1`, `true`, `null`} {
		_, err := ParseObject([]byte(in))
		want := &SyntaxError{Offset: 0, Want: "an object"}
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// The insides of strings are for whoever decodes them.
func TestParseObjectSkipsInsidesOfStrings(t *testing.T) {
	for name, in := range map[string]string{
		"bad escape":        `{"a":"\x"}`,
		"line break":        "{\"a\":\"\n\"}",
		"not UTF-8":         "{\"a\":\"\xff\"}",
		"nested bad escape": `{"a":[{"\q":1}]}`,
	} {
		if _, err := ParseObject([]byte(in)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSyntaxErrorNamesTheByte(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,}`:    "malformed JSON at byte 7: expected a key in double quotes",
		`{"a":"xy`:    "malformed JSON at byte 5: expected the string that starts here to end",
		`{"a":1.x}`:   "malformed JSON at byte 7: expected a digit",
		`{"a":[1 2]}`: "malformed JSON at byte 8: expected ',' or ']'",
		`{"a":1 2}`:   "malformed JSON at byte 7: expected ',' or '}'",
		`{"a" 1}`:     "malformed JSON at byte 5: expected ':'",
		`{"a":nul}`:   "malformed JSON at byte 5: expected a value",
		`{} {`:        "malformed JSON at byte 3: expected end of input",
		`{"\q":1}`:    "malformed JSON at byte 1: expected a key with valid escapes",
	} {
		if _, err := ParseObject([]byte(in)); err == nil || err.Error() != want {
			t.Errorf("%s: err = %v, want %s", in, err, want)
		}
	}
}

func TestParseObjectDepth(t *testing.T) {
	// nested returns an object that is depth levels deep, itself included.
	nested := func(open, end string, depth int) []byte {
		return []byte(`{"a":` + strings.Repeat(open, depth-1) + "1" + strings.Repeat(end, depth-1) + `}`)
	}
	for _, tc := range []struct{ name, open, end string }{
		{"arrays", "[", "]"},
		{"objects", `{"a":`, "}"},
		{"both", `[{"a":`, "}]"},
	} {
		per := strings.Count(tc.open, "[") + strings.Count(tc.open, "{")
		for _, depth := range []int{1, 2, 63, 64, 65, 511, 512, 513, 1_000_000} {
			reps := (depth-1)/per + 1
			real := (reps-1)*per + 1
			_, err := ParseObject(nested(tc.open, tc.end, reps))
			if want := real > MaxDepth; errors.Is(err, ErrTooDeep) != want || (err != nil) != want {
				t.Errorf("%s, %d deep: err = %v", tc.name, real, err)
			}
		}
	}
	// An empty container is a level as well.
	for depth, want := range map[int]error{512: nil, 513: ErrTooDeep} {
		in := `{"a":` + strings.Repeat("[", depth-2) + "{}" + strings.Repeat("]", depth-2) + `}`
		if _, err := ParseObject([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%d deep with an empty object: err = %v, want %v", depth, err, want)
		}
	}
}

// Anything that is not linear takes minutes.
func TestParseObjectIsLinear(t *testing.T) {
	const size = 1 << 20
	fill := func(head, body, tail string) []byte {
		return []byte(head + strings.Repeat(body, size/len(body)) + tail)
	}
	for name, in := range map[string][]byte{
		"open arrays":      fill(`{"a":`, "[", ""),
		"open objects":     fill(`{"a":`, `{"a":`, ""),
		"empty arrays":     fill(`{"a":[0`, ",[]", "]}"),
		"backslashes":      fill(`{"a":"`, `\\`, `"}`),
		"escaped quotes":   fill(`{"a":"`, `\"`, `"}`),
		"unclosed quotes":  fill(`{"a":"`, `\"`, ``),
		"members":          fill(`{"a":0`, `,"a":0`, "}"),
		"spaces":           fill(`{"a":`, " ", "1}"),
		"digits":           fill(`{"a":`, "1", "}"),
		"members, no end":  fill(`{"a":0`, `,"a":0`, ""),
		"escaped long key": fill(`{"`, `\n`, `":1}`),
	} {
		start := time.Now()
		_, _ = ParseObject(in)
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
}

func TestObjectGet(t *testing.T) {
	o, err := ParseObject([]byte(`{"a":1,"\u0062":2,"a":3,"c":null,"abc":4}`))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "3", "b": "2", "c": "null", "abc": "4"} {
		if got := o.Get(key); string(got) != want {
			t.Errorf("Get(%q) = %s, want %s", key, got, want)
		}
	}
	for _, key := range []string{"", "ab", "abcd", `\u0062`} {
		if got := o.Get(key); got != nil {
			t.Errorf("Get(%q) = %s, want nil", key, got)
		}
	}
	if o.Len() != 5 {
		t.Errorf("Len() = %d, want 5", o.Len())
	}
}

// grammar is ParseObject written down as a recursive grammar, for the fuzzer to
// compare with: each method takes what it reads off in.
type grammar struct {
	in      []byte
	deepest int
}

func (g *grammar) space() { g.in = bytes.TrimLeft(g.in, " \t\r\n") }

func (g *grammar) eat(c byte) bool {
	g.space()
	if len(g.in) == 0 || g.in[0] != c {
		return false
	}
	g.in = g.in[1:]
	return true
}

func (g *grammar) text() (string, bool) {
	g.space()
	if len(g.in) == 0 || g.in[0] != '"' {
		return "", false
	}
	for i := 1; i < len(g.in); i++ {
		switch g.in[i] {
		case '\\':
			i++
		case '"':
			s := string(g.in[:i+1])
			g.in = g.in[i+1:]
			return s, true
		}
	}
	return "", false
}

func (g *grammar) value(depth int) bool {
	g.deepest = max(g.deepest, depth)
	g.space()
	if len(g.in) == 0 {
		return false
	}
	switch g.in[0] {
	case '{':
		return g.object(depth+1, false)
	case '[':
		g.deepest = max(g.deepest, depth+1)
		g.in = g.in[1:]
		if g.eat(']') {
			return true
		}
		for g.value(depth + 1) {
			if g.eat(']') {
				return true
			}
			if !g.eat(',') {
				return false
			}
		}
		return false
	case '"':
		_, ok := g.text()
		return ok
	}
	n := bytes.IndexAny(g.in, " \t\r\n,]}")
	if n < 0 {
		n = len(g.in)
	}
	word := g.in[:n]
	g.in = g.in[n:]
	return json.Valid(word) && !bytes.ContainsAny(word, `"{[`)
}

func (g *grammar) object(depth int, top bool) bool {
	g.deepest = max(g.deepest, depth)
	if !g.eat('{') {
		return false
	}
	if g.eat('}') {
		return true
	}
	for {
		key, ok := g.text()
		if !ok {
			return false
		}
		if _, ok := Value(key).Text(); top && !ok {
			return false
		}
		if !g.eat(':') || !g.value(depth) {
			return false
		}
		if g.eat('}') {
			return true
		}
		if !g.eat(',') {
			return false
		}
	}
}

func FuzzParseObject(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"a":[1,{"b":[]},"x\""],"\u0061":-1.5e3}`, ` { "a" : { } } `, `{"a":1,}`, `{"a":01}`,
		`{"a":"\\"}`, `{"a":truefalse}`, "{\"a\":\"\xff\"}", `{"a":[[[{"b":[[]]}]]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<16 {
			return // the model recurses
		}
		o, err := ParseObject(in)
		g := grammar{in: in}
		ok := g.object(1, true)
		g.space()
		ok = ok && len(g.in) == 0
		switch {
		case ok && g.deepest > MaxDepth:
			if !errors.Is(err, ErrTooDeep) {
				t.Fatalf("err = %v for %d levels", err, g.deepest)
			}
			return
		case !ok && g.deepest > MaxDepth:
			if err == nil {
				t.Fatal("accepted")
			}
			return
		case ok != (err == nil):
			t.Fatalf("err = %v, the grammar says %v", err, ok)
		}
		if err != nil {
			if json.Valid(in) && bytes.HasPrefix(bytes.TrimSpace(in), []byte("{")) {
				t.Fatalf("refused what encoding/json takes: %v", err)
			}
			return
		}
		if !json.Valid(in) || !utf8.Valid(in) {
			return
		}
		d := json.NewDecoder(bytes.NewReader(in))
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		var want []pair
		for d.More() {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			var v json.RawMessage
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			want = append(want, pair{key.(string), string(v)})
		}
		if diff := cmp.Diff(want, pairs(&o)); diff != "" {
			t.Fatalf("members (-want +got):\n%s", diff)
		}
	})
}
