package monitor

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// ruleFile is a file of rules as Prometheus reads it.
type ruleFile struct {
	Groups []struct {
		Name, Interval string
		Rules          []struct {
			Record, Alert, Expr, For string
			Labels, Annotations      map[string]string
		}
	}
}

func readRules(t *testing.T, path string, o Options) ruleFile {
	t.Helper()
	files, err := Files(o)
	if err != nil {
		t.Fatal(err)
	}
	var f ruleFile
	readYAML(t, files[path], &f)
	return f
}

func readYAML(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

var recordName = regexp.MustCompile(`^(stator|stator_model|stator_worker|vllm|sglang):[a-z_]+(:(rate|ratio|mean|p50|p95|p99))?$`)

func TestRules(t *testing.T) {
	names := make(map[string]bool)
	groups := make(map[string]int)
	for _, g := range readRules(t, "prometheus/rules.yml", Options{}).Groups {
		groups[g.Name] = len(g.Rules)
		if g.Interval != "5s" {
			t.Errorf("group %s is evaluated every %s", g.Name, g.Interval)
		}
		for _, r := range g.Rules {
			if !recordName.MatchString(r.Record) || r.Expr == "" || names[r.Record] {
				t.Errorf("rule %q: %q", r.Record, r.Expr)
			}
			names[r.Record] = true
		}
	}
	if groups["dynamo"] != 7 || groups["stator"] == 0 {
		t.Errorf("rules by group: %v", groups)
	}
}

// Rates are over four scrapes at the least.
func TestWindows(t *testing.T) {
	window := regexp.MustCompile(`\[(\w+)\]`)
	for _, tt := range []struct {
		interval time.Duration
		want     map[string][]string // by file
	}{
		{0, map[string][]string{"rules": {"1m"}, "alerts": {"15m", "1h", "1m", "5m"}}},
		{30 * time.Second, map[string][]string{"rules": {"2m"}, "alerts": {"15m", "1h", "2m", "5m"}}},
		{2 * time.Minute, map[string][]string{"rules": {"8m"}, "alerts": {"15m", "1h", "8m"}}},
	} {
		for name, want := range tt.want {
			files, err := Files(Options{Interval: tt.interval})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range window.FindAllSubmatch(files["prometheus/"+name+".yml"], -1) {
				got = append(got, string(m[1]))
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
				t.Errorf("%s every %s (-want +got):\n%s", name, tt.interval, diff)
			}
		}
	}
}

func TestAlerts(t *testing.T) {
	names := make(map[string]bool)
	for _, g := range readRules(t, "prometheus/alerts.yml", Options{}).Groups {
		for _, r := range g.Rules {
			if !strings.HasPrefix(r.Alert, "Stator") || names[r.Alert] {
				t.Errorf("alert %q", r.Alert)
			}
			names[r.Alert] = true
			if s := r.Labels["severity"]; s != page && s != ticket {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: for: %v", r.Alert, err)
				}
			}
			if len(r.Annotations["summary"]) < 20 || len(r.Annotations["description"]) < 80 || !strings.HasSuffix(r.Annotations["description"], ".") {
				t.Errorf("%s: annotations %q", r.Alert, r.Annotations)
			}
		}
	}
}

// Annotations name labels that the signal has.
func TestAnnotations(t *testing.T) {
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	c := newContent(o)
	for i := range c.alerts {
		a := &c.alerts[i]
		for _, m := range label.FindAllStringSubmatch(a.summary+a.advice, -1) {
			if !slices.Contains(a.signal.labels, m[1]) {
				t.Errorf("%s: its signal has no label %s, but %v", a.name, m[1], a.signal.labels)
			}
		}
	}
}

// What is added to a signal so that it has data while all is well is not in what is deployed,
// but where it makes an alert fire.
func TestDeployedAlertsAreShort(t *testing.T) {
	for _, g := range readRules(t, "prometheus/alerts.yml", Options{}).Groups {
		for _, r := range g.Rules {
			if strings.Contains(r.Expr, "or on (instance)") && r.Alert != "StatorNoEngine" {
				t.Errorf("%s: %s", r.Alert, r.Expr)
			}
		}
	}
}

// What the README says of alerts is about some that exist, and its example of what silences
// what is well-formed.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(deploy, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range readRules(t, "prometheus/alerts.yml", Options{}).Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	for _, name := range regexp.MustCompile(`\bStator[A-Z]\w+`).FindAllString(string(data), -1) {
		if !slices.Contains(names, name) {
			t.Errorf("there is no alert %s", name)
		}
	}
	_, example, _ := strings.Cut(string(data), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	var c struct {
		InhibitRules []struct {
			SourceMatchers []string `yaml:"source_matchers"`
			TargetMatchers []string `yaml:"target_matchers"`
			Equal          []string
		} `yaml:"inhibit_rules"`
	}
	readYAML(t, []byte(example), &c)
	if len(c.InhibitRules) == 0 {
		t.Error("there is no example of inhibit_rules")
	}
	matcher := regexp.MustCompile(`^\w+ (=|=~) "[^"]+"$`)
	for _, r := range c.InhibitRules {
		if len(r.SourceMatchers) == 0 || len(r.TargetMatchers) == 0 || len(r.Equal) == 0 {
			t.Errorf("%+v", r)
		}
		for _, m := range slices.Concat(r.SourceMatchers, r.TargetMatchers) {
			if !matcher.MatchString(m) {
				t.Errorf("matcher %q", m)
			}
		}
	}
}

// promtoolCase is a case of a file for promtool test rules.
type promtoolCase struct {
	Name   string
	Series []struct{ Series string }    `yaml:"input_series"`
	Exprs  []struct{ Expr string }      `yaml:"promql_expr_test"`
	Alerts []struct{ Alertname string } `yaml:"alert_rule_test"`
}

// The cases for promtool are about every alert, and about series that exist.
func TestCasesOfAlerts(t *testing.T) {
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	c := newContent(o)
	for _, file := range []string{"testdata/alerts_test.yml", "testdata/rules_test.yml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases struct{ Tests []promtoolCase }
		readYAML(t, data, &cases)
		for _, tt := range cases.Tests {
			if len(tt.Exprs)+len(tt.Alerts) == 0 {
				t.Errorf("%s: %s expects nothing", file, tt.Name)
			}
			for _, in := range tt.Series {
				if err := c.schema.exists(in.Series); err != nil {
					t.Errorf("%s: %s: %v", file, tt.Name, err)
				}
			}
		}
		if !strings.Contains(file, "alerts") {
			continue
		}
		for i := range c.alerts {
			name := c.alerts[i].name
			if !slices.ContainsFunc(cases.Tests, func(tt promtoolCase) bool { return slices.Contains(strings.Split(tt.Name, ", "), name) }) {
				t.Errorf("%s has no case of %s", file, name)
			}
		}
	}
}

var (
	seriesName   = regexp.MustCompile(`^[^\s{]+`)
	seriesLabels = regexp.MustCompile(`(\w+)="`)
)

// exists returns what is wrong with a series as it is written in cases.
func (s schema) exists(series string) error {
	name := seriesName.FindString(series)
	var where []matcher
	for _, m := range seriesLabels.FindAllStringSubmatch(series, -1) {
		where = append(where, is(m[1], ""))
	}
	return s.series(name, where...).err
}
