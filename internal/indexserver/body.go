package indexserver

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

// encoding is the form of a body.
type encoding uint8

const (
	unknownForm encoding = iota
	jsonForm             // one document
	linesForm            // one after another
	msgpackForm
)

func encodingOf(h http.Header) encoding {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil:
		return unknownForm
	case media == "application/json", strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"):
		return jsonForm
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl":
		return linesForm
	case media == "application/msgpack", media == "application/x-msgpack", media == "application/vnd.msgpack":
		return msgpackForm
	}
	return unknownForm
}

// held is what one request has of the memory for all of them.
type held struct {
	s *Server
	n int64
}

// take asks for n bytes, which are allocated only after that.
func (h *held) take(n int64) error {
	if h.s.held.Add(n) > h.s.cfg.MaxHeld {
		h.s.held.Add(-n)
		return fail(http.StatusServiceUnavailable, "too much is asked at a time, please retry")
	}
	h.n += n
	return nil
}

// give gives n bytes back.
func (h *held) give(n int64) {
	h.s.held.Add(-n)
	h.n -= n
}

// release gives everything back.
func (h *held) release() { h.give(h.n) }

// readForm reads a JSON object within the limits of size, memory and time. What it
// took from the memory for all requests has to be released, also after an error.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request) (*form, *held, error) {
	body, held, err := s.readBody(w, r, jsonForm)
	if err != nil {
		return nil, held, err
	}
	f, err := parseForm(body, held)
	return f, held, err
}

// readBody is readForm for a body of one of several forms.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, forms ...encoding) ([]byte, *held, error) {
	held := &held{s: s}
	if err := checkHeaders(r, forms...); err != nil {
		return nil, held, err
	}
	limit := s.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, held, tooLarge(limit)
	}
	size := limit
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	var body []byte
	for {
		if len(body) == cap(body) {
			grown := min(max(2*int64(cap(body)), 64<<10), size+1) // one more, to see the end
			if err := held.take(grown - int64(cap(body))); err != nil {
				return nil, held, err
			}
			body = append(make([]byte, 0, grown), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > size:
			return nil, held, tooLarge(limit)
		case err == io.EOF:
			// A later request on the connection has its own time.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			return body, held, nil
		case err != nil:
			return nil, held, bodyError(err)
		}
	}
}

// checkHeaders refuses a body that is in another form than expected.
func checkHeaders(r *http.Request, forms ...encoding) error {
	form := encodingOf(r.Header)
	for _, f := range forms {
		if f != form {
			continue
		}
		if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
			return &failure{status: http.StatusUnsupportedMediaType, field: "Content-Encoding",
				message: "compressed bodies are not understood: send it as it is"}
		}
		return nil
	}
	want := "application/json"
	if len(forms) > 1 {
		want += ", application/x-ndjson or application/msgpack"
	}
	return &failure{status: http.StatusUnsupportedMediaType, field: "Content-Type", message: "expected " + want}
}

func tooLarge(limit int64) error {
	return fail(http.StatusRequestEntityTooLarge, "the body is larger than the limit of %d bytes", limit)
}

// bodyError says why a body could not be read.
func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &failure{status: http.StatusRequestTimeout, message: "the body did not arrive in time", err: err}
	}
	return &failure{status: http.StatusBadRequest, message: "the body was cut off", err: err}
}

// minRate is how many bytes a second a client has to send or take in the mean of a
// body or answer of any length.
const minRate = 256 << 10

// pace is how fast a client was. Only the time counts in which it is waited for.
type pace struct {
	bytes  int64
	waited time.Duration
}

// left returns how long the client may take for the next part: at most stall, and for
// everything at most stall more than minRate needs.
func (p *pace) left() time.Duration {
	return min(stall, stall+time.Duration(p.bytes)*(time.Second/minRate)-p.waited)
}

// count adds a part for which the client was waited for since a time.
func (p *pace) count(bytes int, since time.Time) {
	p.bytes += int64(bytes)
	p.waited += time.Since(since)
}

// patient reads a body of any length that keeps coming.
type patient struct {
	r       io.Reader
	control *http.ResponseController
	pace    pace
}

func (p *patient) Read(b []byte) (int, error) {
	now := time.Now()
	_ = p.control.SetReadDeadline(now.Add(p.pace.left()))
	n, err := p.r.Read(b)
	p.pace.count(n, now)
	return n, err
}

// steady writes an answer of any length to a client that keeps taking it.
type steady struct {
	w       io.Writer
	control *http.ResponseController
	pace    pace
}

func (s *steady) Write(b []byte) (int, error) {
	now := time.Now()
	_ = s.control.SetWriteDeadline(now.Add(s.pace.left()))
	n, err := s.w.Write(b)
	s.pace.count(n, now)
	return n, err
}

// maxTransfers bounds the dumps and restores at a time.
const maxTransfers = 4

// transfer takes the place of a dump or restore until done is called.
func (s *Server) transfer() (done func(), err error) {
	select {
	case s.transfers <- struct{}{}:
		return func() { <-s.transfers }, nil
	default:
		return nil, fail(http.StatusServiceUnavailable, "%d dumps and restores are under way, please retry", maxTransfers)
	}
}
