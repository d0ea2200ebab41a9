package doctor

import (
	"context"
	"fmt"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/tokenize"
)

// noHashes asks for tokens alone.
var noHashes tokenize.Hashing

// compareTokens has the engine and the tokenizer here make tokens of the same prompts.
func (e *exam) compareTokens(ctx context.Context) {
	t, ok := e.engine.(engine.Tokenizer)
	e.compared.Source = e.tokens.Name
	if !ok || e.tokens.Err != nil || e.tokens.Local == nil && !e.tokens.Engine {
		return
	}
	for _, s := range samples {
		if ctx.Err() != nil || t.Resting() {
			return
		}
		body, prompt, err := s.parse()
		if err != nil {
			continue
		}
		theirs, err := t.Tokenize(ctx, &engine.TokenizeRequest{Model: e.model.ID, Body: &body, Prompt: prompt})
		if err != nil {
			e.compared.Refused++
			e.refusal = err
			continue
		}
		if e.tokens.Local == nil {
			e.compared.Compared++
			e.compared.Equal++
			return // nothing to compare them with
		}
		ours, err := encode(e.tokens.Local, &body, prompt)
		if err != nil {
			e.compared.Compared++
			if e.unmade == nil {
				e.unmade = fmt.Errorf("%s: %w", s.name, err)
			}
			continue
		}
		d := difference(s.name, ours, theirs.IDs)
		if d != nil && s.name == decomposed && e.info.Kind == engine.LlamaCpp {
			e.apart = true
			continue
		}
		e.compared.Compared++
		if d == nil {
			e.compared.Equal++
		} else if e.compared.First == nil {
			e.compared.First = d
		}
	}
}

// encode makes the tokens of a chat, or of a text.
func encode(m tokenize.Model, body *openai.Object, prompt openai.Value) ([]uint32, error) {
	var out tokenize.Result
	var err error
	if prompt != nil {
		text, _ := prompt.Text()
		out, err = m.Complete([]byte(text), false, noHashes)
	} else {
		out, err = m.Chat(tokenize.Chat{
			Messages:           body.Get("messages"),
			Tools:              body.Get("tools"),
			NoGenerationPrompt: string(body.Get("add_generation_prompt")) == "false",
			ContinueFinal:      body.Get("continue_final_message").True(),
			Kwargs:             body.Get("chat_template_kwargs"),
		}, noHashes)
	}
	return out.IDs, err
}

// difference returns where two lists of tokens begin to differ, nil if they do not.
func difference(name string, ours, theirs []uint32) *DifferenceData {
	d := &DifferenceData{Prompt: name, OursTokens: len(ours), EngineTokens: len(theirs)}
	for d.Position < len(ours) && d.Position < len(theirs) && ours[d.Position] == theirs[d.Position] {
		d.Position++
	}
	if d.Position < len(ours) {
		d.Ours = &ours[d.Position]
	}
	if d.Position < len(theirs) {
		d.Engine = &theirs[d.Position]
	}
	if d.Ours == nil && d.Engine == nil {
		return nil
	}
	return d
}

func (d *DifferenceData) String() string {
	if d.Ours == nil || d.Engine == nil {
		return fmt.Sprintf("%s has %d tokens here and %d there, of which the first %d are equal", d.Prompt, d.OursTokens, d.EngineTokens, d.Position)
	}
	return fmt.Sprintf("%s has token %d at position %d here and %d there (%d and %d tokens)",
		d.Prompt, *d.Ours, d.Position, *d.Engine, d.OursTokens, d.EngineTokens)
}

// judgeTokens judges the tokens that were compared, and the numbers of tokens that
// answers told.
func (e *exam) judgeTokens() {
	data, src := e.compared, e.tokens
	advice := "give the tokenizer of the model that the engine serves: --tokenizer " + e.model.ID + "=REF"
	switch e.info.Kind {
	case engine.SGLang:
		advice += "; its chats are rendered with dialect: sglang in models"
	case engine.LlamaCpp:
		advice += "; its chats are rendered with dialect: llamacpp in models"
	}
	counted, differs := e.countTokens()
	switch {
	case src.Err != nil:
		e.fail(Tokens, "correct --tokenizer", data, "the tokenizer cannot be had: %v", src.Err)
	case src.Engine && data.Compared == 0 && src.Name != "":
		e.fail(Tokens, "use a tokenizer of files", data, "the engine is to be asked for tokens and gives none: %v", e.refusal)
	case src.Engine && data.Compared > 0 && src.Name != "":
		e.ok(Tokens, data, "the engine is asked for them")
	case src.Engine && data.Compared > 0:
		e.ok(Tokens, data, "no tokenizer is configured: the engine is asked for them")
	case src.Local == nil && src.Name != "":
		e.skip(Tokens, "no tokenizer is wanted: prompts are told apart by their text")
	case src.Local == nil && e.info.Kind == engine.OpenAI:
		e.skip(Tokens, "no tokenizer: prompts are told apart by their text")
	case src.Local == nil:
		e.warn(Tokens, "give --tokenizer "+e.model.ID+"=REF, with the model's files or its repository on the Hub", data,
			"no tokenizer: prompts are told apart by their text, and events are not used")
	case data.First != nil:
		e.fail(Tokens, advice, data, "%d of %d prompts have other tokens here than in the engine: %s", data.Compared-data.Equal, data.Compared, data.First)
	case differs != "":
		e.fail(Tokens, advice, data, "%s", differs)
	case e.unmade != nil:
		e.warn(Tokens, advice, data, "%d of %d prompts have no tokens here: %v", data.Compared-data.Equal, data.Compared, e.unmade)
	case data.Compared == 0 && counted == 0:
		e.add(Check{Name: Tokens, Status: Skip, Text: "the engine gives no tokens to compare with", Data: data})
	case data.Compared == 0:
		e.ok(Tokens, data, "the engine counts as many as we do in %s; it does not say which they are", plural(uint64(counted), "prompt", "prompts"))
	default:
		text := fmt.Sprintf("equal in %d chats and texts", data.Compared)
		if data.Refused > 0 {
			text += fmt.Sprintf("; of %d more the engine gives none", data.Refused)
		}
		if e.apart {
			text += "; llama.cpp does not put accents together that stand apart from their letters"
		}
		e.ok(Tokens, data, "%s", text)
	}
}

// countTokens compares the numbers of prompt tokens that answers told with ours. It
// returns how many it compared, and what differs.
func (e *exam) countTokens() (n int, differs string) {
	if e.tokens.Local == nil {
		return 0, ""
	}
	check := func(what string, told uint64, ids []uint32, err error) {
		if err != nil || differs != "" {
			return
		}
		n++
		if told != uint64(len(ids)) {
			differs = fmt.Sprintf("the engine counts %d tokens in %s, and we %d", told, what, len(ids))
		}
	}
	for _, p := range e.probes {
		if p.answer != nil && p.answer.usage != nil {
			ids, err := encode(e.tokens.Local, nil, openai.AppendString(nil, p.text))
			check("a text", p.answer.usage.Prompt, ids, err)
		}
	}
	if e.chat != nil && e.chat.usage != nil {
		if body, err := openai.ParseObject(e.chatSent); err == nil {
			ids, err := encode(e.tokens.Local, &body, nil)
			check("a chat", e.chat.usage.Prompt, ids, err)
		}
	}
	return n, differs
}
