package stator

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/stator-ai/stator/internal/doctor"
	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/eventsocket"
	"github.com/stator-ai/stator/internal/frontend"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// Examination returns how the engines of c are to be looked at by the stator command's
// doctor: each as a [Server] would reach it, with the tokenizers that it would use.
// Names of engines are looked up here; a name that has no address is an engine that
// cannot be reached. Tokenizers are loaded when they are needed; progress, if it is not
// nil, is called as [WithProgress] says.
func (c *Config) Examination(ctx context.Context, progress func(file string, done, total int64)) doctor.Config {
	out := doctor.Config{Tokens: c.tokenSources(progress)}
	for _, e := range c.Engines {
		target := doctor.Target{
			URL: e.URL, APIKey: e.APIKey, Kind: e.Kind, Ranks: e.Ranks, BlockSize: e.BlockSize, TotalBlocks: e.TotalKVBlocks,
			Events: eventsocket.Options{Events: e.Events, Replay: e.Replay, Topic: e.Topic},
		}
		if !strings.HasPrefix(e.URL, dnsScheme) {
			out.Targets = append(out.Targets, target)
			continue
		}
		found, err := resolve(ctx, e)
		if err != nil {
			target.Err = fmt.Errorf("look up %s: %w", nameOf(e.URL), err)
			out.Targets = append(out.Targets, target)
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			target.URL = found[id].URL
			out.Targets = append(out.Targets, target)
		}
	}
	return out
}

// nameOf returns the host of a URL that is looked up.
func nameOf(raw string) string {
	u, err := url.Parse(strings.TrimPrefix(raw, dnsScheme))
	if err != nil {
		return raw
	}
	return u.Hostname()
}

// tokenSources returns a function that finds the tokenizer of a model as the frontend
// does, and loads each once.
func (c *Config) tokenSources(progress func(file string, done, total int64)) func(context.Context, engine.Model) doctor.TokenSource {
	var mu sync.Mutex
	loaded := make(map[string]doctor.TokenSource)
	return func(ctx context.Context, m engine.Model) doctor.TokenSource {
		config := c.modelConfig(m)
		switch {
		case config == nil:
			return announcedTokens(m)
		case config.Tokenizer == tokensOfEngine:
			return doctor.TokenSource{Name: tokensOfEngine, Engine: true}
		case config.Tokenizer == tokensOfNobody:
			return doctor.TokenSource{Name: tokensOfNobody}
		}
		mu.Lock()
		defer mu.Unlock()
		src, ok := loaded[config.key()]
		if !ok {
			src.Name = config.Tokenizer
			var model *local.Model
			if model, src.Err = config.open(ctx, c.Hub.client(progress)); src.Err == nil {
				src.Local = model
			}
			loaded[config.key()] = src
		}
		return src
	}
}

// modelConfig returns the entry of a model, or else that of its model or of all; nil
// if it has none.
func (c *Config) modelConfig(m engine.Model) *ModelConfig {
	for _, name := range []string{m.ID, m.Parent, frontend.OtherModels} {
		for i := range c.Models {
			if c.Models[i].Name == name {
				return &c.Models[i]
			}
		}
	}
	return nil
}

// announcedTokens is the built-in tokenizer that an engine says is its own, if it does.
func announcedTokens(m engine.Model) doctor.TokenSource {
	switch m.Tokenizer {
	case tokenize.ByteModel{}.Fingerprint():
		return doctor.TokenSource{Name: "bytes", Local: tokenize.ByteModel{}}
	case qwen3.Fingerprint:
		return doctor.TokenSource{Name: tokensOfQwen3, Local: qwen3.Model()}
	}
	return doctor.TokenSource{}
}
