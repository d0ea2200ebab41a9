package monitor

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// made is what generated files begin with.
const made = "# Made by `go test ./internal/monitor -update`.\n"

func (c *content) files(o Options) (map[string][]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	rules, err := c.ruleFile(o)
	if err != nil {
		return nil, err
	}
	alerts, err := c.alertFile(o)
	if err != nil {
		return nil, err
	}
	dashboard, err := dashboardJSON(c.schema.chosen(), c.rows)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"prometheus/prometheus.yml":                   scrapes(o),
		"prometheus/engines/vllm.yml.example":         []byte(engineExample),
		"prometheus/rules.yml":                        rules,
		"prometheus/alerts.yml":                       alerts,
		"grafana/stator.json":                         dashboard,
		"grafana/provisioning/datasources/stator.yml": source(o),
		"grafana/provisioning/dashboards/stator.yml":  []byte(provider),
	}, nil
}

// scrapes is the configuration of Prometheus.
func scrapes(o Options) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `%sglobal:
  scrape_interval: %[2]s
  evaluation_interval: %[2]s

rule_files:
  - rules.yml
  - alerts.yml

# alerting:
#   alertmanagers:
#     - static_configs:
#         - targets: ["localhost:9093"]

scrape_configs:
  - job_name: stator
    # Where API keys are configured, /metrics needs an admin key:
    # authorization:
    #   credentials_file: /etc/prometheus/stator-admin-key
    static_configs:
      - targets: [%[3]s]

  # With "stator serve --metrics-ports" what Dynamo has in processes of their own is on ports
  # of its own, and left out of the one above. The jobs are called as existing stacks call
  # them; there the one above is dynamo-frontend, which the alerts know as well. They know
  # no other name.
  # - job_name: dynamo-worker
  #   static_configs:
  #     - targets: ["localhost:8081"]
  # - job_name: dynamo-router
  #   static_configs:
  #     - targets: ["localhost:8082"]
  # - job_name: dynamo-processor
  #   static_configs:
  #     - targets: ["localhost:8083"]

`, made, duration(o.Interval), quoted(o.Stator))
	if len(o.Engines) > 0 {
		fmt.Fprintf(&b, `  # Engines by themselves, for the dashboard's row Engines.
  - job_name: engines
    static_configs:
      - targets: [%s]
`, quoted(o.Engines))
		return b.Bytes()
	}
	b.WriteString(`  # Engines by themselves, for the dashboard's row Engines; see engines/vllm.yml.example.
  # Files are read again when they change.
  - job_name: engines
    file_sd_configs:
      - files: ["engines/*.yml"]
`)
	return b.Bytes()
}

const engineExample = made + `# Copy to a name that ends in .yml, and list the engines that are to be scraped.
- targets: ["gpu1:8000", "gpu2:8000"]
`

const provider = made + `apiVersion: 1
providers:
  - name: stator
    type: file
    allowUiUpdates: true
    options:
      path: /var/lib/grafana/dashboards
`

func source(o Options) []byte {
	return fmt.Appendf(nil, `%sapiVersion: 1
datasources:
  - name: Prometheus
    uid: prometheus
    type: prometheus
    access: proxy
    url: http://localhost:9090
    isDefault: true
    jsonData:
      timeInterval: %s # that of scrapes
`, made, duration(o.Interval))
}

func (c *content) ruleFile(o Options) ([]byte, error) {
	return marshalGroups(`#
# stator:… is about all requests, stator_model:… about those of each model and
# stator_worker:… about each worker. Names of models are in lower case but in
# stator_model:kv_efficiency:ratio and stator_worker:kv_efficiency:ratio, as in the series that
# these are made of; that is why the score is one of all models.
#
# The group dynamo has what dashboards for Dynamo's engines are made of, for engines that are
# scraped themselves. vllm:cache_hit_efficiency counts tokens that were looked for in the
# cache, and vllm:num_used_tokens goes by the largest cache that Stator knows of for the model:
# Prometheus cannot read the size that vLLM tells, as that is the value of a label.
`, []group{
		{"stator", duration(o.Interval), anys(c.ours)},
		{"dynamo", duration(o.Interval), anys(c.dynamos)},
	})
}

func (c *content) alertFile(o Options) ([]byte, error) {
	var out []any
	for i := range c.alerts {
		a := &c.alerts[i]
		y := yamlAlert{Alert: a.name, Expr: a.firing(), Labels: map[string]string{"severity": a.severity}}
		if a.lasting > 0 {
			y.For = duration(a.lasting)
		}
		y.Annotations.Summary, y.Annotations.Description = a.summary, a.advice
		out = append(out, y)
	}
	return marshalGroups(`#
# severity page: clients are hurt, and somebody has to act; ticket: it can wait until morning.
# Stator's API is known by the name of its job, stator or dynamo-frontend.
`, []group{{"stator-alerts", duration(o.Interval), out}})
}

type group struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"`
	Rules    []any  `yaml:"rules"`
}

type yamlAlert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations struct {
		Summary     string `yaml:"summary"`
		Description string `yaml:"description"`
	} `yaml:"annotations"`
}

func marshalGroups(about string, groups []group) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(made + about)
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(map[string]any{"groups": groups}); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return b.Bytes(), nil
}

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

func quoted(targets []string) string {
	var b strings.Builder
	for i, t := range targets {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", t)
	}
	return b.String()
}

// duration writes d as Prometheus reads it.
func duration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}
