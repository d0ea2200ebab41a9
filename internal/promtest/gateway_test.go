package promtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// gateway stands in front of a Prometheus. It sees what is asked, refuses what it should,
// and has everything that is asked for now be of one moment. The same question always has
// the same answer, byte by byte: Prometheus gives the quantiles of several histograms in
// another order each time.
type gateway struct {
	*prometheus // that is asked through the gateway

	at     time.Time // what now is
	mu     sync.Mutex
	seen   []question
	broken map[question]bool
	known  map[string]answer // by path and parameters
}

// question is what somebody asks: an expression at an instant, or over a range if it has a
// step.
type question struct{ promql, start, end, step string }

type answer struct {
	status int
	kind   string
	body   []byte
}

// gatewayTo starts a gateway that refuses with 500 what is in broken, at whatever time.
func gatewayTo(t *testing.T, p *prometheus, at time.Time, broken ...question) *gateway {
	t.Helper()
	g := &gateway{at: at, broken: make(map[question]bool), known: make(map[string]answer)}
	for _, q := range broken {
		g.broken[q] = true
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		params := r.URL.Query()
		if g.note(params) {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		if r.URL.Path == "/api/v1/query" && !params.Has("time") {
			params.Set("time", seconds(g.at))
		}
		a, err := g.answer(p.url, r.URL.Path, params)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", a.kind)
		w.WriteHeader(a.status)
		w.Write(a.body)
	}))
	t.Cleanup(h.Close)
	g.prometheus = &prometheus{process: p.process, url: h.URL}
	return g
}

// note remembers a question and reports whether it is to be refused.
func (g *gateway) note(params url.Values) bool {
	q := question{promql: params.Get("query"), start: params.Get("start"), end: params.Get("end"), step: params.Get("step")}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, q)
	return g.broken[question{promql: q.promql, step: q.step}]
}

func (g *gateway) answer(base, path string, params url.Values) (answer, error) {
	at := path + "?" + params.Encode()
	g.mu.Lock()
	defer g.mu.Unlock()
	if a, ok := g.known[at]; ok {
		return a, nil
	}
	resp, err := http.Get(base + at)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{resp.StatusCode, resp.Header.Get("Content-Type"), body}
	g.known[at] = a
	return a, nil
}

// asked returns what was asked so far, in order.
func (g *gateway) asked() []question {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]question(nil), g.seen...)
}
