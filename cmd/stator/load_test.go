package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/stator-ai/stator"
)

func TestLoadPrecedence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stator.yaml")
	const yaml = `
listen: 0.0.0.0:1
admin_listen: 127.0.0.1:1
engines:
  - {url: http://file1, api_key: own}
  - {url: http://file2}
router:
  mode: random
  inhibit: 7s
  active_decode_blocks_threshold: 0.5
  active_prefill_tokens_threshold: 100
keys:
  - {name: file, sha256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, trusted: false}
metrics:
  buckets:
    ttft: {max: 60}
`
	if err := os.WriteFile(path, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"STATOR_ADMIN_LISTEN":   "127.0.0.1:2",
		"STATOR_API_KEY":        "sesame",
		"STATOR_ENGINE_API_KEY": "shared",
		"STATOR_LISTEN":         "", // counts as not set
	}
	got, err := load(source{
		file:   path,
		getenv: func(name string) string { return env[name] },
		dynamo: []assignment{{"router.mode", "direct", "DYN_ROUTER_MODE"}, {"admin_listen", "127.0.0.1:3", "-"}},
		flags: []assignment{
			{"listen", port(9), "--http-port"},
			{"router.mode", "least-loaded", "--router-mode"},
			{"router.active_decode_blocks_threshold", nil, "--active-decode-blocks-threshold"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := stator.DefaultConfig()
	want.Listen = "0.0.0.0:9"
	want.AdminListen = "127.0.0.1:2"
	want.Engines = []stator.EngineConfig{{URL: "http://file1", APIKey: "own"}, {URL: "http://file2", APIKey: "shared"}}
	want.Router.Mode = "least-loaded"
	want.Router.Inhibit = 7 * time.Second
	want.Router.ActivePrefillTokensThreshold = new(uint64(100))
	want.Keys = []stator.KeyConfig{
		{Name: "file", SHA256: hashKey("abc")},
		{Name: "STATOR_API_KEY", SHA256: hashKey("sesame"), Trusted: true, Admin: true},
	}
	want.Metrics.Buckets.TTFT.Max = 60
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("configuration (-want +got):\n%s", d)
	}
}

func TestLoadEnginesOfFlagsReplaceTheFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stator.yaml")
	if err := os.WriteFile(path, []byte("engines: [{url: http://a, ranks: 4}, {url: http://b}]"), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := load(source{
		file:   path,
		getenv: func(string) string { return "" },
		flags:  engineURLs{"http://c"}.assignment(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]stator.EngineConfig{{URL: "http://c"}}, got.Engines); d != "" {
		t.Errorf("engines (-want +got):\n%s", d)
	}
}

func TestTokenizerFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stator.yaml")
	const yaml = `
models:
  - {name: a, tokenizer: none}
  - name: b
    tokenizer: org/b
    dialect: sgl
`
	if err := os.WriteFile(path, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	given := func(texts ...string) []assignment {
		var refs tokenizerRefs
		for _, text := range texts {
			if err := refs.Set(text); err != nil {
				t.Fatal(err)
			}
		}
		return refs.assignment()
	}
	src := source{file: path, getenv: func(string) string { return "" }, flags: given("b=x=y", "engine", "c=qwen3")}
	cfg, err := load(src)
	want := "configuration has 2 problems:\n" +
		`  --tokenizer: models[1].tokenizer: expected a path that exists, a repository on the Hub such as Qwen/Qwen3-8B, qwen3, engine or none, got "x=y"` + "\n" +
		"  " + path + `:6: models[1].dialect: expected vllm, sglang, hf or llamacpp, got "sgl"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	wantModels := []stator.ModelConfig{
		{Name: "a", Tokenizer: "none"},
		{Name: "b", Tokenizer: "x=y", Dialect: "sgl"},
		{Name: "*", Tokenizer: "engine"},
		{Name: "c", Tokenizer: "qwen3"},
	}
	if d := cmp.Diff(wantModels, cfg.Models); d != "" {
		t.Errorf("models (-want +got):\n%s", d)
	}
	for _, bad := range []string{"", "a=", "=b"} {
		if err := new(tokenizerRefs).Set(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestHubEnvironment(t *testing.T) {
	env := map[string]string{"HF_TOKEN": "hf_x", "HF_HOME": "/hf", "HF_HUB_OFFLINE": "1"}
	h := stator.HubConfig{Token: "mine", Offline: new(false)}
	if err := hubEnvironment(&h, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(stator.HubConfig{Token: "mine", CacheDir: filepath.Join("/hf", "hub"), Offline: new(false)}, h); d != "" {
		t.Errorf("the file's settings come first (-want +got):\n%s", d)
	}
	h = stator.HubConfig{}
	if err := hubEnvironment(&h, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(stator.HubConfig{Token: "hf_x", CacheDir: filepath.Join("/hf", "hub"), Offline: new(true)}, h); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// fill sets every field below v to a value that is not its zero value and not its
// default.
func fill(t *testing.T, v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.ValueOf(map[string]string{"zone": "true", "a.b": "007", "null": "x: y"}))
			return
		}
		v.Set(reflect.ValueOf(map[string]any{"a": true, "true": "true", "b": []any{1, 1.5, nil}, "c": map[string]any{"d": "2024-07-26"}}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.String:
		v.SetString([]string{"plain", "true", "007", "a: b #c", "null", "~", "1e9", "x\ny", "<<"}[*n%9])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n) * 1000003)
	case reflect.Uint64:
		v.SetUint(math.MaxUint64 - uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 7)
	default:
		t.Fatalf("a setting of type %s: teach parseValue, formatValue and this test", v.Type())
	}
}

func TestPrintedConfigReadsBack(t *testing.T) {
	var want stator.Config
	n := 0
	fill(t, reflect.ValueOf(&want).Elem(), &n)
	text, err := printConfig(&want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want.Engines {
		want.Engines[i].APIKey = redacted
	}
	for i := range want.Keys {
		want.Keys[i].SHA256 = redacted
	}
	want.Hub.Token = redacted
	if d := cmp.Diff(want, mustParse(t, text)); d != "" {
		t.Errorf("read back (-want +got):\n%s\nprinted:\n%s", d, text)
	}
}

// mustParse reads a configuration, without defaults and validation.
func mustParse(t *testing.T, text []byte) stator.Config {
	t.Helper()
	f := parseFile("file", text)
	for _, p := range f.problems {
		t.Fatalf("%s\n%s", p, text)
	}
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(f.values, ""), nil); err != nil {
		t.Fatal(err)
	}
	var cfg stator.Config
	if err := decode(k, &cfg); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return cfg
}

func TestParseFileMerges(t *testing.T) {
	got := mustParse(t, []byte(`
engines:
  - &a {url: http://a, ranks: 2, block_size: 16}
  - &b {<<: *a, url: http://b}
  - {<<: *b, url: http://c, block_size: 32}
  - {<<: [*b, {ranks: 8, id: 4}]}
`))
	want := []stator.EngineConfig{
		{URL: "http://a", Ranks: 2, BlockSize: 16},
		{URL: "http://b", Ranks: 2, BlockSize: 16},
		{URL: "http://c", Ranks: 2, BlockSize: 32},
		{URL: "http://b", Ranks: 2, BlockSize: 16, ID: 4},
	}
	if d := cmp.Diff(want, got.Engines); d != "" {
		t.Errorf("engines (-want +got):\n%s", d)
	}
}

func FuzzParseFile(f *testing.F) {
	printed, err := printConfig(new(stator.DefaultConfig()))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{
		string(printed),
		"", "#", "a: b", "- 1", "engines: [{url: x}, 3, ~]", "router: {mode: [}", "listen: 1\n---\nlisten: 2",
		"engines: &a [*a]", "sim: &s {<<: *s, engines: 1}", "? {a: b}\n: c", "keys: !!set {a}", "drain: {timeout: 1h}",
		"sim: {adapters: [a, 7], ttft: 1s}", "sim: {adapters: [true, {a: b}, ~]}",
		"models: [{name: a, tokenizer: x, cache: 0, chat_template_kwargs: {a: 1e3, b: [~, 2024-07-26], 3: {c: .inf}}}]",
		"models: [{chat_template_kwargs: &k {k: *k}}]", "models: [{chat_template_kwargs: {}}, {chat_template_kwargs: {a: 0x1F, b: !x 1}}]",
		"engines: [{taints: [a, b], topology: {zone: west, a.b: 7}}, {topology: {}}]", "engines: [{topology: {a: ~, <<: {b: c}}}]",
		"router: {cost: {temperature: 1e-3}, kv: {ttl: 90s}, queue: {threshold: ~, policy_classes: [{name: a, quantum: 3, prefill_busy_threshold: 0}]}}",
		"limits: {body_bytes: 0x10, max_inflight: 1_000}", "listen: !!binary aGk=", "{<<: 3}", "listen: \xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file := parseFile("file", text)
		if len(file.problems) > 0 {
			for _, p := range file.problems {
				if p.Reason == "" {
					t.Errorf("a problem without a reason: %#v", p)
				}
			}
			return
		}
		cfg := mustParse(t, text)
		again, err := printConfig(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range cfg.Engines {
			if e.APIKey != "" {
				cfg.Engines[i].APIKey = redacted
			}
		}
		for i, k := range cfg.Keys {
			if k.SHA256 != "" {
				cfg.Keys[i].SHA256 = redacted
			}
		}
		if cfg.Hub.Token != "" {
			cfg.Hub.Token = redacted
		}
		got := mustParse(t, again)
		if d := cmp.Diff(normal(cfg), normal(got)); d != "" {
			t.Errorf("printed and read back (-want +got):\n%s", d)
		}
	})
}

// normal makes empty lists equal to none.
func normal(cfg stator.Config) stator.Config {
	cfg.Models = slices.Clone(cfg.Models)
	for i, m := range cfg.Models {
		// What is handed to a template is JSON; 1e3 is printed as 1000.
		text, err := json.Marshal(m.ChatTemplateKwargs)
		if err != nil {
			panic(err)
		}
		cfg.Models[i].ChatTemplateKwargs = map[string]any{"JSON": string(text)}
		if len(m.ChatTemplateKwargs) == 0 {
			cfg.Models[i].ChatTemplateKwargs = nil
		}
	}
	if len(cfg.Models) == 0 {
		cfg.Models = nil
	}
	cfg.Engines = slices.Clone(cfg.Engines)
	for i, e := range cfg.Engines {
		if len(e.Taints) == 0 {
			cfg.Engines[i].Taints = nil
		}
		if len(e.Topology) == 0 {
			cfg.Engines[i].Topology = nil
		}
	}
	if len(cfg.Engines) == 0 {
		cfg.Engines = nil
	}
	if q := &cfg.Router.Queue; len(q.Buckets) == 0 {
		q.Buckets = nil
	}
	if q := &cfg.Router.Queue; len(q.Classes) == 0 {
		q.Classes = nil
	}
	if len(cfg.Sim.Adapters) == 0 {
		cfg.Sim.Adapters = nil
	}
	if len(cfg.Sim.DraftAcceptance) == 0 {
		cfg.Sim.DraftAcceptance = nil
	}
	if len(cfg.Keys) == 0 {
		cfg.Keys = nil
	}
	return cfg
}

func TestDynamoEnvironment(t *testing.T) {
	set, ignored, err := dynamoEnvironment([]string{
		"PATH=/bin",
		"DYN_HTTP_PORT=8080",
		"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD=0.85",
		"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD=None",
		"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC=10.0",
		"DYN_TLS_CERT_PATH=/a.pem",
		"DYN_HTTP_BODY_LIMIT_MB=45",
		"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS=0",
		"DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS=5",
		"DYN_METRICS_TTFT_MAX=60",
		"DYN_HISTOGRAM_DYN_METRICS_TTFT_MAX=90",
		"DYN_METRICS_ITL_COUNT=5",
		"DYN_NAMESPACE=x",
		"DYN_DISCOVERY_BACKEND=mem",
		"DYN_ROUTER_MODE=", // counts as not set
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []assignment{
		{"listen", port(8080), "DYN_HTTP_PORT"},
		{"router.active_decode_blocks_threshold", 0.85, "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"},
		{"router.active_prefill_tokens_threshold", nil, "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD"},
		{"router.active_prefill_tokens_threshold_frac", 10.0, "DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC"},
		{"tls.cert", "/a.pem", "DYN_TLS_CERT_PATH"},
		{"limits.body_bytes", stator.Size(45 << 20), "DYN_HTTP_BODY_LIMIT_MB"},
		{"limits.engine_idle_timeout", time.Duration(0), "DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"},
		{"drain.timeout", 5 * time.Second, "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"},
		{"metrics.buckets.ttft.max", 60.0, "DYN_METRICS_TTFT_MAX"},
		{"metrics.buckets.itl.count", 5, "DYN_METRICS_ITL_COUNT"},
		{"metrics.buckets.ttft.max", 90.0, "DYN_HISTOGRAM_DYN_METRICS_TTFT_MAX"},
	}
	if d := cmp.Diff(want, set, cmp.AllowUnexported(assignment{})); d != "" {
		t.Errorf("assignments (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"DYN_DISCOVERY_BACKEND", "DYN_NAMESPACE"}, ignored); d != "" {
		t.Errorf("ignored (-want +got):\n%s", d)
	}
}

// TestDynamoVariablesFit gives each variable a value that all of them take.
func TestDynamoVariablesFit(t *testing.T) {
	for _, v := range dynamoVariables {
		typ := settingType(v.key)
		parse := v.parse
		if parse == nil {
			parse = func(text string) (any, error) { return parseValue(typ, text) }
		}
		got, err := parse("1")
		if err != nil {
			t.Errorf("%s=1: %v", v.name, err)
			continue
		}
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch got.(type) {
		case port, several, policyFile:
			continue
		}
		if reflect.TypeOf(got) != typ {
			t.Errorf("%s=1: a %T for %s, which is a %s", v.name, got, v.key, typ)
		}
	}
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"listen_":               "listen",
		"tlss":                  "tls",
		"engine":                "engines",
		"Router":                "router",
		"body-bytes":            "limits.body_bytes",
		"otlp_endpoint":         "tracing.otlp_endpoint",
		"model":                 "sim.model",
		"block_size":            "", // of engines or of sim
		"x":                     "",
		"":                      "",
		strings.Repeat("a", 99): "",
	} {
		if got := nearest(configType, "", name); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
	if got := nearest(settingType("router"), "router", "moed"); got != "router.mode" {
		t.Errorf("nearest in router of moed = %q", got)
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"", "abc", 3}, {"abc", "", 3}, {"moed", "mode", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1},
	} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 10 * time.Minute: "10m", time.Hour: "1h", 90 * time.Minute: "1h30m",
		time.Hour + time.Second: "1h0m1s", 100 * time.Hour: "100h", 1500 * time.Microsecond: "1.5ms",
	} {
		got := formatDuration(d)
		if got != want {
			t.Errorf("formatDuration(%v) = %q, want %q", d, got, want)
		}
		if back, err := time.ParseDuration(got); err != nil || back != d {
			t.Errorf("%q reads as %v, %v; want %v", got, back, err, d)
		}
	}
}

func TestDescribeBuild(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"}}
	for _, tt := range []struct {
		name, stamped string
		info          *debug.BuildInfo
		version       string
		commit        string
	}{
		{"stamped", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v0.0.1"}, Settings: vcs}, "v1.2.3", "0123456789ab (modified)"},
		{"go install", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.0.1"}}, "v0.0.1", "unknown"},
		{"go build", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs[:1]}, "devel", "0123456789ab"},
		{"no build info", "", nil, "devel", "unknown"},
	} {
		if v, commit := describeBuild(tt.stamped, tt.info); v != tt.version || commit != tt.commit {
			t.Errorf("%s: %s, %s; want %s, %s", tt.name, v, commit, tt.version, tt.commit)
		}
	}
}

func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8000": "127.0.0.1:8000", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "127.0.0.1:1", ":1": "127.0.0.1:1",
		"[::1]:1": "[::1]:1", "10.0.0.1:1": "10.0.0.1:1",
	} {
		if got := reachable(addr); got != want {
			t.Errorf("reachable(%q) = %q, want %q", addr, got, want)
		}
	}
}

func TestChatExampleIsQuoted(t *testing.T) {
	got := chatExample("http://h", `it's "x"`)
	want := `http://h/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"it'\''s \"x\"","stream":true,"messages":[{"role":"user","content":"Hello!"}]}'`
	if got != want {
		t.Errorf("chatExample:\n%s\nwant:\n%s", got, want)
	}
}
