package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
)

// function is the definition of a tool. What is absent is nil.
type function struct {
	name                    string
	description, parameters jinja.Value // a string; an object
	strict, deferLoading    jinja.Value // booleans
}

// functionOf reads the function of a tool. Its errors continue the path of the
// tool.
func functionOf(tool *jinja.Dict) (function, error) {
	d, ok := get(tool, "function").(*jinja.Dict)
	if !ok {
		return function{}, fmt.Errorf(".function: expected an object, got %s", absentName(tool, "function"))
	}
	name, ok := get(d, "name").(string)
	if !ok {
		return function{}, fmt.Errorf(".function.name: expected a string, got %s", absentName(d, "name"))
	}
	f := function{
		name:         name,
		description:  get(d, "description"),
		parameters:   get(d, "parameters"),
		strict:       get(d, "strict"),
		deferLoading: get(d, "defer_loading"),
	}
	if _, ok := f.description.(string); !ok && f.description != nil {
		return function{}, fmt.Errorf(".function.description: expected a string, got %s", typeName(f.description))
	}
	if _, ok := f.parameters.(*jinja.Dict); !ok && f.parameters != nil {
		return function{}, fmt.Errorf(".function.parameters: expected an object, got %s", typeName(f.parameters))
	}
	if _, ok := f.strict.(bool); !ok && f.strict != nil {
		return function{}, fmt.Errorf(".function.strict: expected a boolean, got %s", typeName(f.strict))
	}
	if _, ok := f.deferLoading.(bool); !ok && f.deferLoading != nil {
		return function{}, fmt.Errorf(".function.defer_loading: expected a boolean, got %s", typeName(f.deferLoading))
	}
	return f, nil
}

// toolCall returns an assistant's tool call and its function. Its errors continue
// the path of the call.
func toolCall(v jinja.Value) (call, function *jinja.Dict, err error) {
	call, ok := v.(*jinja.Dict)
	if !ok {
		return nil, nil, fmt.Errorf(": expected an object, got %s", typeName(v))
	}
	if kind := get(call, "type"); kind != nil && kind != "function" {
		return nil, nil, errors.New(`.type: expected "function"`)
	}
	function, ok = get(call, "function").(*jinja.Dict)
	if !ok {
		return nil, nil, fmt.Errorf(".function: expected an object, got %s", absentName(call, "function"))
	}
	return call, function, nil
}

// toolCalls returns the tool calls of a message d, each made by convert. Its
// errors continue the path of the message.
func toolCalls(d *jinja.Dict, convert func(jinja.Value) (*jinja.Dict, error)) (*jinja.List, error) {
	v := get(d, "tool_calls")
	if v == nil {
		return nil, nil
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return nil, fmt.Errorf(".tool_calls: expected an array, got %s", typeName(v))
	}
	calls := make([]jinja.Value, len(list.Items))
	for i, e := range list.Items {
		c, err := convert(e)
		if err != nil {
			return nil, fmt.Errorf(".tool_calls[%d]%w", i, err)
		}
		calls[i] = c
	}
	return &jinja.List{Items: calls}, nil
}

// joinText joins the texts of parts, if they are all of type text.
func joinText(parts *jinja.List, sep string) (string, bool) {
	texts := make([]string, 0, len(parts.Items))
	for _, p := range parts.Items {
		d := p.(*jinja.Dict)
		if get(d, "type") != "text" {
			return "", false
		}
		s, _ := get(d, "text").(string)
		texts = append(texts, s)
	}
	return strings.Join(texts, sep), true
}

// absentName is typeName for the value under key, which may be absent.
func absentName(d *jinja.Dict, key string) string {
	if v, ok := d.Get(key); ok {
		return typeName(v)
	}
	return "nothing"
}
