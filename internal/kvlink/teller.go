package kvlink

import (
	"sync"

	"github.com/stator-ai/stator/internal/kv"
)

// teller calls a function with the newest state of each rank, from a goroutine of its
// own, so that nobody who changes a state waits for who hears of it.
type teller struct {
	call func(kv.Source, State)
	wake chan struct{} // of size one
	done chan struct{}
	once sync.Once

	mu struct {
		sync.Mutex
		order []kv.Source
		news  map[kv.Source]State
		told  map[kv.Source]State // without those of None
	}
}

func newTeller(call func(kv.Source, State)) *teller {
	t := &teller{call: call, wake: make(chan struct{}, 1), done: make(chan struct{})}
	t.mu.news = map[kv.Source]State{}
	t.mu.told = map[kv.Source]State{}
	return t
}

// tell has the state of a rank told.
func (t *teller) tell(src kv.Source, s State) {
	t.mu.Lock()
	was, waits := t.mu.news[src]
	if !waits {
		t.mu.order = append(t.mu.order, src)
	} else if was == None {
		delete(t.mu.told, src) // it is another's, whatever was told of the one before
	}
	t.mu.news[src] = s
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *teller) run() {
	for {
		for src, s, ok := t.next(); ok; src, s, ok = t.next() {
			t.call(src, s)
		}
		select {
		case <-t.wake:
		case <-t.done:
			return
		}
	}
}

// next returns what is to be told next, and whether there is something.
func (t *teller) next() (kv.Source, State, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.mu.order) > 0 {
		src := t.mu.order[0]
		t.mu.order = t.mu.order[1:]
		s := t.mu.news[src]
		delete(t.mu.news, src)
		if t.mu.told[src] == s {
			continue
		}
		if t.mu.told[src] = s; s == None {
			delete(t.mu.told, src)
		}
		return src, s, true
	}
	return kv.Source{}, None, false
}

// close ends run. What has not been told by then may stay so.
func (t *teller) close() {
	t.once.Do(func() { close(t.done) })
}
