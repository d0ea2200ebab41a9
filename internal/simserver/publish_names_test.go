package simserver

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/simengine"
)

// A block has its name from the first time that it is stored to the last time that it
// is removed, and those after it go on from there.
func TestNames(t *testing.T) {
	prompt := []uint32{1, 2, 3, 4, 5, 6}
	words := &contents{
		prompt:  kv.AppendBlocks(nil, kv.HashSeed("", "s"), prompt, 2),
		wording: &wording{prompt: prompt[:3], answer: prompt[3:], salt: "s"},
	}
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			var want []kv.BlockID
			show := enginehash.Digest.Last
			if kind == simengine.SGLang {
				want, show = enginehash.AppendSGLang(nil, "s", prompt, 2), enginehash.Digest.First
			} else {
				want = enginehash.AppendVLLM(nil, enginehash.NoneHash("0"), "", "s", prompt, 2)
			}
			n := newNames(kind, enginehash.NoneHash("0"), 2)
			add := func(first, end int) (hashes []kv.BlockID) {
				t.Helper()
				ev := kv.Event{Kind: kv.Stored, Blocks: words.prompt[first:end]}
				if first > 0 {
					ev.HasParent, ev.Parent = true, words.prompt[first-1].ID
				}
				told := n.add(&ev, simengine.Origin{Content: words, First: first})
				if !slices.Equal(told.tokens, prompt[2*first:2*end]) {
					t.Errorf("tokens %v of blocks %d to %d", told.tokens, first, end)
				}
				if first > 0 && show(told.parent) != want[first-1] {
					t.Errorf("parent %d, want %d", show(told.parent), want[first-1])
				}
				for _, d := range told.hashes {
					hashes = append(hashes, show(d))
				}
				return hashes
			}
			// The second time, what is known comes before what is not.
			for _, r := range [][2]int{{0, 1}, {1, 2}, {1, 3}} {
				if diff := cmp.Diff(want[r[0]:r[1]], add(r[0], r[1])); diff != "" {
					t.Errorf("blocks %d to %d (-want +got):\n%s", r[0], r[1], diff)
				}
			}
			n.spare(words.prompt[1:2])
			type removal struct {
				copies int
				last   bool
			}
			for i, want := range []removal{{2, false}, {1, true}, {0, false}} {
				d, copies, last := n.remove(words.prompt[1].ID)
				if got := (removal{copies, last}); got != want {
					t.Errorf("removal %d of %x: %+v, want %+v", i, d, got, want)
				}
			}
			if len(n.known) != 2 {
				t.Errorf("%d blocks are known", len(n.known))
			}
		})
	}
}
