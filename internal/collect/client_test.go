package collect

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAnswer(t *testing.T) {
	const ok = `{"status":"success","data":{"resultType":`
	for _, c := range []struct {
		name, body string
		want       *Answer
		err        string
	}{
		{"vector", ok + `"vector","result":[{"metric":{"__name__":"up"},"value":[1435781451.781,"1"]}]}}`,
			&Answer{Series: []Series{{Labels: map[string]string{"__name__": "up"}, Samples: []Sample{{1435781451.781, 1}}}}}, ""},
		{"matrix", ok + `"matrix","result":[{"metric":{},"values":[[1,"1"],[16,"-2.5e3"]]}]}}`,
			&Answer{Series: []Series{{Labels: map[string]string{}, Samples: []Sample{{1, 1}, {16, -2500}}}}}, ""},
		{"scalar", ok + `"scalar","result":[1,"42"]}}`, &Answer{Series: []Series{{Samples: []Sample{{1, 42}}}}}, ""},
		{"nothing", ok + `"vector","result":[]}}`, &Answer{}, ""},
		{"warnings and infos", `{"status":"success","warnings":["a"],"infos":["b"],"data":{"resultType":"vector","result":[]}}`,
			&Answer{Warnings: []string{"a", "b"}}, ""},
		{"native histogram", ok + `"vector","result":[{"metric":{},"histogram":[1,{"count":"3","sum":"4"}]}]}}`,
			&Answer{Series: []Series{{Labels: map[string]string{}, Unread: 1}}}, ""},
		{"native histograms", ok + `"matrix","result":[{"metric":{},"histograms":[[1,{"count":"3"}]]}]}}`,
			&Answer{Series: []Series{{Labels: map[string]string{}, Unread: 1}}}, ""},
		{"values that are none", ok + `"matrix","result":[{"values":[[1,2],["1","2"],[1],[1,"2","3"],null,{},[1,"x"],[1,""],[1,"0x"]]}]}}`,
			&Answer{Series: []Series{{Unread: 9}}}, ""},
		{"error", `{"status":"error","errorType":"bad_data","error":"parse error"}`, nil, "bad_data: parse error"},
		{"error without words", `{"status":"error"}`, nil, "Prometheus reports an error without saying which"},
		{"no data", `{"status":"success"}`, nil, "expected data in the answer, found none"},
		{"data of another type", `{"status":"success","data":[]}`, nil, "data: expected the result of a query: "},
		{"string", ok + `"string","result":[1,"a"]}}`, nil, `resultType: expected vector, matrix or scalar, got "string"`},
		{"no result", ok + `"vector"}}`, nil, "result: expected a list of series: "},
		{"labels that are none", ok + `"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}}`, nil, "result: expected a list of series: "},
		{"empty", "", nil, "expected the JSON of Prometheus: "},
		{"two", `{"status":"success","data":{}} {}`, nil, "expected the JSON of Prometheus: "},
		{"a web page", "<html>", nil, "expected the JSON of Prometheus: "},
		{"another API", `{"status":200,"data":[]}`, nil, "expected the JSON of Prometheus: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseAnswer([]byte(c.body))
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseAnswerNotFinite(t *testing.T) {
	body := `{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"NaN"],[2,"+Inf"],[3,"-Inf"],[4,"1e999"]]}]}}`
	a, err := parseAnswer([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range a.Series[0].Samples {
		got = append(got, fmt.Sprint(s.Value))
	}
	if diff := cmp.Diff([]string{"NaN", "+Inf", "-Inf", "+Inf"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":` + vector("1", "NaN") + `}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":` + matrix([]string{"1", "+Inf"}, nil) + `}}`))
	f.Add([]byte(`{"status":"success","warnings":["a"],"data":{"resultType":"scalar","result":[1,"2"]}}`))
	f.Add([]byte(`{"status":"error","errorType":"bad_data","error":"x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body)
		if (a == nil) == (err == nil) {
			t.Fatalf("got %v and %v", a, err)
		}
		if err != nil {
			if len(err.Error()) > 4*maxMessage {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		// Whatever it was, there are results that can be written.
		c := collection{cfg: &Config{}, results: &Results{}}
		v, _, _ := c.one(a, nil)
		r := &Results{Metrics: []Metric{{Field: TTFTP95, Value: v}}, Warnings: a.Warnings, Custom: []Custom{{Name: "q"}}}
		c.take(&r.Custom[0], a)
		if text, err := json.Marshal(r); err != nil || !json.Valid(text) {
			t.Fatalf("%s: %v", text, err)
		}
		var out strings.Builder
		if err := r.WriteText(&out, Look{}); err != nil || strings.ContainsRune(out.String(), '\x1b') {
			t.Fatalf("%q: %v", out.String(), err)
		}
	})
}

// roundTrip is a server without a socket.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func clientOf(t *testing.T, f roundTrip) *Client {
	t.Helper()
	c, err := NewClient(Options{URL: "http://prom"})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = f
	return c
}

func response(status int, kind string, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body)}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestHostileServers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer roundTrip
		want   string
	}{
		{"huge", func(*http.Request) (*http.Response, error) { return response(200, "application/json", endless{}), nil },
			"expected an answer of at most 16 MiB"},
		{"a web page", func(*http.Request) (*http.Response, error) {
			return response(200, "text/html; charset=utf-8", strings.NewReader("<!doctype html>")), nil
		}, "expected the JSON of Prometheus, got a web page: is this its base URL?"},
		{"an error page", func(*http.Request) (*http.Response, error) {
			return response(502, "text/html", strings.NewReader("<h1>oh</h1>")), nil
		}, "status 502 Bad Gateway"},
		{"an error in words", func(*http.Request) (*http.Response, error) {
			return response(502, "text/plain; charset=utf-8", strings.NewReader("\nno upstream\nand more")), nil
		}, "status 502 Bad Gateway: no upstream"},
		{"a server of TLS", func(*http.Request) (*http.Response, error) {
			return response(400, "", strings.NewReader("Client sent an HTTP request to an HTTPS server.\n")), nil
		}, "status 400 Bad Request: Client sent an HTTP request to an HTTPS server."},
		{"not found", func(*http.Request) (*http.Response, error) {
			return response(404, "text/plain", strings.NewReader("404 page not found")), nil
		}, "status 404 Not Found"},
		{"a long error", func(*http.Request) (*http.Response, error) {
			return response(400, "application/json", strings.NewReader(`{"error":"`+strings.Repeat("x", 1<<20)+`"}`)), nil
		}, "status 400 Bad Request: " + strings.Repeat("x", maxMessage) + "…"},
		{"cut", func(*http.Request) (*http.Response, error) {
			return response(200, "application/json", io.MultiReader(strings.NewReader(`{"sta`), brokenBody{})), nil
		}, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := clientOf(t, c.answer).Query(t.Context(), "up", now)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		cfg := DefaultConfig()
		r := Metrics(t.Context(), now, c, &cfg)
		if diff := cmp.Diff([]string{"no answer from http://prom: no answer within 30s"}, r.Errors); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("took %v, want 30s", d)
		}
		began = time.Now()
		if h := c.Health(t.Context(), ""); h.Prometheus || h.Frontend || time.Since(began) != 40*time.Second {
			t.Errorf("got %+v after %v", h, time.Since(began))
		}
	})
}

func TestCancelledCollection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cfg := DefaultConfig()
	r := Metrics(ctx, now, newProm(t).client(), &cfg)
	if len(r.Errors) != 1 || !strings.HasSuffix(r.Errors[0], "context canceled") {
		t.Errorf("errors %q", r.Errors)
	}
}

func TestAuthentication(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("s3cret\n")
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		if r.URL.User != nil || strings.Contains(r.RequestURI, "hunter2") || r.URL.Path != "/prefix/api/v1/query" {
			t.Errorf("asked for %s", r.RequestURI)
		}
		http.Error(w, "{}", http.StatusForbidden)
	}))
	defer srv.Close()
	withUser := strings.Replace(srv.URL, "http://", "http://me:hunter2@", 1)
	for _, c := range []struct {
		name  string
		o     Options
		want  string
		shown string
	}{
		{"none", Options{URL: srv.URL + "/prefix//"}, "", srv.URL + "/prefix"},
		{"in the URL", Options{URL: withUser + "/prefix"}, "Basic bWU6aHVudGVyMg==", srv.URL + "/prefix"},
		{"beside it", Options{URL: srv.URL + "/prefix", User: "me", Password: "hunter2"}, "Basic bWU6aHVudGVyMg==", srv.URL + "/prefix"},
		{"token", Options{URL: srv.URL + "/prefix", TokenFile: token}, "Bearer s3cret", srv.URL + "/prefix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := NewClient(c.o)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Query(t.Context(), "up", now)
			var refused *QueryError
			if !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
				t.Fatalf("got error %v", err)
			}
			if got != c.want || client.URL() != c.shown {
				t.Errorf("got %q from %s, want %q from %s", got, client.URL(), c.want, c.shown)
			}
			for _, secret := range []string{"hunter2", "s3cret", "bWU6"} {
				if strings.Contains(err.Error()+client.URL(), secret) {
					t.Errorf("%q is shown: %v, %s", secret, err, client.URL())
				}
			}
		})
	}
	t.Run("a token that changes", func(t *testing.T) {
		client, err := NewClient(Options{URL: srv.URL + "/prefix", TokenFile: token})
		if err != nil {
			t.Fatal(err)
		}
		write("next")
		_, _ = client.Query(t.Context(), "up", now)
		if got != "Bearer next" {
			t.Errorf("got %q", got)
		}
		for _, text := range []string{"", "a\nb", "a b"} {
			write(text)
			if _, err := client.Query(t.Context(), "up", now); err == nil || err.Error() != "bearer token: expected one token in "+token {
				t.Errorf("%q: got %v", text, err)
			}
		}
	})
	if _, err := NewClient(Options{URL: srv.URL, User: "me", TokenFile: token}); err == nil {
		t.Error("a user and a token were taken")
	}
}

// TestRedirect has a server that sends its clients elsewhere. Who does not say who they are
// may go anywhere; a password or a token stays where it is.
func TestRedirect(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if got := r.Header.Get("Authorization"); got != "" {
			t.Errorf("another server got %q", got)
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer elsewhere.Close()
	to := ""
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/there/") {
			http.Redirect(w, r, to+"/there"+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		if r.Header.Get("Authorization") == "" {
			t.Error("the same server is not told who asks")
		}
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	refused := "it redirects to " + elsewhere.URL + ", which is not sent the password or token: is that its base URL?"
	for _, c := range []struct {
		name  string
		o     Options
		to    string
		want  string // the error
		asked int    // requests to the other server
	}{
		{"nobody, another port", Options{URL: plain.URL}, elsewhere.URL, "", 1},
		{"token, another port", Options{URL: plain.URL, TokenFile: token}, elsewhere.URL, refused, 0},
		{"password, another port", Options{URL: plain.URL, User: "me", Password: "hunter2"}, elsewhere.URL, refused, 0},
		{"password of the URL, another port", Options{URL: strings.Replace(plain.URL, "//", "//me:hunter2@", 1)}, elsewhere.URL, refused, 0},
		{"token, without TLS", Options{URL: secure.URL, Insecure: true, TokenFile: token}, elsewhere.URL, refused, 0},
		{"token, same server", Options{URL: plain.URL, TokenFile: token}, "", "", 0},
		{"token, same server by its whole URL", Options{URL: secure.URL, Insecure: true, TokenFile: token}, secure.URL, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, err := NewClient(c.o)
			if err != nil {
				t.Fatal(err)
			}
			to, asked = c.to, 0
			_, err = client.Query(t.Context(), "up", now)
			if got := message(err); got != c.want || asked != c.asked {
				t.Errorf("got error %q after %d requests, want %q after %d", got, asked, c.want, c.asked)
			}
		})
	}
	t.Run("in circles", func(t *testing.T) {
		client := clientOf(t, func(r *http.Request) (*http.Response, error) {
			resp := response(307, "", strings.NewReader(""))
			resp.Header.Set("Location", r.URL.String())
			return resp, nil
		})
		if _, err := client.Query(t.Context(), "up", now); message(err) != "stopped after 10 redirects" {
			t.Errorf("got %v", err)
		}
	})
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOrigin tells servers apart, and not the ways to write one.
func TestOrigin(t *testing.T) {
	for raw, want := range map[string]string{
		"http://Prom/a":          "http://prom:80",
		"http://me:x@prom:80?q":  "http://prom:80",
		"https://prom":           "https://prom:443",
		"https://prom:80":        "https://prom:80",
		"http://[::1]:9090/path": "http://[::1]:9090",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got := origin(u); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer srv.Close()
	srv.Config.ErrorLog = nil
	ask := func(o Options) error {
		o.URL = srv.URL
		c, err := NewClient(o)
		if err != nil {
			return err
		}
		_, err = c.Query(t.Context(), "up", now)
		return err
	}
	if err := ask(Options{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("unknown certificate: got %v", err)
	}
	if err := ask(Options{Insecure: true}); err != nil {
		t.Errorf("insecure: %v", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := ask(Options{CA: ca}); err != nil {
		t.Errorf("known certificate: %v", err)
	}
	if err := ask(Options{CA: []byte("nothing")}); err == nil || err.Error() != "expected certificates in PEM, found none" {
		t.Errorf("no certificate: got %v", err)
	}
}

func TestHealth(t *testing.T) {
	up := func(job, instance, value string) string {
		return fmt.Sprintf(`{"metric":{"job":%q,"instance":%q},"value":[1,%q]}`, job, instance, value)
	}
	list := func(rows ...string) string { return "[" + strings.Join(rows, ",") + "]" }
	for _, c := range []struct {
		name    string
		compat  Compat
		targets string
		want    Health
	}{
		{"nothing scraped", "", "[]", Health{true, false, false, []Target{}}},
		{"frontend", "", list(up("dynamo-frontend", "a:1", "1")), Health{true, true, false, []Target{}}},
		{"one worker of two", "", list(up("dynamo-worker", "b:2", "0"), up("dynamo-worker", "a:2", "1")),
			Health{true, false, true, []Target{{"dynamo-worker", "b:2"}}}},
		{"stator is both", "", list(up("stator", "a:1", "1")), Health{true, true, true, []Target{}}},
		{"all down", "", list(up("stator", "b:1", "0"), up("stator", "a:1", "0")),
			Health{true, false, false, []Target{{"stator", "a:1"}, {"stator", "b:1"}}}},
		{"nat: any series", NAT, list(up("dynamo", "a:1", "0")), Health{true, true, true, []Target{{"dynamo", "a:1"}}}},
		{"nat: none", NAT, "[]", Health{true, false, false, []Target{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProm(t)
			query := targetsQuery
			if c.compat == NAT {
				query = `up{job=~".*dynamo.*"}`
			}
			p.instant[query] = c.targets
			if diff := cmp.Diff(c.want, p.client().Health(t.Context(), c.compat)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			p.status["/-/healthy"] = http.StatusServiceUnavailable
			if p.client().Health(t.Context(), c.compat).Prometheus {
				t.Error("healthy with status 503")
			}
		})
	}
}
