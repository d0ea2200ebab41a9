package monitor

import (
	"bytes"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the files in deploy")

const deploy = "../../deploy"

// byHand are the files of deploy that are not made.
var byHand = []string{"README.md"}

func TestDeploy(t *testing.T) {
	files, err := Files(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for path, data := range files {
			path = filepath.Join(deploy, filepath.FromSlash(path))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var there []string
	err = fs.WalkDir(os.DirFS(deploy), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(byHand, path) {
			there = append(there, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(files)), there); diff != "" {
		t.Errorf("files (-made +in deploy):\n%s", diff)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(deploy, filepath.FromSlash(path)))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s (-made +in deploy; -update rewrites):\n%s", path, cmp.Diff(string(want), string(got)))
		}
	}
}

func TestExprs(t *testing.T) {
	seen := make(map[string]bool)
	kinds := make(map[string]int)
	for _, e := range Exprs() {
		kind, _, _ := strings.Cut(e.Where, " ")
		kinds[kind]++
		if seen[e.Where] {
			t.Errorf("two expressions are %s", e.Where)
		}
		seen[e.Where] = true
		if e.PromQL == "" || strings.Contains(strings.ReplaceAll(e.PromQL, `"$1"`, ""), "$") {
			t.Errorf("%s: %s", e.Where, e.PromQL)
		}
		if e.Alert != (kind == "alert") || e.Alert != (e.Firing != "") || e.Alert && e.Needs != NeedStator {
			t.Errorf("%s: alert %v, firing %q, needs %v", e.Where, e.Alert, e.Firing, e.Needs)
		}
		// Where a signal has no series while all is well, what is added to it is not deployed.
		signal, added, _ := strings.Cut(e.PromQL, " or on (instance) ")
		if e.Alert && (!strings.Contains(e.Firing, signal) || strings.Contains(e.Firing, " or on (instance) ") && !strings.Contains(e.Firing, added+") == 0")) {
			t.Errorf("%s: %s is not in %s", e.Where, e.PromQL, e.Firing)
		}
	}
	if kinds["rule"] == 0 || kinds["alert"] == 0 || kinds["dashboard:"] == 0 || len(kinds) != 3 {
		t.Errorf("expressions by place: %v", kinds)
	}
}

// promConfig is what prometheus.yml says, as Prometheus reads it.
type promConfig struct {
	Global struct {
		ScrapeInterval     string `yaml:"scrape_interval"`
		EvaluationInterval string `yaml:"evaluation_interval"`
	}
	RuleFiles     []string `yaml:"rule_files"`
	ScrapeConfigs []struct {
		JobName       string                       `yaml:"job_name"`
		StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		FileSDConfigs []struct{ Files []string }   `yaml:"file_sd_configs"`
	} `yaml:"scrape_configs"`
}

func TestScrapes(t *testing.T) {
	for _, tt := range []struct {
		name    string
		o       Options
		want    string // jobs and their targets
		between string
	}{
		{"defaults", Options{}, "stator localhost:8000; engines engines/*.yml", "5s"},
		{
			"given", Options{Stator: []string{"a:1", "[::1]:2"}, Engines: []string{"gpu1:8000", "gpu2:8000"}, Interval: 1500 * time.Millisecond},
			"stator a:1 [::1]:2; engines gpu1:8000 gpu2:8000", "1500ms",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files, err := Files(tt.o)
			if err != nil {
				t.Fatal(err)
			}
			var c promConfig
			readYAML(t, files["prometheus/prometheus.yml"], &c)
			var jobs []string
			for _, j := range c.ScrapeConfigs {
				line := j.JobName
				for _, s := range j.StaticConfigs {
					line += " " + strings.Join(s.Targets, " ")
				}
				for _, s := range j.FileSDConfigs {
					line += " " + strings.Join(s.Files, " ")
				}
				jobs = append(jobs, line)
			}
			if got := strings.Join(jobs, "; "); got != tt.want {
				t.Errorf("jobs %q, want %q", got, tt.want)
			}
			if c.Global.ScrapeInterval != tt.between || c.Global.EvaluationInterval != tt.between {
				t.Errorf("intervals %q, want %q", c.Global, tt.between)
			}
			for _, f := range c.RuleFiles {
				if files["prometheus/"+f] == nil {
					t.Errorf("there is no %s", f)
				}
			}
			var source struct {
				Datasources []struct {
					JSONData struct {
						TimeInterval string `yaml:"timeInterval"`
					} `yaml:"jsonData"`
				}
			}
			readYAML(t, files["grafana/provisioning/datasources/stator.yml"], &source)
			if got := source.Datasources[0].JSONData.TimeInterval; got != tt.between {
				t.Errorf("Grafana goes by scrapes every %q, want %q", got, tt.between)
			}
			for _, path := range []string{"grafana/provisioning/dashboards/stator.yml", "prometheus/engines/vllm.yml.example"} {
				var v any
				readYAML(t, files[path], &v)
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Interval: time.Millisecond}, "interval: expected whole milliseconds, at least 1s"},
		{Options{Interval: -time.Second}, "interval: expected"},
		{Options{Interval: time.Second + time.Nanosecond}, "interval: expected"},
		{Options{Stator: []string{"a:1", "http://b:2"}}, `stator[1]: expected HOST:PORT, not "http://b:2"`},
		{Options{Stator: []string{"a"}}, `stator[0]: expected HOST:PORT, not "a"`},
		{Options{Engines: []string{":8000"}}, `engines[0]: expected HOST:PORT, not ":8000"`},
	} {
		if files, err := Files(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) || files != nil {
			t.Errorf("%+v: %d files, error %v, want one with %q", tt.o, len(files), err, tt.want)
		}
	}
}
