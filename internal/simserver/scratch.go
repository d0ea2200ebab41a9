package simserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"unicode/utf8"

	"github.com/stator-ai/stator/internal/openai"
)

// scratch is the memory that it takes to read a request and answer it. It is used
// again by later ones: what a request allocates is what limits the rate of answers
// that take no time.
type scratch struct {
	fields
	body   bytes.Buffer
	req    request
	answer answer
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// newScratch returns memory to be given back with free.
func newScratch() *scratch { return scratches.Get().(*scratch) }

// parsed lets go of what a request was read from, unless that is small: an answer
// may take its time.
func (sc *scratch) parsed() {
	const small = 4 << 10
	sc.fields = fields{}
	if sc.body.Cap() > small {
		sc.body = bytes.Buffer{}
	}
}

// free gives the memory back, unless it is large. Nothing must use it any more.
func (sc *scratch) free() {
	const large = 64 << 10
	sc.parsed()
	if cap(sc.answer.text) > large || cap(sc.answer.json) > large || len(sc.answer.choices) > 8 {
		return
	}
	clear(sc.req.prompts)
	sc.req = request{prompts: sc.req.prompts[:0]}
	a := &sc.answer
	sc.answer = answer{choices: a.choices, text: a.text, json: a.json, event: a.event}
	scratches.Put(sc)
}

// read reads a request body that is one JSON object.
func (sc *scratch) read(w http.ResponseWriter, r *http.Request) *apiError {
	sc.body.Reset()
	body := r.Body
	if n := r.ContentLength; n >= 0 && n <= maxBody {
		sc.body.Grow(int(n) + bytes.MinRead)
	} else {
		body = http.MaxBytesReader(w, body, maxBody)
	}
	if _, err := sc.body.ReadFrom(body); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return &apiError{status: http.StatusRequestEntityTooLarge, message: fmt.Sprintf("body: larger than %d bytes", large.Limit)}
		}
		return &apiError{status: http.StatusBadRequest, message: "body: " + err.Error()}
	}
	o, err := openai.ParseObject(sc.body.Bytes())
	if err != nil {
		return &apiError{status: http.StatusBadRequest, message: "body: " + err.Error()}
	}
	if !utf8.Valid(sc.body.Bytes()) {
		return &apiError{status: http.StatusBadRequest, message: "body: not valid UTF-8"}
	}
	if at := openai.LoneSurrogate(sc.body.Bytes()); at >= 0 {
		return &apiError{status: http.StatusBadRequest, message: fmt.Sprintf("body: half a surrogate pair at byte %d, which is no character", at)}
	}
	sc.fields = fields{Object: o}
	return nil
}
