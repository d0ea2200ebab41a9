package simserver

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	cachedMember = regexp.MustCompile(`,"prompt_tokens_details":\{"audio_tokens":null,"cached_tokens":\d+\}`)
	created      = regexp.MustCompile(`"created":\d+`)
	choiceIndex  = regexp.MustCompile(`"choices":\[\{"index":\d+`)
)

// byChoice orders the events of a stream by their choice and otherwise leaves
// them as they came: how the choices of one request take turns is nobody's
// promise.
func byChoice(stream string) string {
	events := strings.SplitAfter(stream, "\n\n")
	slices.SortStableFunc(events, func(a, b string) int {
		return strings.Compare(choiceIndex.FindString(a), choiceIndex.FindString(b))
	})
	return strings.Join(events, "")
}

// FuzzRequest checks that any body gets either an answer or a refusal that says
// why, and that an engine model has no part in the text.
func FuzzRequest(f *testing.F) {
	f.Add(true, `{"messages":[{"role":"user","content":"Hello"}],"stop":["a","bc"],"n":2,"logprobs":true,"top_logprobs":2,"min_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`)
	f.Add(true, `{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"kv_transfer_params":{"prompt_token_ids":[1,259]},"return_token_ids":true}`)
	f.Add(false, `{"prompt":[[1,195],[259]],"echo":true,"logprobs":3,"max_tokens":9,"seed":-1,"return_token_ids":true}`)
	f.Add(false, `{"prompt":"x","include_stop_str_in_output":true,"stop":"e","ignore_eos":true}`)
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		s := newServer(t, Config{ContextLength: 300})
		path := textPath
		if chat {
			path = chatPath
		}
		w := call(s, "POST", path, body, "X-Request-Id: r")
		model := newServer(t, modelled(Config{ContextLength: 300, TotalBlocks: 64}, 0, 0))
		again := cachedMember.ReplaceAllString(call(model, "POST", path, body, "X-Request-Id: r").Body.String(), "")
		if byChoice(created.ReplaceAllString(again, "")) != byChoice(created.ReplaceAllString(w.Body.String(), "")) {
			t.Fatalf("without a model: %s\nwith one: %s", w.Body, again)
		}
		events := []string{w.Body.String()}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream") {
			all, ok := strings.CutSuffix(w.Body.String(), "data: [DONE]\n\n")
			if !ok {
				t.Fatalf("stream does not end: %q", w.Body)
			}
			events = strings.Split(all, "\n\n")
			events = events[:len(events)-1]
			for i := range events {
				events[i] = strings.TrimPrefix(events[i], "data: ")
			}
		}
		for _, e := range events {
			var got struct {
				Choices []any
				Error   struct{ Message string }
			}
			if err := json.Unmarshal([]byte(e), &got); err != nil {
				t.Fatalf("%v in %s", err, e)
			}
			switch w.Code {
			case 200:
				if got.Choices == nil {
					t.Errorf("no choices in %s", e)
				}
			case 400, 404:
				if got.Error.Message == "" {
					t.Errorf("status %d without a message: %s", w.Code, e)
				}
			default:
				t.Errorf("status %d: %s", w.Code, e)
			}
		}
		if n := s.Inflight(); n != 0 {
			t.Errorf("%d requests in flight", n)
		}
	})
}
