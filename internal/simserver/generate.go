package simserver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

func (s *Server) serveChat(w http.ResponseWriter, r *http.Request) { s.generate(w, r, true) }

func (s *Server) serveCompletion(w http.ResponseWriter, r *http.Request) { s.generate(w, r, false) }

// errClosed means that the server was closed under a request.
var errClosed = errors.New("the engine is shut down")

// generate answers a chat or completion request.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, chat bool) {
	arrived := time.Now()
	fault, over := s.strike(w)
	if over {
		return
	}
	sc := newScratch()
	defer sc.free()
	if bad := s.parseRequest(sc, w, r, chat); bad != nil {
		s.fail(w, bad)
		return
	}
	sc.parsed()
	a, req := &sc.answer, &sc.req
	a.init(s, req, w, arrived)
	ctx := r.Context()
	a.fault, a.gone = fault, ctx.Done()
	if s.cfg.Dress != Plain {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		aborted := make(chan struct{})
		a.aborted, a.abort = aborted, sync.OnceFunc(func() { close(aborted); cancel() })
	}
	rank := s.begin(req.rank, a)
	if rank == nil {
		s.fail(w, &apiError{status: http.StatusServiceUnavailable, message: errClosed.Error()})
		return
	}
	defer s.end(rank, a)
	if s.cfg.Engine == nil {
		a.pacer = pacer{closed: s.life.Done(), start: arrived, ttft: s.cfg.TTFT, itl: s.cfg.ITL}
		defer a.pacer.stop()
		defer rank.account(a)
		a.tempo = &a.pacer
	} else {
		a.job = newJob(rank, req, a.choices)
		rank.submit(a.job)
		defer a.job.rank.withdraw(a.job)
		a.tempo = a.job
	}
	a.usage.HasCached = s.tellsCached()
	for i := range a.choices {
		a.choices[i].open()
	}
	if fault.Kind != "" && fault.After == 0 && fault.Kind != FaultGarble && !a.spoilWhole(w) {
		return
	}
	if req.stream {
		a.stream(ctx, w)
	} else {
		a.unary(ctx, w)
	}
	if r.Context().Err() != nil && a.job != nil && !a.complete {
		a.linger()
	}
}

// tellsCached reports whether the usage of an answer says how much was cached.
func (s *Server) tellsCached() bool {
	if _, off := s.faults.on(FaultNoCached); off {
		return false
	}
	return s.cfg.Engine != nil || s.face.traits().alwaysCached
}

// linger goes on with a request whose client has gone, until the engine would notice.
func (a *answer) linger() {
	t := a.server.face.traits()
	notice := t.noticeUnary
	if a.req.stream {
		notice = t.noticeStream
	}
	if notice == 0 {
		return
	}
	timer := time.NewTimer(notice)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-a.server.life.Done():
			return
		case <-a.aborted:
			return
		case <-a.job.bell:
			if t.nextToken || a.job.over() {
				return
			}
		}
	}
}

// answer is a response on its way.
type answer struct {
	server   *Server
	req      *request
	out      http.ResponseController
	tempo    tempo
	pacer    pacer // the tempo without an engine model
	job      *job  // the tempo with one, else nil
	choices  []choice
	usage    openai.Usage
	complete bool            // every token was written
	fault    Fault           // that is to strike it; none if its kind is empty
	events   int             // sent
	gone     <-chan struct{} // closed when the client has gone
	aborted  <-chan struct{} // closed by abort; nil, like that, where nobody can
	abort    func()
	chunk    openai.Chunk // of the stream, reused
	one      [1]openai.Choice
	id       [1]uint32
	logprob  [1]openai.TokenLogprob
	text     []byte
	json     []byte
	event    []byte

	prev, next *answer // others that are being written; guarded by the server's mutex
}

// init begins the answer to req. It keeps the memory of the one before.
func (a *answer) init(s *Server, req *request, w http.ResponseWriter, now time.Time) {
	*a = answer{
		server:  s,
		req:     req,
		out:     *http.NewResponseController(w),
		choices: appendChoices(a.choices[:0], s, req),
		chunk:   openai.Chunk{ID: req.id, Model: req.model, Created: now.Unix()},
		text:    a.text[:0],
		json:    a.json[:0],
		event:   a.event[:0],
	}
	for i := range req.prompts {
		a.usage.Prompt += uint64(len(req.prompts[i].ids))
	}
}

// cut bounds what is left of the answer when the server is closed, because a
// client that does not read must not keep it waiting. A stream ends in any case;
// the others are still to get their refusal.
func (a *answer) cut() {
	grace := time.Second
	if a.req.stream {
		grace = 0
	}
	a.out.SetWriteDeadline(time.Now().Add(grace))
}

// stream sends one event per token, the choices taking turns. Tokens that are due
// together go out together.
func (a *answer) stream(ctx context.Context, w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = eventStream, noCache
	w.WriteHeader(http.StatusOK)
	if a.job != nil || a.server.cfg.TTFT > 0 {
		a.out.Flush() // the request is accepted; there is time to say so
	}
	for live := len(a.choices); live > 0; {
		if err := a.await(ctx, w); err != nil {
			a.breakOff(w, err)
			return
		}
		for again := true; again; {
			again = false
			for i := range a.choices {
				c := &a.choices[i]
				if c.done() || c.tokens >= a.tempo.due(i) {
					continue
				}
				again = true
				c.step()
				if c.done() {
					live--
				}
				a.count(c)
				a.tokenChunk(c)
				if !a.put(w, live == 0) {
					return
				}
			}
		}
		if a.job != nil {
			a.job.sent()
		}
		if a.out.Flush() != nil {
			return
		}
	}
	a.complete = true
	a.finish(w)
}

// put sends what the chunk holds, which is of the last token of all or not.
func (a *answer) put(w http.ResponseWriter, last bool) bool {
	if a.server.cfg.Dress != Plain {
		return a.putDressed(w, last)
	}
	return a.send(w, last && !a.req.includeUsage)
}

// finish sends what comes after the last token.
func (a *answer) finish(w http.ResponseWriter) {
	if a.req.includeUsage {
		a.chunk.Choices, a.chunk.Usage, a.chunk.PromptTokenIDs = nil, &a.usage, nil
		if !a.putUsage(w) || a.out.Flush() != nil {
			return
		}
	}
	w.Write(openai.Done) // goes out when the handler returns
}

// putUsage sends the chunk as that of the usage, with which a stream ends.
func (a *answer) putUsage(w http.ResponseWriter) bool {
	if a.server.cfg.Dress != Plain {
		return a.putDressedUsage(w)
	}
	return a.send(w, true /* last */)
}

// await waits for more tokens. Engines that do so show meanwhile that they are alive.
func (a *answer) await(ctx context.Context, w http.ResponseWriter) error {
	ping := a.server.face.traits().ping
	if ping == 0 {
		return a.tempo.more(ctx)
	}
	for {
		short, cancel := context.WithTimeout(ctx, ping)
		err := a.tempo.more(short)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if _, err := w.Write(comment); err != nil {
			return err
		}
		a.out.Flush()
	}
}

var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	noCache     = []string{"no-cache"}
	comment     = []byte(":\n\n")
)

// breakOff ends a stream whose tokens do not come.
func (a *answer) breakOff(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errClosed):
		panic(http.ErrAbortHandler)
	case errors.Is(err, errRejected):
		a.failStream(w, a.server.tooLarge(int(a.usage.Prompt)))
	case a.wasAborted():
		a.putAborted(w)
	}
}

// count adds the token that c has just written to the usage. What the first choice
// of a prompt found in the cache counts for the prompt.
func (a *answer) count(c *choice) {
	a.usage.Completion++
	if a.job != nil && c.tokens == 1 && c.index%a.req.n == 0 {
		a.usage.Cached += uint64(a.job.sequences[c.index].cached)
	}
}

// tokenChunk makes the chunk for the token that c has just written.
func (a *answer) tokenChunk(c *choice) {
	first := c.tokens == 1
	ch := &a.one[0]
	*ch = openai.Choice{
		Index:        c.index,
		Text:         c.out,
		Role:         first,
		FinishReason: c.finish,
		StopReason:   c.stopReason,
	}
	if len(c.out) == 0 && c.done() {
		ch.Text = nil
	}
	if a.req.logprobs {
		a.logprob[0] = c.logprob
		ch.Logprobs = a.logprob[:]
	}
	a.chunk.PromptTokenIDs = nil
	if a.req.returnIDs {
		a.id[0] = c.id
		ch.TokenIDs = a.id[:]
		if first {
			ch.PromptTokenIDs = c.prompt.ids
			if c.index == 0 {
				a.chunk.PromptTokenIDs = c.prompt.ids
			}
		}
	}
	if first && a.req.echo {
		a.echo(c, ch)
	}
	a.chunk.Choices = a.one[:]
	if a.req.continuousUsage {
		a.chunk.Usage = &a.usage
	}
}

// echo puts the prompt before what ch holds.
func (a *answer) echo(c *choice, ch *openai.Choice) {
	ch.Text = append(c.echo, ch.Text...)
	if a.req.returnIDs {
		ch.TokenIDs = append(append([]uint32(nil), c.prompt.ids...), ch.TokenIDs...)
	}
	if a.req.logprobs {
		all, chars := c.promptLogprobs()
		for i := range ch.Logprobs {
			ch.Logprobs[i].Offset += chars
		}
		ch.Logprobs = append(all, ch.Logprobs...)
		c.offset += chars
	}
}

// send writes the chunk as one event. It reports whether the client is still
// there.
func (a *answer) send(w http.ResponseWriter, last bool) bool {
	if a.req.chat {
		a.json = openai.AppendChatChunk(a.json[:0], &a.chunk)
	} else {
		a.json = openai.AppendCompletion(a.json[:0], &a.chunk)
	}
	if last {
		a.addTimes()
	}
	return a.emit(w)
}

// emit writes a.json as one event, unless a fault is due. It reports whether there are
// to be more.
func (a *answer) emit(w http.ResponseWriter) bool {
	a.event = openai.AppendData(a.event[:0], a.json)
	if a.fault.Kind != "" && a.events == a.fault.After && !a.spoil(w) {
		return false
	}
	a.events++
	_, err := w.Write(a.event)
	return err == nil
}

// addTimes adds the times of the answer to its last object if time is virtual,
// since clients cannot measure it.
func (a *answer) addTimes() {
	if a.server.cfg.Clock == nil {
		return
	}
	b := append(a.json[:len(a.json)-1], `,"stator":{"arrival_ms":`...)
	b = appendMillis(b, a.job.arrived)
	b = append(b, `,"first_token_ms":`...)
	b = appendMillis(b, a.job.first)
	b = append(b, `,"end_ms":`...)
	b = appendMillis(b, a.job.last)
	a.json = append(b, "}}"...)
}

// unary collects the whole answer and sends it when its last token is due.
func (a *answer) unary(ctx context.Context, w http.ResponseWriter) {
	out := a.one[:]
	if len(a.choices) != 1 {
		out = make([]openai.Choice, len(a.choices))
	}
	longest := 0
	for i := range a.choices {
		out[i] = a.whole(&a.choices[i])
		longest = max(longest, a.choices[i].tokens)
	}
	if err := a.tempo.rest(ctx, longest); err != nil {
		switch {
		case errors.Is(err, errClosed) && !a.server.closed():
			panic(http.ErrAbortHandler) // it is to begin anew, and this is lost
		case errors.Is(err, errClosed):
			a.server.fail(w, &apiError{status: http.StatusServiceUnavailable, message: err.Error()})
		case errors.Is(err, errRejected):
			a.server.fail(w, a.server.tooLarge(int(a.usage.Prompt)))
		case a.wasAborted():
			for i := range out {
				out[i] = openai.Choice{Index: i, FinishReason: abortReason}
			}
			a.json = a.appendWhole(a.json, out)
			writeJSON(w, http.StatusOK, a.json)
		}
		return
	}
	for i := range a.choices {
		c := &a.choices[i]
		a.usage.Completion += uint64(c.tokens)
		if a.job != nil && i%a.req.n == 0 {
			a.usage.Cached += uint64(a.job.sequences[i].cached)
		}
	}
	a.complete = true
	a.chunk.Choices, a.chunk.Usage = out, &a.usage
	if a.req.chat && a.req.returnIDs {
		a.chunk.PromptTokenIDs = a.req.prompts[0].ids
	}
	switch {
	case a.server.cfg.Dress != Plain:
		a.json = a.appendWhole(a.json, out)
	case a.req.chat:
		a.json = openai.AppendChat(a.json, &a.chunk)
	default:
		a.json = openai.AppendCompletion(a.json, &a.chunk)
	}
	a.addTimes()
	if a.fault.Kind != "" && !a.spoilWhole(w) {
		return
	}
	writeJSON(w, http.StatusOK, a.json)
}

// whole runs a choice to its end.
func (a *answer) whole(c *choice) openai.Choice {
	start := len(a.text)
	ch := openai.Choice{Index: c.index}
	if a.req.logprobs {
		ch.Logprobs = []openai.TokenLogprob{}
	}
	plain := a.req.stops == nil && !a.req.returnIDs && !a.req.logprobs
	for !c.done() {
		if plain {
			a.text = c.run(a.text)
		}
		c.step()
		a.text = append(a.text, c.out...)
		if a.req.returnIDs {
			ch.TokenIDs = append(ch.TokenIDs, c.id)
		}
		if a.req.logprobs {
			c.top = nil // it belongs to the entry now
			ch.Logprobs = append(ch.Logprobs, c.logprob)
		}
	}
	ch.Text = a.text[start:len(a.text):len(a.text)]
	ch.FinishReason, ch.StopReason = c.finish, c.stopReason
	if a.req.returnIDs {
		ch.PromptTokenIDs = c.prompt.ids
	}
	if a.req.echo {
		a.echo(c, &ch)
	}
	return ch
}
