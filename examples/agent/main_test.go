package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/nvext"
	"github.com/stator-ai/stator/trie"
)

// call is what matters of a request that the server got.
type call struct {
	Messages  []struct{ Content string }
	MaxTokens int `json:"max_tokens"`
	NvExt     json.RawMessage
}

// TestAgent runs the program with little to do, against a server that shows what it got.
func TestAgent(t *testing.T) {
	srv, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	var mu sync.Mutex
	var calls []call
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var c call
		if err := json.Unmarshal(body, &c); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		mu.Lock()
		calls = append(calls, c)
		mu.Unlock()
		srv.Handler().ServeHTTP(w, r)
	}))
	defer front.Close()
	var out strings.Builder
	spans := filepath.Join(t.TempDir(), "spans.jsonl")
	if err := run(t.Context(), []string{"--url", front.URL, "--record", spans, "--agents", "2", "--edits", "3", "--readers", "4"}, &out); err != nil {
		t.Fatal(err)
	}
	checkOutput(t, out.String(), calls[len(calls)-1])
	checkHints(t, calls[:len(calls)-1])
	checkSpans(t, spans)
}

// checkOutput checks the shape of what is printed. The last call is the one that is shown.
func checkOutput(t *testing.T, out string, last call) {
	t.Helper()
	const times = ` +\d+\.\d s +\d+ ms +\d+ ms +\d+ %\n`
	shape := regexp.MustCompile(`^ +calls +within +TTFT p50 +TTFT p95 +cached tokens\n` +
		`hints off +agents +10` + times + ` +batch +\d+` + times +
		`hints on +agents +10` + times + ` +batch +\d+` + times +
		`predicted +agents +10` + times + ` +batch +\d+` + times +
		`\nThe first call in \[coder editor\]: 3\.0 calls follow, the next after \d+ ms; the answer has \d+ tokens\.\n` +
		`It is sent with\n(.*)\n$`)
	m := shape.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("printed\n%s", out)
	}
	if diff := cmp.Diff(string(last.NvExt), m[1]); diff != "" {
		t.Errorf("the hints that are printed are not those that came (-came +printed)\n%s", diff)
	}
}

// checkHints checks which hints came in each pass.
func checkHints(t *testing.T, calls []call) {
	t.Helper()
	type said struct {
		task          bool // an agent's
		priority, osl int
	}
	got := map[string]map[said]bool{"hints off": {}, "hints on": {}, "predicted": {}}
	for _, c := range calls {
		title := c.Messages[0].Content
		s := said{task: strings.Contains(title, " task ")}
		if c.NvExt != nil {
			var ext nvext.NvExt
			if err := json.Unmarshal(c.NvExt, &ext); err != nil {
				t.Fatalf("%s: %v", c.NvExt, err)
			}
			s.priority, s.osl = int(*ext.AgentHints.Priority), int(*ext.AgentHints.OSL)
		}
		if strings.HasPrefix(title, "predicted") { // answers may end before they have to
			if s.osl < 1 || s.osl > c.MaxTokens {
				t.Errorf("an answer of up to %d tokens was predicted to have %d", c.MaxTokens, s.osl)
			}
			s.osl = 0
		}
		for pass, hints := range got {
			if strings.HasPrefix(title, pass) {
				hints[s] = true
			}
		}
	}
	want := map[string]map[said]bool{
		"hints off": {{}: true, {task: true}: true},
		"hints on":  {{priority: idle, osl: 512}: true, {task: true, priority: urgent, osl: 512}: true},
		"predicted": {{priority: idle}: true, {task: true, priority: urgent}: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(said{})); diff != "" {
		t.Errorf("hints by pass (-want +got)\n%s", diff)
	}
}

// checkSpans checks that what was recorded is three runs: two agents and the batch.
func checkSpans(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runs := 0
	if err := trie.ReadSpans(f, func([]trie.Step) error { runs++; return nil }); err != nil {
		t.Fatal(err)
	}
	if runs != 3 {
		t.Errorf("%d runs were recorded, want 3", runs)
	}
}

// TestAgentErrors checks that whatever goes wrong ends the program.
func TestAgentErrors(t *testing.T) {
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--agents", "0"}, "at least 1"},
		{[]string{"--url", refusing.URL}, "hints off: "},
	} {
		err := run(t.Context(), c.args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
	}
}
