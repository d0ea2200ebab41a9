package frontend

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
)

var helloStream = strings.Replace(hello, `{`, `{"stream":true,`, 1)

// failFirst answers the first n requests with fault and lets the others pass.
func failFirst(n int64, fault http.HandlerFunc) (func(http.ResponseWriter, *http.Request, http.Handler), *atomic.Int64) {
	var seen atomic.Int64
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if seen.Add(1) <= n {
			io.Copy(io.Discard, r.Body)
			fault(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}, &seen
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestRetryOnTransientStatus(t *testing.T) {
	rows := []struct {
		name     string
		status   int
		failures int64
		want     int   // status the client sees
		tries    int64 // requests that reached an engine
	}{
		{"one 503", 503, 1, 200, 2},
		{"two 502", 502, 2, 200, 3},
		{"three 504 are the answer", 504, 3, 504, 3},
		{"a 500 is not tried again", 500, 1, 500, 1},
		{"a 400 is not tried again", 400, 1, 400, 1},
		{"a 429 is not tried again", 429, 1, 429, 1},
	}
	for _, row := range rows {
		for _, body := range []string{hello, helloStream} {
			fault, seen := failFirst(row.failures, answer(row.status, `{"error":{"message":"no","type":"x","param":null,"code":null}}`))
			rg := newRig(t, rigConfig{engines: 4, fault: fault})
			resp, got := rg.post(t, "/v1/chat/completions", body)
			if resp.StatusCode != row.want || seen.Load() != row.tries {
				t.Errorf("%s: status %d after %d tries, want %d after %d (%s)", row.name, resp.StatusCode, seen.Load(), row.want, row.tries, got)
			}
			if n := rg.booked(); n != 0 {
				t.Errorf("%s: %d slots booked", row.name, n)
			}
		}
	}
}

func TestRetryGoesToOtherWorkersOnly(t *testing.T) {
	seen := make(map[string]int)
	fault := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		io.Copy(io.Discard, r.Body)
		seen[r.Host]++
		answer(503, "{}")(w, r)
	}
	rg := newRig(t, rigConfig{engines: 2, fault: fault})
	resp, _ := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || len(seen) != 2 || seen["sim-1"] != 1 || seen["sim-2"] != 1 {
		t.Errorf("status %d, tries %v, want one on each of two workers", resp.StatusCode, seen)
	}
}

// TestLastAnswerCounts: a worker that refuses the request for good outranks one
// that was only busy.
func TestLastAnswerCounts(t *testing.T) {
	fault, seen := failFirst(1, answer(503, `{}`))
	rg := newRig(t, rigConfig{engines: 2, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		fault(w, r, http.HandlerFunc(answer(400, `{"error":{"message":"bad","type":"x","param":null,"code":null}}`)))
	}})
	resp, body := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 400 || seen.Load() != 2 || !strings.Contains(body, "bad") {
		t.Errorf("status %d after %d tries: %s", resp.StatusCode, seen.Load(), body)
	}
}

func TestCompressedAnswerIsAnError(t *testing.T) {
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "\x1f\x8b")
	}})
	resp, body := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 502 || !strings.Contains(body, "compressed") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestPinnedRequestsAreNotMoved(t *testing.T) {
	fault, seen := failFirst(1, answer(503, `{"error":{"message":"full","type":"x","param":null,"code":null}}`))
	rg := newRig(t, rigConfig{engines: 3, fault: fault})
	resp, body := rg.post(t, "/v1/chat/completions", hello, "X-Worker-Instance-Id", "2")
	if resp.StatusCode != 503 || seen.Load() != 1 || !strings.Contains(body, "full") {
		t.Errorf("status %d after %d tries: %s", resp.StatusCode, seen.Load(), body)
	}
}

func TestDeadWorkerIsPassedOverAndInhibited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{engines: 2, router: router.Config{Mode: router.RoundRobin}})
		rg.engines[0].kill()
		for range 4 {
			if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 200 {
				t.Fatalf("status %d: %s", resp.StatusCode, body)
			}
		}
		resp, body := rg.post(t, "/v1/chat/completions", hello, "X-Worker-Instance-Id", "1")
		if resp.StatusCode != 503 || !strings.Contains(body, "worker 1") {
			t.Errorf("pin on a dead worker: %d %s", resp.StatusCode, body)
		}
		if err := rg.engines[0].start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if resp, body := rg.post(t, "/v1/chat/completions", hello, "X-Worker-Instance-Id", "1"); resp.StatusCode != 200 {
			t.Errorf("after a restart: %d %s", resp.StatusCode, body)
		}
		rg.stop()
	})
}

func TestAllWorkersDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{engines: 2})
		rg.engines[0].kill()
		rg.engines[1].kill()
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 502 || !strings.Contains(body, "cannot be reached") {
			t.Errorf("first request: %d %s", resp.StatusCode, body)
		}
		resp, body = rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "model_unavailable") {
			t.Errorf("second request: %d %s", resp.StatusCode, body)
		}
		if resp, _ := rg.get(t, "/ready"); resp.StatusCode != 503 {
			t.Errorf("/ready: %d", resp.StatusCode)
		}
		rg.stop()
	})
}

// TestEngineThatIsNotUpYet: until every engine has said what it serves, a model
// that nobody serves may still come.
func TestEngineThatIsNotUpYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{down: true})
		for _, try := range []func() (*http.Response, string){
			func() (*http.Response, string) { return rg.post(t, "/v1/chat/completions", hello) },
			func() (*http.Response, string) { return rg.get(t, "/v1/models/stator-sim") },
		} {
			if resp, body := try(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		}
		if _, body := rg.get(t, "/health"); !strings.Contains(body, `"state":"undiscovered"`) {
			t.Errorf("/health does not show the worker: %s", body)
		}
		if err := rg.engines[0].start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 200 {
			t.Errorf("once it is up: %d %s", resp.StatusCode, body)
		}
		if resp, _ := rg.post(t, "/v1/chat/completions", strings.Replace(hello, "stator-sim", "other", 1)); resp.StatusCode != 404 {
			t.Errorf("a model that nobody serves: %d", resp.StatusCode)
		}
		rg.stop()
	})
}

// TestStreamsThatBreak pins what a client sees when an engine fails after the
// first chunk.
func TestStreamsThatBreak(t *testing.T) {
	const chunk = `data: {"id":"x","choices":[{"index":0,"delta":{"content":"hi"}}]}` + "\n\n"
	const finish = `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	rows := []struct {
		name  string
		send  string
		abort bool
		want  string
	}{
		{"cut in the middle of an event", chunk + `data: {"id":"x","cho`, true,
			chunk + `data: {"error":{"message":"the engine ended the answer before it was complete","type":"server_error","param":null,"code":"engine_error"}}` + "\n\ndata: [DONE]\n\n"},
		{"ends without finish", chunk, false,
			chunk + `data: {"error":{"message":"the engine ended the answer before it was complete","type":"server_error","param":null,"code":"engine_error"}}` + "\n\ndata: [DONE]\n\n"},
		{"ends with finish but without [DONE]", chunk + finish, false, chunk + finish + "data: [DONE]\n\n"},
		{"reports an error and leaves out [DONE]", chunk + `data: {"error":{"message":"oom"}}` + "\n\n", false,
			chunk + `data: {"error":{"message":"oom"}}` + "\n\ndata: [DONE]\n\n"},
		{"CRLF passes as it is", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n", false,
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\r\n\r\ndata: [DONE]\r\n\r\n"},
		{"pings pass", ": ping\n\n" + chunk + ": ping\n\n" + finish + "data: [DONE]\n\n", false,
			": ping\n\n" + chunk + ": ping\n\n" + finish + "data: [DONE]\n\n"},
		{"a last event without its blank line", chunk + finish + "data: [DONE]", false, chunk + finish + "data: [DONE]\n\n"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, row.send)
				w.(http.Flusher).Flush()
				if row.abort {
					panic(http.ErrAbortHandler)
				}
			}})
			resp, got := rg.post(t, "/v1/chat/completions", helloStream)
			if resp.StatusCode != 200 || got != row.want {
				t.Errorf("status %d\ngot  %q\nwant %q", resp.StatusCode, got, row.want)
			}
			if n := rg.booked(); n != 0 {
				t.Errorf("%d slots booked", n)
			}
		})
	}
}

// TestErrorBeforeTheFirstChunkIsAStatus: an engine that answers 200 and then
// reports an error at once has not begun to answer.
func TestErrorBeforeTheFirstChunkIsAStatus(t *testing.T) {
	rows := []struct {
		send string
		want int
	}{
		{`data: {"error":{"message":"bad schema","type":"BadRequestError","param":null,"code":400}}` + "\n\ndata: [DONE]\n\n", 400},
		{`data: {"error":{"message":"boom","type":"x","param":null,"code":null}}` + "\n\n", 500},
		{"", 502},
	}
	for _, row := range rows {
		rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, row.send)
		}})
		if resp, body := rg.post(t, "/v1/chat/completions", helloStream); resp.StatusCode != row.want {
			t.Errorf("%q: status %d, want %d (%s)", row.send, resp.StatusCode, row.want, body)
		}
	}
}

// TestEngineErrorShapes: whatever shape an engine's error has, a client finds it
// under error.message.
func TestEngineErrorShapes(t *testing.T) {
	rows := []struct{ body, want string }{
		{`{"error":{"message":"m1","type":"BadRequestError","param":"x","code":400}}`,
			`{"error":{"message":"m1","type":"BadRequestError","param":"x","code":400}}`},
		{`{"object":"error","message":"m2","type":"BadRequestError","param":null,"code":400}`,
			`{"error":{"message":"m2","type":"invalid_request_error","param":null,"code":"engine_refused"}}`},
		{`{"error":"m3"}`, `{"error":{"message":"m3","type":"invalid_request_error","param":null,"code":"engine_refused"}}`},
		{`{"detail":"m4"}`, `{"error":{"message":"m4","type":"invalid_request_error","param":null,"code":"engine_refused"}}`},
		{`<html>`, `{"error":{"message":"the engine answered with status 400","type":"invalid_request_error","param":null,"code":"engine_refused"}}`},
	}
	for _, row := range rows {
		rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			answer(400, row.body)(w, r)
		}})
		resp, got := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 400 || strings.TrimSpace(got) != row.want {
			t.Errorf("engine said %s:\ngot  %d %s\nwant %s", row.body, resp.StatusCode, got, row.want)
		}
	}
}

func TestSilentEngineTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{
			front: Config{Limits: Limits{EngineIdle: 30 * time.Second}},
			fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			},
		})
		start := time.Now()
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if took := time.Since(start); resp.StatusCode != 504 || took != 30*time.Second {
			t.Errorf("status %d after %s: %s", resp.StatusCode, took, body)
		}
		rg.stop()
	})
}

// TestDisconnectReachesTheEngineAtOnce: in virtual time the engine must stop at
// the very instant the client leaves.
func TestDisconnectReachesTheEngineAtOnce(t *testing.T) {
	for _, body := range []string{hello, helloStream} {
		synctest.Test(t, func(t *testing.T) {
			var gone atomic.Int64
			rg := newRig(t, rigConfig{
				sim: simserver.Config{TTFT: time.Second, ITL: time.Second},
				fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					next.ServeHTTP(w, r)
					if r.Context().Err() != nil {
						gone.Store(time.Now().UnixNano())
					}
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			req := rg.request(t, "/v1/chat/completions", body).WithContext(ctx)
			var left time.Time
			time.AfterFunc(1500*time.Millisecond, func() { left = time.Now(); cancel() })
			if resp, err := rg.client.Do(req); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			synctest.Wait()
			if got := gone.Load(); got != left.UnixNano() {
				t.Errorf("client left at %d, engine noticed at %d", left.UnixNano(), got)
			}
			if n := rg.booked(); n != 0 {
				t.Errorf("%d slots booked", n)
			}
			rg.stop()
		})
	}
}

// broken is an engine whose Open fails in a way that is no failure to connect.
type broken struct{ engine.Engine }

func (b broken) Open(_ context.Context, t engine.Target, _ *engine.Request) (*engine.Response, error) {
	return nil, &engine.OpenError{Failure: engine.FailBroken, Target: t, Err: errors.New("EOF")}
}

func TestRequestThatKillsAnEngineIsNotPassedOn(t *testing.T) {
	rg := newRig(t, rigConfig{engines: 3, router: router.Config{Mode: router.RoundRobin}, wrap: func(e engine.Engine) engine.Engine {
		return broken{e}
	}})
	resp, _ := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 502 {
		t.Errorf("status %d", resp.StatusCode)
	}
	inhibited := 0
	for _, w := range rg.router.Status()[0].Workers {
		if w.State == "inhibited" {
			inhibited++
		}
	}
	if inhibited > 1 {
		t.Errorf("%d workers inhibited by one request", inhibited)
	}
}
