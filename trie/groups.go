package trie

import (
	"cmp"
	"container/list"
	"fmt"
	"maps"
	"slices"
)

// maxHeld is how many items of runs that have not ended are held, besides those of the run
// that the latest belongs to.
const maxHeld = 1 << 18

// groups puts the items of runs together, which may come by turns. Nothing says when a run
// has ended, so all are held until the input has, or until they are too many: then the run
// to which nothing was added for longest counts as ended.
type groups[T any] struct {
	most  int
	emit  func([]T) error // what it returns is returned as it is
	open  map[string]*openRun[T]
	idle  list.List // of *openRun[T], the one that was added to last at the back
	ended map[string]struct{}
	held  int
	begun int
}

type openRun[T any] struct {
	name  string
	items []T
	order int // how many began before
	place *list.Element
}

func newGroups[T any](most int, emit func([]T) error) *groups[T] {
	return &groups[T]{most: most, emit: emit, open: make(map[string]*openRun[T]), ended: make(map[string]struct{})}
}

// endedError is the error of an item whose run has been handed over.
type endedError struct {
	run  string
	most int
}

func (e *endedError) Error() string {
	return fmt.Sprintf("expected all of run %.80q closer together: it goes on after %d others; sort the input by run", e.run, e.most)
}

// add takes an item of a run in. Its error is an *endedError, or that of emit.
func (g *groups[T]) add(run string, item T) error {
	r := g.open[run]
	if r == nil {
		if _, gone := g.ended[run]; gone {
			return &endedError{run, g.most}
		}
		r = &openRun[T]{name: run, order: g.begun}
		r.place = g.idle.PushBack(r)
		g.open[run] = r
		g.begun++
	}
	g.idle.MoveToBack(r.place)
	r.items = append(r.items, item)
	g.held++
	for g.held-len(r.items) > g.most {
		if err := g.end(g.idle.Front().Value.(*openRun[T])); err != nil {
			return err
		}
	}
	return nil
}

// close hands over what is held, in the order in which runs began, and forgets all runs.
func (g *groups[T]) close() error {
	rest := slices.SortedFunc(maps.Values(g.open), func(a, b *openRun[T]) int { return cmp.Compare(a.order, b.order) })
	for _, r := range rest {
		if err := g.end(r); err != nil {
			return err
		}
	}
	g.ended, g.begun = emptied(g.ended), 0
	return nil
}

func (g *groups[T]) end(r *openRun[T]) error {
	delete(g.open, r.name)
	g.ended[r.name] = struct{}{}
	g.idle.Remove(r.place)
	g.held -= len(r.items)
	return g.emit(r.items)
}
