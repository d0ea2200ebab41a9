package simserver

import (
	"context"
	"errors"
	"net/http"
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
	f, bad := readObject(w, r)
	if bad != nil {
		writeError(w, bad)
		return
	}
	req, bad := s.parseRequest(r.Header, f, chat)
	if bad != nil {
		writeError(w, bad)
		return
	}
	rank, ok := s.begin(req.rank)
	if !ok {
		writeError(w, &apiError{status: http.StatusServiceUnavailable, message: errClosed.Error()})
		return
	}
	defer s.end(rank)
	a := newAnswer(&s.cfg, req, arrived)
	p := pacer{closed: s.life.Done(), start: arrived, ttft: s.cfg.TTFT, itl: s.cfg.ITL}
	defer p.stop()
	// A client that does not read must not keep Close waiting. A stream ends in
	// any case; the others are still to get their refusal.
	rc := http.NewResponseController(w)
	grace := time.Second
	if req.stream {
		grace = 0
	}
	defer context.AfterFunc(s.life, func() { rc.SetWriteDeadline(time.Now().Add(grace)) })()
	if req.stream {
		a.stream(r.Context(), w, rc, &p)
	} else {
		a.unary(r.Context(), w, &p)
	}
}

// answer is a response on its way.
type answer struct {
	req     *request
	choices []choice
	usage   openai.Usage
	chunk   openai.Chunk // of the stream, reused
	one     [1]openai.Choice
	id      [1]uint32
	logprob [1]openai.TokenLogprob
	json    []byte
	event   []byte
}

func newAnswer(cfg *Config, req *request, now time.Time) *answer {
	a := &answer{req: req, choices: newChoices(cfg, req)}
	a.chunk = openai.Chunk{ID: req.id, Model: cfg.Model, Created: now.Unix()}
	for i := range req.prompts {
		a.usage.Prompt += uint64(len(req.prompts[i].ids))
	}
	return a
}

// stream sends one event per token, the choices taking turns.
func (a *answer) stream(ctx context.Context, w http.ResponseWriter, rc *http.ResponseController, p *pacer) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	if p.ttft > 0 {
		rc.Flush() // the request is accepted; there is time to say so
	}
	for live := len(a.choices); live > 0; {
		if err := p.wait(ctx, 1); err != nil {
			if errors.Is(err, errClosed) {
				panic(http.ErrAbortHandler)
			}
			return
		}
		for i := range a.choices {
			c := &a.choices[i]
			if c.done() {
				continue
			}
			c.step()
			a.usage.Completion++
			if c.done() {
				live--
			}
			a.tokenChunk(c)
			if !a.send(w, rc) {
				return
			}
		}
	}
	if a.req.includeUsage {
		a.chunk.Choices, a.chunk.Usage = nil, &a.usage
		if !a.send(w, rc) {
			return
		}
	}
	w.Write(openai.Done) // goes out when the handler returns
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
	text := c.prompt.appendText(nil)
	ch.Text = append(text[:len(text)-c.begun], ch.Text...)
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

// send writes the chunk as one event and pushes it out. It reports whether the
// client is still there.
func (a *answer) send(w http.ResponseWriter, rc *http.ResponseController) bool {
	if a.req.chat {
		a.json = openai.AppendChatChunk(a.json[:0], &a.chunk)
	} else {
		a.json = openai.AppendCompletion(a.json[:0], &a.chunk)
	}
	a.event = openai.AppendData(a.event[:0], a.json)
	if _, err := w.Write(a.event); err != nil {
		return false
	}
	return rc.Flush() == nil
}

// unary collects the whole answer and sends it when its last token is due.
func (a *answer) unary(ctx context.Context, w http.ResponseWriter, p *pacer) {
	out := make([]openai.Choice, len(a.choices))
	rounds := 0
	for i := range a.choices {
		c := &a.choices[i]
		out[i] = a.whole(c)
		a.usage.Completion += uint64(c.tokens)
		rounds = max(rounds, c.tokens)
	}
	if err := p.wait(ctx, rounds); err != nil {
		if errors.Is(err, errClosed) {
			writeError(w, &apiError{status: http.StatusServiceUnavailable, message: err.Error()})
		}
		return
	}
	a.chunk.Choices, a.chunk.Usage = out, &a.usage
	if a.req.chat {
		if a.req.returnIDs {
			a.chunk.PromptTokenIDs = a.req.prompts[0].ids
		}
		a.json = openai.AppendChat(a.json, &a.chunk)
	} else {
		a.json = openai.AppendCompletion(a.json, &a.chunk)
	}
	writeJSON(w, http.StatusOK, a.json)
}

// whole runs a choice to its end.
func (a *answer) whole(c *choice) openai.Choice {
	ch := openai.Choice{Index: c.index}
	if a.req.logprobs {
		ch.Logprobs = []openai.TokenLogprob{}
	}
	for !c.done() {
		c.step()
		ch.Text = append(ch.Text, c.out...)
		if a.req.returnIDs {
			ch.TokenIDs = append(ch.TokenIDs, c.id)
		}
		if a.req.logprobs {
			c.top = nil // it belongs to the entry now
			ch.Logprobs = append(ch.Logprobs, c.logprob)
		}
	}
	ch.FinishReason, ch.StopReason = c.finish, c.stopReason
	if a.req.returnIDs {
		ch.PromptTokenIDs = c.prompt.ids
	}
	if a.req.echo {
		a.echo(c, &ch)
	}
	return ch
}
