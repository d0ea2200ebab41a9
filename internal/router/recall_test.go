package router

import (
	"testing"
	"testing/synctest"

	"github.com/stator-ai/stator/internal/kv"
)

// TestRecall: what a server with slots remembers is learned from what it finds.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := live(16)
		e.slots = 2
		r, m := crew(t, Config{}, Spec{Engine: e})
		seed := kv.HashSeed("", "")
		// run sends a prompt to a server that finds so many of its tokens, and returns
		// how many blocks it was expected to find.
		run := func(number, length, cached int) int {
			p := mustPlace(t, r, &Request{Model: m, PromptTokens: length, Tokens: tokensOf(number, length), HashSeed: seed})
			defer p.Done(Completed)
			p.FirstToken()
			p.Usage(length, cached)
			return p.Last().OverlapBlocks
		}
		for i := range 10 {
			if got := run(i, 320, 0); got != 0 {
				t.Errorf("prompt %d: expected %d blocks", i, got)
			}
		}
		if got := run(0, 320, 304); got != 20 {
			t.Errorf("the first of ten: expected %d blocks, want 20", got)
		}
		// It was used nine prompts ago, and the server does not have it.
		if got := run(1, 320, 0); got != 20 {
			t.Errorf("the second of ten: expected %d blocks, want 20", got)
		}
		// So what was used longer ago is not there either, and what came later may be.
		if got := run(2, 320, 0); got != 0 {
			t.Errorf("the third: expected %d blocks, want none", got)
		}
		if got := run(0, 320, 304); got != 20 {
			t.Errorf("the first, used lately: expected %d blocks, want 20", got)
		}
		// A longer turn takes the place of the one before.
		if got := run(0, 640, 320); got != 20 {
			t.Errorf("the next turn: expected %d blocks, want 20", got)
		}
		if got := run(0, 640, 624); got != 40 {
			t.Errorf("the same again: expected %d blocks, want 40", got)
		}
	})
}
