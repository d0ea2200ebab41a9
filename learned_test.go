package stator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/simserver"
)

// thompson has the policy of that name decide.
func thompson(mode, state string) func(*stator.Config) {
	return func(c *stator.Config) {
		c.Router.Policy = "thompson"
		c.Router.Thompson.Variant, c.Router.Thompson.State = mode, state
	}
}

// debugThompson returns what the server says about its policies.
func debugThompson(t *testing.T, f *fleet) (out struct {
	Pools []struct {
		Model, Mode string
		Pending     int
		Ranks       []struct {
			Alpha        *float64
			Observations *float64
		}
	}
}) {
	t.Helper()
	resp, err := http.Get(f.url + "/debug/thompson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(text, &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, %s: %v", resp.StatusCode, text, err)
	}
	return out
}

func TestThompson(t *testing.T) {
	for _, mode := range []string{"safe", "reference", "shadow"} {
		f := simulatedFleet(t, pace{time.Millisecond, time.Millisecond}, thompson(mode, ""))
		for range 8 {
			stream := f.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
				Model: simModel, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello!")}, MaxTokens: openai.Int(4),
			})
			for stream.Next() {
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
		}
		got := debugThompson(t, f)
		seen := 0.0
		for _, r := range got.Pools[0].Ranks {
			if r.Observations != nil {
				seen += *r.Observations
			} else if r.Alpha != nil {
				seen += *r.Alpha
			}
		}
		if len(got.Pools) != 1 || got.Pools[0].Mode != mode || len(got.Pools[0].Ranks) != 4 || seen == 0 {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}

func TestThompsonState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := stator.DefaultConfig()
	cfg.Listen, cfg.Sim.Engines = "127.0.0.1:0", 2
	thompson("safe", path)(&cfg)
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+srv.Addr()+"/v1/completions", "application/json", strings.NewReader(`{"model":"stator-sim","prompt":"Hello","max_tokens":2,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(saved), "stator-sim") {
		t.Errorf("saved %s, %v", saved, err)
	}
	if bad, _ := os.ReadFile(path + ".bad"); string(bad) != "nonsense" {
		t.Errorf("what could not be used is %q", bad)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
}

// stateServer returns a server that keeps what is learned in a file, and what it logs.
func stateServer(t *testing.T, path string) (*stator.Server, *bytes.Buffer) {
	t.Helper()
	cfg := stator.DefaultConfig()
	cfg.Listen, cfg.Sim.Engines = "127.0.0.1:0", 1
	thompson("safe", path)(&cfg)
	log := new(bytes.Buffer)
	srv, err := stator.New(cfg, stator.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	return srv, log
}

// A file that can be neither used nor put aside stays as it is, and the server runs.
func TestThompsonStateCannotBePutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".bad", 0o700); err != nil {
		t.Fatal(err)
	}
	srv, log := stateServer(t, path)
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); string(got) != "nonsense" {
		t.Errorf("what could not be used is %q, %v", got, err)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "cannot be used nor put aside") || strings.Contains(text, "kept_as") {
		t.Errorf("log:\n%s", text)
	}
}

// A place where no file can be written is known at the start; what comes of it later is
// known at the end.
func TestThompsonStateCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "learned.json")
	srv, _ := stateServer(t, path)
	want := "router.thompson.state " + path + ": "
	if err := srv.Start(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("started without a directory: %v", err)
	}

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	srv, _ = stateServer(t, path)
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind at the start: %v, %v", entries, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("closed without a directory: %v", err)
	}
}

// The directory is there, but files in it cannot be made.
func TestThompsonStateReadOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if f, err := os.CreateTemp(dir, ""); err == nil {
		f.Close()
		t.Skip("whoever runs this may write everywhere")
	}
	srv, _ := stateServer(t, filepath.Join(dir, "learned.json"))
	if err := srv.Start(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("started with a directory that is read only: %v", err)
	}
}

// The file keeps the mode that somebody gave it.
func TestThompsonStateMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	for _, want := range []fs.FileMode{0o600, 0o644, 0o640} {
		if want != 0o600 { // which a new file has
			if err := os.Chmod(path, want); err != nil {
				t.Fatal(err)
			}
		}
		srv, _ := stateServer(t, path)
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("mode %v, want %v", info.Mode(), want)
		}
	}
}

// learnedBy runs a server while so many requests are answered, one after another, and
// returns what it then knows of each worker, as JSON.
func learnedBy(t *testing.T, cfg stator.Config, requests int) map[uint64]string {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range requests {
		resp, err := http.Post("http://"+srv.Addr()+"/v1/completions", "application/json", strings.NewReader(`{"model":"stator-sim","prompt":"Hello","max_tokens":3,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	resp, err := http.Get("http://" + srv.Addr() + "/debug/thompson")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var debug struct {
		Pools []struct{ Ranks []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&debug); err != nil || len(debug.Pools) != 1 {
		t.Fatalf("%+v: %v", debug, err)
	}
	out := make(map[uint64]string)
	for _, rank := range debug.Pools[0].Ranks {
		var r struct {
			Worker uint64 `json:"worker_id"`
		}
		if err := json.Unmarshal(rank, &r); err != nil {
			t.Fatal(err)
		}
		out[r.Worker] = string(rank)
	}
	return out
}

// What one variant has learned is still there after a run with another.
func TestThompsonStateOfVariants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	run := func(variant string, requests int) map[uint64]string {
		t.Helper()
		cfg := stator.DefaultConfig()
		cfg.Sim.Engines = 2
		thompson(variant, path)(&cfg)
		return learnedBy(t, cfg, requests)
	}
	unlearned := run("reference", 0)
	reference := run("reference", 6)
	if cmp.Equal(unlearned, reference) {
		t.Fatalf("nothing was learned: %v", reference)
	}
	safe := run("safe", 6)
	if diff := cmp.Diff(reference, run("reference", 0)); diff != "" {
		t.Errorf("reference (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(safe, run("shadow", 0)); diff != "" {
		t.Errorf("safe and shadow (-before +after):\n%s", diff)
	}
}

// What was learned of an engine goes by its URL, and not by its place among others.
func TestThompsonStateFollowsEngines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "learned.json")
	cfg := stator.DefaultConfig()
	thompson("safe", path)(&cfg)
	for range 3 {
		sim, err := simserver.New(simserver.Config{TTFT: time.Millisecond, ITL: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(sim)
		t.Cleanup(func() { sim.Close(); srv.Close() })
		cfg.Engines = append(cfg.Engines, stator.EngineConfig{URL: srv.URL})
	}
	before := learnedBy(t, cfg, 20)
	slices.Reverse(cfg.Engines)
	cfg.Engines[0].URL += "/"
	if diff := cmp.Diff(before, learnedBy(t, cfg, 0)); diff != "" || len(before) != 3 {
		t.Errorf("learned of %d engines (-before +after):\n%s", len(before), diff)
	}
}
