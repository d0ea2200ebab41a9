package hints

import (
	"bytes"

	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/trie"
)

// maxAnswer is the longest answer, or event of one, that is looked at.
const maxAnswer = 4 << 20

// answer finds out what an answer says it used, in the words of the chat, completions,
// responses and messages APIs.
type answer struct {
	stream  bool
	scanner *openai.Scanner
	whole   []byte // of an answer that is no stream
	blind   bool   // it is too long to be looked at, or compressed
	done    bool   // the end of the stream was seen

	prompt, completion, cached *int
	deltas                     int
}

// add takes what comes next.
func (a *answer) add(p []byte) {
	if a.blind {
		return
	}
	if !a.stream {
		if a.blind = len(a.whole)+len(p) > maxAnswer; a.blind {
			a.whole = nil
			return
		}
		a.whole = append(a.whole, p...)
		return
	}
	if a.scanner == nil {
		a.scanner = openai.NewScanner(make([]byte, 4<<10), maxAnswer)
	}
	for r := bytes.NewReader(p); r.Len() > 0; {
		if err := a.scanner.Fill(r); err != nil {
			a.blind = true
			return
		}
		for ev, ok := a.scanner.Next(); ok; ev, ok = a.scanner.Next() {
			a.event(&ev)
		}
	}
}

func (a *answer) event(ev *openai.Event) {
	switch {
	case ev.IsDone(), string(ev.Name) == "message_stop", string(ev.Name) == "response.completed":
		a.done = true
	}
	a.look(ev.Data)
}

// look reads one object of an answer.
func (a *answer) look(data []byte) {
	var info openai.ChunkInfo
	if openai.ParseChunk(data, &info) == nil {
		a.deltas += info.Tokens()
	}
	if !bytes.Contains(data, []byte(`"usage"`)) {
		return
	}
	o, err := openai.ParseObject(data)
	if err != nil {
		return
	}
	usage := o.Get("usage")
	for _, wrapper := range []string{"response", "message"} {
		if usage.Kind() == '{' {
			break
		}
		if inner, err := openai.ParseObject(o.Get(wrapper)); err == nil {
			usage = inner.Get("usage")
		}
	}
	if u, err := openai.ParseObject(usage); err == nil {
		a.usage(&u)
	}
}

// usage takes what an object says over; what it does not say stays.
func (a *answer) usage(u *openai.Object) {
	first := func(names ...string) *int {
		for _, name := range names {
			if n, ok := u.Get(name).Uint(); ok {
				v := int(min(n, maxCount))
				return &v
			}
		}
		return nil
	}
	if n := first("completion_tokens", "output_tokens"); n != nil {
		a.completion = n
	}
	cached := first("cache_read_input_tokens")
	if n := first("prompt_tokens", "input_tokens"); n != nil {
		a.prompt = n
		for _, apart := range []*int{cached, first("cache_creation_input_tokens")} {
			if apart != nil { // the messages API does not count these among the input
				*n += *apart
			}
		}
	}
	for _, name := range []string{"prompt_tokens_details", "input_tokens_details"} {
		if d, err := openai.ParseObject(u.Get(name)); err == nil && cached == nil {
			if n, ok := d.Get("cached_tokens").Uint(); ok {
				v := int(min(n, maxCount))
				cached = &v
			}
		}
	}
	if cached != nil {
		a.cached = cached
	}
}

// complete reports whether nothing is missing.
func (a *answer) complete() bool {
	if a.stream {
		return a.done
	}
	_, err := openai.ParseObject(a.whole)
	return err == nil
}

// fill writes down what was found. The length of a stream that does not say is that of its
// chunks.
func (a *answer) fill(s *trie.Span) {
	if !a.stream && len(a.whole) > 0 {
		a.look(a.whole)
	}
	s.PromptTokens, s.CompletionTokens, s.CachedTokens = a.prompt, a.completion, a.cached
	if a.completion == nil && a.stream && a.deltas > 0 {
		s.CompletionTokens = &a.deltas
	}
}
