package simserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/openai"
)

// abortReason is the finish reason of an answer that somebody had end.
const abortReason = "abort"

// wasAborted reports whether somebody had the request end.
func (a *answer) wasAborted() bool {
	select {
	case <-a.aborted:
		return true
	default:
		return false
	}
}

// abortRequests ends the requests whose ids match.
func (s *Server) abortRequests(match func(id string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := s.mu.answers; a != nil; a = a.next {
		if a.abort != nil && match(a.req.rid) {
			a.abort()
		}
	}
}

// putDressed sends the chunk that holds the choice of one token as the engine would:
// in one event, or in as many as that takes.
func (a *answer) putDressed(w http.ResponseWriter, last bool) bool {
	t := a.server.face.traits()
	ch := a.one[0]
	if !t.tokenIDs || a.req.chat && !t.chatStreamIDs {
		ch.TokenIDs, ch.PromptTokenIDs, a.chunk.PromptTokenIDs = nil, nil, nil
	}
	if a.req.chat && ch.Role && t.roleFirst {
		role := openai.Choice{Index: ch.Index, Role: true}
		if !t.nullRole {
			role.Text = []byte{}
		}
		if !a.putChoice(w, role, false, false) {
			return false
		}
		ch.Role, a.chunk.PromptTokenIDs = false, nil
	}
	last = last && !a.req.includeUsage
	apart := t.finishText
	if a.req.chat {
		apart = t.finishApart
	}
	if ch.FinishReason == "" || !apart {
		return a.putChoice(w, ch, ch.FinishReason != "", last)
	}
	end := openai.Choice{Index: ch.Index, FinishReason: ch.FinishReason, StopReason: ch.StopReason}
	ch.FinishReason, ch.StopReason = "", ""
	if len(ch.Text) > 0 || ch.Role || ch.TokenIDs != nil || ch.Logprobs != nil {
		if !a.putChoice(w, ch, false, false) {
			return false
		}
	}
	return a.putChoice(w, end, true, last)
}

// putChoice sends one event with one choice. The end of a llama.cpp answer has more to
// say.
func (a *answer) putChoice(w http.ResponseWriter, ch openai.Choice, end, last bool) bool {
	a.one[0] = ch
	b := a.appendHead(a.json[:0], a.one[:], false)
	llama := a.server.cfg.Dress == DressLlamaCpp
	switch {
	case llama && end && !a.req.chat:
		b = append(b, `,"usage":`...)
		b = a.appendUsage(b)
		b = a.appendTimings(b, ch.Index)
	case llama && end && !a.req.includeUsage:
		b = a.appendTimings(b, ch.Index)
	case a.chunk.Usage != nil:
		b = append(b, `,"usage":`...)
		b = a.appendUsage(b)
	case a.server.face.traits().usageNull:
		b = append(b, `,"usage":null`...)
	}
	a.json = append(b, '}')
	if last {
		a.addTimes()
	}
	return a.emit(w)
}

// putDressedUsage sends the usage, in a chunk without a choice.
func (a *answer) putDressedUsage(w http.ResponseWriter) bool {
	llama := a.server.cfg.Dress == DressLlamaCpp
	if llama && !a.req.chat {
		return true // it came with the last token
	}
	b := a.appendHead(a.json[:0], nil, false)
	b = append(b, `,"usage":`...)
	b = a.appendUsage(b)
	if llama {
		b = a.appendTimings(b, 0)
	}
	a.json = append(b, '}')
	a.addTimes()
	return a.emit(w)
}

// putAborted ends a stream that somebody had end.
func (a *answer) putAborted(w http.ResponseWriter) {
	a.chunk.PromptTokenIDs = nil
	for i := range a.choices {
		if c := &a.choices[i]; !c.done() {
			if !a.putChoice(w, openai.Choice{Index: c.index, FinishReason: abortReason}, true, false) {
				return
			}
		}
	}
	a.finish(w)
}

// appendWhole appends an answer that is not streamed.
func (a *answer) appendWhole(b []byte, choices []openai.Choice) []byte {
	if !a.server.face.traits().tokenIDs {
		for i := range choices {
			choices[i].TokenIDs, choices[i].PromptTokenIDs = nil, nil
		}
		a.chunk.PromptTokenIDs = nil
	}
	b = a.appendHead(b, choices, true)
	b = append(b, `,"usage":`...)
	b = a.appendUsage(b)
	if a.server.cfg.Dress == DressLlamaCpp {
		b = a.appendTimings(b, 0)
	}
	return append(b, '}')
}

// appendHead appends an object up to its usage: of a whole answer, or of an event.
func (a *answer) appendHead(b []byte, choices []openai.Choice, whole bool) []byte {
	object := "text_completion"
	switch {
	case a.req.chat && whole:
		object = "chat.completion"
	case a.req.chat:
		object = "chat.completion.chunk"
	}
	t := a.server.face.traits()
	b = append(b, '{')
	if t.choicesFirst {
		b = a.appendChoices(b, choices, whole)
		b = append(b, ',')
	}
	b = append(b, `"id":`...)
	b = openai.AppendString(b, a.chunk.ID)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.chunk.Created, 10)
	b = append(b, `,"model":`...)
	b = openai.AppendString(b, a.chunk.Model)
	if t.choicesFirst {
		b = append(b, `,"system_fingerprint":"`...)
		b = append(b, t.version...)
		b = append(b, '"')
	} else {
		b = append(b, ',')
		b = a.appendChoices(b, choices, whole)
	}
	if a.chunk.PromptTokenIDs != nil {
		b = append(b, `,"prompt_token_ids":`...)
		b = openai.AppendTokenIDs(b, a.chunk.PromptTokenIDs)
	}
	return b
}

func (a *answer) appendChoices(b []byte, choices []openai.Choice, whole bool) []byte {
	b = append(b, `"choices":[`...)
	for i := range choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.appendChoice(b, &choices[i], whole)
	}
	return append(b, ']')
}

func (a *answer) appendChoice(b []byte, ch *openai.Choice, whole bool) []byte {
	t := a.server.face.traits()
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(ch.Index), 10)
	switch {
	case !a.req.chat:
		b = append(b, `,"text":`...)
		b = openai.AppendString(b, ch.Text)
	case whole:
		b = append(b, `,"message":{"role":"assistant","content":`...)
		b = openai.AppendString(b, ch.Text)
		b = append(b, '}')
	default:
		b = append(b, `,"delta":{`...)
		if ch.Role {
			b = append(b, `"role":"assistant"`...)
		}
		if ch.Role && (ch.Text != nil || t.nullRole) {
			b = append(b, ',')
		}
		switch {
		case ch.Text != nil:
			b = append(b, `"content":`...)
			b = openai.AppendString(b, ch.Text)
		case ch.Role && t.nullRole:
			b = append(b, `"content":null`...)
		}
		b = append(b, '}')
	}
	b = append(b, `,"logprobs":`...)
	b = append(b, a.logprobs(ch)...)
	b = append(b, `,"finish_reason":`...)
	if ch.FinishReason == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, ch.FinishReason)
	}
	if t.stop != "" && (whole || ch.FinishReason != "") {
		b = append(b, `,"`...)
		b = append(b, t.stop...)
		b = append(b, `":`...)
		switch {
		case ch.StopReason != "":
			b = openai.AppendString(b, ch.StopReason)
		case t.stopToken && ch.FinishReason == "stop":
			b = strconv.AppendUint(b, uint64(a.server.vocab.end), 10)
		default:
			b = append(b, "null"...)
		}
	}
	if ch.TokenIDs != nil {
		b = append(b, `,"token_ids":`...)
		b = openai.AppendTokenIDs(b, ch.TokenIDs)
	}
	if ch.PromptTokenIDs != nil && !a.req.chat {
		b = append(b, `,"prompt_token_ids":`...)
		b = openai.AppendTokenIDs(b, ch.PromptTokenIDs)
	}
	return append(b, '}')
}

// logprobs returns the log probabilities of a choice as JSON: taken from an object that
// has nothing else to tell.
func (a *answer) logprobs(ch *openai.Choice) []byte {
	if ch.Logprobs == nil {
		return []byte("null")
	}
	only := openai.Chunk{Choices: []openai.Choice{{Logprobs: ch.Logprobs}}}
	write := openai.AppendCompletion
	if a.req.chat {
		write = openai.AppendChatChunk
	}
	o, err := openai.ParseObject(write(nil, &only))
	if err != nil {
		panic(fmt.Sprintf("simserver: %v", err)) // we wrote it
	}
	var out openai.Value
	o.Get("choices").Elements(func(v openai.Value) bool {
		if c, err := openai.ParseObject(v); err == nil {
			out = c.Get("logprobs")
		}
		return false
	})
	return out
}

// appendUsage appends the tokens of the answer.
func (a *answer) appendUsage(b []byte) []byte {
	u := &a.usage
	b = fmt.Appendf(b, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":`,
		u.Prompt, u.Prompt+u.Completion, u.Completion)
	_, null := a.server.faults.on(FaultNullCached)
	if !u.HasCached || null && u.Cached == 0 {
		b = append(b, "null"...)
	} else {
		b = fmt.Appendf(b, `{"cached_tokens":%d}`, u.Cached)
	}
	if a.server.face.traits().reasoning {
		b = append(b, `,"reasoning_tokens":0`...)
	}
	return append(b, '}')
}

// appendTimings appends what llama.cpp tells of the times of a choice.
func (a *answer) appendTimings(b []byte, choice int) []byte {
	c := &a.choices[choice]
	cached, took, wrote := 0, a.server.cfg.TTFT, time.Duration(max(0, c.tokens-1))*a.server.cfg.ITL
	if a.job != nil {
		cached = a.job.sequences[choice].cached
		took, wrote = a.job.first-a.job.arrived, a.job.last-a.job.first
	}
	part := func(name string, n int, d time.Duration) {
		ms := float64(d) / float64(time.Millisecond)
		var each, rate float64
		if n > 0 {
			each = ms / float64(n)
		}
		if ms > 0 {
			rate = float64(n) * 1000 / ms
		}
		b = fmt.Appendf(b, `,"%[1]s_n":%[2]d,"%[1]s_ms":%.3[3]f,"%[1]s_per_token_ms":%.3[4]f,"%[1]s_per_second":%.3[5]f`, name, n, ms, each, rate)
	}
	b = fmt.Appendf(b, `,"timings":{"cache_n":%d`, cached)
	part("prompt", len(c.prompt.ids)-cached, took)
	part("predicted", c.tokens, wrote)
	return append(b, '}')
}

// sameID returns a match for requests by one of their ids.
func sameID(id string) func(string) bool {
	return func(rid string) bool {
		return rid == id || strings.TrimPrefix(strings.TrimPrefix(rid, "chatcmpl-"), "cmpl-") == id
	}
}
