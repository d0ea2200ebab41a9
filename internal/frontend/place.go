package frontend

import (
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/nvext"
)

// describe fills in what the router has to know.
func (c *call) describe() {
	tokens, guess := c.promptLength()
	if !guess {
		c.promptTokens = tokens
		c.rec.Prompt(tokens)
	}
	c.several = c.batched()
	c.placing = router.Request{
		Model:        c.model,
		ID:           c.id,
		PromptTokens: tokens,
		Guess:        guess,
		Whole:        !c.req.Stream,
		Arrived:      time.Now(),
		Tenant:       c.tenant(),
		Override:     c.override,
		Explain:      c.ext.Wants("routing"),
		QueryOnly:    c.ext.QueryOnly(),
		Into:         &c.placed,
	}
	if c.router.Mode() == router.KV {
		c.describePrompt()
	}
	if c.ext != nil {
		c.describeExt()
	}
	c.expect()
	c.describeRow()
}

// tenant is whose the request is to the queue: that of the cache salt, else the key.
func (c *call) tenant() string {
	if c.wishes.Salt != "" || c.key == nil {
		return c.wishes.Salt
	}
	return "key\x00" + c.key.Name // which no salt of a tenant is
}

// describePrompt fills in what prompts are told apart by. Several prompts are not
// one sequence, and nothing of them is known to be in a cache.
func (c *call) describePrompt() {
	q := &c.placing
	q.HashSeed = c.hashSeed()
	switch {
	case c.several:
	case c.prompt.Source == tokenize.None:
		q.Text = c.promptText()
	default:
		q.Tokens = c.prompt.IDs
		q.Blocks, q.BlockSize = c.prompt.Blocks, c.hashing.Size
	}
}

// promptText returns what stands in for a prompt's tokens: the bytes of it that the
// client sent, in the order in which templates have them. Where that takes a copy and
// there is no room for one, it returns none.
func (c *call) promptText() []byte {
	if c.endpoint == openai.Completions {
		if batch := c.req.Batch(); len(batch) == 1 {
			return batch[0]
		}
		return nil
	}
	tools := c.req.Get("tools")
	switch {
	case !tools.Present():
		tools = nil
	case len(tools) >= router.MaxText:
		return tools
	}
	if tools == nil && c.countMedia() == 0 {
		return c.req.Messages
	}
	n := min(router.MaxText, len(tools)+len(c.req.Messages)+c.countMedia()*refSize)
	if !c.hold(int64(n)) {
		return nil
	}
	c.held += int64(n)
	text := append(make([]byte, 0, n), tools...)
	return appendMessages(text, c.req.Messages)
}

// metaPolicyClass is the key of the metadata header that names a policy class.
const metaPolicyClass = "policy-class"

// describeExt fills in what nvext says.
func (c *call) describeExt() {
	q, ext := &c.placing, c.ext
	q.Class = ext.Meta[metaPolicyClass]
	q.Allowed = ext.AllowedWorkerIDs
	if worker, rank, ok := ext.Pin(c.answeringPhase()); ok {
		q.Pinned, q.Pin, q.PinRank = true, kv.WorkerID(worker), rank
	}
	if t := ext.RoutingConstraints; t != nil {
		q.RequiredTaints, q.PreferredTaints = t.RequiredTaints, t.PreferredTaints
	}
	if s := ext.Session; s != nil {
		q.Prefix = s.ID + "\x00" + s.AgentID
	}
	h := ext.AgentHints
	if h == nil {
		return
	}
	if h.PrefixID != nil {
		q.Prefix = *h.PrefixID
	}
	if h.TotalRequests != nil {
		q.TotalRequests = *h.TotalRequests
	}
	q.Jump = h.PriorityJump(c.key != nil && c.key.PreferSensitivity)
	if h.StrictPriority != nil {
		q.Tier = *h.StrictPriority
	}
	if h.OSL != nil {
		q.ExpectedOutput = c.expectedOutput(*h.OSL)
	}
}

// expectedOutput bounds what the client expects by what it would take.
func (c *call) expectedOutput(osl uint32) int {
	n := uint64(min(osl, maxCount))
	if most := c.req.MaxTokens; most > 0 {
		n = min(n, most)
	}
	return int(n)
}

// answeringPhase is the phase that a pin is for.
func (c *call) answeringPhase() nvext.Phase {
	if c.router.Mode() == router.Direct {
		return nvext.Decode
	}
	return nvext.Aggregated
}
