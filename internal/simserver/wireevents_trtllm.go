package simserver

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/simengine"
)

// longestPoll is how long TensorRT-LLM has a poll wait for events.
const longestPoll = 2 * time.Second

// eventQueue is the events of all ranks of a TensorRT-LLM engine that nobody has asked
// for yet, as JSON objects. When it is full the oldest go.
type eventQueue struct {
	limit int

	mu struct {
		sync.Mutex
		events [][]byte
		more   chan struct{} // closed when there are events; nil if nobody waits
	}
}

func (q *eventQueue) push(events ...[]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.events = append(q.mu.events, events...)
	if over := len(q.mu.events) - q.limit; over > 0 {
		q.mu.events = q.mu.events[over:]
	}
	if q.mu.more != nil {
		close(q.mu.more)
		q.mu.more = nil
	}
}

// take returns all events and leaves none. If there are none it waits for some, until
// the time is over or ctx or life ends.
func (q *eventQueue) take(ctx context.Context, life <-chan struct{}) [][]byte {
	timer := time.NewTimer(longestPoll)
	defer timer.Stop()
	for {
		q.mu.Lock()
		events := q.mu.events
		if len(events) > 0 {
			q.mu.events = nil
			q.mu.Unlock()
			return events
		}
		if q.mu.more == nil {
			q.mu.more = make(chan struct{})
		}
		more := q.mu.more
		q.mu.Unlock()
		select {
		case <-more:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-life:
			return nil
		}
	}
}

func (q *eventQueue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.events = nil
}

// queueStream tells of a rank as TensorRT-LLM does: of each block once, however many
// requests computed it.
type queueStream struct {
	set  *publisher
	rank int

	mu struct {
		sync.Mutex
		names *names
		id    uint64 // of the next event
		out   [][]byte
	}
}

func newQueueStream(set *publisher, rank int) *queueStream {
	s := &queueStream{set: set, rank: rank}
	s.restart()
	return s
}

func (s *queueStream) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.names, s.mu.id = s.set.newNames(), 0
	s.event(fmt.Appendf(nil, `"created","num_blocks_per_cache_level":[%d,0]`, s.set.server.TotalBlocks))
	s.flush()
}

// event adds an event, of which the data from the value of its type on is given.
func (s *queueStream) event(data []byte) {
	b := fmt.Appendf(nil, `{"event_id":%d,"data":{"type":`, s.mu.id)
	b = append(b, data...)
	b = fmt.Appendf(b, `},"window_size":%d`, s.set.server.ContextLength)
	if s.set.server.Ranks > 1 {
		b = fmt.Appendf(b, `,"attention_dp_rank":%d`, s.rank)
	}
	s.mu.id++
	s.mu.out = append(s.mu.out, append(b, '}'))
}

func (s *queueStream) flush() {
	s.set.queue.push(s.mu.out...)
	s.mu.out = s.mu.out[:0]
}

func (s *queueStream) publish(p *simengine.Pass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Events {
		ev := &p.Events[i]
		switch ev.Kind {
		case kv.Stored:
			s.stored(ev, p.Origins[i])
		case kv.Removed:
			for _, b := range ev.Blocks {
				if name, _, last := s.mu.names.remove(b.ID); last {
					s.removed(name.Last())
				}
			}
		case kv.Cleared:
			var all []kv.BlockID
			for _, name := range s.mu.names.known {
				all = append(all, name.digest.Last())
			}
			slices.Sort(all)
			s.removed(all...)
			clear(s.mu.names.known)
		}
	}
	s.flush()
}

func (s *queueStream) removed(hashes ...kv.BlockID) {
	b := append([]byte(nil), `"removed","block_hashes":[`...)
	for i, h := range hashes {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(h), 10)
	}
	s.event(append(b, ']'))
}

// stored tells of the blocks that were not there before, each stretch of them in an
// event of its own.
func (s *queueStream) stored(ev *kv.Event, from simengine.Origin) {
	told := s.mu.names.add(ev, from)
	size := told.blockSize
	for i := 0; i < len(ev.Blocks); {
		if s.mu.names.known[ev.Blocks[i].ID].copies > 1 {
			i++
			continue
		}
		b := append([]byte(nil), `"stored","parent_hash":`...)
		switch {
		case i > 0:
			b = strconv.AppendUint(b, uint64(told.hashes[i-1].Last()), 10)
		case told.hasParent:
			b = strconv.AppendUint(b, uint64(told.parent.Last()), 10)
		default:
			b = append(b, "null"...)
		}
		b = append(b, `,"blocks":[`...)
		for first := i; i < len(ev.Blocks) && s.mu.names.known[ev.Blocks[i].ID].copies == 1; i++ {
			if i > first {
				b = append(b, ',')
			}
			b = appendStoredBlock(b, told, i, told.tokens[i*size:(i+1)*size])
		}
		b = append(b, ']')
		if told.lora != "" {
			b = append(b, `,"lora_name":`...)
			b = openai.AppendString(b, told.lora)
		}
		s.event(b)
	}
}

func appendStoredBlock(b []byte, told *storedBlocks, i int, tokens []uint32) []byte {
	b = fmt.Appendf(b, `{"type":"stored_block","block_hash":%d,"tokens":[`, uint64(told.hashes[i].Last()))
	for k, t := range tokens {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"unique_token","token_id":`...)
		b = strconv.AppendUint(b, uint64(t), 10)
		b = append(b, `,"token_extra_id":0}`...)
	}
	b = append(b, `],"cache_level":0,"priority":35`...)
	if told.salt != "" {
		b = append(b, `,"cache_salt":`...)
		b = openai.AppendString(b, told.salt)
	}
	return append(b, '}')
}
