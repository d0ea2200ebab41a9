package monitor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shown is a dashboard as Grafana reads it.
type shown struct {
	UID, Title, Refresh string
	SchemaVersion       int
	Panels              []shownPanel
	Templating          struct {
		List []struct {
			Name, Type string
			Query      any
			Multi      bool
		}
	}
}

type shownPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Collapsed                bool
	Panels                   []shownPanel
	FieldConfig              struct {
		Defaults struct {
			Unit     string
			Mappings []struct {
				Type    string
				Options struct {
					Match  string
					Result struct{ Text, Color string }
				}
			}
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
		Overrides []struct {
			Matcher struct{ Options string }
		}
	}
	Targets []struct {
		Expr, LegendFormat, RefID, Format string
		Instant, Range                    bool
		Datasource                        struct{ UID string }
	}
}

func readDashboard(t *testing.T) shown {
	t.Helper()
	files, err := Files(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var d shown
	if err := json.Unmarshal(files["grafana/stator.json"], &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "stator" || d.Title != "Stator" || d.SchemaVersion < 38 || d.Refresh != "10s" {
		t.Errorf("dashboard %q %q, schema %d, refresh %s", d.UID, d.Title, d.SchemaVersion, d.Refresh)
	}
	var rows []string
	for _, p := range d.Panels {
		if p.Type == "row" {
			title := p.Title
			if p.Collapsed {
				title += " (collapsed)"
			}
			rows = append(rows, title)
		}
	}
	want := []string{"Now", "Latency", "Traffic", "KV cache", "Workers", "Queue and placement", "Learning (collapsed)", "Engines (collapsed)", "This process"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, fmt.Sprintf("%s %s %v", v.Name, v.Type, v.Multi))
	}
	if diff := cmp.Diff([]string{"datasource datasource false", "instance query true", "model query true", "worker query true"}, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestPanels(t *testing.T) {
	d := readDashboard(t)
	ids := make(map[int]string)
	titles := make(map[string]bool)
	var check func(ps []shownPanel)
	check = func(ps []shownPanel) {
		for i := range ps {
			p := &ps[i]
			if p.ID == 0 || ids[p.ID] != "" {
				t.Errorf("%s has the id %d of %q", p.Title, p.ID, ids[p.ID])
			}
			ids[p.ID] = p.Title
			if p.Title == "" {
				t.Errorf("panel %d has no title", p.ID)
			}
			if p.Type == "row" {
				if p.Collapsed != (len(p.Panels) > 0) {
					t.Errorf("row %s: collapsed %v, with %d panels inside", p.Title, p.Collapsed, len(p.Panels))
				}
				check(p.Panels)
				continue
			}
			if titles[p.Title] {
				t.Errorf("two panels are called %s", p.Title)
			}
			titles[p.Title] = true
			checkPanel(t, p)
		}
	}
	check(d.Panels)
	if n := len(titles); n < 35 || n > 60 {
		t.Errorf("%d panels", n)
	}
}

func checkPanel(t *testing.T, p *shownPanel) {
	t.Helper()
	if p.Description == "" || !strings.HasSuffix(p.Description, ".") {
		t.Errorf("%s: description %q", p.Title, p.Description)
	}
	defaults := &p.FieldConfig.Defaults
	if defaults.Unit == "" {
		t.Errorf("%s has no unit", p.Title)
	}
	for i, s := range defaults.Thresholds.Steps {
		if (i == 0) != (s.Value == nil) || i > 1 && *s.Value <= *defaults.Thresholds.Steps[i-1].Value {
			t.Errorf("%s: thresholds are not in ascending order, the first from anywhere", p.Title)
		}
	}
	if len(defaults.Thresholds.Steps) == 0 || len(p.Targets) == 0 {
		t.Errorf("%s: %d thresholds, %d targets", p.Title, len(defaults.Thresholds.Steps), len(p.Targets))
	}
	refs, legends := make(map[string]bool), make(map[string]bool)
	for _, target := range p.Targets {
		if refs[target.RefID] {
			t.Errorf("%s: two targets are %s", p.Title, target.RefID)
		}
		refs[target.RefID] = true
		if legends[target.LegendFormat] || target.LegendFormat == "" && p.Type != "table" {
			t.Errorf("%s: legend %q is empty or used twice", p.Title, target.LegendFormat)
		}
		legends[target.LegendFormat] = true
		if target.Datasource.UID != "${datasource}" || target.Instant == target.Range || (p.Type == "table") != (target.Format == "table") {
			t.Errorf("%s: target %s: %+v", p.Title, target.RefID, target)
		}
	}
	for _, o := range p.FieldConfig.Overrides {
		if !legends[o.Matcher.Options] {
			t.Errorf("%s: no column %s", p.Title, o.Matcher.Options)
		}
	}
}

// No two panels that are seen at the same time take the same place: those of a collapsed
// row are not seen until it is opened, which moves what is below.
func TestPanelsDoNotOverlap(t *testing.T) {
	d := readDashboard(t)
	apart(t, "", d.Panels)
	for _, p := range d.Panels {
		apart(t, p.Title, p.Panels)
		for _, inner := range p.Panels {
			if inner.GridPos.Y <= p.GridPos.Y {
				t.Errorf("%s is above its row", inner.Title)
			}
		}
	}
}

func apart(t *testing.T, row string, panels []shownPanel) {
	t.Helper()
	taken := make(map[[2]int]string)
	for _, p := range panels {
		g := p.GridPos
		if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > gridWidth {
			t.Errorf("%s %s does not fit: %+v", row, p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s and %s overlap at %d, %d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// Legends name labels that the series have.
func TestLegends(t *testing.T) {
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for _, r := range newContent(o).rows {
		for _, p := range r.panels {
			for _, target := range p.targets {
				used := 0
				for _, m := range label.FindAllStringSubmatch(target.legend, -1) {
					used++
					if !strings.Contains(" "+strings.Join(target.query.labels, " ")+" ", " "+m[1]+" ") {
						t.Errorf("%s: its series have no label %s, but %v", p.where(target), m[1], target.query.labels)
					}
				}
				if p.kind != table && used < len(target.query.labels) {
					t.Errorf("%s: series differ by %v, which the legend does not tell", p.where(target), target.query.labels)
				}
			}
		}
	}
}

// Of Stator's series every panel shows those of the chosen servers only.
func TestInstances(t *testing.T) {
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	c := newContent(o)
	name := regexp.MustCompile(`[A-Za-z_:]{4,}`)
	selected := regexp.MustCompile(`^\{[^}]*instance=~"\$instance[|]?"[^}]*\}`)
	found := 0
	for _, r := range c.rows {
		for _, p := range r.panels {
			for _, target := range p.targets {
				text := target.query.text
				if r.title == "This process" && !strings.Contains(text, "$instance") {
					t.Errorf("%s: %s is of any server", p.where(target), text)
				}
				for _, at := range name.FindAllStringIndex(text, -1) {
					f, err := c.schema.find(text[at[0]:at[1]])
					if err != nil || !f.server && text[at[0]:at[1]] != "ALERTS" {
						continue
					}
					if found++; !selected.MatchString(text[at[1]:]) {
						t.Errorf("%s: %s in %s is of any server", p.where(target), text[at[0]:at[1]], text)
					}
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d selectors were found", found)
	}
	for _, a := range c.alerts {
		if strings.Contains(a.firing(), "$") {
			t.Errorf("%s: a variable of the dashboard in %s", a.name, a.firing())
		}
	}
	for _, v := range readDashboard(t).Templating.List {
		want := map[string]string{
			"instance": `label_values(up{job=~"stator|dynamo-(frontend|worker|router|processor)"}, instance)`,
			"model":    `label_values(stator_workers{instance=~"$instance"}, model)`,
			"worker":   `label_values(stator_worker_active_requests{instance=~"$instance"}, worker_id)`,
		}[v.Name]
		if q, ok := v.Query.(map[string]any); ok && q["query"] != want {
			t.Errorf("variable %s: %v, want %s", v.Name, q["query"], want)
		}
	}
}

// A figure that is a fraction says that there is nothing to divide.
func TestIdleFigures(t *testing.T) {
	found := 0
	for _, p := range readDashboard(t).Panels {
		if p.Type != "stat" {
			continue
		}
		fraction := strings.Contains(p.Targets[0].Expr, " / ") || strings.Contains(p.Targets[0].Expr, "histogram_quantile")
		m := p.FieldConfig.Defaults.Mappings
		if fraction != (len(m) == 1) {
			t.Errorf("%s: mappings %+v", p.Title, m)
		}
		if len(m) == 1 {
			if found++; m[0].Type != "special" || m[0].Options.Match != "null+nan" || m[0].Options.Result.Text != "idle" || m[0].Options.Result.Color != none {
				t.Errorf("%s: mappings %+v", p.Title, m)
			}
		}
	}
	if found != 4 {
		t.Errorf("%d figures are fractions", found)
	}
}

// A panel says when it is empty although all is well, and which of the variables it does not
// go by.
func TestDescriptions(t *testing.T) {
	o, err := Options{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range newContent(o).rows {
		for _, p := range r.panels {
			empty, narrowed := true, true
			for _, target := range p.targets {
				empty = empty && target.query.need != NeedStator
				narrowed = narrowed && (strings.Contains(target.query.text, "$model") || strings.Contains(target.query.text, "$worker"))
			}
			about := strings.ToLower(p.about)
			if empty && !strings.Contains(about, "empty") {
				t.Errorf("%s: expected when it is empty: %s", p.title, p.about)
			}
			if !narrowed && !slices.Contains([]string{"Engines", "This process"}, r.title) && p.title != "Alerts" && !strings.Contains(about, "all models") {
				t.Errorf("%s: expected that some of it is of all models: %s", p.title, p.about)
			}
		}
	}
}

// An engine is known by its address.
func TestWorkersHaveAddresses(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		if p.Title == "Workers" && p.Type == "table" && !strings.Contains(p.Targets[0].Expr, "url") {
			t.Errorf("columns are by %s", p.Targets[0].Expr)
		}
	}
	named := 0
	for _, g := range readRules(t, "prometheus/alerts.yml", Options{}).Groups {
		for _, r := range g.Rules {
			if strings.Contains(r.Annotations["summary"], "$labels.worker_id") {
				if named++; !strings.Contains(r.Annotations["summary"], theEngine) {
					t.Errorf("%s: %s", r.Alert, r.Annotations["summary"])
				}
			}
		}
	}
	if named == 0 {
		t.Error("no alert names an engine")
	}
}
