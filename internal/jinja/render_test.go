package jinja

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// testNow is the time at which the expected outputs were made.
var testNow = time.Date(2024, 7, 26, 9, 5, 3, 123456000, time.UTC)

// readRows decodes the lines of a file in testdata.
func readRows[T any](t testing.TB, name string) []T {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []T
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var row T
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatalf("%s line %d: %v", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

func parseVars(t testing.TB, data []byte) *Dict {
	t.Helper()
	v, err := ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return v.(*Dict)
}

// render compiles and renders src.
func render(t testing.TB, src string, vars *Dict) (string, error) {
	t.Helper()
	tpl, err := Compile(src)
	if err != nil {
		return "", err
	}
	out, err := tpl.Render(nil, vars, Options{Now: testNow})
	return string(out), err
}

// TestSnippets compares with what Jinja2 renders.
func TestSnippets(t *testing.T) {
	type row struct {
		Src  string          `json:"src"`
		Vars json.RawMessage `json:"vars"`
		Out  *string         `json:"out"`
	}
	rows := readRows[row](t, "snippets.jsonl")
	if len(rows) < 900 {
		t.Fatalf("%d snippets, expected all of them", len(rows))
	}
	for _, r := range rows {
		vars := parseVars(t, r.Vars)
		before := repr(vars)
		got, err := render(t, r.Src, vars)
		switch {
		case r.Out == nil && err == nil:
			t.Errorf("%s\ngot  %q\nwant an error", r.Src, got)
		case r.Out != nil && err != nil:
			t.Errorf("%s\nerror %v\nwant %q", r.Src, err, *r.Out)
		case r.Out != nil && got != *r.Out:
			t.Errorf("%s\ngot  %q\nwant %q", r.Src, got, *r.Out)
		}
		if after := repr(vars); after != before {
			t.Errorf("%s\nchanged its variables: %s", r.Src, cmp.Diff(before, after))
		}
	}
}

type chatRow struct {
	Template string          `json:"template"`
	Name     string          `json:"name"`
	Vars     json.RawMessage `json:"vars"`
	Out      *string         `json:"out"`
}

func chatSource(t testing.TB, name string) string {
	t.Helper()
	src, err := os.ReadFile("testdata/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func chatTemplate(t testing.TB, name string) *Template {
	t.Helper()
	tpl, err := Compile(chatSource(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func TestChatTemplates(t *testing.T) {
	templates := map[string]*Template{}
	rows := readRows[chatRow](t, "chat.jsonl")
	if len(rows) != 60 {
		t.Fatalf("%d conversations, want 60", len(rows))
	}
	for _, r := range rows {
		tpl := templates[r.Template]
		if tpl == nil {
			tpl = chatTemplate(t, r.Template)
			templates[r.Template] = tpl
		}
		t.Run(r.Template+"/"+r.Name, func(t *testing.T) {
			got, err := tpl.Render([]byte("dst"), parseVars(t, r.Vars), Options{Now: testNow})
			if r.Out == nil {
				if err == nil {
					t.Fatalf("got %q, want an error", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff("dst"+*r.Out, string(got)); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
		})
	}
}

// TestConcurrent renders one template and one set of variables in many
// goroutines; the race detector watches.
func TestConcurrent(t *testing.T) {
	tpl := chatTemplate(t, "qwen3")
	var rows []chatRow
	for _, r := range readRows[chatRow](t, "chat.jsonl") {
		if r.Template == "qwen3" && r.Out != nil {
			rows = append(rows, r)
		}
	}
	vars := make([]*Dict, len(rows))
	for i, r := range rows {
		vars[i] = parseVars(t, r.Vars)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var buf []byte
			for i, r := range rows {
				var err error
				if buf, err = tpl.Render(buf[:0], vars[i], Options{}); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(buf, []byte(*r.Out)) {
					t.Errorf("%s: output differs", r.Name)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      error
	}{
		{"raise", "a\n{{ raise_exception('no ' ~ 1) }}", &RaiseError{Message: "no 1"}},
		{"type error", "a\n\n{% set x = 1 + 'a' %}", &Error{Line: 3, Message: "unsupported operand types for +: int and str"}},
		{"undefined variable", "{{ a.b }}", &Error{Line: 1, Message: "'a' is undefined"}},
		{"undefined key", "{{ {}.b.c }}", &Error{Line: 1, Message: "'dict object' has no attribute 'b'"}},
		{"in a macro", "{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}", &Error{Line: 2, Message: "division by zero"}},
		{"in a loop", "{% for i in [1] %}\n{% if i.x.y %}{% endif %}{% endfor %}", &Error{Line: 2, Message: "'int object' has no attribute 'x'"}},
		{"not iterable", "\n{% for i in none %}{% endfor %}", &Error{Line: 2, Message: "NoneType object is not iterable"}},
		{"mutation", "{{ [].append(1) }}", &Error{Line: 1, Message: "access to attribute 'append' of list object is unsafe: templates cannot change it"}},
		{"lazy filter", "{% if true %}\n{{ 1|nope }}{% endif %}", &Error{Line: 2, Message: "no filter named 'nope'"}},
		{"lazy unsupported filter", "{% if true %}{{ 1|pprint }}{% endif %}", &Error{Line: 1, Message: "no filter named 'pprint' (Jinja2 has one that is not supported)"}},
		{"unknown Go type", "{{ go }}", &Error{Line: 1, Message: "value of Go type int, expected one that templates know"}},

		{"unknown filter", "a\n{{ 1|nope }}", &SyntaxError{Line: 2, Message: "no filter named 'nope'"}},
		{"unknown test", "{{ 1 is nope }}", &SyntaxError{Line: 1, Message: "no test named 'nope'"}},
		{"unsupported tag", "\n{% include 'x' %}", &SyntaxError{Line: 2, Message: "the tag 'include' is not supported"}},
		{"unknown tag", "{% if true %}\n{% endfor %}", &SyntaxError{Line: 2, Message: "unknown tag 'endfor', expected elif or else or endif"}},
		{"unclosed", "{% for i in x %}\n\na", &SyntaxError{Line: 3, Message: "unexpected end of template, expected endfor or else"}},
		{"unclosed string", "{{ 'a }}", &SyntaxError{Line: 1, Message: `unexpected char '\'': the string has no end`}},
		{"unclosed comment", "a\n{# b", &SyntaxError{Line: 2, Message: "missing end of comment tag"}},
		{"bracket", "{{ (1] }}", &SyntaxError{Line: 1, Message: "unexpected ']', expected ')'"}},
		{"break outside", "{% break %}", &SyntaxError{Line: 1, Message: "'break' outside a loop"}},
		{"character by name", `{{ '\N{DIGIT ONE}' }}`, &SyntaxError{Line: 1, Message: `\N escapes (characters by name) are not supported`}},
		{"not UTF-8", "a\xff", &SyntaxError{Line: 1, Message: "template is not valid UTF-8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			vars := &Dict{}
			vars.Set("go", 1)
			out, err := render(t, c.src, vars)
			if d := cmp.Diff(c.want, err); d != "" {
				t.Errorf("error with output %q (-want +got):\n%s", out, d)
			}
		})
	}
}
