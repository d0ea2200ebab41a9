package frontend

import (
	"errors"
	"time"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// What is recorded of a chat or completion on its way from router to engine, and of how
// much of its prompt the engine had. Here an engine that does not say what it found has
// found nothing: several leave that out where it is none. For verdicts on predictions it
// stays unknown.

// place has the router place the request.
func (c *call) place() (*router.Placement, error) {
	defer c.finding()()
	return c.router.Place(c.ctx, &c.placing)
}

// finding records that the router is asked for a worker, and with what it returns that it
// has answered.
func (s *Server) finding() (found func()) {
	start, find := time.Now(), s.metrics.FindWorker()
	find.Begin()
	return func() { find.End(time.Since(start)) }
}

// unplaced records that the router found no worker, unless the client is to blame or gone,
// or there was one before. It returns err, which says so to the client.
func (c *call) unplaced(err error) error {
	var e *openai.Error
	if c.failed != nil || !errors.As(err, &e) || e.Code == openai.CodeDraining {
		return err
	}
	if kind := errorType(e); kind != metrics.ErrValidation && kind != metrics.ErrNotFound {
		c.gen.Unplaced()
	}
	return err
}

// failedByEngine reports whether an attempt failed because the engine did.
func failedByEngine(err error) bool {
	var e *openai.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case openai.CodeEngineError, openai.CodeEngineTimeout, openai.CodeEngineBusy:
		return true
	default:
		return false
	}
}

// prefixClass says how the request tells what it has in common with others.
func (c *call) prefixClass() metrics.PrefixClass {
	switch {
	case c.ext == nil:
		return metrics.PrefixNone
	case c.ext.AgentHints != nil && c.ext.AgentHints.PrefixID != nil:
		return metrics.PrefixHinted
	case c.ext.SessionControl != nil || c.ext.Session != nil:
		return metrics.PrefixSession
	default:
		return metrics.PrefixNone
	}
}

// efficiency notes how much of the prompt the engine had. The usage is usable.
func (c *call) efficiency(u *openai.Usage) {
	cached := uint64(0)
	if u.HasCached {
		cached = min(u.Cached, u.Prompt)
	}
	c.gen.Usage(int(u.Prompt), int(cached))
}

// tiers notes where the engine had it, if it says so.
func (c *call) tiers(t *openai.TierBlocks) {
	if t != nil && max(t.Device, t.Host, t.Disk) < absurd {
		c.gen.Blocks(metrics.TierBlocks{Device: t.Device, Host: t.Host, Disk: t.Disk})
	}
}
