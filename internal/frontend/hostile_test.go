package frontend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/simserver"
)

// raw sends text on a connection of its own and returns what comes back until the
// server closes it.
func (rg *rig) raw(t *testing.T, text string) string {
	t.Helper()
	conn, err := rg.listen.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.WriteString(conn, text)
	var got bytes.Buffer
	io.Copy(&got, conn)
	return got.String()
}

// TestUnreadBodiesHaveToArriveToo: a body that nobody wants cannot hold a
// connection for longer than one that somebody does.
func TestUnreadBodiesHaveToArriveToo(t *testing.T) {
	for _, request := range []string{
		"POST /nope HTTP/1.1",
		"PUT /v1/chat/completions HTTP/1.1",
		"POST /v1/chat/completions HTTP/1.1", // without a key
		"GET /health HTTP/1.1",
	} {
		synctest.Test(t, func(t *testing.T) {
			rg := newRig(t, rigConfig{front: Config{
				Keys:   []Key{{Name: "k", Hash: HashKey("k")}},
				Limits: Limits{BodyTimeout: 5 * time.Second},
			}})
			start := time.Now()
			rg.raw(t, request+"\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("%s: the connection was held for %s", request, took)
			}
			rg.stop()
		})
	}
}

// TestDeclaredBytesTakeNothing: the budget counts what came, not what was
// announced.
func TestDeclaredBytesTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{front: Config{Limits: Limits{Budget: 64 << 20, BodyTimeout: time.Minute}}})
		for range 20 {
			conn, err := rg.listen.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 40<<20)
		}
		synctest.Wait()
		if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		rg.stop()
		time.Sleep(time.Second) // net/http lets connections with an unread body linger
	})
}

func TestLargeSizedBodyArrivesWhole(t *testing.T) {
	var got int
	rg := newRig(t, rigConfig{sim: simserver.Config{ContextLength: 4 << 20}, fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		body, _ := io.ReadAll(r.Body)
		got = len(body)
		answer(200, `{"choices":[]}`)(w, r)
	}})
	for _, size := range []int{maxAhead - 100, maxAhead + 1, 3 << 20} {
		body := `{"model":"stator-sim","messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`
		if resp, text := rg.post(t, "/v1/chat/completions", body); resp.StatusCode != 200 || got != len(body) {
			t.Errorf("%d bytes: status %d, the engine got %d: %s", len(body), resp.StatusCode, got, text)
		}
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%d bytes held", n)
		}
	}
}

// TestEnginesThatMakeStatusesUp: what is neither an answer nor an error is ours to
// explain, and no redirect of an engine sends a prompt elsewhere.
func TestEnginesThatMakeStatusesUp(t *testing.T) {
	for _, status := range []string{"302 Found", "307 Temporary Redirect", "304 Not Modified", "999 What", "099 Low", "000 None"} {
		rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}", status)
			conn.Close()
		}})
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 502 || resp.Header.Get("Location") != "" {
			t.Errorf("%s: %d %v %s", status, resp.StatusCode, resp.Header, body)
		}
	}
}

// TestLongAnswerThatIsCut: what is too long to be looked at must not end as if it
// were complete.
func TestLongAnswerThatIsCut(t *testing.T) {
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(bytes.Repeat([]byte("x"), maxUnary+100))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}})
	resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", hello))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes, status %d, and no error", n, resp.StatusCode)
	}
	if n := rg.booked(); n != 0 {
		t.Errorf("%d slots booked", n)
	}
}

// TestAnswerThatGrowsPastTheLimit: an answer that was looked at stays one, even if
// our nvext makes it longer than what is looked at.
func TestAnswerThatGrowsPastTheLimit(t *testing.T) {
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		const head, tail = `{"choices":[],"pad":"`, `"}`
		io.Copy(io.Discard, r.Body)
		answer(200, head+strings.Repeat("x", maxUnary-10-len(head)-len(tail))+tail)(w, r)
	}})
	resp, body := rg.post(t, "/v1/chat/completions", strings.Replace(hello, `{`, `{"nvext":{"extra_fields":["worker_id"]},`, 1))
	if resp.StatusCode != 200 || len(body) <= maxUnary || !strings.HasSuffix(body, "}}}") {
		t.Errorf("status %d, %d bytes, ending in %q", resp.StatusCode, len(body), body[max(0, len(body)-80):])
	}
}

// TestClientThatNeverReads: whatever is written has its time limit.
func TestClientThatNeverReads(t *testing.T) {
	for name, body := range map[string]string{
		"query":       strings.Replace(hello, `{`, `{"nvext":{"annotations":["query_instance_id:"]},`, 1),
		"annotations": strings.Replace(helloStream, `{`, `{"nvext":{"annotations":["token_ids"]},`, 1),
	} {
		synctest.Test(t, func(t *testing.T) {
			rg := newRig(t, rigConfig{front: Config{Limits: Limits{Write: 2 * time.Second}}})
			conn, err := rg.listen.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// Longer than the buffers between the handler and the pipe.
			body := strings.Replace(body, `"hi"`, `"`+strings.Repeat("hi ", 20000)+`"`, 1)
			fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if rg.Inflight() != 0 || rg.booked() != 0 || rg.body.Load() != 0 {
				t.Errorf("%s: %d requests, %d slots, %d bytes left", name, rg.Inflight(), rg.booked(), rg.body.Load())
			}
			rg.stop()
		})
	}
}

// TestHalfClosedClientGetsNoEmptySuccess: a client that says it will send nothing
// more counts as gone, and nobody may take that for an answer.
func TestHalfClosedClientGetsNoEmptySuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{sim: simserver.Config{TTFT: time.Minute}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", hello).WithContext(ctx)); err == nil {
			t.Errorf("got %s", resp.Status)
		}
		rg.stop()
	})
}

// TestSlowReaderIsNotTheEnginesFault: the engine's time does not run while the
// client takes its own.
func TestSlowReaderIsNotTheEnginesFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{front: Config{Limits: Limits{EngineIdle: 2 * time.Second, Write: time.Minute}}})
		resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", strings.Replace(helloStream, `"max_tokens":3`, `"max_tokens":400,"ignore_eos":true`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		buf := make([]byte, 256)
		var got bytes.Buffer
		for i := 0; ; i++ {
			if i%100 == 0 {
				time.Sleep(5 * time.Second)
			}
			n, err := resp.Body.Read(buf)
			got.Write(buf[:n])
			if err != nil {
				break
			}
		}
		if text := got.String(); !strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, `"error"`) {
			t.Errorf("the stream ended with %q", text[max(0, len(text)-300):])
		}
		rg.stop()
	})
}

// TestTricklingAnswer: the limit is on silence, not on the whole.
func TestTricklingAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"choices":[{"index":0,"message":{"content":"ok"},"finish_reason":"stop"}]}`
		rg := newRig(t, rigConfig{
			front: Config{Limits: Limits{EngineIdle: 2 * time.Second}},
			fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.Header().Set("Content-Type", "application/json")
				for i := range len(body) {
					io.WriteString(w, body[i:i+1])
					w.(http.Flusher).Flush()
					time.Sleep(time.Second)
				}
			},
		})
		if resp, got := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 200 || got != body {
			t.Errorf("%d %s", resp.StatusCode, got)
		}
		rg.stop()
	})
}

// TestRefusalWithoutItsWords: a 503 whose body never comes is a 503.
func TestRefusalWithoutItsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault, seen := failFirst(1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(503)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		rg := newRig(t, rigConfig{engines: 2, fault: fault})
		start := time.Now()
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 200 || seen.Load() != 2 || time.Since(start) > 2*time.Second {
			t.Errorf("status %d after %d tries and %s: %s", resp.StatusCode, seen.Load(), time.Since(start), body)
		}
		rg.stop()
	})
}

// exhausted is an engine that cannot be dialled for want of file descriptors.
type exhausted struct{ engine.Engine }

func (e exhausted) Open(_ context.Context, t engine.Target, _ *engine.Request) (*engine.Response, error) {
	return nil, &engine.OpenError{Failure: engine.FailLocal, Target: t, Err: syscall.EMFILE}
}

func TestOwnShortageIsNotTheEnginesFault(t *testing.T) {
	rg := newRig(t, rigConfig{wrap: func(e engine.Engine) engine.Engine { return exhausted{e} }})
	if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 503 || !strings.Contains(body, "server_busy") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if st := rg.router.Status()[0].Workers[0].State; st != "eligible" {
		t.Errorf("the worker is %s", st)
	}
}

// TestEngineRefusesOurKey: that the engine does not know the server's key is not
// for the client to hear as its own fault.
func TestEngineRefusesOurKey(t *testing.T) {
	fault := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		answer(401, `{"error":{"message":"bad key sk-engine","type":"x","param":null,"code":null}}`)(w, r)
	}
	rg := newRig(t, rigConfig{fault: fault, front: Config{Keys: []Key{{Name: "k", Hash: HashKey("k")}}}})
	resp, body := rg.post(t, "/v1/chat/completions", hello, "Authorization", "Bearer k")
	if resp.StatusCode != 502 || strings.Contains(body, "sk-engine") {
		t.Errorf("with keys: %d %s", resp.StatusCode, body)
	}
	rg = newRig(t, rigConfig{fault: fault})
	if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 401 {
		t.Errorf("without keys the client's credentials are the engine's to judge: %d %s", resp.StatusCode, body)
	}
}

func TestHealthTellsStrangersLittle(t *testing.T) {
	rg := newRig(t, rigConfig{front: Config{Keys: []Key{{Name: "k", Hash: HashKey("k")}}}})
	if resp, body := rg.get(t, "/health"); resp.StatusCode != 200 || strings.Contains(body, "sim-1") {
		t.Errorf("without a key: %d %s", resp.StatusCode, body)
	}
	if _, body := rg.get(t, "/health", "Authorization", "Bearer k"); !strings.Contains(body, "sim-1") {
		t.Errorf("with a key: %s", body)
	}
}

func TestCompressedBodyIsRefused(t *testing.T) {
	rg := newRig(t, rigConfig{})
	if resp, body := rg.post(t, "/v1/chat/completions", "\x1f\x8b", "Content-Encoding", "gzip"); resp.StatusCode != 415 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
