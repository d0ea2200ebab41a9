package frontend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
)

// Requests that are not looked into: their bytes go to a worker of the model that they
// name, and what it answers goes back. They are placed by load alone.

// endpointOther counts the routes that have no name of their own in the metrics.
const endpointOther metrics.Endpoint = "other"

// passed are the routes that pass through by name.
var passed = map[string]metrics.Endpoint{
	"/v1/embeddings":           metrics.EndpointEmbeddings,
	"/v1/rerank":               endpointOther,
	"/rerank":                  endpointOther,
	"/v2/rerank":               endpointOther,
	"/v1/score":                endpointOther,
	"/score":                   endpointOther,
	"/v1/audio/transcriptions": metrics.EndpointAudios,
	"/v1/audio/translations":   metrics.EndpointAudios,
	"/v1/audio/speech":         metrics.EndpointAudios,
	"/v1/responses":            metrics.EndpointResponses,
	"/v1/messages":             metrics.EndpointAnthropicMessages,
	"/tokenize":                endpointOther,
	"/detokenize":              endpointOther,
}

// versionPrefix is what other routes begin with that engines may have.
const versionPrefix = "/v1/"

// kept are the routes of engines that change what they serve. They are for whoever runs
// an engine, and of no use through somebody who chooses one.
var kept = map[string]bool{
	"/v1/load_lora_adapter":   true,
	"/v1/unload_lora_adapter": true,
}

// passes reports whether a path that has no route here may be one of an engine's. A path
// that means another one does not: engines would resolve it, and all their routes could
// be reached.
func passes(p string) bool {
	return strings.HasPrefix(p, versionPrefix) && !kept[p] && path.Clean(p) == p && strings.IndexByte(p, '\\') < 0
}

// passage is what a request has that is not looked into.
type passage struct {
	label metrics.Endpoint
	raw   []byte // the body, unless it is a JSON object; nil if there is none
}

func newPassage(p string) *passage {
	label, ok := passed[p]
	switch {
	case ok:
	case strings.HasPrefix(p, "/v1/images/"):
		label = metrics.EndpointImages
	case strings.HasPrefix(p, "/v1/videos"):
		label = metrics.EndpointVideos
	case strings.HasPrefix(p, "/v1/audio/"):
		label = metrics.EndpointAudios
	case strings.HasPrefix(p, "/v1/responses/"):
		label = metrics.EndpointResponses
	case strings.HasPrefix(p, "/v1/messages/"):
		label = metrics.EndpointAnthropicMessages
	default:
		label = endpointOther
	}
	return &passage{label: label}
}

// pass reads the body, finds the model that it names, and tells the router what there
// is to know.
func (c *call) pass() error {
	body, held, err := c.readAny(c.w, c.r, c.cfg.Limits.Body)
	c.held = held
	c.req = &openai.Request{N: 1}
	if err != nil {
		return err
	}
	c.arrived = time.Now()
	if err := c.findName(body); err != nil {
		return err
	}
	if c.req.Model != "" {
		c.model, _ = c.router.Lookup(c.req.Model)
	}
	if err := c.readExt(); err != nil {
		return err
	}
	if c.model == nil {
		if c.model, err = c.servedModel(c.req.Model); err != nil {
			return whereToName(err, len(body) > 0)
		}
		c.req.Model = c.model.ID // as the engine will take it for granted
	}
	c.passage.rename(c)
	c.known()
	c.describePassage(len(body))
	return nil
}

// whereToName adds to the error of a request that must name a model where one without a
// body does so.
func whereToName(err error, body bool) error {
	var missing *openai.Error
	if !errors.As(err, &missing) || missing.Code != openai.CodeMissing || body {
		return err
	}
	with := *missing
	with.Message += "; name it in the URL with ?model="
	return &with
}

// findName finds the name of the model: in a JSON object, in a form, or in the query.
// The name may be missing.
func (c *call) findName(body []byte) error {
	c.passage.raw = body
	media, params, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	name := c.r.URL.Query().Get("model")
	switch {
	case len(body) == 0:
	case isJSON(media):
		return c.findInJSON(body, name)
	case media == "multipart/form-data":
		if start, end, ok := openai.FormField(body, params["boundary"], "model"); ok {
			name = string(body[start:end])
		}
	}
	c.req.Model = name
	return nil
}

// findInJSON reads what concerns us of a JSON object; other JSON passes as it is.
func (c *call) findInJSON(body []byte, name string) error {
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) > 0 && text[0] != '{' {
		c.req.Model = name
		return nil
	}
	o, err := openai.ParseObject(body)
	if err != nil {
		return &openai.Error{Code: openai.CodeInvalidJSON, Message: err.Error(), Err: err}
	}
	c.passage.raw = nil
	c.req.Object = o
	c.req.Stream = o.Get("stream").True()
	if ext := o.Get("nvext"); ext.Present() {
		c.req.NvExt = ext
	}
	if v := o.Get("model"); v.Present() {
		text, ok := v.Text()
		if !ok {
			return &openai.Error{Code: openai.CodeInvalidType, Param: "model",
				Message: "model: expected a string, got " + v.TypeName()}
		}
		name = text
	}
	c.req.Model = name
	return nil
}

// rename gives the form the name that the engine knows an adapter by.
func (p *passage) rename(c *call) {
	if p.raw == nil || c.model.ID == c.req.Model {
		return
	}
	_, params, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if start, end, ok := openai.FormField(p.raw, params["boundary"], "model"); ok {
		p.raw = openai.Pieces{p.raw[:start], []byte(c.model.ID), p.raw[end:]}.Bytes()
	}
}

// describePassage fills in what the router has to know.
func (c *call) describePassage(size int) {
	tokens := size / bytesPerToken
	if limit := c.model.ContextLength; limit > 0 { // a file has more bytes than an engine makes tokens of
		tokens = min(tokens, limit)
	}
	c.placing = router.Request{
		Model:        c.model,
		ID:           c.id,
		PromptTokens: tokens,
		Guess:        true,
		Whole:        true,
		Arrived:      time.Now(),
		Tenant:       c.tenant(),
		Override:     c.override,
		Into:         &c.placed,
	}
	if c.ext != nil {
		c.describeExt()
	}
	c.describeRow()
}

// fill makes r the request of the client.
func (p *passage) fill(c *call, r *engine.Request) {
	// With its escapes: x%2Fy is one name, and x/y are two.
	r.Method, r.Path, r.Query = c.r.Method, c.r.URL.EscapedPath(), c.r.URL.RawQuery
	if c.req.Raw() == nil {
		r.Body, r.Raw = nil, p.raw
	}
	names := []string{"Content-Type", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta"}
	if len(c.keys) == 0 {
		names = append(names, "X-Api-Key")
	}
	for _, name := range names {
		if v := c.r.Header[name]; len(v) > 0 {
			r.Header[name] = v
		}
	}
}

// passBuffer is how much of an answer is passed on at a time.
const passBuffer = 32 << 10

// relayBytes copies an answer to the client as it comes. Nothing is written before its
// first bytes are there.
func (c *call) relayBytes(resp *engine.Response) error {
	buf := make([]byte, passBuffer)
	from := &patient{c: c, r: resp.Body}
	n, err := from.Read(buf)
	for n == 0 && err == nil {
		n, err = from.Read(buf)
	}
	if err != nil && err != io.EOF {
		return c.readError(err)
	}
	c.placement.Whole(0)
	c.copyHeader(resp.Header)
	c.releaseBody(resp)
	c.committed, c.status = true, resp.Status
	if v := resp.Header["Content-Length"]; len(v) > 0 {
		c.w.Header()["Content-Length"] = v
	}
	out := http.NewResponseController(c.w)
	to := &limited{c: c, out: out}
	c.w.WriteHeader(resp.Status)
	for ; err == nil || n > 0; n, err = from.Read(buf) {
		if n > 0 {
			_, werr := to.Write(buf[:n])
			if werr == nil && err == nil { // the end flushes by itself
				werr = out.Flush()
			}
			if werr != nil {
				c.placement.Done(router.Cancelled)
				return fmt.Errorf("%w: %w", errClientGone, werr)
			}
		}
		if err != nil {
			break
		}
	}
	if err != io.EOF {
		// Nothing but a broken connection can tell the client now.
		return fmt.Errorf("%w: %w", errCut, c.readError(err))
	}
	c.working = false
	c.placement.Done(router.Completed)
	return nil
}
