package chat

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/tokenize"
)

func TestGoldenRender(t *testing.T) {
	rows := goldens(t, filepath.Join("testdata", "render.jsonl"))
	if len(rows) != 60 {
		t.Errorf("%d rows, want 60", len(rows))
	}
	compareRendered(t, rows, func(name string) Config { return model(t, name) })
}

func compareRendered(t *testing.T, rows []golden, config func(string) Config) {
	for _, g := range rows {
		t.Run(g.Tokenizer+"/"+g.Name, func(t *testing.T) {
			c := config(g.Tokenizer)
			c.Dialect = HF
			got, err := render(t, c, tokenize.Chat{
				Messages:           g.Messages,
				Tools:              g.Tools,
				Kwargs:             g.Kwargs,
				NoGenerationPrompt: !g.Generation,
			})
			compare(t, &g, got, err)
		})
	}
}

func TestGoldenContinue(t *testing.T) {
	rows := goldens(t, filepath.Join("testdata", "continue.jsonl"))
	for _, g := range rows {
		t.Run(g.Template+"/"+g.Name, func(t *testing.T) {
			c := Config{Template: g.Source, SpecialTokens: []SpecialToken{{Name: "eos_token", Text: "</s>"}}}
			if g.Source == "" {
				c = model(t, g.Template)
			}
			c.Dialect = HF
			chat := tokenize.Chat{
				Messages:           g.Messages,
				Tools:              g.Tools,
				NoGenerationPrompt: true,
				ContinueFinal:      true,
			}
			if g.Thinking != nil {
				chat.Kwargs = []byte(`{"enable_thinking":false}`)
			}
			got, err := render(t, c, chat)
			compare(t, &g, got, err)
		})
	}
	count := make(map[string]int)
	for _, g := range rows {
		count[g.Template]++
	}
	for _, name := range []string{"qwen3", "mistral_nemo"} {
		if count[name] < 20 {
			t.Errorf("%d rows of %s, want at least 20", count[name], name)
		}
	}
}

func compare(t *testing.T, g *golden, got string, err error) {
	t.Helper()
	switch {
	case g.Rendered == nil && err == nil:
		t.Errorf("rendered %q, want an error", got)
	case g.Rendered != nil && err != nil:
		t.Errorf("err = %v, want %q", err, *g.Rendered)
	case g.Rendered != nil:
		if diff := cmp.Diff(*g.Rendered, got); diff != "" {
			t.Errorf("prompt (-want +got):\n%s", diff)
		}
	}
}
