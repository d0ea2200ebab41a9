package openai

import (
	"maps"
	"strconv"
)

// shape is the JSON type that a field must have.
type shape struct {
	name string
	ok   func(Value) bool
}

var (
	anyShape     = shape{"a value", func(Value) bool { return true }}
	boolShape    = shape{"a boolean", func(v Value) bool { return v.Kind() == 't' }}
	numberShape  = shape{"a number", func(v Value) bool { return v.Kind() == '0' }}
	intShape     = shape{"an integer", isInteger}
	uintShape    = shape{"a non-negative integer", func(v Value) bool { _, ok := v.Uint(); return ok }}
	stringShape  = shape{"a string", func(v Value) bool { return v.Kind() == '"' }}
	arrayShape   = shape{"an array", func(v Value) bool { return v.Kind() == '[' }}
	objectShape  = shape{"an object", func(v Value) bool { return v.Kind() == '{' }}
	stringsShape = shape{"a string or an array of strings", func(v Value) bool { return v.Kind() == '"' || v.Kind() == '[' }}
)

func isInteger(v Value) bool {
	if v.Kind() != '0' {
		return false
	}
	_, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil
}

// commonFields are the top-level keys of both endpoints that strict validation
// knows: OpenAI's, and the extensions that engines share.
var commonFields = map[string]shape{
	"model":             stringShape,
	"stream":            boolShape,
	"stream_options":    objectShape,
	"n":                 intShape,
	"temperature":       numberShape,
	"top_p":             numberShape,
	"frequency_penalty": numberShape,
	"presence_penalty":  numberShape,
	"logit_bias":        objectShape,
	"seed":              intShape,
	"stop":              stringsShape,
	"user":              stringShape,
	"metadata":          objectShape,
	"nvext":             objectShape,

	"ignore_eos":                 boolShape,
	"min_tokens":                 uintShape,
	"top_k":                      intShape,
	"min_p":                      numberShape,
	"repetition_penalty":         numberShape,
	"include_stop_str_in_output": boolShape,
	"skip_special_tokens":        boolShape,
	"guided_json":                anyShape,
	"guided_regex":               stringShape,
	"guided_grammar":             stringShape,
	"guided_choice":              arrayShape,
	"guided_decoding_backend":    stringShape,
	"guided_whitespace_pattern":  stringShape,

	"cache_salt":          stringShape,
	"stop_token_ids":      arrayShape,
	"detokenize":          boolShape,
	"allowed_token_ids":   arrayShape,
	"bad_words_token_ids": arrayShape,
	"logprob_token_ids":   arrayShape,
}

var chatFields = with(commonFields, map[string]shape{
	"messages":               arrayShape,
	"max_tokens":             uintShape,
	"max_completion_tokens":  intShape,
	"logprobs":               boolShape,
	"top_logprobs":           intShape,
	"response_format":        objectShape,
	"tools":                  arrayShape,
	"tool_choice":            anyShape,
	"parallel_tool_calls":    boolShape,
	"functions":              anyShape,
	"function_call":          anyShape,
	"modalities":             arrayShape,
	"audio":                  objectShape,
	"prediction":             objectShape,
	"reasoning_effort":       stringShape,
	"verbosity":              stringShape,
	"service_tier":           stringShape,
	"store":                  boolShape,
	"web_search_options":     objectShape,
	"prompt_cache_key":       stringShape,
	"prompt_cache_retention": stringShape,
	"safety_identifier":      stringShape,

	"chat_template_args":   objectShape,
	"chat_template_kwargs": objectShape,
	"media_io_kwargs":      objectShape,
	"mm_processor_kwargs":  objectShape,
})

var completionFields = with(commonFields, map[string]shape{
	"prompt":        anyShape, // looked at by ParseRequest
	"prompt_embeds": stringShape,
	"suffix":        stringShape,
	"max_tokens":    intShape,
	"logprobs":      intShape,
	"echo":          boolShape,
	"best_of":       intShape,
})

func with(a, b map[string]shape) map[string]shape {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// checkTypes checks the type of each known field that is not null.
func (r *Request) checkTypes(fields map[string]shape) error {
	for i := range r.Len() {
		key, v := r.At(i)
		if want, known := fields[key]; known && v.Present() && !want.ok(v) {
			return typeError(key, want.name, v)
		}
	}
	for i, m := range elements(r.Messages) {
		if m.Kind() != '{' {
			return typeError(index("messages", i), "an object", m)
		}
	}
	if v := r.Get("stream_options"); v.Present() {
		usage, err := requiredMember("stream_options", v, "include_usage")
		if err != nil {
			return err
		}
		if !boolShape.ok(usage) {
			return typeError("stream_options.include_usage", boolShape.name, usage)
		}
	}
	return nil
}
