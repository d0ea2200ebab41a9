package stator

import (
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/learn"
)

// ConfigError lists everything that is wrong with a configuration.
type ConfigError struct {
	Problems []Problem // at least one
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Key is the path of the setting as in the YAML file: "router.mode",
	// "engines[1].url".
	Key string
	// Reason says what was expected and what was found. It quotes no secrets.
	Reason string
}

func (p Problem) String() string { return p.Key + ": " + p.Reason }

// Error returns one line per problem.
func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Validate reports every setting that a server could not work with, as a
// *[ConfigError], or nil. It reads the profile of simulated engines if that is a
// file, looks whether files of models are there, and opens no other file and no
// socket. A configuration without engines is valid.
func (c *Config) Validate() error {
	var v validator
	v.listeners(c)
	v.engines(c)
	v.positive("discovery.register_ttl", c.Discovery.RegisterTTL)
	v.positive("discovery.dns_interval", c.Discovery.DNSInterval)
	v.sim(c)
	v.models(c)
	v.router(&c.Router)
	v.limits(&c.Limits)
	v.keys(c.Keys)
	v.oneOf("errors.format", c.Errors.Format, "openai", "dynamo")
	v.learn(&c.Learn)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.tracing(&c.Tracing)
	v.trace(&c.Trace)
	v.atLeast("drain.timeout", c.Drain.Timeout, 0)
	v.metrics(&c.Metrics)
	v.metricsPorts(c)
	if v.problems == nil {
		return nil
	}
	return &ConfigError{Problems: v.problems}
}

// Warnings returns what is allowed and probably not meant, one sentence each.
func (c *Config) Warnings() []string {
	var out []string
	if len(c.Keys) == 0 {
		for _, addr := range []string{c.Listen, c.AdminListen} {
			if addr != "" && !loopback(addr) {
				out = append(out, fmt.Sprintf("%s is reachable from other machines and no API keys are configured: anyone can use it", addr))
			}
		}
	} else if !slices.ContainsFunc(c.Keys, func(k KeyConfig) bool { return k.Admin }) {
		out = append(out, "no API key has admin: true, so nobody can read /metrics or use the other admin routes")
	}
	if c.Trace.Text && c.Trace.Out == "" {
		out = append(out, "trace.text records nothing without trace.out")
	}
	if q := &c.Router.Queue; q.Threshold != nil && len(q.Classes) > 0 {
		out = append(out, "router.queue.threshold: no effect beside router.queue.policy_classes, which have their own")
	}
	if keys := c.Sim.changed(); c.Sim.Engines == 0 && len(keys) > 0 {
		out = append(out, strings.Join(keys, ", ")+": no effect without simulated engines, whose number is sim.engines or --sim")
	}
	return out
}

// loopback reports whether only this machine can reach addr.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

type validator struct {
	problems []Problem
}

func (v *validator) add(key, format string, args ...any) {
	v.problems = append(v.problems, Problem{Key: key, Reason: fmt.Sprintf(format, args...)})
}

func (v *validator) oneOf(key, got string, choices ...string) {
	if !slices.Contains(choices, got) {
		v.add(key, "expected %s, got %q", orList(choices), got)
	}
}

func (v *validator) atLeast(key string, got, low time.Duration) {
	if got < low {
		v.add(key, "expected at least %v, got %v", low, got)
	}
}

func (v *validator) positive(key string, got time.Duration) {
	if got <= 0 {
		v.add(key, "expected more than 0, got %v", got)
	}
}

func (v *validator) intBetween(key string, got, low, high int) {
	if got < low || got > high {
		v.add(key, "expected a number from %d to %d, got %d", low, high, got)
	}
}

func (v *validator) intAtLeast(key string, got, low int) {
	if got < low {
		v.add(key, "expected at least %d, got %d", low, got)
	}
}

// between also refuses NaN.
func (v *validator) between(key string, got, low, high float64) {
	if !(got >= low && got <= high) {
		v.add(key, "expected a number from %v to %v, got %v", low, high, got)
	}
}

// nonNegative also refuses NaN and infinity.
func (v *validator) nonNegative(key string, got float64) {
	if !(got >= 0 && !math.IsInf(got, 1)) {
		v.add(key, "expected a number of at least 0, got %v", got)
	}
}

func (v *validator) listeners(c *Config) {
	v.address("listen", c.Listen)
	if c.AdminListen != "" {
		v.address("admin_listen", c.AdminListen)
		if c.AdminListen == c.Listen && !strings.HasSuffix(c.Listen, ":0") {
			v.add("admin_listen", "expected another address than listen; leave it out to have the admin routes there")
		}
	}
	switch {
	case c.TLS.Cert != "" && c.TLS.Key == "":
		v.add("tls.key", "expected the key file of tls.cert")
	case c.TLS.Cert == "" && c.TLS.Key != "":
		v.add("tls.cert", "expected the certificate file of tls.key")
	}
}

func (v *validator) address(key, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		v.add(key, "expected host:port such as 127.0.0.1:8000, got %q", addr)
	}
}

func (v *validator) engines(c *Config) {
	owner := make(map[kv.WorkerID]string) // who has an id already
	for i := range min(max(c.Sim.Engines, 0), maxSim) {
		owner[kv.WorkerID(i+1)] = "a simulated engine"
	}
	for i, e := range c.Engines {
		at := fmt.Sprintf("engines[%d]", i)
		id, err := openaihttp.ID(strings.TrimPrefix(e.URL, dnsScheme))
		switch {
		case e.URL == "":
			v.add(at+".url", "expected a base URL such as http://127.0.0.1:8000")
		case strings.HasPrefix(e.URL, dnsScheme+"https:"):
			v.add(at+".url", "expected dns+http: certificates are for names and not for their addresses")
		case strings.HasPrefix(e.URL, dnsScheme) && e.ID != 0:
			v.add(at+".id", "expected none with dns+, whose engines have ids of their own, got %d", e.ID)
		case err != nil:
			v.add(at+".url", "expected a base URL such as http://127.0.0.1:8000, got %s", redacted(e.URL))
		}
		if e.ID != 0 {
			id = kv.WorkerID(e.ID)
		}
		if id != 0 {
			switch other := owner[id]; {
			case other == "":
				owner[id] = at
			case e.ID != 0:
				v.add(at+".id", "expected an id of its own, but %s has %d too", other, id)
			default:
				v.add(at+".url", "expected a URL of its own, but %s is the same; if both are meant, give one an id", other)
			}
		}
		if e.Kind != "" {
			v.oneOf(at+".kind", e.Kind, engineKinds...)
		}
		v.events(at, &e)
		v.intAtLeast(at+".ranks", e.Ranks, 0)
		v.intAtLeast(at+".block_size", e.BlockSize, 0)
		v.intAtLeast(at+".total_kv_blocks", e.TotalKVBlocks, 0)
		v.intAtLeast(at+".max_num_batched_tokens", e.MaxNumBatchedTokens, 0)
		v.taints(at, &e)
	}
}

var engineKinds = []string{"auto", engine.VLLM, engine.SGLang, engine.TRTLLM, engine.LlamaCpp, engine.OpenAI}

// events checks where an engine publishes.
func (v *validator) events(at string, e *EngineConfig) {
	if e.Events != "" && e.Events != "auto" && e.Events != "off" {
		v.address(at+".events", strings.TrimPrefix(e.Events, "tcp://"))
	}
	if e.Replay != "" {
		v.address(at+".replay", strings.TrimPrefix(e.Replay, "tcp://"))
		if e.Events == "off" {
			v.add(at+".replay", "expected none where events are off, got %q", e.Replay)
		}
	}
}

// redacted quotes a URL without the password it may hold.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		if !strings.Contains(raw, "@") {
			return strconv.Quote(raw)
		}
		return "something else"
	}
	return strconv.Quote(u.Redacted())
}

func (v *validator) limits(l *LimitsConfig) {
	if l.BodyBytes <= 0 {
		v.add("limits.body_bytes", "expected more than 0, got %d", int64(l.BodyBytes))
	}
	if l.BodyBudgetBytes < l.BodyBytes {
		v.add("limits.body_budget_bytes", "expected at least limits.body_bytes (%v), got %v", l.BodyBytes, l.BodyBudgetBytes)
	}
	v.intAtLeast("limits.max_inflight", l.MaxInflight, 0)
	v.positive("limits.header_timeout", l.HeaderTimeout)
	v.positive("limits.body_timeout", l.BodyTimeout)
	v.positive("limits.write_timeout", l.WriteTimeout)
	v.atLeast("limits.engine_idle_timeout", l.EngineIdleTimeout, 0)
}

func (v *validator) keys(keys []KeyConfig) {
	names, hashes := make(map[string]int), make(map[string]int)
	for i, k := range keys {
		at := fmt.Sprintf("keys[%d]", i)
		if other, taken := names[k.Name]; k.Name == "" {
			v.add(at+".name", "expected a name to tell the key by")
		} else if taken {
			v.add(at+".name", "expected a name of its own, but keys[%d] is called %q too", other, k.Name)
		} else {
			names[k.Name] = i
		}
		hash, err := hex.DecodeString(k.SHA256)
		if err != nil || len(hash) != 32 {
			v.add(at+".sha256", "expected the SHA-256 of the key as 64 hexadecimal digits; stator config new-key makes one")
			continue
		}
		if other, taken := hashes[string(hash)]; taken {
			v.add(at+".sha256", "expected a key of its own, but keys[%d] is the same", other)
			continue
		}
		hashes[string(hash)] = i
	}
}

func (v *validator) baseURL(key, got, example string) {
	u, err := url.Parse(got)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		v.add(key, "expected a URL such as %s", example)
	}
}

func (v *validator) learn(l *LearnConfig) {
	v.positive("learn.idle", l.Idle)
	v.intBetween("learn.max_conversations", l.MaxConversations, 1, 1<<20)
	v.intBetween("learn.max_families", l.MaxFamilies, 1, 1<<20)
	v.intBetween("learn.min_samples", l.MinSamples, 1, learn.MaxSamples)
}

func (v *validator) tracing(t *TracingConfig) {
	if t.OTLPEndpoint != "" {
		v.baseURL("tracing.otlp_endpoint", t.OTLPEndpoint, "http://127.0.0.1:4318")
	}
	v.between("tracing.sample", t.Sample, 0, 1)
}

func (v *validator) trace(t *TraceConfig) {
	if strings.HasSuffix(t.Out, "/") {
		v.add("trace.out", "expected the name of a file, got %q", t.Out)
	}
	if t.MaxBytes < 0 {
		v.add("trace.max_bytes", "expected at least 0, got %d", int64(t.MaxBytes))
	}
	v.intAtLeast("trace.max_files", t.MaxFiles, 0)
}

func (v *validator) metrics(m *MetricsConfig) {
	if m.Prefix == "" {
		v.add("metrics.prefix", "expected the beginning of metric names such as dynamo_frontend")
	}
	for _, b := range []struct {
		name  string
		value BucketRange
	}{
		{"request_duration", m.Buckets.RequestDuration},
		{"input_sequence", m.Buckets.InputSequence},
		{"output_sequence", m.Buckets.OutputSequence},
		{"ttft", m.Buckets.TTFT},
		{"itl", m.Buckets.ITL},
	} {
		at, r := "metrics.buckets."+b.name, b.value
		if !(r.Min > 0) {
			v.add(at+".min", "expected more than 0, got %v", r.Min)
		}
		if !(r.Max > r.Min) || math.IsInf(r.Max, 1) {
			v.add(at+".max", "expected more than min (%v), got %v", r.Min, r.Max)
		}
		if r.Count < 1 || r.Count > 512 {
			v.add(at+".count", "expected a number from 1 to 512, got %d", r.Count)
		}
	}
}

// metricsPorts checks that each port of the metrics is one, and nobody else's.
func (v *validator) metricsPorts(c *Config) {
	taken := make(map[int]string)
	host, _, _ := net.SplitHostPort(c.adminListen())
	for _, l := range []struct{ key, addr string }{{"listen", c.Listen}, {"admin_listen", c.AdminListen}} {
		if h, port, err := net.SplitHostPort(l.addr); err == nil && h == host {
			n, _ := strconv.Atoi(port)
			taken[n] = l.key
		}
	}
	for _, p := range c.Metrics.Ports.list() {
		at := "metrics.ports." + p.name
		v.intBetween(at, p.port, 0, math.MaxUint16)
		switch other := taken[p.port]; {
		case p.port == 0:
		case other != "":
			v.add(at, "expected a port of its own, but %s has %d too", other, p.port)
		default:
			taken[p.port] = at
		}
	}
}

// orList joins choices as "a, b or c".
func orList(choices []string) string {
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
