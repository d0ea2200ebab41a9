package hints

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/openai"
)

// take returns a request's body, or why no hints are added to it. plain is what to send in
// that case: req itself, as long as its body was not touched. The error is that of a body
// that could be read only once and was not read to its end.
func (t *Transport) take(req *http.Request) (body []byte, plain *http.Request, why Reason, err error) {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return nil, req, Empty, nil
	case isSealed(req.Header):
		return nil, req, Sealed, nil
	case req.ContentLength > t.maxBody:
		return nil, req, Large, nil
	case len(req.Trailer) > 0:
		return nil, req, Streamed, nil
	}
	if req.GetBody != nil {
		return t.takeCopy(req)
	}
	if req.ContentLength <= 0 && !t.buffer {
		return nil, req, Streamed, nil
	}
	return t.takeBody(req)
}

// takeCopy reads a body that can be had again.
func (t *Transport) takeCopy(req *http.Request) ([]byte, *http.Request, Reason, error) {
	rc, err := req.GetBody()
	if err != nil {
		return nil, req, Unreadable, nil
	}
	defer rc.Close()
	body, err := readAll(rc, req.ContentLength, t.maxBody)
	switch {
	case errors.Is(err, errLarge):
		return nil, req, Large, nil
	case err != nil:
		return nil, req, Unreadable, nil
	case len(body) == 0:
		return nil, req, Empty, nil
	}
	return body, req, hinted, nil
}

// takeBody reads a body that can be read once.
func (t *Transport) takeBody(req *http.Request) ([]byte, *http.Request, Reason, error) {
	body, err := readAll(req.Body, req.ContentLength, t.maxBody)
	if err != nil && !errors.Is(err, errLarge) && !errors.Is(err, errLength) {
		return nil, nil, 0, err
	}
	if err != nil { // what was read goes first, the rest after it, and the server may judge
		plain := *req
		plain.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(openai.Pieces{body}.Reader(), req.Body), req.Body}
		if errors.Is(err, errLarge) {
			return nil, &plain, Large, nil
		}
		return nil, &plain, Unreadable, nil
	}
	closeBody(req)
	plain := withBody(req, openai.Pieces{body})
	if len(body) == 0 {
		return nil, plain, Empty, nil
	}
	return body, plain, hinted, nil
}

var (
	errLarge  = errors.New("the body is too large")
	errLength = errors.New("the body is not as long as it was said to be")
)

// readAll reads a body of a stated length, or of one that is not known if it is not above
// 0. With errLarge and errLength it returns what it has read.
func readAll(r io.Reader, length, most int64) ([]byte, error) {
	if length > 0 {
		body := make([]byte, length)
		n, err := io.ReadFull(r, body)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return body[:n], errLength
		}
		if err != nil {
			return nil, err
		}
		var more [1]byte
		if n, _ := io.ReadFull(r, more[:]); n > 0 {
			return append(body, more[0]), errLength
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(body)) > most {
		err = errLarge
	}
	return body, err
}

// sealing are headers that hold for the bytes of the body alone.
var sealing = [...]string{"Content-Md5", "Digest", "Content-Digest", "X-Amz-Content-Sha256", "Signature"}

// isSealed reports whether a body is compressed, or must not change.
func isSealed(h http.Header) bool {
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return true
	}
	for _, name := range sealing {
		if len(h[name]) > 0 {
			return true
		}
	}
	return false
}

// withBody returns a copy of req with another body.
func withBody(req *http.Request, body openai.Pieces) *http.Request {
	out := *req
	n := body.Len()
	out.ContentLength = n
	out.TransferEncoding = nil
	out.GetBody = func() (io.ReadCloser, error) { return body.Reader(), nil }
	out.Body = body.Reader()
	if n == 0 {
		out.Body, out.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	if len(req.Header["Content-Length"]) > 0 {
		out.Header = req.Header.Clone()
		out.Header.Set("Content-Length", strconv.FormatInt(n, 10))
	}
	return &out
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
