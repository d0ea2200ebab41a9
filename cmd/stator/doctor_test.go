package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/simserver"
)

// TestDoctorExitCodes checks the codes that scripts cannot tell apart.
func TestDoctorExitCodes(t *testing.T) {
	t.Setenv("STATOR_CONFIG", "")
	sim, err := simserver.New(simserver.Config{Dress: simserver.DressLlamaCpp, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	t.Cleanup(func() {
		sim.Close()
		srv.Close()
	})
	file := filepath.Join(t.TempDir(), "stator.yaml")
	if err := os.WriteFile(file, []byte("engines: [{url: ftp://x}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	fine := "doctor --no-requests --tokenizer qwen3 --engine " + srv.URL
	for _, tt := range []struct {
		args string
		want int
	}{
		{fine, exitOK},
		{fine + " --strict", exitOK},
		{fine + ",kind=openai", exitOK},
		{fine + ",kind=openai --strict", exitFailure},
		{fine + ",kind=vllm", exitFailure},
		{fine + " --engine http://127.0.0.1:1", exitFailure},
		{"doctor", exitUsage},
		{"doctor --timeout -1s --engine " + srv.URL, exitUsage},
		{"doctor extra", exitUsage},
		{"doctor --engine 127.0.0.1:9100", exitUsage},
		{"doctor --engine ftp://127.0.0.1:9100", exitUsage},
		{"doctor --engine http://me:hush@127.0.0.1:9100", exitUsage},
		{fine + ",kind=foo", exitUsage},
		{"doctor --engine http://me:hush%zz@127.0.0.1:9100", exitUsage},
		{"doctor --config /does/not/exist.yaml", exitFailure},
		{"doctor --config " + file, exitFailure},
		{"doctor --config " + file + " --tokenizer ./none.json", exitFailure},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(strings.Fields(tt.args), &stdout, &stderr); got != tt.want {
			t.Errorf("%s: code %d, want %d\nstdout:\n%s\nstderr:\n%s", tt.args, got, tt.want, &stdout, &stderr)
		}
		if strings.Contains(stderr.String(), "hush") {
			t.Errorf("%s: the password is shown:\n%s", tt.args, &stderr)
		}
	}
}
