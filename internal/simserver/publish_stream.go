package simserver

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/zmtp"
)

// rankEvents is what one rank tells of its cache. Its methods may be called
// concurrently.
type rankEvents interface {
	// publish tells the events of a pass, which it does not keep. It never waits for
	// whoever listens.
	publish(*simengine.Pass)
	// restart begins a new life: the cache is empty, and nothing was told.
	restart()
}

// zmqStream publishes on a socket, and keeps what it published for those who missed
// it.
type zmqStream struct {
	set    *publisher
	rank   int
	socket atomic.Pointer[zmtp.Publisher] // nil while there is none

	mu struct {
		sync.Mutex
		names *names
		batch wireBatch
		seq   uint64   // of the next batch
		ring  [][]byte // the latest payloads, number n at n modulo its length once full
	}
}

func newZMQStream(set *publisher, rank int) *zmqStream {
	s := &zmqStream{set: set, rank: rank}
	s.begin()
	return s
}

// begin makes everything as it is at the start.
func (s *zmqStream) begin() {
	s.mu.names = s.set.newNames()
	s.mu.seq, s.mu.ring = 0, nil
}

func (s *zmqStream) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
}

// publish implements rankEvents. Names are made and events written here, a matter of
// microseconds; sending is up to the socket.
func (s *zmqStream) publish(p *simengine.Pass) {
	if len(p.Events) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := s.set.faults.Load()
	b, l := &s.mu.batch, s.set.layout
	l.bytes = l.bytes || faults.ByteHashes
	b.reset(l)
	if l.kind == simengine.SGLang && s.mu.seq == 0 {
		b.cleared() // SGLang says so when it makes its tree
	}
	for i := range p.Events {
		ev := &p.Events[i]
		switch ev.Kind {
		case kv.Stored:
			s.stored(b, ev, p.Origins[i], faults)
		case kv.Removed:
			for _, block := range ev.Blocks {
				s.removed(b, block.ID, faults)
			}
		case kv.Cleared:
			clear(s.mu.names.known)
			b.cleared()
		}
	}
	s.send(b.payload(unixSeconds(time.Now()), s.rank), faults)
}

func (s *zmqStream) stored(b *wireBatch, ev *kv.Event, from simengine.Origin, faults *EventFaults) {
	told := s.mu.names.add(ev, from)
	if faults.BlockSize > 0 {
		told.blockSize = faults.BlockSize
	}
	b.stored(told)
	if faults.DuplicateStores {
		b.stored(told)
		if b.kind == simengine.VLLM { // of which every copy is removed
			s.mu.names.spare(ev.Blocks)
		}
	}
	if faults.GroupEvents && b.hasGroups() {
		told.group = sideGroup
		b.stored(told)
	}
}

func (s *zmqStream) removed(b *wireBatch, id kv.BlockID, faults *EventFaults) {
	name, copies, _ := s.mu.names.remove(id)
	for range copies {
		b.removed(name, mainGroup)
	}
	if faults.GroupEvents && b.hasGroups() {
		b.removed(name, sideGroup)
	}
}

// send gives a payload its number, keeps it and hands it to the socket.
func (s *zmqStream) send(payload []byte, faults *EventFaults) {
	seq := s.mu.seq
	s.mu.seq++
	if size := s.set.cfg.Buffer; len(s.mu.ring) < size {
		s.mu.ring = append(s.mu.ring, payload)
	} else {
		s.mu.ring[seq%uint64(size)] = payload
	}
	if k := faults.DropEvery; k > 0 && (seq+1)%uint64(k) == 0 {
		return
	}
	if socket := s.socket.Load(); socket != nil {
		socket.Publish([]byte(s.set.cfg.Topic), binary.BigEndian.AppendUint64(nil, seq), payload)
	}
}

// since returns the payloads that are still there from a number on, and the number of
// the first of them.
func (s *zmqStream) since(from uint64) (first uint64, payloads [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := len(s.mu.ring)
	if f := s.set.faults.Load(); f.ReplayTruncated {
		kept = min(kept, max(f.ReplayKeep, 0))
	}
	first = max(from, s.mu.seq-uint64(kept))
	for i := first; i < s.mu.seq; i++ {
		payloads = append(payloads, s.mu.ring[i%uint64(len(s.mu.ring))])
	}
	return first, payloads
}

// replay answers a request for what was published: an empty frame, and the number of
// the first batch wanted.
func (s *zmqStream) replay(p *zmtp.Peer, m zmtp.Message) {
	if len(m) != 2 || len(m[0]) != 0 || len(m[1]) != 8 || s.set.faults.Load().NoReplay {
		return
	}
	answer := func(topic string, seq, payload []byte) error {
		if s.set.layout.topics {
			return p.Send(nil, []byte(topic), seq, payload)
		}
		return p.Send(nil, seq, payload)
	}
	first, payloads := s.since(binary.BigEndian.Uint64(m[1]))
	for i, payload := range payloads {
		if answer(s.set.cfg.Topic, binary.BigEndian.AppendUint64(nil, first+uint64(i)), payload) != nil {
			return
		}
	}
	answer("", endOfReplay, nil)
}

// unixSeconds returns a time as engines write it.
func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
