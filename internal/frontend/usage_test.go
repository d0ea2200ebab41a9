package frontend

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

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
	} {
		t.Run(tc.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Write([]byte(tc.engine))
			}})
			if resp, body := rg.post(t, "/v1/chat/completions", helloStream); resp.StatusCode != 200 || body != tc.client {
				t.Errorf("%d\ngot  %q\nwant %q", resp.StatusCode, body, tc.client)
			}
			if strings.Contains(tc.engine, usage) {
				if _, text := rg.get(t, "/metrics"); !strings.Contains(text, `dynamo_frontend_output_tokens_total{model="stator-sim"} 2`) {
					t.Error("the usage was not counted")
				}
			}
			asked := strings.Replace(helloStream, `{`, `{"stream_options":{"include_usage":true},`, 1)
			want := strings.TrimSuffix(tc.engine, done)
			if _, body := rg.post(t, "/v1/chat/completions", asked); !strings.HasPrefix(body, want) {
				t.Errorf("who asks gets\n     %q\nwant %q", body, want)
			}
		})
	}
}

// TestUsageIsHiddenWithExt: what we add does not bring it back.
func TestUsageIsHiddenWithExt(t *testing.T) {
	rg := newRig(t, rigConfig{fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write([]byte(`data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"))
	}})
	body := strings.Replace(helloStream, `{`, `{"nvext":{"extra_fields":["worker_id"]},`, 1)
	const want = `data: {"id":"a","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"nvext":{"worker_id":{"prefill_worker_id":1,"prefill_dp_rank":0,"decode_worker_id":1,"decode_dp_rank":0}}}` + "\n\ndata: [DONE]\n\n"
	_, got := rg.post(t, "/v1/chat/completions", body)
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
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
