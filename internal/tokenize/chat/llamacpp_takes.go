package chat

import (
	"regexp"
	"strings"

	"github.com/stator-ai/stator/internal/jinja"
)

// takesLlamaCpp is what llama.cpp finds out about a template by rendering small chats
// with it. It watches which values are used; here, what is printed tells.
type takesLlamaCpp struct {
	texts   bool // content that is text
	parts   bool // content that is a list of parts
	trims   bool // and takes white space away around it
	system  bool // system messages
	objects bool // arguments of calls that are values
	strings bool // and that are JSON in a string
	thinks  bool // answers with thoughts
	// opening and closing are around a thought, the white space there included.
	// They are empty where the template knows none.
	opening, closing string
	continues        bool // opening and closing are known
	coded            bool // llama.cpp has code for the template
}

// What is looked for in prompts.
const (
	saidMark    = "S4y5om3th1ng"
	thoughtMark = "Th1nk5om3th1ng"
)

// probeLlamaCpp finds out what a template takes.
func (t *Template) probeLlamaCpp(s *source, src string) {
	takes := &s.llama
	takes.coded = known(src, knownLlamaCpp)
	prints := func(v *varsLlamaCpp, generation bool) string {
		text, err := t.printLlamaCpp(nil, s, v, generation)
		if err != nil {
			return ""
		}
		return string(text)
	}
	list := func(items ...jinja.Value) *jinja.List { return &jinja.List{Items: items} }
	part := func(text string) jinja.Value { return list(dict("type", "text", "text", text)) }
	message := func(role, text string) *jinja.Dict {
		if takes.texts {
			return dict("role", role, "content", text)
		}
		return dict("role", role, "content", part(text))
	}
	switch t.config.ContentFormat {
	case "":
		text := prints(&varsLlamaCpp{messages: list(dict("role", "user", "content", saidMark))}, true)
		parts := prints(&varsLlamaCpp{messages: list(dict("role", "user", "content", part(saidMark)))}, true)
		takes.texts = strings.Contains(text, saidMark)
		takes.parts = strings.Contains(parts, saidMark) && (!takes.texts || text == parts)
		takes.texts = takes.texts || !takes.parts
	default:
		takes.parts = t.config.ContentFormat == "openai"
		takes.texts = !takes.parts
	}
	takes.trims = trimming.MatchString(src)
	takes.system = strings.Contains(prints(&varsLlamaCpp{messages: list(message("system", saidMark), message("user", "Hello"))}, true), saidMark)

	call := func(arguments jinja.Value) *jinja.Dict {
		return dict("id", "call00001", "type", "function", "function", dict("name", "look", "arguments", arguments))
	}
	called := message("assistant", "")
	result := message("tool", "found")
	result.Set("tool_call_id", "call00001")
	tools := list(dict("type", "function", "function", dict("name", "look", "description", "Looks", "parameters",
		dict("type", "object", "properties", dict("arg", dict("type", "string", "description", "An arg")), "required", list("arg")))))
	calls := func(arguments jinja.Value) bool {
		called.Set("tool_calls", list(call(arguments)))
		return strings.Contains(prints(&varsLlamaCpp{
			messages: list(message("user", "Hello"), called, result, message("assistant", "Found."), message("user", "Hello")),
			tools:    tools,
		}, true), saidMark)
	}
	takes.strings = calls(`{"arg": "` + saidMark + `"}`)
	takes.objects = calls(dict("arg", saidMark))

	// How a thought is printed, be it only with a call; and whether asking for
	// thoughts changes how a turn begins.
	thought := message("assistant", saidMark)
	thought.Set("reasoning_content", thoughtMark)
	takes.opening, takes.closing, takes.continues = marksAround(
		prints(&varsLlamaCpp{messages: list(message("user", "Hello"), thought), thinking: true}, false))
	takes.thinks = takes.opening != "" || !takes.continues
	if !takes.thinks {
		called.Set("reasoning_content", thoughtMark)
		question := list(message("user", "Hello"))
		off, on := prints(&varsLlamaCpp{messages: question}, true), prints(&varsLlamaCpp{messages: question, thinking: true}, true)
		withCall := strings.Contains(prints(&varsLlamaCpp{messages: list(question.Items[0], called), tools: tools, thinking: true}, false), thoughtMark)
		takes.thinks = withCall || goesOn(off, on) || goesOn(on, off)
		takes.continues = !withCall && off == on
	}
	takes.continues = takes.continues && !known(src, continuedLlamaCpp)
}

// goesOn reports whether the end of a prompt is in another, which goes on after it.
func goesOn(prompt, longer string) bool {
	end := prompt[max(0, len(prompt)-64):]
	i := strings.LastIndex(longer, end)
	return i >= 0 && strings.TrimSpace(longer[i+len(end):]) != ""
}

// trimming finds what takes white space away in a template, of any kind.
var trimming = regexp.MustCompile(`\|\s*trim\b|strip\(\s*\)`)

// marksAround returns what is around the thought in a prompt: something in angle or
// square brackets, and white space. There is nothing where there is no thought; it is
// not ok if they cannot be told.
func marksAround(prompt string) (before, after string, ok bool) {
	left, right, found := strings.Cut(prompt, thoughtMark)
	if !found {
		return "", "", true
	}
	mark := strings.TrimRight(left, " \t\r\n")
	start := strings.LastIndexAny(mark, "<[")
	if start < 0 || !bracketed(mark[start:]) {
		return "", "", false
	}
	next := strings.TrimLeft(right, " \t\r\n")
	end := strings.IndexAny(next, ">]") + 1
	if !bracketed(next[:end]) {
		return "", "", false
	}
	spaces := len(next) - len(strings.TrimLeft(next[end:], " \t\r\n"))
	return left[start:], right[:len(right)-len(next)+spaces], true
}

// bracketed reports whether s is one mark: no white space and no other brackets inside.
func bracketed(s string) bool {
	if len(s) < 3 || strings.ContainsAny(s[1:len(s)-1], "<>[] \t\r\n") {
		return false
	}
	open, end := s[0], s[len(s)-1]
	return open == '<' && end == '>' || open == '[' && end == ']'
}
