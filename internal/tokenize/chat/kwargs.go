package chat

import (
	"fmt"

	"github.com/stator-ai/stator/internal/jinja"
)

// parameters are the parameters of transformers' apply_chat_template. What
// chat_template_kwargs holds under such a name sets the parameter and is no
// variable of the template.
var parameters = map[string]bool{
	"conversation": true, "tools": true, "documents": true, "chat_template": true,
	"add_generation_prompt": true, "continue_final_message": true, "tokenize": true,
	"sanitize_control_tokens": true, "padding": true, "truncation": true, "max_length": true,
	"return_tensors": true, "return_dict": true, "return_assistant_tokens_mask": true,
	"tokenizer_kwargs": true,
}

// kwargs are the chat_template_kwargs of a request and the operator's defaults
// for them.
type kwargs struct {
	request, defaults *jinja.Dict // either may be nil
	// unset tells values that do not count in a request, as if absent.
	unset func(jinja.Value) bool
}

// kwargs reads the chat_template_kwargs of a request. It is an error when one of
// the refused names is set.
func (t *Template) kwargs(raw []byte, unset func(jinja.Value) bool, refused ...string) (kwargs, error) {
	request, err := object("chat_template_kwargs", raw)
	if err != nil {
		return kwargs{}, err
	}
	k := kwargs{request: request, defaults: t.defaults, unset: unset}
	for _, name := range refused {
		if _, ok := k.own(name); ok {
			return kwargs{}, fmt.Errorf("chat_template_kwargs.%s: not accepted", name)
		}
	}
	return k, nil
}

// own returns what the request itself sets.
func (k *kwargs) own(name string) (jinja.Value, bool) {
	if k.request == nil {
		return nil, false
	}
	v, ok := k.request.Get(name)
	if !ok || k.unset(v) {
		return nil, false
	}
	return v, true
}

// has reports whether the request has name at all, be it null.
func (k *kwargs) has(name string) bool {
	if k.request == nil {
		return false
	}
	_, ok := k.request.Get(name)
	return ok
}

// get returns the value of name, the request's before the default.
func (k *kwargs) get(name string) (jinja.Value, bool) {
	if v, ok := k.own(name); ok {
		return v, true
	}
	if k.defaults == nil {
		return nil, false
	}
	return k.defaults.Get(name)
}

// variables returns the variables for a template, without those that it has no
// use for: all names count when reads is nil.
func (k *kwargs) variables(reads map[string]bool) *jinja.Dict {
	vars := jinja.NewDict(8)
	set := func(name string, v jinja.Value) {
		if !parameters[name] && (reads == nil || reads[name]) {
			vars.Set(name, v)
		}
	}
	if k.defaults != nil {
		for name, v := range keys(k.defaults) {
			set(name, v)
		}
	}
	if k.request != nil {
		for name, v := range keys(k.request) {
			if !k.unset(v) {
				set(name, v)
			}
		}
	}
	return vars
}

// never is for dialects in which every value counts.
func never(jinja.Value) bool { return false }
