package trace

import (
	"errors"
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

const dynamoSchema = "dynamo.request.trace.v1"

// addDynamo takes in a line of Dynamo's request trace: an event, or an object
// that wraps one. Only the ends of requests count; what agents did with tools in
// between is in the times.
func (c *recording) addDynamo(o *openai.Object) error {
	if event := o.Get("event"); event.Kind() == '{' {
		inner, err := openai.ParseObject(event)
		if err != nil {
			return &memberError{"event", err}
		}
		o = &inner
	}
	if schema, _ := o.Get("schema").Text(); schema != dynamoSchema {
		return expected("schema", dynamoSchema, o.Get("schema"))
	}
	switch kind, _ := o.Get("event_type").Text(); kind {
	case "request_end":
	case "tool_start", "tool_end", "tool_error", "request_payload":
		return nil
	default:
		return expected("event_type", "request_end, request_payload, tool_start, tool_end or tool_error", o.Get("event_type"))
	}
	r := record{end: -1}
	if v := o.Get("event_time_unix_ms"); v.Present() {
		var err error
		if r.end, err = instant("event_time_unix_ms", v, time.Millisecond); err != nil {
			return err
		}
	}
	named := o.Get("agent_context").Present()
	if c.agents == nil {
		c.agents = &named
	} else if *c.agents != named {
		have := "none, as in the rows before"
		if !named {
			have = "an object, as in the rows before"
		}
		return expected("agent_context", have, o.Get("agent_context"))
	}
	if named {
		agent, err := object(o, "agent_context")
		if err != nil {
			return err
		}
		if r.Session, err = c.name("session_id", agent.Get("session_id")); err != nil {
			return in("agent_context", err)
		}
	}
	req, err := object(o, "request")
	if err != nil {
		return err
	}
	return in("request", c.addDynamoRequest(r, req))
}

// addDynamoRequest adds what the request itself says. The end of r is the time of
// the event, which counts where the request does not say how long it took.
func (c *recording) addDynamoRequest(r record, req *openai.Object) error {
	var err error
	if r.Model, err = c.model("model", req.Get("model")); err != nil {
		return err
	}
	if c.opts.Model != "" && r.Model != c.opts.Model {
		return nil
	}
	if r.ID, err = text("request_id", req.Get("request_id")); err != nil {
		return err
	}
	if r.ID == "" {
		return expected("request_id", "a name", req.Get("request_id"))
	}
	if c.seen[r.ID] {
		return &memberError{"request_id", fmt.Errorf("expected another than %q, which was there before", r.ID)}
	}
	c.seen[r.ID] = true
	if r.Arrival, err = instant("request_received_ms", req.Get("request_received_ms"), time.Millisecond); err != nil {
		return err
	}
	if v := req.Get("total_time_ms"); v.Present() {
		total, err := millis("total_time_ms", v)
		if err != nil {
			return err
		}
		r.end = r.Arrival + total.Round(time.Millisecond)
	} else if r.end >= 0 {
		r.end = max(r.end, r.Arrival)
	}
	if r.Output, err = count("output_tokens", req.Get("output_tokens"), 0, c.maxTokens); err != nil {
		return err
	}
	c.raw = c.raw[:0]
	if req.Get("replay").Present() {
		replay, err := object(req, "replay")
		if err != nil {
			return err
		}
		if err := in("replay", c.replay(&r, replay)); err != nil {
			return err
		}
	} else if v := req.Get("input_tokens"); v.Present() {
		if r.Input, err = count("input_tokens", v, 0, c.maxTokens); err != nil {
			return err
		}
	}
	if r.Input == 0 || r.Output == 0 {
		return notRun
	}
	return c.take(r)
}

// replay reads the prompt's length and its hashes, that of a partial last block
// included.
func (c *recording) replay(r *record, o *openai.Object) error {
	if err := c.size("trace_block_size", o.Get("trace_block_size")); err != nil {
		return err
	}
	var err error
	if r.Input, err = count("input_length", o.Get("input_length"), 0, c.maxTokens); err != nil {
		return err
	}
	if c.raw, err = appendUints(c.raw, "input_sequence_hashes", o.Get("input_sequence_hashes")); err != nil {
		return err
	}
	if want := blocksOf(r.Input, c.blockSize); len(c.raw) != want {
		return &memberError{"input_sequence_hashes", fmt.Errorf("expected %d hashes of %d tokens for a prompt of %d, got %d", want, c.blockSize, r.Input, len(c.raw))}
	}
	return nil
}

// object reads a member that is an object.
func object(o *openai.Object, member string) (*openai.Object, error) {
	v := o.Get(member)
	if v.Kind() != '{' {
		return nil, expected(member, "an object", v)
	}
	inner, err := openai.ParseObject(v)
	if err != nil {
		return nil, &memberError{member, err}
	}
	return &inner, nil
}

// in says in which object the member of an error is.
func in(member string, err error) error {
	var inner *memberError
	if errors.As(err, &inner) {
		return &memberError{member + "." + inner.member, inner.err}
	}
	return err
}
