package frontend

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simserver"
)

func TestBodyLimits(t *testing.T) {
	rg := newRig(t, rigConfig{front: Config{Limits: Limits{Body: 1000, Budget: 1500}}})
	large := `{"model":"stator-sim","messages":[{"role":"user","content":"` + strings.Repeat("x", 1000) + `"}]}`
	rows := []struct {
		name    string
		body    io.Reader
		chunked bool
		want    int
	}{
		{"declared too large", strings.NewReader(large), false, 413},
		{"too large, found while reading", strings.NewReader(large), true, 413},
		{"small, of unknown length", strings.NewReader(hello), true, 200},
		{"small", strings.NewReader(hello), false, 200},
	}
	for _, row := range rows {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://stator/v1/chat/completions", row.body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if row.chunked {
			req.ContentLength = -1
		}
		resp, err := rg.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != row.want {
			t.Errorf("%s: status %d, want %d", row.name, resp.StatusCode, row.want)
		}
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%s: %d bytes of the budget still held", row.name, n)
		}
	}
}

func TestBodyBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := int64(len(hello))
		rg := newRig(t, rigConfig{
			sim:   simserver.Config{TTFT: time.Minute},
			front: Config{Limits: Limits{Budget: 2 * size}},
		})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { rg.post(t, "/v1/chat/completions", hello) })
		}
		synctest.Wait()
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, string(openai.CodeServerBusy)) {
			t.Errorf("over the budget: %d %s", resp.StatusCode, body)
		}
		wg.Wait()
		if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 200 {
			t.Errorf("afterwards: %d %s", resp.StatusCode, body)
		}
		rg.stop()
	})
}

// TestStreamGivesItsBodyBack: a stream that runs for long holds no memory for the
// prompt it began with.
func TestStreamGivesItsBodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{sim: simserver.Config{ITL: time.Hour}})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", helloStream).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%d bytes held while streaming", n)
		}
		if n := rg.booked(); n != 1 {
			t.Errorf("%d slots booked while streaming, want 1", n)
		}
		cancel()
		resp.Body.Close()
		synctest.Wait()
		if n := rg.booked(); n != 0 {
			t.Errorf("%d slots booked afterwards", n)
		}
		rg.stop()
	})
}

func TestInflightLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{sim: simserver.Config{TTFT: time.Minute}, front: Config{Limits: Limits{Inflight: 3}}})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { rg.post(t, "/v1/chat/completions", hello) })
		}
		synctest.Wait()
		if resp, body := rg.post(t, "/v1/chat/completions", hello); resp.StatusCode != 503 {
			t.Errorf("the fourth: %d %s", resp.StatusCode, body)
		}
		wg.Wait()
		rg.stop()
	})
}

func TestSlowSenderIsTimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{front: Config{Limits: Limits{BodyTimeout: 10 * time.Second}}})
		conn, err := rg.listen.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(hello))
		stop := make(chan struct{})
		go func() {
			for i := range len(hello) { // a byte a second
				select {
				case <-time.After(time.Second):
				case <-stop:
					return
				}
				if _, err := conn.Write([]byte{hello[i]}); err != nil {
					return
				}
			}
		}()
		start := time.Now()
		var got bytes.Buffer
		io.Copy(&got, conn)
		close(stop)
		if !strings.HasPrefix(got.String(), "HTTP/1.1 408 ") || !strings.Contains(got.String(), "within 10s") {
			t.Errorf("answer %q", got.String())
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("took %s", took)
		}
		conn.Close()
		synctest.Wait()
		if n := rg.body.Load(); n != 0 {
			t.Errorf("%d bytes held", n)
		}
		rg.stop()
	})
}

func TestSlowReaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{front: Config{Limits: Limits{Write: 5 * time.Second}}})
		conn, err := rg.listen.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(helloStream), helloStream)
		time.Sleep(4 * time.Second) // reads nothing
		synctest.Wait()
		if n := rg.Inflight(); n != 1 {
			t.Errorf("%d in flight within the limit, want 1", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := rg.Inflight(); n != 0 {
			t.Errorf("%d in flight beyond the limit, want 0", n)
		}
		rg.stop()
	})
}

// TestWriteLimitEndsWithTheWrite: the limit is on the client's reading, not on the
// engine's thinking nor on the life of the connection.
func TestWriteLimitEndsWithTheWrite(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rg := newRig(t, rigConfig{
				http2: http2,
				sim:   simserver.Config{TTFT: time.Minute, ITL: time.Minute},
				front: Config{Limits: Limits{Write: 5 * time.Second}},
			})
			resp, body := rg.post(t, "/v1/chat/completions", helloStream)
			if !strings.HasSuffix(body, "data: [DONE]\n\n") || resp.ProtoMajor == 2 != http2 {
				t.Errorf("%s: %q", resp.Proto, body)
			}
			time.Sleep(time.Minute)
			if resp, body := rg.get(t, "/health"); resp.StatusCode != 200 {
				t.Errorf("%s, same connection: %d %s", resp.Proto, resp.StatusCode, body)
			}
			rg.stop()
		})
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{sim: simserver.Config{TTFT: 10 * time.Second}})
		status := make(chan int, 1)
		go func() {
			resp, _ := rg.post(t, "/v1/chat/completions", hello)
			status <- resp.StatusCode
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := rg.Drain(short); err == nil {
			t.Error("drain ended while a request was running")
		}
		resp, body := rg.post(t, "/v1/chat/completions", hello)
		if resp.StatusCode != 503 || !strings.Contains(body, "draining") {
			t.Errorf("new request: %d %s", resp.StatusCode, body)
		}
		for path, want := range map[string]int{"/health": 503, "/ready": 503, "/live": 200} {
			if resp, _ := rg.get(t, path); resp.StatusCode != want {
				t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
			}
		}
		if err := rg.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-status; got != 200 {
			t.Errorf("the running request got %d", got)
		}
		rg.stop()
	})
}

// TestStoppingTellsTheClients: requests that the server cannot wait for end in
// words, not in silence, and are not blamed on their clients.
func TestStoppingTellsTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, stop := context.WithCancelCause(t.Context())
		rg := newRig(t, rigConfig{sim: simserver.Config{TTFT: time.Second, ITL: time.Minute}, base: running})
		time.AfterFunc(10*time.Second, func() { stop(ErrStopping) })
		var wg sync.WaitGroup
		wg.Go(func() {
			_, body := rg.post(t, "/v1/chat/completions", helloStream)
			if !strings.Contains(body, `"code":"draining"`) || !strings.HasSuffix(body, "data: [DONE]\n\n") {
				t.Errorf("stream: %s", body)
			}
		})
		wg.Go(func() {
			resp, body := rg.post(t, "/v1/chat/completions", hello)
			if resp.StatusCode != 503 || !strings.Contains(body, "draining") {
				t.Errorf("unary: %d %s", resp.StatusCode, body)
			}
		})
		wg.Wait()
		if _, body := rg.get(t, "/metrics"); strings.Contains(body, `error_type="cancelled"`) {
			t.Error("counted as cancelled by the clients")
		}
		rg.stop()
	})
}

// panics is an engine adapter with a bug.
type panics struct{ engine.Engine }

func (panics) Open(context.Context, engine.Target, *engine.Request) (*engine.Response, error) {
	panic("secret")
}

func TestPanicAnswersAndReleases(t *testing.T) {
	rg := newRig(t, rigConfig{wrap: func(e engine.Engine) engine.Engine { return panics{e} }})
	resp, body := rg.post(t, "/v1/chat/completions", hello)
	if resp.StatusCode != 500 || !strings.Contains(body, "internal_error") || strings.Contains(body, "secret") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if rg.booked() != 0 || rg.Inflight() != 0 || rg.body.Load() != 0 {
		t.Errorf("left over: %d slots, %d requests, %d bytes", rg.booked(), rg.Inflight(), rg.body.Load())
	}
}
