package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MaxFileBytes is the size of the largest file that is read or downloaded. The
// largest tokenizers known have a tenth of it.
const MaxFileBytes = 512 << 20

// maxTemplates bounds the named templates of a model.
const maxTemplates = 64

// ErrNoTokenizer is behind the errors about a place that has neither a
// tokenizer.json nor a tiktoken.model.
var ErrNoTokenizer = errors.New("no tokenizer.json and no tiktoken.model")

// The names that are known in a model's directory.
const (
	tokenizerName = "tokenizer.json"
	tiktokenName  = "tiktoken.model"
	templateDir   = "additional_chat_templates"
	templateExt   = ".jinja"
)

// Files are a model's small files in memory. What the model does not have is nil.
// At least one of Tokenizer and TiktokenModel is there.
type Files struct {
	Tokenizer        []byte // tokenizer.json
	TokenizerConfig  []byte // tokenizer_config.json
	ChatTemplate     []byte // chat_template.jinja
	ChatTemplateJSON []byte // chat_template.json
	TiktokenModel    []byte // tiktoken.model, or a file whose name ends in .tiktoken
	Config           []byte // config.json
	GenerationConfig []byte // generation_config.json
	SpecialTokensMap []byte // special_tokens_map.json

	// Templates are those of additional_chat_templates, sorted by name.
	Templates []Template

	// Source says what was read, for messages: a path, or a repository and its
	// commit.
	Source string
	// Stale is why the Hub could not be asked whether a revision has moved, when
	// the files of an earlier fetch stand in. It is nil when they are current or
	// nobody was to be asked.
	Stale error
}

// Template is a chat template that has a name, such as tool_use.
type Template struct {
	Name string
	Text []byte
}

// known lists the files by name, tokenizers last: that is the order in which they
// are downloaded.
var known = []struct {
	name  string
	field func(*Files) *[]byte
}{
	{"tokenizer_config.json", func(f *Files) *[]byte { return &f.TokenizerConfig }},
	{"chat_template.jinja", func(f *Files) *[]byte { return &f.ChatTemplate }},
	{"chat_template.json", func(f *Files) *[]byte { return &f.ChatTemplateJSON }},
	{"config.json", func(f *Files) *[]byte { return &f.Config }},
	{"generation_config.json", func(f *Files) *[]byte { return &f.GenerationConfig }},
	{"special_tokens_map.json", func(f *Files) *[]byte { return &f.SpecialTokensMap }},
	{tiktokenName, func(f *Files) *[]byte { return &f.TiktokenModel }},
	{tokenizerName, func(f *Files) *[]byte { return &f.Tokenizer }},
}

// Read returns the files at path, which is one of
//
//   - a directory that holds them;
//   - a repository in a Hugging Face cache, that is, any directory with snapshots
//     in it: the snapshot that refs/main names, or else the only one;
//   - a tokenizer.json or tiktoken.model, which is read with the other files of
//     its directory;
//   - a tokenizer under another name, which is read alone: as a tiktoken file when
//     the name ends in .tiktoken, else as a tokenizer.json.
//
// Links are followed. The error is an [ErrNoTokenizer] when the place is there and
// no tokenizer in it.
func Read(path string) (*Files, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("model files: %w", err)
	}
	var f *Files
	if info.IsDir() {
		f, err = readPlace(path)
	} else {
		f, err = readTokenizer(path)
	}
	if err != nil {
		return nil, fmt.Errorf("model files: %w", err)
	}
	return f, nil
}

// readPlace reads a directory or a repository of the cache.
func readPlace(path string) (*Files, error) {
	r := repository{dir: path}
	if !r.exists() {
		return readDir(path)
	}
	commit, err := r.lookup(DefaultRevision)
	if errors.Is(err, fs.ErrNotExist) {
		commit, err = r.only()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return readDir(r.snapshot(commit))
}

// readTokenizer reads a path that names the tokenizer itself.
func readTokenizer(path string) (*Files, error) {
	name := filepath.Base(path)
	if name != tokenizerName && name != tiktokenName {
		f := &Files{Source: path}
		data, err := readRegular(path)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, ".tiktoken") {
			f.TiktokenModel = data
		} else {
			f.Tokenizer = data
		}
		return f, nil
	}
	f, err := readDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	// The one that was asked for, should there be both.
	if name == tokenizerName {
		f.TiktokenModel = nil
	} else {
		f.Tokenizer = nil
	}
	f.Source = path
	return f, nil
}

// readDir reads the files of a directory.
func readDir(dir string) (*Files, error) {
	f := &Files{Source: dir}
	for _, k := range known {
		data, err := readRegular(filepath.Join(dir, k.name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		*k.field(f) = data
	}
	if f.Tokenizer == nil && f.TiktokenModel == nil {
		return nil, fmt.Errorf("%s: %w%s", dir, ErrNoTokenizer, insteadIn(dir))
	}
	var err error
	f.Templates, err = readTemplates(filepath.Join(dir, templateDir))
	return f, err
}

// insteadIn names the tokenizer files of other kinds in a directory, so that a
// message can say why it was not enough.
func insteadIn(dir string) string {
	return instead(func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// instead names the tokenizer files of other kinds that are there, for a message.
func instead(has func(name string) bool) string {
	for _, other := range []string{"tokenizer.model", "spiece.model", "tekken.json", "vocab.json", "vocab.txt"} {
		if has(other) {
			return fmt.Sprintf("; there is a %s, which cannot be used: save the model's fast tokenizer with transformers to get a %s", other, tokenizerName)
		}
	}
	return ""
}

// readTemplates reads the named templates, in the order of their names. There need
// be none.
func readTemplates(dir string) ([]Template, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Template
	for _, e := range entries {
		name, ok := templateName(e.Name())
		if !ok {
			continue
		}
		if len(out) == maxTemplates {
			return nil, fmt.Errorf("%s: more than %d templates", dir, maxTemplates)
		}
		text, err := readRegular(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, Template{Name: name, Text: text})
	}
	return out, nil
}

// templateName returns the name of the template in a file of the template
// directory, and whether it holds one.
func templateName(file string) (string, bool) {
	name, ok := strings.CutSuffix(file, templateExt)
	return name, ok && name != "" && name[0] != '.' && !strings.ContainsAny(name, `/\:`)
}

// lfsPointer begins the text file that stands for a large one where a repository
// was cloned without Git LFS.
var lfsPointer = []byte("version https://git-lfs.github.com/spec/")

// readRegular reads a file of limited size. It opens nothing else than files: a
// pipe would block.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is no regular file", path)
	}
	if info.Size() > MaxFileBytes {
		return nil, fmt.Errorf("%s: %w", path, ErrTooLarge)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(file, data); err != nil {
		return nil, fmt.Errorf("%s: it became shorter while it was read: %w", path, err)
	}
	if len(data) < 1024 && bytes.HasPrefix(data, lfsPointer) {
		return nil, fmt.Errorf("%s: is a Git LFS pointer and not the file itself: run git lfs pull", path)
	}
	return data, nil
}
