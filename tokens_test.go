package stator_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator"
)

// tiny is a tokenizer that knows two words and how a text begins.
const tiny = `{
	"version": "1.0",
	"added_tokens": [{"id": 3, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
	"normalizer": null,
	"pre_tokenizer": {"type": "WhitespaceSplit"},
	"post_processor": {"type": "TemplateProcessing",
		"single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
		"pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
	"decoder": null,
	"model": {"type": "WordLevel", "vocab": {"<unk>": 0, "one": 1, "two": 2}, "unk_token": "<unk>"}
}`

const tinyTemplate = `{% if marked %}<s>{% endif %}{% for m in messages %}{{ m.content }} {% endfor %}`

// write makes files below a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// promptTokens asks a server for the tokens of a prompt.
func promptTokens(t *testing.T, base, path, members string) []uint32 {
	t.Helper()
	resp, err := http.Post(base+path, "application/json", strings.NewReader(`{"nvext":{"annotations":["query_instance_id:"]},`+members+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	var out struct {
		NvExt struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"nvext"`
	}
	if err := json.Unmarshal(body, &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", members, resp.StatusCode, err, body)
	}
	return out.NvExt.TokenIDs
}

// TestModels: each served model has the tokens that its entry says.
func TestModels(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"tiny/tokenizer.json":             tiny,
		"tiny/chat_template.jinja":        tinyTemplate,
		"bare/tokenizer.json":             tiny,
		"reversed.jinja":                  `{% for m in messages | reverse %}{{ m.content }} {% endfor %}`,
		"hub/models--org--tiny/refs/main": "0123456789012345678901234567890123456789",
		"hub/models--org--tiny/snapshots/0123456789012345678901234567890123456789/tokenizer.json": tiny,
	})
	path := filepath.Join(dir, "tiny")
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines, cfg.Sim.Profile = 1, "instant"
	cfg.Sim.Adapters = []string{"inherits", "marked", "reversed", "cached", "asked", "unknown", "bare"}
	cfg.Hub = stator.HubConfig{CacheDir: filepath.Join(dir, "hub"), Offline: new(true)}
	cfg.Models = []stator.ModelConfig{
		{Name: "stator-sim", Tokenizer: path},
		{Name: "marked", Tokenizer: path, ChatTemplateKwargs: map[string]any{"marked": true}, Cache: new(stator.Size(0))},
		{Name: "reversed", Tokenizer: path, ChatTemplate: filepath.Join(dir, "reversed.jinja")},
		{Name: "bare", Tokenizer: filepath.Join(dir, "bare", "tokenizer.json")},
		{Name: "cached", Tokenizer: "org/tiny"},
		{Name: "asked", Tokenizer: "engine"},
		{Name: "unknown", Tokenizer: "none"},
		{Name: "nobody serves it", Tokenizer: path, Dialect: "vllm"},
	}
	var log bytes.Buffer
	srv, err := stator.New(cfg, stator.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for _, row := range []struct {
		model string
		chat  []uint32
		text  []uint32
		bare  []uint32
	}{
		{"stator-sim", []uint32{1, 0}, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"inherits", []uint32{1, 0}, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"marked", []uint32{3, 1, 0}, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"reversed", []uint32{0, 1}, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"bare", nil, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"cached", nil, []uint32{3, 2, 1}, []uint32{2, 1}},
		{"asked", []uint32{151644, 872, 198, 603, 151645, 198, 151644, 872, 198, 27856, 151645, 198, 151644, 77091, 198}, []uint32{19789, 825}, []uint32{19789, 825}},
		{"unknown", nil, nil, nil},
	} {
		base, model := "http://"+srv.Addr(), `"model":"`+row.model+`",`
		for _, c := range []struct {
			path, members string
			want          []uint32
		}{
			{"/v1/chat/completions", `"messages":[{"role":"user","content":"one"},{"role":"user","content":"three"}]`, row.chat},
			{"/v1/completions", `"prompt":"two one"`, row.text},
			{"/v1/completions", `"prompt":"two one","add_special_tokens":false`, row.bare},
		} {
			if diff := cmp.Diff(c.want, promptTokens(t, base, c.path, model+c.members)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", row.model, c.members, diff)
			}
		}
	}

	srv.Close() // nobody writes to the log any more
	var lines []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "token") {
			_, line, _ = strings.Cut(line, " ")
			lines = append(lines, regexp.MustCompile(`load_ms=\d+`).ReplaceAllString(strings.TrimSpace(strings.ReplaceAll(line, dir, "DIR")), "load_ms=N"))
		}
	}
	const loaded = `level=INFO msg="tokenizer loaded" model=`
	const tail = ` fingerprint=TINY tokens=4 template=true load_ms=N`
	const none = ` fingerprint=TINY tokens=4 template=false load_ms=N`
	fingerprint := regexp.MustCompile(`fingerprint=[0-9a-f]{12} `)
	for i := range lines {
		lines[i] = fingerprint.ReplaceAllString(lines[i], "fingerprint=TINY ")
	}
	const noTemplate = ` reason="the model has no chat template: give one, or ask the engine to tokenize"`
	if diff := cmp.Diff([]string{
		`level=INFO msg="engines are asked for tokens" model=asked`,
		loaded + `"stator-sim, nobody serves it" source=DIR/tiny` + tail,
		loaded + `marked source=DIR/tiny` + tail,
		loaded + `reversed source=DIR/tiny` + tail,
		loaded + `bare source=DIR/bare/tokenizer.json` + none,
		`level=WARN msg="chats are placed without tokens" model=bare` + noTemplate,
		loaded + `cached source=org/tiny@0123456789012345678901234567890123456789` + none,
		`level=WARN msg="chats are placed without tokens" model=cached` + noTemplate,
		`level=WARN msg="no engine serves a model for these tokenizers" models="nobody serves it"`,
	}, lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestModelThatCannotBeLoaded: the server does not start, and says which model and
// which file it is about.
func TestModelThatCannotBeLoaded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"broken/tokenizer.json":   `{"model":{"type":"Word2Vec","vocab":{"a":0}}}`,
		"empty/config.json":       `{}`,
		"good/tokenizer.json":     tiny,
		"good/bad.jinja":          "{% if %}",
		"good/blank.jinja":        " \n",
		"tiktoken/tiktoken.model": "YQ== 0\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	mirror := httptest.NewServer(http.NotFoundHandler())
	defer mirror.Close()
	for _, row := range []struct {
		name  string
		model stator.ModelConfig
		hub   stator.HubConfig
		want  []string
	}{
		{"unknown model type", stator.ModelConfig{Tokenizer: at("broken")}, stator.HubConfig{}, []string{at("broken"), "tokenizer.json", "Word2Vec"}},
		{"no tokenizer", stator.ModelConfig{Tokenizer: at("empty")}, stator.HubConfig{}, []string{at("empty"), "no tokenizer.json"}},
		{"a template that is none", stator.ModelConfig{Tokenizer: at("good"), ChatTemplate: at("good/bad.jinja")}, stator.HubConfig{}, []string{"chat template", "line 1"}},
		{"an empty template", stator.ModelConfig{Tokenizer: at("good"), ChatTemplate: at("good/blank.jinja")}, stator.HubConfig{}, []string{"chat_template: ", "blank.jinja is empty"}},
		{"no pattern", stator.ModelConfig{Tokenizer: at("tiktoken")}, stator.HubConfig{}, []string{"tiktoken.model", "pattern"}},
		{"offline", stator.ModelConfig{Tokenizer: "org/gone"}, stator.HubConfig{CacheDir: at("hub"), Offline: new(true)}, []string{"org/gone", "offline"}},
		{"not on the Hub", stator.ModelConfig{Tokenizer: "org/gone"}, stator.HubConfig{CacheDir: at("hub"), Endpoint: mirror.URL, Token: "hush"}, []string{"org/gone", "404"}},
		{"no place for downloads", stator.ModelConfig{Tokenizer: "org/gone"}, stator.HubConfig{}, []string{"org/gone"}},
	} {
		cfg := stator.DefaultConfig()
		cfg.Listen = "127.0.0.1:0"
		row.model.Name = "m"
		cfg.Models, cfg.Hub = []stator.ModelConfig{{Name: "other", Tokenizer: "none"}, row.model}, row.hub
		srv, err := stator.New(cfg)
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		err = srv.Start(t.Context())
		if err == nil {
			t.Errorf("%s: it starts", row.name)
			srv.Close()
			continue
		}
		for _, want := range append(row.want, `models[1].tokenizer: model "m": `) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", row.name, want, err)
			}
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the token is in %v", row.name, err)
		}
		if srv.Addr() != "" {
			t.Errorf("%s: it listens on %s", row.name, srv.Addr())
		}
	}
}

// TestDownload: what is on a Hub is brought here once, and somebody hears of it.
func TestDownload(t *testing.T) {
	const commit = "89abcdef0123456789abcdef0123456789abcdef"
	etag := fmt.Sprintf(`"%x"`, sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(tiny), tiny)))
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/models/org/tiny"):
			io.WriteString(w, `{"sha":"`+commit+`","siblings":[{"rfilename":"tokenizer.json"},{"rfilename":"model.safetensors"}]}`)
		case strings.HasSuffix(r.URL.Path, "/tokenizer.json"):
			w.Header().Set("ETag", etag)
			http.ServeContent(w, r, "tokenizer.json", time.Time{}, strings.NewReader(tiny))
		default:
			http.NotFound(w, r)
		}
	}))
	defer mirror.Close()
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Hub = stator.HubConfig{Endpoint: mirror.URL, CacheDir: t.TempDir()}
	cfg.Models = []stator.ModelConfig{{Name: "*", Tokenizer: "org/tiny@main"}}
	for i, want := range [][]string{{"tokenizer.json"}, nil} {
		var files []string
		srv, err := stator.New(cfg, stator.WithProgress(func(file string, done, total int64) {
			if done == total {
				files = append(files, file)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := srv.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		srv.Close()
		if diff := cmp.Diff(want, files); diff != "" {
			t.Errorf("start %d: downloads (-want +got):\n%s", i, diff)
		}
	}
}
