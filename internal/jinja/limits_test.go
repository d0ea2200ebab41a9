package jinja

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestLimits renders templates that would take forever or fill the memory. Each
// must end in a LimitError, soon and without allocating much. It has a tenth of
// the default steps, except where it is the memory that is to be bounded.
func TestLimits(t *testing.T) {
	const grow = "{% set ns = namespace(x='0123456789', l=[], d={}) %}"
	for _, c := range []struct{ name, src string }{
		{"nested loops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"},
		{"loop that prints", "{% for a in range(100000) %}{% for b in range(100000) %}xxxxxxxxxx{% endfor %}{% endfor %}"},
		{"recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
		{"recursion in an expression", "{% macro m() %}{% set x = m() ~ 'a' %}{% endmacro %}{{ m() }}"},
		{"recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
		{"recursion in tall expressions", "{% macro m() %}" + strings.Repeat("{% if 1 %}", 190) + "{{ m()" + strings.Repeat("|string", 390) + " }}" + strings.Repeat("{% endif %}", 190) + "{% endmacro %}{{ m() }}"},
		{"calls", "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(100) }}"},
		{"doubling +", grow + "{% for a in range(1000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"},
		{"doubling ~", grow + "{% for a in range(1000) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"},
		{"doubling %", grow + "{% for a in range(1000) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}"},
		{"doubling format", grow + "{% for a in range(1000) %}{% set ns.x = '{0}{0}'.format(ns.x) %}{% endfor %}"},
		{"doubling block", grow + "{% for a in range(1000) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}"},
		{"doubling list", grow + "{% set ns.l = [1] %}{% for a in range(1000) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"},
		{"doubling replace", grow + "{% for a in range(1000) %}{% set ns.x = ns.x.replace('1', ns.x) %}{% endfor %}"},
		{"doubling join", grow + "{% for a in range(1000) %}{% set ns.x = ns.x.join('ab') ~ ns.x %}{% endfor %}"},
		{"many long strings", grow + "{% for a in range(100000) %}{% set ns.l = [ns.l, 'a' * 1000000 ~ a] %}{% endfor %}"},
		{"many lists", grow + "{% for a in range(100000) %}{% for b in range(100) %}{% set ns.l = [ns.l] %}{% endfor %}{% endfor %}"},
		{"many dicts", grow + "{% for a in range(100000) %}{% for b in range(100) %}{% set ns.l = {1: ns.l} %}{% endfor %}{% endfor %}"},
		{"many generators", grow + "{% for a in range(100000) %}{% for b in range(100) %}{% set ns.l = [ns.l, [1]|map('upper')] %}{% endfor %}{% endfor %}"},
		{"long repetition", "{{ 'ab' * 1000000000000 }}"},
		{"long list", "{{ [1] * 1000000000000 }}"},
		{"long padding", "{{ 'a'.center(1000000000000) }}"},
		{"long zfill", "{{ 'a'.zfill(1000000000000) }}"},
		{"long tabs", "{{ '\t'.expandtabs(1000000000000) }}"},
		{"long indent", "{{ 'a\nb'|indent(1000000000000) }}"},
		{"long format width", "{{ '{:1000000000}'.format(1) }}"},
		{"long format precision", "{{ '%.1000000000f' % 1.5 }}"},
		{"long printf width", "{{ '%*d' % (1000000000, 1) }}"},
		{"long batch", "{{ [1]|batch(1000000000, 2)|list }}"},
		{"many slices", "{{ [1]|slice(1000000000)|list|length }}"},
		{"power", "{{ 10 ** 1000000000 }}"},
		{"power of power", "{{ (10 ** 4000) ** 4000 }}"},
		{"multiplication", "{% set ns = namespace(x=3) %}{% for a in range(1000) %}{% set ns.x = ns.x * ns.x %}{% endfor %}"},
		{"range", "{{ range(100001)|length }}"},
		{"bottomless repr", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"},
		{"deep repr", grow + "{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}"},
		{"deep tojson", grow + "{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}"},
		{"escapes in tojson", "{{ ('\u0001' * 30000000)|tojson|length }}"},
		{"escapes beyond ASCII in tojson", "{{ ('😀' * 7000000)|tojson(ensure_ascii=true)|length }}"},
		{"escapes in a key in tojson", "{{ {'\"' * 30000000: 1}|tojson|length }}"},
		{"deep equality", grow + "{% set ns.d = [] %}{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% set ns.d = [ns.d] %}{% endfor %}{{ ns.l == ns.d }}"},
		{"wide repr", grow + "{% for a in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}"},
		{"wide tojson", grow + "{% for a in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}"},
		{"wide indented tojson", grow + "{% for a in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson(indent=100000) }}"},
		{"wide equality", grow + "{% set ns.d = [] %}{% for a in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.d = [ns.d, ns.d] %}{% endfor %}{{ ns.l == ns.d }}"},
		{"wide key", grow + "{% set ns.l = () %}{% for a in range(100) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}"},
		{"split into letters", grow + "{% set s = 'a ' * 10000000 %}{{ s.split()|length }}"},
		{"split by letter", grow + "{% set s = 'a' * 30000000 %}{{ s.split('a')|length }}"},
		{"lines", grow + "{% set s = '\n' * 30000000 %}{{ s.splitlines()|length }}"},
		{"letters", grow + "{% set s = 'a' * 30000000 %}{{ s|list|length }}"},
		{"search", grow + "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}"},
		{"strip", grow + "{% set s = ' ' * 10000000 %}{% for i in range(100000) %}{% if s.strip() %}{% endif %}{% endfor %}"},
		{"slices", grow + "{% set s = 'é' * 10000000 %}{% for i in range(100000) %}{% if s[-10000000:] %}{% endif %}{% endfor %}"},
		{"lengths", grow + "{% set s = 'é' * 10000000 %}{% for i in range(100000) %}{% if s|length %}{% endif %}{% endfor %}"},
		{"membership", grow + "{% set l = [0] * 1000000 %}{% for i in range(100000) %}{% if i in l %}{% endif %}{% endfor %}"},
		{"comparisons", grow + "{% set s = 'a' * 10000000 %}{% set r = s[:-1] ~ 'b' %}{% for i in range(100000) %}{% if s == r or s < r %}{% endif %}{% endfor %}"},
		{"long keys", grow + "{% set s = 'a' * 10000000 %}{% set d = dict.fromkeys(range(20)) %}{% for i in range(100000) %}{% if s in d or d[s] or d.get(s) %}{% endif %}{% endfor %}"},
		{"long sets", grow + "{% set s = 'é' * 10000000 %}{% for i in range(100000) %}{% if 'x'.strip(s) %}{% endif %}{% endfor %}"},
		{"long attributes", "{% set s = 'a.' * 10000000 %}{{ [1]|map(attribute=s)|list }}"},
		{"sorting", grow + "{% for i in range(1000) %}{% if range(100000)|sort %}{% endif %}{% endfor %}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tpl, err := Compile(c.src)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			o := Options{MaxSteps: defaultSteps / 10}
			if strings.HasPrefix(c.name, "many") {
				o = Options{}
			}
			_, err = tpl.Render(nil, nil, o)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			var limit *LimitError
			if !errors.As(err, &limit) {
				t.Fatalf("error %v, want a LimitError", err)
			}
			// Generous: the race detector makes everything several times slower.
			if took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 400 {
				t.Errorf("allocated %d MB in all", mb)
			}
			t.Logf("%v in %v, %d MB", err, took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20)
		})
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name, src string
		o         Options
		ok        bool
	}{
		{"enough steps", "{% for i in range(50) %}x{% endfor %}", Options{MaxSteps: 100}, true},
		{"too few steps", "{% for i in range(50) %}x{% endfor %}", Options{MaxSteps: 40}, false},
		{"enough output", "{{ 'a' * 50 }}{{ 'b' * 50 }}", Options{MaxOutput: 100}, true},
		{"too little output", "{{ 'a' * 50 }}{{ 'b' * 51 }}", Options{MaxOutput: 100}, false},
		{"enough depth", "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", Options{MaxDepth: 5}, true},
		{"too little depth", "{% macro m(n) %}{% if n > 1 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(6) }}", Options{MaxDepth: 5}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tpl, err := Compile(c.src)
			if err != nil {
				t.Fatal(err)
			}
			// What is already in dst does not count.
			_, err = tpl.Render(make([]byte, 1000), nil, c.o)
			var limit *LimitError
			if ok := err == nil; ok != c.ok || !ok && !errors.As(err, &limit) {
				t.Errorf("error %v, want ok %v", err, c.ok)
			}
		})
	}
}

// TestDeepSources compiles what would overflow the stack of a parser or of
// rendering without bounds.
func TestDeepSources(t *testing.T) {
	const n = 20000
	for _, c := range []struct{ name, src string }{
		{"parentheses", "{{ " + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + " }}"},
		{"lists", "{{ " + strings.Repeat("[", n) + strings.Repeat("]", n) + " }}"},
		{"not", "{{ " + strings.Repeat("not ", n) + "1 }}"},
		{"minus", "{{ " + strings.Repeat("- ", n) + "1 }}"},
		{"sum", "{{ 1" + strings.Repeat(" - 1", n) + " }}"},
		{"product", "{{ 1" + strings.Repeat(" * 1", n) + " }}"},
		{"power", "{{ 1" + strings.Repeat(" ** 1", n) + " }}"},
		{"and", "{{ 1" + strings.Repeat(" and 1", n) + " }}"},
		{"or", "{{ 0" + strings.Repeat(" or 0", n) + " }}"},
		{"filters", "{{ 1" + strings.Repeat("|string", n) + " }}"},
		{"tests", "{{ 1" + strings.Repeat(" is string()", n) + " }}"},
		{"attributes", "{{ a" + strings.Repeat(".b", n) + " }}"},
		{"calls", "{{ a" + strings.Repeat("()", n) + " }}"},
		{"conditions", "{{ 1" + strings.Repeat(" if 1", n) + " }}"},
		{"else", "{{ 1" + strings.Repeat(" if 0 else 1", n) + " }}"},
		{"if", strings.Repeat("{% if 1 %}", n) + strings.Repeat("{% endif %}", n)},
		{"for", strings.Repeat("{% for i in [1] %}", n) + strings.Repeat("{% endfor %}", n)},
		{"targets", "{% set " + strings.Repeat("(", n) + "a" + strings.Repeat(")", n) + " = 1 %}"},
		{"block filters", "{% filter upper" + strings.Repeat("|upper", n) + " %}{% endfilter %}"},
		{"too long", strings.Repeat("a", maxSource+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Compile(c.src)
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Errorf("error %v, want a SyntaxError", err)
			}
		})
	}
	// Long but flat is fine.
	for _, c := range []struct{ name, src string }{
		{"elif", "{% if 0 %}" + strings.Repeat("{% elif 0 %}", n) + "{% endif %}"},
		{"concatenation", "{{ ''" + strings.Repeat(" ~ ''", n) + " }}"},
		{"list", "{{ [" + strings.Repeat("1,", n) + "]|length }}"},
		{"statements", strings.Repeat("{% set x = 1 %}", n)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := render(t, c.src, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
