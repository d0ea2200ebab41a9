package monitor

// The parts of Grafana's dashboard format that are used, in the order in which its own
// exports have them.
type (
	jsonDashboard struct {
		Annotations   jsonList       `json:"annotations"`
		Editable      bool           `json:"editable"`
		GraphTooltip  int            `json:"graphTooltip"`
		Links         []any          `json:"links"`
		Panels        []any          `json:"panels"`
		Refresh       string         `json:"refresh"`
		SchemaVersion int            `json:"schemaVersion"`
		Tags          []string       `json:"tags"`
		Templating    jsonList       `json:"templating"`
		Time          jsonTime       `json:"time"`
		Timepicker    jsonTimepicker `json:"timepicker"`
		Timezone      string         `json:"timezone"`
		Title         string         `json:"title"`
		UID           string         `json:"uid"`
		Version       int            `json:"version"`
	}
	jsonList struct {
		List []any `json:"list"`
	}
	jsonTime struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	jsonTimepicker struct {
		Intervals []string `json:"refresh_intervals"`
	}
	jsonGrid struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	jsonSource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	jsonRow struct {
		Collapsed bool        `json:"collapsed"`
		Grid      jsonGrid    `json:"gridPos"`
		ID        int         `json:"id"`
		Panels    []jsonPanel `json:"panels"`
		Title     string      `json:"title"`
		Type      string      `json:"type"`
	}
	jsonPanel struct {
		Source          jsonSource     `json:"datasource"`
		Description     string         `json:"description"`
		Fields          jsonFields     `json:"fieldConfig"`
		Grid            jsonGrid       `json:"gridPos"`
		ID              int            `json:"id"`
		Options         map[string]any `json:"options"`
		Targets         []jsonTarget   `json:"targets"`
		Title           string         `json:"title"`
		Transformations []any          `json:"transformations"`
		Transparent     bool           `json:"transparent"`
		Type            string         `json:"type"`
	}
	jsonFields struct {
		Defaults  jsonDefaults `json:"defaults"`
		Overrides []any        `json:"overrides"`
	}
	jsonDefaults struct {
		Color      map[string]string `json:"color"`
		Custom     map[string]any    `json:"custom,omitempty"`
		Mappings   []any             `json:"mappings,omitempty"`
		Max        *float64          `json:"max,omitempty"`
		Min        *float64          `json:"min,omitempty"`
		Thresholds jsonThresholds    `json:"thresholds"`
		Unit       string            `json:"unit"`
	}
	jsonThresholds struct {
		Mode  string     `json:"mode"`
		Steps []jsonStep `json:"steps"`
	}
	jsonStep struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"` // null for the first
	}
	jsonTarget struct {
		Source  jsonSource `json:"datasource"`
		Editor  string     `json:"editorMode"`
		Expr    string     `json:"expr"`
		Format  string     `json:"format,omitempty"`
		Instant bool       `json:"instant"`
		Legend  string     `json:"legendFormat"`
		Range   bool       `json:"range"`
		Ref     string     `json:"refId"`
	}
	jsonVariable struct {
		AllValue    string            `json:"allValue"`
		Current     jsonCurrent       `json:"current"`
		Source      *jsonSource       `json:"datasource"`
		Definition  string            `json:"definition"`
		Description string            `json:"description"`
		Hide        int               `json:"hide"`
		IncludeAll  bool              `json:"includeAll"`
		Label       string            `json:"label"`
		Multi       bool              `json:"multi"`
		Name        string            `json:"name"`
		Options     []any             `json:"options"`
		Query       map[string]string `json:"query"`
		Refresh     int               `json:"refresh"`
		Sort        int               `json:"sort"`
		Type        string            `json:"type"`
	}
	jsonCurrent struct {
		Selected bool     `json:"selected"`
		Text     []string `json:"text"`
		Value    []string `json:"value"`
	}
)
