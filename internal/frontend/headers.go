package frontend

import (
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/stator-ai/stator/internal/engine"
)

// engineHeader returns the headers that go to the engine: few, and chosen. The
// client's credentials go along only when they are not ours to check.
func (c *call) engineHeader() http.Header {
	h := make(http.Header, 10)
	id := []string{c.id}
	h[headerRequestID], h[headerXRequestID] = id, id
	h["User-Agent"] = userAgent
	for _, name := range [...]string{"Accept", headerTraceparent, headerTracestate} {
		if v := c.r.Header[name]; len(v) > 0 {
			h[name] = v
		}
	}
	if len(c.keys) == 0 {
		if v := c.r.Header["Authorization"]; len(v) > 0 {
			h["Authorization"] = v
		}
	}
	if c.ext != nil && c.ext.RequestTimestampMS != nil {
		h[engine.HeaderArrival] = []string{strconv.FormatFloat(*c.ext.RequestTimestampMS, 'f', -1, 64)}
	}
	c.injectSpan(h)
	return h
}

var userAgent = []string{"stator"}

func isEventStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

func isEncoded(h http.Header) bool {
	e := h.Get("Content-Encoding")
	return e != "" && !strings.EqualFold(e, "identity")
}

// maxClientID is the longest name of a client's own for a request that is passed
// around.
const maxClientID = 256

// answerHeader sets the headers that every answer has.
func (c *call) answerHeader() {
	h := c.w.Header()
	h[headerRequestID] = []string{c.id}
	if v := c.r.Header[headerXRequestID]; len(v) > 0 && len(v[0]) <= maxClientID {
		h[headerXRequestID] = v[:1]
	} else {
		h[headerXRequestID] = h[headerRequestID]
	}
}

// copyHeader passes the engine's headers on, apart from those that belong to its
// connection or are ours to set.
func (c *call) copyHeader(from http.Header) {
	h := c.w.Header()
	for name, v := range maps.All(from) {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
			"Transfer-Encoding", "Upgrade", "Alt-Svc", "Strict-Transport-Security", "Location", "Set-Cookie",
			"Content-Length", "Content-Encoding", "Date", "Server", headerRequestID, headerXRequestID:
		default:
			h[name] = v
		}
	}
}
