package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/tokenize"
)

// Templates that print what they are given. The second takes content as parts.
const (
	dump      = `{{ messages | tojson }}`
	dumpParts = `{% for message in messages %}{% for part in message.content %}{% endfor %}{% endfor %}` + dump
	dumpTools = `{{ tools | tojson }}`
)

// vector is one chat and the prompt that it must give, or the error.
type vector struct {
	name     string
	template string // dump when empty
	config   Config // without the template and the dialect
	chat     tokenize.Chat
	want     string
	err      string
}

// messages makes a chat of messages only.
func messages(s string) tokenize.Chat { return tokenize.Chat{Messages: []byte(s)} }

func check(t *testing.T, d Dialect, vectors []vector) {
	t.Helper()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			c := v.config
			c.Dialect = d
			if c.Template = v.template; v.template == "" && c.Named == nil {
				c.Template = dump
			}
			if v.chat.Messages == nil {
				v.chat.Messages = []byte(`[{"role":"user","content":"u"}]`)
			}
			got, err := render(t, c, v.chat)
			if v.err != "" {
				if err == nil || err.Error() != v.err {
					t.Errorf("err = %v, want %q; prompt %q", err, v.err, got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(v.want, got); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}
		})
	}
}

// render renders once and checks the segments of the prompt.
func render(t testing.TB, c Config, chat tokenize.Chat) (string, error) {
	t.Helper()
	tmpl, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var p tokenize.Prompt
	p.Literal("left over")
	if err := tmpl.Render(&p, chat); err != nil {
		return "", err
	}
	end := 0
	for _, s := range p.Segments {
		if !s.Special || s.End <= end {
			t.Errorf("segments %v: expected special ones that grow", p.Segments)
		}
		end = s.End
	}
	if end != len(p.Text) {
		t.Errorf("segments %v do not cover %d bytes", p.Segments, len(p.Text))
	}
	return string(p.Text), nil
}

// golden is a row of one of the golden files.
type golden struct {
	Tokenizer  string          `json:"tokenizer"` // in render.jsonl
	Template   string          `json:"template"`  // in continue.jsonl
	Source     string          `json:"source"`    // of a template that is no model's
	Name       string          `json:"name"`
	Messages   json.RawMessage `json:"messages"`
	Tools      json.RawMessage `json:"tools"`
	Generation bool            `json:"add_generation_prompt"`
	Kwargs     json.RawMessage `json:"kwargs"`
	Thinking   *bool           `json:"enable_thinking"`
	Rendered   *string         `json:"rendered"` // nil for a failure
}

func goldens(t testing.TB, file string) []golden {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []golden
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var g golden
		if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, g)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// model returns the configuration of a model in testdata.
func model(t testing.TB, name string) Config {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".config.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
