package hints

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/trie"
)

// Recorder writes what a program did, a line of JSON for each call of a model, and for each
// function and tool that was left: what `stator trie build` makes predictions of. How long an
// answer was is recorded if the answer says so, or is a stream; a compressed one is not looked
// into. It is safe for concurrent use.
type Recorder struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewRecorder returns a recorder that writes to w, one write for each line.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{w: w} }

// Record writes a span. After an error nothing more is written, and each call returns it.
func (r *Recorder) Record(s *trie.Span) error {
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		_, r.err = r.w.Write(append(line, '\n'))
	}
	return r.err
}

// Err returns the error that ended the recording, if one did.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// WithRecorder has r record what is done with ctx.
func WithRecorder(ctx context.Context, r *Recorder) context.Context {
	return with(ctx, func(s *scope) { s.recorder = r })
}

// EnterTool returns a context for the inside of a tool. Only a [Recorder] sees a
// difference, once [Leave] was called: what runs beside a call, and for how long, says how
// much anybody waits for it.
func EnterTool(ctx context.Context, name string) context.Context {
	return with(ctx, func(s *scope) { s.open(trie.KindTool, name, newUUID()) })
}

// Leave says that the function or tool has ended that ctx was made for by [EnterFunction]
// or [EnterTool]. Without a recorder it does nothing, nor does it a second time.
func Leave(ctx context.Context) {
	s := scopeOf(ctx)
	if s.span == nil || s.span.left.Swap(true) {
		return
	}
	span := s.span.Span
	span.End = time.Now()
	s.span.to.Record(&span)
}

// openSpan is a function or tool that has not ended.
type openSpan struct {
	trie.Span
	to   *Recorder
	left atomic.Bool
}

// open begins a span, if somebody records it.
func (s *scope) open(kind trie.SpanKind, name, id string) {
	if s.recorder == nil {
		return
	}
	s.span = &openSpan{to: s.recorder, Span: s.newSpan(kind, name, id)}
}

// newSpan returns a span that begins now, inside of the innermost that has not ended.
func (s *scope) newSpan(kind trie.SpanKind, name, id string) trie.Span {
	span := trie.Span{
		RunID:            s.run,
		SpanID:           id,
		Kind:             kind,
		Name:             name,
		Path:             append([]string{}, s.path...),
		FunctionID:       s.function,
		ParentFunctionID: s.caller,
		Start:            time.Now(),
		Status:           statusOK,
	}
	if span.RunID == "" { // calls that have nothing in common are no run
		span.RunID = cmp.Or(s.outermost, id)
	}
	if s.span != nil {
		span.ParentSpanID = s.span.SpanID
	}
	return span
}

// How a call ended.
const (
	statusOK        = "ok"
	statusError     = "error"
	statusCancelled = "cancelled"
)

// recording is a call of a model under way.
type recording struct {
	to   *Recorder
	span trie.Span
}

// begin begins the recording of a call, nil without a recorder. The body has no members if
// it is not known.
func (r *Recorder) begin(s *scope, prefix string, body *openai.Object) *recording {
	if r == nil {
		return nil
	}
	rec := &recording{to: r, span: s.newSpan(trie.KindLLM, "", newUUID())}
	if rec.span.PrefixID = prefix; prefix == "" {
		rec.span.PrefixID = shortID(s.prefixID())
	}
	rec.span.Name, _ = body.Get("model").Text()
	return rec
}

// answered notes how a call was answered; its body is recorded as it is read.
func (r *recording) answered(resp *http.Response, err error) {
	switch {
	case r == nil:
	case err != nil:
		r.end(failure(err))
	case resp.StatusCode < 200, resp.StatusCode >= 300 && resp.StatusCode < 400:
		// No answer: the call goes on elsewhere, or is something else from here on.
	default:
		if resp.StatusCode >= 400 {
			r.span.Status = statusError
		}
		encoding := resp.Header.Get("Content-Encoding")
		resp.Body = &recordedBody{
			ReadCloser: resp.Body, r: r, length: resp.ContentLength,
			answer: answer{
				stream: strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"),
				blind:  encoding != "" && encoding != "identity",
			},
		}
	}
}

func failure(err error) string {
	if errors.Is(err, context.Canceled) {
		return statusCancelled
	}
	return statusError
}

// end writes the span.
func (r *recording) end(status string) {
	r.span.End = time.Now()
	if r.span.Status == statusOK {
		r.span.Status = status
	}
	r.to.Record(&r.span)
}

// recordedBody is the body of an answer that is looked at while it is read. Clients close
// it while they read.
type recordedBody struct {
	io.ReadCloser
	r      *recording
	length int64

	mu     sync.Mutex
	read   int64
	answer answer
	ended  bool
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return n, err
	}
	if n > 0 {
		if b.read == 0 {
			ms := float64(time.Since(b.r.span.Start)) / float64(time.Millisecond)
			b.r.span.TTFTMS = &ms
		}
		b.read += int64(n)
		b.answer.add(p[:n])
	}
	switch {
	case err == nil:
	case err == io.EOF || b.answer.complete(): // whoever has all of it may leave
		b.end(statusOK)
	default:
		b.end(failure(err))
	}
	return n, err
}

// Close ends the recording of an answer that nobody read to its end. Many clients stop at
// what they know to be the last of it.
func (b *recordedBody) Close() error {
	b.left()
	return b.ReadCloser.Close()
}

// left notes that nobody reads on.
func (b *recordedBody) left() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	status := statusCancelled
	if b.answer.complete() || b.read == b.length {
		status = statusOK
	}
	b.end(status)
}

// end writes down what became of the call. The lock is held.
func (b *recordedBody) end(status string) {
	b.ended = true
	b.answer.fill(&b.r.span)
	b.r.end(status)
}
