package stator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator"
)

// TestEmbedded runs a server inside a program that brings its own listener, and
// closes it while a request is running: the client is told.
func TestEmbedded(t *testing.T) {
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines = 1
	cfg.Sim.Profile, cfg.Sim.TTFT = "fixed", new(time.Hour)
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(srv.Handler())
	defer front.Close()
	type reply struct {
		status int
		body   string
		err    error
	}
	done := make(chan reply, 1)
	go func() {
		resp, err := http.Post(front.URL+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"stator-sim","messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			done <- reply{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		done <- reply{resp.StatusCode, string(body), err}
	}()
	for start := time.Now(); ; time.Sleep(time.Millisecond) { // until the request is there
		resp, err := http.Get(front.URL + "/health")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if strings.Contains(string(body), `"status":"healthy"`) && strings.Contains(string(body), `"inflight":1,"models"`) {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("the request did not arrive: %s", body)
		}
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-done:
		if got.err != nil || got.status != 503 || !strings.Contains(got.body, "draining") {
			t.Errorf("%+v", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("the client still waits")
	}
}
