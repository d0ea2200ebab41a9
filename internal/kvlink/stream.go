package kvlink

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
	"github.com/stator-ai/stator/internal/zmtp"
)

const (
	// dialTimeout bounds a connection with its handshake.
	dialTimeout = 10 * time.Second
	// confirmAfter is by when a publisher knows of a subscription.
	confirmAfter = time.Second
)

// stream follows one event socket.
type stream struct {
	links  *Links
	worker *worker
	spec   engine.EventStream
	src    kv.Source // of what goes through the hub; batches may name another rank
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	batches, bytes, malformed atomic.Uint64 // of run
	lag                       atomic.Int64
	last                      atomic.Int64 // when the last batch arrived, in nanoseconds; 0 if none did
	timed                     atomic.Bool  // lag means something
	zero                      atomic.Bool  // a batch has had the number 0, so that the engine does not begin at 1

	decoder           *kv.Decoder // used when a batch is applied
	learned           learned     // the same
	events, misplaced atomic.Uint64

	// mu is worker.mu's to guard.
	mu struct {
		conn     Conn // nil when there is none
		epoch    uint64
		feed     kvfeed.State
		doubt    bool // batches may be missing, and none came since that would show it
		mark     mark
		lives    uint64   // restarts seen in the numbers
		ranks    []uint32 // that it tells of
		connects uint64
		failures uint64
		err      error
		stray    error // why nothing of what it says can be used; nil if something can
		// alias is what the engine calls spec.Rank, if aliased: a rank that the worker
		// does not have.
		alias   uint32
		aliased bool
		// As of the last call of noticed.
		seenConnects, seenLives uint64
	}
}

// mark names the last batch that was applied.
type mark struct {
	applied    bool // there is one
	epoch, seq uint64
	whole      bool   // it could be read
	sum        uint64 // of its payload, which has a time and so is like no other
}

func newStream(l *Links, w *worker, spec engine.EventStream) *stream {
	s := &stream{links: l, worker: w, spec: spec, src: kv.Source{Worker: w.id, Rank: spec.Rank}}
	s.decoder = kv.NewDecoder(kv.DecoderConfig{
		Source:    kv.Source{Worker: w.id, Rank: spec.First + spec.Rank}, // as the engine would call it
		BlockSize: spec.BlockSize, Counted: spec.Counted,
	})
	s.ctx, s.cancel = context.WithCancel(l.ctx)
	return s
}

func (s *stream) recoverable() bool { return s.spec.Replay != "" }

// run keeps a connection until the stream ends.
func (s *stream) run() {
	wait := newBackoff(s.links.cfg.Seed, s.src)
	for failing := false; ; {
		ok, err := s.listen()
		if s.ctx.Err() != nil {
			return
		}
		s.disconnected(err)
		if ok {
			wait.reset()
		} else if !failing {
			s.links.cfg.Log.LogAttrs(s.ctx, slog.LevelWarn, "kv events: no connection",
				slog.Uint64("worker", uint64(s.src.Worker)), slog.Uint64("rank", uint64(s.src.Rank)),
				slog.String("address", s.spec.Address), slog.Any("err", err))
		}
		failing = !ok
		if !wait.sleep(s.ctx) {
			return
		}
	}
}

// listen connects and reads until the connection ends. It reports whether there was
// one.
func (s *stream) listen() (ok bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTimeout)
	defer cancel()
	var topics []string
	if s.spec.Topic != "" {
		topics = []string{s.spec.Topic}
	}
	c, err := s.links.cfg.Dial(ctx, s.spec.Address, topics...)
	if err != nil {
		return false, err
	}
	defer c.Close()
	defer context.AfterFunc(s.ctx, func() { c.Close() })()
	before := s.batches.Load()
	epoch, first := s.connected(c)
	if first {
		err = s.links.hub.Add(s.src, kvfeed.Options{Ordered: true, Recoverable: s.recoverable()})
	} else {
		err = s.links.hub.Resync(s.src, epoch)
	}
	if err != nil {
		return true, err
	}
	if s.recoverable() {
		reading, stop := context.WithCancel(s.ctx)
		defer stop()
		s.wg.Go(func() { s.confirm(reading, epoch, before) })
	}
	for m := (zmtp.Message)(nil); ; {
		if m, err = c.Recv(m); err != nil {
			return true, err
		}
		if err = s.arrived(epoch, m); err != nil {
			return true, err
		}
	}
}

// confirm asks once more, a while after a connection was made, whether there is
// something that did not arrive. A publisher does not say when it has begun to send to a
// subscriber: what it publishes before that, but after the past was asked for, is lost,
// and nothing shows it until the next batch. before is how many had arrived before the
// connection.
func (s *stream) confirm(ctx context.Context, epoch, before uint64) {
	tick := time.NewTicker(confirmAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.worker.mu.Lock()
		mark, asking := s.mu.mark, s.mu.feed == kvfeed.Syncing
		s.worker.mu.Unlock()
		if s.batches.Load() != before {
			return
		}
		if asking {
			continue
		}
		from := uint64(0)
		if mark.applied && mark.epoch == epoch {
			from = mark.seq + 1
		}
		missing := false
		_, err := s.links.fetch(ctx, s.spec.Replay, from, func(uint64, []byte) bool {
			missing = true
			return false
		})
		if err == nil && missing && s.batches.Load() == before {
			// It fails only when the stream is to end.
			_ = s.links.hub.Resync(s.src, epoch)
		}
		return
	}
}

// arrived takes a message in. It returns an error when the stream is to end.
func (s *stream) arrived(epoch uint64, m zmtp.Message) error {
	_, seq, payload, err := kv.ParseMessage(m)
	if err != nil {
		s.malformed.Add(1)
		return nil
	}
	now := s.links.cfg.Now()
	s.batches.Add(1)
	s.bytes.Add(uint64(len(payload)))
	s.last.Store(now.UnixNano())
	s.numbered(seq)
	head, err := kv.Peek(payload)
	if err != nil {
		s.malformed.Add(1)
		return s.links.hub.Lost(s.src, epoch, seq)
	}
	if at := head.Time; at > 0 && at < math.MaxInt32 {
		s.lag.Store(int64(now.Sub(time.Unix(0, int64(at*1e9)))))
		s.timed.Store(true)
	}
	err = s.links.hub.Apply(undecoded(s.src, epoch, seq, payload, head))
	if errors.Is(err, kvfeed.ErrFull) {
		return nil // the feed sees that it is missing
	}
	return err
}

// numbered notes the number of a batch.
func (s *stream) numbered(seq uint64) {
	if seq == 0 {
		s.zero.Store(true)
	}
}

// undecoded makes a batch of a copy of a payload.
func undecoded(src kv.Source, epoch, seq uint64, payload []byte, head kv.Head) *kv.Batch {
	b := &kv.Batch{Source: src, Epoch: epoch, Seq: seq, Payload: bytes.Clone(payload)}
	if head.Clears {
		b.Events = []kv.Event{{Kind: kv.Cleared}}
	}
	return b
}

// connected notes a connection. It returns the epoch of what comes on it, and whether
// it is the first.
func (s *stream) connected(c Conn) (epoch uint64, first bool) {
	w := s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	first = s.mu.connects == 0
	s.mu.conn, s.mu.err = c, nil
	s.mu.connects++
	if s.recoverable() {
		s.mu.feed = kvfeed.Syncing // as it will be at once
	} else {
		s.mu.doubt = !first
	}
	w.refreshLocked()
	return s.mu.epoch, first
}

// disconnected notes that there is no connection, and why.
func (s *stream) disconnected(err error) {
	w := s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	s.mu.conn, s.mu.err = nil, err
	s.mu.failures++
	w.refreshLocked()
}

// renew begins a new epoch, on a new connection.
func (s *stream) renew() {
	w := s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	s.renewLocked()
}

func (s *stream) renewLocked() {
	s.mu.epoch++
	if s.mu.conn != nil {
		s.mu.conn.Close()
	}
}

// noticed reports whether a restart of the engine since the last call was, or will be,
// found out without being told. A source that can be asked is asked on each connection,
// and one made since then, or still to be made, is to the new life. Otherwise the
// numbers must have shown it.
func (s *stream) noticed() bool {
	w := s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	noticed := s.mu.lives != s.mu.seenLives
	if s.recoverable() {
		noticed = s.mu.connects != s.mu.seenConnects || s.mu.conn == nil
	}
	s.mu.seenConnects, s.mu.seenLives = s.mu.connects, s.mu.lives
	return noticed
}

// stateLocked returns how the stream stands.
func (s *stream) stateLocked() State {
	st := stateOf(s.mu.feed)
	switch {
	case s.mu.conn == nil:
		return Dialing
	case s.mu.stray != nil && st != Syncing:
		return Silent
	case s.mu.doubt && st == Live:
		return Dirty
	}
	return st
}

func (s *stream) lastError() error {
	s.worker.mu.Lock()
	defer s.worker.mu.Unlock()
	return s.errorLocked()
}

// errorLocked returns what is wrong with the stream.
func (s *stream) errorLocked() error {
	if s.mu.err != nil {
		return s.mu.err
	}
	return s.mu.stray
}

func (s *stream) statsLocked() Stats {
	st := Stats{
		Source: s.src, Address: s.spec.Address, Replay: s.spec.Replay, Ranks: slices.Clone(s.mu.ranks),
		State: s.stateLocked(), Connected: s.mu.conn != nil,
		Connects: s.mu.connects, Failures: s.mu.failures, LastError: s.errorLocked(),
		Batches: s.batches.Load(), Events: s.events.Load(), Bytes: s.bytes.Load(),
		Malformed: s.malformed.Load(), Misplaced: s.misplaced.Load(), Skipped: s.decoder.Skipped(),
		Lag: time.Duration(s.lag.Load()), Timed: s.timed.Load(),
		BlockSize: s.decoder.BlockSize(), Mismatch: s.decoder.Mismatch(),
		Eagle: s.decoder.Eagle(), ExtraKeys: s.decoder.TellsExtraKeys(), SaltsForgotten: s.decoder.SaltsForgotten(),
	}
	if at := s.last.Load(); at != 0 {
		st.LastBatch = time.Unix(0, at)
	}
	return st
}

// backoff is the time between attempts: longer each time, and up to half of it left
// to chance.
type backoff struct {
	rng  *rand.Rand
	next time.Duration
}

const (
	shortestWait = 100 * time.Millisecond
	longestWait  = 5 * time.Second
)

func newBackoff(seed uint64, src kv.Source) *backoff {
	rng := rand.New(rand.NewPCG(seed, uint64(src.Worker)^uint64(src.Rank)<<53))
	return &backoff{rng: rng, next: shortestWait}
}

func (b *backoff) reset() { b.next = shortestWait }

// sleep waits, and reports false if ctx ended.
func (b *backoff) sleep(ctx context.Context) bool {
	d := b.next/2 + time.Duration(b.rng.Int64N(int64(b.next/2)))
	b.next = min(2*b.next, longestWait)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
