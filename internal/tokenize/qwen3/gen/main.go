// Command gen makes the files of package qwen3 from the tokenizer.json and the
// tokenizer_config.json of Qwen/Qwen3-8B:
//
//	go run ./internal/tokenize/qwen3/gen DIR
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stator-ai/stator/internal/tokenize/hf"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], filepath.Join("internal", "tokenize", "qwen3")); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	data, err := os.ReadFile(filepath.Join(from, "tokenizer.json"))
	if err != nil {
		return err
	}
	compact, err := hf.Compact(data)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "tokenizer.bin"), compact, 0o644); err != nil {
		return err
	}
	if data, err = os.ReadFile(filepath.Join(from, "tokenizer_config.json")); err != nil {
		return err
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "chat_template.jinja"), []byte(config.Template), 0o644)
}
