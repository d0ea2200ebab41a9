package indexserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
)

// rig is a server behind a socket.
type rig struct {
	*Server
	url string
}

func newRig(t *testing.T, cfg Config) *rig {
	t.Helper()
	s := New(cfg)
	s.Start()
	srv := httptest.NewServer(s)
	t.Cleanup(func() { srv.Close(); s.Close() })
	return &rig{s, srv.URL}
}

// do sends a request and returns status, header and body.
func (r *rig) do(t *testing.T, method, path, contentType, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

func (r *rig) post(t *testing.T, path, body string) (int, string) {
	t.Helper()
	resp, out := r.do(t, "POST", path, "application/json", body)
	return resp.StatusCode, out
}

func (r *rig) get(t *testing.T, path string) string {
	t.Helper()
	resp, out := r.do(t, "GET", path, "", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, resp.StatusCode, out)
	}
	return out
}

// must posts and expects success.
func (r *rig) must(t *testing.T, path, body string) string {
	t.Helper()
	status, out := r.post(t, path, body)
	if status/100 != 2 {
		t.Fatalf("POST %s %s: status %d: %s", path, body, status, out)
	}
	return out
}

// same compares two JSON texts.
func same(t *testing.T, want, got string) {
	t.Helper()
	var w, g any
	for text, v := range map[string]*any{want: &w, got: &g} {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// stored returns an event that stores the blocks of a prompt.
func stored(worker, rank, id int, tier kv.Tier, prompt []kv.Block) string {
	ev := kv.Event{Kind: kv.Stored, Tier: tier, Blocks: prompt}
	raw, err := kv.AppendJSON(nil, kv.Source{Worker: kv.WorkerID(worker), Rank: uint32(rank)}, uint64(id), &ev)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// count returns the tokens 0 to n-1.
func count(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// blocks returns the blocks of 16 of the tokens 0 to n-1.
func blocks(n int) []kv.Block { return kv.AppendBlocks(nil, kv.HashSeed("", ""), count(n), 16) }

func tokenQuery(model string, n int) string {
	ids, _ := json.Marshal(count(n))
	return fmt.Sprintf(`{"model_name":%q,"token_ids":%s}`, model, ids)
}

func hashQuery(model string, prompt []kv.Block) string {
	hashes := make([]int64, len(prompt))
	for i, b := range prompt {
		hashes[i] = int64(b.Tokens)
	}
	list, _ := json.Marshal(hashes)
	return fmt.Sprintf(`{"model_name":%q,"block_hashes":%s}`, model, list)
}
