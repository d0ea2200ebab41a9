package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

func TestComments(t *testing.T) {
	long := strings.Repeat("a few plain words ", 15)
	source := "package a\n\n" +
		"// " + long + "\n// and more of the same\n" +
		"//\tcode := 1\n" +
		"// too short\n" +
		"func f() {\n\t// " + long + "\n}\n" +
		"// " + strings.Repeat("0123 {}", 40) + "\n"
	long = strings.TrimSuffix(long, " ")
	want := []string{long + "\nand more of the same\n", long + "\n"}
	if diff := cmp.Diff(want, comments(source)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCorpora(t *testing.T) {
	p, err := readPassages(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	chat, err := p.chat(qwen3.Model())
	if err != nil {
		t.Fatal(err)
	}
	natural := append(p.natural(), chat)
	for _, c := range natural {
		if c.size() < corpusSize {
			t.Errorf("%s: %d bytes, want at least %d", c.name, c.size(), corpusSize)
		}
	}
	for _, c := range append(natural, hostile()...) {
		seen := make(map[string]bool)
		for i, chunk := range c.chunks {
			if !utf8.Valid(chunk) {
				t.Errorf("%s: chunk %d is not UTF-8", c.name, i)
			}
			if len(chunk) == 0 || len(chunk) > 2*chunkSize {
				t.Errorf("%s: chunk %d has %d bytes", c.name, i, len(chunk))
			}
			if seen[string(chunk)] && c.name != "one letter" {
				t.Errorf("%s: chunk %d is there twice", c.name, i)
			}
			seen[string(chunk)] = true
		}
	}
	again, err := readPassages(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range again.natural() {
		if !bytes.Equal(bytes.Join(c.chunks, nil), bytes.Join(natural[i].chunks, nil)) {
			t.Errorf("%s differs from run to run", c.name)
		}
	}
}

// TestChain makes sure that generated text costs what the sample does.
func TestChain(t *testing.T) {
	dir, err := goCommand(context.Background(), "list", "-m", "-f", "{{.Dir}}", "golang.org/x/text")
	if err != nil {
		t.Fatal(err)
	}
	perToken := func(text string) float64 {
		ids, err := qwen3.Tokenizer().Encode(nil, []byte(text), false /* special */)
		if err != nil {
			t.Fatal(err)
		}
		return float64(utf8.RuneCountInString(text)) / float64(len(ids))
	}
	for _, name := range []string{"sunzi-bingfa-simplified", "rashomon", "unsu-joh-eun-nal"} {
		data, err := os.ReadFile(filepath.Join(dir, "encoding", "testdata", name+"-utf-8.txt"))
		if err != nil {
			t.Fatal(err)
		}
		c, rng := newChain(string(data)), seeded(name)
		var b strings.Builder
		for b.Len() < 100_000 {
			b.WriteString(c.paragraph(rng))
		}
		if strings.Contains(b.String(), "http") {
			t.Errorf("%s: has what the file says about its origin", name)
		}
		_, sample, _ := strings.Cut(string(data), "--------\n")
		want, got := perToken(strings.Join(strings.Fields(sample), " ")), perToken(b.String())
		if math.Abs(got/want-1) > 0.05 {
			t.Errorf("%s: %.3f characters per token, the sample has %.3f", name, got, want)
		}
	}
}

func TestTurns(t *testing.T) {
	p, err := readPassages(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	turns, err := p.turns(qwen3.Model())
	if err != nil {
		t.Fatal(err)
	}
	if len(turns) != chatTurns {
		t.Fatalf("%d turns, want %d", len(turns), chatTurns)
	}
	for i := range turns[1:] {
		// The opening of the answer is rendered again with the answer in it.
		end := bytes.LastIndex(turns[i], []byte("<|im_start|>assistant"))
		if !bytes.HasPrefix(turns[i+1], turns[i][:end]) {
			t.Errorf("turn %d does not go on from the one before", i+1)
		}
	}
	if n := len(turns[chatTurns-1]); n < 120_000 || n > 145_000 {
		t.Errorf("the last turn has %d bytes", n)
	}
}

func TestSpeedup(t *testing.T) {
	var r report
	r.faster("English", 2e6, []float64{1, 2, 3}, []float64{0.1, 0.5, 0.25}, 5)
	r.faster("code", 2e6, []float64{1, 2, 3}, []float64{0.5, 1, 1}, 5)
	want := []row{
		{what: "English", baseline: "1.0 MB/s", stator: "8.0 MB/s", ratio: "10.0", spread: "4.0–12.0", target: "≥ 5×", ok: true},
		{what: "code", baseline: "1.0 MB/s", stator: "2.0 MB/s", ratio: "2.0", spread: "2.0–3.0", target: "≥ 5×"},
	}
	if diff := cmp.Diff(want, r.rows, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestSetupFailure makes sure that an installation that does not work is told with
// its reason.
func TestSetupFailure(t *testing.T) {
	script := filepath.Join(t.TempDir(), "setup.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no network >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := setup(context.Background(), io.Discard, script)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no network") {
		t.Errorf("got %v", err)
	}
}

func TestMissing(t *testing.T) {
	reason := errors.New("no network")
	err := fmt.Errorf("tokenize: %w", &missingError{reason})
	if _, ok := errors.AsType[*missingError](err); !ok || !errors.Is(err, reason) {
		t.Errorf("%v is not what is missing, or not why", err)
	}
}
