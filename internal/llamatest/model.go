package llamatest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// The size of the model. It has nothing to say; what counts is that it is computed at
// once and that its cache is a real one.
const (
	modelWidth   = 64
	modelLayers  = 4
	modelHeads   = 4
	modelKVHeads = 2
	modelHeadDim = 16
	modelHidden  = 128
	modelContext = 1 << 15
)

// The kinds of tokens in a GGUF file.
const (
	tokenNormal  int32 = 1
	tokenControl int32 = 3
	tokenAdded   int32 = 4 // looked for in the text, and part of it
	tokenUnused  int32 = 5
)

// WriteModel writes a GGUF file with a model of Qwen3's architecture and tiny size:
// random weights, the same at each call, with the real vocabulary and chat template.
func WriteModel(w io.Writer) error {
	f, err := model()
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return f.writeTo(w)
}

// modelBytes is the file, made once.
var modelBytes = sync.OnceValues(func() ([]byte, error) {
	var b bytes.Buffer
	err := WriteModel(&b)
	return b.Bytes(), err
})

// modelIn makes sure that the model is in a directory, and returns its path. Several
// processes may do so at a time.
func modelIn(dir string) (string, error) {
	want, err := modelBytes()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tiny-qwen3.gguf")
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return path, nil
	}
	f, err := os.CreateTemp(dir, "tiny-*.tmp")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(want)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return path, err
}

func model() (*ggufFile, error) {
	tokens, kinds := vocabulary()
	merges, err := merges()
	if err != nil {
		return nil, err
	}
	f := &ggufFile{meta: []ggufMeta{
		{"general.architecture", "qwen3"},
		{"general.name", "tiny random Qwen3"},
		{"general.file_type", uint32(1)}, // mostly 16-bit floats
		{"qwen3.context_length", uint32(modelContext)},
		{"qwen3.embedding_length", uint32(modelWidth)},
		{"qwen3.block_count", uint32(modelLayers)},
		{"qwen3.feed_forward_length", uint32(modelHidden)},
		{"qwen3.attention.head_count", uint32(modelHeads)},
		{"qwen3.attention.head_count_kv", uint32(modelKVHeads)},
		{"qwen3.attention.key_length", uint32(modelHeadDim)},
		{"qwen3.attention.value_length", uint32(modelHeadDim)},
		{"qwen3.attention.layer_norm_rms_epsilon", float32(1e-6)},
		{"qwen3.rope.freq_base", float32(1e6)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "qwen2"},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", kinds},
		{"tokenizer.ggml.merges", merges},
		{"tokenizer.ggml.eos_token_id", qwen3.IMEnd},
		{"tokenizer.ggml.padding_token_id", qwen3.EndOfText},
		{"tokenizer.ggml.add_bos_token", false},
		{"tokenizer.chat_template", qwen3.Template()},
	}}
	random := rand.New(rand.NewPCG(1, 2))
	weights := func(name string, in, out int) {
		f.tensors = append(f.tensors, ggufTensor{name: name + ".weight", shape: []int{in, out}, kind: tensorF16, write: func(w io.Writer, n int) error {
			return writeRandom(w, random, n)
		}})
	}
	ones := func(name string, n int) {
		f.tensors = append(f.tensors, ggufTensor{name: name + ".weight", shape: []int{n}, kind: tensorF32, write: writeOnes})
	}
	weights("token_embd", modelWidth, len(tokens)) // which is the output's too
	ones("output_norm", modelWidth)
	for l := range modelLayers {
		block := fmt.Sprintf("blk.%d.", l)
		ones(block+"attn_norm", modelWidth)
		weights(block+"attn_q", modelWidth, modelHeads*modelHeadDim)
		weights(block+"attn_k", modelWidth, modelKVHeads*modelHeadDim)
		weights(block+"attn_v", modelWidth, modelKVHeads*modelHeadDim)
		ones(block+"attn_q_norm", modelHeadDim)
		ones(block+"attn_k_norm", modelHeadDim)
		weights(block+"attn_output", modelHeads*modelHeadDim, modelWidth)
		ones(block+"ffn_norm", modelWidth)
		weights(block+"ffn_gate", modelWidth, modelHidden)
		weights(block+"ffn_up", modelWidth, modelHidden)
		weights(block+"ffn_down", modelHidden, modelWidth)
	}
	return f, nil
}

// writeRandom writes 16-bit floats of either sign with magnitudes from 1/32 to 1/16: one
// exponent, with signs and mantissas at random.
func writeRandom(w io.Writer, r *rand.Rand, n int) error {
	const (
		exponent = 0x2800 // that of 1/32
		random   = 0x83ff // the sign and the mantissa
	)
	b := make([]byte, 0, 2*n+8)
	for i := 0; i < n; i += 4 {
		v := r.Uint64()
		b = binary.LittleEndian.AppendUint64(b, v&(random*0x0001000100010001)|exponent*0x0001000100010001)
	}
	_, err := w.Write(b[:2*n])
	return err
}

func writeOnes(w io.Writer, n int) error {
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1))
	}
	_, err := w.Write(b)
	return err
}

// vocabulary returns the tokens as GGUF spells them, and what kind they are.
func vocabulary() (tokens []string, kinds []int32) {
	t := qwen3.Tokenizer()
	for id := range uint32(t.Size()) {
		text, special, ok := t.Token(id)
		switch {
		case !ok:
			tokens, kinds = append(tokens, fmt.Sprintf("[PAD%d]", id)), append(kinds, tokenUnused)
		case id < qwen3.EndOfText: // the first of those that are not the model's
			tokens, kinds = append(tokens, spell(text)), append(kinds, tokenNormal)
		case special:
			tokens, kinds = append(tokens, string(text)), append(kinds, tokenControl)
		default:
			tokens, kinds = append(tokens, string(text)), append(kinds, tokenAdded)
		}
	}
	return tokens, kinds
}

// merges returns the merges of the vocabulary in the order of their ranks. They are not
// kept with it, but follow from it, since the rank of a merge is the id that it leads
// to: merging the text of a token by all ranks before its own leaves the two parts that
// its own merge joins.
func merges() ([]string, error) {
	t := qwen3.Tokenizer()
	ids := make(map[string]uint32, qwen3.EndOfText)
	for id := range qwen3.EndOfText {
		text, _, _ := t.Token(id)
		ids[string(text)] = id
	}
	var out []string
	var ends []int
	for id := range qwen3.EndOfText {
		text, _, _ := t.Token(id)
		if len(text) == 1 {
			continue
		}
		ends = split(ends[:0], string(text), ids, id)
		if len(ends) != 2 {
			return nil, fmt.Errorf("token %d, %q, comes from %d parts, expected 2", id, text, len(ends))
		}
		out = append(out, spell(text[:ends[0]])+" "+spell(text[ends[0]:]))
	}
	return out, nil
}

// split appends where the parts of a text end that are left when everything is merged
// that makes a token with an id below limit.
func split(ends []int, text string, ids map[string]uint32, limit uint32) []int {
	for i := range len(text) {
		ends = append(ends, i+1)
	}
	for {
		best, at := limit, -1
		start := 0
		for i := range len(ends) - 1 {
			if id, ok := ids[text[start:ends[i+1]]]; ok && id < best {
				best, at = id, i
			}
			start = ends[i]
		}
		if at < 0 {
			return ends
		}
		ends = append(ends[:at], ends[at+1:]...)
	}
}

// spell writes bytes in the alphabet of byte-level vocabularies: those that are
// printable in Latin-1 stand for themselves, the others for the characters from U+0100
// on, in their order.
func spell(text []byte) string {
	out := make([]rune, len(text))
	for i, b := range text {
		out[i] = alphabet[b]
	}
	return string(out)
}

var alphabet = func() (a [256]rune) {
	next := rune(0x100)
	for b := range a {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			a[b] = rune(b)
			continue
		}
		a[b] = next
		next++
	}
	return a
}()
