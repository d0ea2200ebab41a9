package stator

import "time"

// Config is everything a [Server] can be told. It is plain data: fill one in
// starting from [DefaultConfig], or have the stator command read it from a YAML
// file whose keys are the koanf tags. A Config is not changed by the server that
// was made from it.
type Config struct {
	// Listen is the host:port of the API; port 0 takes a free one. Default
	// "127.0.0.1:8000".
	Listen string `koanf:"listen"`
	// AdminListen is the host:port of the admin routes (/metrics,
	// /busy_threshold). Empty, the default, leaves them on Listen.
	AdminListen string `koanf:"admin_listen"`
	// TLS serves HTTPS on all listeners. Off by default.
	TLS TLSConfig `koanf:"tls"`
	// Engines are the engine servers to place requests on. None by default.
	Engines []EngineConfig `koanf:"engines"`
	// Discovery says how engines are found that are not in Engines.
	Discovery DiscoveryConfig `koanf:"discovery"`
	// Sim runs simulated engines inside the server. None by default.
	Sim SimConfig `koanf:"sim"`
	// Models say where the tokens of prompts come from, by served model. None by
	// default: simulated engines say which tokens are theirs; vLLM, SGLang and llama.cpp
	// are asked, which takes a round trip for each prompt; requests to others are placed
	// without.
	Models []ModelConfig `koanf:"models"`
	// Hub is where the tokenizers of models are downloaded from.
	Hub HubConfig `koanf:"hub"`
	// Router says how an engine is chosen.
	Router RouterConfig `koanf:"router"`
	// Limits bound what one client, and all of them together, can take.
	Limits LimitsConfig `koanf:"limits"`
	// Keys are the API keys that are let in. Without any, the default, everyone
	// is, with every right.
	Keys []KeyConfig `koanf:"keys"`
	// Errors says what error bodies look like.
	Errors ErrorsConfig `koanf:"errors"`
	// Strict checks every field of a request and refuses unknown ones, where
	// otherwise what the server does not use is the engine's business. Default
	// false.
	Strict bool `koanf:"strict"`
	// AskUsage asks engines for the usage of every stream, to know what they found in
	// their caches, and hides it from clients that did not ask. Default true.
	AskUsage bool `koanf:"ask_usage"`
	// NvExt says what becomes of the nvext extension of requests.
	NvExt NvExtConfig `koanf:"nvext"`
	// Learn has the server infer hints that clients do not give. Off by default.
	Learn LearnConfig `koanf:"learn"`
	// Log says what is logged.
	Log LogConfig `koanf:"log"`
	// Tracing exports spans. Off by default.
	Tracing TracingConfig `koanf:"tracing"`
	// Trace records requests in a file. Off by default.
	Trace TraceConfig `koanf:"trace"`
	// Drain says how the server ends.
	Drain DrainConfig `koanf:"drain"`
	// Metrics shapes the Prometheus series.
	Metrics MetricsConfig `koanf:"metrics"`
}

// TLSConfig names PEM files. Either both are set or none.
type TLSConfig struct {
	// Cert is the file with the certificate chain. Default none.
	Cert string `koanf:"cert"`
	// Key is the file with the private key of Cert. Default none.
	Key string `koanf:"key"`
}

// EngineConfig is one engine server. Only URL is required; the sizes are for
// engines that do not tell them.
type EngineConfig struct {
	// URL is the base URL, http or https; a trailing /v1 does not matter. With dns+
	// before it, as in dns+http://vllm.default.svc:8000, each address that the name has
	// is an engine. Required.
	URL string `koanf:"url"`
	// Kind is what the engine is: vllm, sglang, trtllm, llamacpp or openai for anything
	// else. Empty or auto, the default, has it found out.
	Kind string `koanf:"kind"`
	// ID is the worker id that clients pin and metrics show. 0, the default,
	// derives it from URL.
	ID uint64 `koanf:"id"`
	// APIKey is sent to the engine as bearer token. Default none.
	APIKey string `koanf:"api_key" secret:"true"`
	// Ranks is the number of data-parallel ranks behind the URL. 0, the default,
	// is what the engine says, else one.
	Ranks int `koanf:"ranks"`
	// BlockSize is the number of tokens in a KV block. 0, the default, is what
	// the engine says.
	BlockSize int `koanf:"block_size"`
	// TotalKVBlocks is the number of KV blocks of one rank. 0, the default, is
	// what the engine says.
	TotalKVBlocks int `koanf:"total_kv_blocks"`
	// MaxNumBatchedTokens is the number of prompt tokens one rank takes in a
	// step. 0, the default, is what the engine says.
	MaxNumBatchedTokens int `koanf:"max_num_batched_tokens"`
	// Events is where the engine publishes what becomes of its KV cache: host:port of
	// its first rank's socket, each further rank having the next port; auto, which is
	// also the default, to have it found out; off for nowhere.
	Events string `koanf:"events"`
	// Replay is the host:port where what it published can be asked for, ranks as with
	// Events. Default empty, which is what the engine says.
	Replay string `koanf:"replay"`
	// Topic is what the topics of its events begin with. Default empty, which is all.
	Topic string `koanf:"topic"`
	// Taints are what requests can require or prefer of the engine, such as "a100"
	// or "zone=west": printable, each once, up to 256 bytes, and up to 64 with those
	// of Topology. Default none.
	Taints []string `koanf:"taints"`
	// Topology is where the engine stands, a value for each domain. Domain zone with
	// value west is the taint dynamo.topology/zone=west. Default none.
	Topology map[string]string `koanf:"topology"`
}

// DiscoveryConfig says how engines are found.
type DiscoveryConfig struct {
	// Register lets engines, or whoever starts them, announce themselves with POST
	// /v1/engines. It takes an admin key where there are keys. Default false.
	Register bool `koanf:"register"`
	// RegisterTTL is how long such an engine stays without a heartbeat. Default 30s.
	RegisterTTL time.Duration `koanf:"register_ttl"`
	// DNSInterval is the time after which the names of engines whose URL begins with
	// dns+ are looked up again. Default 10s.
	DNSInterval time.Duration `koanf:"dns_interval"`
}

// SimConfig describes simulated engines, all alike and serving one model. They
// have the worker ids 1 to Engines.
type SimConfig struct {
	// Engines is their number, up to 4096 with up to 65536 ranks together. Default
	// 0.
	Engines int `koanf:"engines"`
	// Model is the name of the model they serve. Default "stator-sim".
	Model string `koanf:"model"`
	// Adapters are the names of the LoRA adapters they serve beside it, up to 1024.
	// None by default.
	Adapters []string `koanf:"adapters"`
	// Kind is the engine whose scheduler and metrics they have: vllm or sglang.
	// Chats are rendered in vLLM's dialect by both. Default vllm.
	Kind string `koanf:"kind"`
	// Tokenizer is the vocabulary of prompts and answers, with its chat template:
	// qwen3 for that of the Qwen3 models, bytes for one token per byte, which is easy
	// to count. Default qwen3.
	Tokenizer string `koanf:"tokenizer"`
	// Seed changes the text they generate. Default 0.
	Seed uint64 `koanf:"seed"`
	// Profile is how long they take. With linear and polynomial, both fitted to
	// an 8B model on an H200, or a file of measurements that ends in .json or
	// .npz, an engine is modelled with its batches and its KV cache. With fixed,
	// each request takes the times TTFT and ITL, whatever else runs, and with
	// instant no time; nothing is cached then. Default linear.
	Profile string `koanf:"profile"`
	// Speedup divides the times of a modelled engine: at least 1e-6, or 0 for no
	// delay, with which batches, queue and cache are as modelled and passes take no
	// time. Default 1.
	Speedup float64 `koanf:"speedup"`
	// DecodeSpeedup divides the decode part of a pass once more, at least 1e-6.
	// Default 1.
	DecodeSpeedup float64 `koanf:"decode_speedup"`
	// TTFT is the time to the first token with profile fixed. Default not set,
	// which is 50ms.
	TTFT *time.Duration `koanf:"ttft"`
	// ITL is the time between two tokens with profile fixed. Default not set,
	// which is 5ms.
	ITL *time.Duration `koanf:"itl"`
	// ContextLength is the longest prompt and answer together, 2 to 2^30 tokens.
	// Default 32768.
	ContextLength int `koanf:"context_length"`
	// BlockSize is the number of tokens in a KV block, 1 to 65536; a modelled vllm
	// needs 2. Default 16.
	BlockSize int `koanf:"block_size"`
	// TotalKVBlocks is the number of KV blocks of one rank, 1 to 2^24; modelled
	// engines have at most 2^26 together. Default 16384.
	TotalKVBlocks int `koanf:"total_kv_blocks"`
	// MaxNumBatchedTokens is the number of tokens one rank computes in a step, 1 to
	// 2^30; with kind sglang, that of prompt tokens, in full blocks. Default 8192.
	MaxNumBatchedTokens int `koanf:"max_num_batched_tokens"`
	// MaxNumSeqs is the number of requests one rank computes in a step, 1 to 2^30.
	// Default 256.
	MaxNumSeqs int `koanf:"max_num_seqs"`
	// Ranks is the number of data-parallel ranks of each engine, 1 to 1024. Default
	// 1.
	Ranks int `koanf:"ranks"`
	// PrefixCaching finds blocks of equal prefixes again. Default true.
	PrefixCaching bool `koanf:"prefix_caching"`
	// ChunkedPrefill computes a long prompt in several steps, beside answers;
	// without it a prompt waits until it fits into a step as a whole. Default true.
	ChunkedPrefill bool `koanf:"chunked_prefill"`
	// Watermark is the share of the blocks that stays free when a request is
	// admitted beside others, 0 to below 1. Default 0.
	Watermark float64 `koanf:"watermark"`
	// Preemption says which request of a vllm loses its blocks when they run out:
	// lifo for the one admitted last, fifo for the first. Default lifo.
	Preemption string `koanf:"preemption"`
	// DraftTokens is the number of tokens that a vllm speculates in each decode
	// step, 0 to 5. Default 0.
	DraftTokens int `koanf:"draft_tokens"`
	// DraftAcceptance is the probability of each speculated token to be right if
	// those before it were: up to 5, and no fewer than DraftTokens. Default 0.85,
	// 0.3, 0, 0, 0.
	DraftAcceptance []float64 `koanf:"draft_acceptance"`
	// Rules are the scheduler's: current for those of today's engines, mocker for
	// those of the mock engine in NVIDIA Dynamo 1.1.0 with its flaws, for comparison
	// with numbers obtained there, and mocker-gated for the same with requests that
	// wait until there is room. Default current.
	Rules string `koanf:"rules"`
	// SchedulePolicy is the order in which an sglang admits requests: fifo or fcfs
	// for that of arrival, lpm for the longest cached prefix first. Default fifo.
	SchedulePolicy string `koanf:"schedule_policy"`
	// MaxPrefillTokens is the number of prompt tokens an sglang computes in a step,
	// 1 to 2^30, beyond which it admits no further prompt. Default 16384.
	MaxPrefillTokens int `koanf:"max_prefill_tokens"`
	// ClipMaxNewTokens is the number of tokens, 1 to 2^30, that an sglang reserves
	// at most for one answer. Default 4096.
	ClipMaxNewTokens int `koanf:"clip_max_new_tokens"`
	// ScheduleConservativeness scales the share of the tokens still to come that an
	// sglang reserves for running answers, above 0 and up to 1. Default 1.
	ScheduleConservativeness float64 `koanf:"schedule_conservativeness"`
	// VirtualTime runs modelled engines on a clock that does not wait: it goes on
	// to the request_timestamp_ms of each request's nvext, and to the end with
	// POST /sim/drain. Requests must be received in the order of their timestamps;
	// one that comes late arrives when it is received. POST /sim/drain?requests=N
	// waits until N requests were received and then lets the clock go, so that none
	// still on its way is left out. What comes of the same requests is the same each
	// time only with router.mode round-robin: other choices go by load, which the
	// router sees in wall time. Default false.
	VirtualTime bool `koanf:"virtual_time"`
}

// ModelConfig says where the tokens of a served model come from. All but Name and
// Tokenizer is about tokenizers that are loaded, and has to be as the engines have
// it: tokens that are not theirs find nothing in their caches.
type ModelConfig struct {
	// Name is the name that the model is served under; an adapter has the entry of
	// its model unless it has its own. "*" is for all models without one. Required
	// and unique.
	Name string `koanf:"name"`
	// Tokenizer is one of: a path of the model's files, that is a directory, a
	// tokenizer.json or a repository in the cache of Hugging Face's libraries; a
	// repository on the Hub, such as Qwen/Qwen3-8B or Qwen/Qwen3-8B@main; "qwen3",
	// which is built in; "engine", to ask an engine whenever tokens are needed;
	// "none". Required.
	Tokenizer string `koanf:"tokenizer"`
	// ChatTemplate is a file with a template that takes the place of the model's
	// own. Default none.
	ChatTemplate string `koanf:"chat_template"`
	// Dialect is the engine whose way of handing a chat to the template is followed:
	// vllm, sglang, hf for transformers, or llamacpp, whose way of making tokens is
	// followed as well. Default empty, which is vllm.
	Dialect string `koanf:"dialect"`
	// ContentFormat is what the template gets for the content of a message: string,
	// openai for a list of parts, or empty, the default, for what can be told from
	// the template.
	ContentFormat string `koanf:"content_format"`
	// ChatTemplateKwargs are variables of the template for all requests, where a
	// request does not set them itself. Default none.
	ChatTemplateKwargs map[string]any `koanf:"chat_template_kwargs"`
	// ExcludeToolsWhenToolChoiceNone is the flag of that name that vLLM has. Default
	// false.
	ExcludeToolsWhenToolChoiceNone bool `koanf:"exclude_tools_when_tool_choice_none"`
	// TrustRequestChatTemplate is the flag of that name that vLLM has: requests may
	// bring templates along. Default false.
	TrustRequestChatTemplate bool `koanf:"trust_request_chat_template"`
	// Pattern is the regular expression that splits text into pieces, for tiktoken
	// files, which do not have their own. Default none.
	Pattern string `koanf:"pattern"`
	// Cache bounds the memory of prompts whose tokens are kept, so that of a longer
	// one only the rest is tokenized; 0 keeps none. Default not set, which is 64MiB.
	Cache *Size `koanf:"cache"`
}

// HubConfig says where models are downloaded from. The stator command fills in what
// is not set from the variables that Hugging Face's libraries know: HF_ENDPOINT,
// HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE and others.
type HubConfig struct {
	// Endpoint is the URL of the Hub. Default empty, which is
	// https://huggingface.co.
	Endpoint string `koanf:"endpoint"`
	// Token is what the Hub knows the user by. Default none.
	Token string `koanf:"token" secret:"true"`
	// CacheDir is the directory that downloads are kept in, shared with Hugging
	// Face's libraries. Default none; without one nothing is downloaded.
	CacheDir string `koanf:"cache_dir"`
	// Offline uses only what has been downloaded before. Default not set, which is
	// false.
	Offline *bool `koanf:"offline"`
}

// LimitsConfig bounds what clients can take.
type LimitsConfig struct {
	// BodyBytes is the largest request body. Default 45MiB.
	BodyBytes Size `koanf:"body_bytes"`
	// BodyBudgetBytes is how much all request bodies in memory may take
	// together. Default 1GiB.
	BodyBudgetBytes Size `koanf:"body_budget_bytes"`
	// MaxInflight is the number of requests served at a time. 0, the default, is
	// unlimited.
	MaxInflight int `koanf:"max_inflight"`
	// HeaderTimeout is the time a client has to send the request header.
	// Default 10s.
	HeaderTimeout time.Duration `koanf:"header_timeout"`
	// BodyTimeout is the time a client has to send the request body. Default
	// 60s.
	BodyTimeout time.Duration `koanf:"body_timeout"`
	// WriteTimeout is how long one write to a client may block. Default 30s.
	WriteTimeout time.Duration `koanf:"write_timeout"`
	// EngineIdleTimeout is how long an engine may send nothing before its
	// request is given up; 0 waits for ever. Default 10m.
	EngineIdleTimeout time.Duration `koanf:"engine_idle_timeout"`
}

// KeyConfig is one API key. The key itself is not in it.
type KeyConfig struct {
	// Name tells keys apart in logs. Required and unique.
	Name string `koanf:"name"`
	// SHA256 is the hash of the key, 64 hexadecimal digits. Required and unique.
	SHA256 string `koanf:"sha256" secret:"true"`
	// Trusted requests may pin workers, override router settings and name a
	// tenant. Default false.
	Trusted bool `koanf:"trusted"`
	// Admin requests may use the admin routes. Default false.
	Admin bool `koanf:"admin"`
	// Tenant keeps the cache of this key's requests apart from others', whatever
	// a request says. Default none.
	Tenant string `koanf:"tenant"`
	// PreferSensitivity goes by the latency_sensitivity of a request that has a
	// priority as well, for clients that count priority downwards, so that their
	// most urgent requests have the lowest. Default false.
	PreferSensitivity bool `koanf:"prefer_latency_sensitivity"`
}

// ErrorsConfig says what error bodies look like.
type ErrorsConfig struct {
	// Format is openai ({"error": {"message", "type", "param", "code"}}) or
	// dynamo (flat: {"message", "type", "code"}). Default openai.
	Format string `koanf:"format"`
}

// NvExtConfig says what becomes of the nvext extension of requests.
type NvExtConfig struct {
	// Disabled ignores nvext and the headers that go with it, from every client.
	// Default false.
	Disabled bool `koanf:"disabled"`
	// Forward leaves nvext in the bodies that go to engines, for ones that know it.
	// Default false.
	Forward bool `koanf:"forward"`
}

// LearnConfig says whether the server learns what to expect of requests: how long answers
// are, when the next call of a conversation comes and how many follow. It goes by the calls
// before, of the same conversation or of others that began with the same instructions and
// tools, and never by those of another tenant. What a client hints goes before what is
// inferred. Explanations, the request trace and the metrics say what was inferred.
type LearnConfig struct {
	// Enabled turns it on. Default false.
	Enabled bool `koanf:"enabled"`
	// Idle is how long after its last call a conversation counts as over. Default 10m.
	Idle time.Duration `koanf:"idle"`
	// MaxConversations is how many conversations are remembered at a time, up to 2^20,
	// about half a kilobyte each. Default 65536.
	MaxConversations int `koanf:"max_conversations"`
	// MaxFamilies is how many different beginnings of conversations are remembered, up to
	// 2^20. One takes half a kilobyte and, for conversations of many calls, up to 20.
	// Default 4096.
	MaxFamilies int `koanf:"max_families"`
	// MinSamples is how many observations it takes before others' conversations are gone
	// by, 1 to 32. Default 5.
	MinSamples int `koanf:"min_samples"`
}

// LogConfig says what is logged. Level and Format are for the stator command,
// which logs to standard error; a program that embeds the server brings its own
// logger with [WithLogger].
type LogConfig struct {
	// Level is debug, info, warn or error. Default info.
	Level string `koanf:"level"`
	// Format is text or json. Default text.
	Format string `koanf:"format"`
	// Requests writes one line per finished request. Default false.
	Requests bool `koanf:"requests"`
}

// TracingConfig says where spans go.
type TracingConfig struct {
	// OTLPEndpoint is the URL of an OTLP/HTTP collector. Empty, the default,
	// exports nothing.
	OTLPEndpoint string `koanf:"otlp_endpoint"`
	// Sample is the share of requests traced, 0 to 1, among those whose caller
	// did not decide. Default 1.
	Sample float64 `koanf:"sample"`
}

// TraceConfig says where the request trace goes: a JSON object per finished
// request, one to a line, with when it came, its lengths, the hashes of its
// prompt's blocks, every candidate of the decision where to run it, and what
// came of it. Prompts are tokenized for it where the tokenizer is known, by an engine
// where that is the one. A disk that fails or cannot keep up costs rows, never
// requests.
type TraceConfig struct {
	// Out is the file, appended to if it exists. Empty, the default, records
	// nothing.
	Out string `koanf:"out"`
	// MaxBytes is the size on disk at which the file is put aside and a new one
	// begun; 0 is never. The file put aside last has 1 in its name, trace.jsonl.1
	// for trace.jsonl and trace.jsonl.1.zst for trace.jsonl.zst, the one before 2,
	// and so on. Default 1GiB.
	MaxBytes Size `koanf:"max_bytes"`
	// MaxFiles is how many files that were put aside are kept, the newest; 0 is
	// all. Default 8.
	MaxFiles int `koanf:"max_files"`
	// Zstd compresses, and adds .zst to the name of the file. A name that ends so
	// is enough, too. Default false.
	Zstd bool `koanf:"zstd"`
	// Text records the text of prompts, which otherwise appear as hashes and
	// lengths alone. A request then holds it in memory until it ends, as part of
	// limits.body_budget_bytes. Default false.
	Text bool `koanf:"text"`
}

// DrainConfig says how the server ends.
type DrainConfig struct {
	// Timeout is how long running requests may go on once the server was told to
	// stop. Default 30s.
	Timeout time.Duration `koanf:"timeout"`
}

// MetricsConfig shapes the Prometheus series.
type MetricsConfig struct {
	// Prefix begins the names of the series about requests and models. Default
	// "dynamo_frontend".
	Prefix string `koanf:"prefix"`
	// Ports serves the series of some parts on ports of their own.
	Ports MetricsPortsConfig `koanf:"ports"`
	// Buckets shapes the request histograms.
	Buckets BucketsConfig `koanf:"buckets"`
}

// MetricsPortsConfig has parts of the server scraped apart, as the processes are that a
// fleet under Dynamo consists of. Each port serves /metrics and /live on the host of the
// admin routes, by the same rules; what it serves, /metrics there leaves out, so that
// nothing is counted twice. Port 0 leaves it there. These processes usually have 8081,
// 8082 and 8083.
type MetricsPortsConfig struct {
	// Worker is for what engines do and how full their caches are. Default 0.
	Worker int `koanf:"worker"`
	// Router is for the bandit policies and the requests to find a worker. Default 0.
	Router int `koanf:"router"`
	// Processor is for chats and completions on their way from router to worker.
	// Default 0.
	Processor int `koanf:"processor"`
}

// BucketsConfig holds the buckets of the request histograms.
type BucketsConfig struct {
	// RequestDuration is in seconds. Default 1 to 512 in 10.
	RequestDuration BucketRange `koanf:"request_duration"`
	// InputSequence is in tokens and also shapes cached tokens. Default 50 to
	// 128000 in 12.
	InputSequence BucketRange `koanf:"input_sequence"`
	// OutputSequence is in tokens. Default 50 to 32000 in 10.
	OutputSequence BucketRange `koanf:"output_sequence"`
	// TTFT is in seconds. Default 0.001 to 480 in 18.
	TTFT BucketRange `koanf:"ttft"`
	// ITL is in seconds. Default 0.001 to 2 in 13.
	ITL BucketRange `koanf:"itl"`
}

// BucketRange describes histogram bounds: 0, then Count-1 points spaced evenly in
// the logarithm, the last of them Max, each rounded to two significant figures.
type BucketRange struct {
	// Min is where the spacing starts, above 0; it is not a bound itself.
	Min float64 `koanf:"min"`
	// Max is the highest bound, above Min.
	Max float64 `koanf:"max"`
	// Count is the number of bounds, 1 to 512.
	Count int `koanf:"count"`
}

// DefaultConfig returns a configuration that is complete but for engines.
func DefaultConfig() Config {
	return Config{
		Listen:    "127.0.0.1:8000",
		Discovery: DiscoveryConfig{RegisterTTL: 30 * time.Second, DNSInterval: 10 * time.Second},
		Sim: SimConfig{
			Model:                    "stator-sim",
			Kind:                     "vllm",
			Tokenizer:                "qwen3",
			Profile:                  "linear",
			Speedup:                  1,
			DecodeSpeedup:            1,
			ContextLength:            32768,
			BlockSize:                16,
			TotalKVBlocks:            16384,
			MaxNumBatchedTokens:      8192,
			MaxNumSeqs:               256,
			Ranks:                    1,
			PrefixCaching:            true,
			ChunkedPrefill:           true,
			Preemption:               "lifo",
			DraftAcceptance:          []float64{0.85, 0.3, 0, 0, 0},
			Rules:                    "current",
			SchedulePolicy:           "fifo",
			MaxPrefillTokens:         16384,
			ClipMaxNewTokens:         4096,
			ScheduleConservativeness: 1,
		},
		Router: defaultRouter(),
		Limits: LimitsConfig{
			BodyBytes:         45 << 20,
			BodyBudgetBytes:   1 << 30,
			HeaderTimeout:     10 * time.Second,
			BodyTimeout:       60 * time.Second,
			WriteTimeout:      30 * time.Second,
			EngineIdleTimeout: 10 * time.Minute,
		},
		Errors:   ErrorsConfig{Format: "openai"},
		AskUsage: true,
		Learn:    LearnConfig{Idle: 10 * time.Minute, MaxConversations: 65536, MaxFamilies: 4096, MinSamples: 5},
		Log:      LogConfig{Level: "info", Format: "text"},
		Tracing:  TracingConfig{Sample: 1},
		Trace:    TraceConfig{MaxBytes: 1 << 30, MaxFiles: 8},
		Drain:    DrainConfig{Timeout: 30 * time.Second},
		Metrics: MetricsConfig{
			Prefix: "dynamo_frontend",
			Buckets: BucketsConfig{
				RequestDuration: BucketRange{1, 512, 10},
				InputSequence:   BucketRange{50, 128000, 12},
				OutputSequence:  BucketRange{50, 32000, 10},
				TTFT:            BucketRange{0.001, 480, 18},
				ITL:             BucketRange{0.001, 2, 13},
			},
		},
	}
}
