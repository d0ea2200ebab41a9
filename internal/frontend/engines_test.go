package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// someEngines is an engine of which all is known, and one of which nothing is.
func someEngines() []EngineStatus {
	return []EngineStatus{
		{
			ID: 7, URL: "http://10.0.0.7:8000", Kind: "vllm", Version: "0.24.0", State: "eligible", Origin: "config",
			Models: []EngineModel{{ID: "m", ContextLength: 4096}, {ID: "a", Parent: "m"}},
			Ranks:  1, BlockSize: 16, TotalBlocks: 1000, Slots: 1, Priority: "honoured", Taints: []string{"west"},
			Events:   []EngineEvents{{State: "live", Address: "10.0.0.7:5557", Replay: "10.0.0.7:5558", Batches: 3, LagSecs: 0.5, LastSecs: new(1.5), Error: "x"}},
			Load:     []EngineLoad{{Inflight: 1, PrefillTokens: 2, DecodeBlocks: 3, Running: 4, Waiting: 5, Usage: 0.25, AgeSecs: new(0.5)}},
			Warnings: []EngineWarning{{Code: "no_events", Text: "none"}},
		},
		{ID: 8, URL: "http://10.0.0.8:8000", State: "gone"},
	}
}

// fakeRegistry has worker 7 configured.
type fakeRegistry struct {
	mu    sync.Mutex
	known map[uint64]Registration
}

func (f *fakeRegistry) Register(_ context.Context, r Registration) (uint64, time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.ID == 7:
		return 0, 0, fmt.Errorf("%w: 7 is http://10.0.0.7:8000", ErrEngineTaken)
	case r.Kind == "trtllm":
		return 0, 0, errors.New("kind: expected what it is")
	case r.ID == 0:
		r.ID = 1000
	}
	if f.known == nil {
		f.known = make(map[uint64]Registration)
	}
	f.known[r.ID] = r
	return r.ID, 30 * time.Second, nil
}

func (f *fakeRegistry) Heartbeat(id uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.known[id]; !ok {
		return ErrUnknownEngine
	}
	return nil
}

func (f *fakeRegistry) Deregister(id uint64) error {
	if err := f.Heartbeat(id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, id)
	return nil
}

// do sends a request without a body and returns its status and answer.
func (rg *rig) do(t *testing.T, method, path string, header ...string) (int, string) {
	t.Helper()
	req := rg.request(t, path, "", header...)
	req.Method, req.Body, req.ContentLength = method, nil, 0
	req.Header.Del("Content-Type")
	resp, err := rg.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestRegistration(t *testing.T) {
	reg := new(fakeRegistry)
	rg := newRig(t, rigConfig{front: Config{Registry: reg}})
	const all = `{"url":"https://e:1/v1","kind":"sglang","id":9007199254740993,"api_key":"k","taints":["a","b"],"ranks":2,"block_size":16,"total_kv_blocks":10,"max_num_batched_tokens":8192}`
	resp, body := rg.post(t, "/v1/engines", all)
	if resp.StatusCode != 200 || body != `{"id":9007199254740993,"ttl_secs":30}`+"\n" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	want := Registration{
		URL: "https://e:1/v1", Kind: "sglang", ID: 1<<53 + 1, APIKey: "k", Taints: []string{"a", "b"},
		Ranks: 2, BlockSize: 16, TotalBlocks: 10, MaxBatchedTokens: 8192,
	}
	if diff := cmp.Diff(want, reg.known[1<<53+1]); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
	for _, step := range []struct {
		method, path string
		want         int
	}{
		{"PUT", "/v1/engines/9007199254740993/heartbeat", 204},
		{"PUT", "/v1/engines/9007199254740992/heartbeat", 404},
		{"DELETE", "/v1/engines/9007199254740993", 204},
		{"DELETE", "/v1/engines/9007199254740993", 404},
		{"PUT", "/v1/engines/9007199254740993/heartbeat", 404},
		{"PUT", "/v1/engines/x/heartbeat", 400},
		{"DELETE", "/v1/engines/-1", 400},
		{"DELETE", "/v1/engines/", 400},
		{"GET", "/v1/engines/1", 405},
		{"POST", "/v1/engines/1/heartbeat", 405},
		{"GET", "/v1/engines", 404}, // nobody describes them
	} {
		if got, body := rg.do(t, step.method, step.path); got != step.want {
			t.Errorf("%s %s: %d %s, want %d", step.method, step.path, got, body, step.want)
		}
	}
}

func TestRegistrationFields(t *testing.T) {
	rg := newRig(t, rigConfig{front: Config{Registry: new(fakeRegistry)}})
	for _, tc := range []struct {
		body   string
		status int
		want   string // in the answer
	}{
		{`{}`, 400, `url: expected the base URL`},
		{`{"url":1}`, 400, `url: expected a string, got 1`},
		{`{"url":"e:8000"}`, 400, `url: expected the base URL`},
		{`{"url":"ftp://e"}`, 400, `url: expected`},
		{`{"url":"http://u:p@e"}`, 400, `url: expected`},
		{`{"url":"http://e?q=1"}`, 400, `url: expected`},
		{`{"url":"http://e","kind":"ollama"}`, 400, "kind: expected one of vllm, sglang, trtllm, llamacpp, sim, openai, got `ollama`"},
		{`{"url":"http://e","id":0}`, 400, `id: expected a worker id`},
		{`{"url":"http://e","id":-1}`, 400, `id: expected a whole number of 64 bits, got -1`},
		{`{"url":"http://e","id":1.5}`, 400, `id: expected`},
		{`{"url":"http://e","ranks":2000}`, 400, `ranks: expected at most 1024, got 2000`},
		{`{"url":"http://e","block_size":"16"}`, 400, `block_size: expected a whole number`},
		{`{"url":"http://e","taints":"a"}`, 400, `taints: expected an array of strings`},
		{`{"url":"http://e","taints":[1]}`, 400, `taints[0]: expected a string`},
		{`{"url":"http://e","taints":["a","a"]}`, 400, `taints[1]: expected each taint once`},
		{`{"url":"http://e","taints":[""]}`, 400, `taints[0]: expected 1 to 256 bytes`},
		{`{"url":"http://e","id":7}`, 409, `the worker id is in use`},
		{`{"url":"http://e","kind":"trtllm"}`, 400, `kind: expected what it is`},
		{`{"url":`, 400, `malformed JSON`},
	} {
		resp, body := rg.post(t, "/v1/engines", tc.body)
		if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d %s, want %d and %q", tc.body, resp.StatusCode, body, tc.status, tc.want)
		}
	}
}

func TestEnginesNeedAnAdminKey(t *testing.T) {
	keys := []Key{{Name: "user", Hash: HashKey("user"), Trusted: true}, {Name: "admin", Hash: HashKey("admin"), Admin: true}}
	for _, split := range []bool{false, true} {
		rg := newRig(t, rigConfig{front: Config{Keys: keys, Engines: someEngines, Registry: new(fakeRegistry), SplitAdmin: split}})
		for _, r := range [][2]string{{"GET", "/v1/engines"}, {"PUT", "/v1/engines/1/heartbeat"}, {"DELETE", "/v1/engines/1"}} {
			want := http.StatusForbidden
			if split {
				want = http.StatusNotFound
			}
			if got, body := rg.do(t, r[0], r[1], "Authorization", "Bearer user"); got != want {
				t.Errorf("%s %s with a user's key: %d %s, want %d", r[0], r[1], got, body, want)
			}
		}
	}
}
