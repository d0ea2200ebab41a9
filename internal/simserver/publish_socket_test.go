package simserver

import (
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/zmtp"
)

// subscribed connects to a rank and returns when it would be sent what is published.
func subscribed(t *testing.T, s *Server, rank int, topics ...string) *zmtp.Conn {
	t.Helper()
	addrs, _ := s.EventAddrs()
	c, err := zmtp.DialSub(t.Context(), addrs[rank], topics...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.publisher.listening[rank].Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// replayed asks a rank for what it published from a number on. It returns the frames of
// all answers, the one that ends them included.
func replayed(t *testing.T, s *Server, rank int, from uint64) [][][]byte {
	t.Helper()
	_, addrs := s.EventAddrs()
	c, err := zmtp.DialDealer(t.Context(), addrs[rank])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		t.Fatal(err)
	}
	var out [][][]byte
	for {
		m, err := c.Recv(nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
		if _, _, end, err := kv.ParseReplay(m); err != nil {
			t.Fatal(err)
		} else if end {
			return out
		}
	}
}

// follow brings an index up to date with a rank by its sockets alone: by what is sent,
// until it has batch last, and by asking for what was missed.
func (l *listener) follow(t *testing.T, s *Server, c *zmtp.Conn, x *kvindex.Index, last uint64) (missed int) {
	t.Helper()
	for l.next <= last {
		m, err := c.Recv(nil)
		if err != nil {
			t.Fatal(err)
		}
		topic, seq, payload, err := kv.ParseMessage(m)
		if err != nil || topic != "kv@a@m" {
			t.Fatalf("topic %q, error %v", topic, err)
		}
		if seq > l.next {
			missed += int(seq - l.next)
			for _, m := range replayed(t, s, l.stream.rank, l.next) {
				if seq, payload, end, _ := kv.ParseReplay(m); !end {
					if seq != l.next {
						t.Fatalf("asked for %d, got %d", l.next, seq)
					}
					l.decode(t, x, payload)
				}
			}
		}
		if seq == l.next {
			l.decode(t, x, payload)
		}
	}
	return missed
}

// last returns the number of the batch published last. The engine must be at rest.
func (s *zmqStream) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.seq - 1
}

// TestPublishedOnSockets follows two ranks by their sockets, with every third message
// lost.
func TestPublishedOnSockets(t *testing.T) {
	for _, f := range []struct {
		format string
		kind   simengine.Kind
	}{
		{"vllm-0.24", simengine.VLLM},
		{"vllm-0.26", simengine.VLLM},
		{"vllm-0.9", simengine.VLLM},
		{"sglang-0.5.18", simengine.SGLang},
	} {
		t.Run(f.format, func(t *testing.T) {
			own, told := kvindex.New(kvindex.Config{}), kvindex.New(kvindex.Config{})
			cfg := pressed(f.kind, PublishConfig{Format: f.format, Replay: "127.0.0.1:0", Topic: "kv@a@m"})
			cfg.Ranks = 2
			cfg.Events = func(b *kv.Batch) { own.Apply(b) }
			s := newServer(t, cfg)
			defer s.Close()
			s.SetEventFaults(EventFaults{DropEvery: 3})
			conns := []*zmtp.Conn{subscribed(t, s, 0, "kv@"), subscribed(t, s, 1)}
			tr := newChatter(2, false, false)
			for i := range 20 {
				tr.send(t, s, "X-Data-Parallel-Rank: "+strconv.Itoa(i%2))
			}
			s.SetEventFaults(EventFaults{})
			for rank := range conns { // one each that is not lost
				tr.send(t, s, "X-Data-Parallel-Rank: "+strconv.Itoa(rank))
			}
			for rank, c := range conns {
				l := listen(s, rank)
				if l.follow(t, s, c, told, l.stream.last()) == 0 {
					t.Error("nothing was missed")
				}
				if n := l.skipped(); len(n) > 0 {
					t.Errorf("skipped %v", n)
				}
			}
			tr.compare(t, cfg.BlockSize, own, told)
		})
	}
}

// The forms of the answers to a request for what was missed.
func TestReplay(t *testing.T) {
	end := endOfReplay
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	type frames = [][]byte
	for _, tc := range []struct {
		name   string
		kind   simengine.Kind
		format string
		faults EventFaults
		buffer int
		from   uint64
		want   func(p [][]byte) []frames // of the payloads
	}{
		{"vllm 0.25", simengine.VLLM, "vllm-0.24", EventFaults{}, 0, 4,
			func(p [][]byte) []frames {
				return []frames{{{}, seq(4), p[4]}, {{}, seq(5), p[5]}, {{}, end, {}}}
			}},
		{"vllm 0.26", simengine.VLLM, "vllm-0.26", EventFaults{}, 0, 4,
			func(p [][]byte) []frames {
				return []frames{{{}, []byte("kv"), seq(4), p[4]}, {{}, []byte("kv"), seq(5), p[5]}, {{}, {}, end, {}}}
			}},
		{"sglang", simengine.SGLang, "", EventFaults{}, 0, 5,
			func(p [][]byte) []frames { return []frames{{{}, seq(5), p[5]}, {{}, end, {}}} }},
		{"nothing yet", simengine.SGLang, "", EventFaults{}, 0, 6,
			func([][]byte) []frames { return []frames{{{}, end, {}}} }},
		{"far ahead", simengine.SGLang, "", EventFaults{}, 0, 1<<64 - 1,
			func([][]byte) []frames { return []frames{{{}, end, {}}} }},
		{"more than is kept", simengine.SGLang, "", EventFaults{}, 2, 0,
			func(p [][]byte) []frames { return []frames{{{}, seq(4), p[4]}, {{}, seq(5), p[5]}, {{}, end, {}}} }},
		{"replay-truncated:1", simengine.SGLang, "", EventFaults{ReplayTruncated: true, ReplayKeep: 1}, 0, 0,
			func(p [][]byte) []frames { return []frames{{{}, seq(5), p[5]}, {{}, end, {}}} }},
		{"replay-truncated:0", simengine.SGLang, "", EventFaults{ReplayTruncated: true}, 0, 0,
			func([][]byte) []frames { return []frames{{{}, end, {}}} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, pressed(tc.kind, PublishConfig{Format: tc.format, Replay: "127.0.0.1:0", Topic: "kv", Buffer: tc.buffer}))
			defer s.Close()
			c := subscribed(t, s, 0)
			var payloads [][]byte
			z := s.publisher.streams[0].(*zmqStream)
			tr := newChatter(3, false, false)
			for len(payloads) < 6 {
				tr.send(t, s)
				for last := z.last(); len(payloads) <= int(last); {
					m, err := c.Recv(nil)
					if err != nil {
						t.Fatal(err)
					}
					payloads = append(payloads, m[2])
				}
			}
			// As if no more than six had been published.
			z.mu.Lock()
			z.mu.seq, z.mu.ring = 6, nil
			for i := range uint64(6) {
				z.mu.seq = i
				z.send(payloads[i], &EventFaults{})
			}
			z.mu.Unlock()
			s.SetEventFaults(tc.faults)
			if diff := cmp.Diff(tc.want(payloads), replayed(t, s, 0, tc.from)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A request that gets no answer, and one that is none.
func TestReplaySilent(t *testing.T) {
	s := newServer(t, pressed(simengine.VLLM, PublishConfig{Replay: "127.0.0.1:0"}))
	defer s.Close()
	_, addrs := s.EventAddrs()
	c, err := zmtp.DialDealer(t.Context(), addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	from := make([]byte, 8)
	for _, m := range [][][]byte{{nil}, {from}, {nil, from[1:]}, {nil, from, nil}} {
		if err := c.Send(m...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Send(nil, from); err != nil {
		t.Fatal(err)
	}
	m, err := c.Recv(nil) // of the last
	if err != nil {
		t.Fatal(err)
	}
	if _, _, end, err := kv.ParseReplay(m); err != nil || !end {
		t.Fatalf("got %x, error %v", m, err)
	}
	s.SetEventFaults(EventFaults{NoReplay: true})
	if err := c.Send(nil, from); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if m, err := c.Recv(nil); err == nil {
		t.Fatalf("got %x", m)
	}
}

// Ranks listen in a row, where any port will do.
func TestEventAddrs(t *testing.T) {
	cfg := pressed(simengine.VLLM, PublishConfig{Replay: "127.0.0.1:0"})
	cfg.Ranks = 4
	s := newServer(t, cfg)
	publish, replay := s.EventAddrs()
	for _, addrs := range [][]string{publish, replay} {
		var first int
		for rank, addr := range addrs {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			n, _ := strconv.Atoi(port)
			if rank == 0 {
				first = n
			}
			if n != first+rank {
				t.Errorf("rank %d is at %d, the first at %d", rank, n, first)
			}
		}
		if len(addrs) != 4 {
			t.Errorf("%d addresses", len(addrs))
		}
	}
	s.Close()
	s.Close()
	if _, err := zmtp.Probe(t.Context(), publish[0]); err == nil {
		t.Error("it listens after its end")
	}
	// Exactly there again, and not twice.
	cfg.Publish.Listen, cfg.Publish.Replay = publish[0], replay[0]
	again := newServer(t, cfg)
	defer again.Close()
	if p, r := again.EventAddrs(); !slices.Equal(p, publish) || !slices.Equal(r, replay) {
		t.Errorf("at %v and %v", p, r)
	}
	if other, err := New(cfg); err == nil {
		other.Close()
		t.Error("two servers at one address")
	}
}

// A restarted engine counts from the beginning and has other names for its blocks.
func TestEventsRestart(t *testing.T) {
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t, pressed(kind, PublishConfig{Replay: "127.0.0.1:0"}))
			defer s.Close()
			life := func() (first *kv.Batch) {
				t.Helper()
				c := subscribed(t, s, 0)
				unary(t, s, "/v1/completions", `{"prompt":[1,2,3,4,5],"max_tokens":2}`, "X-Data-Parallel-Rank: 0")
				m, err := c.Recv(nil)
				if err != nil {
					t.Fatal(err)
				}
				_, seq, payload, err := kv.ParseMessage(m)
				if err != nil || seq != 0 {
					t.Fatalf("batch %d, error %v", seq, err)
				}
				b, err := listen(s, 0).dec.Decode(seq, payload)
				if err != nil {
					t.Fatal(err)
				}
				if got := replayed(t, s, 0, 0); len(got) != 2 {
					t.Errorf("%d batches since the start", len(got)-1)
				}
				s.Restart()
				if m, err := c.Recv(nil); err == nil {
					t.Errorf("got %x after the end", m)
				}
				for deadline := time.Now().Add(20 * time.Second); s.publisher.listening[0].Subscribers() > 0; runtime.Gosched() {
					if time.Now().After(deadline) {
						t.Fatal("still connected")
					}
				}
				return b
			}
			a, b := life(), life()
			if kind == simengine.SGLang { // whose names depend on tokens only
				if diff := cmp.Diff(a, b); diff != "" {
					t.Errorf("(-first life +second):\n%s", diff)
				}
				if a.Events[0].Kind != kv.Cleared {
					t.Errorf("begins with %v", a.Events[0].Kind)
				}
				return
			}
			x, y := a.Events[0].Blocks[0], b.Events[0].Blocks[0]
			if x.Tokens != y.Tokens || x.ID == y.ID {
				t.Errorf("block %+v, after the restart %+v", x, y)
			}
		})
	}
}

// A cache that is emptied says so.
func TestEventsCleared(t *testing.T) {
	for _, kind := range []simengine.Kind{simengine.VLLM, simengine.SGLang} {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t, pressed(kind, PublishConfig{Topic: "kv@a@m"}))
			defer s.Close()
			c := subscribed(t, s, 0)
			told := kvindex.New(kvindex.Config{})
			l := listen(s, 0)
			for range 2 {
				unary(t, s, "/v1/completions", `{"prompt":[1,2,3,4,5,6,7,8,9],"max_tokens":1}`)
				last := l.stream.last()
				l.follow(t, s, c, told, last)
				prompt := kv.AppendBlocks(nil, kv.HashSeed("", ""), []uint32{1, 2, 3, 4, 5, 6, 7, 8}, 4)
				if got := told.Match(nil, prompt); len(got) != 1 {
					t.Fatalf("found %+v", got)
				}
				for !s.clearCaches() { // the last pass may be ending
					runtime.Gosched()
				}
				l.follow(t, s, c, told, last+1)
				if got := told.Match(nil, prompt); len(got) != 0 {
					t.Errorf("found %+v", got)
				}
			}
		})
	}
}

// An engine that connects to whoever listens, also if that comes later or comes back.
func TestPublishConnect(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	s := newServer(t, pressed(simengine.VLLM, PublishConfig{Connect: addr}))
	defer s.Close()
	for n := range 2 {
		sub, err := zmtp.ListenSub(addr)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c, err := sub.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		z := s.publisher.streams[0].(*zmqStream)
		for z.socket.Load() == nil {
			if ctx.Err() != nil {
				t.Fatal("not connected")
			}
			time.Sleep(time.Millisecond)
		}
		if err := z.socket.Load().Wait(ctx, 1); err != nil {
			t.Fatal(err)
		}
		unary(t, s, "/v1/completions", `{"prompt":[1,2,3,4,`+strconv.Itoa(n)+`,6,7,8,9],"max_tokens":1}`)
		c.SetDeadline(time.Now().Add(20 * time.Second))
		m, err := c.Recv(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, seq, _, err := kv.ParseMessage(m); err != nil || seq != uint64(n) {
			t.Errorf("batch %d, error %v", seq, err)
		}
		cancel()
		sub.Close()
		c.Close()
	}
}

// Everything at once: requests, subscribers that come and go, requests for what was
// missed, faults.
func TestPublishConcurrently(t *testing.T) {
	cfg := pressed(simengine.VLLM, PublishConfig{Replay: "127.0.0.1:0", Buffer: 20})
	cfg.Ranks = 2
	s := newServer(t, cfg)
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			tr := newChatter(i, true, true)
			for range 15 {
				body, _, _ := tr.request()
				if w := call(s, "POST", "/v1/completions", body); w.Code != 200 {
					t.Errorf("status %d: %s", w.Code, w.Body)
				}
			}
		})
	}
	for i := range 10 {
		c := subscribed(t, s, i%2)
		replayed(t, s, i%2, 0)
		s.SetEventFaults(EventFaults{DropEvery: i % 3, DuplicateStores: i%2 == 0, GroupEvents: i%3 == 0, ByteHashes: i%4 == 0})
		c.Close()
	}
	wg.Wait()
	s.Close()
}
