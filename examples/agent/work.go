package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"golang.org/x/sync/errgroup"

	"github.com/stator-ai/stator/hints"
)

// How much somebody waits for a call. Each unit is a second of head start where requests
// wait in the router.
const (
	urgent = 5
	idle   = 1
)

// workload is what is done in each pass.
type workload struct {
	url, model             string
	agents, edits, readers int
}

func newClient(url string, transport http.RoundTripper) *openai.Client {
	client := openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: transport}))
	return &client
}

// pass does the work once and prints what was measured. The batch goes on until the agents
// are done. The name stands in front of all prompts, so that none is in a cache because of
// an earlier pass.
func (w *workload) pass(ctx context.Context, table io.Writer, name string, transport http.RoundTripper) error {
	client, began := newClient(w.url, transport), time.Now()
	title := fmt.Sprint(name, " ", began.UnixNano())
	agents, batch := new(results), new(results)
	var done atomic.Bool
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return w.read(hints.WithRun(ctx, ""), client, title, batch, &done) })
	all.Go(func() error {
		defer done.Store(true)
		g, ctx := errgroup.WithContext(ctx)
		for i := range w.agents {
			g.Go(func() error { return w.code(hints.WithRun(ctx, ""), client, fmt.Sprint(title, " task ", i), agents) })
		}
		return g.Wait()
	})
	if err := all.Wait(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began)
	agents.print(table, name, "agents", took)
	batch.print(table, "", "batch", took)
	return nil
}

// code is a coding agent: it plans, edits and reports, in a conversation that grows with
// each call.
func (w *workload) code(ctx context.Context, client *openai.Client, task string, r *results) error {
	ctx = hints.EnterFunction(ctx, "coder")
	defer hints.Leave(ctx)
	ctx = hints.WithLatencySensitivity(ctx, urgent) // a person looks on
	talk := prompt(task, 200)
	step := func(function string, calls int, tokens int64) error {
		ctx := hints.EnterFunction(ctx, function)
		defer hints.Leave(ctx)
		for range calls {
			answer, err := w.call(ctx, client, talk, tokens, r)
			if err != nil {
				return err
			}
			talk = append(talk, openai.AssistantMessage(answer), openai.UserMessage(runTests(ctx)))
		}
		return nil
	}
	if err := step("planner", 1, 30); err != nil {
		return err
	}
	if err := step("editor", w.edits, 10); err != nil {
		return err
	}
	return step("reporter", 1, 40)
}

// runTests stands for a tool: it takes a while and says something.
func runTests(ctx context.Context) string {
	defer hints.Leave(hints.EnterTool(ctx, "tests"))
	time.Sleep(20 * time.Millisecond)
	return strings.Repeat("ok: the package passed.\n", 60)
}

// read has documents read until done, some at a time. It is one run, with a branch for each
// document, since their prompts have nothing in common.
func (w *workload) read(ctx context.Context, client *openai.Client, title string, r *results, done *atomic.Bool) error {
	ctx = hints.EnterFunction(ctx, "reader")
	defer hints.Leave(ctx)
	ctx = hints.WithLatencySensitivity(ctx, idle)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(w.readers)
	for i := 0; i < w.readers || !done.Load() && ctx.Err() == nil; i++ {
		g.Go(func() error {
			name := fmt.Sprint(title, " document ", i)
			_, err := w.call(hints.WithBranch(ctx, name), client, prompt(name, 600), 5, r)
			return err
		})
	}
	return g.Wait()
}

// prompt returns the beginning of a conversation, of about nine tokens for each line.
func prompt(title string, lines int) []openai.ChatCompletionMessageParamUnion {
	text := strings.Repeat("One more line about the matter at hand.\n", lines)
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(title + "\n" + text)}
}

// call calls the model and measures.
func (w *workload) call(ctx context.Context, client *openai.Client, talk []openai.ChatCompletionMessageParamUnion, tokens int64, r *results) (string, error) {
	var answer strings.Builder
	var ttft time.Duration
	var usage openai.CompletionUsage
	began := time.Now()
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: w.model, Messages: talk, MaxTokens: openai.Int(tokens),
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	})
	defer stream.Close()
	for stream.Next() {
		chunk := stream.Current()
		if ttft == 0 {
			ttft = time.Since(began)
		}
		if len(chunk.Choices) > 0 {
			answer.WriteString(chunk.Choices[0].Delta.Content)
		} else {
			usage = chunk.Usage
		}
	}
	if err := stream.Err(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ttft = append(r.ttft, ttft)
	r.prompt, r.cached = r.prompt+usage.PromptTokens, r.cached+usage.PromptTokensDetails.CachedTokens
	return answer.String(), nil
}

// results are what was seen of the calls of one kind. Safe for concurrent use.
type results struct {
	mu             sync.Mutex
	ttft           []time.Duration
	prompt, cached int64 // tokens
}

func (r *results) print(table io.Writer, pass, who string, took time.Duration) {
	slices.Sort(r.ttft)
	at := func(share float64) int64 { return r.ttft[int(math.Ceil(share*float64(len(r.ttft))))-1].Milliseconds() }
	fmt.Fprintf(table, "%s\t%s\t%d\t%.1f s\t%d ms\t%d ms\t%.0f %%\n", pass, who, len(r.ttft), took.Seconds(),
		at(0.5), at(0.95), 100*float64(r.cached)/float64(max(r.prompt, 1)))
}
