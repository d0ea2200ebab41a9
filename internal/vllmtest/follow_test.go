package vllmtest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/vllmtest"
	"github.com/stator-ai/stator/internal/zmtp"
)

var source = kv.Source{Worker: 1}

// follower has an index of what a server says about its cache.
type follower struct {
	t     *testing.T
	from  kv.Source
	conn  *zmtp.Conn
	msg   zmtp.Message
	dec   *kv.Decoder
	index *kvindex.Index
	next  uint64 // number of the message to come
	kinds [kv.Cleared + 1]int
}

func newFollower(t *testing.T, from kv.Source) *follower {
	return &follower{
		t: t, from: from, index: kvindex.New(kvindex.Config{}),
		dec: kv.NewDecoder(kv.DecoderConfig{Source: source, Counted: true}), // events tell the rank
	}
}

// follow subscribes to a server. What it has said before comes from its replay.
func follow(t *testing.T, s *vllmtest.Instance) *follower {
	t.Helper()
	f := newFollower(t, source)
	var err error
	if f.conn, err = zmtp.DialSub(t.Context(), s.Events); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	// Events are lost until the subscription has arrived there.
	for n := uint32(1); ; n++ {
		complete(t, s, unique(n), 1, "")
		seq, payload, err := f.receive(time.Second)
		if errors.Is(err, os.ErrDeadlineExceeded) && n < 20 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if seq > 0 {
			f.replay(s.Replay, seq)
		}
		f.apply(seq, payload)
		return f
	}
}

// unique returns a prompt of two blocks that nobody else has.
func unique(n uint32) []uint32 {
	out := make([]uint32, 2*blockSize)
	for i := range out {
		out[i] = 150000 - n
	}
	return out
}

// receive waits for a message.
func (f *follower) receive(within time.Duration) (seq uint64, payload []byte, err error) {
	f.conn.SetDeadline(time.Now().Add(within))
	if f.msg, err = f.conn.Recv(f.msg); err != nil {
		return 0, nil, err
	}
	topic, seq, payload, err := kv.ParseMessage(f.msg)
	if err == nil && topic != "" {
		err = fmt.Errorf("topic %q, want none", topic)
	}
	return seq, payload, err
}

// apply takes a message in, which has to be the next.
func (f *follower) apply(seq uint64, payload []byte) {
	f.t.Helper()
	if seq != f.next {
		f.t.Fatalf("message %d came, want %d", seq, f.next)
	}
	f.next++
	b, err := f.dec.Decode(seq, payload)
	if err != nil {
		f.t.Fatalf("message %d: %v in %x", seq, err, payload)
	}
	if b.Source != f.from {
		f.t.Fatalf("message %d is of %v, want %v", seq, b.Source, f.from)
	}
	for _, ev := range b.Events {
		f.kinds[ev.Kind]++
	}
	f.index.Apply(b)
}

// replay asks an address for all that was said since and takes in what comes before the
// message end.
func (f *follower) replay(addr string, end uint64) {
	f.t.Helper()
	conn, err := zmtp.DialDealer(f.t.Context(), addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, f.next)); err != nil {
		f.t.Fatal(err)
	}
	var msg zmtp.Message
	for {
		if msg, err = conn.Recv(msg); err != nil {
			f.t.Fatal(err)
		}
		seq, payload, last, err := kv.ParseReplay(msg)
		if err != nil {
			f.t.Fatal(err)
		}
		if last {
			break
		}
		if seq < end {
			f.apply(seq, payload)
		}
	}
	if end != math.MaxUint64 && f.next != end {
		f.t.Fatalf("replay ended before message %d, want %d", f.next, end)
	}
}

// held returns how many blocks of a prompt the server has, as far as it has told.
func (f *follower) held(prompt []uint32, salt string) int {
	for _, o := range f.index.Match(nil, kv.AppendBlocks(nil, kv.HashSeed("", salt), prompt, blockSize)) {
		return int(o.Depth[kv.Device])
	}
	return 0
}

// await takes messages in until the server has told of all full blocks of a prompt.
func (f *follower) await(prompt []uint32, salt string) {
	f.t.Helper()
	for f.held(prompt, salt) < len(prompt)/blockSize {
		seq, payload, err := f.receive(patience)
		if err != nil {
			f.t.Fatalf("of a prompt of %d tokens %d blocks are told of: %v", len(prompt), f.held(prompt, salt), err)
		}
		f.apply(seq, payload)
	}
}

// check fails the test if anything was not understood.
func (f *follower) check() {
	f.t.Helper()
	for reason, n := range f.dec.Skipped() {
		if n > 0 {
			f.t.Errorf("%d events are skipped: %v", n, kv.Reason(reason))
		}
	}
	stats := f.index.Stats()
	for kind, ends := range stats.Applied {
		for end, n := range ends {
			if kvindex.Status(end) != kvindex.OK && n > 0 {
				f.t.Errorf("%d events %v ended with status %d", n, kv.Kind(kind), end)
			}
		}
	}
	if stats.Orphans != 0 {
		f.t.Errorf("%d blocks have no parent", stats.Orphans)
	}
}
