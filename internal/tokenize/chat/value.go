package chat

import (
	"errors"
	"fmt"

	"github.com/stator-ai/stator/internal/jinja"
	"github.com/stator-ai/stator/internal/openai"
)

// parse returns the value of a member of the request, nil when it is absent or
// null.
func parse(name string, raw []byte) (jinja.Value, error) {
	if !openai.Value(raw).Present() {
		return nil, nil
	}
	v, err := jinja.ParseJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// object is parse for a member that is an object; it is nil when absent.
func object(name string, raw []byte) (*jinja.Dict, error) {
	v, err := parse(name, raw)
	if v == nil || err != nil {
		return nil, err
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, fmt.Errorf("%s: expected an object, got %s", name, typeName(v))
	}
	return d, nil
}

// objects is parse for a member that is an array of objects; it is nil when
// absent, which is not the same as empty.
func objects(name string, raw []byte) (*jinja.List, error) {
	v, err := parse(name, raw)
	if v == nil || err != nil {
		return nil, err
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return nil, fmt.Errorf("%s: expected an array, got %s", name, typeName(v))
	}
	for i, e := range list.Items {
		if _, ok := e.(*jinja.Dict); !ok {
			return nil, fmt.Errorf("%s[%d]: expected an object, got %s", name, i, typeName(e))
		}
	}
	return list, nil
}

// messagesOf returns the messages of a request, of which there is at least one.
// All are dictionaries.
func messagesOf(raw []byte) ([]jinja.Value, error) {
	list, err := objects("messages", raw)
	if err != nil {
		return nil, err
	}
	if list == nil || len(list.Items) == 0 {
		return nil, errors.New("messages: expected at least one message")
	}
	return list.Items, nil
}

// get returns the value of key, nil when it is absent.
func get(d *jinja.Dict, key string) jinja.Value {
	v, _ := d.Get(key)
	return v
}

// text returns the string under key; ok is false where the key is absent or null.
// Its errors continue the path of d.
func text(d *jinja.Dict, key string) (s string, ok bool, err error) {
	v := get(d, key)
	if v == nil {
		return "", false, nil
	}
	if s, ok = v.(string); !ok {
		return "", false, fmt.Errorf(".%s: expected a string, got %s", key, typeName(v))
	}
	return s, true, nil
}

// keys ranges over the members of a JSON object.
func keys(d *jinja.Dict) func(yield func(string, jinja.Value) bool) {
	return func(yield func(string, jinja.Value) bool) {
		for k, v := range d.All() {
			if !yield(k.(string), v) {
				return
			}
		}
	}
}

// with returns a copy of d in which key has the value v.
func with(d *jinja.Dict, key string, v jinja.Value) *jinja.Dict {
	out := jinja.NewDict(d.Len() + 1)
	for k, v := range keys(d) {
		out.Set(k, v)
	}
	out.Set(key, v)
	return out
}

// without returns a copy of d that does not have key.
func without(d *jinja.Dict, key string) *jinja.Dict {
	out := jinja.NewDict(d.Len())
	for k, v := range keys(d) {
		if k != key {
			out.Set(k, v)
		}
	}
	return out
}

// move copies the member key from one dictionary to another, if it is there.
func move(to, from *jinja.Dict, key string) {
	if v, ok := from.Get(key); ok {
		to.Set(key, v)
	}
}

// dict returns a dictionary of the given keys and values, by turns.
func dict(pairs ...jinja.Value) *jinja.Dict {
	d := jinja.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		d.Set(pairs[i].(string), pairs[i+1])
	}
	return d
}

// typeName names the JSON type of v for an error message.
func typeName(v jinja.Value) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case *jinja.Dict:
		return "an object"
	case *jinja.List:
		return "an array"
	default:
		return "a number"
	}
}
