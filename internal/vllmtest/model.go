package vllmtest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// writeModel makes a directory of a model that has no weights: vLLM makes up random
// ones, the same each time. It has the tokenizer in a directory of its own and Qwen3's
// template.
func writeModel(dir, tokenizer string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(tokenizer, name))
		if err != nil {
			return fmt.Errorf("the tokenizer: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(qwen3.Template()), 0o644); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "torch_dtype": "bfloat16",
		"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
		"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
		"vocab_size": 151936, "tie_word_embeddings": true, "max_position_embeddings": ContextLength,
		"hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
		"bos_token_id": qwen3.EndOfText, "eos_token_id": qwen3.IMEnd,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)
}
