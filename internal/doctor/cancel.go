package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
)

// longAnswer is how long the answer would be that is left, in tokens.
const longAnswer = 1024

// cancel leaves a long stream and sees how long the engine goes on with it.
func (e *exam) cancel(ctx context.Context) {
	loader, ok := e.engine.(engine.Loader)
	if !ok {
		e.skip(Cancel, "the engine does not say what it runs")
		return
	}
	if e.chat == nil {
		e.skip(Cancel, "not tried")
		return
	}
	running := func() (n int, ok bool) {
		loads, err := loader.Load(ctx)
		for _, l := range loads {
			n += l.Running
		}
		return n, err == nil
	}
	before, ok := running()
	if !ok {
		e.skip(Cancel, "the engine does not say what it runs")
		return
	}
	limit := longAnswer
	if c := e.model.ContextLength; c > 0 {
		limit = max(min(limit, c/2), 1)
	}
	body := fmt.Sprintf(`{"model":%s,"messages":[{"role":"user","content":"Count to a thousand."}],"max_tokens":%d,"ignore_eos":true,"stream":true}`, quote(e.model.ID), limit)
	id := e.name()
	stream, leave := context.WithCancel(ctx)
	defer leave()
	resp, err := e.request(stream, 0, openai.Chat.Path(), body, engine.Wishes{ID: id})
	if err != nil {
		e.fail(Cancel, "", nil, "a streamed chat: %s", unanswered(err))
		return
	}
	defer resp.Body.Close()
	resp.Body.Read(make([]byte, 1)) // an error shows below
	if !wait(ctx, e.cfg.patience/2, func() bool { n, _ := running(); return n > before }) {
		e.skip(Cancel, "the engine's load does not show a request that runs")
		return
	}
	leave()
	start := time.Now()
	if a, ok := e.engine.(engine.Aborter); ok {
		_ = a.Abort(ctx, id) // it notices by itself, later
	}
	back := func() bool { n, ok := running(); return ok && n <= before }
	stopped := wait(ctx, e.cfg.patience/2, back)
	if c, ok := e.engine.(engine.Canary); ok && !stopped {
		// Some say what they run with each step only, and none came after it.
		_ = c.Canary(ctx, e.model.ID)
	}
	stopped = stopped || wait(ctx, e.cfg.patience, back)
	took := time.Since(start)
	switch {
	case stopped:
		e.ok(Cancel, CancelData{AfterMS: ms(took)}, "a request ended %s after its client had gone", short(took))
	case before > 0:
		e.skip(Cancel, "the engine is busy with other requests: it cannot be told")
	default:
		e.fail(Cancel, "see that no proxy in between keeps connections open", CancelData{AfterMS: ms(took)}, "a request still ran %s after its client had gone", short(took))
	}
}
