package local

import (
	"slices"
	"unicode"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/hf"
)

// endsLlamaCpp are spellings that llama.cpp takes for the end of an answer in every
// vocabulary that has them, and so for special tokens.
var endsLlamaCpp = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
	"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
	"<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
}

// asLlamaCpp returns the tokenizer that llama.cpp makes of a vocabulary: it does not
// know normal forms and new characters, and knows some special tokens by their spelling.
func asLlamaCpp(tok *hf.Tokenizer) (*hf.Tokenizer, error) {
	return tok.Variant(hf.Variant{NoForms: true, Special: endsLlamaCpp, Unknown: unicode16})
}

// unicode16 are the characters that came with Unicode 16. The tables of llama.cpp are
// those of Unicode 15.1.
var unicode16 = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x897, 0x897, 1}, {0x1b4e, 0x1b4f, 1}, {0x1b7f, 0x1b7f, 1}, {0x1c89, 0x1c8a, 1}, {0x2427, 0x2429, 1},
		{0x31e4, 0x31e5, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1},
	},
	R32: []unicode.Range32{
		{0x105c0, 0x105f3, 1}, {0x10d40, 0x10d65, 1}, {0x10d69, 0x10d85, 1}, {0x10d8e, 0x10d8f, 1}, {0x10ec2, 0x10ec4, 1},
		{0x10efc, 0x10efc, 1}, {0x11380, 0x11389, 1}, {0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1},
		{0x113b7, 0x113c0, 1}, {0x113c2, 0x113c2, 1}, {0x113c5, 0x113c5, 1}, {0x113c7, 0x113ca, 1}, {0x113cc, 0x113d5, 1},
		{0x113d7, 0x113d8, 1}, {0x113e1, 0x113e2, 1}, {0x116d0, 0x116e3, 1}, {0x11bc0, 0x11be1, 1}, {0x11bf0, 0x11bf9, 1},
		{0x11f5a, 0x11f5a, 1}, {0x13460, 0x143fa, 1}, {0x16100, 0x16139, 1}, {0x16d40, 0x16d79, 1}, {0x18cff, 0x18cff, 1},
		{0x1cc00, 0x1ccf9, 1}, {0x1cd00, 0x1ceb3, 1}, {0x1e5d0, 0x1e5fa, 1}, {0x1e5ff, 0x1e5ff, 1}, {0x1f8b2, 0x1f8bb, 1},
		{0x1f8c0, 0x1f8c1, 1}, {0x1fa89, 0x1fa89, 1}, {0x1fa8f, 0x1fa8f, 1}, {0x1fabe, 0x1fabe, 1}, {0x1fac6, 0x1fac6, 1},
		{0x1fadc, 0x1fadc, 1}, {0x1fadf, 0x1fadf, 1}, {0x1fae9, 0x1fae9, 1}, {0x1fbcb, 0x1fbef, 1},
	},
}

// encodeFramed encodes a prompt with the tokens around it that every text has in
// llama.cpp. The template may have written them already.
func (m *Model) encodeFramed(text []byte, h tokenize.Hashing) (tokenize.Result, error) {
	if len(m.before)+len(m.after) == 0 {
		return m.Encode(text, h)
	}
	r, err := m.Encode(text, tokenize.Hashing{})
	if err != nil {
		return tokenize.Result{}, err
	}
	if n := len(m.before); n > len(r.IDs) || !slices.Equal(r.IDs[:n], m.before) {
		r.IDs = slices.Concat(m.before, r.IDs)
	}
	if n := len(m.after); n > len(r.IDs) || !slices.Equal(r.IDs[len(r.IDs)-n:], m.after) {
		r.IDs = slices.Concat(r.IDs, m.after)
	}
	r.Blocks = kv.AppendBlocks(nil, h.Seed, r.IDs, h.Size)
	return r, nil
}
