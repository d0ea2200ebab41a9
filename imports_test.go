package stator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stator-ai/stator"

// layers is the product from top to bottom. A package imports only what stands in
// a lower layer, so that the path of a request can be read downwards and nothing
// below can ask what is above. Paths are relative to the module; "." is its root.
var layers = [][]string{
	{"bench", "examples/agent", "hints/sdktest", "internal/llamatest", "internal/promtest", "internal/vllmtest"},
	{"cmd/stator", "internal/ucd/gen", "internal/tokenize/normal/gen", "internal/tokenize/qwen3/gen"},
	{"."},
	{"internal/collect", "internal/doctor", "internal/frontend", "internal/hintproxy", "internal/indexserver", "internal/monitor", "internal/policyeval", "internal/replay"},
	{"internal/router", "internal/kvlink", "internal/engine/detect"},
	{"internal/kvfeed", "internal/engine/vllm", "internal/engine/sglang", "internal/engine/trtllm", "internal/engine/llamacpp"},
	{"internal/engine/eventsocket", "internal/engine/openaihttp", "internal/engine/enginetest", "internal/kvindex", "internal/sched", "internal/thompson", "internal/simserver", "internal/trace/tracetest"},
	{"internal/tokenize/qwen3", "internal/tokenize/oracletest"},
	{"internal/tokenize/local"},
	{"internal/tokenize/chat", "internal/tokenize/hf", "internal/tokenize/prefix"},
	{"internal/engine", "internal/kv/dynamo", "internal/kv/enginehash", "internal/kvlog", "internal/tokenize", "internal/tokenize/detok", "internal/tokenize/model", "internal/tokenize/normal", "internal/tokenize/split", "internal/simengine", "internal/trace", "hints"},
	{"internal/onig"},
	{"internal/engine/promtext", "internal/zmtp", "internal/hub", "internal/jinja", "internal/kv", "internal/openai", "internal/metrics", "internal/learn", "internal/terminal", "internal/ucd", "nvext", "trie"},
}

// core packages decide: the same inputs give the same answer, in a server, in a
// replay and in a test. They have no clock, socket or log.
var core = []string{
	"nvext", "trie", "internal/kv", "internal/kv/dynamo", "internal/kv/enginehash", "internal/kvfeed", "internal/kvindex", "internal/learn", "internal/sched", "internal/thompson", "internal/simengine",
}

// rule forbids a package to some importers.
type rule struct {
	importers []string // relative to the module; nil means all
	except    []string
	forbidden string // an import path; with /... at its end also those below
	indirect  bool   // also through other packages
	reason    string
}

var rules = slices.Concat(
	coreRules("the core decides from its arguments alone",
		"net", "net/http", "log/slog", "github.com/nats-io/...", "github.com/prometheus/...", "go.opentelemetry.io/..."),
	[]rule{
		{
			except:    []string{".", "cmd/stator", "bench"},
			forbidden: module + "/internal/simserver",
			reason:    "an engine is reached over HTTP, simulated or not; only what wires a server up knows",
		},
		{
			except:    []string{".", "internal/frontend", "internal/indexserver", "internal/monitor", "internal/router"},
			forbidden: module + "/internal/metrics",
			reason:    "numbers are published by those who own them; the layers below return values",
		},
		{
			except:    []string{"internal/metrics"},
			forbidden: "github.com/prometheus/...",
			reason:    "the names of all series are in one package",
		},
		{
			except:    []string{"cmd/stator", "bench"},
			forbidden: "github.com/spf13/...",
			reason:    "flags are resolved into a configuration before anything else runs",
		},
		{
			except:    []string{"cmd/stator", "bench"},
			forbidden: "github.com/knadh/koanf/...",
			reason:    "files and environment are resolved into a configuration before anything else runs",
		},
		{
			importers: []string{
				"internal/jinja", "internal/onig", "internal/ucd", "internal/tokenize/detok", "internal/tokenize/model",
				"internal/tokenize/normal", "internal/tokenize/split",
			},
			forbidden: "net",
			indirect:  true,
			reason:    "tokens are made of bytes in memory",
		},
		{
			importers: []string{
				"internal/tokenize", "internal/tokenize/chat", "internal/tokenize/hf", "internal/tokenize/local",
				"internal/tokenize/prefix", "internal/tokenize/qwen3",
			},
			forbidden: "net/...",
			reason:    "files of models come from internal/hub",
		},
	},
)

func coreRules(reason string, forbidden ...string) []rule {
	var out []rule
	for _, f := range forbidden {
		out = append(out, rule{importers: core, forbidden: f, indirect: true, reason: reason})
	}
	return out
}

// alone are packages that programs use without the server, and all that they need besides
// the standard library, of this module and of others.
var alone = map[string][]string{
	"nvext": nil,
	"trie":  nil,
	"hints": {"internal/openai", "nvext", "trie"},
}

// listed is what go list says about a package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
	CgoFiles   []string
}

func TestImports(t *testing.T) {
	packages := goList(t)
	layer := make(map[string]int)
	for i, l := range layers {
		for _, p := range l {
			layer[p] = i
		}
	}
	own := 0
	standard := make(map[string]bool)
	for _, p := range packages {
		standard[p.ImportPath] = p.Standard
		name, ours := relative(p.ImportPath)
		if len(p.CgoFiles) > 0 && !p.Standard {
			t.Errorf("%s uses cgo (%s): the product is one static binary", p.ImportPath, strings.Join(p.CgoFiles, ", "))
		}
		if !ours {
			continue
		}
		own++
		at, ok := layer[name]
		if !ok {
			t.Errorf("%s has no layer: place it in the table", name)
			continue
		}
		for _, imp := range p.Imports {
			below, ours := relative(imp)
			if l, ok := layer[below]; ours && ok && l <= at {
				t.Errorf("%s imports %s: arrows point down, and that is not below it", name, below)
			}
		}
		for _, r := range rules {
			if imp := r.broken(name, p); imp != "" {
				t.Errorf("%s imports %s: %s", name, imp, r.reason)
			}
		}
	}
	for name, only := range alone {
		i := slices.IndexFunc(packages, func(p listed) bool { return p.ImportPath == module+"/"+name })
		if i < 0 {
			t.Errorf("%s is not there", name)
			continue
		}
		for _, imp := range packages[i].Deps {
			if own, _ := relative(imp); !standard[imp] && !slices.Contains(only, own) {
				t.Errorf("%s needs %s: a public package is used without the server", name, imp)
			}
		}
	}
	if own < 5 {
		t.Errorf("go list found %d packages of this module", own)
	}
}

// broken returns the import by which a package breaks the rule, or nothing.
func (r rule) broken(name string, p listed) string {
	if r.importers != nil && !slices.Contains(r.importers, name) || slices.Contains(r.except, name) {
		return ""
	}
	imports := p.Imports
	if r.indirect {
		imports = p.Deps
	}
	path, below := strings.CutSuffix(r.forbidden, "/...")
	for _, imp := range imports {
		if imp == path || below && strings.HasPrefix(imp, path+"/") {
			return imp
		}
	}
	return ""
}

// relative returns an import path relative to the module and whether it is in it.
func relative(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	rest, ok := strings.CutPrefix(path, module+"/")
	return rest, ok
}

// goList returns the packages of the module and all they depend on, tests left
// out.
func goList(t *testing.T) []listed {
	watchTree(t)
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Deps,CgoFiles", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // or else cgo files are not listed
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []listed
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// watchTree reads the directories of the module, because go test reuses the
// result of a test until a file or directory it read itself has changed; it does
// not see what go list reads.
func watchTree(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
