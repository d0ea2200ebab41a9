package frontend

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simserver"
)

// TestEnginesAreToldOfWhatIsNotWanted: a request that its client leaves, or that takes too
// long, ends at its engine; one that has ended does not need to.
func TestEnginesAreToldOfWhatIsNotWanted(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	half := func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for _, tc := range []struct {
		name  string
		path  string
		body  string
		fault func(http.ResponseWriter, *http.Request, http.Handler)
		leave time.Duration // 0 = stays
		want  int           // aborts
	}{
		{"leaves a stream before it begins", "", helloStream, silent, time.Second, 1},
		{"leaves a stream", "", helloStream, half, time.Second, 1},
		{"leaves a whole answer", "", hello, silent, time.Second, 1},
		{"leaves what passes", "/v1/embeddings", `{"model":"stator-sim"}`, silent, time.Second, 1},
		{"leaves what passes in the middle", "/v1/responses", `{"model":"stator-sim"}`, half, time.Second, 1},
		{"silent before the answer", "", hello, silent, 0, 1},
		{"silent in a stream", "", helloStream, half, 0, 1},
		{"completed", "", hello, nil, 0, 0},
		{"completed stream", "", helloStream, nil, 0, 0},
		{"completed passage", "/tokenize", `{"model":"stator-sim","prompt":"hi"}`, nil, 0, 0},
		{"refused", "", hello, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { answer(503, `{}`)(w, r) }, 0, 0},
		{"an error", "", hello, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { answer(400, `{}`)(w, r) }, 0, 0},
		{"broken off", "", hello, func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }, 0, 0},
		{"nonsense", "", hello, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { answer(200, `<`)(w, r) }, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rg, e := newToldRig(t, rigConfig{fault: tc.fault, front: Config{Limits: Limits{EngineIdle: time.Minute}}})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, cancel)
				}
				path := tc.path
				if path == "" {
					path = "/v1/chat/completions"
				}
				if resp, err := rg.client.Do(rg.request(t, path, tc.body).WithContext(ctx)); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				synctest.Wait()
				asked, aborted := e.take()
				if len(aborted) != tc.want || tc.want > 0 && aborted[0] != asked[0].ID {
					t.Errorf("aborted %q, want %d", aborted, tc.want)
				}
				rg.stop()
			})
		})
	}
}

// TestWaitingRequestsHaveNothingToAbort: no engine has heard of them.
func TestWaitingRequestsHaveNothingToAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg, e := newToldRig(t, rigConfig{
			sim:    simserver.Config{TTFT: time.Minute},
			router: router.Config{Queue: queueOf(sched.Class{BusyTokens: new(1)}, time.Hour)},
		})
		var leave []func()
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			leave = append(leave, cancel)
			go func() {
				if resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", hello).WithContext(ctx)); err == nil {
					resp.Body.Close()
				}
			}()
			synctest.Wait()
		}
		for _, cancel := range slices.Backward(leave) { // who waits first, or its turn would come
			cancel()
			synctest.Wait()
		}
		if asked, aborted := e.take(); len(asked) != 1 || len(aborted) != 1 {
			t.Errorf("asked %d times, aborted %q; want one of each", len(asked), aborted)
		}
		if n := rg.booked(); n != 0 {
			t.Errorf("%d slots still booked", n)
		}
		rg.stop()
	})
}

// TestCloseWaitsForAborts: those that an engine does not take end in time, more than a few
// do not run at once, and after Close none begins.
func TestCloseWaitsForAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a aborts
		e := &told{block: true}
		log := New(Config{Router: router.New(router.Config{})}).log
		for range maxAborts + 10 {
			a.start(e, "x", log)
		}
		start := time.Now()
		a.close()
		if _, aborted := e.take(); len(aborted) != maxAborts || time.Since(start) != abortTimeout {
			t.Errorf("%d aborts, waited %s", len(aborted), time.Since(start))
		}
		a.start(e, "late", log)
		if _, aborted := e.take(); len(aborted) != 0 {
			t.Errorf("aborted %q after close", aborted)
		}
	})
}

// TestAbortsAreBounded: a crowd that leaves at once does not make a crowd of goroutines.
func TestAbortsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg, e := newToldRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}})
		e.block = true
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			go func() {
				resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", hello).WithContext(ctx))
				if err == nil {
					resp.Body.Close()
				}
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := rg.Drain(t.Context()); err != nil { // no request waits for an abort
			t.Error(err)
		}
		rg.stop()
		if _, aborted := e.take(); len(aborted) != 20 {
			t.Errorf("%d aborts, want 20", len(aborted))
		}
	})
}
