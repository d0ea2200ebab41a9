package doctor

import "github.com/stator-ai/stator/internal/engine"

// What to do about something, by the kind of the engine.
var (
	cachedAdvice = map[string]string{
		engine.VLLM:   "start vLLM with --enable-prompt-tokens-details",
		engine.SGLang: "start SGLang with --enable-cache-report",
	}
	cachingAdvice = map[string]string{
		engine.VLLM:     "start vLLM with --enable-prefix-caching",
		engine.SGLang:   "start SGLang without --disable-radix-cache",
		engine.TRTLLM:   "set kv_cache_config.enable_block_reuse: true in the options of trtllm-serve",
		engine.LlamaCpp: "start llama-server without --no-cache-prompt",
	}
	eventsAdvice = map[string]string{
		engine.TRTLLM: "set kv_cache_config.event_buffer_max_size: 8192 and enable_block_reuse: true in the options of trtllm-serve",
	}
)
