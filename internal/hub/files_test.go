package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lay writes files below a new directory and returns it. Contents that begin with
// "->" are links.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(to, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		path  string // below the directory
		want  Files
		from  string // Source, where it is not the path
	}{
		{
			name: "directory",
			files: map[string]string{
				"tokenizer.json": "t", "tokenizer_config.json": "tc", "chat_template.jinja": "ct", "chat_template.json": "cj",
				"tiktoken.model": "tm", "config.json": "c", "generation_config.json": "g", "special_tokens_map.json": "s",
				"additional_chat_templates/tool_use.jinja": "tu", "additional_chat_templates/rag.jinja": "r",
				"additional_chat_templates/README.md": "no", "additional_chat_templates/.jinja": "no", "model.safetensors": "no",
			},
			want: Files{
				Tokenizer: []byte("t"), TokenizerConfig: []byte("tc"), ChatTemplate: []byte("ct"), ChatTemplateJSON: []byte("cj"),
				TiktokenModel: []byte("tm"), Config: []byte("c"), GenerationConfig: []byte("g"), SpecialTokensMap: []byte("s"),
				Templates: []Template{{"rag", []byte("r")}, {"tool_use", []byte("tu")}},
			},
		},
		{
			name:  "empty file is not an absent one",
			files: map[string]string{"tokenizer.json": "t", "chat_template.jinja": ""},
			want:  Files{Tokenizer: []byte("t"), ChatTemplate: []byte{}},
		},
		{
			name:  "tokenizer.json",
			files: map[string]string{"tokenizer.json": "t", "tokenizer_config.json": "tc", "tiktoken.model": "tm"},
			path:  "tokenizer.json",
			want:  Files{Tokenizer: []byte("t"), TokenizerConfig: []byte("tc")},
		},
		{
			name:  "tiktoken.model",
			files: map[string]string{"tokenizer.json": "t", "tokenizer_config.json": "tc", "tiktoken.model": "tm"},
			path:  "tiktoken.model",
			want:  Files{TiktokenModel: []byte("tm"), TokenizerConfig: []byte("tc")},
		},
		{
			name:  "another name is read alone",
			files: map[string]string{"mine.json": "m", "tokenizer_config.json": "tc"},
			path:  "mine.json",
			want:  Files{Tokenizer: []byte("m")},
		},
		{
			name:  "another name of a tiktoken file",
			files: map[string]string{"o200k.tiktoken": "o", "tokenizer_config.json": "tc"},
			path:  "o200k.tiktoken",
			want:  Files{TiktokenModel: []byte("o")},
		},
		{
			name: "cache, refs/main",
			files: map[string]string{
				"models--a--b/blobs/1": "t1", "models--a--b/blobs/2": "t2", "models--a--b/refs/main": commitB + "\n",
				"models--a--b/snapshots/" + commitA + "/tokenizer.json":                    "->../../blobs/1",
				"models--a--b/snapshots/" + commitB + "/tokenizer.json":                    "->../../blobs/2",
				"models--a--b/snapshots/" + commitB + "/additional_chat_templates/x.jinja": "->../../../blobs/1",
			},
			path: "models--a--b",
			want: Files{Tokenizer: []byte("t2"), Templates: []Template{{"x", []byte("t1")}}},
			from: "models--a--b/snapshots/" + commitB,
		},
		{
			name:  "cache, the only snapshot",
			files: map[string]string{"blobs/1": "t1", "refs/v1": commitA, "snapshots/" + commitA + "/tokenizer.json": "->../../blobs/1"},
			want:  Files{Tokenizer: []byte("t1")},
			from:  "snapshots/" + commitA,
		},
		{
			name:  "cache, refs/main ahead of the only snapshot",
			files: map[string]string{"blobs/1": "t1", "refs/main": commitB, "snapshots/" + commitA + "/tokenizer.json": "->../../blobs/1"},
			want:  Files{Tokenizer: []byte("t1")},
			from:  "snapshots/" + commitA,
		},
		{
			name:  "snapshot by its path",
			files: map[string]string{"blobs/1": "t1", "blobs/2": "tc", "snapshots/x/tokenizer.json": "->../../blobs/1", "snapshots/x/tokenizer_config.json": "->../../blobs/2"},
			path:  "snapshots/x/tokenizer.json",
			want:  Files{Tokenizer: []byte("t1"), TokenizerConfig: []byte("tc")},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := lay(t, tt.files)
			path := filepath.Join(dir, tt.path)
			got, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Source = path
			if tt.from != "" {
				tt.want.Source = filepath.Join(dir, tt.from)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("files differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		path  string
		is    error
		says  string
	}{
		{"nothing there", nil, "x", fs.ErrNotExist, "x"},
		{"no tokenizer", map[string]string{"config.json": "{}"}, "", ErrNoTokenizer, "no tokenizer.json and no tiktoken.model"},
		{"SentencePiece only", map[string]string{"tokenizer.model": "p"}, "", ErrNoTokenizer, "there is a tokenizer.model"},
		{"tekken only", map[string]string{"tekken.json": "p"}, "", ErrNoTokenizer, "there is a tekken.json"},
		{"LFS pointer", map[string]string{"tokenizer.json": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"}, "", nil, "git lfs pull"},
		{"a directory of that name", map[string]string{"tokenizer.json/x": ""}, "", nil, "no regular file"},
		{"a link to nowhere", map[string]string{"tokenizer.json": "->blob"}, "", ErrNoTokenizer, ""},
		{"several snapshots", map[string]string{"snapshots/a/x": "", "snapshots/b/x": ""}, "", nil, "there are 2"},
		{"no snapshots", map[string]string{"snapshots/x": ""}, "", nil, "there are 0"},
		{"ref of something else", map[string]string{"refs/main": "../../etc", "snapshots/a/x": ""}, "", nil, "expected a commit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Read(filepath.Join(lay(t, tt.files), tt.path))
			if err == nil {
				t.Fatalf("read %+v", f)
			}
			if tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v", err)
			}
		})
	}
	dir := t.TempDir()
	big, err := os.Create(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer big.Close()
	if err := big.Truncate(MaxFileBytes + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file too large: %v", err)
	}
}

func TestFromEnv(t *testing.T) {
	home := lay(t, map[string]string{
		".cache/huggingface/token": " hf_default\n",
		"hfhome/token":             "hf_home",
		"elsewhere":                "hf_elsewhere",
	})
	for _, tt := range []struct {
		name string
		env  map[string]string
		want Client
	}{
		{"nothing", nil, Client{CacheDir: home + "/.cache/huggingface/hub", Token: "hf_default"}},
		{"home", map[string]string{"HF_HOME": "~/hfhome"}, Client{CacheDir: home + "/hfhome/hub", Token: "hf_home"}},
		{"variables in it", map[string]string{"HF_HOME": "$HOME/hfhome"}, Client{CacheDir: home + "/hfhome/hub", Token: "hf_home"}},
		{"cache home", map[string]string{"XDG_CACHE_HOME": "/x"}, Client{CacheDir: "/x/huggingface/hub"}},
		{"cache", map[string]string{"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, Client{CacheDir: "/c"}},
		{"old name of the cache", map[string]string{"HUGGINGFACE_HUB_CACHE": "/c"}, Client{CacheDir: "/c", Token: "hf_default"}},
		{"token", map[string]string{"HF_TOKEN": " hf_env\n", "HF_HOME": "/h"}, Client{CacheDir: "/h/hub", Token: "hf_env"}},
		{"token file", map[string]string{"HF_TOKEN_PATH": "~/elsewhere"}, Client{CacheDir: home + "/.cache/huggingface/hub", Token: "hf_elsewhere"}},
		{"endpoint, offline", map[string]string{"HF_ENDPOINT": "http://mirror/", "HF_HUB_OFFLINE": "yes", "HF_HOME": "/h"},
			Client{CacheDir: "/h/hub", Endpoint: "http://mirror/", Offline: true}},
		{"not offline", map[string]string{"HF_HUB_OFFLINE": "0", "HF_HOME": "/h"}, Client{CacheDir: "/h/hub"}},
		{"no home at all", map[string]string{"HOME": ""}, Client{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromEnv(func(name string) string {
				if v, ok := tt.env[name]; ok {
					return v
				}
				return map[string]string{"HOME": home}[name]
			})
			if err != nil {
				t.Fatal(err)
			}
			type plain struct {
				Endpoint, Token, CacheDir string
				Offline                   bool
			}
			view := func(c *Client) plain { return plain{c.Endpoint, c.Token, c.CacheDir, c.Offline} }
			if diff := cmp.Diff(view(&tt.want), view(got)); diff != "" {
				t.Errorf("client differs (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := FromEnv(func(name string) string { return map[string]string{"HF_TOKEN_PATH": home}[name] }); err == nil {
		t.Error("a token file that is a directory is no error")
	}
}

// FuzzNames holds that whatever is accepted as a name stays below the cache.
func FuzzNames(f *testing.F) {
	f.Add("org/name", "refs/pr/1", "d41d8cd9", "additional_chat_templates/x.jinja")
	f.Add("../x", "a/../../b", "..", "additional_chat_templates/../x.jinja")
	f.Fuzz(func(t *testing.T, repo, revision, etag, file string) {
		const cache = "/cache"
		inside := func(path, dir string) {
			if rel, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(rel) || rel == "." {
				t.Errorf("repository %q, revision %q, etag %q, file %q: %s is not below %s", repo, revision, etag, file, path, dir)
			}
		}
		if checkRepo(repo) != nil {
			return
		}
		r := repositoryOf(cache, repo)
		inside(r.dir, cache)
		if strings.Count(r.dir, "/") != 2 {
			t.Errorf("repository %q is in %s", repo, r.dir)
		}
		if checkRevision(revision) == nil {
			inside(r.ref(revision), r.dir+"/refs")
		}
		if goodTag(etag) {
			inside(r.blob(etag), r.dir+"/blobs")
		}
		for _, name := range wanted([]string{file}) {
			inside(r.file(commitA, name), r.snapshot(commitA))
		}
	})
}
