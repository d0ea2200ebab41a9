package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The repository of the test Hub, and two commits of it.
const (
	testRepo = "org/model-1.5B_x"
	commitA  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB  = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	secret   = "hf_secretTokenOfTheTest"
)

// testHub behaves like the Hub: small files come from it, large ones from a second
// host that a redirect with a signature leads to.
type testHub struct {
	t        *testing.T
	hub, cdn *httptest.Server

	mu       sync.Mutex
	commit   string                       // that main is at
	commits  map[string]map[string]string // commit → file → contents
	large    map[string]bool              // names of files that live on the second host
	etags    map[string]string            // where they are not the usual ones
	requests []request

	// before sees each request first and may answer it.
	before func(w http.ResponseWriter, r *http.Request, where string) bool
}

// request is what the servers saw of one.
type request struct{ Where, Method, Path, Range, IfRange, Auth string }

func newTestHub(t *testing.T) *testHub {
	h := &testHub{
		t:      t,
		commit: commitA,
		commits: map[string]map[string]string{commitA: {
			"tokenizer.json":                                `{"version":"1.0"}` + strings.Repeat(" ", 3<<20),
			"tokenizer_config.json":                         `{"a":1}`,
			"chat_template.jinja":                           "{{ messages }}",
			"additional_chat_templates/tool_use.jinja":      "{{ tools }}",
			"additional_chat_templates/rag 100%? yes.jinja": "{{ documents }}",
			"config.json":                                   "{}",
			"model.safetensors":                             "weights",
			"README.md":                                     "# model",
		}},
		large: map[string]bool{"tokenizer.json": true, "model.safetensors": true},
		etags: map[string]string{},
	}
	h.hub = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, "hub") }))
	h.cdn = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, "cdn") }))
	t.Cleanup(h.hub.Close)
	t.Cleanup(h.cdn.Close)
	return h
}

// client returns a client of the Hub with a cache of its own. It does not sleep.
func (h *testHub) client() *Client {
	return &Client{
		Endpoint: h.hub.URL,
		CacheDir: h.t.TempDir(),
		wait:     func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}
}

func (h *testHub) serve(w http.ResponseWriter, r *http.Request, where string) {
	h.mu.Lock()
	h.requests = append(h.requests, request{
		Where: where, Method: r.Method, Path: r.URL.Path,
		Range: r.Header.Get("Range"), IfRange: r.Header.Get("If-Range"), Auth: r.Header.Get("Authorization"),
	})
	before := h.before
	h.mu.Unlock()
	if before != nil && before(w, r, where) {
		return
	}
	if where == "cdn" {
		h.contents(w, r, strings.TrimPrefix(r.URL.Path, "/store/"), "cdn-knows-it-by-another-tag")
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/"+testRepo+"/revision/"); ok {
		h.list(w, rest)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/"+testRepo+"/resolve/")
	if !ok {
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
		return
	}
	revision, name, _ := strings.Cut(rest, "/")
	commit := h.at(revision)
	text, ok := h.commits[commit][name]
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if h.large[name] {
		w.Header().Set("X-Linked-Etag", `"`+h.etag(name, text)+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(text)))
		http.Redirect(w, r, h.cdn.URL+"/store/"+commit+"/"+name+"?Signature=sealed", http.StatusFound)
		return
	}
	h.contents(w, r, commit+"/"+name, h.etag(name, text))
}

// at returns the commit of a revision.
func (h *testHub) at(revision string) string {
	if revision == "main" || revision == "refs/pr/7" {
		return h.commit
	}
	return revision
}

// contents serves a file, or the part that is asked for.
func (h *testHub) contents(w http.ResponseWriter, r *http.Request, rest, etag string) {
	commit, name, _ := strings.Cut(rest, "/")
	if strings.HasPrefix(etag, "W/") {
		w.Header().Set("ETag", etag)
	} else {
		w.Header().Set("ETag", `"`+etag+`"`)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(h.commits[commit][name]))
}

func (h *testHub) list(w http.ResponseWriter, revision string) {
	revision, _ = url.PathUnescape(revision)
	commit := h.at(revision)
	files, ok := h.commits[commit]
	if !ok {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	answer := struct {
		ID       string    `json:"id"`
		SHA      string    `json:"sha"`
		Siblings []sibling `json:"siblings"`
	}{testRepo, commit, nil}
	for name := range files {
		answer.Siblings = append(answer.Siblings, sibling{name})
	}
	json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

// etag is what the Hub calls contents: SHA-256 of large files, Git's id of small
// ones.
func (h *testHub) etag(name, text string) string {
	if e := h.etags[name]; e != "" {
		return e
	}
	if h.large[name] {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	}
	return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)))
}

// intercept sets what sees each request first.
func (h *testHub) intercept(f func(w http.ResponseWriter, r *http.Request, where string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = f
}

// seen returns the requests so far that match, and forgets all.
func (h *testHub) seen(match func(request) bool) []request {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.DeleteFunc(h.requests, func(r request) bool { return !match(r) })
	h.requests = nil
	return out
}

func anything(request) bool { return true }

func gets(where string) func(request) bool {
	return func(r request) bool { return r.Where == where && r.Method == http.MethodGet }
}

// breakAfter sends the beginning of some contents and breaks the connection.
func breakAfter(w http.ResponseWriter, contents string, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(contents)))
	w.Write([]byte(contents[:n]))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// want is what a fetch of a commit returns.
func (h *testHub) want(commit string) *Files {
	f := h.commits[commit]
	get := func(name string) []byte {
		if text, ok := f[name]; ok {
			return []byte(text)
		}
		return nil
	}
	return &Files{
		Tokenizer:       get("tokenizer.json"),
		TokenizerConfig: get("tokenizer_config.json"),
		ChatTemplate:    get("chat_template.jinja"),
		Config:          get("config.json"),
		Templates: []Template{
			{"rag 100%? yes", get("additional_chat_templates/rag 100%? yes.jinja")},
			{"tool_use", get("additional_chat_templates/tool_use.jinja")},
		},
		Source: testRepo + "@" + commit,
	}
}
