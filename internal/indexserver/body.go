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

// readForm reads a JSON object within the limits of size, memory and time. What it
// took from the budget is given back by release, which has to be called also after
// an error and does nothing the second time.
func (s *Server) readForm(w http.ResponseWriter, r *http.Request) (f *form, release func(), err error) {
	body, release, err := s.readBody(w, r, jsonForm)
	if err == nil {
		f, err = parseForm(body)
	}
	return f, release, err
}

// readBody is readForm for a body of one of several forms.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, forms ...encoding) (body []byte, release func(), err error) {
	held := int64(0)
	release = func() { s.held.Add(-held); held = 0 }
	if err := checkHeaders(r, forms...); err != nil {
		return nil, release, err
	}
	limit := s.cfg.MaxBody
	if r.ContentLength > limit {
		return nil, release, tooLarge(limit)
	}
	size := limit
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}
	body = make([]byte, 0, min(size+1, 64<<10)) // one more, to see the end
	for {
		if more := int64(cap(body)) - held; more > 0 {
			held += more
			if s.held.Add(more) > s.cfg.MaxHeld {
				return nil, release, fail(http.StatusServiceUnavailable, "too many bodies at a time, please retry")
			}
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > size:
			return nil, release, tooLarge(limit)
		case err == io.EOF:
			// A later request on the connection has its own time.
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
			return body, release, nil
		case err != nil:
			return nil, release, bodyError(err)
		}
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(2*int64(cap(body)), size+1))
			copy(grown, body)
			body = grown
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

// patient reads a body of any length that keeps coming.
type patient struct {
	r       io.Reader
	control *http.ResponseController
}

func (p patient) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(stall))
	return p.r.Read(b)
}

// steady writes an answer of any length to a client that keeps taking it.
type steady struct {
	w       io.Writer
	control *http.ResponseController
}

func (s steady) Write(b []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(stall))
	return s.w.Write(b)
}
