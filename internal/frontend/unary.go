package frontend

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// maxUnary is how much of an answer is looked at; what is longer passes unseen.
const maxUnary = 16 << 20

// relayUnary passes a whole answer on, errors included.
func (c *call) relayUnary(resp *engine.Response) error {
	from := &patient{c: c, r: resp.Body}
	body, err := io.ReadAll(io.LimitReader(from, maxUnary))
	c.idle.Stop()
	if err != nil {
		return c.readError(err)
	}
	if resp.Status >= 400 {
		return c.engineError(resp, body)
	}
	now := time.Now()
	var info openai.ChunkInfo
	whole := len(body) < maxUnary
	if whole {
		c.working = false
		if err := openai.ParseChunk(body, &info); err != nil {
			return c.nonsense(errNotJSON)
		}
		if info.Error != nil {
			return c.engineError(resp, body)
		}
		c.accountWhole(&info)
		c.row.finished(body)
		if c.wantsExt() {
			body = addExt(body, c.response(now))
		}
		c.learned(now, learn.Completed)
	}
	c.copyHeader(resp.Header)
	c.releaseBody(resp)
	c.committed, c.status = true, resp.Status
	h := c.w.Header()
	if whole {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	} else if v := resp.Header["Content-Length"]; len(v) > 0 {
		h["Content-Length"] = v
	}
	to := &limited{c: c, out: http.NewResponseController(c.w)}
	c.w.WriteHeader(resp.Status)
	_, err = to.Write(body)
	if err == nil && !whole {
		_, err = io.Copy(to, from)
		if from.err != nil && from.err != io.EOF {
			// Nothing but a broken connection can tell the client now.
			return fmt.Errorf("%w: %w", errCut, c.readError(from.err))
		}
	}
	if err != nil {
		c.placement.Done(router.Cancelled)
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	c.working = false
	c.answered()
	c.placement.Done(router.Completed)
	return nil
}

// limited writes to the client and gives it its time for each part anew.
type limited struct {
	c   *call
	out *http.ResponseController
}

func (l *limited) Write(b []byte) (int, error) {
	l.c.limitWrite(l.out, time.Now())
	n, err := l.c.w.Write(b)
	l.c.unlimitWrite(l.out)
	return n, err
}

// patient reads an engine's answer and gives it its time for each part anew.
type patient struct {
	c   *call
	r   io.Reader
	err error // that ended it
}

func (p *patient) Read(b []byte) (int, error) {
	p.c.armIdle()
	n, err := p.r.Read(b)
	p.c.idle.Stop()
	p.err = err
	return n, err
}

// accountWhole counts the tokens of a whole answer. When each of them came nobody
// knows, so no latency is derived from it.
func (c *call) accountWhole(info *openai.ChunkInfo) {
	c.tokens = info.Tokens()
	if info.TokenIDs >= 0 {
		c.counted = true
	}
	if c.usable(info.Usage) {
		c.tokens = int(info.Usage.Completion)
	}
	c.rec.CorrectTokens(c.tokens)
	c.placement.Whole(c.tokens)
	c.correct(info.Usage)
	c.tiers(info.Tiers)
	c.answered()
}
