package jinja

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The names are those that jinja2.meta.find_undeclared_variables gives.
func TestUndeclared(t *testing.T) {
	for _, c := range []struct {
		src  string
		want []string
	}{
		{"", nil},
		{"{{ b.x[c] }}{{ a|default(d) }}", []string{"a", "b", "c", "d"}},
		{"{% set foo = 42 %}{{ bar + foo }}", []string{"bar"}},
		{"{% for m in messages %}{{ m }}{{ loop.index }}{% endfor %}{{ m }}", []string{"m", "messages"}},
		{"{% if a %}{% set x = 1 %}{% endif %}{{ x }}", []string{"a", "x"}},
		{"{% if a %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", []string{"a", "x"}},
		{"{{ x }}{% set x = 1 %}", []string{"x"}},
		{"{% macro f(a, b=c) %}{{ a }}{{ b }}{{ d }}{{ caller() }}{{ kwargs }}{% endmacro %}", []string{"c", "d"}},
		{"{% with a=b %}{{ a }}{{ c }}{% endwith %}", []string{"b", "c"}},
		{"{{ range(3) }}{{ namespace() }}{{ raise_exception('x') }}{{ strftime_now('') }}{{ lipsum }}{{ self }}", nil},
		{"{% set ns = namespace() %}{% set ns.a = z %}", []string{"z"}},
		{"{% for x in y if x.a and q %}{% endfor %}", []string{"q", "y"}},
		{"{% generation %}{{ g }}{% endgeneration %}", []string{"g"}},
	} {
		tpl, err := Compile(c.src)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		if d := cmp.Diff(c.want, tpl.Undeclared()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.src, d)
		}
	}
	// What is set in a branch only may come from outside.
	want := []string{"add_generation_prompt", "content", "enable_thinking", "messages", "reasoning_content", "tools"}
	if d := cmp.Diff(want, chatTemplate(t, "qwen3").Undeclared()); d != "" {
		t.Errorf("qwen3 (-want +got):\n%s", d)
	}
}

func TestContentFormat(t *testing.T) {
	loop := func(over string) string {
		return "{% for message in messages %}{% for p in " + over + " %}{{ p }}{% endfor %}{% endfor %}"
	}
	for _, c := range []struct{ name, src, want string }{
		{"no loop", "{{ messages[0].content }}", "string"},
		{"attribute", loop("message.content"), "openai"},
		{"item", loop("message['content']"), "openai"},
		{"filter", loop("message.content|selectattr('type', 'equalto', 'text')"), "openai"},
		{"slice", loop("message['content'][1:]"), "openai"},
		{"test", loop("message.content is string"), "openai"},
		{"another attribute", loop("message.tool_calls"), "string"},
		{"another variable", loop("other.content"), "string"},
		{"item by name", loop("message[content]"), "string"},
		{"variable named content", "{% macro m(content) %}{% for p in content %}{% endfor %}{% endmacro %}", "openai"},
		{"filter on content", "{% for p in content|list %}{% endfor %}", "string"},
		{"alias", "{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"},
		{"alias of an alias", "{% set b = a|list %}{% set a = messages %}{% for m in b %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"},
		{"aliases of each other", "{% set b = messages %}{% set messages = b %}{% for m in b %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"},
		{"alias in a branch", "{% if x %}{% set b = messages[1:] %}{% endif %}{% for m in b %}{% if m %}{% for p in m.content %}{% endfor %}{% endif %}{% endfor %}", "openai"},
		{"not the messages", "{% for m in tools %}{% for p in m.content %}{% endfor %}{% endfor %}", "string"},
		{"set to content first", "{% for m in messages %}{% set c = m.content %}{% for p in c %}{% endfor %}{% endfor %}", "string"},
		{"unpacked message", "{% for a, b in messages %}{% for p in a.content %}{% endfor %}{% endfor %}", "string"},
	} {
		tpl, err := Compile(c.src)
		if err != nil {
			t.Fatal(err)
		}
		if got := tpl.ContentFormat(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestSharedGrowth joins to one long string twice: what was appended to it first
// must not change, although both results begin in the same memory.
func TestSharedGrowth(t *testing.T) {
	long := strings.Repeat("x", 2000)
	vars := NewDict(1)
	vars.Set("long", long)
	src := "{% set a = long ~ '1' %}{% set b = a ~ '2' %}{% set c = a ~ '3' %}{% set d = b ~ '4' %}{% set e = b + '5' %}" +
		"{{ [a[2000:], b[2000:], c[2000:], d[2000:], e[2000:]] }}" +
		"{% set ns = namespace(s=long, l=[]) %}{% for i in range(100) %}{% set ns.s = ns.s ~ i %}{% set ns.l = ns.l + [ns.s] %}{% endfor %}" +
		"{% for s in ns.l %}{% if s != long ~ range(loop.index)|join %}bad {{ loop.index }}{% endif %}{% endfor %}"
	got, err := render(t, src, vars)
	if want := "['1', '12', '13', '124', '125']"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if long != strings.Repeat("x", 2000) {
		t.Error("the variable changed")
	}
}

func TestRenderIsLinear(t *testing.T) {
	tpl := chatTemplate(t, "qwen3")
	allocs := func(n int) float64 {
		vars := chat(n, 100)
		var buf []byte
		return testing.AllocsPerRun(3, func() {
			var err error
			if buf, err = tpl.Render(buf[:0], vars, Options{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(50), allocs(500)
	// Ten times as many, and some for integers that are no longer small.
	if many > 15*few {
		t.Errorf("%v allocations for 500 messages, %v for 50", many, few)
	}
	if few > 50*14 {
		t.Errorf("%v allocations for 50 messages, want at most 14 per message", few)
	}
}
