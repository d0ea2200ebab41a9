package openai

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Chunk is one response object: an event of a stream or a whole unary body,
// depending on the function that writes it. The builders read it and keep
// nothing, so that one Chunk can serve a whole stream.
type Chunk struct {
	ID      string // complete, prefix included: chatcmpl-… or cmpl-…
	Model   string
	Created int64 // Unix seconds
	Choices []Choice
	// Usage is written as null when nil.
	Usage *Usage
	// NVExt is a JSON object; the key is left out when it is empty.
	NVExt []byte
	// PromptTokenIDs is written when not nil, by the chat builders only:
	// completions, which may have several prompts, have it in each choice.
	PromptTokenIDs []uint32
}

// Choice is one choice of a [Chunk].
type Choice struct {
	Index int
	// Text is the new text of a chunk or the whole text of a unary body. In a
	// chat chunk nil leaves the content key out and an empty slice writes "".
	Text []byte
	// Role makes a chat chunk say that the assistant speaks. It belongs in the
	// first chunk of each choice; unary bodies always have it.
	Role bool
	// FinishReason is stop, length, …; empty while the choice goes on.
	FinishReason string
	// StopReason is the stop string that matched; left out when empty.
	StopReason string
	// Logprobs has one entry per token; nil when they were not asked for.
	Logprobs []TokenLogprob
	// TokenIDs are the ids behind Text; the key is left out when nil.
	TokenIDs []uint32
	// PromptTokenIDs is written when not nil, by [AppendCompletion] only.
	PromptTokenIDs []uint32
}

// Logprob is a token and the natural logarithm of its probability. NaN and
// infinities are written as null.
type Logprob struct {
	Token   []byte // as bytes, which need not be valid UTF-8
	Logprob float64
}

// TokenLogprob is the log probability of a token that was chosen.
type TokenLogprob struct {
	Logprob
	// Top holds the most likely tokens at this position, best first.
	Top []Logprob
	// Offset is where the token starts in the text, in characters. Only
	// completions have it on the wire.
	Offset int
}

// AppendChatChunk appends c as one chunk of a chat stream.
func AppendChatChunk(dst []byte, c *Chunk) []byte {
	dst = appendHead(dst, c)
	for i := range c.Choices {
		ch := &c.Choices[i]
		dst = appendIndex(dst, i, ch.Index)
		dst = append(dst, `,"delta":{`...)
		if ch.Text != nil {
			dst = append(dst, `"content":`...)
			dst = AppendString(dst, ch.Text)
		}
		if ch.Role {
			if ch.Text != nil {
				dst = append(dst, ',')
			}
			dst = append(dst, `"role":"assistant"`...)
		}
		dst = append(dst, '}')
		dst = appendChatOutcome(dst, ch)
	}
	return appendChatTail(dst, c, "chat.completion.chunk")
}

// AppendChat appends c as the body of a unary chat response.
func AppendChat(dst []byte, c *Chunk) []byte {
	dst = appendHead(dst, c)
	for i := range c.Choices {
		ch := &c.Choices[i]
		dst = appendIndex(dst, i, ch.Index)
		dst = append(dst, `,"message":{`...)
		if len(ch.Text) > 0 {
			dst = append(dst, `"content":`...)
			dst = AppendString(dst, ch.Text)
			dst = append(dst, ',')
		}
		dst = append(dst, `"role":"assistant","reasoning_content":null}`...)
		dst = appendChatOutcome(dst, ch)
	}
	return appendChatTail(dst, c, "chat.completion")
}

// AppendCompletion appends c as a text completion. Chunks of a stream and unary
// bodies have the same shape.
func AppendCompletion(dst []byte, c *Chunk) []byte {
	dst = appendHead(dst, c)
	for i := range c.Choices {
		ch := &c.Choices[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"text":`...)
		dst = AppendString(dst, ch.Text)
		dst = append(dst, `,"index":`...)
		dst = strconv.AppendInt(dst, int64(ch.Index), 10)
		if ch.Logprobs != nil {
			dst = append(dst, `,"logprobs":`...)
			dst = appendTextLogprobs(dst, ch.Logprobs)
		}
		if ch.FinishReason != "" {
			dst = append(dst, `,"finish_reason":`...)
			dst = AppendString(dst, ch.FinishReason)
		}
		dst = appendExtras(dst, ch)
		if ch.PromptTokenIDs != nil {
			dst = append(dst, `,"prompt_token_ids":`...)
			dst = AppendTokenIDs(dst, ch.PromptTokenIDs)
		}
		dst = append(dst, '}')
	}
	dst = appendModel(dst, c)
	dst = append(dst, `,"system_fingerprint":null`...)
	dst = appendObject(dst, c, "text_completion")
	return append(dst, '}')
}

func appendHead(dst []byte, c *Chunk) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, c.ID)
	return append(dst, `,"choices":[`...)
}

func appendIndex(dst []byte, i, index int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = append(dst, `{"index":`...)
	return strconv.AppendInt(dst, int64(index), 10)
}

// appendChatOutcome closes a chat choice.
func appendChatOutcome(dst []byte, ch *Choice) []byte {
	dst = append(dst, `,"finish_reason":`...)
	if ch.FinishReason == "" {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, ch.FinishReason)
	}
	if ch.StopReason != "" {
		dst = append(dst, `,"stop_reason":`...)
		dst = AppendString(dst, ch.StopReason)
	}
	dst = append(dst, `,"logprobs":`...)
	if ch.Logprobs == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendChatLogprobs(dst, ch.Logprobs)
	}
	if ch.TokenIDs != nil {
		dst = append(dst, `,"token_ids":`...)
		dst = AppendTokenIDs(dst, ch.TokenIDs)
	}
	return append(dst, '}')
}

// appendExtras appends what a completion choice has beyond the usual keys.
func appendExtras(dst []byte, ch *Choice) []byte {
	if ch.StopReason != "" {
		dst = append(dst, `,"stop_reason":`...)
		dst = AppendString(dst, ch.StopReason)
	}
	if ch.TokenIDs != nil {
		dst = append(dst, `,"token_ids":`...)
		dst = AppendTokenIDs(dst, ch.TokenIDs)
	}
	return dst
}

func appendModel(dst []byte, c *Chunk) []byte {
	dst = append(dst, `],"created":`...)
	dst = strconv.AppendInt(dst, c.Created, 10)
	dst = append(dst, `,"model":`...)
	return AppendString(dst, c.Model)
}

func appendObject(dst []byte, c *Chunk, object string) []byte {
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","usage":`...)
	if c.Usage == nil {
		dst = append(dst, "null"...)
	} else {
		dst = AppendUsage(dst, c.Usage)
	}
	if len(c.NVExt) > 0 {
		dst = append(dst, `,"nvext":`...)
		dst = append(dst, c.NVExt...)
	}
	return dst
}

func appendChatTail(dst []byte, c *Chunk, object string) []byte {
	dst = appendModel(dst, c)
	dst = append(dst, `,"service_tier":null,"system_fingerprint":null`...)
	dst = appendObject(dst, c, object)
	if c.PromptTokenIDs != nil {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = AppendTokenIDs(dst, c.PromptTokenIDs)
	}
	return append(dst, '}')
}

// AppendUsage appends u as a usage object; the total is computed. Cached tokens
// are written only when they are known: unknown is not 0.
func AppendUsage(dst []byte, u *Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendUint(dst, u.Prompt, 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendUint(dst, u.Completion, 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendUint(dst, u.Prompt+u.Completion, 10)
	if u.HasCached {
		dst = append(dst, `,"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":`...)
		dst = strconv.AppendUint(dst, u.Cached, 10)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// AppendTokenIDs appends ids as an array of numbers.
func AppendTokenIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

func appendChatLogprobs(dst []byte, tokens []TokenLogprob) []byte {
	dst = append(dst, `{"content":[`...)
	for i := range tokens {
		t := &tokens[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendChatLogprob(dst, &t.Logprob)
		dst = append(dst, `,"top_logprobs":[`...)
		for j := range t.Top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendChatLogprob(dst, &t.Top[j])
			dst = append(dst, '}')
		}
		dst = append(dst, `]}`...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendChatLogprob appends a token's object without its closing brace.
func appendChatLogprob(dst []byte, l *Logprob) []byte {
	dst = append(dst, `{"token":`...)
	dst = AppendString(dst, l.Token)
	dst = append(dst, `,"logprob":`...)
	dst = appendFloat(dst, l.Logprob)
	dst = append(dst, `,"bytes":[`...)
	for i, b := range l.Token {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

func appendTextLogprobs(dst []byte, tokens []TokenLogprob) []byte {
	dst = append(dst, `{"text_offset":[`...)
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(tokens[i].Offset), 10)
	}
	dst = append(dst, `],"token_logprobs":[`...)
	top := false
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFloat(dst, tokens[i].Logprob.Logprob)
		top = top || len(tokens[i].Top) > 0
	}
	dst = append(dst, `],"tokens":[`...)
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendTextToken(dst, tokens[i].Token)
	}
	dst = append(dst, `],"top_logprobs":`...)
	if !top {
		return append(dst, "null}"...)
	}
	dst = append(dst, '[')
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendTextTop(dst, tokens[i].Top)
	}
	return append(dst, "]}"...)
}

func appendTextTop(dst []byte, top []Logprob) []byte {
	if len(top) == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	for i := range top {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendTextToken(dst, top[i].Token)
		dst = append(dst, ':')
		dst = appendFloat(dst, top[i].Logprob)
	}
	return append(dst, '}')
}

// appendTextToken appends a token as completions spell it. Tokens are keys of
// the top_logprobs objects and there is no list of bytes beside them, so a token
// that is no text is spelled out: it must not collide with another.
func appendTextToken(dst, token []byte) []byte {
	if utf8.Valid(token) {
		return AppendString(dst, token)
	}
	dst = append(dst, `"bytes:`...)
	for _, b := range token {
		dst = append(dst, '\\', '\\', 'x', hexDigits[b>>4], hexDigits[b&15])
	}
	return append(dst, '"')
}

// appendFloat appends f, or null for what JSON has no number for.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
