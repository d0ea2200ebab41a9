package indexserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
)

const registered = `{"instance_id":1,"model_name":"m","block_size":16}`

// newFilled returns a server where worker 1 holds 32 tokens in its device and 16
// more in the host's memory, and its rank 1 holds 16.
func newFilled(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := newRig(t, cfg)
	r.must(t, "/register", registered)
	r.must(t, "/events?model_name=m", stored(1, 0, 0, kv.Device, blocks(32))+
		stored(1, 0, 1, kv.Host, blocks(48))+stored(1, 1, 0, kv.Device, blocks(16)))
	return r
}

func TestQueryAnswersInTokens(t *testing.T) {
	r := newFilled(t, Config{})
	const want = `{"scores":{"1":{"0":32,"1":16}},"frequencies":[],` +
		`"instances":{"1":{"longest_matched":48,"gpu":32,"dp":{"0":32,"1":16},"cpu":48,"disk":48}}}`
	same(t, want, r.must(t, "/query", tokenQuery("m", 100)))
	same(t, want, r.must(t, "/query_by_hash", hashQuery("m", blocks(100))))

	unsigned := fmt.Sprintf(`{"model_name":"m","block_hashes":[%d]}`, uint64(blocks(16)[0].Tokens))
	same(t, `{"scores":{"1":{"0":16,"1":16}},"frequencies":[],"instances":{"1":{"longest_matched":16,"gpu":16,"dp":{"0":16,"1":16},"cpu":16,"disk":16}}}`,
		r.must(t, "/query_by_hash", unsigned))

	const nothing = `{"scores":{},"frequencies":[],"instances":{}}`
	same(t, nothing, r.must(t, "/query", tokenQuery("m", 15)))
	same(t, nothing, r.must(t, "/query", `{"model_name":"m","token_ids":[]}`))
	for _, field := range []string{`"lora_name":"a"`, `"cache_salt":"tenant"`, `"block_mm_infos":[{"mm_objects":[{"mm_hash":42,"offsets":[[0,4]]}]}]`} {
		body := strings.Replace(tokenQuery("m", 100), "{", "{"+field+",", 1)
		same(t, nothing, r.must(t, "/query", body))
	}
	body := strings.Replace(tokenQuery("m", 100), "{", `{"lora_name":null,"cache_salt":"","block_mm_infos":[null,null],"routing_group":"default","other":[{}],`, 1)
	same(t, want, r.must(t, "/query", body))
}

// The answers to several workers are in order of their ids as numbers.
func TestQueryOrder(t *testing.T) {
	r := newRig(t, Config{})
	for _, id := range []int{10, 9, 2} {
		r.must(t, "/register", fmt.Sprintf(`{"instance_id":%d,"model_name":"m","block_size":16}`, id))
		r.must(t, "/events", stored(id, 0, 1, kv.Device, blocks(16)))
	}
	if got := r.must(t, "/query", tokenQuery("m", 16)); !strings.HasPrefix(got, `{"scores":{"2":{"0":16},"9":{"0":16},"10":{"0":16}}`) {
		t.Errorf("got %s", got)
	}
}

func TestQueryMultimodal(t *testing.T) {
	r := newRig(t, Config{})
	r.must(t, "/register", `{"instance_id":1,"model_name":"m","block_size":2}`)
	objects := [][]kv.MMObject{{{Hash: 42}}}
	prompt := kv.AppendBlocksMM(nil, kv.HashSeed("", ""), count(4), 2, objects)
	r.must(t, "/events", stored(1, 0, 0, kv.Device, prompt))
	for body, want := range map[string]string{
		`{"model_name":"m","token_ids":[0,1,2,3],"block_mm_infos":[{"mm_objects":[{"mm_hash":42,"offsets":[[0,2]]}]}]}`: `"0":4`,
		`{"model_name":"m","token_ids":[0,1,2,3],"block_mm_infos":[{"mm_objects":[{"mm_hash":43}]}]}`:                   `"scores":{}`,
		`{"model_name":"m","token_ids":[0,1,2,3]}`:                                                                      `"scores":{}`,
	} {
		if got := r.must(t, "/query", body); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s in it", body, got, want)
		}
	}
}

func TestFrequencies(t *testing.T) {
	s := New(Config{FrequencyWindow: time.Hour})
	r := &rig{Server: s}
	ask := func(path, body string) string {
		req := httptest.NewRequest("POST", path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		r.ServeHTTP(rec, req)
		return rec.Body.String()
	}
	ask("/register", registered)
	ask("/events", stored(1, 0, 0, kv.Device, blocks(64)))
	for _, step := range []struct {
		tokens int
		want   string
	}{{100, "[]"}, {64, "[1,1,1,1]"}, {48, "[2,2,2]"}, {64, "[3,3,3,2]"}} {
		if got := ask("/query", tokenQuery("m", step.tokens)); !strings.Contains(got, `"frequencies":`+step.want) {
			t.Errorf("%d tokens: got %s, want frequencies %s", step.tokens, got, step.want)
		}
	}
}

func TestPlaneQuery(t *testing.T) {
	r := newFilled(t, Config{})
	hashes, _ := json.Marshal([]kv.LocalHash{blocks(32)[0].Tokens, blocks(32)[1].Tokens})
	ids, _ := json.Marshal(count(40))
	const want = `{"Matches":{"scores":[[{"worker_id":1,"dp_rank":0},2],[{"worker_id":1,"dp_rank":1},1]],"frequencies":[]}}`
	same(t, want, r.must(t, "/kv_indexer_query", fmt.Sprintf(`{"FindMatchesHashed":{"block_hashes":%s}}`, hashes)))
	same(t, want, r.must(t, "/kv_indexer_query?model_name=m",
		fmt.Sprintf(`{"FindMatchesTokens":{"tokens":%s,"block_mm_infos":null,"lora_name":null}}`, ids)))

	var dump struct{ TreeDump []json.RawMessage }
	if err := json.Unmarshal([]byte(r.must(t, "/kv_indexer_query", ` "DumpTree" `)), &dump); err != nil {
		t.Fatal(err)
	}
	x := kvindex.New(kvindex.Config{})
	for _, raw := range dump.TreeDump {
		b, err := kv.ParseJSON(raw)
		if err != nil {
			t.Fatal(err)
		}
		x.Apply(b)
	}
	p, _ := r.find(poolKey{"m", "default"})
	if diff := cmp.Diff(p.index.Match(nil, blocks(100)), x.Match(nil, blocks(100))); diff != "" {
		t.Errorf("what the dump makes (-want +got):\n%s", diff)
	}
}

func TestRegister(t *testing.T) {
	r := newRig(t, Config{})
	for range 2 {
		if status, out := r.post(t, "/register", `{"instance_id":18446744073709551615,"model_name":"org/a:b","block_size":16,"dp_rank":3,"endpoint":null,"additional_salt":""}`); status != 201 || out != "{\"status\":\"ok\"}\n" {
			t.Fatalf("status %d: %s", status, out)
		}
	}
	r.must(t, "/register", `{"instance_id":18446744073709551615,"model_name":"org/a:b","block_size":32,"routing_group":"other"}`)
	same(t, `[
		{"instance_id":18446744073709551615,"model_name":"org/a:b","routing_group":"default","block_size":16,"status":"pending","endpoints":{},
		 "listeners":{"3":{"status":"pending","blocks":0,"orphans":0,"epoch":0,"last_event_id":null,"applied":0,"stale":0,"missed":0}}},
		{"instance_id":18446744073709551615,"model_name":"org/a:b","routing_group":"other","block_size":32,"status":"pending","endpoints":{},
		 "listeners":{"0":{"status":"pending","blocks":0,"orphans":0,"epoch":0,"last_event_id":null,"applied":0,"stale":0,"missed":0}}}
	]`, r.get(t, "/workers"))
	if got := r.get(t, "/workers?model_name=org/a:b&routing_group=other"); strings.Count(got, "instance_id") != 1 {
		t.Errorf("workers of one group: %s", got)
	}
	if got := r.get(t, "/workers?model_name=x"); got != "[]\n" {
		t.Errorf("workers of an unknown model: %s", got)
	}
}

func TestUnregister(t *testing.T) {
	r := newRig(t, Config{})
	for _, group := range []string{"a", "b"} {
		for rank := range 2 {
			r.must(t, "/register", fmt.Sprintf(`{"instance_id":1,"model_name":"m","block_size":16,"routing_group":%q,"dp_rank":%d}`, group, rank))
		}
		r.must(t, "/events?model_name=m&routing_group="+group, stored(1, 0, 0, kv.Device, blocks(16)))
	}
	left := func() int { return strings.Count(r.get(t, "/workers"), `"stale"`) }
	for _, step := range []struct {
		body string
		left int
	}{
		{`{"instance_id":1,"model_name":"m","routing_group":"a","dp_rank":1}`, 3},
		{`{"instance_id":1,"model_name":"m","dp_rank":0}`, 1}, // of both groups
		{`{"instance_id":1,"model_name":"m"}`, 0},
	} {
		r.must(t, "/unregister", step.body)
		if got := left(); got != step.left {
			t.Errorf("after %s there are %d ranks, want %d", step.body, got, step.left)
		}
		if status, _ := r.post(t, "/unregister", step.body); status != 404 {
			t.Errorf("%s a second time: status %d, want 404", step.body, status)
		}
	}
	// The last one takes the block size with it.
	r.must(t, "/register", `{"instance_id":1,"model_name":"m","block_size":32,"routing_group":"a"}`)
}

// Events that come after their worker was unregistered do not bring it back.
func TestUnregisteredEvents(t *testing.T) {
	r := newFilled(t, Config{})
	r.must(t, "/register", `{"instance_id":2,"model_name":"m","block_size":16}`)
	r.must(t, "/unregister", `{"instance_id":1,"model_name":"m"}`)
	same(t, `{"applied":0,"stale":0,"missed":0,"skipped":{"not_registered":1},"errors":["worker_id: worker 1 is not registered for model \"m\""]}`,
		r.must(t, "/events", stored(1, 0, 7, kv.Device, blocks(32))))
	same(t, `{"scores":{},"frequencies":[],"instances":{}}`, r.must(t, "/query", tokenQuery("m", 32)))
	// Registered anew it begins anew.
	r.must(t, "/register", registered)
	r.must(t, "/events", stored(1, 0, 0, kv.Device, blocks(16)))
	if got := r.must(t, "/query", tokenQuery("m", 32)); !strings.Contains(got, `"scores":{"1":{"0":16}}`) {
		t.Errorf("got %s", got)
	}
}

func TestApproximate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Index: kvindex.Config{TTL: time.Minute}})
		s.Start()
		defer s.Close()
		ask := func(path, body string) string {
			req := httptest.NewRequest("POST", path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, req)
			if rec.Code/100 != 2 {
				t.Fatalf("%s: status %d: %s", path, rec.Code, rec.Body)
			}
			return rec.Body.String()
		}
		ask("/register", registered)
		ask("/route", strings.Replace(tokenQuery("m", 32), "{", `{"instance_id":1,`, 1))
		ask("/route", strings.Replace(hashQuery("m", blocks(64)), "{", `{"instance_id":1,"dp_rank":2,`, 1))
		want := `"scores":{"1":{"0":32,"2":64}}`
		time.Sleep(59 * time.Second)
		if got := ask("/query", tokenQuery("m", 64)); !strings.Contains(got, want) {
			t.Errorf("within the TTL: got %s, want %s", got, want)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := ask("/query", tokenQuery("m", 64)); !strings.Contains(got, `"scores":{}`) {
			t.Errorf("after the TTL: got %s", got)
		}
	})
}

func TestHealthAndMetrics(t *testing.T) {
	r := newFilled(t, Config{Version: "v1"})
	same(t, `{"status":"healthy","version":"v1","models":1,"ranks":2,"blocks":6}`, r.get(t, "/health"))
	r.post(t, "/query", `{`)
	r.must(t, "/register", `{"instance_id":2,"model_name":"m","block_size":16}`)
	r.must(t, "/events?model_name=m", stored(9, 0, 0, kv.Device, blocks(16))+stored(9, 0, 0, kv.Device, blocks(16))+"{}")
	got := r.get(t, "/metrics")
	for _, want := range []string{
		`dynamo_kvindexer_models 1`,
		`dynamo_kvindexer_workers 2`,
		`dynamo_kvindexer_listeners{status="active"} 2`,
		`dynamo_kvindexer_listeners{status="pending"} 1`,
		`dynamo_kvindexer_listeners{status="paused"} 0`,
		`stator_kv_events_skipped_total{model="m",reason="malformed"} 1`,
		`stator_kv_events_skipped_total{model="m",reason="not_registered"} 2`,
		`dynamo_kvindexer_requests_total{endpoint="/query",method="POST"} 1`,
		`dynamo_kvindexer_errors_total{endpoint="/query",status_class="4xx"} 1`,
		`dynamo_component_kv_cache_events_applied{event_type="stored",status="ok"} 3`,
		`stator_index_blocks{model="m"} 6`,
		`stator_index_ranks{model="m"} 2`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// The series of two indexes are never taken for those of one.
func TestMetricLabels(t *testing.T) {
	seen := map[string]poolKey{}
	for _, key := range []poolKey{{"m", defaultGroup}, {"m", "g"}, {"m:g", defaultGroup}, {"m:g", "g"}, {"m:default", defaultGroup}, {"m:default", "default2"}} {
		label := (&pool{key: key}).label()
		if other, ok := seen[label]; ok {
			t.Errorf("%v and %v are both %q", key, other, label)
		}
		seen[label] = key
	}
	if got := seen["m"]; got != (poolKey{"m", defaultGroup}) {
		t.Errorf("m is the label of %v", got)
	}
}

// Every way in which a request can be wrong, and what the client is told.
func TestErrors(t *testing.T) {
	r := newFilled(t, Config{MaxBody: 4096, MaxRestore: 1 << 20})
	const (
		jsonType = "application/json"
		event    = `{"worker_id":1,"event":{"event_id":9,"data":"cleared"}}`
	)
	long := strings.Repeat("x", maxName+1)
	for _, row := range []struct {
		name, method, path, contentType, body string
		status                                int
		field, message                        string // of the error
	}{
		{"no route", "GET", "/nope", "", "", 404, "", "/openapi.json"},
		{"get of a post", "GET", "/query", "", "", 405, "", "POST"},
		{"post of a get", "POST", "/dump", jsonType, "{}", 405, "", "GET, HEAD"},
		{"form", "POST", "/query", "application/x-www-form-urlencoded", "a=b", 415, "Content-Type", "application/json"},
		{"no type", "POST", "/register", "", "{}", 415, "Content-Type", "application/json"},
		{"events as text", "POST", "/events", "text/plain", event, 415, "Content-Type", "application/msgpack"},
		{"restore of lines", "POST", "/restore", "application/x-ndjson", "{}", 415, "Content-Type", "application/json"},
		{"large query", "POST", "/query", jsonType, strings.Repeat(" ", 4097), 413, "", "4096"},
		{"large restore", "POST", "/restore", jsonType, strings.Repeat(" ", 1<<20+1), 413, "", "1048576"},
		{"not JSON", "POST", "/query", jsonType, `{"a"`, 400, "", "byte 4"},
		{"no object", "POST", "/query", jsonType, `[]`, 400, "", "an object"},
		{"no model", "POST", "/query", jsonType, `{"token_ids":[]}`, 400, "model_name", "a name"},
		{"model of another type", "POST", "/query", jsonType, `{"model_name":1}`, 400, "model_name", "a number"},
		{"long model", "POST", "/query", jsonType, `{"model_name":"` + long + `"}`, 400, "model_name", "1024"},
		{"unknown model", "POST", "/query", jsonType, `{"model_name":"x","token_ids":[]}`, 404, "model_name", `"x"`},
		{"unknown group", "POST", "/query", jsonType, `{"model_name":"m","routing_group":"g","token_ids":[]}`, 404, "model_name", `group "g"`},
		{"no tokens", "POST", "/query", jsonType, `{"model_name":"m"}`, 400, "token_ids", "missing"},
		{"tokens null", "POST", "/query", jsonType, `{"model_name":"m","token_ids":null}`, 400, "token_ids", "null"},
		{"token fraction", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1, 2.5]}`, 400, "token_ids", "element 1"},
		{"what a token is", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1 , 2.5]}`, 400, "token_ids", "whole number: 2.5: expected"},
		{"what a long token is", "POST", "/query", jsonType, `{"model_name":"m","token_ids":["` + strings.Repeat("x", 1000) + `"]}`, 400, "token_ids", "whole number: a string: expected"},
		{"token minus zero", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[-0]}`, 200, "", ""},
		{"half a character", "POST", "/query", jsonType, `{"model_name":"\ud800","token_ids":[1]}`, 400, "model_name", "Unicode"},
		{"half a character in a group", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"routing_group":"a\udc00"}`, 400, "routing_group", "Unicode"},
		{"half a character in a salt", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1],"cache_salt":"\ud800x"}`, 400, "cache_salt", "Unicode"},
		{"a whole character", "POST", "/query", jsonType, `{"model_name":"\ud83d\ude00","token_ids":[1]}`, 404, "model_name", "😀"},
		{"token exponent", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1e3]}`, 400, "token_ids", "element 0"},
		{"token negative", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[-1]}`, 400, "token_ids", "element 0"},
		{"token of 33 bits", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[0,4294967296]}`, 400, "token_ids", "element 1"},
		{"token text", "POST", "/query", jsonType, `{"model_name":"m","token_ids":["a"]}`, 400, "token_ids", "element 0"},
		{"token list", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[[1]]}`, 400, "token_ids", "element 0"},
		{"mm of another type", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1],"block_mm_infos":3}`, 400, "block_mm_infos", "a number"},
		{"mm without objects", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1],"block_mm_infos":[{}]}`, 400, "block_mm_infos[0].mm_objects", "nothing"},
		{"mm without hash", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1],"block_mm_infos":[null]}`, 200, "", ""},
		{"mm hash", "POST", "/query", jsonType, `{"model_name":"m","token_ids":[1],"block_mm_infos":[{"mm_objects":[{"mm_hash":"x"}]}]}`, 400, "block_mm_infos[0].mm_objects[0].mm_hash", "64 bits"},
		{"hash with salt", "POST", "/query_by_hash", jsonType, `{"model_name":"m","block_hashes":[1],"cache_salt":"s"}`, 400, "cache_salt", "none"},
		{"hash of 65 bits", "POST", "/query_by_hash", jsonType, `{"model_name":"m","block_hashes":[18446744073709551616]}`, 400, "block_hashes", "element 0"},
		{"hash below int64", "POST", "/query_by_hash", jsonType, `{"model_name":"m","block_hashes":[1,-9223372036854775809]}`, 400, "block_hashes", "element 1"},
		{"no hashes", "POST", "/query_by_hash", jsonType, `{"model_name":"m"}`, 400, "block_hashes", "missing"},
		{"no instance", "POST", "/register", jsonType, `{"model_name":"m","block_size":16}`, 400, "instance_id", "from 1"},
		{"instance as text", "POST", "/register", jsonType, `{"instance_id":"1","model_name":"m","block_size":16}`, 400, "instance_id", "whole number"},
		{"no block size", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m"}`, 400, "block_size", "from 1"},
		{"large block size", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":65537}`, 400, "block_size", "65536"},
		{"another block size", "POST", "/register", jsonType, `{"instance_id":2,"model_name":"m","block_size":32}`, 409, "block_size", "16 tokens"},
		{"another block size with a socket", "POST", "/register", jsonType, `{"instance_id":2,"model_name":"m","block_size":32,"endpoint":"127.0.0.1:1"}`, 409, "block_size", "16 tokens"},
		{"group with a colon", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"routing_group":"a:b"}`, 400, "routing_group", "':'"},
		{"large rank", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"dp_rank":4294967296}`, 400, "dp_rank", "4294967295"},
		{"salt of a registration", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"additional_salt":"s"}`, 400, "additional_salt", "cache_salt"},
		{"endpoint of another machine's file", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"ipc:///tmp/x"}`, 400, "endpoint", "tcp://"},
		{"endpoint without port", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7"}`, 400, "endpoint", "tcp://10.0.0.7:5557"},
		{"endpoint with port 0", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"10.0.0.7:0"}`, 400, "endpoint", "tcp://"},
		{"endpoint with a large port", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7:65536"}`, 400, "endpoint", "tcp://"},
		{"endpoint with a path", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7:5557/x"}`, 400, "endpoint", "tcp://"},
		{"endpoint with a strange host", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://a b:5557"}`, 400, "endpoint", "tcp://"},
		{"endpoint of everywhere", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://*:5557"}`, 400, "endpoint", "the engine's machine"},
		{"endpoint of all addresses", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://[::]:5557"}`, 400, "endpoint", "the engine's machine"},
		{"endpoint as a number", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":5557}`, 400, "endpoint", "a number"},
		{"bad replay endpoint", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7:5557","replay_endpoint":"tcp://:5558"}`, 400, "replay_endpoint", "the engine's machine"},
		{"replay endpoint alone", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"replay_endpoint":"tcp://10.0.0.7:5558"}`, 400, "replay_endpoint", "beside it"},
		{"endpoint of a large rank", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7:5557","dp_rank":65536}`, 400, "dp_rank", "65535"},
		{"engine", "POST", "/register", jsonType, `{"instance_id":1,"model_name":"m","block_size":16,"endpoint":"tcp://10.0.0.7:5557","engine":"gpt"}`, 400, "engine", "sglang"},
		{"unregister a stranger", "POST", "/unregister", jsonType, `{"instance_id":7,"model_name":"m"}`, 404, "instance_id", "worker 7"},
		{"unregister of no model", "POST", "/unregister", jsonType, `{"instance_id":1,"model_name":"x"}`, 404, "instance_id", `"x"`},
		{"route without prompt", "POST", "/route", jsonType, `{"instance_id":1,"model_name":"m"}`, 400, "token_ids", "either"},
		{"route with both", "POST", "/route", jsonType, `{"instance_id":1,"model_name":"m","token_ids":[],"block_hashes":[]}`, 400, "token_ids", "either"},
		{"route to a stranger", "POST", "/route", jsonType, `{"instance_id":7,"model_name":"m","token_ids":[]}`, 404, "instance_id", "worker 7"},
		{"route with salted hashes", "POST", "/route", jsonType, `{"instance_id":1,"model_name":"m","block_hashes":[],"cache_salt":"s"}`, 400, "cache_salt", "none"},
		{"events of no model", "POST", "/events?model_name=x", jsonType, event, 404, "model_name", `"x"`},
		{"events of a group alone", "POST", "/events?routing_group=x", jsonType, event, 400, "model_name", "a name"},
		{"epoch", "POST", "/events?epoch=now", jsonType, event, 400, "epoch", `"now"`},
		{"events cut off", "POST", "/events", jsonType, `[` + event + `,{"worker_id":1,`, 400, "", "after 1 events"},
		{"events without comma", "POST", "/events", jsonType, `[` + event + event + `]`, 400, "", "byte 56"},
		{"events of msgpack cut off", "POST", "/events", "application/msgpack", "\x82\xa9worker_id", 400, "", "msgpack"},
		{"plane: neither", "POST", "/kv_indexer_query", jsonType, `{}`, 400, "", "FindMatchesHashed"},
		{"plane: both", "POST", "/kv_indexer_query", jsonType, `{"FindMatchesHashed":{"block_hashes":[]},"FindMatchesTokens":{"tokens":[]}}`, 400, "", "one of"},
		{"plane: word", "POST", "/kv_indexer_query", jsonType, `"Dump"`, 400, "", `"Dump"`},
		{"plane: type", "POST", "/kv_indexer_query", jsonType, `{"FindMatchesHashed":[1]}`, 400, "FindMatchesHashed", "an array"},
		{"plane: no model", "POST", "/kv_indexer_query?model_name=x", jsonType, `"DumpTree"`, 404, "model_name", `"x"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			resp, out := r.do(t, row.method, row.path, row.contentType, row.body)
			if resp.StatusCode != row.status {
				t.Fatalf("status %d, want %d: %s", resp.StatusCode, row.status, out)
			}
			if row.status == 200 {
				return
			}
			if row.status == 405 && resp.Header.Get("Allow") != row.message {
				t.Errorf("Allow %q, want %q", resp.Header.Get("Allow"), row.message)
			}
			var e errorBody
			if err := json.Unmarshal([]byte(out), &e); err != nil {
				t.Fatal(err)
			}
			if e.Error.Field != row.field || !strings.Contains(e.Error.Message, row.message) {
				t.Errorf("field %q, message %q; want field %q and a message with %q", e.Error.Field, e.Error.Message, row.field, row.message)
			}
		})
	}
}

func TestForeignPage(t *testing.T) {
	s := New(Config{})
	req := httptest.NewRequest("POST", "/register", strings.NewReader(registered))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	if rec.Code != http.StatusForbidden {
		t.Errorf("status %d, want 403: %s", rec.Code, rec.Body)
	}
}

func TestLimits(t *testing.T) {
	r := newRig(t, Config{MaxHeld: 1024, MaxRanks: 1})
	if resp, out := r.do(t, "POST", "/query", "application/json", strings.Repeat(" ", 2048)); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("more bodies than memory: status %d: %s", resp.StatusCode, out)
	}
	if n := r.held.Load(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
	r.must(t, "/register", registered)
	r.must(t, "/register", registered)
	if status, out := r.post(t, "/register", `{"instance_id":2,"model_name":"m","block_size":16}`); status != 503 || !strings.Contains(out, "limit is 1") {
		t.Errorf("more ranks than allowed: status %d: %s", status, out)
	}
	// Nor does an event add one.
	if out := r.must(t, "/events", stored(1, 1, 0, kv.Device, blocks(16))); !strings.Contains(out, `"too_many_ranks":1`) {
		t.Errorf("event of one rank too many: %s", out)
	}
	many := `{"model_name":"m","block_hashes":[` + strings.Repeat("1,", maxHashes) + `1]}`
	big := New(Config{MaxBody: int64(len(many))})
	big.ensure(wanted{poolKey{"m", "default"}, 16, []kv.Source{{Worker: 1}}})
	req := httptest.NewRequest("POST", "/query_by_hash", strings.NewReader(many))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	if big.ServeHTTP(rec, req); rec.Code != 400 || !strings.Contains(rec.Body.String(), "at most 1048576 blocks") {
		t.Errorf("too many hashes: status %d: %s", rec.Code, rec.Body)
	}
}

// A handler that fails in a way that nobody foresaw is a 500, not the end.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	s := New(Config{Log: newLog(&log)})
	s.routes["/health"] = route{"GET", func(http.ResponseWriter, *http.Request) error { panic("oops") }}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest("GET", "/health", nil))
	if rec.Code != 500 || !strings.Contains(rec.Body.String(), "internal error") || !strings.Contains(log.String(), "oops") {
		t.Errorf("status %d: %s; log %s", rec.Code, rec.Body, &log)
	}
}
