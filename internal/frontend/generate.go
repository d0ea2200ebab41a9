package frontend

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/nvext"
)

// maxRetries is how many other workers a request is offered to before its first
// byte.
const maxRetries = 2

// call is one request to an engine on its way through the server. It belongs to the
// goroutine of its handler.
type call struct {
	*Server
	w        http.ResponseWriter
	r        *http.Request
	endpoint openai.Endpoint // of a request that is looked into
	passage  *passage        // of one that is not; nil for the others
	key      *Key            // nil without keys
	id       string
	received time.Time
	arrived  time.Time  // when the body was all there
	span     trace.Span // nil without tracing

	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *time.Timer // cancels ctx when the engine is silent for too long

	held      int64 // bytes taken from the body budget
	req       *openai.Request
	ext       *nvext.NvExt
	prompt    tokenize.Result
	hashing   tokenize.Hashing // of the prompt's blocks, if they were hashed
	tokenless bool             // the prompt's tokens were sought in vain
	several   bool             // there are several prompts
	override  *router.Override // of the router's settings; nil for none
	edits     []openai.Edit
	wishes    engine.Wishes
	media     int // parts of the prompt that are not text; negative while nobody has looked
	model     *router.Model
	placing   router.Request
	placement *router.Placement
	placed    router.Placement // the first one, so that placing does not allocate
	failed    *retryError      // of the attempt before, if there was one

	lesson    learn.Call // nothing unless the server learns
	inferred  inferredOSL
	row       *row             // nil without a trace
	rec       *metrics.Request // nil until the model is known
	sent      time.Time        // when the engine was asked last
	first     time.Time        // when the first token came
	last      time.Time        // when the latest tokens came
	tokens    int              // generated so far
	counted   bool             // these were counted, by us or by the engine
	status    int              // of the answer; 0 until its header is written
	committed bool             // the answer's header is written
	working   bool             // an engine was asked and has not come to its end

	gen metrics.Generation // nothing unless a chat or completion is on its way

	promptTokens int // as we or the engine count; 0 while nobody has
	engineTokens int // of the prompt, as the engine counts; 0 while it has not
}

// generate serves a request that an engine answers; the path says of which kind.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, key *Key) {
	c := &call{Server: s, w: w, r: r, key: key, received: time.Now(), id: requestID(r.Header), media: -1}
	switch r.URL.Path {
	case openai.Chat.Path():
	case openai.Completions.Path():
		c.endpoint = openai.Completions
	default:
		c.passage = newPassage(r.URL.Path)
	}
	c.ctx, c.cancel = context.WithCancelCause(r.Context())
	c.startSpan()
	c.answerHeader()
	defer c.close()
	if ok, full := s.enter(); !ok {
		c.finish(refuse(full))
		return
	}
	defer s.leave()
	c.openRow()
	defer c.closeRow()
	c.finish(c.serve())
}

// serve takes the request from the client's bytes to the end of the answer. The
// error is nil when the client got all of it.
func (c *call) serve() error {
	if err := c.prepare(); err != nil {
		return err
	}
	c.metrics.Stage(metrics.StagePreprocess, time.Since(c.arrived))
	if c.placing.QueryOnly {
		return c.query()
	}
	if c.passage == nil {
		c.gen = c.model.Metrics.Generate(time.Now(), c.prefixClass())
	}
	for {
		err := c.attempt()
		var retry *retryError
		if !errors.As(err, &retry) || c.placing.Pinned || c.placing.Attempt == maxRetries {
			return err
		}
		c.failed = retry
		c.model.Metrics.Retry(retry.reason)
		c.placing.Attempt++
		c.placing.Waited += c.placement.Waited()
		c.placing.Into = nil // that of the first attempt is used up
		c.placing.Exclude = append(c.placing.Exclude, retry.worker)
	}
}

// prepare finds out all that the router and the engine have to know.
func (c *call) prepare() error {
	if c.passage != nil {
		return c.pass()
	}
	if err := c.decode(); err != nil {
		return err
	}
	if err := c.tokenize(); err != nil {
		return err
	}
	c.describe()
	return nil
}

// decode reads and checks the body, lays the headers over its nvext and finds
// the model.
func (c *call) decode() error {
	body, held, err := c.readBody(c.w, c.r, c.cfg.Limits.Body)
	c.held = held
	if err != nil {
		return err
	}
	c.arrived = time.Now()
	c.req, err = openai.ParseRequest(c.endpoint, body)
	if c.req != nil { // as far as it could be read
		c.model, _ = c.router.Lookup(c.req.Model)
	}
	if err != nil {
		return err
	}
	if c.cfg.Strict {
		if err := c.req.Strict(); err != nil {
			return err
		}
	}
	if err := c.readExt(); err != nil {
		return err
	}
	if c.model == nil {
		return c.unknownModel(c.req.Model)
	}
	// Who asks for running figures may get them from an engine without asking for more.
	c.wishes.Usage = c.req.Stream && !c.req.IncludeUsage && !c.req.RunningUsage && !c.cfg.NoUsage
	c.known()
	return nil
}

// known goes on with a request whose model is served.
func (c *call) known() {
	if m := c.model; m.Adapter || m.ID != c.req.Model { // each engine knows adapters by names of its own
		c.wishes.Model, c.wishes.Parent = m.ID, m.Parent
	}
	c.checkTokens()
	c.rec = c.model.Metrics.Start(c.received, c.metricsEndpoint(), c.req.Stream)
	c.rec.Ready(time.Now())
}

// attempt places the request, sends it to the engine and relays the answer. A
// *retryError says that another worker may be tried.
func (c *call) attempt() (err error) {
	if c.idle != nil {
		c.idle.Stop() // the engine of the attempt before is silent for good
	}
	start := time.Now()
	placement, err := c.place()
	c.placedRow(placement, err)
	if err != nil {
		return c.unplaced(c.placeError(err))
	}
	// A panic leaves the booking to close; every other way out settles it.
	c.placement = placement
	leg := placement.Last()
	c.sent = time.Now()
	c.metrics.Stage(metrics.StageRoute, c.sent.Sub(start))
	c.gen.Sent(c.sent, uint64(leg.Target.Worker), leg.Target.Rank)
	defer func() { c.gen.Returned(time.Now(), failedByEngine(err)) }()
	c.armIdle()
	c.wishes.ID = c.attemptID(c.id)
	c.working = true
	resp, err := leg.Engine.Open(c.ctx, leg.Target, c.engineRequest(leg))
	if err != nil {
		return c.openError(err)
	}
	defer resp.Body.Close()
	c.metrics.Stage(metrics.StageTransportRoundtrip, time.Since(c.sent))
	switch {
	case isTransient(resp.Status):
		return c.refused(resp)
	case resp.Status < 200 || resp.Status > 299 && resp.Status < 400 || resp.Status > 599:
		return c.nonsense(errStatus)
	case isEncoded(resp.Header):
		return c.nonsense(errEncoded)
	case c.passage != nil && resp.Status < 300:
		return c.relayBytes(resp)
	case resp.Status < 300 && c.req.Stream && isEventStream(resp.Header):
		return c.relayStream(resp)
	default:
		return c.relayUnary(resp)
	}
}

// engineRequest returns what the engine is asked.
func (c *call) engineRequest(leg *router.Leg) *engine.Request {
	r := &engine.Request{
		Path:   c.endpoint.Path(),
		Body:   &c.req.Object,
		Edits:  c.edits,
		Header: c.engineHeader(),
		Ranked: leg.Ranked,
		Wishes: c.wishes,
	}
	if c.passage != nil {
		c.passage.fill(c, r)
	}
	return r
}

// armIdle starts the watch for a silent engine, or starts it over.
func (c *call) armIdle() {
	if c.idle == nil {
		c.idle = time.AfterFunc(c.cfg.Limits.EngineIdle, func() { c.cancel(engine.ErrIdle) })
		return
	}
	c.idle.Reset(c.cfg.Limits.EngineIdle)
}

// releaseBody lets the body go once no retry can need it. Its memory is used
// again only if the engine's adapter has let go of it, too.
func (c *call) releaseBody(resp *engine.Response) {
	c.free(c.held)
	c.held = 0
	raw := c.req.Raw()
	kept := c.hashLater()
	c.req.Object = openai.Object{}
	c.req.Messages, c.req.Prompt, c.req.NvExt = nil, nil, nil
	c.prompt.IDs, c.prompt.Text, c.prompt.Blocks = nil, nil, nil
	c.placing.Tokens, c.placing.Blocks, c.placing.Text = nil, nil, nil
	c.edits = nil
	if c.passage != nil && c.passage.raw != nil {
		raw, c.passage.raw = c.passage.raw, nil
	}
	if !kept && resp.Sent != nil && resp.Sent() {
		giveBuffer(raw)
	}
}

// close releases whatever the request still holds. It runs on every way out,
// panics included.
func (c *call) close() {
	c.cancel(context.Canceled)
	if c.idle != nil {
		c.idle.Stop()
	}
	if c.working {
		c.abortEngine()
	}
	if c.placement != nil {
		c.placement.Done(router.Cancelled)
	}
	c.lesson.End(time.Now(), 0, learn.Failed) // unless it ended before
	c.free(c.held)
	if c.rec != nil {
		c.rec.End(time.Now(), metrics.ErrInternal) // unless it ended before
	}
	c.gen.End(time.Now(), false, 0, 0)
	c.endSpan()
}

func (c *call) metricsEndpoint() metrics.Endpoint {
	if c.passage != nil {
		return c.passage.label
	}
	if c.endpoint == openai.Completions {
		return metrics.EndpointCompletions
	}
	return metrics.EndpointChatCompletions
}

func isTransient(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// What makes an answer nonsense.
var (
	// errStatus: the engine redirects, or has made a status up.
	errStatus = errors.New("the engine answered with a status that makes no sense here")
	// errEncoded: the engine compresses what it must not.
	errEncoded = errors.New("the engine's answer is compressed, although identity was asked for")
	errNotJSON = errors.New("the engine's answer is not JSON")
)
