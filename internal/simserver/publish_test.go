package simserver

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/simengine"
)

// pressed returns the configuration of an engine with a small cache, whose passes take
// no time.
func pressed(kind simengine.Kind, p PublishConfig) Config {
	if p.Listen == "" && p.Connect == "" && p.Format != "trtllm" {
		p.Listen = "127.0.0.1:0"
	}
	return modelled(Config{
		Kind: kind, Worker: 7, BlockSize: 4, TotalBlocks: 96, Adapters: []string{"poet", "clerk"}, Publish: &p,
	}, 0, 0)
}

// chatter sends random requests whose prompts begin alike.
type chatter struct {
	rng      *rand.Rand
	adapters []string // among which it chooses, as with salts
	salts    []string
	sent     []spoken
}

// spoken is a prompt with its answer.
type spoken struct {
	ids        []uint32
	lora, salt string
}

func (tr *chatter) prompt() []uint32 {
	n := 1 + tr.rng.IntN(60)
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(7 * i % 300)
	}
	for i := tr.rng.IntN(n); i < n; i++ { // from where on it is its own
		ids[i] = uint32([]int{5, 150, 3000, 100000}[tr.rng.IntN(4)] + tr.rng.IntN(3))
	}
	return ids
}

// request returns a request with several prompts, some of them the same.
func (tr *chatter) request() (body, lora, salt string) {
	prompts := [][]uint32{tr.prompt(), tr.prompt()}
	prompts = append(prompts, prompts[tr.rng.IntN(2)])
	lora, salt = tr.adapters[tr.rng.IntN(len(tr.adapters))], tr.salts[tr.rng.IntN(len(tr.salts))]
	fields := map[string]any{
		"prompt": prompts, "max_tokens": 1 + tr.rng.IntN(20), "ignore_eos": true, "return_token_ids": true, "n": 1 + tr.rng.IntN(2),
	}
	if lora != "" {
		fields["model"] = lora
	}
	if salt != "" {
		fields["cache_salt"] = salt
	}
	text, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(text), lora, salt
}

// send has the server answer a request.
func (tr *chatter) send(t *testing.T, s *Server, headers ...string) {
	t.Helper()
	body, lora, salt := tr.request()
	r := unary(t, s, "/v1/completions", body, headers...)
	for _, c := range r.Choices {
		tr.sent = append(tr.sent, spoken{slices.Concat(c.Prompt, c.TokenID), lora, salt})
	}
}

// compare sees that two indexes find the same of whatever was sent, and of what was
// sent under another adapter or salt.
func (tr *chatter) compare(t *testing.T, size int, own, told *kvindex.Index) {
	t.Helper()
	held := 0
	for _, p := range tr.sent[max(0, len(tr.sent)-60):] {
		for _, lora := range tr.adapters {
			for _, salt := range tr.salts {
				prompt := kv.AppendBlocks(nil, kv.HashSeed(lora, salt), p.ids, size)
				want, got := own.Match(nil, prompt), told.Match(nil, prompt)
				held += len(want)
				if !slices.Equal(want, got) {
					t.Fatalf("%v under %q, %q (-own +told):\n%s", p.ids, lora, salt, cmp.Diff(want, got))
				}
			}
		}
	}
	if held == 0 {
		t.Fatal("nothing is held")
	}
	for _, src := range own.Ranks() {
		a, _ := own.Rank(src)
		b, _ := told.Rank(src)
		if a.Blocks != b.Blocks {
			t.Errorf("rank %d: %v blocks, told of %v", src.Rank, a.Blocks, b.Blocks)
		}
	}
}

// listener decodes what a rank has published, from where it is kept.
type listener struct {
	stream *zmqStream
	dec    *kv.Decoder
	next   uint64
}

func listen(s *Server, rank int) *listener {
	return &listener{
		stream: s.publisher.streams[rank].(*zmqStream),
		dec: kv.NewDecoder(kv.DecoderConfig{
			Source: kv.Source{Worker: s.cfg.Worker, Rank: uint32(rank)}, BlockSize: s.cfg.BlockSize, Counted: s.cfg.Kind == simengine.VLLM,
		}),
	}
}

// apply brings an index up to date.
func (l *listener) apply(t *testing.T, x *kvindex.Index) {
	t.Helper()
	first, payloads := l.stream.since(l.next)
	if first != l.next {
		t.Fatalf("batches %d to %d are gone", l.next, first)
	}
	for _, p := range payloads {
		l.decode(t, x, p)
	}
}

func (l *listener) decode(t *testing.T, x *kvindex.Index, payload []byte) {
	t.Helper()
	b, err := l.dec.Decode(l.next, payload)
	if err != nil {
		t.Fatal(err)
	}
	l.next++
	if err := x.Apply(b); err != nil {
		t.Fatal(err)
	}
}

func (l *listener) skipped() map[string]uint64 {
	out := map[string]uint64{}
	for r, n := range l.dec.Skipped() {
		if n > 0 {
			out[kv.Reason(r).String()] = n
		}
	}
	return out
}

// formats are all formats of sockets, with what they tell.
var formats = []struct {
	format          string
	kind            simengine.Kind
	adapters, salts bool
}{
	{"vllm-0.9", simengine.VLLM, false, false},
	{"vllm-0.10.2", simengine.VLLM, false, false},
	{"vllm-0.14", simengine.VLLM, true, false},
	{"vllm-0.17", simengine.VLLM, true, true},
	{"vllm-0.20", simengine.VLLM, true, true},
	{"vllm-0.22", simengine.VLLM, true, true},
	{"vllm-0.24", simengine.VLLM, true, true},
	{"vllm-0.26", simengine.VLLM, true, true},
	{"bytes", simengine.VLLM, true, true},
	{"sglang-0.4.7", simengine.SGLang, false, false},
	{"sglang-0.5.9", simengine.SGLang, false, false},
	{"sglang-0.5.18", simengine.SGLang, false, true},
}

func newChatter(seed uint64, adapters, salts bool) *chatter {
	tr := &chatter{rng: rand.New(rand.NewPCG(seed, 11)), adapters: []string{""}, salts: []string{""}}
	if adapters {
		tr.adapters = append(tr.adapters, "poet", "clerk")
	}
	if salts {
		tr.salts = append(tr.salts, "tenant-a", "dynamo-cache-salt:tenant-b")
	}
	return tr
}

// TestPublished sees that whoever decodes what is published knows as much as one who
// is told by the model itself.
func TestPublished(t *testing.T) {
	for _, f := range formats {
		t.Run(f.format, func(t *testing.T) {
			own, told := kvindex.New(kvindex.Config{}), kvindex.New(kvindex.Config{})
			cfg := pressed(f.kind, PublishConfig{Format: f.format})
			cfg.Events = func(b *kv.Batch) { own.Apply(b) }
			s := newServer(t, cfg)
			defer s.Close()
			l := listen(s, 0)
			tr := newChatter(1, f.adapters, f.salts)
			for range 12 {
				for range 5 {
					tr.send(t, s)
				}
				l.apply(t, told)
				tr.compare(t, cfg.BlockSize, own, told)
			}
			if n := l.skipped(); len(n) > 0 {
				t.Errorf("skipped %v", n)
			}
			if got := l.dec.TellsExtraKeys(); got != f.salts {
				t.Errorf("tells extra keys: %v", got)
			}
			// No name is kept of a block that has gone.
			if n := len(l.stream.mu.names.known); n > cfg.TotalBlocks {
				t.Errorf("%d names of %d blocks", n, cfg.TotalBlocks)
			}
		})
	}
}

// Blocks have the names that the engines themselves give them.
func TestPublishedNames(t *testing.T) {
	prompt := []uint32{1, 2, 3, 4, 5, 6, 7, 1000, 9}
	for _, tc := range []struct {
		name  string
		kind  simengine.Kind
		field string
		want  []kv.BlockID
	}{
		{"vllm, seed 0", simengine.VLLM, "", []kv.BlockID{2164874634404590027, 10820605813907212068}},
		{"vllm, seed 0, adapter-a", simengine.VLLM, `,"model":"adapter-a"`, []kv.BlockID{3096167906432015041}},
		{"vllm, seed 0, salt tenant-a", simengine.VLLM, `,"cache_salt":"tenant-a"`, []kv.BlockID{13195198002585232116}},
		{"sglang", simengine.SGLang, "", []kv.BlockID{0xcf97adeedb59e05b, 0xdb1eb80749f2a7a3}},
		{"sglang, salt tenant-a", simengine.SGLang, `,"cache_salt":"tenant-a"`, []kv.BlockID{3718046898735569995, 5225448755088897185}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := pressed(tc.kind, PublishConfig{HashSeed: "0"})
			cfg.Adapters = []string{"adapter-a"}
			s := newServer(t, cfg)
			defer s.Close()
			ids, _ := json.Marshal(prompt)
			unary(t, s, "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1%s}`, ids, tc.field))
			l := listen(s, 0)
			_, payloads := l.stream.since(0)
			b, err := l.dec.Decode(0, payloads[0])
			if err != nil {
				t.Fatal(err)
			}
			if tc.kind == simengine.SGLang {
				if b.Events[0].Kind != kv.Cleared {
					t.Errorf("the first event is %v", b.Events[0].Kind)
				}
				b.Events = b.Events[1:]
			}
			var got []kv.BlockID
			for _, block := range b.Events[0].Blocks[:len(tc.want)] {
				got = append(got, block.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing is kept of the tokens of requests unless somebody is told.
func TestUnpublished(t *testing.T) {
	s := newServer(t, modelled(Config{}, 0, 0))
	defer s.Close()
	if p, r := s.EventAddrs(); p != nil || r != nil {
		t.Errorf("publishes at %v, %v", p, r)
	}
	s.SetEventFaults(EventFaults{NoReplay: true})
	req := &request{n: 1, maxTokens: 4, prompts: []prompt{{ids: []uint32{1, 2, 3}}}}
	j := newJob(s.ranks[0], req, appendChoices(nil, s, req))
	if w := j.sequences[0].content.wording; w != nil {
		t.Errorf("kept %+v", w)
	}
}

func TestPublishConfig(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no model", func(c *Config) { c.Engine = nil }, "an engine model with prefix caching"},
		{"no caching", func(c *Config) { c.Engine.NoPrefixCaching = true }, "an engine model with prefix caching"},
		{"no address", func(c *Config) { c.Publish.Listen = "" }, "an address to listen at or one to connect to"},
		{"two addresses", func(c *Config) { c.Publish.Connect = "h:1" }, "an address to listen at or one to connect to"},
		{"format of another", func(c *Config) { c.Publish.Format = "sglang-0.5.9" }, `format: expected one of trtllm, vllm-0.26`},
		{"no map in SGLang", func(c *Config) { c.Kind, c.Publish.Format = simengine.SGLang, "map" }, `for kind sglang, got "map"`},
		{"no port", func(c *Config) { c.Publish.Listen = "localhost" }, "listen: address localhost: missing port"},
		{"port", func(c *Config) { c.Publish.Replay = "localhost:x" }, `replay: expected a port from 0 to 65535, got "x"`},
		{"ports beyond the last", func(c *Config) { c.Ranks, c.Publish.Listen = 2, ":65535" }, "listen: expected a port with 1 above it, got 65535"},
		{"connect anywhere", func(c *Config) { c.Publish.Listen, c.Publish.Connect = "", "h:0" }, "connect: expected a port, got 0"},
		{"ports that meet", func(c *Config) { c.Ranks, c.Publish.Listen, c.Publish.Replay = 2, ":5557", ":5558" },
			"replay: expected a port 2 or more from 5557 for 2 ranks, got 5558"},
		{"buffer", func(c *Config) { c.Publish.Buffer = -1 }, "buffer: expected at least 1, got -1"},
		{"socket without one", func(c *Config) { c.Publish.Format = "trtllm" }, "expected no socket with the format trtllm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := pressed(simengine.VLLM, PublishConfig{})
			tc.change(&cfg)
			s, err := New(cfg)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}
