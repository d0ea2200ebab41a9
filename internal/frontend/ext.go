package frontend

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/nvext"
)

// readExt reads nvext, from body and headers, and holds it against what the key
// may do.
func (c *call) readExt() error {
	if c.req.NvExt != nil && (c.cfg.IgnoreNvExt || !c.cfg.ForwardNvExt) {
		c.edits = append(c.edits, openai.Edit{Key: "nvext"})
	}
	if c.cfg.IgnoreNvExt {
		return c.restrict()
	}
	var err error
	if c.ext, err = parseExt(c.req.NvExt); err != nil {
		return err
	}
	get := c.r.Header.Get
	if !hasExtHeaders(c.r.Header) {
		get = nil
	} else if c.ext, err = applyMeta(c.ext, c.r.Header); err != nil {
		return err
	}
	if c.ext != nil || get != nil {
		var ignored []nvext.Ignored
		c.ext, ignored = nvext.ApplyHeaders(c.ext, get)
		if c.ext != nil {
			ignored = append(ignored, c.ext.Ignored...)
		}
		for _, ig := range ignored {
			c.metrics.HintIgnored(ig.Path)
		}
	}
	if err := c.restrict(); err != nil {
		return err
	}
	if c.ext != nil {
		c.wish()
	}
	return c.readOverride()
}

// wish notes what nvext asks of the engine.
func (c *call) wish() {
	w, ext := &c.wishes, c.ext
	w.Greedy = ext.GreedSampling != nil && *ext.GreedSampling
	w.MaxThinking = ext.MaxThinkingTokens
	if p := c.enginePriority(); p != nil {
		w.Priority = p
	}
}

// enginePriority returns how urgent the request is to the engine; nil if nobody said.
// An engine does not know whose a request is: who is not trusted may give way to others
// and not go before them.
func (c *call) enginePriority() *int32 {
	h := c.ext.AgentHints
	p, ok := h.EnginePriority()
	if c.key != nil && c.key.PreferSensitivity && h != nil && h.LatencySensitivity != nil {
		p, ok = int32(min(max(*h.LatencySensitivity, 0), math.MaxInt32)), true
	}
	if !ok {
		return nil
	}
	if !c.trusted() {
		p = min(p, 0)
	}
	return &p
}

// trusted reports whether the request may do what concerns others. Without keys
// everyone may.
func (c *call) trusted() bool { return c.key == nil || c.key.Trusted }

// readOverride reads what the request changes of the router's settings.
func (c *call) readOverride() error {
	if c.ext == nil || c.ext.RouterConfigOverride == nil {
		return nil
	}
	o, err := parseOverride("nvext.router_config_override", c.ext.RouterConfigOverride)
	if err != nil {
		return err
	}
	c.override = o
	return nil
}

// parseOverride reads an override that stands at a path.
func parseOverride(path string, raw []byte) (*router.Override, error) {
	o, err := router.ParseOverride(raw)
	var wrong *router.OverrideError
	if !errors.As(err, &wrong) {
		return o, err
	}
	if wrong.Field != "" {
		path += "." + wrong.Field
	}
	return nil, &openai.Error{Code: openai.CodeInvalidValue, Param: path, Err: err,
		Message: path + ": expected " + wrong.Expected + ", got " + wrong.Got}
}

// parseExt reads the nvext member.
func parseExt(raw openai.Value) (*nvext.NvExt, error) {
	if raw == nil {
		return nil, nil
	}
	ext, err := nvext.Parse(raw)
	if err == nil {
		return ext, nil
	}
	e := &openai.Error{Code: openai.CodeInvalidType, Param: "nvext", Message: err.Error()}
	var field *nvext.FieldError
	if errors.As(err, &field) {
		e.Param = field.Path
		if field.Got == "" {
			e.Code = openai.CodeMissing
		}
	}
	return nil, e
}

func hasExtHeaders(h http.Header) bool {
	for name := range h {
		if nvext.IsHeader(name) {
			return true
		}
	}
	return false
}

// applyMeta collects the metadata headers.
func applyMeta(ext *nvext.NvExt, h http.Header) (*nvext.NvExt, error) {
	ext, err := nvext.ApplyMeta(ext, func(yield func(string, string) bool) {
		for name, values := range h {
			for _, v := range values {
				if !yield(name, v) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, &openai.Error{Code: openai.CodeHeadersTooLarge, Param: "x-dynamo-meta-*",
			Message: "the x-dynamo-meta-* headers exceed 64 entries or 64 KiB"}
	}
	return ext, nil
}

// restrict applies the rules of who may pin, override, go first and name a tenant, and
// settles the cache salt. Without keys everyone may do everything.
func (c *call) restrict() error {
	if !c.trusted() {
		if path := c.ext.PinPath(); path != "" {
			return &openai.Error{Code: openai.CodeForbidden, Param: path,
				Message: path + ": this API key may not choose workers"}
		}
		if c.ext != nil && c.ext.RouterConfigOverride != nil {
			return &openai.Error{Code: openai.CodeForbidden, Param: "nvext.router_config_override",
				Message: "nvext.router_config_override: this API key may not override the router"}
		}
		c.reserve()
	}
	if err := checkLists(c.ext); err != nil {
		return err
	}
	c.settleSalt()
	return nil
}

// reserved are the members by which engines let a body say when it runs and what it is
// called. Both concern others: an engine refuses or aborts requests by their names.
var reserved = [...]string{"priority", "rid", "request_id"}

// reserve takes the reserved members out of the body. How urgent a priority is depends on
// the engine, so that one of the body's own counts for none at all.
func (c *call) reserve() {
	for _, key := range reserved {
		if c.req.Get(key) != nil {
			c.edits = append(c.edits, openai.Edit{Key: key})
		}
	}
	if c.req.Get("priority").Present() {
		c.wishes.Priority = new(int32)
	}
}

// settleSalt decides on the cache salt that the engine sees: the key's tenant, else that
// of a nvext or a body that may name one.
func (c *call) settleSalt() {
	w := &c.wishes
	body := c.req.Get("cache_salt")
	switch {
	case c.key != nil && c.key.Tenant != "":
		w.Salt = c.key.Tenant
	case !c.trusted():
	case c.ext != nil && c.ext.CacheSalt != nil:
		w.Salt = *c.ext.CacheSalt
	case body != nil:
		w.Salt, _ = body.Text()
		return // whatever it is, it counts
	}
	w.Unsalted = w.Salt == "" && body != nil
}

// The longest lists that a placement goes by. Every rank is held against them, with a
// lock held.
const (
	maxAllowed = 1024
	maxTaints  = 64
)

// checkLists refuses lists that are too long.
func checkLists(ext *nvext.NvExt) error {
	if ext == nil {
		return nil
	}
	var required, preferred int
	if t := ext.RoutingConstraints; t != nil {
		required, preferred = len(t.RequiredTaints), len(t.PreferredTaints)
	}
	for _, list := range []struct {
		path      string
		got, most int
	}{
		{"nvext.allowed_worker_ids", len(ext.AllowedWorkerIDs), maxAllowed},
		{"nvext.routing_constraints.required_taints", required, maxTaints},
		{"nvext.routing_constraints.preferred_taints", preferred, maxTaints},
	} {
		if list.got > list.most {
			return &openai.Error{Code: openai.CodeInvalidValue, Param: list.path,
				Message: fmt.Sprintf("%s: expected at most %d, got %d", list.path, list.most, list.got)}
		}
	}
	return nil
}

// wantsExt reports whether the client asked for nvext in the answer.
func (c *call) wantsExt() bool {
	return c.ext.Wants("worker_id") || c.ext.Wants("timing") || c.ext.Wants("routing")
}

// response returns the nvext of the answer, with the members that were asked
// for.
func (c *call) response(now time.Time) *nvext.Response {
	var r nvext.Response
	if c.ext.Wants("worker_id") {
		r.WorkerID = c.workerIDs()
	}
	if c.ext.Wants("timing") {
		t := &nvext.Timing{RequestReceivedMS: uint64(c.received.UnixMilli())}
		t.PrefillWaitTimeMS = millis(c.sent.Sub(c.received))
		if !c.first.IsZero() {
			t.PrefillTimeMS = millis(c.first.Sub(c.sent))
			t.TTFTMS = millis(c.first.Sub(c.received))
		}
		t.TotalTimeMS = millis(now.Sub(c.received))
		r.Timing = t
	}
	if c.ext.Wants("routing") {
		r.Routing = brief(c.placement.Routing)
	}
	return &r
}

func (c *call) workerIDs() *nvext.WorkerIDs {
	w := &nvext.WorkerIDs{}
	for _, leg := range c.placement.Legs() {
		rank := leg.Target.Rank
		w.Record(leg.Phase, uint64(leg.Target.Worker), &rank)
	}
	return w
}

func millis(d time.Duration) *nvext.Float {
	f := nvext.Float(float64(d) / float64(time.Millisecond))
	return &f
}

// addExt returns body with our nvext in it. Where the engine sent an nvext of its
// own, ours is laid over it member by member. A body that is no object comes back
// as it is.
func addExt(body []byte, ours *nvext.Response) []byte {
	if ours.Empty() {
		return body
	}
	o, err := openai.ParseObject(body)
	if err != nil {
		return body
	}
	value := ours.AppendJSON(nil)
	if theirs := o.Get("nvext"); theirs.Kind() == '{' {
		a, err1 := openai.ParseObject(theirs)
		b, err2 := openai.ParseObject(value)
		if err1 == nil && err2 == nil {
			var edits []openai.Edit
			for i := range b.Len() {
				k, v := b.At(i)
				edits = append(edits, openai.Edit{Key: k, Value: v})
			}
			value = a.Edit(edits).Bytes()
		}
	}
	return o.Edit([]openai.Edit{{Key: "nvext", Value: value}}).Bytes()
}
