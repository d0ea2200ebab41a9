package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// replayer is the engine behind the proxies: it gives the answers that a simulated
// engine gave to the same requests, byte for byte, and leaves everything but chats
// to that engine. It costs so little that the proxies are what limits the load, and
// it makes sure that requests arrive as they were sent. Safe for concurrent use.
type replayer struct {
	addr string // host:port it listens on
	sim  *process
	rest http.Handler // the simulated engine
	http *http.Server
	done chan struct{} // closed when it has stopped listening

	mu      sync.RWMutex
	answers map[string]*answer // by request body
}

// answer is what is sent back: whole where it has one event, otherwise event by
// event, each after the first when there is a step for it.
type answer struct {
	contentType string
	events      [][]byte
	steps       <-chan struct{}
}

// startReplayer starts an engine that has no answers yet. The caller must stop it.
func startReplayer(ctx context.Context, o options) (*replayer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	sim, err := start(ctx, "engine", o.stator, "sim", "--listen", "127.0.0.1:0",
		"--model", model, "--instant", "--context-length", "1000000")
	if err != nil {
		l.Close()
		return nil, err
	}
	e := &replayer{
		addr:    l.Addr().String(),
		sim:     sim,
		rest:    reverseProxy(&url.URL{Scheme: "http", Host: sim.addr}),
		done:    make(chan struct{}),
		answers: make(map[string]*answer),
	}
	e.http = &http.Server{Handler: e}
	go func() {
		defer close(e.done)
		e.http.Serve(l)
	}()
	return e, nil
}

func (e *replayer) stop() {
	e.http.Close()
	<-e.done
	e.sim.stop()
}

// record asks the simulated engine and returns its answer to the chat body.
func (e *replayer) record(ctx context.Context, body []byte) ([]byte, error) {
	c, err := dial(ctx, e.sim.addr)
	if err != nil {
		return nil, e.sim.failure(err)
	}
	defer c.close()
	got, err := c.roundTrip(nil, chatRequest(body))
	if err != nil {
		return nil, e.sim.failure(err)
	}
	return got, nil
}

// set makes a the answer to the chat body from now on.
func (e *replayer) set(body []byte, a *answer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answers[string(body)] = a
}

// ServeHTTP answers chats as recorded.
func (e *replayer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		e.rest.ServeHTTP(w, r)
		return
	}
	buf := requestBuffers.Get().(*bytes.Buffer)
	defer requestBuffers.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.RLock()
	a := e.answers[string(buf.Bytes())]
	e.mu.RUnlock()
	if a == nil {
		http.Error(w, fmt.Sprintf("the request differs from those sent, it has %d bytes: %.200q", buf.Len(), buf), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", a.contentType)
	a.send(r.Context(), w)
}

// requestBuffers spare the measuring process the garbage of large requests.
var requestBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// send writes the events. The last goes out with the end of the body, as it does
// with engines.
func (a *answer) send(ctx context.Context, w http.ResponseWriter) {
	out := http.NewResponseController(w)
	for i, ev := range a.events {
		if i > 0 {
			if out.Flush() != nil {
				return
			}
			select {
			case <-a.steps:
			case <-ctx.Done():
				return
			}
		}
		w.Write(ev) // an error comes back from Flush
	}
}

// splitEvents cuts a whole stream into its events, the last of which must be
// [DONE].
func splitEvents(stream []byte) ([][]byte, error) {
	events := bytes.SplitAfter(stream, []byte("\n\n"))
	n := len(events) - 1
	if n < 1 || len(events[n]) != 0 || string(events[n-1]) != "data: [DONE]\n\n" {
		return nil, errors.New("the stream does not end with [DONE]")
	}
	return events[:n], nil
}
