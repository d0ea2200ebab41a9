package stator_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/nvext"
)

const simModel = "stator-sim"

// fleet is a running server with its engines, and the official SDK in front.
type fleet struct {
	openai.Client
	url     string
	workers []uint64
	engines []*simserver.Server // empty when they run inside the server
}

// pace is how fast the engines answer.
type pace struct{ ttft, itl time.Duration }

// The two ways to run one: with engines inside, and in front of engine servers on
// sockets. Nobody should see a difference.
var fleets = []struct {
	name  string
	start func(t *testing.T, p pace, change func(*stator.Config)) *fleet
}{
	{"simulated", simulatedFleet},
	{"sockets", socketFleet},
}

func simulatedFleet(t *testing.T, p pace, change func(*stator.Config)) *fleet {
	t.Helper()
	cfg := stator.DefaultConfig()
	cfg.Sim.Engines = 4
	cfg.Sim.Profile, cfg.Sim.TTFT, cfg.Sim.ITL = "fixed", &p.ttft, &p.itl
	return startFleet(t, cfg, change, &fleet{workers: []uint64{1, 2, 3, 4}})
}

func socketFleet(t *testing.T, p pace, change func(*stator.Config)) *fleet {
	t.Helper()
	cfg := stator.DefaultConfig()
	f := &fleet{workers: []uint64{11, 12}}
	for _, id := range f.workers {
		sim, err := simserver.New(simserver.Config{TTFT: p.ttft, ITL: p.itl})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(sim)
		t.Cleanup(func() { sim.Close(); srv.Close() })
		f.engines = append(f.engines, sim)
		cfg.Engines = append(cfg.Engines, stator.EngineConfig{URL: srv.URL, ID: id})
	}
	return startFleet(t, cfg, change, f)
}

func startFleet(t *testing.T, cfg stator.Config, change func(*stator.Config), f *fleet) *fleet {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	if change != nil {
		change(&cfg)
	}
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	f.url = "http://" + srv.Addr()
	f.Client = f.client("any")
	return f
}

// client returns an SDK client with the given key that tries once only.
func (f *fleet) client(key string, opts ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(f.url + "/v1"), option.WithAPIKey(key), option.WithMaxRetries(0),
	}, opts...)...)
}

func chatParams(text string, maxTokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     simModel,
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(text)},
		MaxTokens: openai.Int(maxTokens),
	}
}

func completionParams(text string) openai.CompletionNewParams {
	return openai.CompletionNewParams{
		Model:     simModel,
		Prompt:    openai.CompletionNewParamsPromptUnion{OfString: openai.String(text)},
		MaxTokens: openai.Int(40),
	}
}

// streamChat returns the whole answer and the raw chunks.
func streamChat(t *testing.T, c *openai.Client, p openai.ChatCompletionNewParams, opts ...option.RequestOption) (*openai.ChatCompletionAccumulator, []string) {
	t.Helper()
	stream := c.Chat.Completions.NewStreaming(t.Context(), p, opts...)
	defer stream.Close()
	acc := new(openai.ChatCompletionAccumulator)
	var raw []string
	for stream.Next() {
		chunk := stream.Current()
		raw = append(raw, chunk.RawJSON())
		if !acc.AddChunk(chunk) {
			t.Errorf("the SDK cannot add the chunk %s", chunk.RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("stream: %v", err)
	}
	return acc, raw
}

// TestSDK runs the official SDK against both kinds of fleet. Their texts must be
// equal.
func TestSDK(t *testing.T) {
	texts := make(map[string]map[string]string)
	for _, kind := range fleets {
		t.Run(kind.name, func(t *testing.T) {
			f := kind.start(t, pace{}, nil)
			said := make(map[string]string)
			texts[kind.name] = said
			t.Run("chat", func(t *testing.T) { testChat(t, f, said) })
			t.Run("completions", func(t *testing.T) { testCompletions(t, f, said) })
			t.Run("models", func(t *testing.T) { testModels(t, f) })
			t.Run("errors", func(t *testing.T) { testErrors(t, f) })
			t.Run("nvext", func(t *testing.T) { testNvExt(t, f) })
		})
	}
	if len(texts["simulated"]) == 0 {
		t.Fatal("nothing was said")
	}
	if diff := cmp.Diff(texts["simulated"], texts["sockets"]); diff != "" {
		t.Errorf("the fleets differ (-simulated +sockets)\n%s", diff)
	}
}

func testChat(t *testing.T, f *fleet, said map[string]string) {
	for _, text := range []string{"hi", "Tell me a story.", "Naïve café? 日本語 🦊"} {
		p := chatParams(text, 40)
		whole, err := f.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		content := whole.Choices[0].Message.Content
		if content == "" || whole.Usage.CompletionTokens != 40 || whole.Choices[0].FinishReason != "length" {
			t.Errorf("%q: answer %s", text, whole.RawJSON())
		}
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		acc, _ := streamChat(t, &f.Client, p)
		if got := acc.Choices[0].Message.Content; got != content {
			t.Errorf("%q: streamed %q, whole %q", text, got, content)
		}
		if acc.Choices[0].FinishReason != "length" || acc.Usage.CompletionTokens != 40 || acc.Usage.PromptTokens != whole.Usage.PromptTokens {
			t.Errorf("%q: streamed finish %q, usage %+v", text, acc.Choices[0].FinishReason, acc.Usage)
		}
		said["chat: "+text] = content
	}
	p := chatParams("hi", 5)
	p.N = openai.Int(3)
	acc, _ := streamChat(t, &f.Client, p)
	if len(acc.Choices) != 3 {
		t.Fatalf("n = 3 gave %d choices", len(acc.Choices))
	}
	for i, c := range acc.Choices {
		said["choice "+strconv.Itoa(i)] = c.Message.Content
	}
}

func testCompletions(t *testing.T, f *fleet, said map[string]string) {
	p := completionParams("Once upon a time")
	whole, err := f.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	text := whole.Choices[0].Text
	if text == "" || whole.Usage.CompletionTokens != 40 {
		t.Errorf("answer %s", whole.RawJSON())
	}
	said["completion"] = text

	stream := f.Completions.NewStreaming(t.Context(), p)
	defer stream.Close()
	var streamed string
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			streamed += c.Text
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if streamed != text {
		t.Errorf("streamed %q, whole %q", streamed, text)
	}

	p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokenArrays: [][]int64{{79, 110, 99, 101}, {72, 105}}}
	batch, err := f.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if len(batch.Choices) != 2 || batch.Choices[1].Index != 1 {
		t.Fatalf("a batch of two gave %s", batch.RawJSON())
	}
	said["batch 0"], said["batch 1"] = batch.Choices[0].Text, batch.Choices[1].Text
}

func testModels(t *testing.T, f *fleet) {
	list, err := f.Models.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 1 || list.Data[0].ID != simModel || list.Data[0].Object != "model" {
		t.Errorf("list: %s", list.RawJSON())
	}
	m, err := f.Models.Get(t.Context(), simModel)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list.Data[0].RawJSON(), m.RawJSON()); diff != "" {
		t.Errorf("one model differs from its place in the list\n%s", diff)
	}
}

func testErrors(t *testing.T, f *fleet) {
	unknown := chatParams("hi", 1)
	unknown.Model = "no-such-model"
	empty := chatParams("hi", 1)
	empty.Messages = []openai.ChatCompletionMessageParamUnion{}
	refused := chatParams("hi", 1)
	refused.TopLogprobs = openai.Int(20) // the engine wants logprobs with it
	chat := func(p openai.ChatCompletionNewParams, opts ...option.RequestOption) error {
		_, err := f.Chat.Completions.New(t.Context(), p, opts...)
		return err
	}
	stream := func(p openai.ChatCompletionNewParams) error {
		s := f.Chat.Completions.NewStreaming(t.Context(), p)
		defer s.Close()
		for s.Next() {
		}
		return s.Err()
	}
	_, noModel := f.Models.Get(t.Context(), "no-such-model")
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   string
		param  string
	}{
		{"unknown model", chat(unknown), 404, "model_not_found", "model"},
		{"unknown model, streamed", stream(unknown), 404, "model_not_found", "model"},
		{"unknown model, retrieved", noModel, 404, "model_not_found", "model"},
		{"no messages", chat(empty), 400, "invalid_value", "messages"},
		{"wrong type", chat(chatParams("hi", 1), option.WithJSONSet("n", "two")), 400, "invalid_type", "n"},
		{"wrong nvext", chat(chatParams("hi", 1), option.WithJSONSet("nvext.agent_hints.priority", "high")), 400, "invalid_type", "nvext.agent_hints.priority"},
		{"unknown worker", chat(chatParams("hi", 1), option.WithJSONSet("nvext.backend_instance_id", 99)), 400, "worker_not_found", "nvext.backend_instance_id"},
		{"refused by the engine", chat(refused), 400, "400", "top_logprobs"},
		{"refused by the engine, streamed", stream(refused), 400, "400", "top_logprobs"},
	} {
		checkError(t, c.name, c.err, c.status, c.code, c.param)
	}
}

func checkError(t *testing.T, name string, err error, status int, code, param string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v is not an *openai.Error", name, err)
		return
	}
	if e.StatusCode != status || e.Code != code || e.Param != param || e.Message == "" || e.Type == "" {
		t.Errorf("%s: got status %d, %s; want status %d, code %q, param %q", name, e.StatusCode, e.RawJSON(), status, code, param)
	}
}

func testNvExt(t *testing.T, f *fleet) {
	read := func(raw string) *nvext.Response {
		var answer struct {
			NvExt *nvext.Response `json:"nvext"`
		}
		if err := json.Unmarshal([]byte(raw), &answer); err != nil {
			t.Fatal(err)
		}
		return answer.NvExt
	}
	check := func(name string, ext *nvext.Response, worker uint64) {
		t.Helper()
		switch {
		case ext == nil || ext.WorkerID == nil || ext.Timing == nil || ext.Routing == nil:
			t.Errorf("%s: the answer's nvext is %+v", name, ext)
		case *ext.WorkerID.DecodeWorkerID != worker || ext.Routing.Reason != nvext.ReasonPinned:
			t.Errorf("%s: worker %d, reason %q; want %d, pinned", name, *ext.WorkerID.DecodeWorkerID, ext.Routing.Reason, worker)
		case *ext.Timing.TotalTimeMS <= 0:
			t.Errorf("%s: total time %v", name, *ext.Timing.TotalTimeMS)
		}
	}
	for _, worker := range f.workers {
		ask := nvext.New(nvext.PinWorker(worker), nvext.Extra("worker_id", "timing", "routing"),
			nvext.Priority(3), nvext.PrefixID("agent-1"), nvext.OSL(3))
		whole, err := f.Chat.Completions.New(t.Context(), chatParams("hi", 3), option.WithJSONSet("nvext", ask))
		if err != nil {
			t.Fatal(err)
		}
		check("whole", read(whole.RawJSON()), worker)
		_, chunks := streamChat(t, &f.Client, chatParams("hi", 3), option.WithJSONSet("nvext", ask))
		i := slices.IndexFunc(chunks, func(raw string) bool { return read(raw) != nil })
		if i < 0 {
			t.Fatalf("no chunk has nvext: %q", chunks)
		}
		check("streamed", read(chunks[i]), worker)
	}
	plain, err := f.Chat.Completions.New(t.Context(), chatParams("hi", 3))
	if err != nil {
		t.Fatal(err)
	}
	if ext := read(plain.RawJSON()); ext != nil {
		t.Errorf("nvext %+v without having been asked for", ext)
	}
}

// TestSDKAbort checks that a client that leaves takes its request with it, down
// to the engine.
func TestSDKAbort(t *testing.T) {
	for _, kind := range fleets {
		t.Run(kind.name, func(t *testing.T) {
			f := kind.start(t, pace{ttft: time.Millisecond, itl: 5 * time.Millisecond}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := f.Chat.Completions.NewStreaming(ctx, chatParams("hi", 20_000)) // more than a minute and a half
			defer stream.Close()
			if !stream.Next() {
				t.Fatalf("no chunk: %v", stream.Err())
			}
			if n := f.running(t); n != 1 {
				t.Errorf("%d requests run, want 1", n)
			}
			cancel()
			for stream.Next() {
			}
			if err := stream.Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("stream error %v, want %v", err, context.Canceled)
			}
			deadline := time.NewTimer(10 * time.Second)
			defer deadline.Stop()
			poll := time.NewTicker(5 * time.Millisecond)
			defer poll.Stop()
			for f.running(t) > 0 {
				select {
				case <-poll.C:
				case <-deadline.C:
					t.Fatalf("%d requests still run", f.running(t))
				}
			}
		})
	}
}

// running returns how many requests the server or an engine works on.
func (f *fleet) running(t *testing.T) int {
	t.Helper()
	resp, err := http.Get(f.url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var health struct {
		Inflight  int
		Instances []struct{ Inflight int }
	}
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
		t.Fatal(err)
	}
	booked, busy := 0, 0
	for _, i := range health.Instances {
		booked += i.Inflight
	}
	for _, e := range f.engines {
		busy += e.Inflight()
	}
	return max(health.Inflight, booked, busy)
}

// TestSDKEngineDies checks that the SDK raises what ends a stream that broke.
func TestSDKEngineDies(t *testing.T) {
	f := socketFleet(t, pace{ttft: time.Millisecond, itl: 5 * time.Millisecond}, nil)
	stream := f.Chat.Completions.NewStreaming(t.Context(), chatParams("hi", 20_000))
	defer stream.Close()
	if !stream.Next() {
		t.Fatalf("no chunk: %v", stream.Err())
	}
	for _, e := range f.engines {
		go e.Close()
	}
	for stream.Next() {
	}
	if err := stream.Err(); err == nil {
		t.Error("the stream ended as if it were complete")
	}
}

// TestSDKKeys checks a server with API keys.
func TestSDKKeys(t *testing.T) {
	f := simulatedFleet(t, pace{}, func(cfg *stator.Config) {
		hash := sha256.Sum256([]byte("sk-right"))
		cfg.Keys = []stator.KeyConfig{{Name: "right", SHA256: hex.EncodeToString(hash[:])}}
	})
	right, wrong := f.client("sk-right"), f.client("sk-wrong")
	if _, err := right.Chat.Completions.New(t.Context(), chatParams("hi", 1)); err != nil {
		t.Errorf("right key: %v", err)
	}
	_, err := wrong.Chat.Completions.New(t.Context(), chatParams("hi", 1))
	checkError(t, "wrong key", err, 401, "invalid_api_key", "")
	_, err = wrong.Models.List(t.Context())
	checkError(t, "wrong key, models", err, 401, "invalid_api_key", "")
	_, err = right.Chat.Completions.New(t.Context(), chatParams("hi", 1), option.WithJSONSet("nvext", nvext.New(nvext.PinWorker(1))))
	checkError(t, "pin without trust", err, 403, "forbidden", "nvext.backend_instance_id")
}

// TestSDKTLS checks that HTTPS brings HTTP/2, and that streams work over it.
func TestSDKTLS(t *testing.T) {
	cert, key, roots := selfSigned(t)
	f := simulatedFleet(t, pace{}, func(cfg *stator.Config) {
		cfg.TLS = stator.TLSConfig{Cert: cert, Key: key}
	})
	f.url = "https" + f.url[len("http"):]
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	c := f.client("any", option.WithHTTPClient(&http.Client{Transport: transport}))
	var resp *http.Response
	whole, err := c.Chat.Completions.New(t.Context(), chatParams("hi", 40), option.WithResponseInto(&resp))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Proto != "HTTP/2.0" {
		t.Errorf("negotiated %s", resp.Proto)
	}
	acc, chunks := streamChat(t, &c, chatParams("hi", 40), option.WithResponseInto(&resp))
	if got, want := acc.Choices[0].Message.Content, whole.Choices[0].Message.Content; got != want {
		t.Errorf("streamed %q, whole %q", got, want)
	}
	if resp.Proto != "HTTP/2.0" || len(chunks) != 40 {
		t.Errorf("%d chunks over %s, want 40 over HTTP/2.0", len(chunks), resp.Proto)
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns the pool
// that trusts it.
func selfSigned(t *testing.T) (cert, key string, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", pkcs8), roots
}
