package frontend

import (
	"time"

	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/nvext"
)

// What is expected of a request: what its client hints and, where the server learns, what
// calls like it came to. A hint goes before anything that is inferred, member by member.

// inferredOSL is a length that was inferred for an answer, with what from. It is nothing if
// none was.
type inferredOSL struct {
	tokens int
	from   learn.Source
}

// expect tells the router what is expected of the request, and has the learner know of it.
func (c *call) expect() {
	var h *nvext.AgentHints
	if c.ext != nil {
		h = c.ext.AgentHints
	}
	learns := c.cfg.Learner != nil && !c.several && c.req.N == 1 // of several answers nobody counts each
	if h == nil && !learns {
		return
	}
	if h == nil {
		h = new(nvext.AgentHints)
	}
	e := &nvext.Expected{RemainingCalls: h.RemainingCalls, IATMS: h.IATMS}
	if h.OSL != nil {
		e.OSL = new(uint32(c.placing.ExpectedOutput))
	}
	if learns {
		c.infer(e, h)
	}
	if e.OSL != nil || e.RemainingCalls != nil || e.IATMS != nil {
		c.placing.Expected = e
	}
}

// infer completes what is expected by what was learned, and begins the lesson.
func (c *call) infer(e *nvext.Expected, h *nvext.AgentHints) {
	key := c.learnKey()
	p := c.cfg.Learner.Predict(c.received, key)
	if e.OSL == nil && p.OSL.Known() {
		n := c.expectedOutput(p.OSL.Value)
		c.placing.ExpectedOutput, c.inferred = n, inferredOSL{n, p.OSL.Source}
		e.OSL = new(uint32(n))
		c.inferredHint(e, nvext.InferredOSL, p.OSL)
	}
	switch {
	case key.Last:
		e.RemainingCalls = new(uint64)
	case h.TotalRequests != nil && p.Number > 0:
		e.RemainingCalls = new(*h.TotalRequests - min(*h.TotalRequests, uint64(p.Number)))
	case h.TotalRequests == nil && e.RemainingCalls == nil && p.Remaining.Known():
		e.RemainingCalls = new(uint64(p.Remaining.Value))
		c.inferredHint(e, nvext.InferredRemainingCalls, p.Remaining)
	}
	over := e.RemainingCalls != nil && *e.RemainingCalls == 0 // no call will follow
	if e.IATMS == nil && p.IATMS.Known() && !over {
		e.IATMS = new(uint64(p.IATMS.Value))
		c.inferredHint(e, nvext.InferredIAT, p.IATMS)
	}
	if !c.placing.QueryOnly {
		c.lesson = c.cfg.Learner.Begin(c.received, key)
	}
}

// inferredHint notes that a member of e was inferred.
func (c *call) inferredHint(e *nvext.Expected, member nvext.InferredField, from learn.Estimate) {
	e.Inferred = append(e.Inferred, nvext.Inferred{
		Field: member, Source: nvext.Source(from.Source.String()), Samples: from.Samples,
	})
	if !c.placing.QueryOnly {
		c.model.Metrics.HintInferred(metrics.InferredField(member), metrics.InferredSource(from.Source.String()))
	}
}

// learned ends the lesson. It comes before the last bytes of the answer, since whoever has
// them may call again at once. Repeats are ignored.
func (c *call) learned(now time.Time, o learn.Outcome) {
	if c.cfg.Learner == nil {
		return
	}
	tokens := -1
	if c.counted {
		tokens = c.tokens
	}
	c.lesson.End(now, tokens, o)
	if c.inferred.from != learn.None && o == learn.Completed {
		c.model.Metrics.InferredOSL(metrics.InferredSource(c.inferred.from.String()), c.inferred.tokens, tokens)
	}
	c.inferred = inferredOSL{}
}

// outcomeOf says what a request that ended so has to teach.
func outcomeOf(kind metrics.ErrorType) learn.Outcome {
	switch kind {
	case metrics.ErrNone:
		return learn.Completed
	case metrics.ErrCancelled:
		return learn.Cancelled
	default:
		return learn.Failed
	}
}

// Names of conversations, apart from each other.
const (
	namedPrefix  = "prefix"
	namedSession = "session"
)

// learnKey says what the request is a call of. A conversation has the name that the client
// gives it, as a prefix or a session; else a chat is told by its beginning, up to its first
// message of a user, and a completion is none. The family of a chat is what comes before
// that message, with the tools, and that of a completion the beginning of its prompt.
func (c *call) learnKey() learn.Key {
	k := learn.Key{Scope: learn.ScopeOf(c.model.ID, c.tenant())}
	if c.endpoint == openai.Completions {
		p := c.req.Prompt
		k.Family = learn.Hash{}.Add(p[:min(len(p), completionFamily)])
	} else {
		chatKey(&k, c.req.Get("tools"), c.req.Messages)
	}
	if c.ext == nil {
		return k
	}
	control, session := c.ext.SessionControl, c.ext.Session
	switch {
	case c.ext.AgentHints != nil && c.ext.AgentHints.PrefixID != nil:
		name(&k, namedPrefix, *c.ext.AgentHints.PrefixID)
	case control != nil:
		name(&k, namedSession, control.SessionID)
	case session != nil:
		name(&k, namedSession, session.ID, session.AgentID)
	}
	k.Last = control != nil && control.Action == nvext.SessionClose || session != nil && session.Final
	return k
}

// name gives the conversation the client's name.
func name(k *learn.Key, names ...string) {
	var h learn.Hash
	for _, n := range names {
		h = h.AddString(n)
	}
	k.Conversation, k.Turn = h, learn.AnyTurn
}

// completionFamily is how much of a completion's prompt its family goes by.
const completionFamily = 1 << 10
