package frontend

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
)

// readBody reads a JSON body within the limits of size, memory and time. held is
// what it took from the memory budget; the caller gives it back with free, also
// after an error.
//
// The deadline that dispatch set stays in force when the body was not read to its
// end, so that a client that trickles cannot hold the connection after it was
// refused either.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, held int64, err error) {
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, 0, &openai.Error{Code: openai.CodeUnsupportedMedia, Param: "Content-Type",
			Message: "Expected request with `Content-Type: application/json`"}
	}
	return s.readAny(w, r, limit)
}

// readAny is readBody for a body of any kind.
func (s *Server) readAny(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, held int64, err error) {
	size := r.ContentLength
	switch {
	case isEncoded(r.Header):
		err = &openai.Error{Code: openai.CodeUnsupportedMedia, Param: "Content-Encoding",
			Message: "compressed bodies are not understood: send the body as it is"}
	case size > limit:
		err = tooLarge(limit)
	case size < 0 || size > maxAhead:
		body, held, err = s.readGrowing(r.Body, size, limit)
	case !s.hold(size):
		err = overBudget()
	default:
		held = size
		body = takeBuffer(int(size))
		_, err = io.ReadFull(r.Body, body)
	}
	if err != nil {
		return nil, held, bodyError(err, s.cfg.Limits.BodyTimeout)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, held, nil
}

// maxAhead is the size up to which memory is taken for a body before it arrives.
// Beyond, a declared length alone takes none from others.
const maxAhead = 256 << 10

// readGrowing reads a body of unknown or large length, taking memory as it comes.
func (s *Server) readGrowing(r io.Reader, size, limit int64) (body []byte, held int64, err error) {
	most := limit + 1
	if size >= 0 {
		most = size + 1 // one more, to see the end
	}
	body = make([]byte, 0, min(64<<10, most))
	for {
		if int64(cap(body)) > held {
			if !s.hold(int64(cap(body)) - held) {
				return nil, held, overBudget()
			}
			held = int64(cap(body))
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, held, tooLarge(limit)
		case err == io.EOF:
			return body, held, nil
		case err != nil:
			return nil, held, err
		}
		if len(body) == cap(body) {
			grown := make([]byte, len(body), min(2*int64(cap(body)), most))
			copy(grown, body)
			body = grown
		}
	}
}

// Bodies of these sizes are worth keeping: clearing and collecting them costs more
// than reading them. Smaller ones are cheap, larger ones rare.
const (
	minPooled = 16 << 10
	maxPooled = 1 << 20
)

var bodies sync.Pool // of *[]byte

// takeBuffer returns n bytes with any content.
func takeBuffer(n int) []byte {
	if n <= minPooled || n > maxPooled {
		return make([]byte, n)
	}
	if b, ok := bodies.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n, 1<<bits.Len(uint(n-1)))
}

// giveBuffer takes a buffer back. Nobody may use it any more.
func giveBuffer(b []byte) {
	if n := cap(b); n > minPooled && n <= maxPooled {
		bodies.Put(&b)
	}
}

// hold takes n bytes from the budget, or takes none and returns false.
func (s *Server) hold(n int64) bool {
	if s.body.Add(n) > s.cfg.Limits.Budget {
		s.body.Add(-n)
		return false
	}
	s.metrics.AddBodyBytes(n)
	return true
}

// free gives n bytes back.
func (s *Server) free(n int64) {
	if n > 0 {
		s.body.Add(-n)
		s.metrics.AddBodyBytes(-n)
	}
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" ||
		strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// errShed marks an error as load shedding, with its reason.
type errShed struct{ reason metrics.ShedReason }

func (e errShed) Error() string { return string(e.reason) }

func tooLarge(limit int64) error {
	return &openai.Error{Code: openai.CodeBodyTooLarge,
		Message: fmt.Sprintf("the request body is larger than the limit of %d bytes", limit)}
}

func overBudget() error {
	return &openai.Error{Code: openai.CodeServerBusy, Err: errShed{metrics.ShedBodyBudget},
		Message: "too many request bytes are being held at the moment, please retry later"}
}

// bodyError says what went wrong when a body could not be read.
func bodyError(err error, limit time.Duration) error {
	var oe *openai.Error
	switch {
	case err == nil, errors.As(err, &oe):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &openai.Error{Code: openai.CodeRequestTimeout, Err: err,
			Message: fmt.Sprintf("the request body did not arrive within %s", limit)}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &openai.Error{Code: openai.CodeClientClosed, Err: err,
			Message: "the request body ended before its declared length"}
	default:
		return &openai.Error{Code: openai.CodeClientClosed, Message: "the request body could not be read", Err: err}
	}
}
