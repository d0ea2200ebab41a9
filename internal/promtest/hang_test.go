package promtest

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/monitor"
)

// TestHangingEngine has an engine that says that it is well and answers nothing, so that
// clients give up: requests do not fail, and nothing is slow, as nothing ends.
func TestHangingEngine(t *testing.T) {
	t.Parallel()
	engine := start(t, "sim", "--dress", "vllm")
	srv := start(t, "serve", "--engine", engine.url())
	files := unpack(t, monitor.Options{Stator: []string{srv.addr}, Interval: time.Second})
	p := scrapeFrom(t, filepath.Join(files, "prometheus", "prometheus.yml"))
	eventually(t, "the model is served", func() string {
		if models := fetch(t, srv.url()+"/v1/models"); !strings.Contains(models, simModel) {
			return models
		}
		return ""
	})
	post(t, engine.url()+"/sim/fault", `{"fault":"hang"}`)

	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				impatient(ctx, srv.url())
			}
		})
	}
	p.alarmed(t, "StatorNoFirstToken", srv.addr)
}

// impatient makes a request and gives up after a second.
func impatient(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body := strings.NewReader(`{"model":"` + simModel + `","messages":[{"role":"user","content":"hello?"}],"stream":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", body)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body) // until nobody waits any more
		resp.Body.Close()
	}
	<-ctx.Done() // also where it was refused
}
