package promtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// dir returns the directory with Prometheus. It skips the test if there is none.
func dir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("STATOR_PROMETHEUS")
	if dir == "" {
		t.Skip("not tried with a real Prometheus: set STATOR_PROMETHEUS=$(scripts/prometheus/setup.sh)")
	}
	return dir
}

// prometheus is a running server.
type prometheus struct {
	*process
	url string
}

// listening is what Prometheus says when it has a port, in its second and third version.
var listening = regexp.MustCompile(`msg="Listening on".* address=(\S+)`)

// scrapeWith starts a Prometheus with a configuration.
func scrapeWith(t *testing.T, config string) *prometheus {
	t.Helper()
	at := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(at, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return scrapeFrom(t, at)
}

// scrapeFrom starts a Prometheus with a configuration file, and waits until it answers.
func scrapeFrom(t *testing.T, config string) *prometheus {
	t.Helper()
	p := &prometheus{process: launch(t, filepath.Join(dir(t), "bin", "prometheus"), nil,
		"--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address=127.0.0.1:0")}
	found, err := p.said(listening)
	if err != nil {
		t.Fatal(err)
	}
	p.url = "http://" + found[1]
	eventually(t, "Prometheus is ready", func() string {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	return p
}

// series is one of an answer: its labels and its samples, one if it was asked for at an
// instant.
type series struct {
	labels  map[string]string
	samples []sample
}

type sample struct{ at, value float64 }

func (s series) last() float64 { return s.samples[len(s.samples)-1].value }

// ask returns the series that an expression has at a time.
func (p *prometheus) ask(t *testing.T, promql string, at time.Time) []series {
	t.Helper()
	return p.result(t, "/api/v1/query", url.Values{"query": {promql}, "time": {seconds(at)}})
}

// askRange returns the series that an expression has at every step of a time.
func (p *prometheus) askRange(t *testing.T, promql string, start, end time.Time, step string) []series {
	t.Helper()
	return p.result(t, "/api/v1/query_range", url.Values{"query": {promql}, "start": {seconds(start)}, "end": {seconds(end)}, "step": {step}})
}

// sum returns the sum of an expression over its series, and how many there are.
func (p *prometheus) sum(t *testing.T, promql string, at time.Time) (total float64, n int) {
	t.Helper()
	for _, s := range p.ask(t, promql, at) {
		total += s.last()
		n++
	}
	return total, n
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

func (p *prometheus) result(t *testing.T, path string, params url.Values) []series {
	t.Helper()
	var data struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any
			Values [][2]any
		}
	}
	p.get(t, path, params, &data)
	out := make([]series, 0, len(data.Result))
	for _, r := range data.Result {
		if data.ResultType == "vector" {
			r.Values = [][2]any{r.Value}
		}
		s := series{labels: r.Metric}
		for _, pair := range r.Values {
			at, _ := pair[0].(float64)
			text, _ := pair[1].(string)
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatalf("%s: %v", params.Get("query"), err)
			}
			s.samples = append(s.samples, sample{at, v})
		}
		out = append(out, s)
	}
	return out
}

// get reads the data of an answer of Prometheus.
func (p *prometheus) get(t *testing.T, path string, params url.Values, data any) {
	t.Helper()
	resp, err := http.Get(p.url + path + "?" + params.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", path, params.Get("query"), resp.Status, body)
	}
	envelope := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(body, &envelope); err != nil || envelope.Status != "success" {
		t.Fatalf("%s %s: %v: %s", path, params.Get("query"), err, body)
	}
}

// scraped waits until all of a number of targets answer, each at least so many times.
func (p *prometheus) scraped(t *testing.T, targets, times int) {
	t.Helper()
	query := fmt.Sprintf("count(sum_over_time(up[5m]) >= %d)", times)
	eventually(t, fmt.Sprintf("%d targets are scraped", targets), func() string {
		if n, _ := p.sum(t, query, time.Now()); int(n) != targets {
			return fmt.Sprintf("%v", p.ask(t, "up", time.Now()))
		}
		return ""
	})
}

// near reports whether two numbers are the same but for what is lost in computing them.
func near(a, b float64) bool {
	return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1)
}
