package jinja

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzRender compiles and renders arbitrary templates over arbitrary variables:
// no panic, no hang, and the same output twice.
func FuzzRender(f *testing.F) {
	type row struct {
		Src  string          `json:"src"`
		Vars json.RawMessage `json:"vars"`
	}
	for _, r := range readRows[row](f, "snippets.jsonl") {
		f.Add(r.Src, []byte(r.Vars))
	}
	for _, r := range readRows[chatRow](f, "chat.jsonl") {
		f.Add(chatSource(f, r.Template), []byte(r.Vars))
	}
	o := Options{Now: testNow, MaxSteps: 200_000, MaxOutput: 1 << 20}
	f.Fuzz(func(t *testing.T, src string, data []byte) {
		tpl, err := Compile(src)
		if err != nil {
			return
		}
		tpl.Undeclared()
		tpl.ContentFormat()
		vars := &Dict{}
		if v, err := ParseJSON(data); err == nil {
			if d, ok := v.(*Dict); ok {
				vars = d
			}
		}
		start := time.Now()
		out, err := tpl.Render(nil, vars, o)
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		again, err2 := tpl.Render(nil, vars, o)
		if string(out) != string(again) || (err == nil) != (err2 == nil) {
			t.Fatalf("two renderings differ: %q, %v and %q, %v", out, err, again, err2)
		}
	})
}

// FuzzParseJSON reads arbitrary text; what it reads, it can write and read again.
func FuzzParseJSON(f *testing.F) {
	for _, r := range readRows[chatRow](f, "chat.jsonl") {
		f.Add([]byte(r.Vars))
	}
	f.Add([]byte(`{"a": [1, 1.5e-7, NaN, -Infinity, "\ud83d\ude00\udc00"], "a": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err != nil {
			return
		}
		out, err := appendJSON(nil, v, jsonOptions{})
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := ParseJSON(out)
		if err != nil {
			t.Fatalf("%q written as %q: %v", data, out, err)
		}
		if repr(v) != repr(again) {
			t.Fatalf("%q read as %s, written and read as %s", data, repr(v), repr(again))
		}
	})
}
