package simserver

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stator-ai/stator/internal/tokenize"
)

// TestMemo puts more bodies than there are slots, from several goroutines, and gets
// each one's own prompt or none.
func TestMemo(t *testing.T) {
	m := newMemo()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			found := 0
			for i := range 5000 {
				k := i % 700
				body := fmt.Appendf(nil, "body %d", k)
				h := tokenize.Hashing{Seed: uint64(k % 2), Size: 16}
				if p, ok := m.get(body, Plain, h); ok {
					found++
					if !slices.Equal(p.ids, []uint32{uint32(k)}) {
						t.Errorf("body %d has the prompt %d", k, p.ids)
					}
					if cap(p.ids) != len(p.ids) {
						t.Error("room for others to write into")
					}
				}
				if _, ok := m.get(body, Plain, tokenize.Hashing{Seed: 9}); ok {
					t.Error("found under another hashing")
				}
				m.put(body, Plain, h, prompt{ids: append(make([]uint32, 0, 4), uint32(k))})
			}
			if found == 0 {
				t.Errorf("goroutine %d found nothing", g)
			}
		})
	}
	wg.Wait()
	large := make([]byte, maxMemo+1)
	m.put(large, Plain, tokenize.Hashing{}, prompt{})
	if _, ok := m.get(large, Plain, tokenize.Hashing{}); ok {
		t.Error("a large body is remembered")
	}
}
