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
		// They were used nine prompts ago, and the server does not have them. One may be
		// an accident.
		for _, number := range []int{1, 2} {
			if got := run(number, 320, 0); got != 20 {
				t.Errorf("prompt %d of ten: expected %d blocks, want 20", number, got)
			}
		}
		// So what was used as long ago is not there either, and what came later may be.
		if got := run(3, 320, 0); got != 0 {
			t.Errorf("the fourth: expected %d blocks, want none", got)
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

// TestRecallWithoutMemory: a server that puts nothing aside loses the end of a prompt
// when another that begins alike takes its slot, and that counts against it.
func TestRecallWithoutMemory(t *testing.T) {
	talk := func(number, length int) []kv.Block {
		shared := tokensOf(1, 160)
		return kv.AppendBlocks(nil, kv.HashSeed("", ""), append(shared, tokensOf(number, length-160)...), 16)
	}
	r := newRecall(4)
	if r.note(talk(2, 640)) != nil || r.note(talk(3, 640)) != nil {
		t.Error("something had to go although there is room")
	}
	m := r.find(talk(2, 800))
	if m.at != 1 || m.common != 40 || !m.overwritten {
		t.Fatalf("the first talk: %+v", m)
	}
	if r.displaced(talk(2, 800)) != 0 {
		t.Error("it puts prompts aside, and would lose one")
	}
	if r.lacked(m) == nil {
		t.Error("it was not there, and nothing is forgotten")
	}
	if m := r.find(talk(2, 800)); m.common != 10 || m.overwritten {
		t.Errorf("of the first talk there is %+v, want the shared beginning", m)
	}
	if got := r.displaced(talk(2, 800)); got != 30 {
		t.Errorf("it would lose %d blocks of the other talk, want 30", got)
	}
	if got := r.displaced(talk(3, 800)); got != 0 {
		t.Errorf("the talk that goes on would lose %d blocks", got)
	}
	if r.note(talk(2, 800)) == nil {
		t.Error("the other talk had to go")
	}
	r.found(memory{at: 0, overwritten: true})
	if !r.aside {
		t.Error("what was overwritten was found, so it is put aside")
	}
	for i := range 300 {
		r.found(memory{at: len(r.prompts)})
		r.note(kv.AppendBlocks(nil, kv.HashSeed("", ""), tokensOf(1000+i, 320), 16))
	}
	if n := len(r.prompts); n > recallMost {
		t.Errorf("%d prompts are remembered, want at most %d", n, recallMost)
	}
}
