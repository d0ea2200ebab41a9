package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
)

// errCut means that the answer broke off where nothing more can be said.
var errCut = errors.New("the answer broke off")

// errClientGone means that there is nobody left to answer.
var errClientGone = errors.New("the client is gone")

// retryError is a failure before the first byte after which another worker may be
// tried. It unwraps to what the client is told if none is.
type retryError struct {
	worker kv.WorkerID
	reason metrics.RetryReason
	err    *openai.Error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// refuse says why a request is not even looked at.
func refuse(full bool) *openai.Error {
	if full {
		return &openai.Error{Code: openai.CodeServerBusy, Err: errShed{metrics.ShedInflight},
			Message: "too many requests at a time, please retry later"}
	}
	return &openai.Error{Code: openai.CodeDraining, Err: errShed{metrics.ShedDraining},
		Message: "the server is shutting down, please retry later"}
}

// cancelled says why the request's context ended: the client left, unless it was
// the server itself.
func (c *call) cancelled() error {
	if errors.Is(context.Cause(c.ctx), ErrStopping) {
		return &openai.Error{Code: openai.CodeDraining, Err: ErrStopping,
			Message: "the server is shutting down and could not wait for this request, please retry later"}
	}
	return errClientGone
}

// placeError maps what the router said to what the client is told.
func (c *call) placeError(err error) error {
	var (
		pin   *router.PinError
		wait  *router.WaitError
		limit *sched.LimitError
	)
	switch {
	case c.ctx.Err() != nil:
		return c.cancelled()
	case c.failed != nil: // no other worker: what the last one said is the answer
		return c.failed.err
	case errors.As(err, &pin):
		switch {
		case pin.Reason == router.PinUntainted:
			return notTainted("nvext.", fmt.Sprintf("worker %d lacks one of these", pin.Worker), err)
		case pin.Reason == router.PinOverloaded:
			return c.overloaded(c.ext.PinPath(), pin.Error()+", please retry later")
		case pin.Temporary():
			return &openai.Error{Code: openai.CodeWorkerUnavailable, Param: c.ext.PinPath(), Message: pin.Error(), Err: err}
		default:
			return &openai.Error{Code: openai.CodeWorkerNotFound, Param: c.ext.PinPath(), Message: pin.Error(), Err: err}
		}
	case errors.Is(err, router.ErrPinMissing):
		return &openai.Error{Code: openai.CodeMissing, Param: "nvext.backend_instance_id", Err: err,
			Message: "the router runs in direct mode: nvext.decode_worker_id or nvext.backend_instance_id must name a worker"}
	case errors.Is(err, router.ErrOverloaded):
		return c.overloaded("", "All workers are busy, please retry later")
	case errors.As(err, &wait):
		c.rec.Rejected()
		return waitedTooLong(wait)
	case errors.As(err, &limit):
		c.rec.Rejected()
		return queueFull(limit)
	case errors.Is(err, router.ErrNoneTainted):
		return notTainted("nvext.", "no worker of the model has all of these", err)
	case errors.Is(err, router.ErrNoneAllowed):
		return &openai.Error{Code: openai.CodeWorkerNotFound, Param: "nvext.allowed_worker_ids", Err: err,
			Message: "nvext.allowed_worker_ids: none of these workers serves the model"}
	case errors.Is(err, router.ErrNoWorkers):
		return modelUnavailable(c.model.ID, err)
	default:
		return &openai.Error{Code: openai.CodeInternal, Message: "internal error", Err: err}
	}
}

// waitedTooLong turns a request away that did not get its turn in the queue.
func waitedTooLong(err *router.WaitError) *openai.Error {
	return &openai.Error{Code: openai.CodeOverloaded, Status: http.StatusServiceUnavailable, Err: errShed{metrics.ShedBusy},
		Message: fmt.Sprintf("All workers are busy, and no turn came within the %s that a request may wait; please retry later", err.Wait)}
}

// statusQueueFull is the status of a request for which there is no place in the
// queue.
const statusQueueFull = 529

// queueFull turns a request away because too much waits already. The numbers are in
// the message and beside the code.
func queueFull(err *sched.LimitError) *openai.Error {
	e := &openai.Error{Code: openai.CodeServerBusy, Status: statusQueueFull, Err: errShed{metrics.ShedQueueFull},
		Message: fmt.Sprintf("The queue of policy class %s is full: %d %s wait, the limit is %d; please retry later",
			err.Class, err.Current, err.Kind, err.Limit)}
	raw := e.AppendJSON(nil, openai.FormatOpenAI)
	raw = append(raw[:len(raw)-len("}}")], `,"policy_class":`...)
	raw = openai.AppendString(raw, err.Class)
	raw = append(raw, `,"limit_kind":`...)
	raw = openai.AppendString(raw, string(err.Kind))
	e.Raw = fmt.Appendf(raw, `,"current":%d,"limit":%d}}`, err.Current, err.Limit)
	return e
}

// notTainted refuses taints that nobody has. Where they stand depends on the route.
func notTainted(at, message string, err error) *openai.Error {
	param := at + "routing_constraints.required_taints"
	return &openai.Error{Code: openai.CodeWorkerNotFound, Param: param, Message: param + ": " + message, Err: err}
}

// unknownModel says that no worker serves a model, or that none has been heard of
// yet.
func (s *Server) unknownModel(id string) *openai.Error {
	waiting := len(s.router.Unidentified())
	switch _, all := s.router.Workers(); {
	case waiting > 0 && waiting == all:
		return &openai.Error{Code: openai.CodeModelUnavailable, Param: "model",
			Message: "no worker has said yet what it serves, please retry later"}
	case waiting > 0:
		return &openai.Error{Code: openai.CodeModelNotFound, Param: "model", Message: fmt.Sprintf(
			"The model `%s` does not exist; %d of %d workers have not said yet what they serve", short(id), waiting, all)}
	}
	return &openai.Error{Code: openai.CodeModelNotFound, Param: "model",
		Message: "The model `" + short(id) + "` does not exist"}
}

func modelUnavailable(id string, err error) *openai.Error {
	return &openai.Error{Code: openai.CodeModelUnavailable, Param: "model", Err: err,
		Message: "no worker serves the model `" + short(id) + "` at the moment, please retry later"}
}

// overloaded turns a request away because of a busy threshold.
func (c *call) overloaded(param, message string) error {
	c.rec.Rejected()
	return c.allBusy(param, message)
}

func (s *Server) allBusy(param, message string) *openai.Error {
	return &openai.Error{Code: openai.CodeOverloaded, Status: s.cfg.OverloadStatus, Param: param,
		Err: errShed{metrics.ShedBusy}, Message: message}
}

// openError settles a request that the engine never began to answer.
func (c *call) openError(err error) error {
	worker := c.placement.Last().Target.Worker
	switch failure := engine.FailureOf(c.ctx, err); failure {
	case engine.FailCancelled:
		c.placement.Done(router.Cancelled)
		return c.cancelled()
	case engine.FailLocal:
		c.working = false
		c.placement.Done(router.Refused)
		c.row.failed(failLocal, 0)
		return &openai.Error{Code: openai.CodeServerBusy, Err: err,
			Message: "the server is out of connections, please retry later"}
	case engine.FailConnect:
		c.working = false
		c.placement.Done(router.Unreachable)
		c.row.failed(failUnreachable, 0)
		c.model.Metrics.EngineError(metrics.EngineConnect)
		return &retryError{worker: worker, reason: metrics.RetryConnect, err: &openai.Error{
			Code: openai.CodeEngineError, Err: err, Message: fmt.Sprintf("worker %d cannot be reached", worker)}}
	default:
		return c.brokenOff(failure, err)
	}
}

// refusalTime is how long the words of a refusal may take.
const refusalTime = time.Second

// refused settles an answer that says "not now", before anything of it was passed
// on.
func (c *call) refused(resp *engine.Response) error {
	const enough = 64 << 10
	hurry := time.AfterFunc(refusalTime, func() { resp.Body.Close() }) // the status says enough
	body, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	hurry.Stop()
	if err != nil && c.ctx.Err() != nil {
		return c.readError(err)
	}
	worker := c.placement.Last().Target.Worker
	c.working = false
	c.placement.Done(router.Failed)
	c.row.failed(failRefused, resp.Status)
	c.model.Metrics.EngineError(metrics.EngineStatus)
	reason := metrics.RetryUnavailable
	switch resp.Status {
	case http.StatusBadGateway:
		reason = metrics.RetryBadGateway
	case http.StatusGatewayTimeout:
		reason = metrics.RetryGatewayTimeout
	}
	return &retryError{worker: worker, reason: reason, err: errorOf(resp.Status, resp.Header, body)}
}

// nonsense settles an answer that came well enough and means nothing.
func (c *call) nonsense(err error) error {
	c.placement.Done(router.Failed)
	c.row.failed(failNonsense, 0)
	c.model.Metrics.EngineError(metrics.EngineProtocol)
	return &openai.Error{Code: openai.CodeEngineError, Err: err, Message: err.Error()}
}

// engineError settles an answer that is an error of the engine, to be passed on.
func (c *call) engineError(resp *engine.Response, body []byte) error {
	c.working = false
	e := errorOf(resp.Status, resp.Header, body)
	switch status := e.HTTPStatus(); {
	case status == http.StatusNotFound:
		// It does not know what it was found to serve: it is another by now.
		c.router.Doubt(c.placement.Last().Target.Worker)
		c.placement.Done(router.Failed)
	case status >= 500:
		c.placement.Done(router.Failed)
	default:
		c.placement.Done(router.Completed)
	}
	c.row.failed(failError, resp.Status)
	// Engines refuse what is not UTF-8, each in its own words. Looking for it
	// here spares every good request the look.
	if err := c.req.CheckUTF8(); err != nil {
		return err
	}
	if len(c.keys) > 0 && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		// The client's key is not the engine's: this is between the engine and us.
		e = &openai.Error{Code: openai.CodeEngineError, Err: e,
			Message: "the engine does not accept the server's credentials"}
	}
	if e.HTTPStatus() >= 500 {
		c.model.Metrics.EngineError(metrics.EngineStatus)
	}
	return e
}

// errorOf reads an engine's error body. Engines have several shapes; OpenAI's
// passes as it is. An error inside a 200 may bring its status along.
func errorOf(status int, header http.Header, body []byte) *openai.Error {
	e := &openai.Error{Status: status, RetryAfter: header.Get("Retry-After")}
	o, err := openai.ParseObject(body)
	if err == nil {
		inner := o.Get("error")
		switch inner.Kind() {
		case '{':
			in, _ := openai.ParseObject(inner) // checked with what is around it
			if message, ok := in.Get("message").Text(); ok {
				e.Message, e.Raw = message, body
			}
			if code, ok := in.Get("code").Uint(); ok && status == http.StatusOK && code >= 400 && code < 600 {
				e.Status = int(code)
			}
		case '"':
			e.Message, _ = inner.Text()
		default:
			e.Message, _ = o.Get("message").Text()
			if e.Message == "" {
				e.Message, _ = o.Get("detail").Text()
			}
		}
	}
	if e.Status < 400 {
		e.Status = http.StatusInternalServerError
	}
	if e.Message == "" {
		e.Message = "the engine answered with status " + strconv.Itoa(e.Status)
	}
	switch {
	case e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests:
		e.Code = openai.CodeEngineBusy
	case e.Status < 500:
		e.Code = openai.CodeEngineRefused
	default:
		e.Code = openai.CodeEngineError
	}
	return e
}

// finish tells the client what went wrong, if it is still there and nothing was
// sent, and records how the request ended.
func (c *call) finish(err error) {
	kind := metrics.ErrNone
	status := http.StatusOK
	var e *openai.Error
	switch {
	case err == nil:
	case errors.Is(err, errClientGone):
		kind, status = metrics.ErrCancelled, 499
		defer c.abort()
	case errors.Is(err, errCut):
		kind, status = metrics.ErrInternal, http.StatusBadGateway
		defer c.abort()
	default:
		if !errors.As(err, &e) {
			e = &openai.Error{Code: openai.CodeInternal, Message: "internal error", Err: err}
		}
		kind, status = errorType(e), e.HTTPStatus()
		if !c.committed {
			c.fail(c.w, e)
			c.committed, c.status = true, e.HTTPStatus()
		}
	}
	c.record(kind, e)
	c.learned(time.Now(), outcomeOf(kind))
	c.endRow(err)
	c.logLine(status, err)
}

// abort breaks the client's connection off. Returning instead would end the answer
// as if it were complete, or make an empty 200 of it, should anybody listen.
func (c *call) abort() { abort(c.r) }

func abort(r *http.Request) {
	if r.Context().Value(http.ServerContextKey) != nil { // someone recovers
		panic(http.ErrAbortHandler)
	}
}

// record closes the request's metrics.
func (c *call) record(kind metrics.ErrorType, e *openai.Error) {
	now := time.Now()
	model := c.metrics.Model(metrics.UnknownModel)
	if c.model != nil {
		model = c.model.Metrics
	}
	if c.rec == nil {
		c.rec = model.Start(c.received, c.metricsEndpoint(), c.req != nil && c.req.Stream)
	}
	if kind == metrics.ErrCancelled {
		c.rec.Cancelled()
	}
	var shed errShed
	if e != nil && errors.As(e.Err, &shed) {
		model.Shed(shed.reason)
	}
	if c.placement != nil && !c.first.IsZero() {
		var itl time.Duration
		if c.tokens > 1 {
			itl = c.last.Sub(c.first) / time.Duration(c.tokens-1)
		}
		c.placement.Latency(c.first.Sub(c.sent), itl, c.promptTokens)
	}
	c.rec.End(now, kind)
	c.gen.End(now, kind == metrics.ErrNone, c.promptTokens, c.tokens)
	c.spanOutcome(kind)
}

// errorType classifies an error for the metrics.
func errorType(e *openai.Error) metrics.ErrorType {
	switch e.Code {
	case openai.CodeModelUnavailable, openai.CodeWorkerUnavailable, openai.CodeDraining:
		return metrics.ErrUnavailable
	case openai.CodeOverloaded, openai.CodeServerBusy, openai.CodeEngineBusy:
		return metrics.ErrOverload
	default:
		return metrics.ErrorTypeOf(e.HTTPStatus())
	}
}

// logLine writes the one line of a finished request, if asked to; failures of the
// server or an engine are always logged.
func (c *call) logLine(status int, err error) {
	level := slog.LevelInfo
	switch status {
	case http.StatusServiceUnavailable, statusQueueFull, c.cfg.OverloadStatus:
	default:
		if status >= 500 {
			level = slog.LevelWarn
		}
	}
	if !c.cfg.LogRequests && level == slog.LevelInfo {
		return
	}
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs, slog.String("id", c.id), slog.Int("status", status), slog.String("endpoint", string(c.metricsEndpoint())))
	if c.key != nil {
		attrs = append(attrs, slog.String("key", c.key.Name))
	}
	if c.req != nil {
		attrs = append(attrs, slog.Bool("stream", c.req.Stream))
	}
	if c.model != nil {
		attrs = append(attrs, slog.String("model", c.model.ID))
	}
	if c.placement != nil {
		leg := c.placement.Last()
		attrs = append(attrs, slog.Uint64("worker", uint64(leg.Target.Worker)), slog.Uint64("rank", uint64(leg.Target.Rank)))
	}
	if !c.first.IsZero() {
		attrs = append(attrs, slog.Duration("ttft", c.first.Sub(c.received)))
	}
	attrs = append(attrs, slog.Duration("took", time.Since(c.received)))
	if c.promptTokens > 0 {
		attrs = append(attrs, slog.Int("tokens_in", c.promptTokens))
	}
	attrs = append(attrs, slog.Int("tokens_out", c.tokens))
	if v := c.r.Header[headerXRequestID]; len(v) > 0 {
		attrs = append(attrs, slog.String("client_id", short(v[0])))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", cause(err)))
	}
	c.log.LogAttrs(context.Background(), level, "request", attrs...)
}

// cause returns the error's own text, or that of what is behind it.
func cause(err error) string {
	var e *openai.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}
