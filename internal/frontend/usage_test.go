package frontend

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
)

// sendStream answers with a stream: at once, or event by event.
func sendStream(w http.ResponseWriter, text string, slowly bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	if !slowly {
		w.Write([]byte(text))
		return
	}
	for text != "" {
		n := len(text)
		for _, end := range []string{"\n\n", "\r\n\r\n"} {
			if i := strings.Index(text, end); i >= 0 {
				n = min(n, i+len(end))
			}
		}
		w.Write([]byte(text[:n]))
		w.(http.Flusher).Flush()
		time.Sleep(time.Millisecond)
		text = text[n:]
	}
}

// TestUsageIsHidden: a client that did not ask for the usage sees what it would see
// without our asking, and the figures are counted.
func TestUsageIsHidden(t *testing.T) {
	const (
		usage   = `"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}`
		content = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
		finish  = `data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
		done    = "data: [DONE]\n\n"
	)
	for _, tc := range []struct {
		name, engine, client string
	}{
		{"a chunk of its own",
			content + finish + `data: {"id":"a","choices":[],` + usage + `}` + "\n\n" + done,
			content + finish + done},
		{"with spaces",
			content + finish + `data: { "choices" : [ ] , ` + usage + ` }` + "\n\n" + done,
			content + finish + done},
		{"in the last chunk",
			content + `data: {"id":"a",` + usage + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" + done,
			content + finish + done},
		{"in each chunk",
			`data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],` + usage + `}` + "\n\n" + finish + done,
			content + finish + done},
		{"null, as engines send it unasked",
			`data: {"usage":null,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n" + done,
			`data: {"usage":null,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n" + done},
		{"an error beside it",
			content + `data: {"choices":[],` + usage + `,"error":{"message":"m"}}` + "\n\n" + done,
			content + `data: {"choices":[],"error":{"message":"m"}}` + "\n\n" + done},
		{"in the content",
			`data: {"choices":[{"index":0,"delta":{"content":"\"usage\":{}"},"finish_reason":"stop"}]}` + "\n\n" + done,
			`data: {"choices":[{"index":0,"delta":{"content":"\"usage\":{}"},"finish_reason":"stop"}]}` + "\n\n" + done},
		{"without an end",
			content + finish + `data: {"id":"a","choices":[],` + usage + "}",
			content + finish + done},
		{"first of all",
			`data: {"id":"a","choices":[],` + usage + `}` + "\n\n" + finish + done,
			finish + done},
		{"first of all, with more",
			`data: {"id":"a","choices":[],` + usage + `,"metrics":{},"x":1}` + "\n\n" + finish + done,
			`data: {"id":"a","choices":[],"x":1}` + "\n\n" + finish + done},
		{"under the name of Dynamo's workers",
			content + finish + `data: {"id":"a","choices":[],"completion_` + usage[1:] + `}` + "\n\n" + done,
			content + finish + done},
		{"under that name, with more",
			`data: {"id":"a","choices":[],"completion_` + usage[1:] + `,"metrics":{},"x":1}` + "\n\n" + finish + done,
			`data: {"id":"a","choices":[],"x":1}` + "\n\n" + finish + done},
		{"without choices",
			content + finish + `data: {"id":"a",` + usage + `}` + "\n\n" + done,
			content + finish + done},
		{"choices null, and other members",
			content + finish + `data: {"id":"a","choices":null,"service_tier":null,` + usage + `}` + "\n\n" + done,
			content + finish + done},
		{"in each chunk and one of its own",
			`data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],` + usage + `}` + "\n\n" +
				`data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + usage + `}` + "\n\n" +
				`data: {"id":"a","choices":[],` + usage + `,"x":[1, 2]}` + "\n\n" + done,
			content + `data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"x":[1, 2]}` + "\n\n" + done},
		{"in two chunks of its own",
			content + finish + `data: {"choices":[],` + usage + `,"x":1}` + "\n\n" + `data: {"choices":[],` + usage + `}` + "\n\n" + done,
			content + strings.Replace(finish, "]}\n", `],"x":1}`+"\n", 1) + done},
		{"llama.cpp",
			llamaFinish(0, "") + llamaUsage(usage, 1) + done,
			llamaFinish(0, `,"timings":{"cache_n":1}`) + done},
		{"llama.cpp, without an end",
			llamaFinish(0, "") + strings.TrimSuffix(llamaUsage(usage, 1), "\n\n"),
			llamaFinish(0, `,"timings":{"cache_n":1}`) + done},
		{"llama.cpp with two choices",
			llamaFinish(0, "") + llamaUsage(usage, 1) + llamaFinish(1, "") + llamaUsage(usage, 2) + done,
			llamaFinish(0, `,"timings":{"cache_n":1}`) + llamaFinish(1, `,"timings":{"cache_n":2}`) + done},
		{"vLLM",
			content + `data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length","token_ids":null}]}` + "\n\n" +
				`data: {"id":"a","object":"chat.completion.chunk","choices":[],` + usage + `,"system_fingerprint":"vllm-0.32.0-8956db4a","metrics":{"ttft":1}}` + "\n\n" + done,
			content + `data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"length","token_ids":null}],"system_fingerprint":"vllm-0.32.0-8956db4a"}` + "\n\n" + done},
		{"a member that was null",
			`data: {"system_fingerprint":null,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n" +
				`data: {"choices":[],` + usage + `,"system_fingerprint":"f","service_tier":null}` + "\n\n" + done,
			`data: {"system_fingerprint":"f","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n" + done},
		{"SGLang",
			content + finish + `data: {"id":"a","choices":[],"usage":null,"sglext":{"x":1}}` + "\n\n" + `data: {"id":"a","choices":[],` + usage + `}` + "\n\n" + done,
			content + finish + `data: {"id":"a","choices":[],"usage":null,"sglext":{"x":1}}` + "\n\n" + done},
		{"a comment before it",
			content + finish + ": wait\n\n" + `data: {"id":"a","choices":[],` + usage + `,"x":1}` + "\n\n" + done,
			content + ": wait\n\n" + strings.Replace(finish, "]}\n", `],"x":1}`+"\n", 1) + done},
		{"an error after the end",
			content + finish + `data: {"error":{"message":"m"}}` + "\n\n" + `data: {"choices":[],` + usage + `}` + "\n\n" + done,
			content + finish + `data: {"error":{"message":"m"}}` + "\n\n" + done},
		{"no chunk after the end",
			content + finish + "data: x\n\ndata: {\n\n" + `data: {"choices":[],` + usage + `}` + "\n\n" + done,
			content + finish + "data: x\n\ndata: {\n\n" + done},
		{"fields and comments",
			"event: message\nid: 7\n" + content + ": note\nid: 8\ndata:" + `{` + usage + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\nevent: message\n\n" + done,
			"event: message\nid: 7\n" + content + ": note\nid: 8\ndata:" + `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\nevent: message\n\n" + done},
		{"other line ends",
			"id: 8\r\n" + `data: {` + usage + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\r\n\r\n" + done,
			"id: 8\r\n" + `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\r\n\r\n" + done},
		{"several lines",
			"data: {\ndata: " + usage + `,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + "\ndata: \"x\":1}\n\n" + done,
			"data: {\ndata: " + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + "\ndata: \"x\":1}\n\n" + done},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slowly := false
				rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
					sendStream(w, tc.engine, slowly)
				}})
				request := helloStream
				if strings.Contains(tc.engine, `"index":1`) {
					request = strings.Replace(helloStream, `{`, `{"n":2,`, 1)
				}
				if resp, body := rg.post(t, "/v1/chat/completions", request); resp.StatusCode != 200 || body != tc.client {
					t.Errorf("%d\ngot  %q\nwant %q", resp.StatusCode, body, tc.client)
				}
				if strings.Contains(tc.engine, usage) {
					if _, text := rg.get(t, "/metrics"); !strings.Contains(text, `dynamo_frontend_output_tokens_total{model="stator-sim"} 2`) {
						t.Error("the usage was not counted")
					}
				}
				slowly = true
				if _, body := rg.post(t, "/v1/chat/completions", request); body != tc.client {
					t.Errorf("event by event\ngot  %q\nwant %q", body, tc.client)
				}
				asked := strings.Replace(request, `{`, `{"stream_options":{"include_usage":true},`, 1)
				want := strings.TrimSuffix(tc.engine, done)
				if _, body := rg.post(t, "/v1/chat/completions", asked); !strings.HasPrefix(body, want) {
					t.Errorf("who asks gets\n     %q\nwant %q", body, want)
				}
				rg.stop()
			})
		})
	}
}

// llamaFinish is the end of a choice as llama.cpp sends it.
func llamaFinish(index int, more string) string {
	return `data: {"choices":[{"finish_reason":"stop","index":` + string(rune('0'+index)) + `,"delta":{}}],"created":1,"id":"a","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk"` + more + "}\n\n"
}

// llamaUsage is the chunk that follows it where usage is asked for.
func llamaUsage(usage string, cached int) string {
	return `data: {"choices":[],"created":1,"id":"a","model":"m","system_fingerprint":"b1","object":"chat.completion.chunk",` + usage + `,"timings":{"cache_n":` + string(rune('0'+cached)) + "}}\n\n"
}

// unasked is an engine that tells the usage in any case.
type unasked struct{ engine.Engine }

func (e unasked) Open(ctx context.Context, t engine.Target, r *engine.Request) (*engine.Response, error) {
	resp, err := e.Engine.Open(ctx, t, r)
	if err == nil {
		resp.UsageUnasked = true
	}
	return resp, err
}

// TestUsageUnasked: what an engine tells everybody is not hidden.
func TestUsageUnasked(t *testing.T) {
	const stream = `data: {"choices":[{"index":0,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	rg := newRig(t, rigConfig{
		fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { sendStream(w, stream, false) },
		wrap:  func(e engine.Engine) engine.Engine { return unasked{e} },
	})
	if _, body := rg.post(t, "/v1/chat/completions", helloStream); body != stream {
		t.Errorf("got  %q\nwant %q", body, stream)
	}
}

// TestHeldChunkIsNotLost: the end of a choice reaches the client, whatever becomes of the
// stream, and what comes before it does not wait.
func TestHeldChunkIsNotLost(t *testing.T) {
	const (
		content = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"
		finish  = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	)
	for name, tc := range map[string]struct {
		then func(r *http.Request)
		want string
	}{
		"the end":      {func(*http.Request) {}, content + finish + "data: [DONE]\n\n"},
		"a cut":        {func(*http.Request) { panic(http.ErrAbortHandler) }, content + finish + `data: {"error":{"message":"the engine ended the answer before it was complete"`},
		"long silence": {func(r *http.Request) { <-r.Context().Done() }, content + finish + `data: {"error":{"message":"the engine sent nothing for 2s"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rg := newRig(t, rigConfig{
					front: Config{Limits: Limits{EngineIdle: 2 * time.Second}},
					fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
						sendStream(w, content+finish, true)
						time.Sleep(time.Second)
						tc.then(r)
					},
				})
				resp, err := rg.client.Do(rg.request(t, "/v1/chat/completions", helloStream))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				time.Sleep(500 * time.Millisecond)
				buf := make([]byte, 4096)
				n, err := resp.Body.Read(buf)
				if string(buf[:n]) != content || err != nil {
					t.Errorf("first %q, %v", buf[:n], err)
				}
				for err == nil {
					var more int
					more, err = resp.Body.Read(buf[n:])
					n += more
				}
				if !strings.HasPrefix(string(buf[:n]), tc.want) {
					t.Errorf("got  %q\nwant %q", buf[:n], tc.want)
				}
				resp.Body.Close()
				rg.stop()
			})
		})
	}
}

// TestUsageIsHiddenWithExt: what we add does not bring it back, and goes with what the
// engine adds.
func TestUsageIsHiddenWithExt(t *testing.T) {
	const (
		usage = `"usage":{"prompt_tokens":7,"completion_tokens":2}`
		first = `"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]`
		other = `"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]`
		ours  = `"worker_id":{"prefill_worker_id":1,"prefill_dp_rank":0,"decode_worker_id":1,"decode_dp_rank":0}`
		done  = "data: [DONE]\n\n"
	)
	for _, tc := range []struct{ name, engine, client string }{
		{"in the last chunk",
			`data: {"id":"a",` + first + `,` + usage + "}\n\n" + done,
			`data: {"id":"a",` + first + `,"nvext":{` + ours + "}}\n\n" + done},
		{"in a chunk of its own",
			`data: {"id":"a",` + first + "}\n\n" + `data: {"choices":[],` + usage + `,"timings":{}}` + "\n\n" + done,
			`data: {"id":"a",` + first + `,"timings":{},"nvext":{` + ours + "}}\n\n" + done},
		{"with an nvext of the engine's",
			`data: {"id":"a",` + first + "}\n\n" + `data: {"choices":[],` + usage + `,"nvext":{"x":1}}` + "\n\n" + done,
			`data: {"id":"a",` + first + `,"nvext":{"x":1,` + ours + "}}\n\n" + done},
		{"an error after the end",
			`data: {"id":"a",` + first + "}\n\n" + `data: {"error":{},"choices":[],` + usage + "}\n\n" + done,
			`data: {"id":"a",` + first + `,"nvext":{` + ours + "}}\n\n" + `data: {"error":{},"choices":[]}` + "\n\n" + done},
		{"fields and line ends",
			"id: 1\r\n" + `data: {` + first + "}\r\n: c\r\n\r\n" + done,
			"id: 1\r\n" + `data: {` + first + `,"nvext":{` + ours + "}}\r\n: c\r\n\r\n" + done},
		{"two choices",
			`data: {` + first + "}\n\n" + `data: {` + other + "}\n\n" + `data: {"choices":[],` + usage + `,"x":1}` + "\n\n" + done,
			`data: {` + first + "}\n\n" + `data: {` + other + `,"x":1,"nvext":{` + ours + "}}\n\n" + done},
		{"no end",
			`data: {"id":"a",` + first + "}\n\n",
			`data: {"id":"a",` + first + `,"nvext":{` + ours + "}}\n\n" + done},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				sendStream(w, tc.engine, false)
			}})
			body := strings.Replace(helloStream, `{`, `{"nvext":{"extra_fields":["worker_id"]},`, 1)
			if strings.Contains(tc.engine, other) {
				body = strings.Replace(body, `{`, `{"n":2,`, 1)
			}
			if _, got := rg.post(t, "/v1/chat/completions", body); got != tc.client {
				t.Errorf("got  %q\nwant %q", got, tc.client)
			}
		})
	}
}

// TestSimulatedStreamsAreUnchanged: the bytes are those of an engine that is not asked.
func TestSimulatedStreamsAreUnchanged(t *testing.T) {
	var streams []string
	for _, noUsage := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { // in which all have the same time
			rg := newRig(t, rigConfig{front: Config{NoUsage: noUsage}})
			for _, r := range [][2]string{
				{"/v1/chat/completions", helloStream},
				{"/v1/completions", `{"model":"stator-sim","prompt":"hi","stream":true,"max_tokens":3,"n":2}`},
			} {
				_, got := rg.post(t, r[0], r[1], "Request-Id", "11111111-1111-4111-8111-111111111111")
				streams = append(streams, got)
			}
			rg.stop()
		})
	}
	for i := range 2 {
		if streams[i] != streams[i+2] {
			t.Errorf("not asked: %s\nasked and hidden: %s", streams[i], streams[i+2])
		}
	}
}
