package frontend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

const (
	// streamBuffer is what a stream holds while it waits; most events are far
	// smaller.
	streamBuffer = 4 << 10
	// maxEvent is the largest event that is relayed.
	maxEvent = 16 << 20
	// afterDone is how long an engine may take to end a stream after [DONE].
	afterDone = 100 * time.Millisecond
)

var streamBuffers = sync.Pool{New: func() any { b := make([]byte, streamBuffer); return &b }}

// stream is the state of one relayed stream.
type stream struct {
	*call
	body     io.Reader
	scan     *openai.Scanner
	info     openai.ChunkInfo
	out      *http.ResponseController
	want     int        // choices that have to finish
	finished int        // choices that have
	extended bool       // our nvext is on its way, or not wanted
	hidden   bool       // the client did not ask for the usage
	held     *heldChunk // nil for none
	id       string     // of the answer, while our nvext may need it
	failed   bool       // the engine reported an error inside the stream
	done     bool       // [DONE] was seen
}

// relayStream copies an event stream to the client. Nothing is written before
// the first event, so that what fails earlier gets a proper status.
func (c *call) relayStream(resp *engine.Response) error {
	buf := streamBuffers.Get().(*[]byte)
	st := &stream{
		call:     c,
		body:     resp.Body,
		scan:     openai.NewScanner(*buf, maxEvent),
		out:      http.NewResponseController(c.w),
		want:     c.choices(),
		extended: !c.wantsExt(),
		hidden:   c.wishes.Usage && !resp.UsageUnasked,
	}
	err := st.run(resp)
	if b := st.scan.Buffer(); len(b) == streamBuffer {
		*buf = b
		streamBuffers.Put(buf)
	}
	return err
}

// run relays batch by batch: what one read brought is one write.
func (st *stream) run(resp *engine.Response) error {
	for !st.done {
		st.armIdle()
		err := st.scan.Fill(st.body)
		st.idle.Stop() // a client that reads slowly is not the engine's fault
		ev, ok := st.scan.Next()
		if err == io.EOF {
			ev, ok = st.last()
		}
		if err != nil && !ok {
			return st.end(err)
		}
		if !ok {
			continue
		}
		now := time.Now()
		st.limitWrite(st.out, now)
		if !st.committed {
			if err := st.begin(resp, &ev); err != nil {
				return err
			}
		}
		for ; ok; ev, ok = st.scan.Next() {
			switch err := st.relay(now, &ev); err {
			case nil:
			case errNotJSON:
				return st.end(err)
			default:
				return st.gone(err)
			}
		}
		if err := st.out.Flush(); err != nil {
			return st.gone(err)
		}
		st.unlimitWrite(st.out)
	}
	return st.end(nil)
}

// last returns what came after the last blank line, if it is an event and not the
// beginning of one.
func (st *stream) last() (openai.Event, bool) {
	ev, ok := st.scan.Last()
	if ok && !ev.IsDone() && openai.ParseChunk(ev.Data, &st.info) != nil {
		return openai.Event{}, false
	}
	return ev, ok
}

// limitWrite gives the client some time to take what is written next.
func (c *call) limitWrite(out *http.ResponseController, now time.Time) {
	_ = out.SetWriteDeadline(now.Add(c.cfg.Limits.Write))
}

// unlimitWrite ends that time. In HTTP/1 a deadline matters only to a write; in
// HTTP/2 it would end the stream while the engine is thinking.
func (c *call) unlimitWrite(out *http.ResponseController) {
	if c.r.ProtoMajor > 1 {
		_ = out.SetWriteDeadline(time.Time{})
	}
}

// begin answers the client once the first event is there. An engine that starts
// with an error gets it across as a status instead.
func (st *stream) begin(resp *engine.Response, ev *openai.Event) error {
	switch err := openai.ParseChunk(ev.Data, &st.info); {
	case err == nil && st.info.Error != nil:
		return st.engineError(resp, bytes.Clone(ev.Data))
	case err != nil && len(ev.Data) > 0 && ev.Data[0] == '{':
		return st.nonsense(errNotJSON)
	}
	notes := st.annotations()
	st.releaseBody(resp)
	st.counted = true
	st.committed, st.status = true, http.StatusOK
	st.copyHeader(resp.Header)
	h := st.w.Header()
	h["Content-Type"] = eventStream
	h["Cache-Control"] = noCache
	st.w.WriteHeader(http.StatusOK)
	if len(notes) > 0 {
		st.w.Write(notes) // an error comes back with the next write
	}
	return nil
}

var (
	eventStream = []string{"text/event-stream"}
	noCache     = []string{"no-cache"}
)

// relay looks at one event and writes it. The error is that of the client's
// connection.
func (st *stream) relay(now time.Time, ev *openai.Event) error {
	switch {
	case len(ev.Data) == 0: // a comment may overtake what is held back
	case ev.IsDone():
		st.done, st.working = true, false
		if err := st.release(nil); err != nil {
			return err
		}
		if !st.extended {
			if err := st.writeExtra(); err != nil {
				return err
			}
		}
		if !st.failed {
			st.learned(now, learn.Completed)
		}
	case ev.Data[0] != '{':
		if err := st.release(nil); err != nil {
			return err
		}
	case openai.ParseChunk(ev.Data, &st.info) != nil:
		st.model.Metrics.EngineError(metrics.EngineProtocol)
		if err := st.release(nil); err != nil {
			return err
		}
		if st.finished < st.want {
			return errNotJSON // what is in it is lost, and the client would stumble over it
		}
	default:
		return st.relayChunk(now, ev)
	}
	_, err := st.w.Write(ev.Raw)
	return err
}

// relayChunk is relay for a chunk, which st.info is about.
func (st *stream) relayChunk(now time.Time, ev *openai.Event) error {
	used := st.hidden && st.info.Usage != nil
	extra := used && st.info.NoChoices && st.info.Error == nil
	if !extra {
		if err := st.release(nil); err != nil {
			return err
		}
	}
	st.account(now, &st.info)
	if st.info.Finished > 0 {
		st.finished += st.info.Finished
		st.row.finished(ev.Data)
	}
	if st.info.Error != nil {
		st.failed, st.extended = true, true
	}
	if !st.extended {
		st.id = string(st.info.ID)
	}
	extend := !st.extended && st.finished >= st.want
	switch {
	case extra:
		return st.dissolve(ev, extend)
	case st.hidden && st.info.Finished > 0:
		st.held = &heldChunk{ev: ev.Clone(), used: used, extend: extend}
		return nil
	case used:
		return st.rewrite(ev, hideUsage, extend)
	default:
		return st.rewrite(ev, nil, extend)
	}
}

// account counts the tokens of a chunk.
func (c *call) account(now time.Time, info *openai.ChunkInfo) {
	if n := info.Tokens(); n > 0 {
		if c.first.IsZero() {
			c.first = now
			c.placement.FirstToken()
		}
		c.last = now
		c.tokens += n
		c.rec.Tokens(now, n)
		c.placement.Output(n)
	}
	c.correct(info.Usage)
	c.tiers(info.Tiers)
}

// correct replaces what was counted by what the engine says.
func (c *call) correct(u *openai.Usage) {
	if !c.usable(u) {
		return
	}
	c.counted = true
	c.row.usage(u)
	c.promptTokens, c.engineTokens = int(u.Prompt), int(u.Prompt)
	c.rec.Prompt(c.promptTokens)
	c.efficiency(u)
	if u.HasCached {
		c.rec.Cached(int(u.Cached))
	}
	if u.HasCached && u.Cached <= u.Prompt && !c.several {
		c.placement.Usage(c.engineTokens, int(u.Cached))
	}
	if delta := int(u.Completion) - c.tokens; delta != 0 {
		c.tokens += delta
		c.rec.CorrectTokens(delta)
		c.placement.Output(delta)
	}
}

// answered says that the answer is complete: what the engine has not told by now of
// its cache, it does not tell. Nor does it tell of each of several prompts.
func (c *call) answered() { c.placement.Usage(c.engineTokens, -1) }

// absurd is a number of tokens that no context holds.
const absurd = 1 << 31

// usable reports whether u is there and not absurd: more than any context holds
// would spoil the counters for good.
func (c *call) usable(u *openai.Usage) bool {
	return u != nil && u.Prompt < absurd && u.Completion < absurd
}

// end settles a stream that is over: after [DONE] when err is nil, else after
// the engine stopped sending.
func (st *stream) end(err error) error {
	if err == nil {
		// Reading to the end lets the connection be used again.
		st.idle.Reset(afterDone)
		_, _ = io.CopyN(io.Discard, st.body, 1)
		return st.settle()
	}
	if !st.committed {
		return st.readError(err)
	}
	if err == io.EOF && (st.finished >= st.want || st.failed) {
		if !st.failed {
			st.learned(time.Now(), learn.Completed)
		}
		if err := st.say(openai.Done); err != nil {
			return st.gone(err)
		}
		return st.settle()
	}
	var e *openai.Error
	if failure := engine.FailureOf(st.ctx, err); failure == engine.FailCancelled {
		st.placement.Done(router.Cancelled)
		if err := st.cancelled(); !errors.As(err, &e) {
			return err
		}
	} else {
		e = st.brokenOff(failure, err)
	}
	if err := st.say(e.AppendEvent(nil, st.cfg.ErrorFormat)); err != nil {
		return st.gone(err)
	}
	return e
}

// say writes the last words of a stream.
func (st *stream) say(b []byte) error {
	st.limitWrite(st.out, time.Now())
	if err := st.release(nil); err != nil {
		return err
	}
	if _, err := st.w.Write(b); err != nil {
		return err
	}
	return st.out.Flush()
}

// settle ends a stream that came to its proper end.
func (st *stream) settle() error {
	st.working = false
	if st.failed {
		st.placement.Done(router.Failed)
		st.row.failed(failError, 0)
		return &openai.Error{Code: openai.CodeEngineError, Message: "the engine reported an error inside the stream"}
	}
	st.answered()
	st.placement.Done(router.Completed)
	return nil
}

// gone settles a stream whose client does not take it any more.
func (st *stream) gone(err error) error {
	st.cancel(context.Canceled)
	st.placement.Done(router.Cancelled)
	return fmt.Errorf("%w: %w", errClientGone, err)
}

// brokenOff records that the engine stopped in the middle and returns what the
// client is told.
func (c *call) brokenOff(failure engine.Failure, err error) *openai.Error {
	c.placement.Done(router.Broken)
	if failure == engine.FailTimeout {
		c.row.failed(failTimeout, 0)
		c.model.Metrics.EngineError(metrics.EngineTimeout)
		return &openai.Error{Code: openai.CodeEngineTimeout, Err: err,
			Message: "the engine sent nothing for " + c.cfg.Limits.EngineIdle.String()}
	}
	c.working = false // there is no connection to what it did
	c.row.failed(failBroken, 0)
	c.model.Metrics.EngineError(metrics.EngineStream)
	msg := "the engine ended the answer before it was complete"
	if errors.Is(err, errNotJSON) {
		msg = "the engine sent an event that is not JSON"
	}
	if errors.Is(err, openai.ErrEventTooLarge) {
		msg = "the engine sent an event larger than " + strconv.Itoa(maxEvent) + " bytes"
	}
	return &openai.Error{Code: openai.CodeEngineError, Err: err, Message: msg}
}

// readError settles an answer that broke before its first byte was passed on.
func (c *call) readError(err error) error {
	failure := engine.FailureOf(c.ctx, err)
	if failure == engine.FailCancelled {
		c.placement.Done(router.Cancelled)
		return c.cancelled()
	}
	return c.brokenOff(failure, err)
}

// choices returns how many choices have to finish before the answer is complete.
func (c *call) choices() int {
	n := int(min(c.req.N, 1<<20))
	if c.endpoint == openai.Completions {
		n *= len(c.req.Batch())
	}
	return n
}

// writeExtra writes a chunk of its own for our nvext, for engines that never say
// that a choice has finished.
func (st *stream) writeExtra() error {
	st.extended = true
	id, _ := openai.Value(`"` + st.id + `"`).Text() // it was kept as it stood between its quotes
	chunk := openai.Chunk{
		ID:      id,
		Model:   st.model.ID,
		Created: st.received.Unix(),
		NVExt:   st.response(time.Now()).AppendJSON(nil),
	}
	_, err := st.w.Write(openai.AppendData(nil, appendChunk(st.endpoint, nil, &chunk)))
	return err
}

func appendChunk(ep openai.Endpoint, dst []byte, c *openai.Chunk) []byte {
	if ep == openai.Completions {
		return openai.AppendCompletion(dst, c)
	}
	return openai.AppendChatChunk(dst, c)
}
