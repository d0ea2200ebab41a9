package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The libraries that we are compared with, by their names on PyPI.
const (
	libraryHF       = "tokenizers"
	libraryTiktoken = "tiktoken"
)

// libraries is a process in which other tokenizers run, scripts/oracle/bench.py.
// Not safe for concurrent use. The caller must stop it.
type libraries struct {
	dir      string // with the tokenizer files
	versions map[string]string
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Scanner
	stderr   tail
}

// startLibraries installs what is missing and starts the process. STATOR_ORACLE is
// the directory of an installation that is there already.
func startLibraries(ctx context.Context, o options) (*libraries, error) {
	mod, err := goCommand(ctx, "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	scripts := filepath.Join(filepath.Dir(mod), "scripts", "oracle")
	dir := os.Getenv("STATOR_ORACLE")
	if dir == "" {
		o.progress("tokenize: installing Hugging Face's tokenizers and tiktoken where they are missing")
		if dir, err = setup(ctx, o.log, filepath.Join(scripts, "setup.sh")); err != nil {
			return nil, err
		}
	}
	l := &libraries{dir: dir}
	l.cmd = exec.CommandContext(ctx, filepath.Join(dir, "venv", "bin", "python"), filepath.Join(scripts, "bench.py"))
	l.cmd.Stderr = &l.stderr
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewScanner(out)
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	return l, nil
}

// setup runs the script that installs the libraries and returns the directory that
// it prints.
func setup(ctx context.Context, log io.Writer, script string) (string, error) {
	cmd := exec.CommandContext(ctx, script)
	var said tail
	cmd.Stderr = io.MultiWriter(log, &said)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w; it ends with\n%s", script, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (l *libraries) stop() {
	l.in.Close()
	l.cmd.Wait()
}

// path returns a model's tokenizer.json.
func (l *libraries) path(family string) string {
	return filepath.Join(l.dir, family, "models", "tokenizer.json")
}

// load makes a model the one that is asked from now on.
func (l *libraries) load(family string, tiktoken bool) error {
	return l.ask(map[string]any{"op": "load", "tokenizer": l.path(family), "tiktoken": tiktoken},
		&struct{ Versions *map[string]string }{&l.versions})
}

// texts makes a corpus the one that is encoded from now on, by way of a file in dir.
func (l *libraries) texts(dir string, c *corpus) error {
	strs := make([]string, len(c.chunks))
	for i, chunk := range c.chunks {
		strs[i] = string(chunk)
	}
	raw, err := json.Marshal(strs)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "texts.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return err
	}
	return l.ask(map[string]any{"op": "texts", "path": path, "special": c.special}, new(struct{}))
}

// encoded is what a library made of a corpus.
type encoded struct {
	cpu time.Duration
	ids int
	sum string // of the ids, where it was asked for
}

// encode encodes the corpus.
func (l *libraries) encode(library string, sum bool) (encoded, error) {
	var a struct {
		Seconds float64
		IDs     int
		SHA256  string
	}
	err := l.ask(map[string]any{"op": "encode", "library": library, "sum": sum}, &a)
	return encoded{time.Duration(a.Seconds * float64(time.Second)), a.IDs, a.SHA256}, err
}

// ask sends a question and reads the answer.
func (l *libraries) ask(question map[string]any, answer any) error {
	raw, err := json.Marshal(question)
	if err != nil {
		return err
	}
	if _, err := l.in.Write(append(raw, '\n')); err != nil {
		return l.failure(err)
	}
	if !l.out.Scan() {
		return l.failure(errors.Join(errors.New("no answer"), l.out.Err()))
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(l.out.Bytes(), &failed); err != nil {
		return l.failure(err)
	}
	if failed.Error != "" {
		return l.failure(errors.New(failed.Error))
	}
	return json.Unmarshal(l.out.Bytes(), answer)
}

// failure adds to err what the process said last.
func (l *libraries) failure(err error) error {
	return fmt.Errorf("bench.py: %w\n%s", err, l.stderr.String())
}
