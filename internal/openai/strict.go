package openai

import (
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of strict validation.
const (
	maxChoices      = 128 // of one request, over all its prompts
	maxBestOf       = 20
	maxTopLogprobs  = 20
	maxLogprobs     = 5
	maxStops        = 32
	maxTools        = 1536
	maxToolName     = 96 // characters
	maxSuffix       = 10_000
	maxGrammarDepth = 500
	minEmbeds       = 100 // bytes, decoded
	maxEmbeds       = 10 << 20
)

// Strict holds the request to the full validation that [ParseRequest] leaves to
// the engine: top-level keys are known, and every field has its type and is
// within its bounds. The order of the checks is fixed and the first fault is
// returned, an *[Error] with Code and Param. Types come before everything else,
// then the deprecated fields, unknown keys, and the fields one by one.
func (r *Request) Strict() error {
	fields, rules := chatFields, chatRules
	if r.Endpoint == Completions {
		fields, rules = completionFields, completionRules
	}
	if err := r.checkTypes(fields); err != nil {
		return err
	}
	for _, check := range rules {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

// rule checks one aspect of a request whose fields have the right types.
type rule func(*Request) error

// Messages, model and stream_options have been checked by ParseRequest.
var chatRules = []rule{
	refuseDeprecated("function_call", "tool_choice"),
	refuseDeprecated("functions", "tools"),
	refuseUnknown(chatFields),
	checkBetween("frequency_penalty", "Frequency penalty", -2, 2),
	checkLogitBias,
	checkBetween("top_logprobs", "Top_logprobs", 0, maxTopLogprobs),
	checkPositive("max_completion_tokens", "Max_completion_tokens"),
	checkBetween("n", "n", 1, maxChoices),
	checkBetween("presence_penalty", "Presence penalty", -2, 2),
	checkResponseFormat,
	checkStop,
	checkBetween("temperature", "Temperature", 0, 2),
	checkBetween("top_p", "Top_p", 0, 1),
	checkTools,
	checkUser,
	checkRepetitionPenalty,
	checkBetween("min_p", "Min_p", 0, 1),
	checkTopK,
	checkChoicesDiffer,
	checkGuided,
}

var completionRules = []rule{
	refuseUnknown(completionFields),
	checkPromptOrEmbeds,
	checkSuffix,
	checkPositive("max_tokens", "Max_tokens"),
	checkBetween("temperature", "Temperature", 0, 2),
	checkBetween("top_p", "Top_p", 0, 1),
	checkBetween("n", "n", 1, maxChoices),
	checkBetween("logprobs", "Logprobs", 0, maxLogprobs),
	checkStop,
	checkBetween("presence_penalty", "Presence penalty", -2, 2),
	checkBetween("frequency_penalty", "Frequency penalty", -2, 2),
	checkBestOf,
	checkLogitBias,
	checkUser,
	checkRepetitionPenalty,
	checkBetween("min_p", "Min_p", 0, 1),
	checkTopK,
	checkChoicesDiffer,
	checkTotalChoices,
	checkGuided,
}

func refuseDeprecated(key, instead string) rule {
	return func(r *Request) error {
		if !r.Get(key).Present() {
			return nil
		}
		return &Error{Code: CodeNotImplemented, Param: key,
			Message: fmt.Sprintf("`%s` is deprecated. Please migrate to use `%s` instead.", key, instead)}
	}
}

// refuseUnknown refuses keys that are not in fields, naming each once in the order
// of the body.
func refuseUnknown(fields map[string]shape) rule {
	const most = 16 // names in one message
	return func(r *Request) error {
		var unknown []string
		for i := range r.Len() {
			key, _ := r.At(i)
			if _, ok := fields[key]; ok || slices.Contains(unknown, clip(key)) {
				continue
			}
			if unknown = append(unknown, clip(key)); len(unknown) == most {
				break
			}
		}
		if len(unknown) == 0 {
			return nil
		}
		return invalid(unknown[0], "Unsupported parameter(s): `%s`", strings.Join(unknown, "`, `"))
	}
}

func checkBetween(key, name string, low, high float64) rule {
	return func(r *Request) error {
		v := r.Get(key)
		if f, ok := number(v); ok && (f < low || f > high) {
			return invalid(key, "%s must be between %s and %s, got %s", name, formatNumber(low), formatNumber(high), spell(v))
		}
		return nil
	}
}

func checkPositive(key, name string) rule {
	return func(r *Request) error {
		v := r.Get(key)
		if f, ok := number(v); ok && f <= 0 {
			return invalid(key, "%s must be greater than 0, got %s", name, spell(v))
		}
		return nil
	}
}

func checkRepetitionPenalty(r *Request) error {
	const key = "repetition_penalty"
	v := r.Get(key)
	if f, ok := number(v); ok && (f <= 0 || f > 2) {
		return invalid(key, "Repetition penalty must be between 0 and 2, got %s", spell(v))
	}
	return nil
}

func checkTopK(r *Request) error {
	const key = "top_k"
	if f, ok := number(r.Get(key)); ok && f != -1 && f < 1 {
		return invalid(key, "Top_k must be null, -1, or greater than or equal to 1")
	}
	return nil
}

func checkBestOf(r *Request) error {
	const key = "best_of"
	if err := checkBetween(key, "Best_of", 0, maxBestOf)(r); err != nil {
		return err
	}
	if f, ok := number(r.Get(key)); ok && f < float64(r.N) {
		return invalid(key, "Best_of must be greater than or equal to n, got best_of=%s and n=%d", formatNumber(f), r.N)
	}
	return nil
}

func checkLogitBias(r *Request) error {
	const key = "logit_bias"
	v := r.Get(key)
	if !v.Present() {
		return nil
	}
	o, err := ParseObject(v)
	if err != nil {
		return syntaxError(err)
	}
	for i := range o.Len() {
		token, bias := o.At(i)
		f, ok := number(bias)
		if !ok {
			return invalid(key, "Logit bias for token '%s' must be a number, got %s", clip(token), describe(bias))
		}
		if f < -100 || f > 100 {
			return invalid(key, "Logit bias for token '%s' must be between -100 and 100, got %s", clip(token), spell(bias))
		}
	}
	return nil
}

// checkChoicesDiffer refuses several choices that would all be the same.
func checkChoicesDiffer(r *Request) error {
	if f, ok := number(r.Get("temperature")); ok && f == 0 && r.N > 1 {
		return invalid("n", "When n > 1, temperature must be greater than 0, got n=%d and temperature=0", r.N)
	}
	return nil
}

func checkTotalChoices(r *Request) error {
	if total := uint64(len(r.Batch())) * r.N; total > maxChoices {
		return invalid("n", "Total choices (batch_size × n = %d) exceeds maximum of %d", total, maxChoices)
	}
	return nil
}

func checkResponseFormat(r *Request) error {
	v := r.Get("response_format")
	if !v.Present() {
		return nil
	}
	format, err := ParseObject(v)
	if err != nil {
		return syntaxError(err)
	}
	if kind, _ := format.Get("type").Text(); kind != "json_schema" {
		return nil
	}
	const param = "response_format.json_schema"
	v = format.Get("json_schema")
	switch {
	case !v.Present():
		return missing(param, "an object")
	case v.Kind() != '{':
		return typeError(param, "an object", v)
	}
	schema, err := ParseObject(v)
	if err != nil {
		return syntaxError(err)
	}
	name, err := optionalString(param+".name", schema.Get("name"))
	if err != nil {
		return err
	}
	if name == "" {
		return invalid(param+".name", "Response format json_schema must have a non-empty name")
	}
	if !schema.Get("schema").Present() {
		return invalid(param+".schema", "Response format json_schema must have a schema")
	}
	return nil
}

func checkStop(r *Request) error {
	v := r.Get("stop")
	all := []Value{v}
	switch {
	case !v.Present():
		return nil
	case v.Kind() == '[':
		all = elements(v)
		if len(all) == 0 {
			return invalid("stop", "Stop must hold at least one sequence")
		}
		if len(all) > maxStops {
			return invalid("stop", "Maximum of %d stop sequences are supported, got %d", maxStops, len(all))
		}
	}
	for i, e := range all {
		param := "stop"
		if v.Kind() == '[' {
			param = index("stop", i)
		}
		s, err := decoded(param, e)
		if err != nil {
			return err
		}
		if s == "" {
			return invalid(param, "Stop sequences cannot be empty")
		}
	}
	return nil
}

func checkTools(r *Request) error {
	v := r.Get("tools")
	if !v.Present() {
		return nil
	}
	all := elements(v)
	if len(all) > maxTools {
		return invalid("tools", "Maximum of %d tools are supported, got %d", maxTools, len(all))
	}
	for i, tool := range all {
		function, err := requiredMember(index("tools", i), tool, "function")
		if err != nil {
			return err
		}
		param := index("tools", i) + ".function"
		v, err := requiredMember(param, function, "name")
		if err != nil {
			return err
		}
		param += ".name"
		name, err := decoded(param, v)
		if err != nil {
			return err
		}
		if n := utf8.RuneCountInString(name); n < 1 || n > maxToolName {
			return invalid(param, "Function name must be between 1 and %d characters, got %d", maxToolName, n)
		}
	}
	return nil
}

func checkUser(r *Request) error {
	v := r.Get("user")
	if !v.Present() {
		return nil
	}
	s, err := decoded("user", v)
	if err == nil && strings.TrimSpace(s) == "" {
		err = invalid("user", "User cannot be empty")
	}
	return err
}

func checkSuffix(r *Request) error {
	s, err := optionalString("suffix", r.Get("suffix"))
	if n := utf8.RuneCountInString(s); err == nil && n > maxSuffix {
		err = invalid("suffix", "Suffix must be at most %d characters, got %d", maxSuffix, n)
	}
	return err
}

func checkPromptOrEmbeds(r *Request) error {
	if v := r.Get("prompt_embeds"); v.Present() {
		return checkEmbeds(v)
	}
	if r.Prompt.Kind() == '"' {
		if r.Prompt.empty() {
			return invalid("prompt", "Prompt cannot be empty")
		}
		return nil
	}
	for i, p := range elements(r.Prompt) {
		if p.Kind() != '"' {
			break // token ids, which have been looked at
		}
		if p.empty() {
			return invalid(index("prompt", i), "Prompt cannot be empty")
		}
	}
	return nil
}

func checkEmbeds(v Value) error {
	const key = "prompt_embeds"
	s, err := decoded(key, v)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(s)))
	switch {
	case err != nil:
		return &Error{Code: CodeInvalidValue, Param: key, Message: "Prompt_embeds must be valid base64", Err: err}
	case n < minEmbeds || n > maxEmbeds:
		return invalid(key, "Prompt_embeds must be between %d and %d bytes when decoded, got %d", minEmbeds, maxEmbeds, n)
	}
	return nil
}

// checkGuided allows one way of guided decoding at a time, and no grammar that a
// recursive parser would choke on.
func checkGuided(r *Request) error {
	var first string
	for _, key := range []string{"guided_json", "guided_regex", "guided_grammar", "guided_choice"} {
		if !r.Get(key).Present() {
			continue
		}
		if first != "" {
			return invalid(key, "Only one kind of guided decoding is allowed, got `%s` and `%s`", first, key)
		}
		first = key
	}
	grammar, err := optionalString("guided_grammar", r.Get("guided_grammar"))
	if err != nil {
		return err
	}
	if n := nesting(grammar); n > maxGrammarDepth {
		return invalid("guided_grammar", "Grammar nesting must be at most %d levels, got %d", maxGrammarDepth, n)
	}
	return nil
}

// nesting returns how deep brackets are nested in s.
func nesting(s string) int {
	depth, deepest := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// invalid returns an error about the value of a field.
func invalid(param, format string, args ...any) error {
	return &Error{Code: CodeInvalidValue, Param: param, Message: fmt.Sprintf(format, args...)}
}

// clip shortens a client's key for a message.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// elements returns the elements of v, none when it is no array.
func elements(v Value) []Value {
	var all []Value
	_ = v.Elements(func(e Value) bool { all = append(all, e); return true })
	return all
}

// requiredMember returns a member that the object v, which is called param, must have.
func requiredMember(param string, v Value, key string) (Value, error) {
	if v.Kind() != '{' {
		return nil, typeError(param, "an object", v)
	}
	o, err := ParseObject(v)
	if err != nil {
		return nil, syntaxError(err)
	}
	m := o.Get(key)
	if !m.Present() {
		return nil, missing(param+"."+key, "a value")
	}
	return m, nil
}

// optionalString is decoded for a string that may be absent or null.
func optionalString(param string, v Value) (string, error) {
	if !v.Present() {
		return "", nil
	}
	return decoded(param, v)
}

// number returns the number in v, or false when it is none. What is too large
// for a float64 is infinite.
func number(v Value) (float64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	f, _ := strconv.ParseFloat(string(v), 64)
	return f, true
}

// formatNumber writes f without an exponent, and without a point where it is
// whole.
func formatNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// spell writes the number v for a message: as formatNumber does where that is
// short, else as the client wrote it.
func spell(v Value) string {
	if f, _ := number(v); math.Abs(f) < 1e15 && (f == 0 || math.Abs(f) > 1e-9) {
		return formatNumber(f)
	}
	return string(v[:min(len(v), 32)])
}
