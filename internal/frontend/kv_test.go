package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/simengine"
	"github.com/stator-ai/stator/internal/simserver"
	"github.com/stator-ai/stator/internal/thompson"
	"github.com/stator-ai/stator/internal/tokenize"
	"github.com/stator-ai/stator/nvext"
)

// cached is an engine with a cache, whose passes take some time.
func cached() simserver.Config {
	return simserver.Config{BlockSize: 4, Engine: &simengine.Config{Timing: simengine.Fixed{}}}
}

// asked returns a completion that asks why it went where it went.
func asked(prompt, more string) string {
	return fmt.Sprintf(`{"model":"stator-sim","prompt":%q,"max_tokens":2,"nvext":{"extra_fields":["routing","worker_id"]%s}}`, prompt, more)
}

// routed sends a request that asks for routing and returns the explanation and what
// the engine found in its cache.
func routed(t *testing.T, rg *rig, path, body string, header ...string) (*nvext.Routing, int) {
	t.Helper()
	resp, text := rg.post(t, path, body, header...)
	var answer struct {
		NvExt struct{ Routing *nvext.Routing }
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || resp.StatusCode != 200 || answer.NvExt.Routing == nil {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return answer.NvExt.Routing, answer.Usage.Details.Cached
}

const longPrompt = "The rain it raineth on the just, and also on the unjust fella."

// TestRepeatedPromptsLandWarm: with events from engines a prompt goes where it was,
// and what is predicted is what the engine finds.
func TestRepeatedPromptsLandWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{engines: 4, sim: cached(), events: true})
		first, found := routed(t, rg, textPath, asked(longPrompt, ""))
		if first.OverlapBlocks != 0 || found != 0 || first.CacheVerdict != nvext.VerdictNoReuse {
			t.Errorf("first: %d blocks, %d tokens found, %s", first.OverlapBlocks, found, first.CacheVerdict)
		}
		for i, more := range []string{"", " But chiefly on the just.", ""} {
			again, found := routed(t, rg, textPath, asked(longPrompt+more, ""))
			if again.Chosen.WorkerID != first.Chosen.WorkerID {
				t.Errorf("%d: went to worker %d, was on %d", i, again.Chosen.WorkerID, first.Chosen.WorkerID)
			}
			if want := len(longPrompt) / 4; again.OverlapBlocks < want || *again.PredictedCachedTokens < 4*want-4 {
				t.Errorf("%d: %d blocks and %d tokens predicted, want %d blocks", i, again.OverlapBlocks, *again.PredictedCachedTokens, want)
			}
			if a := again.ActualCachedTokens; a == nil || *a != found || found == 0 || again.CacheVerdict != nvext.VerdictAgreed {
				t.Errorf("%d: actual %v, the engine says %d, verdict %s", i, a, found, again.CacheVerdict)
			}
		}
		// Another salt is another cache.
		if r, found := routed(t, rg, textPath, asked(longPrompt, `,"cache_salt":"acme"`)); r.BestOverlapBlocks != 0 || found != 0 {
			t.Errorf("with a salt: %d blocks held, %d tokens found", r.BestOverlapBlocks, found)
		}
		rg.stop()
	})
}

// TestSeveralPromptsAreNoSequence: nothing is predicted of them, and nothing learned.
func TestSeveralPromptsAreNoSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{engines: 2, sim: cached(), events: true})
		body := fmt.Sprintf(`{"model":"stator-sim","prompt":[%q,%[1]q],"max_tokens":1,"nvext":{"extra_fields":["routing"]}}`, longPrompt)
		for range 2 {
			r, _ := routed(t, rg, textPath, body)
			if r.BestOverlapBlocks != 0 || r.CacheVerdict != nvext.VerdictUnknown || r.PromptTokens != 2*len(longPrompt) {
				t.Errorf("%d blocks, verdict %s, %d tokens", r.BestOverlapBlocks, r.CacheVerdict, r.PromptTokens)
			}
		}
		rg.stop()
	})
}

// TestStageTwo: the worker and the tokens that a query named are those of the request
// that follows, and its tokens stay here.
func TestStageTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen [][]byte
		rg := newRig(t, rigConfig{engines: 3, sim: cached(), events: true, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			body, _ := io.ReadAll(r.Body)
			seen = append(seen, body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		}})
		routed(t, rg, textPath, asked(longPrompt, ""))
		const prompt = longPrompt + " Because the unjust steals the just's umbrella."
		_, text := rg.post(t, textPath, asked(prompt, `,"annotations":["query_instance_id:"]`))
		var query struct{ NvExt nvext.Response }
		if err := json.Unmarshal([]byte(text), &query); err != nil || query.NvExt.WorkerID == nil {
			t.Fatalf("%v: %s", err, text)
		}
		if len(seen) != 1 || rg.booked() != 0 {
			t.Errorf("the engines saw %d requests, %d are booked", len(seen), rg.booked())
		}
		ids, _ := json.Marshal(query.NvExt.TokenIDs)
		worker := *query.NvExt.WorkerID.DecodeWorkerID
		r, found := routed(t, rg, textPath, asked(prompt, fmt.Sprintf(`,"backend_instance_id":%d,"token_data":%s`, worker, ids)))
		if r.Reason != nvext.ReasonPinned || r.Chosen.WorkerID != worker || r.OverlapBlocks != query.NvExt.Routing.OverlapBlocks || r.OverlapBlocks != len(longPrompt)/4 {
			t.Errorf("stage two: %s on worker %d with %d blocks; the query said worker %d with %d", r.Reason, r.Chosen.WorkerID, r.OverlapBlocks, worker, query.NvExt.Routing.OverlapBlocks)
		}
		if r.CacheVerdict != nvext.VerdictAgreed || *r.ActualCachedTokens != found {
			t.Errorf("verdict %s, the engine found %d", r.CacheVerdict, found)
		}
		want := fmt.Sprintf(`{"model":"stator-sim","prompt":%q,"max_tokens":2}`, prompt)
		if last := string(seen[len(seen)-1]); last != want {
			t.Errorf("the engine saw %s\nwant           %s", last, want)
		}
		rg.stop()
	})
}

// TestTextStandsInForTokens: without a tokenizer requests that begin alike go to the
// same worker.
func TestTextStandsInForTokens(t *testing.T) {
	for _, row := range []struct{ name, path, members string }{
		{"prompt", textPath, `"prompt":"` + strings.Repeat("text ", 30) + `"`},
		{"list of one", textPath, `"prompt":["` + strings.Repeat("text ", 30) + `"]`},
		{"messages", chatPath, `"messages":[{"role":"user","content":"` + strings.Repeat("text ", 30) + `"}]`},
		{"tools", chatPath, `"messages":[{"role":"user","content":"hi"}],"tools":[{"a":"` + strings.Repeat("text ", 30) + `"}]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			rg := newRig(t, rigConfig{
				engines: 4, fault: answers(200, "application/json", whole),
				wrap: func(e engine.Engine) engine.Engine { return plainEngine{Engine: e, tokenizer: "none of ours"} },
			})
			body := `{"model":"m",` + row.members + `,"nvext":{"extra_fields":["routing"]}}`
			first, _ := routed(t, rg, row.path, body)
			again, _ := routed(t, rg, row.path, body)
			if first.OverlapBlocks != 0 || again.OverlapBlocks < 4 || again.Chosen.WorkerID != first.Chosen.WorkerID || again.CacheVerdict != nvext.VerdictUnknown {
				t.Errorf("%d blocks on worker %d, then %d on %d (%s)", first.OverlapBlocks, first.Chosen.WorkerID, again.OverlapBlocks, again.Chosen.WorkerID, again.CacheVerdict)
			}
			if n := rg.body.Load(); n != 0 {
				t.Errorf("%d bytes of the body budget still held", n)
			}
		})
	}
}

// TestUsageBeforeTheEnd: an engine that tells its usage along with the last token
// has it in the stream's nvext, and one that tells it chunk by chunk is heard when it
// speaks of its cache.
func TestUsageBeforeTheEnd(t *testing.T) {
	const usage = `"usage":{"prompt_tokens":%d,"completion_tokens":1%s}`
	chunk := func(finish, details string) string {
		return fmt.Sprintf(`data: {"id":"x","choices":[{"index":0,"text":"a","finish_reason":%s}],`+usage+"}\n\n", finish, 64, details)
	}
	const found = `,"prompt_tokens_details":{"cached_tokens":40}`
	for _, row := range []struct {
		name  string
		parts []string
		want  nvext.Verdict
	}{
		{"with the last token", []string{chunk(`"stop"`, found)}, nvext.VerdictUnforeseen},
		{"first without, then with", []string{chunk(`null`, ""), chunk(`"stop"`, found)}, nvext.VerdictUnforeseen},
		{"more than the prompt", []string{chunk(`"stop"`, `,"prompt_tokens_details":{"cached_tokens":65}`)}, ""},
		{"not at all", []string{chunk(`"stop"`, "")}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var rows rowLog
			rg := newRig(t, rigConfig{
				front: Config{Trace: &rows}, wrap: withBytes,
				fault: answers(200, "text/event-stream", append(row.parts, "data: [DONE]\n\n")...),
			})
			_, text := rg.post(t, textPath, fmt.Sprintf(`{"model":"m","stream":true,"prompt":%q,"nvext":{"extra_fields":["routing"]}}`, strings.Repeat("x", 64)))
			has := strings.Contains(text, `"cache_verdict":"`+string(row.want)+`"`) && strings.Contains(text, `"actual_cached_tokens":40`)
			if has != (row.want != "") {
				t.Errorf("want verdict %q: %s", row.want, text)
			}
			rg.drain(t)
			want := row.want
			if want == "" {
				want = nvext.VerdictNoReuse // known once nothing more can come
			}
			if got := rows.all()[0].Attempts[0].Routing.CacheVerdict; got != want {
				t.Errorf("the row has verdict %q, want %q", got, want)
			}
		})
	}
}

// TestFailedAttemptsHaveNoVerdict.
func TestFailedAttemptsHaveNoVerdict(t *testing.T) {
	var rows rowLog
	fault, _ := failFirst(1, answer(503, `{}`))
	rg := newRig(t, rigConfig{engines: 2, front: Config{Trace: &rows}, wrap: withBytes, fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		fault(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answers(200, "application/json", whole)(w, r, nil) }))
	}})
	rg.post(t, textPath, `{"model":"m","prompt":"twelve bytes"}`)
	rg.drain(t)
	all := rows.all()[0].Attempts
	if len(all) != 2 || all[0].Routing.CacheVerdict != "" || all[1].Routing.CacheVerdict != nvext.VerdictNoReuse {
		t.Errorf("%d attempts: %+v", len(all), all)
	}
}

// described returns what the router is told of a request.
func described(t *testing.T, rg *rig, key *Key, path, body string, header ...string) *call {
	t.Helper()
	r := rg.request(t, path, body, header...)
	r.Body = io.NopCloser(strings.NewReader(body))
	ep := openai.Chat
	if path == textPath {
		ep = openai.Completions
	}
	c := &call{Server: rg.Server, w: httptest.NewRecorder(), r: r, endpoint: ep, key: key, id: "id", received: time.Now()}
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { c.cancel(nil); c.free(c.held) })
	if err := c.decode(); err != nil {
		t.Fatal(err)
	}
	if err := c.tokenize(); err != nil {
		t.Fatal(err)
	}
	c.describe()
	return c
}

// TestDescribe: what the router is told of a request.
func TestDescribe(t *testing.T) {
	rg := newRig(t, rigConfig{sim: simserver.Config{BlockSize: 4}})
	rr := newRig(t, rigConfig{sim: simserver.Config{BlockSize: 4}, router: router.Config{Mode: router.RoundRobin}})
	ids := []uint32{'t', 'w', 'e', 'l', 'v', 'e', ' ', 'b', 'y', 't', 'e', 's'}
	seed := func(salt string) uint64 { return kv.HashSeed("", salt) }
	hot := 0.5
	for _, row := range []struct {
		name   string
		rig    *rig
		key    *Key
		nvext  string
		more   string
		header []string
		want   router.Request
	}{
		{name: "plain", want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4}},
		{name: "without caches", rig: rr, want: router.Request{Guess: true, PromptTokens: len(`"twelve bytes"`) / 4}},
		{name: "hints", nvext: `{"agent_hints":{"priority":7,"latency_sensitivity":2.5,"strict_priority":3,"osl":256,"iat":250,"total_requests":4}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Jump: 7, Tier: 3, ExpectedOutput: 256, TotalRequests: 4,
				Expected: &nvext.Expected{OSL: new(uint32(256)), IATMS: new(uint64(250))}}},
		{name: "hints in other forms", nvext: `{"agent_hints":{"osl":"256","iat":"MEDIUM","total_requests":4.0}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, ExpectedOutput: 256, TotalRequests: 4,
				Expected: &nvext.Expected{OSL: new(uint32(256)), IATMS: new(uint64(250))}}},
		{name: "hints that make no sense", nvext: `{"agent_hints":{"osl":"long","iat":[],"total_requests":2.5},"annotations":["osl:LOW",7]}`, header: []string{"X-Prefix-Iat", "3"},
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, ExpectedOutput: 128,
				Expected: &nvext.Expected{OSL: new(uint32(128)), IATMS: new(uint64(3))}}},
		{name: "remaining calls", header: []string{"X-Nat-Remaining-Llm-Calls", "9"},
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Expected: &nvext.Expected{RemainingCalls: new(uint64(9))}}},
		{name: "remaining calls and a total", nvext: `{"agent_hints":{"total_requests":4}}`, header: []string{"X-Nat-Remaining-Llm-Calls", "9"},
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, TotalRequests: 4}},
		{name: "key that prefers sensitivity", key: &Key{PreferSensitivity: true}, nvext: `{"agent_hints":{"priority":7,"latency_sensitivity":2.5}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Jump: 2.5, Tenant: "key\x00"}},
		{name: "more than it would take", more: `,"max_tokens":10`, nvext: `{"agent_hints":{"osl":4294967295}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, ExpectedOutput: 10, Expected: &nvext.Expected{OSL: new(uint32(10))}}},
		{name: "stream", more: `,"stream":true`, want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4}},
		{name: "absurd length", nvext: `{"agent_hints":{"osl":4294967295}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, ExpectedOutput: maxCount, Expected: &nvext.Expected{OSL: new(uint32(maxCount))}}},
		{name: "salt", nvext: `{"cache_salt":"s"}`,
			want: router.Request{Tokens: ids, HashSeed: seed("s"), BlockSize: 4, Tenant: "s"}},
		{name: "tenant", key: &Key{Tenant: "acme", Trusted: true}, nvext: `{"cache_salt":"s"}`,
			want: router.Request{Tokens: ids, HashSeed: seed("acme"), BlockSize: 4, Tenant: "acme"}},
		{name: "salt of a key that may not", key: &Key{Name: "k"}, nvext: `{"cache_salt":"s"}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Tenant: "key\x00k"}},
		{name: "tokens of a key that is trusted", key: &Key{Trusted: true}, nvext: `{"token_data":[1,2,3,4,5]}`,
			want: router.Request{Tokens: []uint32{1, 2, 3, 4, 5}, PromptTokens: 5, HashSeed: seed(""), BlockSize: 4, Tenant: "key\x00"}},
		{name: "tokens of a key that is not", key: &Key{}, nvext: `{"token_data":[1,2,3,4,5]}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Tenant: "key\x00"}},
		{name: "class", header: []string{"X-Dynamo-Meta-Policy-Class", "batch"},
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Class: "batch"}},
		{name: "constraints", key: &Key{}, nvext: `{"routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":-1}}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, RequiredTaints: []string{"a"}, PreferredTaints: map[string]float64{"b": -1}, Tenant: "key\x00"}},
		{name: "override", nvext: `{"router_config_override":{"router_temperature":0.5,"assume_kv_reuse":null}}`,
			want: router.Request{Tokens: ids, HashSeed: seed(""), BlockSize: 4, Override: &router.Override{Temperature: &hot}}},
		{name: "tokens of the client", nvext: `{"token_data":[1,2,3,4,5]}`,
			want: router.Request{Tokens: []uint32{1, 2, 3, 4, 5}, PromptTokens: 5, HashSeed: seed(""), BlockSize: 4}},
	} {
		t.Run(row.name, func(t *testing.T) {
			on := rg
			if row.rig != nil {
				on = row.rig
			}
			body := `{"model":"stator-sim","prompt":"twelve bytes"` + row.more
			if row.nvext != "" {
				body += `,"nvext":` + row.nvext
			}
			c := described(t, on, row.key, textPath, body+"}", row.header...)
			want := row.want
			want.Model, want.ID, want.Into = c.model, "id", &c.placed
			want.Whole, want.Arrived = !strings.Contains(row.more, "stream"), c.placing.Arrived
			if want.Arrived.Before(c.arrived) {
				t.Errorf("arrived at %v, before the body did at %v", want.Arrived, c.arrived)
			}
			if want.PromptTokens == 0 {
				want.PromptTokens = len(ids)
			}
			if want.Tokens != nil {
				want.Blocks = kv.AppendBlocks(nil, want.HashSeed, want.Tokens, 4)
			}
			same := cmpopts.EquateComparable(&router.Model{}, &router.Placement{})
			if diff := cmp.Diff(want, c.placing, same); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRemainingCallsAreNoTotal: a policy that places by the calls to come hears of as many
// as each call says remain, and is not told that the calls before count among them.
func TestRemainingCallsAreNoTotal(t *testing.T) {
	for _, row := range []struct {
		name, header string
		want         string // the sum over four calls
	}{
		{"remaining", "X-Nat-Remaining-Llm-Calls", "thompson_router_reuse_budget_sum 36"},
		{"total", "X-Prefix-Total-Requests", "thompson_router_reuse_budget_sum 26"}, // 8, 7, 6 and 5
	} {
		t.Run(row.name, func(t *testing.T) {
			policy, err := thompson.ReferenceSet(thompson.SetConfigYAML)
			if err != nil {
				t.Fatal(err)
			}
			rg := newRig(t, rigConfig{engines: 2, router: router.Config{Mode: router.KV, Bandit: &router.BanditConfig{Reference: &policy}}})
			for range 4 {
				if resp, body := rg.post(t, chatPath, hello, "X-Prefix-Id", "run-1", row.header, "9"); resp.StatusCode != 200 {
					t.Fatalf("%s: %s", resp.Status, body)
				}
			}
			wantMetrics(t, rg, row.want, "thompson_router_reuse_budget_count 4")
		})
	}
}

// TestHashedOnce: the router gets the hashes that were made along with the tokens,
// and so does the row.
func TestHashedOnce(t *testing.T) {
	var rows rowLog
	rg := newRig(t, rigConfig{sim: simserver.Config{BlockSize: 4}, front: Config{Trace: &rows}})
	for _, nvext := range []string{`{}`, `{"token_data":[1,2,3,4,5,6,7,8,9,10,11,12]}`} {
		c := described(t, rg, nil, textPath, `{"model":"stator-sim","prompt":"twelve bytes","nvext":`+nvext+`}`)
		c.row = new(row)
		c.hashPrompt(4)
		if len(c.placing.Blocks) != 3 || &c.placing.Blocks[0] != &c.prompt.Blocks[0] || c.hashing != (tokenize.Hashing{Seed: c.hashSeed(), Size: 4}) {
			t.Errorf("%s: %d blocks for the router, hashed as %+v", nvext, len(c.placing.Blocks), c.hashing)
		}
		for i, h := range c.row.BlockHashes {
			if h != c.placing.Blocks[i].ID {
				t.Errorf("%s: block %d differs in the row", nvext, i)
			}
		}
	}
}

// TestPrioritiesReorder: of those that wait, the urgent go first, and tiers before
// all.
func TestPrioritiesReorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		rg := newRig(t, rigConfig{
			sim:    simserver.Config{TTFT: 10 * time.Second},
			router: router.Config{Queue: queueOf(busyAtOnce, 0)},
			fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				body, _ := io.ReadAll(r.Body)
				var b struct{ User string }
				json.Unmarshal(body, &b)
				mu.Lock()
				order = append(order, b.User)
				mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(w, r)
			},
		})
		var wg sync.WaitGroup
		for _, c := range []struct{ user, hints string }{
			{"running", `{}`}, {"plain", `{}`}, {"urgent", `{"priority":5}`}, {"tier", `{"strict_priority":1}`}, {"last", `{"priority":-5}`},
		} {
			body := strings.Replace(hello, "{", `{"user":"`+c.user+`","stream":true,"nvext":{"agent_hints":`+c.hints+`},`, 1)
			wg.Go(func() {
				if resp, text := rg.post(t, chatPath, body); resp.StatusCode != 200 {
					t.Errorf("%s: status %d: %s", c.user, resp.StatusCode, text)
				}
			})
			time.Sleep(time.Second)
		}
		wg.Wait()
		if diff := cmp.Diff([]string{"running", "tier", "urgent", "plain", "last"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		rg.stop()
	})
}

// TestListsAreBounded: every rank is held against them.
func TestListsAreBounded(t *testing.T) {
	rg := newRig(t, rigConfig{})
	many := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	tainted := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"t%d":1,`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for _, row := range []struct{ name, nvext, param string }{
		{"workers", `{"allowed_worker_ids":[` + many(1024, "1") + `]}`, ""},
		{"too many workers", `{"allowed_worker_ids":[` + many(1025, "1") + `]}`, "nvext.allowed_worker_ids"},
		{"too many required taints", `{"routing_constraints":{"required_taints":[` + many(65, `"a"`) + `]}}`, "nvext.routing_constraints.required_taints"},
		{"preferred taints", `{"routing_constraints":{"preferred_taints":{` + tainted(64) + `}}}`, ""},
		{"too many preferred taints", `{"routing_constraints":{"preferred_taints":{` + tainted(65) + `}}}`, "nvext.routing_constraints.preferred_taints"},
	} {
		resp, text := rg.post(t, chatPath, strings.Replace(hello, "{", `{"nvext":`+row.nvext+`,`, 1))
		if want := row.param != ""; (resp.StatusCode == 400) != want || !strings.Contains(text, row.param) {
			t.Errorf("%s: status %d: %s", row.name, resp.StatusCode, text)
		}
	}
}
