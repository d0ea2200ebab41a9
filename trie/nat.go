package trie

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReadNAT reads what NeMo Agent Toolkit's profiler writes as
// all_requests_profiler_traces.json: a list of requests, each with its intermediate steps.
// One request alone, and one after the other as in JSON lines, will do as well. It calls
// run with the steps of each request, in order, also where there are none; they are run's
// to keep. An error of run ends the reading and is returned as it is.
//
// Of a step only what [Step] has is kept, so that memory is needed for the steps of one
// request and not for its prompts. A step of an unknown type is kept. Where the function or
// the UUID is missing or null, that of the step is zero; where the usage of an LLM call that
// ended is, Step.OutputTokens is -1. Anything that has the wrong type is an error that names
// line, request and member. A file that was cut off is an io.ErrUnexpectedEOF, after the
// requests before that have been handed over.
func ReadNAT(r io.Reader, run func([]Step) error) error {
	n := natReader{json: newJSONReader(r)}
	for {
		more, err := n.json.more()
		if !more || err != nil {
			return err
		}
		kind, err := n.json.kind()
		if err != nil {
			return err
		}
		if kind != '[' {
			if err := n.request(run); err != nil {
				return err
			}
			continue
		}
		if err := n.json.array(func(int) error { return n.request(run) }); err != nil {
			return err
		}
	}
}

type natReader struct {
	json     *jsonReader
	requests int // so far
}

// request reads a request and hands its steps over.
func (n *natReader) request(run func([]Step) error) error {
	name := strconv.Itoa(n.requests) // counted from 0, as the profiler does
	n.requests++
	var steps []Step
	found := false
	err := n.json.object(func(member []byte) error {
		switch string(member) {
		case "request_number":
			f, err := n.json.maybeNumber()
			if f != nil && err == nil {
				name = strconv.FormatFloat(*f, 'f', -1, 64)
			}
			return within("request_number", err)
		case "intermediate_steps":
			found, steps = true, nil
			return within("intermediate_steps", n.json.array(func(i int) error {
				s, err := n.step()
				steps = append(steps, s)
				return elementError(i, err)
			}))
		default:
			return n.json.skip()
		}
	})
	if err == nil && !found {
		err = within("intermediate_steps", n.json.errorf("expected an array, got nothing"))
	}
	var e *readError
	if errors.As(err, &e) {
		e.path = strings.TrimSuffix("request "+name+": "+e.path, ": ")
	}
	if err != nil {
		return err
	}
	return run(steps)
}

func elementError(i int, err error) error {
	if err == nil {
		return nil
	}
	return within(fmt.Sprintf("[%d]", i), err)
}

func (n *natReader) step() (Step, error) {
	s := Step{OutputTokens: -1}
	payload := false
	err := n.json.object(func(member []byte) (err error) {
		switch string(member) {
		case "parent_id":
			s.ParentID, err = n.json.maybeString()
			return within("parent_id", err)
		case "function_ancestry":
			return within("function_ancestry", n.ancestry(&s.Function))
		case "payload":
			payload = true
			return within("payload", n.payload(&s))
		default:
			return n.json.skip()
		}
	})
	if err == nil && !payload {
		err = within("payload", n.json.errorf("expected an object, got nothing"))
	}
	if s.OutputTokens < 0 && s.Type != LLMEnd {
		s.OutputTokens = 0 // there is no answer
	}
	return s, err
}

func (n *natReader) ancestry(f *Invocation) error {
	*f = Invocation{}
	if none, err := n.json.null(); none || err != nil {
		return err
	}
	return n.json.object(func(member []byte) (err error) {
		switch string(member) {
		case "function_id":
			f.ID, err = n.json.maybeString()
			return within("function_id", err)
		case "function_name":
			f.Name, err = n.json.maybeString()
			return within("function_name", err)
		case "parent_id":
			f.ParentID, err = n.json.maybeString()
			return within("parent_id", err)
		case "parent_name":
			f.ParentName, err = n.json.maybeString()
			return within("parent_name", err)
		default:
			return n.json.skip()
		}
	})
}

func (n *natReader) payload(s *Step) error {
	typed, timed := false, false
	err := n.json.object(func(member []byte) (err error) {
		switch string(member) {
		case "event_type":
			var t string
			t, err = n.json.string()
			s.Type, typed = EventType(t), true
			return within("event_type", err)
		case "event_timestamp":
			s.Time, err = n.json.number()
			timed = true
			return within("event_timestamp", err)
		case "span_event_timestamp":
			s.Began, err = n.json.maybeNumber()
			return within("span_event_timestamp", err)
		case "UUID":
			s.UUID, err = n.json.maybeString()
			return within("UUID", err)
		case "usage_info":
			return within("usage_info", n.usage(s))
		default:
			return n.json.skip()
		}
	})
	switch {
	case err != nil:
		return err
	case !typed:
		return within("event_type", n.json.errorf("expected a string, got nothing"))
	case !timed:
		return within("event_timestamp", n.json.errorf("expected a number, got nothing"))
	}
	return nil
}

// usage reads how many tokens were generated.
func (n *natReader) usage(s *Step) error {
	s.OutputTokens = -1
	if none, err := n.json.null(); none || err != nil {
		return err
	}
	return n.json.object(func(member []byte) error {
		if string(member) != "token_usage" {
			return n.json.skip()
		}
		if none, err := n.json.null(); none || err != nil {
			return within("token_usage", err)
		}
		return within("token_usage", n.json.object(func(member []byte) error {
			if string(member) != "completion_tokens" {
				return n.json.skip()
			}
			tokens, err := n.json.maybeCount()
			if tokens != nil {
				s.OutputTokens = *tokens
			}
			return within("completion_tokens", err)
		}))
	})
}
