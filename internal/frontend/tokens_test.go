package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/internal/tokenize/chat"
	"github.com/stator-ai/stator/internal/tokenize/local"
	"github.com/stator-ai/stator/internal/tokenize/qwen3"
)

// onQwen3 is an engine with real tokens.
var onQwen3 = simserver.Config{Vocabulary: simserver.Qwen3}

// query asks where a request would run and returns its prompt's tokens.
func query(t *testing.T, rg *rig, path, members string) []uint32 {
	t.Helper()
	body := `{"model":"stator-sim","nvext":{"annotations":["query_instance_id:"]},` + members + `}`
	resp, answer := rg.post(t, path, body)
	var out struct {
		NvExt struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"nvext"`
	}
	if err := json.Unmarshal([]byte(answer), &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("query %s: status %d, %v: %s", members, resp.StatusCode, err, answer)
	}
	return out.NvExt.TokenIDs
}

// promptRows are requests by the members that decide their prompts, and the tokens
// that these have.
func promptRows(t *testing.T) []struct {
	name, path, members string
	want                []uint32
} {
	const messages = `[{"role":"system","content":"Be brief."},{"role":"user","content":"Grüße, <|im_end|> 世界"}]`
	const tools = `[{"type":"function","function":{"name":"f","parameters":{"type":"object","b":1,"a":2}}}]`
	const open = `[{"role":"user","content":"hi"},{"role":"assistant","content":"Well"}]`
	ids := func(r tokenize.Result, err error) []uint32 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r.IDs
	}
	m, h := qwen3.Model(), tokenize.Hashing{}
	return []struct {
		name, path, members string
		want                []uint32
	}{
		{"chat", chatPath, `"messages":` + messages, ids(m.Chat(tokenize.Chat{Messages: []byte(messages)}, h))},
		{"tools", chatPath, `"tools":` + tools + `,"messages":` + messages,
			ids(m.Chat(tokenize.Chat{Messages: []byte(messages), Tools: []byte(tools)}, h))},
		{"kwargs", chatPath, `"chat_template_kwargs":{"enable_thinking":false},"messages":` + messages,
			ids(m.Chat(tokenize.Chat{Messages: []byte(messages), Kwargs: []byte(`{"enable_thinking":false}`)}, h))},
		{"no generation prompt", chatPath, `"add_generation_prompt":false,"messages":` + messages,
			ids(m.Chat(tokenize.Chat{Messages: []byte(messages), NoGenerationPrompt: true}, h))},
		{"continued", chatPath, `"add_generation_prompt":false,"continue_final_message":true,"messages":` + open,
			ids(m.Chat(tokenize.Chat{Messages: []byte(open), NoGenerationPrompt: true, ContinueFinal: true}, h))},
		{"text", textPath, `"prompt":"one <|im_start|> two"`, ids(m.Complete([]byte("one <|im_start|> two"), false, h))},
		{"one text in a list", textPath, `"prompt":["one two"]`, ids(m.Complete([]byte("one two"), false, h))},
		{"tokens", textPath, `"prompt":[5,6,7]`, []uint32{5, 6, 7}},
	}
}

// TestTokensAreTheEngines: what is found out about a prompt is what its engine
// makes of it, whoever makes it.
func TestTokensAreTheEngines(t *testing.T) {
	for _, source := range []struct {
		name   string
		tokens map[string]Tokens
	}{
		{"built in", nil},
		{"asked for", map[string]Tokens{OtherModels: {Engine: true}}},
	} {
		rg := newRig(t, rigConfig{sim: onQwen3, engines: 2})
		rg.SetTokens(source.tokens)
		for _, row := range promptRows(t) {
			t.Run(source.name+"/"+row.name, func(t *testing.T) {
				if diff := cmp.Diff(row.want, query(t, rg, row.path, row.members)); diff != "" {
					t.Errorf("tokens (-want +got):\n%s", diff)
				}
				_, answer := rg.post(t, row.path, `{"model":"stator-sim","max_tokens":1,`+row.members+`}`)
				if want := fmt.Sprintf(`"prompt_tokens":%d,`, len(row.want)); !strings.Contains(answer, want) {
					t.Errorf("the engine does not say %s: %s", want, answer)
				}
			})
		}
	}
}

// TestTokenAnnotations: tokens that the client brought along are not told back, and
// only a chat has a formatted prompt.
func TestTokenAnnotations(t *testing.T) {
	const text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
	chatIDs, err := qwen3.Tokenizer().Encode(nil, []byte(text), true /* special */)
	if err != nil {
		t.Fatal(err)
	}
	list, _ := json.Marshal(chatIDs)
	ids := fmt.Sprintf("event: token_ids\n: %q\n\n", list)
	formatted := fmt.Sprintf("event: formatted_prompt\n: %q\n\n", text)
	for _, row := range []struct {
		name, members, path string
		tokens              Tokens
		want                string
	}{
		{"local", `"messages":[{"role":"user","content":"hi"}]`, chatPath, Tokens{Local: qwen3.Model()}, formatted + ids},
		{"engine", `"messages":[{"role":"user","content":"hi"}]`, chatPath, Tokens{Engine: true}, ids},
		{"client", `"messages":[{"role":"user","content":"hi"}]`, chatPath, Tokens{Local: qwen3.Model()}, formatted},
		{"nobody", `"messages":[{"role":"user","content":"hi"}]`, chatPath, Tokens{}, ""},
		{"text", `"prompt":"hi"`, textPath, Tokens{Local: qwen3.Model()}, "event: token_ids\n: \"[6023]\"\n\n"},
		{"tokens", `"prompt":[6023]`, textPath, Tokens{Local: qwen3.Model()}, ""},
	} {
		rg := newRig(t, rigConfig{sim: onQwen3})
		rg.SetTokens(map[string]Tokens{"stator-sim": row.tokens})
		brought := ""
		if row.name == "client" {
			brought = `,"token_data":[1,2,3]`
		}
		_, answer := rg.post(t, row.path, `{"model":"stator-sim","stream":true,"max_tokens":1,`+row.members+
			`,"nvext":{"annotations":["token_ids","formatted_prompt"]`+brought+`}}`)
		got, _, _ := strings.Cut(answer, "data: ")
		if got != row.want {
			t.Errorf("%s: got %q\nwant %q", row.name, got, row.want)
		}
	}
}

// TestTokenData: ids that the model does not have are no prompt of its, nor do ids
// stand for several prompts or for other ids.
func TestTokenData(t *testing.T) {
	rg := newRig(t, rigConfig{sim: onQwen3})
	const members = `"messages":[{"role":"user","content":"hi"}],"nvext":{"annotations":["query_instance_id:"],"token_data":%s}`
	ask := func(data string) string {
		_, answer := rg.post(t, chatPath, `{"model":"stator-sim",`+fmt.Sprintf(members, data)+`}`)
		return answer
	}
	if got := ask("[1,151644,3]"); !strings.Contains(got, `"token_ids":[1,151644,3]`) {
		t.Errorf("tokens of the model: %s", got)
	}
	if got := ask("[]"); !strings.Contains(got, `"token_ids":[151644,872,198,`) {
		t.Errorf("no ids: %s", got)
	}
	for prompt, want := range map[string]string{
		`"hi"`:        `"token_ids":[7,8]`,
		`["hi"]`:      `"token_ids":[7,8]`,
		`["hi","hi"]`: `"token_ids":[6023,6023]`,
		`[5]`:         `"token_ids":[5]`,
	} {
		_, answer := rg.post(t, textPath, `{"model":"stator-sim","prompt":`+prompt+`,"nvext":{"annotations":["query_instance_id:"],"token_data":[7,8]}}`)
		if !strings.Contains(answer, want) {
			t.Errorf("prompt %s: no %s in %s", prompt, want, answer)
		}
	}
	if got := ask("[1,4294967295,3]"); !strings.Contains(got, `"token_ids":[151644,872,198,`) {
		t.Errorf("an id that the model does not have: %s", got)
	}
	rg.post(t, chatPath, `{"model":"stator-sim","max_tokens":1,"messages":[{"role":"user","content":"hi"}],"nvext":{"use_raw_prompt":true}}`)
	wantMetrics(t, rg, `stator_hints_ignored_total{field="token_data"} 3`, `stator_hints_ignored_total{field="use_raw_prompt"} 1`)
}

func wantMetrics(t *testing.T, rg *rig, want ...string) {
	t.Helper()
	_, text := rg.get(t, "/metrics")
	for _, line := range want {
		if !strings.Contains(text, line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var have []string
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, name) {
					have = append(have, l)
				}
			}
			t.Errorf("/metrics lacks %s; it has %q", line, have)
		}
	}
}

// templated returns a model with Qwen3's vocabulary and a template of the test's.
func templated(t *testing.T, template string, o local.Options) *local.Model {
	t.Helper()
	m, err := local.New(qwen3.Tokenizer(), chat.Config{Template: template}, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestWithoutTokensARequestGoesOn: what is not understood here may be there.
func TestWithoutTokensARequestGoesOn(t *testing.T) {
	const plain = `"messages":[{"role":"user","content":"hi"}]`
	const image = `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]`
	endless := templated(t, `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`, local.Options{})
	broken := engineFunc(func(context.Context, *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
		return nil, errors.New("not today")
	})
	for _, row := range []struct {
		name, path, members, reason string
		tokens                      Tokens
		engine                      engine.Tokenizer
	}{
		{"refused by the template", chatPath, plain, "template", Tokens{Local: templated(t, `{{ raise_exception('no') }}`, local.Options{})}, nil},
		{"a template that fails", chatPath, plain, "template", Tokens{Local: templated(t, `{{ messages[7].content.x }}`, local.Options{})}, nil},
		{"a template without end", chatPath, plain, "template", Tokens{Local: endless}, nil},
		{"no template", chatPath, plain, "no_template", Tokens{Local: templated(t, ``, local.Options{})}, nil},
		{"an image", chatPath, image, "media", Tokens{Local: templated(t, `{% for m in messages %}{{ m.content }}{% endfor %}`, local.Options{})}, nil},
		{"kwargs that are none", chatPath, plain + `,"chat_template_kwargs":7`, "request", Tokens{Local: qwen3.Model()}, nil},
		{"tokens that are cut off", textPath, `"prompt":"hi","truncate_prompt_tokens":1`, "request", Tokens{Local: qwen3.Model()}, nil},
		{"a chat with a beginning", chatPath, plain + `,"add_special_tokens":true`, "request", Tokens{Local: qwen3.Model()}, nil},
		{"half a character", chatPath, `"messages":[{"role":"user","content":"\ud800"}]`, "request", Tokens{Local: qwen3.Model()}, nil},
		{"half a character for an engine", textPath, `"prompt":"\udc00"`, "request", Tokens{Engine: true}, broken},
		{"an engine that fails", chatPath, plain, "engine", Tokens{Engine: true}, broken},
		{"no engine that could", chatPath, plain, "no_engine", Tokens{Engine: true}, nil},
		{"several prompts", textPath, `"prompt":["a","b"]`, "batch", Tokens{Engine: true}, broken},
	} {
		t.Run(row.name, func(t *testing.T) {
			var rows rowLog
			rg := newRig(t, rigConfig{
				front: Config{Trace: &rows},
				fault: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
					io.Copy(io.Discard, r.Body)
					io.WriteString(w, whole)
				},
				wrap: func(e engine.Engine) engine.Engine {
					if row.engine != nil {
						return tokenizing{e, row.engine}
					}
					return struct{ engine.Engine }{e} // without the capability
				},
			})
			rg.SetTokens(map[string]Tokens{OtherModels: row.tokens})
			const nvext = `,"nvext":{"extra_fields":["routing"]}`
			resp, answer := rg.post(t, row.path, `{"model":"stator-sim",`+row.members+nvext+`}`)
			if resp.StatusCode != 200 || !strings.Contains(answer, `"text":"ab"`) {
				t.Errorf("status %d: %s", resp.StatusCode, answer)
			}
			if ids := query(t, rg, row.path, row.members); ids != nil {
				t.Errorf("tokens out of nowhere: %d", ids)
			}
			// Once for each of the two; for the row of the first it is not tried again.
			wantMetrics(t, rg, fmt.Sprintf(`stator_tokenizations_skipped_total{model="stator-sim",reason=%q} 2`, row.reason))
			for _, r := range rows.take() {
				if r.TokenSource != "none" || !r.InputGuessed {
					t.Errorf("row with %s tokens", r.TokenSource)
				}
			}
		})
	}
}

// tokenizing is an engine with a capability of the test's.
type tokenizing struct {
	engine.Engine
	engine.Tokenizer
}

type engineFunc func(context.Context, *engine.TokenizeRequest) (*engine.TokenizeResult, error)

func (engineFunc) Resting() bool { return false }

func (f engineFunc) Tokenize(ctx context.Context, r *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
	return f(ctx, r)
}

// TestInvalidUTF8IsRefused: that is no text to anybody.
func TestInvalidUTF8IsRefused(t *testing.T) {
	for _, tokens := range []Tokens{{Local: qwen3.Model()}, {Engine: true}} {
		rg := newRig(t, rigConfig{sim: onQwen3})
		rg.SetTokens(map[string]Tokens{OtherModels: tokens})
		resp, answer := rg.post(t, textPath, "{\"model\":\"stator-sim\",\"prompt\":\"a\xff\",\"nvext\":{\"extra_fields\":[\"routing\"]}}")
		if resp.StatusCode != 400 || !strings.Contains(answer, "not valid UTF-8") {
			t.Errorf("status %d: %s", resp.StatusCode, answer)
		}
	}
}

// TestEngineIsAskedOnlyWhenNeeded, and not waited for longer than a few seconds.
func TestEngineIsAskedOnlyWhenNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		silent := engineFunc(func(ctx context.Context, _ *engine.TokenizeRequest) (*engine.TokenizeResult, error) {
			asked.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		rg := newRig(t, rigConfig{
			router: router.Config{Mode: router.RoundRobin},
			wrap:   func(e engine.Engine) engine.Engine { return tokenizing{e, silent} },
		})
		rg.SetTokens(map[string]Tokens{OtherModels: {Engine: true}})
		rg.post(t, chatPath, hello)
		if n := asked.Load(); n != 0 {
			t.Errorf("asked %d times for tokens that nobody needs", n)
		}
		_, answer := rg.post(t, chatPath, strings.Replace(hello, `{`, `{"nvext":{"extra_fields":["routing","timing"]},`, 1))
		if n := asked.Load(); n != 1 || !strings.Contains(answer, `"prefill_wait_time_ms":3000.0`) {
			t.Errorf("asked %d times, then: %s", n, answer)
		}
		rg.stop()
	})
}

func TestContextLengthInRealTokens(t *testing.T) {
	const members = `"messages":[{"role":"user","content":"The quick brown fox jumps over the lazy dog."}]`
	n := len(query(t, newRig(t, rigConfig{sim: onQwen3}), chatPath, members))
	for _, row := range []struct{ limit, status int }{{n + 1, 200}, {n, 400}} {
		for _, source := range []struct {
			tokens map[string]Tokens
			nvext  string
		}{
			{nil, ""},
			{map[string]Tokens{OtherModels: {Engine: true}}, `,"nvext":{"extra_fields":["routing"]}`}, // else it is not asked
		} {
			sim := onQwen3
			sim.ContextLength = row.limit
			var sent atomic.Int32
			rg := newRig(t, rigConfig{sim: sim, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.Path == chatPath {
					sent.Add(1)
				}
				next.ServeHTTP(w, r)
			}})
			rg.SetTokens(source.tokens)
			resp, answer := rg.post(t, chatPath, `{"model":"stator-sim","max_tokens":1,`+members+source.nvext+`}`)
			if resp.StatusCode != row.status || (sent.Load() > 0) != (row.status == 200) {
				t.Errorf("limit %d: status %d, sent %d times: %s", row.limit, resp.StatusCode, sent.Load(), answer)
			}
			if row.status == 400 && !strings.Contains(answer, fmt.Sprintf("maximum context length is %d tokens. However, your messages resulted in %d tokens", n, n)) {
				t.Errorf("limit %d: %s", row.limit, answer)
			}
		}
	}
}

// TestLongPromptsAreCounted: only a body that has the bytes for it can be too long,
// and one whose tokens cannot be had goes on.
func TestLongPromptsAreCounted(t *testing.T) {
	raises := Tokens{Local: templated(t, `{{ raise_exception('no') }}`, local.Options{})}
	for _, row := range []struct {
		name, path, members string
		length              int // of the body
		calls               int
	}{
		{"short", textPath, `"prompt":"$"`, 999, 0},
		{"long", textPath, `"prompt":"$"`, 1000, 1},
		{"long chat", chatPath, `"messages":["$"]`, 1000, 1},
		{"tools", chatPath, `"messages":["m"],"tools":["$"]`, 1000, 1},
		{"several", textPath, `"prompt":["$","b"]`, 1000, 0},
	} {
		var calls []string
		sim := onQwen3
		sim.ContextLength = 1000
		rg := newRig(t, rigConfig{router: router.Config{Mode: router.RoundRobin}, sim: sim, fault: answers(200, "application/json", whole)})
		rg.SetTokens(map[string]Tokens{OtherModels: {Local: noted{&calls}}})
		body := `{"model":"stator-sim",` + row.members + `}`
		body = strings.Replace(body, "$", strings.Repeat("x", row.length-len(body)+1), 1)
		if resp, answer := rg.post(t, row.path, body); resp.StatusCode != 200 || len(calls) != row.calls {
			t.Errorf("%s: status %d, %d calls, want %d: %s", row.name, resp.StatusCode, len(calls), row.calls, answer)
		}
		if row.path == textPath {
			continue
		}
		rg.SetTokens(map[string]Tokens{OtherModels: raises})
		if resp, answer := rg.post(t, row.path, body); resp.StatusCode != 200 {
			t.Errorf("%s: without tokens: status %d: %s", row.name, resp.StatusCode, answer)
		}
	}
}

// TestSmallPromptsDoNotWait for large ones to be tokenized.
func TestSmallPromptsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := onQwen3
		sim.ContextLength = 1 << 20
		rg := newRig(t, rigConfig{sim: sim})
		for range cap(rg.encoders.large) {
			rg.encoders.large <- struct{}{}
		}
		if ids := query(t, rg, textPath, `"prompt":"hi"`); len(ids) != 1 {
			t.Errorf("tokens %d", ids)
		}
		found := make(chan int, 1)
		go func() { found <- len(query(t, rg, textPath, `"prompt":"`+strings.Repeat(" a", largeBody/2)+`"`)) }()
		synctest.Wait()
		if len(found) != 0 {
			t.Error("a large prompt does not wait")
		}
		<-rg.encoders.large
		if n := <-found; n != largeBody/2 {
			t.Errorf("%d tokens, want %d", n, largeBody/2)
		}
		rg.stop()
	})
}

// TestUnusedTokens: entries that no model uses are named once.
func TestUnusedTokens(t *testing.T) {
	const warning = `level=WARN msg="no engine serves a model for these tokenizers" models=`
	for names, want := range map[string]string{
		"stator-sim":            "",
		"*":                     "",
		"stator-sim stator-sin": warning + "stator-sin\n",
		"stator-sim * b a":      warning + `"*, a, b"` + "\n",
	} {
		var log bytes.Buffer
		rg := newRig(t, rigConfig{front: Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			Level: slog.LevelWarn,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))}})
		tokens := make(map[string]Tokens)
		for name := range strings.FieldsSeq(names) {
			tokens[name] = Tokens{}
		}
		rg.SetTokens(tokens)
		rg.post(t, chatPath, hello)
		rg.post(t, chatPath, hello)
		rg.stop()
		if log.String() != want {
			t.Errorf("%s: log %q, want %q", names, &log, want)
		}
	}
}

// noted is a model that says how it was asked, in its tokens and its blocks.
type noted struct{ calls *[]string }

func (m noted) Fingerprint() string { return "noted" }

func (m noted) Chat(c tokenize.Chat, h tokenize.Hashing) (tokenize.Result, error) {
	var set []string
	for name, v := range map[string][]byte{"tools": c.Tools, "tool_choice": c.ToolChoice, "documents": c.Documents,
		"reasoning_effort": c.ReasoningEffort, "kwargs": c.Kwargs, "template": c.Template} {
		if v == nil {
			set = append(set, name)
		}
	}
	return m.result(fmt.Sprintf("chat %s without %d", c.Messages, len(set)), h)
}

func (m noted) Complete(text []byte, bare bool, h tokenize.Hashing) (tokenize.Result, error) {
	return m.result(fmt.Sprintf("complete %s bare=%v", text, bare), h)
}

func (m noted) result(call string, h tokenize.Hashing) (tokenize.Result, error) {
	*m.calls = append(*m.calls, fmt.Sprintf("%s size=%d seed=%d", call, h.Size, h.Seed))
	r := tokenize.Result{IDs: make([]uint32, 40), Fingerprint: "noted", Source: tokenize.Local}
	if h.Size > 0 {
		r.Blocks = []kv.Block{{ID: 0xabc}}
	}
	return r, nil
}

// TestModelIsAsked pins what a model gets, and that its blocks are those of the row.
func TestModelIsAsked(t *testing.T) {
	salted := kv.HashSeed("", "salt")
	for _, row := range []struct {
		name, path, members string
		want                []string
	}{
		{"chat", chatPath, `"messages":["m"],"cache_salt":"salt"`, []string{fmt.Sprintf(`chat ["m"] without 6 size=16 seed=%d`, salted)}},
		{"all of a chat", chatPath, `"messages":["m"],"tools":[],"tool_choice":"none","documents":[],"reasoning_effort":"low","chat_template_kwargs":{},"chat_template":"x"`,
			[]string{fmt.Sprintf(`chat ["m"] without 0 size=16 seed=%d`, kv.HashSeed("", ""))}},
		{"text", textPath, `"prompt":"a"`, []string{fmt.Sprintf("complete a bare=false size=16 seed=%d", kv.HashSeed("", ""))}},
		{"bare", textPath, `"prompt":["a"],"add_special_tokens":false`, []string{fmt.Sprintf("complete a bare=true size=16 seed=%d", kv.HashSeed("", ""))}},
		{"several", textPath, `"prompt":["a","b"]`, []string{"complete a bare=false size=0 seed=0", "complete b bare=false size=0 seed=0"}},
	} {
		for _, nvext := range []string{`{}`, `{"extra_fields":["routing"]}`} { // late, and at once
			var calls []string
			var rows rowLog
			rg := newRig(t, rigConfig{front: Config{Trace: &rows}, fault: answers(200, "application/json", whole)})
			rg.SetTokens(map[string]Tokens{"stator-sim": {Local: noted{&calls}}, OtherModels: {Engine: true}})
			rg.post(t, row.path, `{"model":"stator-sim",`+row.members+`,"nvext":`+nvext+`}`)
			if diff := cmp.Diff(row.want, calls); diff != "" {
				t.Errorf("%s, nvext %s: calls (-want +got):\n%s", row.name, nvext, diff)
			}
			for _, r := range rows.take() {
				hashes, _ := json.Marshal(r.BlockHashes)
				if single := len(row.want) == 1; single != (string(hashes) == `["0000000000000abc"]`) || r.Tokenizer != "noted" {
					t.Errorf("%s, nvext %s: hashes %s by %q", row.name, nvext, hashes, r.Tokenizer)
				}
			}
		}
	}
}

func TestTokensOf(t *testing.T) {
	s := &Server{}
	none, asked, own := Tokens{}, Tokens{Engine: true}, Tokens{Local: noted{}}
	byModel := map[string]Tokens{"base": own, "tuned": asked}
	others := map[string]Tokens{"base": own, OtherModels: asked}
	for _, row := range []struct {
		name   string
		tokens map[string]Tokens
		model  router.Model
		want   Tokens
	}{
		{"its own", byModel, router.Model{ID: "base", Tokenizer: "bytes"}, own},
		{"an adapter of it", byModel, router.Model{ID: "lora", Parent: "base", Adapter: true}, own},
		{"an adapter with its own", byModel, router.Model{ID: "tuned", Parent: "base", Adapter: true}, asked},
		{"unnamed", byModel, router.Model{ID: "x"}, none},
		{"one of the others", others, router.Model{ID: "x", Tokenizer: "bytes"}, asked},
		{"built in", byModel, router.Model{ID: "x", Tokenizer: "bytes"}, Tokens{Local: tokenize.ByteModel{}}},
		{"built in, real", nil, router.Model{ID: "x", Tokenizer: qwen3.Fingerprint}, Tokens{Local: qwen3.Model()}},
		{"built in elsewhere", nil, router.Model{ID: "x", Tokenizer: "y"}, none},
	} {
		s.SetTokens(row.tokens)
		if got := s.tokensOf(&row.model); got != row.want {
			t.Errorf("%s: got %+v, want %+v", row.name, got, row.want)
		}
	}
}

// TestTokenizerCacheSeries: of a second turn only what is new is tokenized.
func TestTokenizerCacheSeries(t *testing.T) {
	const template = `{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}`
	rg := newRig(t, rigConfig{sim: onQwen3})
	m := templated(t, template, local.Options{})
	rg.SetTokens(map[string]Tokens{"stator-sim": {Local: m}, "another": {Local: m}})
	first := fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat("the same again ", 100))
	n := len(query(t, rg, chatPath, `"messages":[`+first+`]`))
	all := len(query(t, rg, chatPath, `"messages":[`+first+`,{"role":"assistant","content":"yes"}]`))
	stats := m.Stats()
	if stats.Cached == 0 || int(stats.Cached+stats.Uncached) != n+all {
		t.Errorf("stats %+v for %d and %d tokens", stats, n, all)
	}
	wantMetrics(t, rg,
		"dynamo_frontend_tokenizer_cache_hits_total 1",
		"dynamo_frontend_tokenizer_cache_misses_total 1",
		fmt.Sprintf(`dynamo_frontend_tokenizer_cache_cached_tokens_total{model="stator-sim"} %d`, stats.Cached),
		fmt.Sprintf(`dynamo_frontend_tokenizer_cache_uncached_tokens_total{model="stator-sim"} %d`, stats.Uncached),
		fmt.Sprintf("stator_tokenizer_cache_bytes %d", stats.Bytes),
		`dynamo_frontend_tokenizer_latency_ms_count{operation="tokenize"} 2`,
		"dynamo_frontend_template_seconds_count 2",
	)
}
