package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/kvlink"
	"github.com/stator-ai/stator/internal/zmtp"
)

// worker is what the engine is called in its index.
const worker kv.WorkerID = 1

// ear listens to what an engine says about its cache, into an index of its own.
type ear struct {
	index  *kvindex.Index
	links  *kvlink.Links
	polled bool
}

// listen begins to listen and waits until the sockets are connected. The past is not
// asked for, and the block size that the engine states not told to those who decode:
// both are judged by what is heard.
func (e *exam) listen(ctx context.Context) {
	poller, polled := e.engine.(engine.EventPoller)
	polled = polled && len(e.info.Streams) == 0
	if !polled && len(e.info.Streams) == 0 || polled && e.cfg.NoRequests {
		return
	}
	told := *e.info
	told.Streams = make([]engine.EventStream, len(e.info.Streams))
	for i, s := range e.info.Streams {
		s.Replay, s.BlockSize = "", 0
		told.Streams[i] = s
	}
	index := kvindex.New(kvindex.Config{})
	e.ear = &ear{index: index, polled: polled, links: kvlink.Open(kvlink.Config{Target: index, Now: time.Now, Seed: e.cfg.Seed})}
	if !polled {
		poller = nil
	}
	e.ear.links.Follow(worker, &told, poller, false)
	if !polled {
		wait(ctx, e.cfg.patience, func() bool {
			for _, s := range e.ear.links.Stats() {
				if !s.Connected && s.Failures < 3 {
					return false
				}
			}
			return true
		})
	}
}

func (r *ear) close() { r.links.Close() }

// batches returns how many were heard of all ranks.
func (e *exam) batches() (n uint64) {
	if e.ear == nil {
		return 0
	}
	for _, s := range e.ear.links.Stats() {
		n += s.Batches
	}
	return n
}

// heardSize returns the size of blocks in events, 0 if none told it.
func (e *exam) heardSize() int {
	if e.ear == nil {
		return 0
	}
	for _, s := range e.ear.links.Stats() {
		if s.BlockSize > 0 {
			return s.BlockSize
		}
	}
	return 0
}

// blockSize returns the size of blocks, by events, or else as it is stated or
// configured; 0 if nobody knows it.
func (e *exam) blockSize() int {
	for _, n := range []int{e.heardSize(), e.model.BlockSize, e.target.BlockSize} {
		if n > 0 {
			return n
		}
	}
	return 0
}

// await waits for events about a prompt, and reports whether there is nothing more to
// wait for.
func (e *exam) await(ctx context.Context, p *probe) bool {
	connected := false
	for _, s := range e.ear.links.Stats() {
		connected = connected || s.Source.Rank == p.rank && (s.Connected || e.ear.polled)
	}
	if !connected || p.ids == nil {
		if connected { // it can only be seen that there are some
			wait(ctx, e.cfg.patience/3, func() bool { return e.batches() > 0 })
		}
		return true
	}
	var asked time.Time
	return wait(ctx, e.cfg.patience/2, func() bool {
		if e.ear.polled && e.model.BlockSize == 0 && e.batches() > 0 && time.Since(asked) > 200*time.Millisecond {
			asked = time.Now()
			e.refresh(ctx) // which events have told
		}
		e.find(p)
		return p.want > 0 && p.found >= p.want
	})
}

// refresh asks TensorRT-LLM again what it is: it knows more once it has run something.
func (e *exam) refresh(ctx context.Context) {
	if e.info.Kind != engine.TRTLLM {
		return
	}
	info, err := e.base.Identify(ctx)
	if err != nil {
		return
	}
	for _, m := range info.Models {
		if m.ID == e.model.ID {
			e.model = m
		}
	}
}

// find looks the prompt up, as the router would.
func (e *exam) find(p *probe) {
	blocks := e.hash(p, "")
	p.want, p.found, p.elsewhere = len(blocks), 0, nil
	for _, o := range e.ear.index.Match(nil, blocks) {
		if o.Source.Rank == p.rank || e.probedRanks() < e.ranks {
			p.found = max(p.found, int(o.Depth[kv.Device]))
		} else {
			p.elsewhere = append(p.elsewhere, o.Source.Rank)
		}
	}
}

// hash returns the blocks of a prompt under a salt.
func (e *exam) hash(p *probe, salt string) []kv.Block {
	seed, size := kv.HashSeed("", salt), e.blockSize()
	for _, s := range e.ear.links.Stats() {
		if s.Eagle {
			return kv.AppendEagleBlocks(nil, seed, p.ids, size)
		}
	}
	return kv.AppendBlocks(nil, seed, p.ids, size)
}

// awaitSalted waits for events about a prompt that was sent with a salt.
func (e *exam) awaitSalted(ctx context.Context, p *probe) {
	if e.ear == nil || p.ids == nil || p.found == 0 {
		return
	}
	blocks := e.hash(p, e.salt)
	e.saltSeen = new(wait(ctx, e.cfg.patience/3, func() bool { return len(e.ear.index.Match(nil, blocks)) > 0 }))
}

// lossy reports whether batches were lost.
func (e *exam) lossy() bool {
	if len(e.lost) > 0 {
		return true
	}
	return e.ear != nil && slices.ContainsFunc(e.ear.links.Stats(), func(l kvlink.Stats) bool { return l.Feed.Gaps > 0 })
}

// askReplay asks a replay socket for the batches from a number on. It returns the
// number after the last, from if there are none.
func askReplay(ctx context.Context, addr string, from uint64, patience time.Duration) (next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := zmtp.DialDealer(ctx, addr)
	if err != nil {
		return from, err
	}
	defer c.Close()
	if d, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(d); err != nil {
			return from, err
		}
	}
	if err := c.Send(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return from, err
	}
	next = from
	for m := (zmtp.Message)(nil); ; {
		if m, err = c.Recv(m); err != nil {
			return next, fmt.Errorf("no answer: %w", err)
		}
		seq, _, end, err := kv.ParseReplay(m)
		switch {
		case err != nil:
			return next, err
		case end:
			return next, nil
		}
		next = max(next, seq+1)
	}
}

// unheard is a number that no engine gets to.
const unheard = math.MaxInt64
