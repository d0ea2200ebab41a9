package openaihttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/stator-ai/stator/internal/engine"
)

// Card is one entry of a server's model list.
type Card struct {
	ID            string `json:"id"`
	OwnedBy       string `json:"owned_by"`
	Parent        string `json:"parent"` // the model that this is an adapter of
	MaxModelLen   Int    `json:"max_model_len"`
	ContextWindow Int    `json:"context_window"`
	// Stator is how a simulated engine describes itself; nil for others.
	Stator *SimCard `json:"stator"`
}

// SimCard is what a simulated engine says about itself in its model list.
type SimCard struct {
	Engine           string `json:"engine"`
	Version          string `json:"version"`
	Tokenizer        string `json:"tokenizer"`
	BlockSize        Int    `json:"block_size"`
	TotalBlocks      Int    `json:"total_kv_blocks"`
	MaxBatchedTokens Int    `json:"max_num_batched_tokens"`
	Ranks            Int    `json:"ranks"`
}

// Cards returns what the server lists under /v1/models, at least one. It is the one
// question that every server has to answer.
func (e *Engine) Cards(ctx context.Context) ([]Card, error) {
	status, body, err := e.Get(ctx, "/v1/models")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("identify %s: /v1/models answered status %d", e.base, status)
	}
	var list struct {
		Data []Card `json:"data"`
	}
	if err := lenient(json.Unmarshal(body, &list)); err != nil {
		return nil, fmt.Errorf("identify %s: /v1/models: %w", e.base, err)
	}
	cards := list.Data[:0]
	for _, c := range list.Data {
		if c.ID != "" {
			cards = append(cards, c)
		}
	}
	if len(cards) == 0 {
		return nil, fmt.Errorf("identify %s: /v1/models lists no model", e.base)
	}
	return cards, nil
}

// Identify implements [engine.Engine]. A simulated engine describes itself in
// its model list; of other servers only what the list says is known.
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	cards, err := e.Cards(ctx)
	if err != nil {
		return nil, err
	}
	return e.Describe(ctx, cards), nil
}

// Describe is Identify for who has the model list already.
func (e *Engine) Describe(_ context.Context, cards []Card) *engine.Info {
	info := &engine.Info{Kind: engine.OpenAI, Models: Models(cards)}
	for i, c := range cards {
		if s := c.Stator; s != nil {
			info.Kind, info.Version = s.Engine, s.Version
			m := &info.Models[i]
			m.Tokenizer = s.Tokenizer
			m.BlockSize = int(s.BlockSize)
			m.TotalBlocks = int(s.TotalBlocks)
			m.MaxBatchedTokens = int(s.MaxBatchedTokens)
			m.Ranks = Ranks(s.Ranks)
		}
	}
	return info
}

// Models returns the models of a list, in its order. An adapter whose context is not
// said has that of its model.
func Models(cards []Card) []engine.Model {
	models := make([]engine.Model, len(cards))
	contexts := make(map[string]int)
	for i, c := range cards {
		models[i] = engine.Model{ID: c.ID, Parent: c.Parent, ContextLength: int(max(c.MaxModelLen, c.ContextWindow, 0))}
		contexts[c.ID] = models[i].ContextLength
	}
	for i := range models {
		if m := &models[i]; m.Parent != "" && m.ContextLength == 0 {
			m.ContextLength = contexts[m.Parent]
		}
	}
	return models
}

// Ranks returns n as the number of ranks that a server may claim to have.
func Ranks(n Int) int { return int(min(max(n, 0), maxRanks)) }
