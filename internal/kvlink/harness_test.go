package kvlink

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/zmtp"
)

// rig is a model behind sockets that are in memory.
type rig struct {
	*model
	topic bool // of the replay's shape

	mu     sync.Mutex
	subs   []*pipe
	down   bool     // nobody answers the phone
	silent bool     // the replay socket does not answer
	deaf   bool     // it does not hear where to begin
	limit  int      // messages of an answer, the rest is dropped; 0 for none
	asked  []uint64 // what the replay socket was asked for
	meet   func()   // called when the replay socket is asked, before it answers
}

// pipe is a connection in memory.
type pipe struct {
	in     chan zmtp.Message
	closed chan struct{}
	once   sync.Once
	send   func(*pipe, [][]byte)
}

func newPipe(send func(*pipe, [][]byte)) *pipe {
	return &pipe{in: make(chan zmtp.Message, 1<<14), closed: make(chan struct{}), send: send}
}

func (p *pipe) Recv(zmtp.Message) (zmtp.Message, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.closed:
	}
	select { // what was sent before arrives
	case m := <-p.in:
		return m, nil
	default:
		return nil, io.EOF
	}
}

func (p *pipe) Send(frames ...[]byte) error {
	p.send(p, frames)
	return nil
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

var errRefused = errors.New("connection refused")

func (r *rig) dial(context.Context) (Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errRefused
	}
	p := newPipe(nil)
	r.subs = append(r.subs, p)
	return p, nil
}

func (r *rig) dialReplay() (Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errRefused
	}
	return newPipe(func(p *pipe, frames [][]byte) {
		from := binary.BigEndian.Uint64(frames[1])
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, from)
		if r.meet != nil {
			r.meet()
		}
		if r.silent {
			return
		}
		if r.deaf {
			from = 0
		}
		all := r.replies(from, r.topic)
		if r.limit > 0 && len(all) > r.limit {
			all = all[:r.limit]
		}
		for _, m := range all {
			p.in <- m
		}
	}), nil
}

// publish sends a batch to who is connected.
func (r *rig) publish(b said) {
	for _, p := range r.subs {
		p.in <- b.message()
	}
}

// do changes the model and the rig at rest.
func (r *rig) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// steps makes and publishes some batches.
func (r *rig) steps(n int) {
	r.do(func() {
		for range n {
			r.publish(r.step())
		}
	})
}

// missed makes batches that nobody hears.
func (r *rig) missed(n int) {
	r.do(func() {
		for range n {
			r.step()
		}
	})
}

// hangUp ends all connections.
func (r *rig) hangUp(down bool) {
	r.do(func() {
		r.down = down
		for _, p := range r.subs {
			p.Close()
		}
		r.subs = nil
	})
}

// fleet is links to some rigs, by their addresses.
type fleet struct {
	*Links
	t     *testing.T
	index *kvindex.Index
	rigs  map[string]*rig

	mu     sync.Mutex
	states map[kv.Source][]State // since the last call of told
	latest map[kv.Source]State
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{
		t: t, index: kvindex.New(kvindex.Config{}),
		rigs: map[string]*rig{}, states: map[kv.Source][]State{}, latest: map[kv.Source]State{},
	}
	f.Links = Open(Config{
		Target: f.index, Now: time.Now, Changed: f.heard,
		Dial: func(ctx context.Context, addr string, _ ...string) (Conn, error) {
			return f.rigs[addr].dial(ctx)
		},
		DialReplay: func(_ context.Context, addr string) (Conn, error) { return f.rigs[addr].dialReplay() },
	})
	return f
}

func (f *fleet) heard(src kv.Source, st State) {
	f.mu.Lock()
	f.states[src], f.latest[src] = append(f.states[src], st), st
	f.mu.Unlock()
}

// told returns the states that were told of a rank since the last call.
func (f *fleet) told(src kv.Source) []State {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.states[src]
	f.states[src] = nil
	return all
}

func (f *fleet) rig(addr string, rank uint32) *rig {
	r := &rig{model: newModel(uint64(len(f.rigs)), rank)}
	f.rigs[addr] = r
	return r
}

// at describes the stream of a rank at an address, with its replay there too or not.
func at(rank uint32, addr string, replay bool) engine.EventStream {
	s := engine.EventStream{Rank: rank, Address: addr, Counted: true}
	if replay {
		s.Replay = addr
	}
	return s
}

func of(streams ...engine.EventStream) *engine.Info { return &engine.Info{Streams: streams} }

// link returns the view of a rank's link.
func (f *fleet) link(src kv.Source) Stats {
	f.t.Helper()
	for _, st := range f.Stats() {
		if st.Source == src {
			return st
		}
	}
	f.t.Fatalf("worker %d rank %d is not followed", src.Worker, src.Rank)
	return Stats{}
}

// holds returns what the index says that a rank holds.
func holds(x *kvindex.Index, src kv.Source) map[kv.BlockID]held {
	all := map[kv.BlockID]held{}
	d, ok := x.Dump(src)
	if !ok {
		return all
	}
	for ev := range d.All() {
		parent, has := ev.Parent, ev.HasParent
		for _, b := range ev.Blocks {
			all[b.ID] = held{b.ID, parent, has, b.Tokens}
			parent, has = b.ID, true
		}
	}
	return all
}

// same checks that a rank is what a model holds.
func (f *fleet) same(src kv.Source, m *model) {
	f.t.Helper()
	if diff := cmp.Diff(m.cache, holds(f.index, src)); diff != "" {
		f.t.Fatalf("rank is not the engine's cache (-want +got):\n%s", diff)
	}
}

// stands checks a rank's state, and that it was told last.
func (f *fleet) stands(src kv.Source, want State) {
	f.t.Helper()
	if got := f.link(src).State; got != want {
		f.t.Fatalf("state is %v, want %v; told %v", got, want, f.told(src))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.latest[src]; got != want {
		f.t.Fatalf("told %v at last, want %v", got, want)
	}
}

var src = kv.Source{Worker: 7}

// inBubble runs a test in virtual time. It fails if a goroutine is left.
func inBubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.Close()
		test(t, f)
	})
}

// rest lets everything happen that can in a while.
func rest() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}
