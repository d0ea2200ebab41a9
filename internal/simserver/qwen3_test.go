package simserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// TestTextLimits looks at where answers of words end.
func TestTextLimits(t *testing.T) {
	bothModes(t, Config{Seed: 1, ContextLength: 400}, testTextLimits)
}

func testTextLimits(t *testing.T, cfg Config) {
	s := newServer(t, cfg)
	full := unary(t, s, chatPath, `{`+hello+`}`)
	text := content(full, 0)
	const start = "No clever lantern easily passes the storm. Most clocks daily borrow the cheerful tower,"
	if !strings.HasPrefix(text, start) || full.Choices[0].Finish != "stop" || full.Usage.Prompt != 9 {
		t.Fatalf("answer %q: finish %q, usage %+v", text, full.Choices[0].Finish, full.Usage)
	}
	n := full.Usage.Completion
	for _, tc := range []struct {
		name, extra  string
		text         string // prefix of the answer when it ends in …
		finish, stop string
		tokens       int
	}{
		{"max_tokens", `,"max_tokens":7`, "No clever lantern easily passes the storm", "length", "", 7},
		{"the end counts as a token", fmt.Sprintf(`,"max_tokens":%d`, n), text, "stop", "", n},
		{"one before the end", fmt.Sprintf(`,"max_tokens":%d`, n-1), text, "length", "", n - 1},
		{"stop in the middle of a token", `,"stop":["never","ant"]`, "No clever l", "stop", "ant", 3},
		{"stop over tokens", `,"stop":"m. Mo"`, "No clever lantern easily passes the stor", "stop", "m. Mo", 9},
		{"stop included, but not what follows it", `,"stop":"ant","include_stop_str_in_output":true`, "No clever lant", "stop", "ant", 3},
		{"min_tokens suppresses stop strings", `,"stop":"the","min_tokens":7`, "No clever lantern easily passes the storm. Most clocks daily borrow ", "stop", "the", 13},
		{"the end is not shown", `,"skip_special_tokens":false`, text, "stop", "", n},
		{"special tokens are not shown", `,"include_stop_str_in_output":true`, text, "stop", "", n},
		{"the end is shown", `,"skip_special_tokens":false,"include_stop_str_in_output":true`, text + "<|im_end|>", "stop", "", n},
		{"the end as a stop string", `,"stop":"|im_","skip_special_tokens":false,"include_stop_str_in_output":true`, text + "<|im_", "stop", "|im_", n},
		{"ignore_eos goes to the context length", `,"ignore_eos":true`, text + " …", "length", "", 391},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := unary(t, s, chatPath, `{`+hello+tc.extra+`}`)
			got := content(r, 0)
			if prefix, ok := strings.CutSuffix(tc.text, "…"); ok {
				if !strings.HasPrefix(got, prefix) || len(got) == len(prefix) {
					t.Errorf("text %q does not go on after %q", got, prefix)
				}
			} else if got != tc.text {
				t.Errorf("text %q, want %q", got, tc.text)
			}
			if c := r.Choices[0]; c.Finish != tc.finish || c.Stop != tc.stop || r.Usage.Completion != tc.tokens {
				t.Errorf("finish %q, stop reason %q, %d tokens; want %q, %q, %d", c.Finish, c.Stop, r.Usage.Completion, tc.finish, tc.stop, tc.tokens)
			}
		})
	}
}

// TestTextErrors has requests that no prompt can be made of.
func TestTextErrors(t *testing.T) {
	s := newServer(t, Config{ContextLength: 64})
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for _, tc := range []struct{ path, body, param, message string }{
		{chatPath, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, "messages", `messages[0].content[0].type: "image": the template takes only text`},
		{chatPath, `{"messages":[{"content":"hi"}]}`, "messages", "messages[0].role: expected a non-empty string"},
		{chatPath, `{` + hi + `,"chat_template":"{{ 1 }}"}`, "chat_template", "chat_template: templates in requests are not allowed"},
		{chatPath, `{` + hi + `,"chat_template_kwargs":7}`, "chat_template_kwargs", "chat_template_kwargs: expected an object, got a number"},
		{chatPath, `{` + hi + `,"tools":{}}`, "tools", "tools: expected an array, got an object"},
		{chatPath, `{` + hi + `,"documents":7}`, "documents", "documents: expected an array, got a number"},
		{chatPath, `{` + hi + `,"continue_final_message":true}`, "continue_final_message", "continue_final_message: needs add_generation_prompt to be false"},
		{chatPath, `{` + hi + `,"skip_special_tokens":0}`, "skip_special_tokens", "skip_special_tokens: expected a boolean, got 0"},
		{chatPath, `{` + hi + `,"kv_transfer_params":{"prompt_token_ids":[5,151669]}}`, "kv_transfer_params.prompt_token_ids[1]", "kv_transfer_params.prompt_token_ids[1]: expected a token id below 151669, got 151669"},
		{chatPath, `{"messages":[{"role":"user","content":"\udc00"}]}`, "", "body: half a surrogate pair at byte 39, which is no character"},
		{textPath, `{"prompt":[[1],[2,4294967296]]}`, "prompt[1][1]", "prompt[1][1]: expected a token id below 151669, got 4294967296"},
		{textPath, `{"prompt":"` + strings.Repeat(" x", 64) + `"}`, "", "This model's maximum context length is 64 tokens. However, your messages resulted in 64 tokens. Please reduce the length of the messages."},
	} {
		w := call(s, "POST", tc.path, tc.body)
		var got struct {
			Error struct{ Message, Param string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v in %s", err, w.Body)
		}
		if w.Code != 400 || got.Error.Message != tc.message || got.Error.Param != tc.param {
			t.Errorf("%s\nstatus %d, param %q: %s\nwant 400, param %q: %s", tc.body, w.Code, got.Error.Param, got.Error.Message, tc.param, tc.message)
		}
	}
}

// TestExactPrompts looks at the tokens of prompts that are not quite text.
func TestExactPrompts(t *testing.T) {
	s := newServer(t, Config{})
	for prompt, want := range map[string][]uint32{
		`"a\u0000b"`:          {64, 188, 65},
		`"\ufffd"`:            {5691},
		`"\ud83d\ude00"`:      {141334},
		`"<|im_end|>\n"`:      {151645, 198},
		`[64,151643,127]`:     {64, 151643, 127},
		`"e\u0301 is \u00e9"`: nil, // what NFC makes of it
	} {
		r := unary(t, s, textPath, `{"prompt":`+prompt+`,"return_token_ids":true}`)
		if want == nil {
			want, _ = qwen3.Tokenizer().Encode(nil, []byte("é is é"), true)
		}
		if diff := cmp.Diff(want, r.Choices[0].Prompt); diff != "" {
			t.Errorf("%s (-want +got):\n%s", prompt, diff)
		}
	}
}

// TestTemplateMembers sees that what the template asks for reaches it: the prompt
// is that of the model.
func TestTemplateMembers(t *testing.T) {
	s := newServer(t, Config{})
	const messages = `[{"role":"user","content":"Weather?"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"w","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"rain"}]`
	const tools = `[{"type":"function","function":{"name":"w","parameters":{}}}]`
	seen := map[string]bool{}
	for _, c := range []tokenize.Chat{
		{Messages: []byte(messages)},
		{Messages: []byte(messages), Tools: []byte(tools)},
		{Messages: []byte(messages), Tools: []byte(tools), ToolChoice: []byte(`"none"`)},
		{Messages: []byte(messages), Kwargs: []byte(`{"enable_thinking":false}`)},
		{Messages: []byte(messages), NoGenerationPrompt: true},
		{Messages: []byte(`[{"role":"user","content":"x"},{"role":"assistant","content":"y z"}]`), NoGenerationPrompt: true, ContinueFinal: true},
	} {
		want, err := qwen3.Model().Chat(c, tokenize.Hashing{})
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"messages":%s,"add_generation_prompt":%t,"continue_final_message":%t,"return_token_ids":true`, c.Messages, !c.NoGenerationPrompt, c.ContinueFinal)
		for key, v := range map[string][]byte{"tools": c.Tools, "tool_choice": c.ToolChoice, "chat_template_kwargs": c.Kwargs} {
			if v != nil {
				body += fmt.Sprintf(`,%q:%s`, key, v)
			}
		}
		if got := unary(t, s, chatPath, body+"}"); !slices.Equal(got.Prompt, want.IDs) {
			t.Errorf("%s: the prompt is\n%q, want\n%q", body, s.vocab.decode(t, got.Prompt), want.Text)
		}
		seen[string(want.Text)] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %d of the prompts differ", len(seen))
	}
}

// TestLogprobText puts the tokens of logprobs together to the text again.
func TestLogprobText(t *testing.T) {
	s := newServer(t, Config{Seed: 4})
	r := unary(t, s, textPath, `{"prompt":"The café, naïve 東京,","echo":true,"logprobs":5,"ignore_eos":true,"max_tokens":400}`)
	l := r.Choices[0].Logprob
	text := []rune(r.Choices[0].Text)
	for i, token := range l.Tokens {
		end := len(text)
		if i+1 < len(l.Offsets) {
			end = l.Offsets[i+1]
		}
		if got := string(text[l.Offsets[i]:end]); !strings.HasPrefix(token, "bytes:") && got != token {
			t.Errorf("token %d is %q, and the text there %q", i, token, got)
		}
		if i > 0 && len(l.Top[i]) != 5 {
			t.Errorf("token %d has %d alternatives", i, len(l.Top[i]))
		}
	}
	chat := unary(t, s, chatPath, `{`+hello+`,"logprobs":true}`)
	var all []byte
	for _, c := range chat.Choices[0].Logprob.Content {
		for _, b := range c.Bytes {
			all = append(all, byte(b))
		}
	}
	if got := content(chat, 0) + "<|im_end|>"; got != string(all) {
		t.Errorf("text %q, tokens %q", got, all)
	}
}

// TestTwoTurns holds a conversation over HTTP in virtual time. What the second turn
// finds in the cache are the blocks that the tokenizer says it has in common with
// the first turn and its answer, and the events name them.
func TestTwoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 16
		cfg := modelled(Config{Seed: 3, Clock: new(Clock), BlockSize: size}, 90*time.Millisecond, 10*time.Millisecond)
		stored := map[kv.BlockID]bool{}
		cfg.Events = func(b *kv.Batch) {
			for _, e := range b.Events {
				for _, block := range e.Blocks {
					stored[block.ID] = true
				}
			}
		}
		s := newServer(t, cfg)
		_, client := serve(t, s)
		ask := func(at int, messages []byte) (r response) {
			t.Helper()
			answered := make(chan []byte, 1)
			go func() {
				resp, err := client.Post("http://sim"+chatPath, "application/json", bytes.NewReader(
					fmt.Appendf(nil, `{"messages":%s,"nvext":{"request_timestamp_ms":%d},"max_tokens":2000}`, messages, at)))
				if err != nil {
					answered <- []byte(err.Error())
					return
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				answered <- body
			}()
			drained, err := client.Post(fmt.Sprintf("http://sim/sim/drain?requests=%d", at/1_000_000+1), "", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			drained.Body.Close()
			body := <-answered
			if err := json.Unmarshal(body, &r); err != nil || len(r.Choices) == 0 {
				t.Fatalf("%v in %s", err, body)
			}
			return r
		}
		h := tokenize.Hashing{Seed: kv.HashSeed("", ""), Size: size}
		predict := func(messages []byte) tokenize.Result {
			t.Helper()
			r, err := qwen3.Model().Chat(tokenize.Chat{Messages: messages}, h)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}

		system := strings.Repeat("You are a careful assistant. ", 20)
		turns := []map[string]string{{"role": "system", "content": system}, {"role": "user", "content": "Tell me about the harbour."}}
		one, _ := json.Marshal(turns)
		first := ask(0, one)
		if first.Choices[0].Finish != "stop" || first.Usage.Details.Cached != 0 {
			t.Fatalf("first turn: finish %q, usage %+v", first.Choices[0].Finish, first.Usage)
		}
		turns = append(turns,
			map[string]string{"role": "assistant", "content": content(first, 0)},
			map[string]string{"role": "user", "content": "And the lighthouse?"})
		two, _ := json.Marshal(turns)
		second := ask(1_000_000, two)

		before, after := predict(one), predict(two)
		if first.Usage.Prompt != len(before.IDs) || second.Usage.Prompt != len(after.IDs) {
			t.Errorf("prompts of %d and %d tokens, the tokenizer says %d and %d", first.Usage.Prompt, second.Usage.Prompt, len(before.IDs), len(after.IDs))
		}
		// The end of turn is the last token of the answer, and is never computed.
		answer, err := qwen3.Tokenizer().Encode(nil, []byte(content(first, 0)), false)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := first.Usage.Completion, len(answer)+1; got != want {
			t.Errorf("the answer has %d tokens, its text %d and an end", got, want-1)
		}
		computed := kv.ExtendBlocks(slices.Clone(before.Blocks), h.Seed, slices.Concat(before.IDs, answer), size)
		shared := 0
		for shared < len(computed) && shared < len(after.Blocks) && computed[shared] == after.Blocks[shared] {
			shared++
		}
		if shared != len(computed) || shared <= len(before.Blocks) {
			t.Errorf("%d blocks are shared of the %d that were computed, of which the prompt has %d", shared, len(computed), len(before.Blocks))
		}
		if got, want := second.Usage.Details.Cached, shared*size; got != want {
			t.Errorf("the second turn found %d tokens in the cache, want %d", got, want)
		}
		for i, b := range after.Blocks {
			if !stored[b.ID] {
				t.Errorf("no event has told of block %d of the second prompt", i)
			}
		}
	})
}
