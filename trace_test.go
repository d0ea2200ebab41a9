package stator_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator"
)

// traced runs a server with a trace to out, sends it n requests, and waits until
// its metrics show the line.
func traced(t *testing.T, out string, n int, line string) (log string) {
	t.Helper()
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines = 2
	cfg.Trace.Out = out
	var text bytes.Buffer
	srv, err := stator.New(cfg, stator.WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	base := "http://" + srv.Addr()
	for range n {
		resp, err := http.Post(base+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"stator-sim","prompt":"Hello","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) { // rows wait a second at most
		resp, err := http.Get(base + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "\n"+line+"\n") {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("the metrics never show %s", line)
		}
	}
	if err := srv.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := srv.Close(); (err != nil) != (out == fullDisk) {
		t.Errorf("Close: %v", err)
	}
	return text.String()
}

const fullDisk = "/dev/full"

func TestTrace(t *testing.T) {
	out := filepath.Join(t.TempDir(), "trace.jsonl")
	log := traced(t, out, 3, "stator_trace_rows_total 3")
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(data, []byte("\n")); n != 3 {
		t.Errorf("%d rows, want 3:\n%s", n, data)
	}
	if n := strings.Count(log, `msg="recording requests"`); n != 1 {
		t.Errorf("the log says %d times where requests are recorded:\n%s", n, log)
	}
}

// TestTraceOnAFullDisk: requests do not notice, operators do, once.
func TestTraceOnAFullDisk(t *testing.T) {
	if _, err := os.Stat(fullDisk); err != nil {
		t.Skipf("there is no %s here", fullDisk)
	}
	log := traced(t, fullDisk, 3, "stator_trace_rows_dropped_total 3")
	if n := strings.Count(log, `level=ERROR msg="trace cannot be written, rows are dropped"`); n != 1 {
		t.Errorf("the log says %d times that the disk is full:\n%s", n, log)
	}
}

// TestTraceThatCannotBeWritten is found before anything listens.
func TestTraceThatCannotBeWritten(t *testing.T) {
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Trace.Out = filepath.Join(t.TempDir(), "no", "trace.jsonl")
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "trace.out: ") || srv.Addr() != "" {
		t.Errorf("Start: %v, listening on %q", err, srv.Addr())
	}
}

// TestTraceHashesAreTheEngines: who knows only the hashes in the trace knows what
// the engine finds in its cache, under adapters and salts, too.
func TestTraceHashesAreTheEngines(t *testing.T) {
	out := filepath.Join(t.TempDir(), "trace.jsonl")
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines, cfg.Sim.Adapters, cfg.Sim.Speedup = 1, []string{"poet"}, 1000
	cfg.Trace.Out = out
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("All work and no play. ", 20)
	for _, body := range []string{
		`{"model":"stator-sim","prompt":"` + long + `"`,
		`{"model":"stator-sim","prompt":"` + long + `"`,
		`{"model":"poet","prompt":"` + long + `"`,
		`{"model":"stator-sim","cache_salt":"mine","prompt":"` + long + `"`,
		`{"model":"poet","prompt":"` + long + ` And more."`,
		`{"model":"stator-sim","cache_salt":"mine","prompt":"` + long[:100] + ` And less."`,
		`{"model":"poet","cache_salt":"mine","prompt":"` + long + `"`,
		`{"model":"stator-sim","nvext":{"cache_salt":"mine"},"prompt":"` + long + `"`,
	} {
		resp, err := http.Post("http://"+srv.Addr()+"/v1/completions", "application/json", strings.NewReader(body+`,"max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, answer)
		}
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	var predicted, found []int
	for line := range bytes.Lines(data) {
		var row struct {
			Input     int      `json:"input_tokens"`
			BlockSize int      `json:"block_size"`
			Hashes    []string `json:"block_hashes"`
			Cached    *int     `json:"cached_tokens"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < (row.Input-1)/row.BlockSize && known[row.Hashes[n]] {
			n++
		}
		for _, h := range row.Hashes {
			known[h] = true
		}
		predicted = append(predicted, n*row.BlockSize)
		if row.Cached == nil {
			t.Fatalf("no cached tokens in %s", line)
		}
		found = append(found, *row.Cached)
	}
	if diff := cmp.Diff(predicted, found); diff != "" {
		t.Errorf("cached tokens (-by the trace +by the engine):\n%s", diff)
	}
	if want := []int{0, 112, 0, 0, 112, 16, 0, 112}; !slices.Equal(found, want) {
		t.Errorf("the engine found %d, want %d", found, want)
	}
}
