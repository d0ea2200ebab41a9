// Package oracletest compares our tokenizers with the real library.
//
// The library runs in a process of its own, scripts/oracle/encode.py, which
// scripts/oracle/setup.sh installs together with the tokenizer files of eleven
// models. The directory that it prints has to be in the environment as
// STATOR_ORACLE; without it the suite is skipped.
package oracletest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Families are the models whose tokenizers are installed.
var Families = []string{
	"llama3_1", "llama3_2", "qwen3", "qwen2_5", "deepseek_v3", "gpt4o", "gemma2", "gemma3", "mistral_nemo", "command_r_plus", "llama2",
}

// Dir returns the directory with the library and the files. It skips the test if
// there is none.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("STATOR_ORACLE")
	if dir == "" {
		tb.Skip("not compared with the real library: set STATOR_ORACLE=$(scripts/oracle/setup.sh)")
	}
	return dir
}

// Path returns the tokenizer.json of a family.
func Path(tb testing.TB, family string) string {
	tb.Helper()
	return filepath.Join(Dir(tb), family, "models", "tokenizer.json")
}

// Oracle is a process that knows the right answers. It is not safe for concurrent
// use. Its methods end the test when the process fails.
type Oracle struct {
	tb  testing.TB
	in  io.Writer
	out *bufio.Reader
}

// Start starts an oracle, which ends with the test. It skips the test where none
// is installed.
func Start(tb testing.TB) *Oracle {
	tb.Helper()
	cmd := exec.Command(filepath.Join(Dir(tb), "venv", "bin", "python"), script(tb))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("oracle: %v", err)
		}
	})
	return &Oracle{tb: tb, in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

// script returns the path of the oracle's program: a test runs in the directory of
// its package, somewhere below the module's.
func script(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		path := filepath.Join(dir, "scripts", "oracle", "encode.py")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		tb.Fatal("oracle: scripts/oracle/encode.py is nowhere above the working directory")
	}
}

// Load makes the tokenizer in a file the one that is asked from now on.
func (o *Oracle) Load(path string) {
	o.tb.Helper()
	o.ask(map[string]any{"op": "load", "path": path}, nil)
}

// Encode returns the ids of each text. Spellings of added tokens become those
// tokens; with special, what the post-processor adds comes around them.
func (o *Oracle) Encode(texts []string, special bool) [][]uint32 {
	o.tb.Helper()
	return o.ids(o.ask(map[string]any{"op": "encode", "special": special}, packStrings(texts)))
}

// Decode returns the text of each list of ids, with or without special tokens.
func (o *Oracle) Decode(ids [][]uint32, skipSpecial bool) []string {
	o.tb.Helper()
	return o.strings(o.ask(map[string]any{"op": "decode", "skip_special": skipSpecial}, packIDs(ids)))
}

// Normalize returns what the tokenizer's normalizer makes of each text.
func (o *Oracle) Normalize(texts []string) []string {
	o.tb.Helper()
	return o.strings(o.ask(map[string]any{"op": "normalize"}, packStrings(texts)))
}

// Render returns what a template makes of variables, a JSON object. The error is
// the template's.
func (o *Oracle) Render(template string, variables json.RawMessage) (string, error) {
	o.tb.Helper()
	data, err := o.try(map[string]any{"op": "render", "template": template, "variables": variables}, nil)
	if err != nil {
		return "", err
	}
	return o.strings(data)[0], nil
}

// ask asks what has an answer.
func (o *Oracle) ask(header map[string]any, data []byte) []byte {
	o.tb.Helper()
	out, err := o.try(header, data)
	if err != nil {
		o.tb.Fatalf("oracle: %v: %v", header["op"], err)
	}
	return out
}

// try sends a frame and returns the data of the answer, or the error in it.
func (o *Oracle) try(header map[string]any, data []byte) ([]byte, error) {
	o.tb.Helper()
	header["bytes"] = len(data)
	head, err := encodeJSON(header)
	if err != nil {
		o.tb.Fatal(err)
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
	frame = append(append(frame, head...), data...)
	if _, err := o.in.Write(frame); err != nil {
		o.tb.Fatalf("oracle: %v", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(o.out, size[:]); err != nil {
		o.tb.Fatalf("oracle: %v", err)
	}
	head = o.read(int(binary.LittleEndian.Uint32(size[:])))
	var answer struct {
		Bytes int
		Error string
	}
	if err := json.Unmarshal(head, &answer); err != nil {
		o.tb.Fatalf("oracle: %v", err)
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return o.read(answer.Bytes), nil
}

// encodeJSON writes a value without escaping HTML: templates are full of it.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func (o *Oracle) read(n int) []byte {
	o.tb.Helper()
	data := make([]byte, n)
	if _, err := io.ReadFull(o.out, data); err != nil {
		o.tb.Fatalf("oracle: %v", err)
	}
	return data
}

func packStrings(texts []string) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(texts)))
	for _, s := range texts {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(s)))
	}
	for _, s := range texts {
		out = append(out, s...)
	}
	return out
}

func packIDs(lists [][]uint32) []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(lists)))
	for _, l := range lists {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(l)))
	}
	for _, l := range lists {
		for _, id := range l {
			out = binary.LittleEndian.AppendUint32(out, id)
		}
	}
	return out
}

// unpack splits a batch into items of so many units of a width.
func (o *Oracle) unpack(data []byte, width int) [][]byte {
	o.tb.Helper()
	number := func(i int) int { return int(binary.LittleEndian.Uint32(data[4*i:])) }
	items := make([][]byte, number(0))
	rest := data[4*(1+len(items)):]
	for i := range items {
		n := width * number(1+i)
		items[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		o.tb.Fatalf("oracle: %d bytes too many", len(rest))
	}
	return items
}

func (o *Oracle) strings(data []byte) []string {
	o.tb.Helper()
	var out []string
	for _, item := range o.unpack(data, 1) {
		out = append(out, string(item))
	}
	return out
}

func (o *Oracle) ids(data []byte) [][]uint32 {
	o.tb.Helper()
	var out [][]uint32
	for _, item := range o.unpack(data, 4) {
		ids := make([]uint32, len(item)/4)
		for i := range ids {
			ids[i] = binary.LittleEndian.Uint32(item[4*i:])
		}
		out = append(out, ids)
	}
	return out
}

// Specials returns the spellings of a file's added tokens.
func Specials(tb testing.TB, path string) []string {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var file struct {
		Added []struct{ Content string } `json:"added_tokens"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		tb.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	var out []string
	for _, a := range file.Added {
		out = append(out, a.Content)
	}
	return out
}
