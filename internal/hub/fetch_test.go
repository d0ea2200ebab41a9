package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// tree lists what is below a directory: directories are left out, links shown with
// where they lead.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if to, err := os.Readlink(path); err == nil {
			name += " -> " + to
		}
		out = append(out, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func diffFiles(t *testing.T, got, want *Files) {
	t.Helper()
	opts := cmp.Options{
		cmpopts.IgnoreFields(Files{}, "Stale"),
		// By their sums: a diff of megabytes takes long and says nothing.
		cmp.Transformer("sum", func(b []byte) string { return fmt.Sprintf("%d bytes, %x", len(b), sha256.Sum256(b)) }),
	}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

func TestFetch(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	c.Token = secret
	ends := map[string]int64{}
	c.Progress = func(file string, done, total int64) {
		if done > total || done < ends[file] {
			t.Errorf("progress of %s: %d of %d after %d", file, done, total, ends[file])
		}
		ends[file] = done
	}
	got, err := c.Fetch(t.Context(), testRepo, "")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))

	var layout []string
	repo := "models--org--model-1.5B_x"
	for name, text := range h.commits[commitA] {
		if name == "README.md" || name == "model.safetensors" {
			continue
		}
		etag := h.etag(name, text)
		layout = append(layout, ".locks/"+repo+"/"+etag+".lock", repo+"/blobs/"+etag)
		up := strings.Repeat("../", 2+strings.Count(name, "/"))
		layout = append(layout, repo+"/snapshots/"+commitA+"/"+name+" -> "+up+"blobs/"+etag)
		if ends[name] != int64(len(text)) {
			t.Errorf("progress of %s ended with %d of %d bytes", name, ends[name], len(text))
		}
	}
	layout = append(layout, repo+"/refs/main")
	slices.Sort(layout)
	now := tree(t, c.CacheDir)
	slices.Sort(now)
	if diff := cmp.Diff(layout, now); diff != "" {
		t.Errorf("cache differs (-want +got):\n%s", diff)
	}
	if ref, _ := os.ReadFile(filepath.Join(c.CacheDir, repo, "refs/main")); string(ref) != commitA {
		t.Errorf("refs/main holds %q", ref)
	}

	for _, r := range h.seen(anything) {
		if want := map[string]string{"hub": "Bearer " + secret}[r.Where]; r.Auth != want {
			t.Errorf("%s %s %s came with authorization %q, want %q", r.Where, r.Method, r.Path, r.Auth, want)
		}
	}

	again, err := c.Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, again, h.want(commitA))
	if reqs := h.seen(anything); len(reqs) != 1 || !strings.HasPrefix(reqs[0].Path, "/api/") {
		t.Errorf("a second fetch asked for %v", reqs)
	}
	read, err := Read(filepath.Join(c.CacheDir, repo))
	if err != nil {
		t.Fatal(err)
	}
	read.Source = again.Source
	diffFiles(t, read, again)
}

func TestFetchRevisions(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	h.seen(anything)

	// main moves on: one file changes, one goes, the others are known by their etag.
	next := map[string]string{}
	for name, text := range h.commits[commitA] {
		next[name] = text
	}
	next["tokenizer_config.json"] = `{"a":2}`
	delete(next, "config.json")
	h.commits[commitB], h.commit = next, commitB
	for _, revision := range []string{"main", "refs/pr/7", commitB} {
		got, err := c.Fetch(t.Context(), testRepo, revision)
		if err != nil {
			t.Fatal(err)
		}
		diffFiles(t, got, h.want(commitB))
	}
	var paths []string
	for _, r := range h.seen(func(r request) bool { return r.Method == http.MethodGet && !strings.HasPrefix(r.Path, "/api/") }) {
		paths = append(paths, r.Path)
	}
	if want := []string{"/" + testRepo + "/resolve/" + commitB + "/tokenizer_config.json"}; !slices.Equal(paths, want) {
		t.Errorf("downloaded %v, want %v", paths, want)
	}
	old, err := c.Fetch(t.Context(), testRepo, commitA)
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, old, h.want(commitA))
	for revision, commit := range map[string]string{"main": commitB, "refs/pr/7": commitB} {
		if text, _ := os.ReadFile(c.local(testRepo).ref(revision)); string(text) != commit {
			t.Errorf("ref of %s is %q", revision, text)
		}
	}
}

func (c *Client) local(repo string) repository { return repositoryOf(c.CacheDir, repo) }

func TestFetchOffline(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	off := *c
	off.Offline = true
	if _, err := off.Fetch(t.Context(), testRepo, "main"); !errors.Is(err, ErrOffline) {
		t.Errorf("offline with an empty cache: %v", err)
	}
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	h.seen(anything)
	for _, revision := range []string{"main", commitA} {
		got, err := off.Fetch(t.Context(), testRepo, revision)
		if err != nil {
			t.Fatal(err)
		}
		diffFiles(t, got, h.want(commitA))
		if got.Stale != nil {
			t.Errorf("offline on purpose is stale: %v", got.Stale)
		}
	}
	if _, err := off.Fetch(t.Context(), testRepo, "v2"); !errors.Is(err, ErrOffline) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("offline, unknown revision: %v", err)
	}
	if reqs := h.seen(anything); len(reqs) > 0 {
		t.Errorf("an offline client asked %v", reqs)
	}
}

func TestFetchFallsBack(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		status int
		code   string
		stale  bool
	}{
		{"the Hub is down", 503, "", true},
		{"the token has expired", 401, "", true},
		{"the repository has gone", 404, "RepoNotFound", true},
		{"the revision has gone", 404, "RevisionNotFound", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				refuse(w, tt.status, tt.code, "")
				return true
			})
			defer h.intercept(nil)
			h.seen(anything)
			got, err := c.Fetch(t.Context(), testRepo, "main")
			if n := len(h.seen(anything)); n != 1 {
				t.Errorf("%d requests, want 1: there is something to fall back on", n)
			}
			if !tt.stale {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			diffFiles(t, got, h.want(commitA))
			if se := (*StatusError)(nil); !errors.As(got.Stale, &se) || se.Status != tt.status {
				t.Errorf("stale because of %v", got.Stale)
			}
		})
	}
	h.hub.Close()
	got, err := c.Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	if got.Stale == nil {
		t.Error("nobody is there, and yet not stale")
	}
}

func TestFetchRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		code   string
		token  string
		is     error
		says   string
	}{
		{"gated, no token", 401, "GatedRepo", "", ErrAccess, "set HF_TOKEN"},
		{"gated, token", 403, "GatedRepo", secret, ErrAccess, "/org/model-1.5B_x have to be accepted"},
		{"private or unknown", 401, "RepoNotFound", "", ErrAccess, "set HF_TOKEN"},
		{"bad token", 401, "", secret, ErrAccess, "check HF_TOKEN"},
		{"forbidden", 403, "", secret, ErrAccess, "check HF_TOKEN"},
		{"no repository", 404, "RepoNotFound", secret, ErrNotFound, "no such model"},
		{"no revision", 404, "RevisionNotFound", "", ErrNotFound, "has no revision main"},
		{"no hub", 404, "", "", ErrNotFound, "a Hub?"},
		{"no entry", 404, "EntryNotFound", "", ErrNotFound, "listed but not there"},
		{"teapot", 418, "", "", nil, "418 I'm a teapot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newTestHub(t)
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				if tt.code == "EntryNotFound" && strings.HasPrefix(r.URL.Path, "/api/") {
					return false
				}
				refuse(w, tt.status, tt.code, "no: "+r.Header.Get("Authorization")+" \u009b1m")
				return true
			})
			c := h.client()
			c.Token = tt.token
			_, err := c.Fetch(t.Context(), testRepo, "main")
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q, want one that says %q", err, tt.says)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\u009b") {
				t.Errorf("error %q shows what it must not", err)
			}
			if se := (*StatusError)(nil); !errors.As(err, &se) || se.Status != tt.status || se.Code != tt.code {
				t.Errorf("error %#v", se)
			}
			if tt.code != "EntryNotFound" {
				if reqs := h.seen(anything); len(reqs) != 1 {
					t.Errorf("asked %d times", len(reqs))
				}
			}
		})
	}
}

func TestFetchNoTokenizer(t *testing.T) {
	h := newTestHub(t)
	h.commits[commitA] = map[string]string{"config.json": "{}", "tokenizer.model": "proto"}
	c := h.client()
	_, err := c.Fetch(t.Context(), testRepo, "main")
	if !errors.Is(err, ErrNoTokenizer) || !strings.Contains(err.Error(), "there is a tokenizer.model") {
		t.Errorf("error %v", err)
	}
	if reqs := h.seen(anything); len(reqs) != 1 {
		t.Errorf("asked %v", reqs)
	}
}

func TestFetchTiktoken(t *testing.T) {
	h := newTestHub(t)
	h.commits[commitA] = map[string]string{"tiktoken.model": "YQ== 0\n", "tokenizer_config.json": "{}"}
	got, err := h.client().Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, &Files{TiktokenModel: []byte("YQ== 0\n"), TokenizerConfig: []byte("{}"), Source: testRepo + "@" + commitA})
}

// TestFetchHostile has a server that wants to write elsewhere.
func TestFetchHostile(t *testing.T) {
	for name, answer := range map[string]string{
		"commit":  `{"sha":"../../../../elsewhere","siblings":[{"rfilename":"tokenizer.json"}]}`,
		"empty":   `{}`,
		"no json": `<html>`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t)
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				fmt.Fprint(w, answer)
				return true
			})
			c := h.client()
			if f, err := c.Fetch(t.Context(), testRepo, "main"); err == nil {
				t.Errorf("got %v", f.Source)
			}
			if got := tree(t, c.CacheDir); len(got) > 0 {
				t.Errorf("cache holds %v", got)
			}
		})
	}
	for _, etag := range []string{"../../../x", "..", "", ".x", "a/b", `a\b`, strings.Repeat("a", 200)} {
		h := newTestHub(t)
		h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
			if r.Method != http.MethodHead {
				return false
			}
			w.Header().Set("ETag", `"`+etag+`"`)
			return true
		})
		c := h.client()
		if _, err := c.Fetch(t.Context(), testRepo, "main"); err == nil || !strings.Contains(err.Error(), "etag") {
			t.Errorf("etag %q: error %v", etag, err)
		}
		if got := tree(t, c.CacheDir); len(got) > 0 {
			t.Errorf("etag %q: cache holds %v", etag, got)
		}
	}
	if got := wanted([]string{
		"tokenizer.json", "../tokenizer.json", "/tokenizer.json", "sub/config.json", "additional_chat_templates/../../x.jinja",
		"additional_chat_templates/a/b.jinja", `additional_chat_templates/a\b.jinja`, "additional_chat_templates/.jinja",
		"additional_chat_templates/..jinja", "additional_chat_templates//x.jinja", "additional_chat_templates/x.txt",
		"additional_chat_templates/ok.jinja", "additional_chat_templates/ok.jinja", "tokenizer.json",
	}); !slices.Equal(got, []string{"additional_chat_templates/ok.jinja", "tokenizer.json"}) {
		t.Errorf("wanted %q", got)
	}
}

func TestFetchArguments(t *testing.T) {
	c := &Client{CacheDir: t.TempDir(), Offline: true}
	for _, repo := range []string{
		"", "/", "org/", "/name", "a/b/c", "..", "org/..", "../name", "org/na..me", "org/na--me", "org/-name", "org/name.",
		"org/name.git", "org/na me", "org/nämе", `org\name`, "org/name?x", "org/" + strings.Repeat("a", 97),
	} {
		if _, err := c.Fetch(t.Context(), repo, ""); err == nil || !strings.Contains(err.Error(), "expected org/name") {
			t.Errorf("repository %q: error %v", repo, err)
		}
	}
	for _, revision := range []string{"..", ".", "/main", "main/", "a//b", "a/../b", "../x", "a b", "a\x00", `a\b`, ".hidden", "x/.y", strings.Repeat("a", 256)} {
		if _, err := c.Fetch(t.Context(), "org/name", revision); err == nil || !strings.Contains(err.Error(), "expected a branch") {
			t.Errorf("revision %q: error %v", revision, err)
		}
	}
	for _, repo := range []string{"gpt2", "Qwen/Qwen3-0.6B", "a_b/c.d-e_f", "_x/y_"} {
		if _, err := c.Fetch(t.Context(), repo, "refs/pr/1"); !errors.Is(err, ErrOffline) {
			t.Errorf("repository %q: error %v", repo, err)
		}
	}
	for field, c := range map[string]*Client{
		"cache directory": {},
		"endpoint":        {CacheDir: "x", Endpoint: "ftp://user:" + secret + "@x"},
		"token":           {CacheDir: "x", Token: secret + "\n"},
	} {
		_, err := c.Fetch(t.Context(), "org/name", "")
		if err == nil || !strings.Contains(err.Error(), field+": expected") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

func TestFetchConcurrently(t *testing.T) {
	h := newTestHub(t)
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		c := h.client()
		c.CacheDir = dir
		wg.Go(func() {
			got, err := c.Fetch(t.Context(), testRepo, "main")
			if err != nil {
				t.Error(err)
				return
			}
			diffFiles(t, got, h.want(commitA))
		})
	}
	wg.Wait()
	count := map[string]int{}
	for _, r := range h.seen(func(r request) bool { return r.Method == http.MethodGet && !strings.HasPrefix(r.Path, "/api/") }) {
		count[r.Where+r.Path]++
	}
	for path, n := range count {
		if n != 1 {
			t.Errorf("%s was downloaded %d times", path, n)
		}
	}
	for _, path := range tree(t, dir) {
		if strings.Contains(path, ".incomplete") || strings.Contains(path, ".tmp") {
			t.Errorf("left behind: %s", path)
		}
	}
}

func TestFetchWithoutLinks(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	c.symlink = func(string, string) error { return errors.New("no links here") }
	got, err := c.Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))
	info, err := os.Lstat(c.local(testRepo).file(commitA, tokenizerName))
	if err != nil || !info.Mode().IsRegular() {
		t.Errorf("tokenizer.json is %v, %v", info.Mode(), err)
	}
}

// TestFetchReadOnly has a cache that holds everything but the ref, which cannot be
// written: something else is in its place.
func TestFetchReadOnly(t *testing.T) {
	h := newTestHub(t)
	c := h.client()
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.local(testRepo).ref("refs/pr/7/x"), 0o777); err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(t.Context(), testRepo, "refs/pr/7")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))
}

// TestRedirectRules has redirects that the Hub uses and some that nobody should
// follow.
func TestRedirectRules(t *testing.T) {
	t.Run("renamed repository", func(t *testing.T) {
		h := newTestHub(t)
		h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
			if !strings.Contains(r.URL.Path, "old/name") {
				return false
			}
			http.Redirect(w, r, strings.Replace(r.URL.EscapedPath(), "old/name", testRepo, 1), http.StatusTemporaryRedirect)
			return true
		})
		c := h.client()
		c.Token = secret
		got, err := c.Fetch(t.Context(), "old/name", "main")
		if err != nil {
			t.Fatal(err)
		}
		want := h.want(commitA)
		want.Source = "old/name@" + commitA
		diffFiles(t, got, want)
		for _, r := range h.seen(func(r request) bool { return r.Where == "hub" }) {
			if r.Auth == "" {
				t.Errorf("%s %s came without the token", r.Method, r.Path)
			}
		}
	})
	t.Run("mirror", func(t *testing.T) {
		h := newTestHub(t)
		mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, h.hub.URL+r.URL.EscapedPath(), http.StatusPermanentRedirect)
		}))
		defer mirror.Close()
		c := h.client()
		c.Endpoint, c.Token = mirror.URL+"/", secret
		got, err := c.Fetch(t.Context(), testRepo, "main")
		if err != nil {
			t.Fatal(err)
		}
		diffFiles(t, got, h.want(commitA))
		for _, r := range h.seen(anything) {
			if r.Auth != "" {
				t.Errorf("%s %s came with the token of the mirror", r.Method, r.Path)
			}
		}
	})
	t.Run("endless", func(t *testing.T) {
		h := newTestHub(t)
		h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		})
		_, err := h.client().Fetch(t.Context(), testRepo, "main")
		if n := len(h.seen(anything)); err == nil || n != maxHops {
			t.Errorf("error %v after %d requests", err, n)
		}
	})
	t.Run("to plain text", func(t *testing.T) {
		h := newTestHub(t)
		secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, h.hub.URL+r.URL.Path+"?Signature=sealed", http.StatusFound)
		}))
		defer secure.Close()
		c := h.client()
		c.Endpoint, c.HTTP = secure.URL, secure.Client()
		_, err := c.Fetch(t.Context(), testRepo, "main")
		if err == nil || !strings.Contains(err.Error(), "expected https") || strings.Contains(err.Error(), "sealed") {
			t.Errorf("error %v", err)
		}
		if reqs := h.seen(anything); len(reqs) > 0 {
			t.Errorf("followed: %v", reqs)
		}
	})
	t.Run("to nowhere", func(t *testing.T) {
		h := newTestHub(t)
		h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
			w.WriteHeader(http.StatusFound)
			return true
		})
		if _, err := h.client().Fetch(t.Context(), testRepo, "main"); err == nil {
			t.Error("no error")
		}
	})
}

func TestTokenNotShown(t *testing.T) {
	c := &Client{Token: secret, CacheDir: "/cache"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "client", c)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "client", c)
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), log.String()} {
		if strings.Contains(s, secret) {
			t.Errorf("%s", s)
		}
	}
	// net/http quotes the headers that it cannot parse.
	h := newTestHub(t)
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		refuse(w, http.StatusTeapot, "", r.Header.Get("Authorization")+"\x01")
		return true
	})
	echo := h.client()
	echo.Token = secret
	if _, err := echo.Fetch(t.Context(), testRepo, "main"); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "[token]") {
		t.Errorf("error %v", err)
	}
	h.intercept(nil)

	// Signatures and passwords of URLs are not shown either.
	cl := h.client()
	cl.Endpoint = strings.Replace(cl.Endpoint, "http://", "http://user:"+secret+"@", 1)
	h.cdn.Close()
	if _, err := cl.Fetch(t.Context(), testRepo, "main"); err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "sealed") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cl.Fetch(ctx, testRepo, "main"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
