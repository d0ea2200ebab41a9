package openai

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestValueKinds(t *testing.T) {
	for _, tc := range []struct {
		in            string
		kind          byte
		present, true bool
		typeName      string
		empty         bool
	}{
		{"", 0, false, false, "nothing", false},
		{"null", 'n', false, false, "null", false},
		{"true", 't', true, true, "a boolean", false},
		{"false", 't', true, false, "a boolean", false},
		{"0", '0', true, false, "a number", false},
		{"-1.5", '0', true, false, "a number", false},
		{`""`, '"', true, false, "a string", true},
		{`" "`, '"', true, false, "a string", false},
		{`"true"`, '"', true, false, "a string", false},
		{"[]", '[', true, false, "an array", true},
		{"[ \n]", '[', true, false, "an array", true},
		{"[0]", '[', true, false, "an array", false},
		{"{}", '{', true, false, "an object", true},
		{"{\t}", '{', true, false, "an object", true},
	} {
		v := Value(tc.in)
		if v.Kind() != tc.kind || v.Present() != tc.present || v.True() != tc.true || v.TypeName() != tc.typeName {
			t.Errorf("%q: kind %q present %v true %v type %s", tc.in, v.Kind(), v.Present(), v.True(), v.TypeName())
		}
		if k := v.Kind(); (k == '"' || k == '[' || k == '{') && v.empty() != tc.empty {
			t.Errorf("%q: empty = %v", tc.in, v.empty())
		}
	}
}

func TestValueText(t *testing.T) {
	for in, want := range map[string]string{
		`""`:                                  "",
		`"a"`:                                 "a",
		`"a\"b\\c\/d\b\f\n\r\t"`:              "a\"b\\c/d\b\f\n\r\t",
		`"\u0041\u00e9\u6771\u0000"`:          "Aé東\x00",
		`"\ud83d\ude00"`:                      "😀",
		`"\uD83D\uDE00x"`:                     "😀x",
		`"\ud83d"`:                            "\ufffd",
		`"\ud83dx"`:                           "\ufffdx",
		`"\ud83d\n"`:                          "\ufffd\n",
		`"\ud83d\u0041"`:                      "\ufffdA",
		`"\ud83d\ud83d\ude00"`:                "\ufffd😀",
		`"\ude00\ud83d"`:                      "\ufffd\ufffd",
		`"` + strings.Repeat(`\n`, 40) + `é"`: strings.Repeat("\n", 40) + "é",
	} {
		got, ok := Value(in).Text()
		if !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, ok, want)
		}
		var std string
		if err := json.Unmarshal([]byte(in), &std); err != nil || std != want {
			t.Errorf("%s: encoding/json got %q, %v, want %q", in, std, err, want)
		}
	}
	for _, in := range []string{"", `"`, "1", "null", "[]", `"\x"`, `"\u12"`, `"\u12g4"`, `"\u+123"`, `"\"`, `"\ud83d\u"`} {
		if got, ok := Value(in).Text(); ok || got != "" {
			t.Errorf("%s: got %q, %v, want nothing", in, got, ok)
		}
	}
}

func TestValueUint(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "7": 7, "9007199254740993": 9007199254740993, "18446744073709551615": math.MaxUint64} {
		if got, ok := Value(in).Uint(); !ok || got != want {
			t.Errorf("%s: got %d, %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "null", "true", `"7"`, "-1", "-0", "1.0", "1e3", "18446744073709551616", "[]"} {
		if got, ok := Value(in).Uint(); ok {
			t.Errorf("%s: got %d, want none", in, got)
		}
	}
}

func TestValueElements(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
		bad  bool
	}{
		{in: `[]`},
		{in: `[ ]`},
		{in: `[1]`, want: []string{"1"}},
		{in: "[ 1 , \"a,]\" ,\n{\"b\":[2]},[], null ]", want: []string{"1", `"a,]"`, `{"b":[2]}`, "[]", "null"}},
		{in: ``, bad: true},
		{in: `{}`, bad: true},
		{in: `"[]"`, bad: true},
		{in: `[`, bad: true},
		{in: `[,]`, bad: true},
		{in: `[1,]`, want: []string{"1"}, bad: true},
		{in: `[1 2]`, want: []string{"1"}, bad: true},
		{in: `[1`, want: []string{"1"}, bad: true},
		{in: `[1]]`, want: []string{"1"}, bad: true},
		{in: `[] x`, bad: true},
	} {
		var got []string
		err := Value(tc.in).Elements(func(v Value) bool { got = append(got, string(v)); return true })
		if (err != nil) != tc.bad {
			t.Errorf("%q: err = %v", tc.in, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.in, diff)
		}
	}
	n := 0
	if err := Value(`[1,2,}`).Elements(func(Value) bool { n++; return n < 2 }); err != nil || n != 2 {
		t.Errorf("stopped after %d elements with %v, want 2 and no error", n, err)
	}
}

func TestAppendStringRoundTrip(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r < 0x3000; r++ {
		all.WriteRune(r)
	}
	for _, s := range []string{
		"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é東😀\u2028\u2029\ufeff\ufffd", all.String(),
		"\xff", "a\xc3", "\xe6\x9d", "\xf0\x9f\x98", "\xed\xa0\x80x", "\xc0\x80", "x\x80y",
	} {
		quoted := AppendString([]byte("pre"), s)
		if string(AppendString([]byte("pre"), []byte(s))) != string(quoted) {
			t.Errorf("%q: bytes and string differ", s)
		}
		quoted = quoted[len("pre"):]
		if strings.ContainsAny(string(quoted), "\n\r") || !utf8.Valid(quoted) {
			t.Errorf("%q: quoted as %q", s, quoted)
		}
		var std string
		if err := json.Unmarshal(quoted, &std); err != nil {
			t.Errorf("%q: %v", s, err)
		}
		want := strings.ToValidUTF8(s, "\ufffd")
		if !utf8.ValidString(s) { // one replacement per byte, as encoding/json does it
			enc, _ := json.Marshal(s)
			_ = json.Unmarshal(enc, &want)
		}
		if got, ok := Value(quoted).Text(); !ok || got != want || std != want {
			t.Errorf("%q: got %q (encoding/json %q), want %q", s, got, std, want)
		}
	}
}
