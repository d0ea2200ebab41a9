package monitor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// row is a part of the dashboard, from one title to the next.
type row struct {
	title     string
	collapsed bool
	panels    []panel
}

// panel shows some expressions. What is not given takes the kind's default.
type panel struct {
	title, about string
	kind         panelKind
	unit         string
	width        int
	height       int
	targets      []target
	limits       []limit // where colours change, in ascending order
	stacked      bool
	ratio        bool     // of a figure: it is no number while there are no requests
	top          float64  // highest value of the axis, 0 for whatever comes
	columns      []string // of a table: the units of the targets
}

// where names a target of the panel for people.
func (p *panel) where(t target) string {
	if t.legend == "" {
		return "dashboard: " + p.title
	}
	return "dashboard: " + p.title + ": " + t.legend
}

type panelKind string

const (
	figure panelKind = "stat"       // one number each, the latest
	lines  panelKind = "timeseries" // over time
	table  panelKind = "table"      // the latest of each worker, a column for each target
)

// target is one expression of a panel, and what its series are called; in a table without
// a name, only its labels are of interest.
type target struct {
	legend string
	query  query
}

// limit is where a colour begins.
type limit struct {
	from  float64
	color string
}

// Colours.
const (
	good = "green"
	fair = "yellow"
	poor = "red"
	none = "text"
)

// rising are limits above which something is not good any more, and then poor; falling
// are limits below which.
func rising(notGood, isPoor float64) []limit {
	return []limit{{0, good}, {notGood, fair}, {isPoor, poor}}
}

func falling(isPoor, notGood float64) []limit {
	return []limit{{0, poor}, {isPoor, fair}, {notGood, good}}
}

// The width of the grid, and the height of the title of a row.
const (
	gridWidth = 24
	rowHeight = 1
)

// dashboardJSON lays the rows out one below the other, panels from left to right.
func dashboardJSON(s schema, rows []row) ([]byte, error) {
	id, y := 0, 0
	next := func() int { id++; return id }
	var panels []any
	for _, r := range rows {
		head := jsonRow{ID: next(), Type: "row", Title: r.title, Collapsed: r.collapsed, Grid: jsonGrid{rowHeight, gridWidth, 0, y}, Panels: []jsonPanel{}}
		y += rowHeight
		var inside []jsonPanel
		x, tallest := 0, 0
		for i := range r.panels {
			p := &r.panels[i]
			w, h := p.size()
			if x+w > gridWidth {
				x, y, tallest = 0, y+tallest, 0
			}
			inside = append(inside, p.json(next(), jsonGrid{h, w, x, y}))
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
		if r.collapsed { // what is inside takes no room until it is opened
			head.Panels, inside, y = inside, nil, head.Grid.Y+rowHeight
		}
		panels = append(panels, head)
		for i := range inside {
			panels = append(panels, inside[i])
		}
	}
	variables, err := variables(s)
	if err != nil {
		return nil, err
	}
	return marshal(jsonDashboard{
		UID: "stator", Title: "Stator", Tags: []string{"stator", "llm"}, SchemaVersion: 39, Version: 1,
		Editable: true, GraphTooltip: 1, Refresh: "10s", Timezone: "browser",
		Time:        jsonTime{"now-30m", "now"},
		Timepicker:  jsonTimepicker{[]string{"5s", "10s", "30s", "1m", "5m"}},
		Templating:  jsonList{variables},
		Annotations: jsonList{[]any{}},
		Links:       []any{},
		Panels:      panels,
	})
}

// size is how much of the grid a panel takes.
func (p *panel) size() (w, h int) {
	w, h = p.width, p.height
	if w == 0 {
		w = 8
	}
	if h == 0 {
		h = 8
	}
	if p.kind == figure {
		h = 4
	}
	return w, h
}

// datasource is the one that is chosen above the dashboard.
var datasource = jsonSource{"prometheus", "${datasource}"}

func (p *panel) json(id int, at jsonGrid) jsonPanel {
	out := jsonPanel{
		ID: id, Type: string(p.kind), Title: p.title, Description: p.about, Grid: at, Source: datasource,
		Transparent: false, Transformations: []any{},
	}
	steps := []jsonStep{{good, nil}}
	if len(p.limits) > 0 {
		steps = nil
	}
	for i, l := range p.limits {
		step := jsonStep{l.color, &p.limits[i].from}
		if i == 0 {
			step.Value = nil // from anywhere below
		}
		steps = append(steps, step)
	}
	d := &out.Fields.Defaults
	d.Unit, d.Thresholds = p.unit, jsonThresholds{"absolute", steps}
	d.Color = map[string]string{"mode": "palette-classic"}
	out.Fields.Overrides = []any{}
	if p.top > 0 {
		d.Max = &p.top
	}
	for i, t := range p.targets {
		jt := jsonTarget{Ref: string(rune('A' + i)), Source: datasource, Expr: t.query.text, Legend: t.legend, Editor: "code", Range: true}
		if p.kind != lines {
			jt.Instant, jt.Range = true, false
		}
		if p.kind == table {
			jt.Format = "table"
		}
		out.Targets = append(out.Targets, jt)
	}
	switch p.kind {
	case lines:
		zero := 0.0
		d.Min, d.Custom = &zero, p.drawn()
		out.Options = map[string]any{
			"legend":  map[string]any{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		}
	case figure:
		if p.ratio {
			d.Mappings = idle
		}
		d.Color = map[string]string{"mode": "thresholds"}
		out.Options = map[string]any{
			"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case table:
		out.Options = map[string]any{"showHeader": true, "cellHeight": "sm", "footer": map[string]any{"show": false, "reducer": []string{"sum"}, "countRows": false, "fields": ""}}
		out.Transformations, out.Fields.Overrides = p.arranged()
	}
	return out
}

// idle is how a figure looks that is no number.
var idle = []any{map[string]any{
	"type": "special", "options": map[string]any{"match": "null+nan", "result": map[string]any{"text": "idle", "color": none, "index": 0}},
}}

// drawn is how lines look.
func (p *panel) drawn() map[string]any {
	fill, mode, limits := 8, "none", "off"
	if p.stacked {
		fill, mode = 40, "normal"
	}
	if len(p.limits) > 0 {
		limits = "dashed"
	}
	return map[string]any{
		"drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
		"stacking":        map[string]any{"mode": mode, "group": "A"},
		"thresholdsStyle": map[string]any{"mode": limits},
	}
}

// arranged makes one row of each worker out of the answers of all targets, and names the
// columns as the targets are called, with their units.
func (p *panel) arranged() (transformations, overrides []any) {
	names := map[string]string{"worker_id": "worker"}
	hidden := map[string]bool{"Time": true}
	overrides = []any{}
	for i, t := range p.targets {
		field := "Value #" + string(rune('A'+i))
		if t.legend == "" {
			hidden[field] = true
			continue
		}
		names[field] = t.legend
		if p.columns[i] != "" {
			overrides = append(overrides, map[string]any{
				"matcher":    map[string]any{"id": "byName", "options": t.legend},
				"properties": []any{map[string]any{"id": "unit", "value": p.columns[i]}},
			})
		}
	}
	return []any{
		map[string]any{"id": "merge", "options": map[string]any{}},
		map[string]any{"id": "organize", "options": map[string]any{"excludeByName": hidden, "indexByName": map[string]int{}, "renameByName": names}},
	}, overrides
}

// variables are what the dashboard can be narrowed down to.
func variables(s schema) ([]any, error) {
	values := func(name, about string, series query, label string) (any, error) {
		err := series.err
		if err == nil && !slices.Contains(series.labels, label) {
			err = fmt.Errorf("series %s: it has no label %s", series.text, label)
		}
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		query := fmt.Sprintf("label_values(%s, %s)", series.text, label)
		return jsonVariable{
			Name: name, Label: name, Description: about, Type: "query", Source: &datasource, Definition: query,
			Query: map[string]string{"query": query, "refId": name}, Multi: true, IncludeAll: true, AllValue: ".*",
			Current: jsonCurrent{true, []string{"All"}, []string{"$__all"}}, Refresh: 2, Sort: 1, Options: []any{},
		}, nil
	}
	instance, err := values("instance", "Servers by what Prometheus scrapes. Where metrics have ports of their own, each port is one.", s.series("up", like("job", allJobs)), "instance")
	if err != nil {
		return nil, err
	}
	model, err := values("model", "Models that are served.", s.series("stator_workers"), "model")
	if err != nil {
		return nil, err
	}
	worker, err := values("worker", "Engines by their ids; panels by worker show these.", s.series("stator_worker_active_requests"), "worker_id")
	if err != nil {
		return nil, err
	}
	return []any{
		map[string]any{
			"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "refresh": 1, "hide": 0,
			"multi": false, "includeAll": false, "options": []any{}, "regex": "", "skipUrlSync": false, "current": map[string]any{},
		},
		instance, model, worker,
	}, nil
}

// marshal writes JSON as people read it, with < and > as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return b.Bytes(), nil
}
