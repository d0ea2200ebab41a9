package indexserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/zmtp"
)

// speaker is a rank of an engine that publishes what becomes of its cache, with blocks
// of 16 tokens.
type speaker struct {
	t      *testing.T
	pub    *zmtp.Publisher
	router *zmtp.Router

	mu   sync.Mutex
	seq  uint64
	past []zmtp.Message // frames after the topic
}

// newSpeaker opens the sockets of an engine, at the addresses of one before if given.
func newSpeaker(t *testing.T, before *speaker) *speaker {
	t.Helper()
	events, replay := "127.0.0.1:0", "127.0.0.1:0"
	if before != nil {
		events, replay = before.pub.Addr().String(), before.router.Addr().String()
	}
	s := &speaker{t: t}
	var err error
	if s.router, err = zmtp.ListenRouter(replay, s.answer); err != nil {
		t.Fatal(err)
	}
	if s.pub, err = zmtp.ListenPub(events, zmtp.PubOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func (s *speaker) close() {
	s.pub.Close()
	s.router.Close()
}

// answer replays what was said from a number on.
func (s *speaker) answer(p *zmtp.Peer, m zmtp.Message) {
	from := binary.BigEndian.Uint64(m[len(m)-1])
	s.mu.Lock()
	past := s.past
	s.mu.Unlock()
	for _, m := range past {
		if binary.BigEndian.Uint64(m[0]) >= from && p.Send(nil, m[0], m[1]) != nil {
			return
		}
	}
	_ = p.Send(nil, binary.BigEndian.AppendUint64(nil, 1<<64-1), nil) // it may have hung up
}

// say makes a batch about a rank that only who asks for it hears.
func (s *speaker) say(rank uint32, events ...[]byte) zmtp.Message {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1_700_000_000+float64(time.Now().UnixNano())/1e9) // no two are alike
	b = msgp.AppendArrayHeader(b, uint32(len(events)))
	for _, ev := range events {
		b = append(b, ev...)
	}
	b = msgp.AppendUint32(b, rank)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := zmtp.Message{binary.BigEndian.AppendUint64(nil, s.seq), b}
	s.seq++
	s.past = append(s.past, m)
	return m
}

// publish makes a batch and sends it.
func (s *speaker) publish(rank uint32, events ...[]byte) {
	m := s.say(rank, events...)
	s.pub.Publish([]byte("kv"), m[0], m[1])
}

// subscribed waits until somebody listens.
func (s *speaker) subscribed(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.pub.Wait(ctx, n); err != nil {
		s.t.Fatalf("%d subscribers, want %d: %v", s.pub.Subscribers(), n, err)
	}
}

// registration is the body with which a rank is registered, with more members if given.
func (s *speaker) registration(worker, rank int, replay bool, more string) string {
	if replay {
		more += fmt.Sprintf(`,"replay_endpoint":"tcp://%s"`, s.router.Addr())
	}
	return fmt.Sprintf(`{"instance_id":%d,"model_name":"m","block_size":16,"dp_rank":%d,"endpoint":"tcp://%s"%s}`,
		worker, rank, s.pub.Addr(), more)
}

// storing is an event as vLLM 0.17 sends it: the blocks from first on, of size tokens, of
// the prompt of the numbers from 0 on, under a salt if given.
func storing(first, blocks, size int, salt string) []byte {
	name := func(block int) uint64 { return uint64(len(salt))<<32 + uint64(block) + 1 }
	b := msgp.AppendArrayHeader(nil, 9)
	b = msgp.AppendString(b, "BlockStored")
	b = msgp.AppendArrayHeader(b, uint32(blocks))
	for i := range blocks {
		b = msgp.AppendUint64(b, name(first+i))
	}
	if first > 0 {
		b = msgp.AppendUint64(b, name(first-1))
	} else {
		b = msgp.AppendNil(b)
	}
	b = msgp.AppendArrayHeader(b, uint32(blocks*size))
	for i := range blocks * size {
		b = msgp.AppendUint32(b, uint32(first*size+i))
	}
	b = msgp.AppendInt(b, size)
	b = msgp.AppendNil(b)
	b = msgp.AppendString(b, "GPU")
	b = msgp.AppendNil(b)
	b = msgp.AppendArrayHeader(b, uint32(blocks))
	for i := range blocks {
		if first+i > 0 || salt == "" {
			b = msgp.AppendNil(b)
			continue
		}
		b = msgp.AppendArrayHeader(b, 1)
		b = msgp.AppendString(b, salt)
	}
	return b
}

// removing is an event that removes a block that storing stored without a salt.
func removing(block int) []byte {
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendString(b, "BlockRemoved")
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendUint64(b, uint64(block)+1)
	return msgp.AppendString(b, "GPU")
}

// ear hears of everything that changes what a server says about sockets: it takes its
// record and its log.
type ear struct {
	heard chan struct{} // of size one

	mu      sync.Mutex
	batches []kv.Batch
}

func newEar() *ear { return &ear{heard: make(chan struct{}, 1)} }

func (e *ear) tell() {
	select {
	case e.heard <- struct{}{}:
	default:
	}
}

func (e *ear) Apply(b *kv.Batch) error {
	e.mu.Lock()
	e.batches = append(e.batches, kv.Batch{Source: b.Source, Epoch: b.Epoch, Seq: b.Seq})
	e.mu.Unlock()
	e.tell()
	return nil
}

// recorded returns what was recorded, without the events.
func (e *ear) recorded() []kv.Batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]kv.Batch(nil), e.batches...)
}

func (e *ear) Enabled(context.Context, slog.Level) bool        { return true }
func (e *ear) Handle(context.Context, slog.Record) error       { e.tell(); return nil }
func (e *ear) WithAttrs([]slog.Attr) slog.Handler              { return e }
func (e *ear) WithGroup(string) slog.Handler                   { return e }
func (e *ear) config() Config                                  { return Config{Record: e, Log: slog.New(e)} }
func (e *ear) until(t *testing.T, what string, is func() bool) { t.Helper(); e.wait(t, what, is, nil) }

// wait waits until something is so, and shows how it is if that does not come.
func (e *ear) wait(t *testing.T, what string, is func() bool, show func() string) {
	t.Helper()
	patience := time.After(20 * time.Second)
	for !is() {
		select {
		case <-e.heard:
		case <-patience:
			if show != nil {
				what += ": " + show()
			}
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// listening is a rig that is listened to.
type listening struct {
	*rig
	*ear
}

func newListening(t *testing.T) *listening {
	t.Helper()
	e := newEar()
	return &listening{newRig(t, e.config()), e}
}

// worker returns what /workers says about a worker in the usual group.
func (l *listening) worker(t *testing.T, id int) workerBody {
	t.Helper()
	var all []workerBody
	if err := json.Unmarshal([]byte(l.get(t, "/workers?routing_group=default")), &all); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if w.InstanceID == kv.WorkerID(id) {
			return w
		}
	}
	t.Fatalf("worker %d is not registered", id)
	return workerBody{}
}

// holds waits until a rank of worker 1 is live and has so many blocks.
func (l *listening) holds(t *testing.T, rank string, blocks int) listenerBody {
	t.Helper()
	var last listenerBody
	l.wait(t, fmt.Sprintf("%d blocks of rank %s", blocks, rank), func() bool {
		last = l.worker(t, 1).Listeners[rank]
		return last.Socket != nil && last.Socket.State == "live" && last.Blocks == blocks
	}, func() string {
		raw, _ := json.Marshal(last)
		return string(raw)
	})
	return last
}
