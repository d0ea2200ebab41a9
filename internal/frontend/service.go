package frontend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/nvext"
)

// The router service places requests that somebody else sends to the engines. Its
// messages are told apart by their method; a request's id is the name of its booking.

// serviceMethods are the methods of the router service, in the order of a booking's
// life.
var serviceMethods = []string{"new", "mark_prefill", "mark_free", "renew", "potential_loads"}

// routerService answers a message of the router service.
func (s *Server) routerService(w http.ResponseWriter, r *http.Request, _ *Key) {
	f := s.readForm(w, r)
	defer f.close()
	switch method := f.text("method"); {
	case f.err != nil:
		s.answerError(w, f.err)
	case method == "new":
		s.bookNew(w, r, f)
	case method == "mark_prefill":
		s.mark(w, r, f, "prefill_marked", func(model, id string) bool {
			return s.router.Renew(model, id, true /* prefilled */) == nil
		})
	case method == "mark_free":
		s.mark(w, r, f, "free_marked", s.router.Release)
	case method == "renew":
		s.mark(w, r, f, "renewed", func(model, id string) bool {
			return s.router.Renew(model, id, false /* prefilled */) == nil
		})
	case method == "potential_loads":
		s.answerLoads(w, f, method)
	default:
		code, got := openai.CodeInvalidValue, "`"+short(method)+"`"
		if method == "" {
			code, got = openai.CodeMissing, "none"
		}
		s.answerError(w, &openai.Error{Code: code, Param: "method",
			Message: "method: expected one of " + strings.Join(serviceMethods, ", ") + "; got " + got})
	}
}

// bookedBody is the answer to new. The id is there if the client gave none, the lease
// if it gave one.
type bookedBody struct {
	Method        string  `json:"method"`
	WorkerID      uint64  `json:"worker_id"`
	DPRank        uint32  `json:"dp_rank"`
	OverlapBlocks int     `json:"overlap_blocks"`
	RequestID     string  `json:"request_id,omitempty"`
	LeaseSecs     float64 `json:"lease_secs,omitempty"`
}

// rejectedBody is the answer to new when there is no place in the queue.
type rejectedBody struct {
	Method      string          `json:"method"`
	PolicyClass string          `json:"policy_class"`
	LimitKind   sched.LimitKind `json:"limit_kind"`
	Current     int             `json:"current"`
	Limit       int             `json:"limit"`
}

// The bounds of numbers in messages.
const (
	maxLeaseSecs = 24 * 60 * 60
	maxJumpSecs  = 1e9
)

// bookNew places a request and keeps the booking until it is given back or its lease
// ends.
func (s *Server) bookNew(w http.ResponseWriter, r *http.Request, f *form) {
	if ok, full := s.enter(); !ok {
		s.answerError(w, refuse(full))
		return
	}
	defer s.leave()
	q := f.prompt()
	id := f.requestID(r.Header)
	q.ID = cmp.Or(id, newUUID())
	q.Jump = f.number("priority_jump", -maxJumpSecs, maxJumpSecs)
	q.Tier = f.uint32("strict_priority")
	q.ExpectedOutput = int(min(f.uint32("expected_output_tokens"), maxCount))
	q.Class = r.Header.Get(nvext.HeaderMetaPrefix + metaPolicyClass)
	f.constraints(&q)
	lease := f.number("lease_secs", 0, maxLeaseSecs)
	f.checkContext(&q)
	if f.err != nil {
		s.answerError(w, f.err)
		return
	}
	found := s.finding()
	pl, err := s.router.Reserve(r.Context(), &q, time.Duration(lease*float64(time.Second)))
	found()
	if err != nil {
		s.refuseNew(w, r, q.Model, err)
		return
	}
	if r.Context().Err() != nil { // nobody hears where the request may go
		s.router.Release(q.Model.ID, q.ID)
		s.refuseNew(w, r, q.Model, r.Context().Err())
		return
	}
	leg := pl.Last()
	body := bookedBody{
		Method:        "new",
		WorkerID:      uint64(leg.Target.Worker),
		DPRank:        leg.Target.Rank,
		OverlapBlocks: leg.OverlapBlocks,
		LeaseSecs:     lease,
	}
	if id == "" {
		body.RequestID = q.ID
	}
	reply(w, http.StatusOK, body)
}

// requestID returns the id of a booking, from the body or a header; empty if there
// is none.
func (f *form) requestID(h http.Header) string {
	const field = "request_id"
	id := f.text(field)
	if v := f.Get(field); v.Present() && (id == "" || len(id) > maxClientID) {
		f.fail(openai.CodeInvalidValue, field, fmt.Sprintf("1 to %d bytes, got %d", maxClientID, len(id)))
	}
	if id != "" {
		return id
	}
	if id = h.Get(headerXRequestID); len(id) > maxClientID {
		f.fail(openai.CodeInvalidValue, "x-request-id", fmt.Sprintf("at most %d bytes, got %d", maxClientID, len(id)))
	}
	return id
}

// checkContext refuses a prompt that no engine of the model can take.
func (f *form) checkContext(q *router.Request) {
	if f.err != nil {
		return
	}
	if limit := q.Model.ContextLength; limit > 0 && len(q.Tokens) > limit {
		f.fail(openai.CodeContextLength, "tokens", fmt.Sprintf(
			"at most %d, which is the model's context, got %d", limit, len(q.Tokens)))
	}
}

// refuseNew says why a request could not be placed.
func (s *Server) refuseNew(w http.ResponseWriter, r *http.Request, m *router.Model, err error) {
	var (
		wait  *router.WaitError
		limit *sched.LimitError
		e     *openai.Error
	)
	switch {
	case errors.Is(context.Cause(r.Context()), ErrStopping):
		e = refuse(false)
	case r.Context().Err() != nil:
		abort(r)
		return
	case errors.As(err, &limit):
		m.Metrics.Shed(metrics.ShedQueueFull)
		w.Header().Set("Retry-After", retryAfter)
		reply(w, statusQueueFull, rejectedBody{"queue_rejected", limit.Class, limit.Kind, limit.Current, limit.Limit})
		return
	case errors.As(err, &wait):
		e = waitedTooLong(wait)
	case errors.Is(err, router.ErrOverloaded):
		e = s.allBusy("", "All workers are busy, please retry later")
	case errors.Is(err, router.ErrNoneTainted):
		e = notTainted("", "no worker of the model has all of these", err)
	case errors.Is(err, router.ErrDuplicate), errors.Is(err, router.ErrUnknownBooking):
		message := "request_id: a booking with this id exists"
		if errors.Is(err, router.ErrUnknownBooking) {
			message = "request_id: the booking was given back before it was made"
		}
		e = &openai.Error{Code: openai.CodeInvalidValue, Status: http.StatusConflict, Param: "request_id", Message: message, Err: err}
	case errors.Is(err, router.ErrPinMissing):
		e = &openai.Error{Code: openai.CodeInvalidValue, Param: "method", Err: err,
			Message: "method: new places nothing while the router runs in direct mode"}
	case errors.Is(err, router.ErrNoWorkers):
		e = modelUnavailable(m.ID, err)
	default:
		e = &openai.Error{Code: openai.CodeInternal, Message: "internal error", Err: err}
	}
	var shed errShed
	if errors.As(e.Err, &shed) {
		m.Metrics.Shed(shed.reason)
	}
	s.fail(w, e)
}

// markedBody is the answer to a message about a booking.
type markedBody struct {
	Method  string `json:"method"`
	Success bool   `json:"success"`
}

// mark has do done to the booking that a message names. Of a model and its adapters
// the one that has a booking of that id is meant. That there is none makes no
// difference to giving it back.
func (s *Server) mark(w http.ResponseWriter, r *http.Request, f *form, answer string, do func(model, id string) bool) {
	id, name := f.requestID(r.Header), f.text("model")
	if id == "" {
		f.fail(openai.CodeMissing, "request_id", "the id of a booking, here or in the header x-request-id")
	}
	if name != "" && f.err == nil {
		var m *router.Model
		if m, f.err = s.servedModel(name); f.err == nil {
			name = m.ID // an adapter has two names
		}
	}
	if f.err != nil {
		s.answerError(w, f.err)
		return
	}
	done := false
	for _, model := range s.router.Family(name) {
		if done = do(model, id); done {
			break
		}
	}
	reply(w, http.StatusOK, markedBody{answer, done || answer == "free_marked"})
}
