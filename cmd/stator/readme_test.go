package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestREADMEConfig checks the configuration that README shows.
func TestREADMEConfig(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```yaml\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README has no YAML block")
	}
	file := filepath.Join(t.TempDir(), "stator.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(source{file: file, getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
}
