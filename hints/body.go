package hints

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/openai"
)

// take returns a request's body, or why no hints are added to it. plain is what to send in
// that case: req itself, as long as its body was not touched; nil for a copy of req with the
// body that was read. Then the request's own is closed, or will be. The error is that of a
// body that could not be read to its end, and not again.
func (t *Transport) take(req *http.Request) (body []byte, plain *http.Request, why Reason, err error) {
	if why := t.passes(req); why != hinted {
		return nil, req, why, nil
	}
	if req.GetBody != nil {
		return t.takeCopy(req)
	}
	return t.takeBody(req)
}

// passes says why the body of a request is not even looked at.
func (t *Transport) passes(req *http.Request) Reason {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return Empty
	case isSealed(req.Header):
		return Sealed
	case req.ContentLength > t.maxBody:
		return Large
	case len(req.Trailer) > 0, req.GetBody == nil && req.ContentLength <= 0 && !t.buffer:
		return Streamed
	}
	return hinted
}

// takeCopy reads a body that can be had again. The copy may be the same reader, wound back,
// as that of openai-go is: the request's own is used up with it.
func (t *Transport) takeCopy(req *http.Request) ([]byte, *http.Request, Reason, error) {
	rc, err := req.GetBody()
	if err != nil {
		return nil, req, Unreadable, nil
	}
	defer rc.Close()
	body, err := readAll(rc, req.ContentLength, t.maxBody, max(req.ContentLength, 0))
	if err == nil {
		return taken(req, body)
	}
	again, errAgain := req.GetBody()
	if errAgain != nil {
		return nil, nil, 0, errAgain
	}
	plain := *req
	plain.Body = struct {
		io.Reader
		io.Closer
	}{again, closers{again, req.Body}}
	if errors.Is(err, errLarge) {
		return nil, &plain, Large, nil
	}
	return nil, &plain, Unreadable, nil
}

// taken returns a body that was read to its end.
func taken(req *http.Request, body []byte) ([]byte, *http.Request, Reason, error) {
	closeBody(req)
	if len(body) == 0 {
		return nil, nil, Empty, nil
	}
	return body, nil, hinted, nil
}

// closers closes several.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// takeBody reads a body that can be read once. Whoever leaves meanwhile does not wait for
// the rest of it.
func (t *Transport) takeBody(req *http.Request) ([]byte, *http.Request, Reason, error) {
	if err := context.Cause(req.Context()); err != nil {
		return nil, nil, 0, err
	}
	stop := context.AfterFunc(req.Context(), func() { req.Body.Close() })
	body, err := readAll(req.Body, req.ContentLength, t.maxBody, min(max(req.ContentLength, 0), maxTrusted))
	if !stop() {
		return nil, nil, 0, context.Cause(req.Context())
	}
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
	return taken(req, body)
}

var (
	errLarge  = errors.New("the body is too large")
	errLength = errors.New("the body is not as long as it was said to be")
)

// maxTrusted is how much memory is taken for a body of a stated length before it is there.
const maxTrusted = 64 << 10

// readAll reads a body of a stated length, or of one that is not known if it is not above
// 0, into room for so many bytes at first. With errLarge and errLength it returns what it
// has read.
func readAll(r io.Reader, length, most, room int64) ([]byte, error) {
	limit := most
	if length > 0 {
		limit = length
	}
	body := make([]byte, 0, max(room, 512)+1)
	for {
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit && length > 0:
			return body, errLength
		case int64(len(body)) > limit:
			return body, errLarge
		case err == io.EOF && int64(len(body)) < length:
			return body, errLength
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, err
		}
		if len(body) == cap(body) {
			body = slices.Grow(body, int(min(limit+1-int64(len(body)), int64(cap(body)))))
		}
	}
}

// sealing are headers that hold for the bytes of the body alone.
var sealing = [...]string{"Content-Md5", "Digest", "Content-Digest", "X-Amz-Content-Sha256", "Signature"}

// isSealed reports whether a body is compressed, or must not change.
func isSealed(h http.Header) bool {
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return true
	}
	if strings.HasPrefix(h.Get("Authorization"), "AWS4-") { // a signature of the body, too
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
