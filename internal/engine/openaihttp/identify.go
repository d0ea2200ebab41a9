package openaihttp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

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

// list is Cards with whether there are more.
func (e *Engine) list(ctx context.Context) (List[Card], error) {
	status, body, err := e.Get(ctx, "/v1/models")
	if err != nil {
		return List[Card]{}, err
	}
	if status != http.StatusOK {
		return List[Card]{}, fmt.Errorf("identify %s: /v1/models answered status %d", e.base, status)
	}
	list, err := readCards(body)
	if err != nil {
		return List[Card]{}, fmt.Errorf("identify %s: /v1/models: %w", e.base, err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(c Card) bool { return c.ID == "" })
	if len(list.Items) == 0 {
		return List[Card]{}, fmt.Errorf("identify %s: /v1/models lists no model", e.base)
	}
	return list, nil
}

// readCards reads a model list. What follows after the last card that is taken is not
// looked at and may be missing.
func readCards(doc []byte) (list List[Card], err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if err := delim(dec, '{'); err != nil {
		return list, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return list, err
		}
		if key != "data" {
			if err := dec.Decode(new(json.RawMessage)); err != nil {
				return list, err
			}
			continue
		}
		if list, err = readList[Card](dec); err != nil || list.More {
			return list, err
		}
	}
	return list, delim(dec, '}')
}

// IdentifyWith gets the model list and has describe say the rest, which is what
// Identify is for an adapter.
func (e *Engine) IdentifyWith(ctx context.Context, describe func(context.Context, []Card) *engine.Info) (*engine.Info, error) {
	list, err := e.list(ctx)
	if err != nil {
		return nil, err
	}
	info := describe(ctx, list.Items)
	if list.More {
		Warn(info, TooMany)
	}
	return info, nil
}

// TooMany is the warning about a server with more models than are taken.
var TooMany = engine.Warning{
	Code: "too_many_models",
	Text: fmt.Sprintf("the server lists more than %d models and adapters: the others get no requests", MaxListed),
}

// Warn adds warnings to those of info.
func Warn(info *engine.Info, warnings ...engine.Warning) {
	info.Warnings = append(info.Warnings, warnings...)
	slices.SortFunc(info.Warnings, func(x, y engine.Warning) int { return cmp.Or(cmp.Compare(x.Code, y.Code), cmp.Compare(x.Text, y.Text)) })
	info.Warnings = slices.Compact(info.Warnings)
}

// Identify implements [engine.Engine]. A simulated engine describes itself in
// its model list; of other servers only what the list says is known.
func (e *Engine) Identify(ctx context.Context) (*engine.Info, error) {
	return e.IdentifyWith(ctx, e.Describe)
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
