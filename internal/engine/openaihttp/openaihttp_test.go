package openaihttp

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/enginetest"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

func open(t *testing.T, url string) engine.Engine {
	t.Helper()
	e, err := New(Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestContract(t *testing.T) { enginetest.Run(t, open) }

// TestSimulated runs the suite for servers that run.
func TestSimulated(t *testing.T) {
	sim, err := simserver.New(simserver.Config{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(srv.Close)
	enginetest.Dressed(t, open, srv.URL)
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"http://GPU1:8000":        "http://gpu1:8000",
		"http://gpu1:8000/":       "http://gpu1:8000",
		"http://gpu1:8000/v1":     "http://gpu1:8000",
		"http://gpu1:8000/v1/":    "http://gpu1:8000",
		" HTTP://gpu1:80/ ":       "http://gpu1",
		"https://gpu1:443/llm/v1": "https://gpu1/llm",
		"http://[::1]:8000/v1":    "http://[::1]:8000",
	} {
		u, err := Normalize(in)
		if err != nil || u.String() != want {
			t.Errorf("Normalize(%q) = %v, %v, want %s", in, u, err, want)
		}
	}
	for _, bad := range []string{"", "gpu1:8000", "ftp://gpu1", "http://", "http://gpu1?x=1", "http://me:secret@gpu1", "http://gpu1/%zz"} {
		if u, err := Normalize(bad); err == nil {
			t.Errorf("Normalize(%q) = %s, want an error", bad, u)
		}
	}
}

func TestIDFollowsTheNormalizedURL(t *testing.T) {
	a, err := ID("http://GPU1:8000/v1")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := ID("http://gpu1:8000")
	c, _ := ID("http://gpu2:8000")
	if a != b || a == c || a == 0 || a >= 1<<53 {
		t.Errorf("ids %d %d %d", a, b, c)
	}
	if want := uint64(3407191016382907); uint64(a) != want {
		t.Errorf("the id of http://gpu1:8000 is %d, was %d: dashboards and pins know workers by it", a, want)
	}
}

func TestIdentify(t *testing.T) {
	sim, err := simserver.New(simserver.Config{Model: "m", Ranks: 2, ContextLength: 100})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	defer srv.Close()
	got, err := open(t, srv.URL).Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []engine.Model{{ID: "m", Tokenizer: qwen3.Fingerprint, ContextLength: 100, BlockSize: 16, TotalBlocks: 16384, MaxBatchedTokens: 8192, Ranks: 2}}
	if diff := cmp.Diff(want, got.Models); diff != "" || got.Kind != "sim" {
		t.Errorf("kind %s, models (-want +got):\n%s", got.Kind, diff)
	}
}

func TestIdentifyOtherServers(t *testing.T) {
	rows := []struct {
		name, body string
		status     int
		want       []engine.Model
	}{
		{"vLLM", `{"object":"list","data":[{"id":"a/b","object":"model","owned_by":"vllm","max_model_len":4096,"parent":null},{"id":"lora","max_model_len":null,"parent":"a/b"}]}`, 200,
			[]engine.Model{{ID: "a/b", ContextLength: 4096}, {ID: "lora", Parent: "a/b", ContextLength: 4096}}},
		{"no models", `{"data":[]}`, 200, nil},
		{"not JSON", `<html>`, 200, nil},
		{"an error", `{}`, 500, nil},
	}
	for _, row := range rows {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(row.status)
			io.WriteString(w, row.body)
		}))
		info, err := open(t, srv.URL).Identify(t.Context())
		srv.Close()
		if row.want == nil {
			if err == nil {
				t.Errorf("%s: no error", row.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if diff := cmp.Diff(row.want, info.Models); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestProbeWithoutAHealthRoute(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/v1/models" {
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	if err := open(t, srv.URL+"/base").Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if err := open(t, srv.URL+"/other").Probe(t.Context()); err == nil {
		t.Error("a server with neither route: no error")
	}
}

// TestUntrustedCertificate: a handshake that fails is a failure to connect, since
// nothing of the request was sent.
func TestUntrustedCertificate(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	e := open(t, srv.URL)
	defer e.Close()
	o, _ := openai.ParseObject([]byte(`{}`))
	_, err := e.Open(t.Context(), engine.Target{Worker: 1}, &engine.Request{Path: "/v1/completions", Body: &o})
	if got := engine.FailureOf(t.Context(), err); got != engine.FailConnect {
		t.Errorf("%v is a failure of kind %s, want connect", err, got)
	}
}

func TestRankAndKeyHeaders(t *testing.T) {
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer srv.Close()
	e, err := New(Config{URL: srv.URL, APIKey: "engine-key"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o, _ := openai.ParseObject([]byte(`{}`))
	send := func(target engine.Target, ranked bool) {
		resp, err := e.Open(t.Context(), target, &engine.Request{Path: "/v1/completions", Body: &o, Ranked: ranked,
			Header: http.Header{"Authorization": {"Bearer client-key"}}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	send(engine.Target{Worker: 1, Rank: 0}, true)
	if got.Get(rankHeader) != "0" || got.Get("Authorization") != "Bearer engine-key" {
		t.Errorf("ranked: %v", got)
	}
	send(engine.Target{Worker: 1, Rank: 0}, false)
	if _, ok := got[rankHeader]; ok {
		t.Errorf("a worker with one rank was told its rank: %v", got)
	}
}
