package hints_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"go.yaml.in/yaml/v3"

	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/trie"
)

// exampleServer answers every call, and prints what its nvext says.
func exampleServer() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct{ NvExt json.RawMessage }
		json.NewDecoder(r.Body).Decode(&request)
		fmt.Println(string(request.NvExt))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"Done."}}],"usage":{"prompt_tokens":20,"completion_tokens":2}}`)
	}))
}

// exampleLog keeps the examples from logging.
var exampleLog = hints.WithLogger(slog.New(slog.DiscardHandler))

// Give the SDK a client whose transport adds hints, and say on the context where its calls
// stand.
func Example() {
	server := exampleServer()
	defer server.Close()
	client := openai.NewClient(
		option.WithBaseURL(server.URL+"/v1"),
		option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: hints.NewTransport(nil, exampleLog)}),
	)
	ctx := hints.WithRun(context.Background(), "run-42")
	ctx = hints.EnterFunction(ctx, "planner")
	ctx = hints.WithLatencySensitivity(ctx, 5) // a person is waiting
	answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    "m",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is next?")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.Choices[0].Message.Content)
	// Output:
	// {"agent_hints":{"latency_sensitivity":5.0,"osl":512,"priority":5,"prefix_id":"run-42-d1","total_requests":10,"iat":250},"cache_control":{"type":"ephemeral","ttl":"3s"}}
	// Done.
}

// What a program knows of its calls goes before what is predicted or configured.
func ExampleWithOutputTokens() {
	server := exampleServer()
	defer server.Close()
	client := &http.Client{Transport: hints.NewTransport(nil, exampleLog, hints.WithCarrier(hints.Strict))}
	ctx := hints.WithRun(context.Background(), "run-42")
	ctx = hints.WithOutputTokens(ctx, 40)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"Yes or no?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":40,"priority":2}}
}

// Calls at the same depth of a run share a prefix id: right for a conversation. Parallel
// branches that have little in common get a name each.
func ExampleWithBranch() {
	run := hints.WithRun(context.Background(), "run-42")
	fmt.Println(hints.PrefixID(run))
	planner := hints.EnterFunction(run, "planner")
	fmt.Println(hints.PrefixID(planner))
	for _, file := range []string{"a.go", "b.go"} {
		fmt.Println(hints.PrefixID(hints.WithBranch(planner, file)))
	}
	fmt.Println(hints.PrefixID(hints.WithPrefixID(planner, "shared instructions")))
	// Output:
	// run-42-d0
	// run-42-d1
	// run-42-d1/a.go
	// run-42-d1/b.go
	// shared instructions
}

// Record some runs, build a trie of them, and let it say what to expect.
func ExampleRecorder() {
	server := exampleServer()
	defer server.Close()
	work := func(client *http.Client, ctx context.Context) {
		ctx = hints.EnterFunction(ctx, "planner")
		defer hints.Leave(ctx)
		for range 3 {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
			if err != nil {
				fmt.Println(err)
				return
			}
			resp, err := client.Do(req)
			if err != nil {
				fmt.Println(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}

	var spans bytes.Buffer // usually a file
	ctx := hints.WithRecorder(hints.WithRun(context.Background(), "run-1"), hints.NewRecorder(&spans))
	fmt.Println("recorded:")
	work(&http.Client{Transport: hints.NewTransport(nil, exampleLog, hints.WithCarrier(hints.Strict))}, ctx)

	b := trie.NewBuilder(trie.Options{WorkflowName: "example"})
	if err := trie.ReadSpans(&spans, func(run []trie.Step) error { b.Add(run); return nil }); err != nil {
		fmt.Println(err)
		return
	}
	predictions := b.Build(time.Now())
	p, _ := predictions.Find([]string{"planner"}, 1)
	fmt.Printf("predicted: %.0f calls follow the first, the answer has %.0f tokens\n", p.RemainingCalls.Mean, p.OutputTokens.P90)

	fmt.Println("with predictions:")
	ctx = hints.WithRun(context.Background(), "run-2")
	work(&http.Client{Transport: hints.NewTransport(nil, exampleLog, hints.WithLookup(predictions), hints.WithCarrier(hints.Strict))}, ctx)
	// Output:
	// recorded:
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":512,"priority":2}}
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":512,"priority":2}}
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":512,"priority":2}}
	// predicted: 2 calls follow the first, the answer has 2 tokens
	// with predictions:
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":2,"priority":2}}
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":2,"priority":2}}
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":2,"priority":2}}
}

// A deployment's settings, by the names that NeMo Agent Toolkit has for them.
func ExampleNewClient() {
	server := exampleServer()
	defer server.Close()
	var cfg hints.Config
	err := yaml.Unmarshal([]byte(`
_type: dynamo
model_name: m
enable_nvext_hints: true
nvext_prefix_osl: LOW
nvext_prefix_total_requests: 4
nvext_cache_pin_type: null
`), &cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := hints.NewClient(cfg, exampleLog)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := hints.WithRun(context.Background(), "run-42")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"Hi"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	// Output:
	// {"agent_hints":{"latency_sensitivity":2.0,"osl":128,"priority":2,"prefix_id":"run-42-d0","total_requests":4,"iat":250}}
}

// A service hands on to the next where a call stands.
func ExampleToHeader() {
	ctx := hints.WithRun(context.Background(), "run-42")
	ctx = hints.EnterFunction(hints.EnterFunction(ctx, "agent"), "search")
	h := http.Header{}
	hints.ToHeader(hints.WithLatencySensitivity(ctx, 5), h)

	there, _ := hints.FromHeader(context.Background(), h)
	fmt.Println(hints.Run(there), hints.FunctionPath(there), hints.PrefixID(there))
	fmt.Println(hints.Sensitivity(there))
	// Output:
	// run-42 [agent search] run-42-d2
	// 5 true
}
