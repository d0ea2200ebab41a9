package collect

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// golden compares what was written with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// now is when tests collect.
var now = time.Unix(1_700_000_000, 0).UTC()

// prom answers as Prometheus does: with what it was told for a query, and with no series for
// any other.
type prom struct {
	t       *testing.T
	url     string
	names   []string          // series that exist; nil for all
	instant map[string]string // by query: the result, or all of the answer if it begins with !
	ranged  map[string]string
	status  map[string]int // of HTTP, by path or by path and query; 200 if not there

	mu       sync.Mutex
	requests []string // path and query of each
	params   []url.Values
}

func newProm(t *testing.T) *prom {
	p := &prom{t: t, instant: make(map[string]string), ranged: make(map[string]string), status: make(map[string]int)}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

func (p *prom) client() *Client {
	p.t.Helper()
	c, err := NewClient(Options{URL: p.url})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *prom) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	params := req.URL.Query()
	query := params.Get("query")
	p.mu.Lock()
	p.requests = append(p.requests, strings.TrimSpace(req.URL.Path+" "+query))
	p.params = append(p.params, params)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	for _, key := range []string{req.URL.Path, req.URL.Path + " " + query} {
		if s := p.status[key]; s != 0 {
			w.WriteHeader(s)
			fmt.Fprintf(w, `{"status":"error","errorType":"internal","error":"it is %d"}`, s)
			return
		}
	}
	result, kind := "", ""
	switch req.URL.Path {
	case "/-/healthy":
		fmt.Fprintln(w, "Prometheus Server is Healthy.")
		return
	case "/api/v1/label/__name__/values":
		match := strings.TrimSuffix(strings.TrimPrefix(params.Get("match[]"), `{__name__=~"`), `"}`)
		found := []string{}
		for name := range strings.SplitSeq(match, "|") {
			if p.names == nil || slices.Contains(p.names, name) {
				found = append(found, name)
			}
		}
		data, err := json.Marshal(found)
		if err != nil {
			p.t.Error(err)
		}
		fmt.Fprintf(w, `{"status":"success","data":%s}`, data)
		return
	case "/api/v1/query":
		result, kind = p.instant[query], "vector"
	case "/api/v1/query_range":
		result, kind = p.ranged[query], "matrix"
	default:
		http.NotFound(w, req)
		return
	}
	switch {
	case result == "":
		result = "[]"
	case result[0] == '!':
		fmt.Fprint(w, result[1:])
		return
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, result)
}

// asked returns the requests whose path begins with the prefix.
func (p *prom) asked(prefix string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, r := range p.requests {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

// vector is the result with a series for each value, as Prometheus writes them.
func vector(values ...string) string {
	var rows []string
	for i, v := range values {
		rows = append(rows, fmt.Sprintf(`{"metric":{"worker_id":"%d"},"value":[1700000000.123,%q]}`, i, v))
	}
	return "[" + strings.Join(rows, ",") + "]"
}

// matrix is the result with a series for each list of values.
func matrix(series ...[]string) string {
	var rows []string
	for i, values := range series {
		var samples []string
		for j, v := range values {
			samples = append(samples, fmt.Sprintf(`[%d,%q]`, 1_700_000_000+15*j, v))
		}
		rows = append(rows, fmt.Sprintf(`{"metric":{"worker_id":"%d"},"values":[%s]}`, i, strings.Join(samples, ",")))
	}
	return "[" + strings.Join(rows, ",") + "]"
}

// f returns a number that is there.
func f(v float64) *float64 { return &v }

// only returns a configuration that collects little beside the fields of one group.
func only(g Group) Config {
	c := DefaultConfig()
	c.CollectKVCache = g == GroupKVCache
	c.CollectTTFT = g == GroupTTFT
	c.CollectITL = g == GroupITL
	c.CollectInflight = g == GroupInflight
	c.CollectThroughput = g == GroupThroughput
	c.CollectTokenThroughput = g == GroupTokenThroughput
	return c
}
