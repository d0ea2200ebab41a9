package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

const (
	requestTokens = 100_000 // of the prompt
	requestEvents = 64      // of the answer that have a token
	requestRound  = 500 * time.Millisecond
	// The targets: what a request costs in all, placed by its tokens, in units of
	// what a proxy takes that only copies it.
	requestColdLimit = 40.0
	requestWarmLimit = 15.0
)

// measureRequest measures one request with a long prompt from end to end: what it costs
// the server that renders, tokenizes and hashes it, finds who holds how much of it and
// relays the answer, against a bare reverse proxy; and how that divides into stages. The
// prompt is one that nobody has seen before, and the next turn of a chat whose beginning
// the server and the engines know.
func measureRequest(ctx context.Context, o options, r *report) error {
	o.round = min(o.round, requestRound)
	return measureRequestOf(ctx, o, r, requestTokens)
}

func measureRequestOf(ctx context.Context, o options, r *report, tokens int) error {
	p, err := readPassages(ctx)
	if err != nil {
		return err
	}
	body, tokens, err := longChat(p, tokens)
	if err != nil {
		return err
	}
	x, err := startRequestRig(ctx, o)
	if err != nil {
		return err
	}
	defer x.stop()
	table := stageTable{head: fmt.Sprintf("CPU of a request, %d KB, %d tokens", len(body)/1000, tokens)}
	for _, c := range []struct {
		what   string
		marker string // what differs from request to request
		limit  float64
	}{
		{"new prompt", firstMarker, requestColdLimit},
		{"next turn", lastMarker, requestWarmLimit},
	} {
		if c.marker == lastMarker {
			if err := x.warm(ctx, body); err != nil {
				return err
			}
		}
		split, err := x.measure(ctx, o, r, c.what, body, c.marker, c.limit)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		table.splits = append(table.splits, split)
	}
	r.tables = append(r.tables, table.cells())
	r.note("request: stages by the processor time of the server's process, one request at a time, %d workers; the rest is net/http before and after the handler; the words of a new prompt are known to the tokenizer", clockedWorkers)
	return nil
}

// requestRig is the processes of the measurement: the engine, the proxy and the server
// in front of it.
type requestRig struct {
	engine, proxy, server *process
	answer, hidden        []byte // the engine's, and the same without usage
	asked                 atomic.Int64
}

func startRequestRig(ctx context.Context, o options) (x *requestRig, err error) {
	x = new(requestRig)
	x.answer, x.hidden = cannedStream(requestEvents)
	defer func() {
		if err != nil {
			x.stop()
		}
	}()
	file := filepath.Join(o.dir, "stream")
	if err := os.WriteFile(file, x.answer, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if x.engine, err = start(ctx, "engine", self, proxyCommand, kindBare, file); err != nil {
		return nil, err
	}
	if x.proxy, err = startProxy(ctx, "bare reverse proxy", kindReverse, x.engine.addr); err != nil {
		return nil, err
	}
	x.server, err = startProxy(ctx, "stator, mode kv", kindClocked, x.engine.addr)
	return x, err
}

func (x *requestRig) stop() {
	for _, p := range []*process{x.engine, x.proxy, x.server} {
		if p != nil {
			p.stop()
		}
	}
}

// warm has the server see the chat, and the engines hold its blocks.
func (x *requestRig) warm(ctx context.Context, body []byte) error {
	if _, err := x.load("warm", body, lastMarker, x.hidden).run(ctx, x.server.addr, 1); err != nil {
		return x.server.failure(err)
	}
	_, err := x.server.get(ctx, pathHold)
	return err
}

// measure compares proxy and server, which take turns of the same length, and returns
// the stages of another turn of the server.
func (x *requestRig) measure(ctx context.Context, o options, r *report, what string, body []byte, marker string, limit float64) (stageSplit, error) {
	name := "long request, " + what
	sides := []side{
		{x.load(name, body, marker, x.answer), x.proxy},
		{x.load(name, body, marker, x.hidden), x.server},
	}
	n := make([]int, len(sides))
	for i, s := range sides {
		var err error
		if n[i], err = s.load.calibrate(ctx, s.process, o.round); err != nil {
			return stageSplit{}, err
		}
	}
	o.progress("%s: %d rounds of %d requests", name, o.rounds, n[1])
	rounds, err := takeTurns(ctx, o, sides, n)
	if err != nil {
		return stageSplit{}, err
	}
	r.compared(sides[1].load, []*process{x.proxy, x.server}, rounds, limit)
	s := stageSplit{what: what, proxy: medianOf(rounds[0], func(r round) time.Duration { return r.cpu })}
	if _, err := x.readClock(ctx); err != nil { // what was before does not count
		return stageSplit{}, err
	}
	got, err := sides[1].load.measure(ctx, x.server, n[1])
	if err != nil {
		return stageSplit{}, err
	}
	s.total = got.cpu
	if s.reading, err = x.readClock(ctx); err != nil {
		return stageSplit{}, err
	}
	if s.reading.Requests != got.units {
		return stageSplit{}, fmt.Errorf("expected %d requests on the clock, got %d", got.units, s.reading.Requests)
	}
	return s, s.reading.check(marker == lastMarker)
}

// load returns the load of the chat, which differs each time at the marker, one at a
// time.
func (x *requestRig) load(name string, body []byte, marker string, want []byte) *load {
	return &load{
		name:  name,
		unit:  "requests",
		each:  1,
		conns: 1,
		client: func(int) func(*conn) error {
			request := chatRequest(body)
			digits := bytes.Index(request, []byte(marker)) + len(marker)
			var got []byte
			return func(c *conn) error {
				copy(request[digits:], fmt.Sprintf("%0*d", len(markerDigits), x.asked.Add(1)))
				var err error
				if got, err = c.roundTrip(got[:0], request); err != nil {
					return err
				}
				if !bytes.Equal(got, want) {
					return fmt.Errorf("expected the answer %.200q, got %.200q", want, got)
				}
				return nil
			}
		},
	}
}

// readClock returns what the server's clock says and sets it to 0.
func (x *requestRig) readClock(ctx context.Context) (c clockReading, err error) {
	body, err := x.server.get(ctx, pathClock)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(body, &c)
}

// The places where requests differ, with the digits that follow.
const (
	firstMarker  = "Conversation "
	lastMarker   = "Question "
	markerDigits = "000000000"
)

// longChat returns the request of a chat that has at least so many tokens with Qwen3,
// and how many it has. It begins with firstMarker and ends with a question with
// lastMarker.
func longChat(p *passages, tokens int) (body []byte, n int, err error) {
	t := newTalk(p, "request")
	messages := []message{{"system", firstMarker + markerDigits + ". Answer briefly."}}
	last := message{"user", lastMarker + markerDigits + ": what was that about?"}
	for {
		// A byte of this text is a quarter of a token or more.
		for size := 0; size < max(1000, (tokens-n)*2); {
			for _, role := range []string{"user", "assistant"} {
				m := message{role, t.content(200 + t.rng.IntN(2500))}
				messages = append(messages, m)
				size += len(m.Content)
			}
		}
		raw, err := marshalPlain(append(messages[:len(messages):len(messages)], last))
		if err != nil {
			return nil, 0, err
		}
		found, err := qwen3.Model().Chat(tokenize.Chat{Messages: raw}, tokenize.Hashing{})
		if err != nil {
			return nil, 0, err
		}
		if n = len(found.IDs); n >= tokens {
			body = fmt.Appendf(nil, `{"model":%q,"messages":%s,"max_tokens":%d,"stream":true}`, model, raw, requestEvents)
			return body, n, nil
		}
	}
}

// marshalPlain writes JSON as clients do, without escapes for HTML.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// cannedStream returns an answer of so many tokens with the usage at its end, and the
// same without.
func cannedStream(tokens int) (whole, hidden []byte) {
	const head = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1750000000,"model":"` + model + `","choices":[`
	var b []byte
	for i := range tokens {
		finish := "null"
		if i == tokens-1 {
			finish = `"length"`
		}
		b = fmt.Appendf(b, head+`{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":%s}]}`+"\n\n", finish)
	}
	usage := fmt.Sprintf(head+`],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
		requestTokens, tokens, requestTokens+tokens)
	const done = "data: [DONE]\n\n"
	whole = append(append(bytes.Clone(b), usage...), done...)
	return whole, append(b, done...)
}

// check looks whether nearly all of the prompts was known, to the server and to the
// worker that the latest was sent to, or hardly anything.
func (c *clockReading) check(known bool) error {
	cached := float64(c.Cached) / float64(c.Tokens)
	held := float64(c.Overlap*kvBlock*c.Requests) / float64(c.Tokens)
	if known && (cached < 0.9 || held < 0.9) || !known && (cached > 0.1 || held > 0.1) {
		return fmt.Errorf("expected prompts that are known: %v; of their tokens %.2f were, and %.2f in caches", known, cached, held)
	}
	return nil
}

// stageSplit is how the processor time of requests divides.
type stageSplit struct {
	what         string
	total, proxy time.Duration // of a request, here and through the proxy
	reading      clockReading
}

// stageTable shows splits beside each other.
type stageTable struct {
	head   string
	splits []stageSplit
}

// cells returns the table with its head.
func (t *stageTable) cells() [][]string {
	head, under := []string{t.head}, []string{""}
	for i := range t.splits {
		head = append(head, t.splits[i].what, "", "")
		under = append(under, "CPU", "share", "over a proxy")
	}
	out := [][]string{head, under}
	line := func(name string, cpu func(*stageSplit) time.Duration) {
		cells := []string{name}
		for i := range t.splits {
			s := &t.splits[i]
			d := cpu(s)
			cells = append(cells, micros(d),
				fmt.Sprintf("%.1f %%", 100*float64(d)/float64(s.total)), fmt.Sprintf("%.2f×", float64(d)/float64(s.proxy)))
		}
		out = append(out, cells)
	}
	for i, name := range stageNames {
		line(name, func(s *stageSplit) time.Duration { return s.stage(stage(i)) })
	}
	line("the rest", func(s *stageSplit) time.Duration { return s.rest() })
	line("all", func(s *stageSplit) time.Duration { return s.total })
	return out
}

// stage returns what a request spends in a stage.
func (s *stageSplit) stage(i stage) time.Duration {
	return s.reading.Stages[i] / time.Duration(max(1, s.reading.Requests))
}

// rest returns what a request spends in none.
func (s *stageSplit) rest() time.Duration {
	d := s.total
	for i := range numStages {
		d -= s.stage(i)
	}
	return d
}
