package stator

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	hashA = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	hashB = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func TestDefaultConfigIsValid(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	if w := cfg.Warnings(); w != nil {
		t.Errorf("Warnings: %q", w)
	}
}

func TestValidate(t *testing.T) {
	measured, garbled := filepath.Join(t.TempDir(), "measured.json"), filepath.Join(t.TempDir(), "garbled.npz")
	for file, text := range map[string]string{
		measured: `{"prefill_isl":[0,9],"prefill_ttft_ms":[1,2],"decode_active_kv_tokens":[0,9],"decode_context_length":[0,9],"decode_itl":[[1,1],[2,2]]}`,
		garbled:  "garbled",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []Problem
	}{
		{"port zero", func(c *Config) { c.Listen, c.AdminListen = ":0", ":0" }, nil},
		{"no port", func(c *Config) { c.Listen = "127.0.0.1" },
			[]Problem{{"listen", `expected host:port such as 127.0.0.1:8000, got "127.0.0.1"`}}},
		{"port too large", func(c *Config) { c.AdminListen = "[::1]:65536" },
			[]Problem{{"admin_listen", `expected host:port such as 127.0.0.1:8000, got "[::1]:65536"`}}},
		{"same listener twice", func(c *Config) { c.AdminListen = c.Listen },
			[]Problem{{"admin_listen", "expected another address than listen; leave it out to have the admin routes there"}}},
		{"certificate without key", func(c *Config) { c.TLS.Cert = "a.pem" },
			[]Problem{{"tls.key", "expected the key file of tls.cert"}}},
		{"key without certificate", func(c *Config) { c.TLS.Key = "a.pem" },
			[]Problem{{"tls.cert", "expected the certificate file of tls.key"}}},

		{"engines", func(c *Config) { c.Engines = []EngineConfig{{URL: "http://a"}, {URL: "https://a/v1", ID: 7, Ranks: 2}} }, nil},
		{"engine without url", func(c *Config) { c.Engines = []EngineConfig{{}} },
			[]Problem{{"engines[0].url", "expected a base URL such as http://127.0.0.1:8000"}}},
		{"engine without scheme", func(c *Config) { c.Engines = []EngineConfig{{URL: "http://a"}, {URL: "gpu1"}} },
			[]Problem{{"engines[1].url", `expected a base URL such as http://127.0.0.1:8000, got "gpu1"`}}},
		{"password in a url that does not parse", func(c *Config) { c.Engines = []EngineConfig{{URL: "http://me:hush%zz@gpu1"}} },
			[]Problem{{"engines[0].url", "expected a base URL such as http://127.0.0.1:8000, got something else"}}},
		{"password in a url", func(c *Config) { c.Engines = []EngineConfig{{URL: "http://me:hush@gpu1"}} },
			[]Problem{{"engines[0].url", `expected a base URL such as http://127.0.0.1:8000, got "http://me:xxxxx@gpu1"`}}},
		{"same engine twice", func(c *Config) { c.Engines = []EngineConfig{{URL: "http://a:80/"}, {URL: "HTTP://A/v1"}} },
			[]Problem{{"engines[1].url", "expected a URL of its own, but engines[0] is the same; if both are meant, give one an id"}}},
		{"id of a simulated engine", func(c *Config) { c.Sim.Engines, c.Engines = 2, []EngineConfig{{URL: "http://a", ID: 2}} },
			[]Problem{{"engines[0].id", "expected an id of its own, but a simulated engine has 2 too"}}},
		{"negative sizes", func(c *Config) {
			c.Engines = []EngineConfig{{URL: "http://a", Ranks: -1, BlockSize: -2, TotalKVBlocks: -3, MaxNumBatchedTokens: -4}}
		}, []Problem{
			{"engines[0].ranks", "expected at least 0, got -1"},
			{"engines[0].block_size", "expected at least 0, got -2"},
			{"engines[0].total_kv_blocks", "expected at least 0, got -3"},
			{"engines[0].max_num_batched_tokens", "expected at least 0, got -4"},
		}},

		{"fixed simulation", func(c *Config) {
			c.Sim.Profile, c.Sim.TTFT, c.Sim.ITL = "fixed", new(time.Duration(0)), new(time.Second)
		}, nil},
		{"instant simulation", func(c *Config) { c.Sim.Profile = "instant" }, nil},
		{"simulation by measurements", func(c *Config) { c.Sim.Profile, c.Sim.Kind, c.Sim.BlockSize = measured, "sglang", 1 }, nil},
		{"measurements that are not there", func(c *Config) { c.Sim.Profile = "none.npz" },
			[]Problem{{"sim.profile", "open none.npz: no such file or directory"}}},
		{"measurements that are none", func(c *Config) { c.Sim.Profile = garbled },
			[]Problem{{"sim.profile", garbled + ": simengine: table: expected a JSON object or an NPZ archive"}}},
		{"empty simulation", func(c *Config) {
			c.Sim = SimConfig{Engines: -1, Profile: "fixed", TTFT: new(time.Duration(-1)), ITL: new(time.Duration(-1))}
		}, []Problem{
			{"sim.engines", "expected a number from 0 to 4096, got -1"},
			{"sim.model", "expected the name of a model"},
			{"sim.kind", `expected vllm or sglang, got ""`},
			{"sim.tokenizer", `expected qwen3 or bytes, got ""`},
			{"sim.decode_speedup", "expected a number of at least 1e-06, got 0"},
			{"sim.ttft", "expected at least 0s, got -1ns"},
			{"sim.itl", "expected at least 0s, got -1ns"},
			{"sim.context_length", "expected a number from 2 to 1073741824, got 0"},
			{"sim.block_size", "expected a number from 1 to 65536, got 0"},
			{"sim.max_num_batched_tokens", "expected a number from 1 to 1073741824, got 0"},
			{"sim.max_num_seqs", "expected a number from 1 to 1073741824, got 0"},
			{"sim.total_kv_blocks", "expected a number from 1 to 16777216, got 0"},
			{"sim.ranks", "expected a number from 1 to 1024, got 0"},
			{"sim.preemption", `expected lifo or fifo, got ""`},
			{"sim.rules", `expected current, mocker or mocker-gated, got ""`},
			{"sim.schedule_policy", `expected fifo, fcfs or lpm, got ""`},
			{"sim.max_prefill_tokens", "expected a number from 1 to 1073741824, got 0"},
			{"sim.clip_max_new_tokens", "expected a number from 1 to 1073741824, got 0"},
			{"sim.schedule_conservativeness", "expected a number above 0 and up to 1, got 0"},
			{"sim.speedup", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.prefix_caching", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.chunked_prefill", "expected with a modelled engine only, but the profile is fixed"},
		}},
		{"a simulation as large as can be", func(c *Config) {
			c.Sim.Engines, c.Sim.Ranks, c.Sim.TotalKVBlocks, c.Sim.BlockSize = 64, 1024, 1024, 65536
			c.Sim.ContextLength, c.Sim.MaxNumBatchedTokens, c.Sim.MaxNumSeqs = 1<<30, 1<<30, 1<<30
			c.Sim.Adapters = names(1024)
		}, nil},
		{"a simulation that is larger", func(c *Config) {
			c.Sim.Ranks, c.Sim.TotalKVBlocks, c.Sim.BlockSize = 1e8, 1<<24+1, 65537
			c.Sim.ContextLength, c.Sim.MaxNumBatchedTokens, c.Sim.MaxNumSeqs = 1<<30+1, math.MaxInt, math.MaxInt
			c.Sim.Kind, c.Sim.MaxPrefillTokens, c.Sim.ClipMaxNewTokens = "sglang", math.MaxInt, math.MaxInt
			c.Sim.Adapters = names(1025)
		}, []Problem{
			{"sim.adapters", "expected at most 1024, got 1025"},
			{"sim.context_length", "expected a number from 2 to 1073741824, got 1073741825"},
			{"sim.block_size", "expected a number from 1 to 65536, got 65537"},
			{"sim.max_num_batched_tokens", "expected a number from 1 to 1073741824, got 9223372036854775807"},
			{"sim.max_num_seqs", "expected a number from 1 to 1073741824, got 9223372036854775807"},
			{"sim.total_kv_blocks", "expected a number from 1 to 16777216, got 16777217"},
			{"sim.ranks", "expected a number from 1 to 1024, got 100000000"},
			{"sim.total_kv_blocks", "expected at most 65536 with 1024 ranks in all, got 16777217"},
			{"sim.max_prefill_tokens", "expected a number from 1 to 1073741824, got 9223372036854775807"},
			{"sim.clip_max_new_tokens", "expected a number from 1 to 1073741824, got 9223372036854775807"},
		}},
		{"too many blocks together", func(c *Config) { c.Sim.Engines, c.Sim.Ranks, c.Sim.TotalKVBlocks = 4, 2, 1<<23+1 },
			[]Problem{{"sim.total_kv_blocks", "expected at most 8388608 with 8 ranks in all, got 8388609"}}},
		{"many blocks that nobody models", func(c *Config) { c.Sim.Profile, c.Sim.Ranks, c.Sim.TotalKVBlocks = "instant", 1024, 1<<24 }, nil},
		{"too many ranks together", func(c *Config) { c.Sim.Engines, c.Sim.Ranks, c.Sim.Profile = 4096, 17, "instant" },
			[]Problem{{"sim.ranks", "expected at most 16 with 4096 engines, got 17"}}},
		{"times of a modelled engine", func(c *Config) { c.Sim.TTFT, c.Sim.ITL = new(time.Second), new(time.Second) }, []Problem{
			{"sim.ttft", "expected with profile fixed only, but the profile is linear"},
			{"sim.itl", "expected with profile fixed only, but the profile is linear"},
		}},
		{"unknown profile, among others", func(c *Config) {
			c.Sim.Profile, c.Sim.Speedup, c.Sim.TTFT = "liner", -1, new(time.Second)
		}, []Problem{
			{"sim.profile", `expected linear, polynomial, fixed, instant or a file that ends in .json or .npz, got "liner"`},
			{"sim.speedup", "expected a number of at least 1e-06, or 0 for no delay, got -1"},
			{"sim.ttft", "expected with profile fixed only, but the profile is liner"},
		}},
		{"no delay", func(c *Config) { c.Sim.Speedup = 0 }, nil},
		{"as slow as can be", func(c *Config) { c.Sim.Speedup, c.Sim.DecodeSpeedup = 1e-6, 1e-6 }, nil},
		{"slower", func(c *Config) { c.Sim.Speedup, c.Sim.DecodeSpeedup = 9e-7, 9e-7 }, []Problem{
			{"sim.speedup", "expected a number of at least 1e-06, or 0 for no delay, got 9e-07"},
			{"sim.decode_speedup", "expected a number of at least 1e-06, got 9e-07"},
		}},
		{"speedups that are no numbers", func(c *Config) { c.Sim.Speedup, c.Sim.DecodeSpeedup = math.NaN(), math.Inf(1) }, []Problem{
			{"sim.speedup", "expected a number of at least 1e-06, or 0 for no delay, got NaN"},
			{"sim.decode_speedup", "expected a number of at least 1e-06, got +Inf"},
		}},
		{"no delay in virtual time", func(c *Config) { c.Sim.Speedup, c.Sim.VirtualTime = 0, true },
			[]Problem{{"sim.speedup", "expected a number above 0 in virtual time, where nothing would take any"}}},
		{"speedup of nothing", func(c *Config) { c.Sim.Speedup, c.Sim.Profile = 10, "instant" },
			[]Problem{{"sim.speedup", "expected with a modelled engine only, but the profile is instant"}}},
		{"everything a vllm has", func(c *Config) {
			c.Sim.PrefixCaching, c.Sim.ChunkedPrefill, c.Sim.Watermark, c.Sim.Preemption = false, false, 0.99, "fifo"
			c.Sim.DecodeSpeedup, c.Sim.DraftTokens, c.Sim.DraftAcceptance = 2, 3, []float64{1, 0, 0.5}
		}, nil},
		{"everything an sglang has", func(c *Config) {
			c.Sim.Kind, c.Sim.PrefixCaching, c.Sim.ChunkedPrefill, c.Sim.Watermark = "sglang", false, false, 0.5
			c.Sim.DecodeSpeedup, c.Sim.Rules, c.Sim.SchedulePolicy = 2, "mocker", "lpm"
			c.Sim.MaxPrefillTokens, c.Sim.ClipMaxNewTokens, c.Sim.ScheduleConservativeness = 1, 1, 0.5
		}, nil},
		{"settings of an sglang", func(c *Config) {
			c.Sim.SchedulePolicy, c.Sim.MaxPrefillTokens = "lpm", 1024
			c.Sim.ClipMaxNewTokens, c.Sim.ScheduleConservativeness = 1024, 0.5
		}, []Problem{
			{"sim.schedule_policy", "expected with kind sglang only, but the kind is vllm"},
			{"sim.max_prefill_tokens", "expected with kind sglang only, but the kind is vllm"},
			{"sim.clip_max_new_tokens", "expected with kind sglang only, but the kind is vllm"},
			{"sim.schedule_conservativeness", "expected with kind sglang only, but the kind is vllm"},
		}},
		{"settings of a vllm", func(c *Config) { c.Sim.Kind, c.Sim.Preemption, c.Sim.DraftTokens = "sglang", "fifo", 1 }, []Problem{
			{"sim.draft_tokens", "expected 0 unless the kind is vllm and the rules are current, got 1"},
			{"sim.preemption", "expected with kind vllm only, but the kind is sglang"},
		}},
		{"settings of a model", func(c *Config) {
			c.Sim.Profile, c.Sim.PrefixCaching, c.Sim.ChunkedPrefill, c.Sim.Watermark = "fixed", false, false, 0.1
			c.Sim.Preemption, c.Sim.DecodeSpeedup, c.Sim.DraftTokens, c.Sim.Rules, c.Sim.MaxNumSeqs = "fifo", 2, 1, "current", 8
		}, []Problem{
			{"sim.decode_speedup", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.max_num_seqs", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.prefix_caching", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.chunked_prefill", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.watermark", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.preemption", "expected with a modelled engine only, but the profile is fixed"},
			{"sim.draft_tokens", "expected with a modelled engine only, but the profile is fixed"},
		}},
		{"drafts by the mocker's rules", func(c *Config) { c.Sim.Rules, c.Sim.DraftTokens = "mocker-gated", 2 },
			[]Problem{{"sim.draft_tokens", "expected 0 unless the kind is vllm and the rules are current, got 2"}}},
		{"too many drafts", func(c *Config) { c.Sim.DraftTokens, c.Sim.DraftAcceptance = 6, make([]float64, 6) }, []Problem{
			{"sim.draft_tokens", "expected a number from 0 to 5, got 6"},
			{"sim.draft_acceptance", "expected at most 5 probabilities, got 6"},
		}},
		{"too few probabilities", func(c *Config) { c.Sim.DraftTokens, c.Sim.DraftAcceptance = 2, []float64{1.5} }, []Problem{
			{"sim.draft_acceptance", "expected 2 probabilities, one for each of sim.draft_tokens, got 1"},
			{"sim.draft_acceptance[0]", "expected a number from 0 to 1, got 1.5"},
		}},
		{"a scheduler that is none", func(c *Config) {
			c.Sim.Watermark, c.Sim.Preemption, c.Sim.Rules, c.Sim.SchedulePolicy = 1, "random", "newest", "lifo"
			c.Sim.DraftAcceptance, c.Sim.ScheduleConservativeness = []float64{0, math.NaN()}, math.NaN()
		}, []Problem{
			{"sim.watermark", "expected a share from 0 to below 1, got 1"},
			{"sim.preemption", `expected lifo or fifo, got "random"`},
			{"sim.rules", `expected current, mocker or mocker-gated, got "newest"`},
			{"sim.draft_acceptance[1]", "expected a number from 0 to 1, got NaN"},
			{"sim.schedule_policy", `expected fifo, fcfs or lpm, got "lifo"`},
			{"sim.schedule_conservativeness", "expected a number above 0 and up to 1, got NaN"},
		}},
		{"a block of one token", func(c *Config) { c.Sim.BlockSize = 1 },
			[]Problem{{"sim.block_size", "expected at least 2 for a modelled vllm, got 1"}}},
		{"adapters", func(c *Config) { c.Sim.Adapters = []string{"a", "stator-sim", "a", ""} }, []Problem{
			{"sim.adapters[1]", `expected a name of its own, got "stator-sim"`},
			{"sim.adapters[2]", `expected a name of its own, got "a"`},
			{"sim.adapters[3]", `expected a name of its own, got ""`},
		}},
		{"virtual time", func(c *Config) { c.Sim.VirtualTime = true }, nil},
		{"virtual time without a model", func(c *Config) {
			c.Sim.VirtualTime, c.Sim.Profile, c.Keys = true, "instant", []KeyConfig{{Name: "a", SHA256: hashA, Admin: true}}
		}, []Problem{
			{"sim.virtual_time", "expected a profile with a modelled engine, but the profile is instant"},
			{"sim.virtual_time", "expected no API keys with it: everybody sets the clock"},
		}},
		{"too many simulations", func(c *Config) { c.Sim.Engines = math.MaxInt },
			[]Problem{{"sim.engines", "expected a number from 0 to 4096, got 9223372036854775807"}}},

		{"models", func(c *Config) {
			c.Models = []ModelConfig{{Name: "a", Tokenizer: "org/name"}, {Name: "*", Tokenizer: "org/na.me@v1.0"}, {Name: "b", Tokenizer: measured, Dialect: "hf", Cache: new(Size(0))}}
			c.Hub.Endpoint = "http://mirror:8080/hf"
		}, nil},
		{"models without a tokenizer", func(c *Config) {
			c.Models = []ModelConfig{{Name: "a"}, {Name: "a", Tokenizer: "org/name/"}, {Tokenizer: "../none"}}
		}, []Problem{
			{"models[0].tokenizer", "expected a path that exists, a repository on the Hub such as Qwen/Qwen3-8B, qwen3, engine or none"},
			{"models[1].name", `expected a name of its own, but models[0] is "a" too`},
			{"models[1].tokenizer", `expected a path that exists, a repository on the Hub such as Qwen/Qwen3-8B, qwen3, engine or none, got "org/name/"`},
			{"models[2].name", "expected the name of a served model, or * for all without an entry"},
			{"models[2].tokenizer", `expected a path that exists, a repository on the Hub such as Qwen/Qwen3-8B, qwen3, engine or none, got "../none"`},
		}},
		{"files of no tokenizer", func(c *Config) {
			c.Models = []ModelConfig{{Name: "a", Tokenizer: "engine", ChatTemplate: measured, Dialect: "vllm", ContentFormat: "string", Pattern: "x",
				ChatTemplateKwargs: map[string]any{"a": 1}, ExcludeToolsWhenToolChoiceNone: true, TrustRequestChatTemplate: true, Cache: new(Size(1))}}
		}, []Problem{
			{"models[0].chat_template", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].dialect", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].content_format", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].chat_template_kwargs", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].exclude_tools_when_tool_choice_none", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].trust_request_chat_template", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].pattern", "expected with the files of a tokenizer only, but the tokenizer is engine"},
			{"models[0].cache", "expected with the files of a tokenizer only, but the tokenizer is engine"},
		}},
		{"files that are none", func(c *Config) {
			c.Models = []ModelConfig{{Name: "a", Tokenizer: "org/name", ChatTemplate: filepath.Dir(measured), ContentFormat: "xml",
				ChatTemplateKwargs: map[string]any{"a": math.NaN()}, Cache: new(Size(-1))}}
			c.Hub.Endpoint = "huggingface.co"
		}, []Problem{
			{"models[0].chat_template", fmt.Sprintf("expected a file, got %q", filepath.Dir(measured))},
			{"models[0].content_format", `expected string or openai, got "xml"`},
			{"models[0].chat_template_kwargs", "expected values that JSON has"},
			{"models[0].cache", "expected at least 0, got -1"},
			{"hub.endpoint", "expected a URL such as https://huggingface.co"},
		}},

		{"dynamo's spelling of a mode", func(c *Config) { c.Router.Mode = "round_robin" }, nil},
		{"unknown mode", func(c *Config) { c.Router.Mode = "fastest" },
			[]Problem{{"router.mode", `expected kv, round-robin, random, power-of-two, least-loaded or direct, got "fastest"`}}},
		{"thresholds at their limits", func(c *Config) {
			c.Router.ActiveDecodeBlocksThreshold = new(1.0)
			c.Router.ActivePrefillTokensThreshold = new(uint64(0))
			c.Router.ActivePrefillTokensThresholdFrac = new(10.0)
		}, nil},
		{"thresholds beyond", func(c *Config) {
			c.Router.ActiveDecodeBlocksThreshold = new(1.01)
			c.Router.ActivePrefillTokensThresholdFrac = new(-0.5)
		}, []Problem{
			{"router.active_decode_blocks_threshold", "expected a number from 0 to 1, got 1.01"},
			{"router.active_prefill_tokens_threshold_frac", "expected a number of at least 0, got -0.5"},
		}},
		{"thresholds that are no numbers", func(c *Config) {
			c.Router.ActiveDecodeBlocksThreshold = new(math.NaN())
			c.Router.ActivePrefillTokensThresholdFrac = new(math.NaN())
		}, []Problem{
			{"router.active_decode_blocks_threshold", "expected a number from 0 to 1, got NaN"},
			{"router.active_prefill_tokens_threshold_frac", "expected a number of at least 0, got NaN"},
		}},
		{"overload status 529", func(c *Config) { c.Router.OverloadStatus = 529 }, nil},
		{"overload status 500", func(c *Config) { c.Router.OverloadStatus = 500 },
			[]Problem{{"router.overload_status", "expected 503, 429 or 529, got 500"}}},
		{"router times", func(c *Config) { c.Router.Inhibit, c.Router.ProbeInterval = 0, -time.Second }, []Problem{
			{"router.inhibit", "expected more than 0, got 0s"},
			{"router.probe_interval", "expected more than 0, got -1s"},
		}},

		{"engines may be idle for ever", func(c *Config) { c.Limits.EngineIdleTimeout = 0 }, nil},
		{"budget below one body", func(c *Config) { c.Limits.BodyBudgetBytes = 1 << 20 },
			[]Problem{{"limits.body_budget_bytes", "expected at least limits.body_bytes (45MiB), got 1MiB"}}},
		{"limits", func(c *Config) { c.Limits = LimitsConfig{MaxInflight: -1, EngineIdleTimeout: -1} }, []Problem{
			{"limits.body_bytes", "expected more than 0, got 0"},
			{"limits.max_inflight", "expected at least 0, got -1"},
			{"limits.header_timeout", "expected more than 0, got 0s"},
			{"limits.body_timeout", "expected more than 0, got 0s"},
			{"limits.write_timeout", "expected more than 0, got 0s"},
			{"limits.engine_idle_timeout", "expected at least 0s, got -1ns"},
		}},

		{"keys", func(c *Config) {
			c.Keys = []KeyConfig{{Name: "a", SHA256: hashA}, {Name: "b", SHA256: strings.ToUpper(hashB)}}
		}, nil},
		{"key in the clear", func(c *Config) { c.Keys = []KeyConfig{{Name: "a", SHA256: "sk-hush"}} },
			[]Problem{{"keys[0].sha256", "expected the SHA-256 of the key as 64 hexadecimal digits; stator config new-key makes one"}}},
		{"keys that are the same", func(c *Config) {
			c.Keys = []KeyConfig{{Name: "a", SHA256: hashA}, {Name: "a", SHA256: strings.ToUpper(hashA)}, {SHA256: hashB}}
		}, []Problem{
			{"keys[1].name", `expected a name of its own, but keys[0] is called "a" too`},
			{"keys[1].sha256", "expected a key of its own, but keys[0] is the same"},
			{"keys[2].name", "expected a name to tell the key by"},
		}},

		{"choices", func(c *Config) { c.Errors.Format, c.Log.Level, c.Log.Format = "xml", "INFO", "" }, []Problem{
			{"errors.format", `expected openai or dynamo, got "xml"`},
			{"log.level", `expected debug, info, warn or error, got "INFO"`},
			{"log.format", `expected text or json, got ""`},
		}},
		{"tracing", func(c *Config) { c.Tracing = TracingConfig{OTLPEndpoint: "localhost:4318", Sample: 2} }, []Problem{
			{"tracing.otlp_endpoint", "expected a URL such as http://127.0.0.1:4318"},
			{"tracing.sample", "expected a number from 0 to 1, got 2"},
		}},
		{"trace", func(c *Config) { c.Trace = TraceConfig{Out: "trace.jsonl", Zstd: true, Text: true} }, nil},
		{"trace to nowhere", func(c *Config) { c.Trace = TraceConfig{Out: "traces/", MaxBytes: -1, MaxFiles: -1} }, []Problem{
			{"trace.out", `expected the name of a file, got "traces/"`},
			{"trace.max_bytes", "expected at least 0, got -1"},
			{"trace.max_files", "expected at least 0, got -1"},
		}},
		{"learning", func(c *Config) { c.Learn = LearnConfig{true, time.Second, 1, 1 << 20, 32} }, nil},
		{"learning nothing", func(c *Config) { c.Learn = LearnConfig{MaxConversations: 1<<20 + 1, MinSamples: 33} }, []Problem{
			{"learn.idle", "expected more than 0, got 0s"},
			{"learn.max_conversations", "expected a number from 1 to 1048576, got 1048577"},
			{"learn.max_families", "expected a number from 1 to 1048576, got 0"},
			{"learn.min_samples", "expected a number from 1 to 32, got 33"},
		}},
		{"drain at once", func(c *Config) { c.Drain.Timeout = 0 }, nil},
		{"drain in the past", func(c *Config) { c.Drain.Timeout = -time.Second },
			[]Problem{{"drain.timeout", "expected at least 0s, got -1s"}}},
		{"buckets", func(c *Config) {
			c.Metrics = MetricsConfig{Buckets: c.Metrics.Buckets}
			c.Metrics.Buckets.TTFT = BucketRange{Min: 0, Max: math.Inf(1), Count: 513}
			c.Metrics.Buckets.ITL = BucketRange{Min: 2, Max: 2, Count: 1}
		}, []Problem{
			{"metrics.prefix", "expected the beginning of metric names such as dynamo_frontend"},
			{"metrics.buckets.ttft.min", "expected more than 0, got 0"},
			{"metrics.buckets.ttft.max", "expected more than min (0), got +Inf"},
			{"metrics.buckets.ttft.count", "expected a number from 1 to 512, got 513"},
			{"metrics.buckets.itl.max", "expected more than min (2), got 2"},
		}},
		{"metrics apart", func(c *Config) { c.Metrics.Ports = MetricsPortsConfig{8081, 8082, 8083} }, nil},
		{"metrics apart on another host", func(c *Config) {
			c.Listen, c.AdminListen = "0.0.0.0:8081", "127.0.0.1:9000"
			c.Metrics.Ports.Worker = 8081
		}, nil},
		{"metrics on ports that are taken", func(c *Config) {
			c.AdminListen = "127.0.0.1:9000"
			c.Metrics.Ports = MetricsPortsConfig{9000, 8000, 8000}
		}, []Problem{
			{"metrics.ports.worker", "expected a port of its own, but admin_listen has 9000 too"},
			{"metrics.ports.router", "expected a port of its own, but listen has 8000 too"},
			{"metrics.ports.processor", "expected a port of its own, but listen has 8000 too"},
		}},
		{"metrics on one port", func(c *Config) { c.Metrics.Ports = MetricsPortsConfig{9000, 9000, 65536} }, []Problem{
			{"metrics.ports.router", "expected a port of its own, but metrics.ports.worker has 9000 too"},
			{"metrics.ports.processor", "expected a number from 0 to 65535, got 65536"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkProblems(t, tt.change, tt.want)
		})
	}
}

// checkProblems compares what Validate says about a changed default.
func checkProblems(t *testing.T, change func(*Config), want []Problem) {
	t.Helper()
	cfg := DefaultConfig()
	change(&cfg)
	err := cfg.Validate()
	var got []Problem
	var invalid *ConfigError
	if errors.As(err, &invalid) {
		got = invalid.Problems
	} else if err != nil {
		t.Fatalf("Validate: %v, not a *ConfigError", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
}

// names returns so many different names.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("adapter-", i)
	}
	return out
}

func TestConfigErrorHasALinePerProblem(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Log.Level, cfg.Strict, cfg.Drain.Timeout = "loud", true, -1
	want := "log.level: expected debug, info, warn or error, got \"loud\"\ndrain.timeout: expected at least 0s, got -1ns"
	if err := cfg.Validate(); err == nil || err.Error() != want {
		t.Errorf("Validate:\n%v\nwant:\n%s", err, want)
	}
}

func TestWarnings(t *testing.T) {
	const open = " is reachable from other machines and no API keys are configured: anyone can use it"
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"loopback name", func(c *Config) { c.Listen = "localhost:1" }, nil},
		{"loopback v6", func(c *Config) { c.Listen, c.AdminListen = "[::1]:1", "127.8.8.8:2" }, nil},
		{"all addresses", func(c *Config) { c.Listen = ":8000" }, []string{":8000" + open}},
		{"both listeners", func(c *Config) { c.Listen, c.AdminListen = "0.0.0.0:1", "10.0.0.1:2" },
			[]string{"0.0.0.0:1" + open, "10.0.0.1:2" + open}},
		{"with keys", func(c *Config) { c.Listen, c.Keys = ":8000", []KeyConfig{{Admin: true}} }, nil},
		{"nobody is admin", func(c *Config) { c.Keys = []KeyConfig{{Trusted: true}} },
			[]string{"no API key has admin: true, so nobody can read /metrics or use the other admin routes"}},
		{"text of no trace", func(c *Config) { c.Trace.Text = true }, []string{"trace.text records nothing without trace.out"}},
		{"simulation that nobody runs", func(c *Config) { c.Sim.TotalKVBlocks, c.Sim.Adapters, c.Sim.Speedup = 1024, []string{}, 0 },
			[]string{"sim.speedup, sim.total_kv_blocks: no effect without simulated engines, whose number is sim.engines or --sim"}},
		{"simulation", func(c *Config) { c.Sim.Engines, c.Sim.TotalKVBlocks = 1, 1024 }, nil},
		{"threshold beside classes", func(c *Config) {
			c.Router.Queue = twoClasses()
			c.Router.Queue.Threshold = new(1.0)
		}, []string{"router.queue.threshold: no effect beside router.queue.policy_classes, which have their own"}},
		{"text of a trace", func(c *Config) { c.Trace.Text, c.Trace.Out = true, "trace.jsonl" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			tt.change(&cfg)
			if d := cmp.Diff(tt.want, cfg.Warnings()); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
		})
	}
}

// TestConfigKeys keeps every field reachable from YAML, under a plain name.
func TestConfigKeys(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		seen := make(map[string]bool)
		for i := range typ.NumField() {
			f := typ.Field(i)
			tag := f.Tag.Get("koanf")
			if !snake.MatchString(tag) || seen[tag] {
				t.Errorf("%s.%s: koanf tag %q: expected snake_case of its own", typ, f.Name, tag)
			}
			seen[tag] = true
			inner := f.Type
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				check(inner)
			}
		}
	}
	check(reflect.TypeFor[Config]())
}

// TestConfigIsDocumented holds every setting to a comment that states its default
// or that it is required; sections have theirs inside.
func TestConfigIsDocumented(t *testing.T) {
	stated := regexp.MustCompile(`(?i)default|required`)
	checked := 0
	check := func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			name, doc := f.Names[0].Name, f.Doc.Text()
			section := false
			if id, ok := f.Type.(*ast.Ident); ok {
				section = strings.HasSuffix(id.Name, "Config")
			}
			if !strings.HasPrefix(doc, name+" ") {
				t.Errorf("%s.%s: comment %q does not begin with the name", spec.Name, name, doc)
			}
			if !section && spec.Name.Name != "BucketRange" && !stated.MatchString(doc) {
				t.Errorf("%s.%s: comment does not state the default", spec.Name, name)
			}
			checked++
		}
		return true
	}
	for _, name := range []string{"config.go", "config_router.go"} {
		src, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(src, check)
	}
	if checked < 150 {
		t.Errorf("checked %d fields; the configuration has more", checked)
	}
}

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Size
		err  string
	}{
		{"0", 0, ""},
		{"46000000", 46000000, ""},
		{"45MiB", 45 << 20, ""},
		{"1 GiB", 1 << 30, ""},
		{" 2KiB ", 2048, ""},
		{"3TiB", 3 << 40, ""},
		{"1GB", 1e9, ""},
		{"7kB", 7000, ""},
		{"7KB", 7000, ""},
		{"12B", 12, ""},
		{"8388607TiB", 8388607 << 40, ""},
		{"8388608TiB", 0, `size "8388608TiB" does not fit 64 bits`},
		{"", 0, `expected a size such as 45MiB, got ""`},
		{"MiB", 0, `expected a size such as 45MiB, got "MiB"`},
		{"-1", 0, `expected a size such as 45MiB, got "-1"`},
		{"+1", 0, `expected a size such as 45MiB, got "+1"`},
		{"1.5GiB", 0, `expected a size such as 45MiB, got "1.5GiB"`},
		{"45mib", 0, `expected a size such as 45MiB, got "45mib"`},
		{"45MiBB", 0, `expected a size such as 45MiB, got "45MiBB"`},
	} {
		got, err := ParseSize(tt.text)
		msg := ""
		if err != nil {
			msg = err.Error()
		}
		if got != tt.want || msg != tt.err {
			t.Errorf("ParseSize(%q) = %d, %q; want %d, %q", tt.text, got, msg, tt.want, tt.err)
		}
	}
}

func TestSizeString(t *testing.T) {
	for s, want := range map[Size]string{
		0: "0", 1: "1", 1000: "1000", 1024: "1KiB", 1536: "1536", 45 << 20: "45MiB",
		1 << 30: "1GiB", 1025 << 20: "1025MiB", 2 << 40: "2TiB", math.MaxInt64: "9223372036854775807",
	} {
		if got := s.String(); got != want {
			t.Errorf("Size(%d).String() = %q, want %q", int64(s), got, want)
		}
		var back Size
		if err := back.UnmarshalText([]byte(want)); err != nil || back != s {
			t.Errorf("UnmarshalText(%q) = %d, %v; want %d", want, int64(back), err, int64(s))
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "45MiB", "1 GB", "9223372036854775807", "8388608TiB", "-1B", "KB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSize(text)
		if err != nil {
			return
		}
		if s < 0 {
			t.Fatalf("ParseSize(%q) = %d", text, int64(s))
		}
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Fatalf("ParseSize(%q) = %d, printed %q, which reads as %d, %v", text, int64(s), s, int64(back), err)
		}
	})
}
