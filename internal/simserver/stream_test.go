package simserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/stator-ai/stator/internal/simengine"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// TestTranscripts sends the request of each transcript and compares the response
// byte for byte.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			synctest.Test(t, func(t *testing.T) {
				_, client := serve(t, newServer(t, Config{Seed: 1}))
				req, _ := http.NewRequest("POST", "http://sim"+strings.TrimSpace(string(ar.Comment)), bytes.NewReader(ar.Files[0].Data))
				req.Header.Set("X-Request-Id", "11111111-1111-4111-8111-111111111111")
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err = io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
			})
			got = append(bytes.TrimSuffix(got, []byte("\n\n")), '\n')
			if *rewrite {
				ar.Files = append(ar.Files[:1], txtar.File{Name: "response", Data: got})
				if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(ar.Files[1].Data), "\n"), strings.Split(string(got), "\n")); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

// arrivals reads the events of a stream and returns when each came.
func arrivals(t *testing.T, body io.Reader, start time.Time) []time.Duration {
	t.Helper()
	var out []time.Duration
	sc := bufio.NewScanner(body)
	for sc.Scan() {
		if strings.HasPrefix(sc.Text(), "data: ") {
			out = append(out, time.Since(start))
		}
	}
	if err := sc.Err(); err != nil {
		t.Error(err)
	}
	return out
}

func TestPace(t *testing.T) {
	const ms = time.Millisecond
	post := func(t *testing.T, client *http.Client, body string) (*http.Response, time.Time) {
		t.Helper()
		start := time.Now()
		resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp, start
	}
	for _, tc := range []struct {
		name      string
		ttft, itl time.Duration
		body      string
		want      []time.Duration // of each event, or of the body
	}{
		{"stream", 120 * ms, 15 * ms, `{"prompt":"x","max_tokens":4,"stream":true}`, []time.Duration{120 * ms, 135 * ms, 150 * ms, 165 * ms, 165 * ms}},
		{"usage comes with the last token", 120 * ms, 15 * ms, `{"prompt":"x","max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}`, []time.Duration{120 * ms, 135 * ms, 135 * ms, 135 * ms}},
		{"choices go side by side", 10 * ms, 5 * ms, `{"prompt":["x","y"],"max_tokens":2,"stream":true}`, []time.Duration{10 * ms, 10 * ms, 15 * ms, 15 * ms, 15 * ms}},
		{"no first wait", 0, 5 * ms, `{"prompt":"x","max_tokens":3,"stream":true}`, []time.Duration{0, 5 * ms, 10 * ms, 10 * ms}},
		{"first wait alone", 7 * ms, 0, `{"prompt":"x","max_tokens":2,"stream":true}`, []time.Duration{7 * ms, 7 * ms, 7 * ms}},
		{"instant", 0, 0, `{"prompt":"x","max_tokens":2,"stream":true}`, []time.Duration{0, 0, 0}},
		{"unary", 120 * ms, 15 * ms, `{"prompt":"x","max_tokens":4}`, []time.Duration{165 * ms}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, client := serve(t, newServer(t, Config{TTFT: tc.ttft, ITL: tc.itl}))
				resp, start := post(t, client, tc.body)
				var got []time.Duration
				if strings.Contains(tc.body, "stream") {
					if since := time.Since(start); since != 0 {
						t.Errorf("the header came after %v", since)
					}
					got = arrivals(t, resp.Body, start)
				} else {
					io.Copy(io.Discard, resp.Body)
					got = []time.Duration{time.Since(start)}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestDisconnect(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		body string
	}{
		{"before the first token", Config{TTFT: time.Hour}, `{"prompt":"x","stream":true}`},
		{"between tokens", Config{ITL: time.Hour}, `{"prompt":"x","stream":true}`},
		{"instant, client does not read", Config{}, `{"prompt":"x","stream":true,"max_tokens":30000,"ignore_eos":true}`},
		{"unary", Config{TTFT: time.Hour}, `{"prompt":"x"}`},
		{"modelled, in the first pass", modelled(Config{}, time.Hour, 0), `{"prompt":"x","stream":true}`},
		{"modelled, between tokens", modelled(Config{}, 0, time.Hour), `{"prompt":"x","stream":true}`},
		{"modelled, client does not read", modelled(Config{}, 0, 0), `{"prompt":"x","stream":true,"max_tokens":30000,"ignore_eos":true}`},
		{"modelled, several choices", modelled(Config{}, 0, time.Hour), `{"prompt":["x","y"],"n":2,"stream":true}`},
		{"modelled, unary", modelled(Config{}, 0, time.Hour), `{"prompt":"x"}`},
		{"virtual", Config{Clock: new(Clock), Engine: &simengine.Config{}}, `{"prompt":"x"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, tc.cfg)
				_, client := serve(t, s)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://sim/v1/completions", strings.NewReader(tc.body))
				gone := make(chan error, 1)
				go func() {
					resp, err := client.Do(req)
					if err == nil {
						<-ctx.Done()
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					gone <- err
				}()
				synctest.Wait()
				if n := s.Inflight(); n != 1 {
					t.Fatalf("%d requests in flight, want 1", n)
				}
				start := time.Now()
				cancel()
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Errorf("client got %v", err)
				}
				synctest.Wait()
				if n := s.Inflight(); n != 0 {
					t.Errorf("%d requests in flight after the client left", n)
				}
				if d := time.Since(start); d != 0 {
					t.Errorf("it took %v", d)
				}
				for _, r := range s.ranks {
					if r.engine != nil && (len(r.inbox) > 0 || r.engine.Requests() > 0) {
						t.Errorf("the engine has %d requests, %d are on their way there", r.engine.Requests(), len(r.inbox))
					}
				}
			})
		})
	}
}

func TestClose(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cfg    Config
		body   string
		status int
	}{
		{"stream before the first token", Config{TTFT: time.Hour}, `{"prompt":"x","stream":true}`, 200},
		{"stream between tokens", Config{ITL: time.Hour}, `{"prompt":"x","stream":true}`, 200},
		{"stream to a client that does not read", Config{}, `{"prompt":"x","stream":true,"max_tokens":30000,"ignore_eos":true}`, 200},
		{"unary", Config{TTFT: time.Hour}, `{"prompt":"x"}`, 503},
		{"modelled stream in the first pass", modelled(Config{}, time.Hour, 0), `{"prompt":"x","stream":true}`, 200},
		{"modelled stream between tokens", modelled(Config{}, 0, time.Hour), `{"prompt":"x","stream":true}`, 200},
		{"modelled stream to a client that does not read", modelled(Config{}, 0, 0), `{"prompt":"x","stream":true,"max_tokens":30000,"ignore_eos":true}`, 200},
		{"modelled unary", modelled(Config{}, 0, time.Hour), `{"prompt":"x"}`, 503},
		{"virtual stream", Config{Clock: new(Clock), Engine: &simengine.Config{}}, `{"prompt":"x","stream":true}`, 200},
		{"virtual unary", Config{Clock: new(Clock), Engine: &simengine.Config{}}, `{"prompt":"x"}`, 503},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, tc.cfg)
				_, client := serve(t, s)
				type result struct {
					status int
					err    error
				}
				closed := make(chan struct{})
				results := make(chan result, 1)
				go func() {
					resp, err := client.Post("http://sim/v1/completions", "application/json", strings.NewReader(tc.body))
					if err != nil {
						results <- result{0, err}
						return
					}
					defer resp.Body.Close()
					<-closed
					_, err = io.ReadAll(resp.Body)
					results <- result{resp.StatusCode, err}
				}()
				synctest.Wait()
				start := time.Now()
				s.Close()
				close(closed)
				if d := time.Since(start); d != 0 || s.Inflight() != 0 {
					t.Errorf("Close took %v and left %d", d, s.Inflight())
				}
				r := <-results
				if r.status != tc.status {
					t.Errorf("status %d, want %d", r.status, tc.status)
				}
				if cut := tc.status == 200; cut != (r.err != nil) {
					t.Errorf("reading the body: %v", r.err)
				}
				s.Close()
				if w := call(s, "POST", "/v1/completions", `{"prompt":"x"}`); w.Code != 503 {
					t.Errorf("after Close: status %d", w.Code)
				}
				if w := call(s, "GET", "/health", ""); w.Code != 503 {
					t.Errorf("health after Close: status %d", w.Code)
				}
			})
		})
	}
}
