package hintproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestVia(t *testing.T) {
	got := make(chan []string, 1)
	p := start(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header["Via"] }, nil)
	for _, tt := range []struct {
		name, header string
		protocol     func(*http.Protocols)
		want         string
	}{
		{"HTTP/1.1", "", func(p *http.Protocols) { p.SetHTTP1(true) }, `^1\.1 stator-hints-[0-9a-f]{16}$`},
		{"HTTP/2", "", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, `^2 stator-hints-[0-9a-f]{16}$`},
		{"another proxy", "1.0 fred, 1.1 stator-hints-0123456789abcdef", func(p *http.Protocols) { p.SetHTTP1(true) },
			`^1\.0 fred, 1\.1 stator-hints-0123456789abcdef, 1\.1 stator-hints-[0-9a-f]{16}$`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := newClient(t)
			tr := client.Transport.(*http.Transport)
			tr.Protocols = new(http.Protocols)
			tt.protocol(tr.Protocols)
			req, err := http.NewRequest(http.MethodGet, p.url+"/v1/models", nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				req.Header.Set("Via", tt.header)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if via := strings.Join(<-got, ", "); !regexp.MustCompile(tt.want).MatchString(via) {
				t.Errorf("Via: %s, want %s", via, tt.want)
			}
		})
	}
}

// TestLoop has proxies in a circle. Each stands behind a server that gives up after a few
// requests.
func TestLoop(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			urls := make([]string, n)
			proxies := make([]*running, n)
			asked := make(chan bool, 10)
			for i := range n {
				front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					select {
					case asked <- true:
						proxies[i].ServeHTTP(w, r)
					default:
						http.Error(w, "enough", http.StatusTeapot)
					}
				}))
				defer front.Close()
				urls[i] = front.URL
			}
			for i := range n {
				proxies[i] = startBefore(t, urls[(i+1)%n], nil)
			}
			for _, path := range []string{"/v1/chat/completions", "/v1/files"} {
				resp, err := newClient(t).Post(urls[0]+path, "application/json", strings.NewReader(`{"model":"m"}`))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				want := `{"error":{"message":"the request came back to the proxy that passed it on: --to, ` + urls[1%n] + `, leads to the proxy itself","type":"server_error","param":null,"code":"engine_error"}}`
				if err != nil || resp.StatusCode != http.StatusLoopDetected || string(body) != want {
					t.Errorf("%s: %d %s, %v, want 508 %s", path, resp.StatusCode, body, err, want)
				}
			}
			if s := proxies[0].Stats(); s.Looped != 2 || s.UpstreamErrors != 0 {
				t.Errorf("stats: %+v", s)
			}
			if log := proxies[0].logged.String(); strings.Count(log, "level=ERROR msg=\"the request came back to the proxy") != 1 {
				t.Errorf("log: %s", log)
			}
		})
	}
}
