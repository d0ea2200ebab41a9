package frontend

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/trace"
	"github.com/stator-ai/stator/nvext"
)

// RowWriter takes the rows of the request trace; a *[trace.Writer] is one. Its
// methods are called from many goroutines and must not block.
type RowWriter interface {
	// Write takes a row over, and calls its Prepare before it looks at it.
	Write(*trace.Row) bool
	// Do calls f in a goroutine of its own, before the rows that are written
	// later, and reports whether it will. Until then f keeps so many bytes alive.
	Do(f func(), bytes int64) bool
}

// row is what a request leaves in the trace. Every request that was let in leaves
// one, whatever becomes of it, except those that only ask where they would run:
// nothing of them does. It is filled in by the request's own goroutine as things
// become known and handed over before the request counts as gone.
type row struct {
	trace.Row
	held int64 // bytes of the body budget that its text takes
	late *latePrompt
}

// Why an attempt failed.
const (
	failUnreachable = "unreachable"   // no connection
	failLocal       = "local"         // no socket left on this machine
	failRefused     = "refused"       // the engine said "not now"
	failError       = "error"         // the engine answered with an error
	failNonsense    = "nonsense"      // the engine's answer made no sense
	failTimeout     = "timeout"       // the engine sent nothing for too long
	failBroken      = "broken"        // the connection broke
	failCancelled   = "cancelled"     // the client left, or the server could not wait
	failInternal    = "internal"      // a bug
	failNoWorkers   = "no_workers"    // nobody there to choose
	failOverloaded  = "overloaded"    // everyone is above a busy threshold
	failNotAllowed  = "none_allowed"  // nobody left by the request's own list
	failNotTainted  = "none_tainted"  // nobody has the taints that the request requires
	failQueueTime   = "queue_timeout" // it waited too long for its turn
	failQueueFull   = "queue_full"    // too many waited already
	failPin         = "pin"           // the worker that the request names cannot have it
)

// openRow begins the request's row if there is a trace.
func (c *call) openRow() {
	if c.cfg.Trace == nil {
		return
	}
	c.row = &row{Row: trace.Row{
		RequestID:    c.id,
		Endpoint:     string(c.metricsEndpoint()),
		ArrivalUS:    c.received.UnixMicro(),
		InputGuessed: true, // until it is known
		TokenSource:  tokenize.None.String(),
	}}
	if v := c.r.Header[headerXRequestID]; len(v) > 0 && len(v[0]) <= maxClientID {
		c.row.XRequestID = v[0]
	}
	if c.key != nil {
		c.row.Key = c.key.Name
	}
}

// describeRow notes what is asked for, while the body is still there.
func (c *call) describeRow() {
	r := c.row
	if r == nil {
		return
	}
	if c.placing.QueryOnly {
		c.row = nil
		return
	}
	c.placing.ExplainAll = true
	r.InputTokens, r.InputGuessed = c.placing.PromptTokens, c.placing.Guess
	r.TokenSource, r.Tokenizer = c.prompt.Source.String(), c.prompt.Fingerprint
	if c.endpoint == openai.Completions {
		if n := len(c.req.Batch()); n != 1 {
			r.Prompts = n
		}
	}
	if n := c.req.N; n != 1 {
		r.Choices = int(min(n, maxCount))
	}
	if n := c.req.MaxTokens; n != 0 {
		r.MaxOutputTokens = count(n)
	}
	if c.model.Adapter {
		r.Adapter = c.model.ID
	}
	r.Salted = c.wishes.Salt != ""
	r.Inferred = trace.InferredOf(c.placing.Expected)
	if c.cfg.TraceText {
		c.textRow()
	}
	if c.ext == nil {
		return
	}
	r.RequestTimestampMS = c.ext.RequestTimestampMS
	r.Hints = trace.HintsOf(c.ext)
	r.Constraints = trace.ConstraintsOf(c.ext, c.answeringPhase())
	if s := c.ext.Session; s != nil {
		r.SessionID, r.ParentSessionID = s.ID, s.ParentID
	}
	if s := c.ext.SessionControl; s != nil {
		r.SessionID = s.SessionID
	}
}

// maxCount is the largest count that is worth its digits.
const maxCount = 1 << 31

func count(n uint64) *int {
	v := int(min(n, maxCount))
	return &v
}

// textRow notes the prompt's text: formatted if that is known, else as the client
// sent it. It counts as part of the body for as long as the request lasts, and is
// left out if there is no room for it.
func (c *call) textRow() {
	text, ok := string(c.prompt.Text), c.prompt.Text != nil
	if !ok && c.endpoint == openai.Completions {
		text, ok = c.req.Prompt.Text()
	}
	if !ok {
		text = string(c.req.Messages) + string(c.req.Prompt)
	}
	if n := int64(len(text)); c.hold(n) {
		c.row.Text, c.row.held = text, n
	}
}

// placedRow notes a placement, or that there was none.
func (c *call) placedRow(p *router.Placement, err error) {
	r := c.row
	if r == nil {
		return
	}
	a := trace.Attempt{PlacedMS: trace.MS(time.Since(c.received))}
	if err != nil {
		a.Failure = placeFailure(err)
		r.Attempts = append(r.Attempts, a)
		return
	}
	a.Routing = p.Routing
	r.Attempts = append(r.Attempts, a)
	r.PlacedMS = a.PlacedMS
	r.PredictedCachedTokens = p.Routing.PredictedCachedTokens
	c.hashPrompt(p.BlockSize())
}

func placeFailure(err error) string {
	var (
		pin   *router.PinError
		wait  *router.WaitError
		limit *sched.LimitError
	)
	switch {
	case errors.Is(err, router.ErrNoWorkers):
		return failNoWorkers
	case errors.As(err, &wait):
		return failQueueTime
	case errors.As(err, &limit):
		return failQueueFull
	case errors.Is(err, router.ErrNoneTainted):
		return failNotTainted
	case errors.Is(err, router.ErrOverloaded):
		return failOverloaded
	case errors.Is(err, router.ErrNoneAllowed):
		return failNotAllowed
	case errors.Is(err, router.ErrPinMissing), errors.As(err, &pin):
		return failPin
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return failCancelled
	default:
		return failInternal
	}
}

// hashPrompt notes the full blocks of the prompt as those have them who got it
// first. Several prompts are not one sequence and have none, nor has one that no
// engine can run.
func (c *call) hashPrompt(blockSize int) {
	r := c.row
	if r.BlockSize > 0 || r.Prompts > 0 || blockSize < 1 || len(c.prompt.IDs) < blockSize {
		return
	}
	if limit := c.model.ContextLength; limit > 0 && len(c.prompt.IDs) > limit {
		return
	}
	h := tokenize.Hashing{Seed: c.hashSeed(), Size: blockSize}
	blocks := c.prompt.Blocks
	if c.hashing != h { // the tokens are the client's, or workers differ
		blocks = kv.AppendBlocks(make([]kv.Block, 0, len(c.prompt.IDs)/blockSize), h.Seed, c.prompt.IDs, blockSize)
	}
	r.BlockSize, r.BlockHashes = blockSize, hashesOf(blocks)
}

// hashSeed returns the seed of the hashes of the prompt's blocks.
func (c *call) hashSeed() uint64 {
	adapter := ""
	if c.model.Adapter {
		adapter = c.model.ID
	}
	return kv.HashSeed(adapter, c.wishes.Salt)
}

func hashesOf(blocks []kv.Block) trace.Hashes {
	out := make(trace.Hashes, len(blocks))
	for i, b := range blocks {
		out[i] = b.ID
	}
	return out
}

// latePrompt is what the trace wants to know of a prompt that was not tokenized
// for any other reason. It is found out by the trace's own goroutine, while the
// engine answers: nobody waits for it.
type latePrompt struct {
	withText bool
	hashing  tokenize.Hashing // nothing if there are several prompts

	tokens    int
	source    tokenize.Source
	tokenizer string
	hashes    trace.Hashes
	text      string
}

// hashLater has the prompt tokenized and hashed for the trace, and reports whether
// that keeps the body. A request whose answer has begun has a prompt that is worth
// it, unless that was tried in vain before.
func (c *call) hashLater() bool {
	r := c.row
	if r == nil || c.prompt.Source != tokenize.None || c.tokenless {
		return false
	}
	src := c.source(c.tokensOf(c.model))
	if src == nil {
		return false
	}
	late := &latePrompt{withText: r.Text != ""}
	if r.Prompts == 0 {
		late.hashing = tokenize.Hashing{Seed: c.hashSeed(), Size: c.placement.BlockSize()}
	}
	if !c.cfg.Trace.Do(func() { late.find(src) }, int64(len(c.req.Raw()))) {
		c.metrics.TracePromptSkipped()
		return false
	}
	r.late = late
	return true
}

// find makes the tokens and keeps no more of them than the row needs: it lives as
// long as the stream.
func (l *latePrompt) find(src *promptSource) {
	found, err := src.encode(context.Background(), l.hashing)
	if err != nil {
		src.model.Metrics.TokensSkipped(skipReason(err)) // the engine understands it better
		return
	}
	l.hashes = hashesOf(found.Blocks)
	if l.withText {
		l.text = string(found.Text)
	}
	l.tokens, l.source, l.tokenizer = len(found.IDs), found.Source, found.Fingerprint
}

// fill puts it into the row, after find and in the same goroutine.
func (l *latePrompt) fill(r *trace.Row) {
	if l.source == tokenize.None {
		return
	}
	r.InputTokens, r.InputGuessed = l.tokens, false
	r.TokenSource, r.Tokenizer = l.source.String(), l.tokenizer
	if l.text != "" {
		r.Text = l.text
	}
	if len(l.hashes) > 0 && r.Outcome != trace.OutcomeRefused {
		r.BlockSize, r.BlockHashes = l.hashing.Size, l.hashes
	}
}

// failed notes why the latest attempt failed, with the engine's status if it
// gave one. The first reason stays.
func (r *row) failed(why string, status int) {
	if r == nil || len(r.Attempts) == 0 {
		return
	}
	if a := &r.Attempts[len(r.Attempts)-1]; a.Failure == "" {
		a.Failure, a.Status = why, status
	}
}

// usage notes what the engine counted.
func (r *row) usage(u *openai.Usage) {
	if r == nil {
		return
	}
	r.EngineInputTokens = count(u.Prompt)
	if u.HasCached && u.Cached <= u.Prompt {
		r.CachedTokens = count(u.Cached)
	}
}

// finished notes why the answer ended, from a chunk or a body in which a choice
// does; that of the first choice if there are several.
func (r *row) finished(data []byte) {
	if r == nil || r.FinishReason != "" {
		return
	}
	o, err := openai.ParseObject(data)
	if err != nil {
		return
	}
	_ = o.Get("choices").Elements(func(v openai.Value) bool {
		if choice, err := openai.ParseObject(v); err == nil {
			r.FinishReason, _ = choice.Get("finish_reason").Text()
		}
		return r.FinishReason == ""
	})
}

// endRow notes how the request ended.
func (c *call) endRow(err error) {
	r := c.row
	if r == nil {
		return
	}
	var e *openai.Error
	switch {
	case err == nil:
		r.Outcome = trace.OutcomeCompleted
	case errors.Is(err, errClientGone):
		r.Outcome = trace.OutcomeCancelled
		r.failed(failCancelled, 0)
	case errors.As(err, &e):
		r.Outcome, r.ErrorCode = c.outcome(e), string(e.Code)
		if e.Code == openai.CodeDraining {
			r.failed(failCancelled, 0)
		}
	default:
		r.Outcome, r.ErrorCode = trace.OutcomeError, string(openai.CodeInternal)
	}
}

// outcome tells requests that were turned away from those that failed: by the
// engine or before one began.
func (c *call) outcome(e *openai.Error) trace.Outcome {
	switch {
	case e.Code == openai.CodeClientClosed:
		return trace.OutcomeCancelled
	case e.Code == openai.CodeInternal:
		return trace.OutcomeError
	case c.placement == nil, e.HTTPStatus() < 500, e.Code == openai.CodeEngineBusy, e.Code == openai.CodeServerBusy:
		return trace.OutcomeRefused
	default:
		return trace.OutcomeError
	}
}

// closeRow completes the row and hands it over. It runs on every way out; after a
// panic nobody has said how the request ended.
func (c *call) closeRow() {
	r := c.row
	if r == nil {
		return
	}
	c.row = nil
	c.free(r.held)
	if r.Outcome == "" {
		r.Outcome, r.ErrorCode = trace.OutcomeError, string(openai.CodeInternal)
		r.failed(failInternal, 0)
		if c.status == 0 {
			c.status = http.StatusInternalServerError
		}
	}
	if r.Outcome == trace.OutcomeRefused { // no cache has seen it
		r.BlockSize, r.BlockHashes = 0, nil
	}
	if c.model != nil {
		r.Model = c.model.ID
	}
	r.Stream = c.req != nil && c.req.Stream
	r.Status = c.status
	r.TotalTimeMS = trace.MS(time.Since(c.received))
	if c.placement != nil {
		r.SentMS = trace.MS(c.sent.Sub(c.received))
		if c.status > 0 && c.status < 300 {
			r.Worker = c.workerIDs()
		}
	}
	if !c.first.IsZero() {
		r.TTFTMS = trace.MS(c.first.Sub(c.received))
		if c.tokens > 1 {
			r.AvgITLMS = trace.MS(c.last.Sub(c.first) / time.Duration(c.tokens-1))
		}
	}
	if c.counted {
		n := c.tokens // the row must not keep the call
		r.OutputTokens = &n
	}
	if r.late != nil {
		r.Prepare = r.late.fill
	}
	c.cfg.Trace.Write(&r.Row)
}

// brief returns an explanation fit for a client: with a few candidates, however
// many there are.
func brief(r *nvext.Routing) *nvext.Routing {
	if r == nil || len(r.Candidates) <= nvext.MaxCandidates {
		return r
	}
	cut := *r
	cut.Candidates = r.Candidates[:nvext.MaxCandidates]
	return &cut
}
