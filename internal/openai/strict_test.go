package openai

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// strict parses and validates body.
func strict(ep Endpoint, body string) error {
	r, err := ParseRequest(ep, []byte(body))
	if err != nil {
		return err
	}
	return r.Strict()
}

// withFields returns the smallest body of the endpoint with more fields.
func withFields(ep Endpoint, fields string) string {
	body := `"model":"m","prompt":"hi"`
	if ep == Chat {
		body = minimalChat
	}
	if fields != "" {
		body += "," + fields
	}
	return "{" + body + "}"
}

func TestStrictVectors(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		status     int
		flat       string
	}{
		{"frequency_penalty -3", withFields(Chat, `"frequency_penalty":-3`), 400, "Validation: Frequency penalty must be between -2 and 2, got -3"},
		{"empty messages", `{"model":"m","messages":[]}`, 400, "Validation: The 'messages' field cannot be empty. At least one message is required."},
		{"top_logprobs 25", withFields(Chat, `"top_logprobs":25`), 400, "Validation: Top_logprobs must be between 0 and 20, got 25"},
		{"repetition_penalty -3", withFields(Chat, `"repetition_penalty":-3`), 400, "Validation: Repetition penalty must be between 0 and 2, got -3"},
		{"stream_options with stream false", withFields(Chat, `"stream":false,"stream_options":{"include_usage":true}`), 400, "Validation: The 'stream_options' field is only allowed when 'stream' is set to true."},
		{"unknown key", withFields(Chat, `"foo":1`), 400, "Validation: Unsupported parameter(s): `foo`"},
		{"functions", withFields(Chat, `"functions":[]`), 501, "Validation: `functions` is deprecated. Please migrate to use `tools` instead."},
		{"function_call", withFields(Chat, `"function_call":"auto"`), 501, "Validation: `function_call` is deprecated. Please migrate to use `tool_choice` instead."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var e *Error
			if !errors.As(strict(Chat, tc.body), &e) {
				t.Fatal("accepted")
			}
			if e.HTTPStatus() != tc.status {
				t.Errorf("status %d, want %d", e.HTTPStatus(), tc.status)
			}
			o, err := ParseObject(e.AppendJSON(nil, FormatDynamo))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := o.Get("message").Text(); got != tc.flat {
				t.Errorf("got  %s\nwant %s", got, tc.flat)
			}
		})
	}
}

// many returns an array of n times the element.
func many(n int, element string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

func tool(name string) string { return `{"type":"function","function":{"name":"` + name + `"}}` }

func embedded(n int) string {
	return `"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `"`
}

func TestStrict(t *testing.T) {
	const ok = ""
	type row struct {
		fields string
		param  string // empty where the request is accepted
		want   string // message
	}
	both := []row{
		{``, ok, ""},
		{`"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, ok, ""},
		{`"stream":true,"stream_options":{}`, "stream_options.include_usage", "stream_options.include_usage: missing, expected a value"},
		{`"stream":true,"stream_options":{"include_usage":null}`, "stream_options.include_usage", "stream_options.include_usage: missing, expected a value"},
		{`"foo":1,"bar":2,"foo":3`, "foo", "Unsupported parameter(s): `foo`, `bar`"},
		{`"\u0066oo":null`, "foo", "Unsupported parameter(s): `foo`"},
		{`"Model":"x"`, "Model", "Unsupported parameter(s): `Model`"},
		{`"` + strings.Repeat("é", 60) + `":1`, strings.Repeat("é", 32) + "…", "Unsupported parameter(s): `" + strings.Repeat("é", 32) + "…`"},
		{`"nvext":{"anything":[1]},"cache_salt":"x","seed":-5,"metadata":{"a":"b"},"min_tokens":3,"ignore_eos":true`, ok, ""},

		{`"temperature":0`, ok, ""},
		{`"temperature":2.0`, ok, ""},
		{`"temperature":null`, ok, ""},
		{`"temperature":-0.5`, "temperature", "Temperature must be between 0 and 2, got -0.5"},
		{`"temperature":-3`, "temperature", "Temperature must be between 0 and 2, got -3"},
		{`"temperature":-3.0`, "temperature", "Temperature must be between 0 and 2, got -3"},
		{`"temperature":2.1`, "temperature", "Temperature must be between 0 and 2, got 2.1"},
		{`"temperature":3e2`, "temperature", "Temperature must be between 0 and 2, got 300"},
		{`"temperature":1e300`, "temperature", "Temperature must be between 0 and 2, got 1e300"},
		{`"temperature":1e999`, "temperature", "Temperature must be between 0 and 2, got 1e999"},
		{`"temperature":-1e-30`, "temperature", "Temperature must be between 0 and 2, got -1e-30"},
		{`"temperature":"hot"`, "temperature", "temperature: expected a number, got a string"},
		{`"top_p":0`, ok, ""},
		{`"top_p":1.5`, "top_p", "Top_p must be between 0 and 1, got 1.5"},
		{`"frequency_penalty":-2,"presence_penalty":2`, ok, ""},
		{`"presence_penalty":2.5`, "presence_penalty", "Presence penalty must be between -2 and 2, got 2.5"},
		{`"min_p":1`, ok, ""},
		{`"min_p":-1`, "min_p", "Min_p must be between 0 and 1, got -1"},
		{`"repetition_penalty":2`, ok, ""},
		{`"repetition_penalty":0`, "repetition_penalty", "Repetition penalty must be between 0 and 2, got 0"},
		{`"repetition_penalty":2.01`, "repetition_penalty", "Repetition penalty must be between 0 and 2, got 2.01"},
		{`"top_k":-1`, ok, ""},
		{`"top_k":1`, ok, ""},
		{`"top_k":null`, ok, ""},
		{`"top_k":0`, "top_k", "Top_k must be null, -1, or greater than or equal to 1"},
		{`"top_k":-2`, "top_k", "Top_k must be null, -1, or greater than or equal to 1"},
		{`"top_k":1.5`, "top_k", "top_k: expected an integer, got a number (1.5)"},
		{`"n":128`, ok, ""},
		{`"n":129`, "n", "n must be between 1 and 128, got 129"},
		{`"n":2,"temperature":0`, "n", "When n > 1, temperature must be greater than 0, got n=2 and temperature=0"},
		{`"n":2,"temperature":0.1`, ok, ""},
		{`"n":1,"temperature":0`, ok, ""},
		{`"logit_bias":{}`, ok, ""},
		{`"logit_bias":{"5":-100,"6":100}`, ok, ""},
		{`"logit_bias":{"5":100.5}`, "logit_bias", "Logit bias for token '5' must be between -100 and 100, got 100.5"},
		{`"logit_bias":{"5":"x"}`, "logit_bias", "Logit bias for token '5' must be a number, got a string"},
		{`"logit_bias":{"5":null}`, "logit_bias", "Logit bias for token '5' must be a number, got null"},
		{`"logit_bias":[]`, "logit_bias", "logit_bias: expected an object, got an array"},
		{`"stop":"x"`, ok, ""},
		{`"stop":null`, ok, ""},
		{`"stop":` + many(5, `"x"`), ok, ""},
		{`"stop":` + many(32, `"x"`), ok, ""},
		{`"stop":` + many(33, `"x"`), "stop", "Maximum of 32 stop sequences are supported, got 33"},
		{`"stop":""`, "stop", "Stop sequences cannot be empty"},
		{`"stop":["a",""]`, "stop[1]", "Stop sequences cannot be empty"},
		{`"stop":[]`, "stop", "Stop must hold at least one sequence"},
		{`"stop":["a",1]`, "stop[1]", "stop[1]: expected a string, got a number (1)"},
		{`"stop":["\x"]`, "stop[0]", "stop[0]: expected a string with valid escapes"},
		{`"stop":5`, "stop", "stop: expected a string or an array of strings, got a number (5)"},
		{`"user":"u"`, ok, ""},
		{`"user":" \n"`, "user", "User cannot be empty"},
		{`"user":5`, "user", "user: expected a string, got a number (5)"},
		{`"guided_regex":"a+","guided_json":null`, ok, ""},
		{`"guided_regex":"a+","guided_choice":["a"]`, "guided_choice", "Only one kind of guided decoding is allowed, got `guided_regex` and `guided_choice`"},
		{`"guided_grammar":"` + strings.Repeat("(", 500) + strings.Repeat(")", 500) + `"`, ok, ""},
		{`"guided_grammar":"` + strings.Repeat("()", 5000) + `"`, ok, ""},
		{`"guided_grammar":"` + strings.Repeat("([{", 167) + `"`, "guided_grammar", "Grammar nesting must be at most 500 levels, got 501"},
		{`"ignore_eos":1`, "ignore_eos", "ignore_eos: expected a boolean, got a number (1)"},
		{`"min_tokens":-1`, "min_tokens", "min_tokens: expected a non-negative integer, got a number (-1)"},
		{`"nvext":[]`, "nvext", "nvext: expected an object, got an array"},
	}
	chat := []row{
		{`"top_logprobs":0,"logprobs":true`, ok, ""},
		{`"top_logprobs":20`, ok, ""},
		{`"top_logprobs":21`, "top_logprobs", "Top_logprobs must be between 0 and 20, got 21"},
		{`"top_logprobs":-1`, "top_logprobs", "Top_logprobs must be between 0 and 20, got -1"},
		{`"logprobs":5`, "logprobs", "logprobs: expected a boolean, got a number (5)"},
		{`"max_tokens":0`, ok, ""},
		{`"max_tokens":-1`, "max_tokens", "max_tokens: expected a non-negative integer, got a number (-1)"},
		{`"max_completion_tokens":1`, ok, ""},
		{`"max_completion_tokens":0`, "max_completion_tokens", "Max_completion_tokens must be greater than 0, got 0"},
		{`"tools":[]`, ok, ""},
		{`"tools":` + many(1536, tool("f")), ok, ""},
		{`"tools":` + many(1537, tool("f")), "tools", "Maximum of 1536 tools are supported, got 1537"},
		{`"tools":[` + tool("f") + `,` + tool("") + `]`, "tools[1].function.name", "Function name must be between 1 and 96 characters, got 0"},
		{`"tools":[` + tool(strings.Repeat("é", 96)) + `]`, ok, ""},
		{`"tools":[` + tool(strings.Repeat("é", 97)) + `]`, "tools[0].function.name", "Function name must be between 1 and 96 characters, got 97"},
		{`"tools":[{"type":"function"}]`, "tools[0].function", "tools[0].function: missing, expected a value"},
		{`"tools":[{"function":{}}]`, "tools[0].function.name", "tools[0].function.name: missing, expected a value"},
		{`"tools":[{"function":{"name":5}}]`, "tools[0].function.name", "tools[0].function.name: expected a string, got a number (5)"},
		{`"tools":[{"function":"f"}]`, "tools[0].function", "tools[0].function: expected an object, got a string"},
		{`"tools":["f"]`, "tools[0]", "tools[0]: expected an object, got a string"},
		{`"tools":{}`, "tools", "tools: expected an array, got an object"},
		{`"response_format":{"type":"text"}`, ok, ""},
		{`"response_format":{"type":"json_object"}`, ok, ""},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}`, ok, ""},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"","schema":{}}}`, "response_format.json_schema.name", "Response format json_schema must have a non-empty name"},
		{`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`, "response_format.json_schema.name", "Response format json_schema must have a non-empty name"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n"}}`, "response_format.json_schema.schema", "Response format json_schema must have a schema"},
		{`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":null}}`, "response_format.json_schema.schema", "Response format json_schema must have a schema"},
		{`"response_format":{"type":"json_schema"}`, "response_format.json_schema", "response_format.json_schema: missing, expected an object"},
		{`"response_format":{"type":"json_schema","json_schema":1}`, "response_format.json_schema", "response_format.json_schema: expected an object, got a number (1)"},
		{`"response_format":"json"`, "response_format", "response_format: expected an object, got a string"},
		{`"chat_template_kwargs":{"enable_thinking":false},"chat_template_args":{},"media_io_kwargs":{},"mm_processor_kwargs":{}`, ok, ""},
		{`"tool_choice":"auto","parallel_tool_calls":true,"store":false,"reasoning_effort":"low","service_tier":"auto","prompt_cache_key":"k","safety_identifier":"s","verbosity":"low"`, ok, ""},
		{`"function_call":null,"functions":null`, ok, ""},
		{`"functions":[],"function_call":"auto"`, "function_call", "`function_call` is deprecated. Please migrate to use `tool_choice` instead."},
		{`"messages":[{},"x"]`, "messages[1]", "messages[1]: expected an object, got a string"},
		{`"best_of":1`, "best_of", "Unsupported parameter(s): `best_of`"},
		{`"prompt":"x"`, "prompt", "Unsupported parameter(s): `prompt`"},
	}
	completions := []row{
		{`"logprobs":0`, ok, ""},
		{`"logprobs":5`, ok, ""},
		{`"logprobs":6`, "logprobs", "Logprobs must be between 0 and 5, got 6"},
		{`"max_tokens":1`, ok, ""},
		{`"max_tokens":0`, "max_tokens", "Max_tokens must be greater than 0, got 0"},
		{`"max_tokens":-1`, "max_tokens", "Max_tokens must be greater than 0, got -1"},
		{`"suffix":"` + strings.Repeat("é", 10_000) + `"`, ok, ""},
		{`"suffix":"` + strings.Repeat("é", 10_001) + `"`, "suffix", "Suffix must be at most 10000 characters, got 10001"},
		{`"best_of":20`, ok, ""},
		{`"best_of":21`, "best_of", "Best_of must be between 0 and 20, got 21"},
		{`"best_of":-1`, "best_of", "Best_of must be between 0 and 20, got -1"},
		{`"best_of":2,"n":2`, ok, ""},
		{`"best_of":1,"n":2`, "best_of", "Best_of must be greater than or equal to n, got best_of=1 and n=2"},
		{`"prompt":""`, "prompt", "Prompt cannot be empty"},
		{`"prompt":["a",""]`, "prompt[1]", "Prompt cannot be empty"},
		{`"prompt":[1,2]`, ok, ""},
		{`"prompt":[[1],[2]]`, ok, ""},
		{`"prompt":` + many(64, `"x"`) + `,"n":2`, ok, ""},
		{`"prompt":` + many(65, `"x"`) + `,"n":2`, "n", "Total choices (batch_size × n = 130) exceeds maximum of 128"},
		{`"prompt":` + many(129, `[1]`), "n", "Total choices (batch_size × n = 129) exceeds maximum of 128"},
		{`"prompt":` + many(129, `1`), ok, ""},
		{`"prompt":"","prompt_embeds":` + embedded(100), ok, ""},
		{`"prompt":null,"prompt_embeds":` + embedded(100), ok, ""},
		{`"prompt_embeds":` + embedded(99), "prompt_embeds", "Prompt_embeds must be between 100 and 10485760 bytes when decoded, got 99"},
		{`"prompt_embeds":` + embedded(10<<20), ok, ""},
		{`"prompt_embeds":` + embedded(10<<20+1), "prompt_embeds", "Prompt_embeds must be between 100 and 10485760 bytes when decoded, got 10485761"},
		{`"prompt_embeds":"` + strings.Repeat("*", 200) + `"`, "prompt_embeds", "Prompt_embeds must be valid base64"},
		{`"prompt_embeds":["AAAA"]`, "prompt_embeds", "prompt_embeds: expected a string, got an array"},
		{`"echo":true,"metadata":{}`, ok, ""},
		{`"messages":[]`, "messages", "Unsupported parameter(s): `messages`"},
		{`"functions":[]`, "functions", "Unsupported parameter(s): `functions`"},
	}
	for _, set := range []struct {
		name      string
		endpoints []Endpoint
		rows      []row
	}{
		{"both", []Endpoint{Chat, Completions}, both},
		{"chat", []Endpoint{Chat}, chat},
		{"completions", []Endpoint{Completions}, completions},
	} {
		for _, tc := range set.rows {
			for _, ep := range set.endpoints {
				name := fmt.Sprintf("%s %.60s", set.name, tc.fields)
				err := strict(ep, withFields(ep, tc.fields))
				if tc.param == ok {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				var e *Error
				if !errors.As(err, &e) {
					t.Errorf("%s: err = %v, want an *Error", name, err)
					continue
				}
				if diff := cmp.Diff([]string{tc.param, tc.want}, []string{e.Param, e.Message}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		}
	}
}

// A body with every fault at once is refused for the first; with that one
// repaired for the next, and so on.
func TestStrictOrder(t *testing.T) {
	type fault struct{ field, param string }
	for ep, faults := range map[Endpoint][]fault{
		Chat: {
			{`"user":5`, "user"},
			{`"function_call":"auto"`, "function_call"},
			{`"functions":[]`, "functions"},
			{`"foo":1`, "foo"},
			{`"frequency_penalty":3`, "frequency_penalty"},
			{`"logit_bias":{"5":101}`, "logit_bias"},
			{`"top_logprobs":25`, "top_logprobs"},
			{`"max_completion_tokens":0`, "max_completion_tokens"},
			{`"n":200`, "n"},
			{`"presence_penalty":3`, "presence_penalty"},
			{`"response_format":{"type":"json_schema","json_schema":{}}`, "response_format.json_schema.name"},
			{`"stop":[]`, "stop"},
			{`"temperature":3`, "temperature"},
			{`"top_p":3`, "top_p"},
			{`"tools":[` + tool("") + `]`, "tools[0].function.name"},
			{`"user":""`, "user"},
			{`"repetition_penalty":3`, "repetition_penalty"},
			{`"min_p":3`, "min_p"},
			{`"top_k":0`, "top_k"},
			{`"n":2,"temperature":0`, "n"},
			{`"guided_json":{},"guided_regex":"x"`, "guided_regex"},
		},
		Completions: {
			{`"suffix":5`, "suffix"},
			{`"foo":1`, "foo"},
			{`"prompt":""`, "prompt"},
			{`"suffix":"` + strings.Repeat("x", 10_001) + `"`, "suffix"},
			{`"max_tokens":0`, "max_tokens"},
			{`"temperature":3`, "temperature"},
			{`"top_p":3`, "top_p"},
			{`"n":200`, "n"},
			{`"logprobs":6`, "logprobs"},
			{`"stop":[]`, "stop"},
			{`"presence_penalty":3`, "presence_penalty"},
			{`"frequency_penalty":3`, "frequency_penalty"},
			{`"best_of":21`, "best_of"},
			{`"logit_bias":{"5":101}`, "logit_bias"},
			{`"user":""`, "user"},
			{`"repetition_penalty":3`, "repetition_penalty"},
			{`"min_p":3`, "min_p"},
			{`"top_k":0`, "top_k"},
			{`"n":2,"temperature":0`, "n"},
			{`"n":2,"prompt":` + many(65, `"x"`), "n"},
			{`"guided_json":{},"guided_regex":"x"`, "guided_regex"},
		},
	} {
		for i, f := range faults {
			// Of duplicate keys the last counts, so the faults go in backwards.
			var fields []string
			for k := len(faults) - 1; k >= i; k-- {
				fields = append(fields, faults[k].field)
			}
			err := strict(ep, withFields(ep, strings.Join(fields, ",")))
			var e *Error
			if !errors.As(err, &e) || e.Param != f.param {
				t.Errorf("%s: with %s first, err = %v", ep.Path(), f.field, err)
			}
		}
		if err := strict(ep, withFields(ep, "")); err != nil {
			t.Errorf("%s: %v", ep.Path(), err)
		}
	}
}

func BenchmarkStrict(b *testing.B) {
	r, err := ParseRequest(Chat, []byte(withFields(Chat, `"stream":true,"temperature":0.7,"top_p":0.9,"max_completion_tokens":256,"stop":["a","b"],"tools":[`+tool("f")+`]`)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Strict(); err != nil {
			b.Fatal(err)
		}
	}
}
