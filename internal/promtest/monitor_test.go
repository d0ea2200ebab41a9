package promtest

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/monitor"
)

// TestMonitor has a Prometheus with the files of internal/monitor scrape servers of every
// kind and engines of several, all under load.
func TestMonitor(t *testing.T) {
	t.Parallel()
	vllm, vllmEvents := engine(t, "vllm")
	sglang, sglangEvents := engine(t, "sglang")
	llama := start(t, "sim", "--dress", "llamacpp", "--model", "llama")
	plain := start(t, "serve", "--sim", "4")
	reference := start(t, "serve", "--sim", "2", "--router-policy", "thompson", "--thompson-variant", "reference",
		"--router-queue-threshold", "0.001") // so that there are some who wait
	safe := start(t, "serve", "--router-policy", "thompson", "--thompson-variant", "safe", "--tokenizer", simModel+"=qwen3",
		"--engine", vllm.url()+vllmEvents, "--engine", sglang.url()+sglangEvents, "--engine", llama.url())

	files := unpack(t, monitor.Options{
		Stator:   []string{plain.addr, reference.addr, safe.addr},
		Engines:  []string{vllm.addr, sglang.addr, llama.addr},
		Interval: time.Second,
	})
	p := scrapeFrom(t, filepath.Join(files, "prometheus", "prometheus.yml"))
	eventually(t, "both models are served", func() string {
		if models := fetch(t, safe.url()+"/v1/models"); !strings.Contains(models, simModel) || !strings.Contains(models, `"llama"`) {
			return models
		}
		return ""
	})
	loads := []*load{
		startLoad(t, plain.url(), simModel, 6),
		startLoad(t, reference.url(), simModel, 6),
		startLoad(t, safe.url(), simModel, 3),
		startLoad(t, safe.url(), "llama", 1),
	}
	p.scraped(t, 6, 2)

	t.Run("no alert while all is well", func(t *testing.T) { allIsWell(t, p) })
	t.Run("every rule is evaluated", func(t *testing.T) { checkRules(t, p) })
	t.Run("labels are as they were exposed", func(t *testing.T) { checkLabels(t, p) })

	// Some series there are only when something went wrong: requests that are turned away,
	// answers that break off.
	for _, l := range loads {
		l.tolerant.Store(true)
	}
	post(t, plain.url()+"/busy_threshold", `{"model":"stator-sim","active_decode_blocks_threshold":0}`)
	post(t, vllm.url()+"/sim/fault", `{"fault":"reset:2:5"}`)
	t.Run("every expression has data", func(t *testing.T) { evaluate(t, p) })

	t.Run("alerts when something breaks", func(t *testing.T) {
		sglang.kill()
		reference.kill()
		p.alarmed(t, "StatorEngineDown", safe.addr)
		p.alarmed(t, "StatorDown", reference.addr)
	})
}

// allIsWell sees that there is no alert, not even one that is waiting to fire, when rules
// have been evaluated for some seconds of load. A machine with other things to do may have
// had a reason for one meanwhile.
func allIsWell(t *testing.T, p *prometheus) {
	eventually(t, "there are numbers for some seconds", func() string {
		if n, _ := p.sum(t, "count_over_time((stator:optimization_score > 0)[5m:1s])", time.Now()); n < 5 {
			return fmt.Sprint(n)
		}
		return ""
	})
	eventually(t, "there is no alert", func() string {
		var all []string
		for _, a := range p.alerts(t) {
			if all = append(all, fmt.Sprintf("%s is %s: %s", a.name(), a.State, a.Annotations["summary"])); a.State == "firing" {
				t.Fatal(all)
			}
		}
		return strings.Join(all, "\n")
	})
}

// post sends a JSON document that has to be accepted.
func post(t *testing.T, url, doc string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s: %s", url, resp.Status)
	}
}

// engine starts a simulated engine that looks like another, with its event sockets, and
// returns what a server is told about those.
func engine(t *testing.T, dress string) (*server, string) {
	t.Helper()
	s, ports := startOn(t, 2, func(ports []int) []string {
		return []string{"sim", "--dress", dress, "--events=" + local(ports[0]), "--replay", local(ports[1])}
	})
	return s, fmt.Sprintf(",events=%s,replay=%s", local(ports[0]), local(ports[1]))
}

// unpack writes the files of internal/monitor into a directory.
func unpack(t *testing.T, o monitor.Options) string {
	t.Helper()
	dir(t)
	files, err := monitor.Files(o)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for name, data := range files {
		at := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// evaluate asks for every expression until each has a number.
func evaluate(t *testing.T, p *prometheus) {
	exprs := monitor.Exprs()
	if len(exprs) < 50 {
		t.Fatalf("there are only %d expressions", len(exprs))
	}
	for _, e := range exprs {
		if e.Alert {
			p.ask(t, e.Firing, time.Now()) // is well-formed
		}
	}
	eventually(t, "every expression has data", func() string {
		now := time.Now()
		exprs = slices.DeleteFunc(exprs, func(e monitor.Expr) bool {
			return slices.ContainsFunc(p.ask(t, e.PromQL, now), func(s series) bool {
				return !math.IsNaN(s.last()) && !math.IsInf(s.last(), 0)
			})
		})
		var missing strings.Builder
		for _, e := range exprs {
			fmt.Fprintf(&missing, "\n%s: %s", e.Where, e.PromQL)
		}
		return missing.String()
	})
}

// checkRules sees that Prometheus has every rule and can evaluate each.
func checkRules(t *testing.T, p *prometheus) {
	var data struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Type, Health, LastError string }
		}
	}
	eventually(t, "every rule was evaluated", func() string {
		p.get(t, "/api/v1/rules", nil, &data)
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return r.Name
				}
			}
		}
		return ""
	})
	found := make(map[string]int)
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if found[r.Type]++; r.Health != "ok" {
				t.Errorf("%s: %s: %s: %s", g.Name, r.Name, r.Health, r.LastError)
			}
		}
	}
	want := make(map[string]int)
	for _, e := range monitor.Exprs() {
		switch {
		case e.Alert:
			want["alerting"]++
		case strings.HasPrefix(e.Where, "rule "):
			want["recording"]++
		}
	}
	for kind, n := range want {
		if found[kind] != n {
			t.Errorf("%d %s rules are there, want %d", found[kind], kind, n)
		}
	}
}

// checkLabels sees that no series had a label that Prometheus gives to every target: it
// would have been renamed.
func checkLabels(t *testing.T, p *prometheus) {
	var names []string
	p.get(t, "/api/v1/labels", nil, &names)
	if !slices.Contains(names, "instance") || !slices.Contains(names, "worker_id") {
		t.Errorf("labels: %q", names)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "exported_") {
			t.Errorf("%s: %v", name, p.ask(t, fmt.Sprintf(`count by (__name__, job, %s) ({%s!=""})`, name, name), time.Now()))
		}
	}
}

// alert is one that is pending or fires.
type alert struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
}

func (a alert) name() string { return a.Labels["alertname"] }

func (p *prometheus) alerts(t *testing.T) []alert {
	t.Helper()
	var data struct{ Alerts []alert }
	p.get(t, "/api/v1/alerts", nil, &data)
	return data.Alerts
}

// alarmed waits until there is an alert about an instance.
func (p *prometheus) alarmed(t *testing.T, name, instance string) {
	t.Helper()
	eventually(t, name+" for "+instance, func() string {
		all := p.alerts(t)
		for _, a := range all {
			if a.name() != name || a.Labels["instance"] != instance {
				continue
			}
			if a.Labels["severity"] == "" || a.Annotations["summary"] == "" || strings.Contains(a.Annotations["summary"], "{{") ||
				a.Labels["worker_id"] != "" && !strings.Contains(a.Annotations["summary"], "(http://") {
				t.Errorf("%s: %+v", name, a)
			}
			return ""
		}
		return fmt.Sprintf("%v", all)
	})
}
