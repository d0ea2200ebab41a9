package frontend

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/learn"
	"github.com/stator-ai/stator/nvext"
)

// lessons is a control plane that learns, in front of an engine whose answers take 100 ms
// and have as many tokens as the last message says: "7 tokens".
type lessons struct {
	*rig
	learner *learn.Learner
	rows    *rowLog
}

func newLessons(t *testing.T, cfg rigConfig) *lessons {
	l := &lessons{learner: learn.New(learn.Config{}), rows: new(rowLog)}
	cfg.front.Learner, cfg.front.Trace = l.learner, l.rows
	if cfg.fault == nil {
		cfg.fault = wordy
	}
	l.rig = newRig(t, cfg)
	return l
}

func wordy(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	var n int
	fmt.Sscanf(text[strings.LastIndex(text, `"content":"`)+len(`"content":"`):], "%d tokens", &n)
	time.Sleep(100 * time.Millisecond)
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":9,"completion_tokens":%d}`, n)
	if strings.Contains(text, `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, delta("x", `"stop"`)+`data: {"choices":[],`+usage+"}\n\n"+"data: [DONE]\n\n")
		w.(http.Flusher).Flush()
		time.Sleep(50 * time.Millisecond) // before it ends the connection
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],`+usage+`}`)
}

// agent is a chat of which each call has the messages of those before.
type agent struct {
	system, name string
	said         []string
	more         string // members of the body
	header       []string
}

// body returns the next call, for an answer of so many tokens.
func (a *agent) body(tokens int) string {
	if len(a.said) == 0 {
		a.said = append(a.said, fmt.Sprintf(`{"role":"system","content":%q}`, a.system))
	} else {
		a.said = append(a.said, `{"role":"assistant","content":"x"}`)
	}
	a.said = append(a.said, fmt.Sprintf(`{"role":"user","content":"%d tokens, says %s"}`, tokens, a.name))
	return fmt.Sprintf(`{"model":"stator-sim"%s,"messages":[%s]}`, a.more, strings.Join(a.said, ","))
}

// call makes the next call and returns what was expected of it.
func (l *lessons) call(t *testing.T, a *agent, tokens int) *nvext.Expected {
	t.Helper()
	resp, body := l.post(t, chatPath, a.body(tokens), a.header...)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %s", resp.StatusCode, body)
	}
	return l.expected(t)
}

// expected returns what was expected of the latest request, by its row in the trace. It
// waits for that row, since an answer may be there before it.
func (l *lessons) expected(t *testing.T) *nvext.Expected {
	t.Helper()
	synctest.Wait()
	rows := l.rows.take()
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	e := rows[0].Attempts[0].Routing.Expected
	if inferred := rows[0].Inferred; e == nil && inferred != nil || e != nil && (inferred == nil) != (e.Inferred == nil) {
		t.Errorf("the row says %+v, the decision %+v", inferred, e)
	}
	return e
}

// school teaches conversations of three calls, 200 ms apart.
func (l *lessons) school(t *testing.T, a agent) {
	t.Helper()
	for i := range 5 {
		next := a
		next.name += fmt.Sprint(i)
		for _, n := range []int{100, 20, 300} {
			l.call(t, &next, n)
			time.Sleep(200 * time.Millisecond)
		}
	}
	time.Sleep(time.Hour) // and all is quiet
	for l.learner.Stats().Conversations > 0 {
		l.post(t, textPath, `{"model":"stator-sim","prompt":"sweep"}`)
		synctest.Wait()
		l.rows.take()
	}
}

func TestInferred(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream=", stream), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLessons(t, rigConfig{})
				plain := agent{system: "You plan.", more: fmt.Sprintf(`,"stream":%v`, stream)}
				l.school(t, plain)
				// A call ends with its last event, when the engine has not yet ended the
				// connection that this client reads to its end.
				rest := uint64(0)
				if stream {
					rest = 50
				}
				family := func(f nvext.InferredField) nvext.Inferred {
					return nvext.Inferred{Field: f, Source: nvext.SourceFamily, Samples: 5}
				}
				all := []nvext.Inferred{family(nvext.InferredOSL), family(nvext.InferredRemainingCalls), family(nvext.InferredIAT)}
				own := []nvext.Inferred{
					{Field: nvext.InferredOSL, Source: nvext.SourceSession, Samples: 3},
					{Field: nvext.InferredIAT, Source: nvext.SourceSession, Samples: 2},
				}
				next := plain
				next.name = "next"
				for i, want := range []nvext.Expected{
					{OSL: new(uint32(100)), RemainingCalls: new(uint64(2)), IATMS: new(200 + rest), Inferred: all},
					{OSL: new(uint32(20)), RemainingCalls: new(uint64(1)), IATMS: new(200 + rest), Inferred: all},
					{OSL: new(uint32(300)), RemainingCalls: new(uint64(0)), Inferred: all[:2]},
					{OSL: new(uint32(42)), IATMS: new(500 + rest), Inferred: own},
				} {
					if diff := cmp.Diff(&want, l.call(t, &next, 42-i)); diff != "" { // whose answers have 42, 41, 40 tokens
						t.Errorf("call %d (-want +got):\n%s", i+1, diff)
					}
					time.Sleep(500 * time.Millisecond)
				}
				other := agent{system: "You review.", more: plain.more}
				if got := l.call(t, &other, 5); got != nil {
					t.Errorf("another family: %+v", got)
				}
				_, text := l.get(t, "/metrics")
				for _, want := range []string{
					`stator_hints_inferred_total{field="osl",model="stator-sim",source="session"} 1`,
					`stator_hints_inferred_total{field="remaining_calls",model="stator-sim",source="family"} 3`,
					`stator_inferred_osl_ratio_count{model="stator-sim",source="session"} 1`,
					`stator_inferred_osl_ratio_bucket{model="stator-sim",source="session",le="1.1"} 1`,
				} {
					if !strings.Contains(text, want+"\n") {
						t.Errorf("/metrics lacks %s", want)
					}
				}
				l.stop()
			})
		})
	}
}

// Each member says what it was inferred from.
func TestInferredFromDifferentSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessons(t, rigConfig{})
		for i, calls := range []int{4, 4, 4, 4, 4, 7} { // longer ones than at school
			a := &agent{system: "You plan.", name: fmt.Sprint("longer ", i)}
			for range calls {
				l.call(t, a, 70)
				time.Sleep(200 * time.Millisecond)
			}
		}
		l.school(t, agent{system: "You plan."})
		a := &agent{system: "You plan.", name: "asks"}
		for range 3 {
			l.call(t, a, 50)
			time.Sleep(500 * time.Millisecond)
		}
		got, err := json.Marshal(l.call(t, a, 50))
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"osl":70,"remaining_calls":1,"iat_ms":500,"inferred":[` +
			`{"field":"osl","source":"family","samples":6},` +
			`{"field":"remaining_calls","source":"family","samples":6},` +
			`{"field":"iat_ms","source":"session","samples":2}]}`
		if string(got) != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		l.stop()
	})
}

// Where no call is expected to follow, none is expected at some time.
func TestNoCallFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessons(t, rigConfig{})
		l.school(t, agent{system: "You plan."})
		for i := range 40 { // most have one call, and those of school another 200 ms later
			l.call(t, &agent{system: "You plan.", name: fmt.Sprint("once ", i), header: []string{
				"X-Dynamo-Session-Id", fmt.Sprint(i), "X-Dynamo-Session-Final", "true"}}, 100)
		}
		got, err := json.Marshal(l.call(t, &agent{system: "You plan.", name: "asks"}, 100))
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"osl":100,"remaining_calls":0,"inferred":[` +
			`{"field":"osl","source":"family","samples":32},` +
			`{"field":"remaining_calls","source":"family","samples":45}]}`
		if string(got) != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		l.stop()
	})
}

// The client is shown what was inferred, and so is the trace.
func TestInferredIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessons(t, rigConfig{})
		l.school(t, agent{system: "You plan."})
		a := &agent{system: "You plan.", name: "asks", more: `,"nvext":{"extra_fields":["routing"],"agent_hints":{"iat":50}}`}
		_, body := l.post(t, chatPath, a.body(80))
		const want = `"expected":{"osl":100,"remaining_calls":2,"iat_ms":50,"inferred":[{"field":"osl","source":"family","samples":5},{"field":"remaining_calls","source":"family","samples":5}]}`
		if !strings.Contains(body, want) {
			t.Errorf("the answer lacks %s: %s", want, body)
		}
		synctest.Wait()
		rows := l.rows.take()
		line, err := rows[0].AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		const inferred = `"hints":{"iat":50},"inferred":[{"field":"osl","value":100,"source":"family","samples":5},{"field":"remaining_calls","value":2,"source":"family","samples":5}],`
		if !strings.Contains(string(line), inferred) {
			t.Errorf("the row lacks %s: %s", inferred, line)
		}
		l.stop()
	})
}

// What the client says counts, wherever it says it; only what it does not is inferred.
func TestHintsGoFirst(t *testing.T) {
	const (
		osl       = `{"field":"osl","source":"family","samples":5}`
		remaining = `{"field":"remaining_calls","source":"family","samples":5}`
		iat       = `{"field":"iat_ms","source":"family","samples":5}`
	)
	for _, row := range []struct {
		name   string
		more   string
		header []string
		want   string
	}{
		{name: "nothing",
			want: `{"osl":100,"remaining_calls":2,"iat_ms":200,"inferred":[` + osl + `,` + remaining + `,` + iat + `]}`},
		{name: "last call", header: []string{"X-Dynamo-Session-Id", "s", "X-Dynamo-Session-Final", "true"},
			want: `{"osl":100,"remaining_calls":0,"inferred":[` + osl + `]}`},
		{name: "osl", more: `,"nvext":{"agent_hints":{"osl":7}}`,
			want: `{"osl":7,"remaining_calls":2,"iat_ms":200,"inferred":[` + remaining + `,` + iat + `]}`},
		{name: "no more calls", more: `,"nvext":{"agent_hints":{"total_requests":1}}`,
			want: `{"osl":100,"remaining_calls":0,"inferred":[` + osl + `]}`},
		{name: "all", more: `,"nvext":{"agent_hints":{"osl":7,"total_requests":9,"iat":1}}`,
			want: `{"osl":7,"remaining_calls":8,"iat_ms":1}`},
		{name: "annotations", more: `,"nvext":{"annotations":["osl:LOW","total_requests:1","iat:HIGH"]}`,
			want: `{"osl":128,"remaining_calls":0,"iat_ms":750}`},
		{name: "headers", header: []string{"X-Prefix-Osl", "64", "X-Nat-Interarrival-Ms", "3"},
			want: `{"osl":64,"remaining_calls":2,"iat_ms":3,"inferred":[` + remaining + `]}`},
		{name: "remaining calls", header: []string{"X-Nat-Remaining-Llm-Calls", "9"},
			want: `{"osl":100,"remaining_calls":9,"iat_ms":200,"inferred":[` + osl + `,` + iat + `]}`},
		{name: "no remaining calls", header: []string{"X-Nat-Remaining-Llm-Calls", "0"},
			want: `{"osl":100,"remaining_calls":0,"inferred":[` + osl + `]}`},
		{name: "remaining calls and a total", more: `,"nvext":{"agent_hints":{"total_requests":4}}`, header: []string{"X-Nat-Remaining-Llm-Calls", "9"},
			want: `{"osl":100,"remaining_calls":3,"iat_ms":200,"inferred":[` + osl + `,` + iat + `]}`},
		{name: "no more than it would take", more: `,"max_tokens":60`,
			want: `{"osl":60,"remaining_calls":2,"iat_ms":200,"inferred":[` + osl + `,` + remaining + `,` + iat + `]}`},
		{name: "several answers", more: `,"n":2`, want: `null`},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLessons(t, rigConfig{})
				l.school(t, agent{system: "You plan."})
				a := &agent{system: "You plan.", name: "asks", more: row.more, header: row.header}
				got, err := json.Marshal(l.call(t, a, 100))
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != row.want {
					t.Errorf("got %s\nwant %s", got, row.want)
				}
				l.stop()
			})
		})
	}
}

// A client's own name for a conversation holds together what does not look alike, and its
// calls are counted.
func TestNamedConversations(t *testing.T) {
	for _, row := range []struct {
		name   string
		more   string
		header []string
	}{
		{name: "prefix", more: `,"nvext":{"agent_hints":{"prefix_id":"run-1","total_requests":4}}`},
		{name: "session control", more: `,"nvext":{"session_control":{"session_id":"s"},"agent_hints":{"total_requests":4}}`},
		{name: "session header", more: `,"nvext":{"agent_hints":{"total_requests":4}}`, header: []string{"X-Dynamo-Session-Id", "s"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLessons(t, rigConfig{})
				for i := range 6 {
					a := &agent{system: fmt.Sprint("It is ", i, " o'clock."), more: row.more, header: row.header}
					got := l.call(t, a, 10)
					if got == nil || got.RemainingCalls == nil || *got.RemainingCalls != uint64(max(0, 3-i)) {
						t.Errorf("call %d: %+v", i, got)
					}
					if osl := got.OSL; (osl != nil) != (i >= 3) || osl != nil && got.Inferred[0].Source != nvext.SourceSession {
						t.Errorf("call %d: %+v", i, got)
					}
				}
				if n := l.learner.Stats().Conversations; n != 1 {
					t.Errorf("%d conversations", n)
				}
				l.stop()
			})
		})
	}
}

func TestTenantsDoNotLearnFromEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := []Key{
			{Name: "a", Hash: sha256.Sum256([]byte("ka")), Tenant: "acme"},
			{Name: "b", Hash: sha256.Sum256([]byte("kb"))},
			{Name: "c", Hash: sha256.Sum256([]byte("kc")), Tenant: "acme"},
		}
		l := newLessons(t, rigConfig{front: Config{Keys: keys}})
		who := func(key string) agent {
			return agent{system: "You plan.", header: []string{"Authorization", "Bearer " + key}}
		}
		for i := range 5 {
			a := who("ka")
			a.name = fmt.Sprint(i)
			l.call(t, &a, 100)
		}
		for key, want := range map[string]bool{"ka": true, "kb": false, "kc": true} {
			a := who(key)
			a.name = "asks"
			if got := l.call(t, &a, 100); (got != nil) != want {
				t.Errorf("key %s: %+v", key, got)
			}
		}
		l.stop()
	})
}

// Answers that broke off, were refused or nobody waited for teach no length.
func TestFailuresTeachNothing(t *testing.T) {
	broken := answers(200, "text/event-stream", delta("a", "null"), "data: {\"cho")
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"refused":             answers(400, "application/json", `{"message":"no"}`),
		"unavailable":         answers(503, "application/json", `{"message":"not now"}`),
		"error":               answers(500, "application/json", `{"message":"boom"}`),
		"broken":              broken,
		"error in the stream": answers(200, "text/event-stream", delta("a", "null"), `data: {"error":{"message":"boom"}}`+"\n\n", "data: [DONE]\n\n"),
		"left": func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"nobody counted": answers(200, "application/json", `{"choices":[{"index":0,"text":"ab","finish_reason":"stop"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLessons(t, rigConfig{fault: fault})
				for i := range 8 {
					a := &agent{system: "You plan.", name: fmt.Sprint(i), more: fmt.Sprintf(`,"stream":%v`, name != "nobody counted")}
					ctx, leave := context.WithTimeout(t.Context(), time.Second)
					if resp, err := l.client.Do(l.request(t, chatPath, a.body(9)).WithContext(ctx)); err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					leave()
					synctest.Wait()
					if s := l.learner.Stats(); s.Running != 0 {
						t.Fatalf("%+v", s)
					}
					for _, row := range l.rows.take() {
						for _, at := range row.Attempts {
							if at.Routing != nil && at.Routing.Expected != nil {
								t.Errorf("expected %+v", at.Routing.Expected)
							}
						}
					}
					time.Sleep(time.Minute) // what failed has to be well again
				}
				l.stop()
			})
		})
	}
}

// A request that ends in a panic has ended.
func TestPanicEndsTheLesson(t *testing.T) {
	l := newLessons(t, rigConfig{wrap: func(e engine.Engine) engine.Engine { return plainEngine{Engine: e, panics: true} }})
	if resp, _ := l.post(t, chatPath, chatBody); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("status %d", resp.StatusCode)
	}
	if s := l.learner.Stats(); s != (learn.Stats{Conversations: 1}) {
		t.Errorf("%+v", s)
	}
}

// Who only asks where a request would run is told what is expected, and that is no call.
func TestQueriesTeachNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessons(t, rigConfig{})
		l.school(t, agent{system: "You plan."})
		before, counted := l.learner.Stats(), `stator_hints_inferred_total{field="osl",model="stator-sim",source="family"}`
		_, was := l.get(t, "/metrics")
		a := &agent{system: "You plan.", name: "asks", more: `,"nvext":{"annotations":["query_instance_id:"],"extra_fields":["routing"]}`}
		if _, body := l.post(t, chatPath, a.body(5)); !strings.Contains(body, `"expected":{"osl":100,`) {
			t.Errorf("got %s", body)
		}
		if got := l.learner.Stats(); got != before {
			t.Errorf("%+v, before %+v", got, before)
		}
		if _, now := l.get(t, "/metrics"); strings.Contains(was, counted) != strings.Contains(now, counted) {
			t.Error("a query was counted")
		}
		l.stop()
	})
}

// Completions are told apart by the beginning of their prompts, and are no conversations.
func TestInferredCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLessons(t, rigConfig{fault: answers(200, "application/json", whole)})
		instructions := strings.Repeat("Translate. ", 100)
		ask := func(text string) *nvext.Expected {
			l.post(t, textPath, fmt.Sprintf(`{"model":"stator-sim","prompt":%q}`, text))
			return l.expected(t)
		}
		for i := range 5 {
			if got := ask(instructions + fmt.Sprint(i)); got != nil {
				t.Errorf("prompt %d: %+v", i, got)
			}
		}
		want := &nvext.Expected{OSL: new(uint32(2)), Inferred: []nvext.Inferred{{Field: nvext.InferredOSL, Source: nvext.SourceFamily, Samples: 5}}}
		if diff := cmp.Diff(want, ask(instructions+"more")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := ask("Summarize."); got != nil {
			t.Errorf("another prompt: %+v", got)
		}
		if n := l.learner.Stats().Conversations; n != 0 {
			t.Errorf("%d conversations", n)
		}
		l.stop()
	})
}
