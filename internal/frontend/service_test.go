package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stator-ai/stator/internal/engine"
	"github.com/stator-ai/stator/internal/router"
	"github.com/stator-ai/stator/internal/sched"
	"github.com/stator-ai/stator/internal/simserver"
)

// busyAtOnce is a class for which a rank is busy while it computes any prompt.
var busyAtOnce = sched.Class{BusyTokens: new(0)}

// loads returns what /potential_loads says, for a prompt if one is given.
func (rg *rig) loads(t *testing.T, body string) loadsBody {
	t.Helper()
	var resp *http.Response
	var text string
	if body == "" {
		resp, text = rg.get(t, "/potential_loads")
	} else {
		resp, text = rg.post(t, "/potential_loads", body)
	}
	var out loadsBody
	if err := json.Unmarshal([]byte(text), &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return out
}

// book has a prompt placed and returns where.
func (rg *rig) book(t *testing.T, members string) bookedBody {
	t.Helper()
	resp, text := rg.post(t, "/router", `{"method":"new",`+members+`}`)
	var out bookedBody
	if err := json.Unmarshal([]byte(text), &out); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, err, text)
	}
	return out
}

// nothingLeft checks that nothing is booked, waits or is held.
func (rg *rig) nothingLeft(t *testing.T) {
	t.Helper()
	l := rg.loads(t, "")
	if rg.booked() != 0 || l.PendingCount != 0 || l.PendingISLTokens != 0 {
		t.Errorf("%d booked, %d wait with %d tokens", rg.booked(), l.PendingCount, l.PendingISLTokens)
	}
	for _, r := range l.Loads {
		if r.PrefillTokens != 0 || r.DecodeBlocks != 0 {
			t.Errorf("worker %d has %d tokens and %d blocks", r.WorkerID, r.PrefillTokens, r.DecodeBlocks)
		}
	}
	if n, b := rg.Inflight(), rg.body.Load(); n != 0 || b != 0 {
		t.Errorf("%d requests in flight, %d bytes held", n, b)
	}
}

// TestClientsLeaveTheQueue: whoever leaves while it waits leaves nothing behind, with
// a request to be answered as with one to be placed only.
func TestClientsLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{engines: 2, router: router.Config{Queue: queueOf(busyAtOnce, 0)}})
		for i := range 2 {
			rg.book(t, fmt.Sprintf(`"request_id":"busy-%d","tokens":[1,2,3]`, i))
		}
		var wg sync.WaitGroup
		for i := range 20 {
			ctx, leave := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			path, body := chatPath, hello
			if i%2 == 0 {
				path, body = "/router", fmt.Sprintf(`{"method":"new","request_id":"r-%d","tokens":[1,2,3,4]}`, i)
			}
			req := rg.request(t, path, body).WithContext(ctx)
			wg.Go(func() {
				defer leave()
				if resp, err := rg.client.Do(req); err == nil {
					resp.Body.Close()
					t.Errorf("%d: answered with %d", i, resp.StatusCode)
				}
			})
		}
		synctest.Wait()
		if l := rg.loads(t, ""); l.PendingCount != 20 || rg.booked() != 2 {
			t.Errorf("%d wait, %d booked, want 20 and 2", l.PendingCount, rg.booked())
		}
		wg.Wait()
		synctest.Wait()
		for i := range 2 {
			rg.post(t, "/router", fmt.Sprintf(`{"method":"mark_free","request_id":"busy-%d"}`, i))
		}
		rg.nothingLeft(t)
		rg.stop()
	})
}

// TestStoppedWhileQueued: who waits when the server stops is told so, and keeps its
// turn while the server only drains.
func TestStoppedWhileQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, stop := context.WithCancelCause(context.Background())
		rg := newRig(t, rigConfig{base: base, router: router.Config{Queue: queueOf(busyAtOnce, 0)}})
		rg.book(t, `"request_id":"busy","tokens":[1,2,3]`)
		var wg sync.WaitGroup
		for path, body := range map[string]string{chatPath: hello, "/router": `{"method":"new","tokens":[1]}`} {
			wg.Go(func() {
				resp, text := rg.post(t, path, body)
				if resp.StatusCode != 503 || !strings.Contains(text, `"draining"`) || resp.Header.Get("Retry-After") == "" {
					t.Errorf("%s: status %d: %s", path, resp.StatusCode, text)
				}
			})
		}
		synctest.Wait()
		drain, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := rg.Drain(drain); err == nil || rg.Inflight() != 2 {
			t.Errorf("drain: %v, %d in flight", err, rg.Inflight())
		}
		stop(ErrStopping)
		wg.Wait()
		synctest.Wait()
		if rg.booked() != 1 || rg.Inflight() != 0 || rg.body.Load() != 0 { // the one that is leased
			t.Errorf("%d booked, %d in flight, %d bytes held", rg.booked(), rg.Inflight(), rg.body.Load())
		}
		rg.stop()
	})
}

// TestRetryWaitsInTheQueue for longer than an engine may be silent: the engine that
// was asked before has nothing more to say.
func TestRetryWaitsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := new(string)
		rg := newRig(t, rigConfig{
			engines: 2,
			front:   Config{Limits: Limits{EngineIdle: 5 * time.Second}},
			router:  router.Config{Queue: queueOf(busyAtOnce, 0)},
			fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Host == *refuses {
					answer(503, `{}`)(w, r)
					return
				}
				next.ServeHTTP(w, r)
			},
		})
		busy := rg.book(t, `"request_id":"busy","tokens":[1,2,3,4,5,6,7,8]`)
		*refuses = fmt.Sprintf("sim-%d", 3-busy.WorkerID)
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			if resp, text := rg.post(t, chatPath, hello); resp.StatusCode != 200 || time.Since(start) != 20*time.Second {
				t.Errorf("status %d after %s: %s", resp.StatusCode, time.Since(start), text)
			}
		})
		time.Sleep(20 * time.Second)
		rg.post(t, "/router", `{"method":"mark_free","request_id":"busy"}`)
		wg.Wait()
		rg.nothingLeft(t)
		rg.stop()
	})
}

// TestLeases: a booking of which nothing is heard ends by itself.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rg := newRig(t, rigConfig{})
		rg.book(t, `"request_id":"a","tokens":[1,2,3],"lease_secs":10`)
		for _, method := range []string{"renew", "mark_prefill"} {
			time.Sleep(9 * time.Second)
			if _, text := rg.post(t, "/router", `{"method":"`+method+`","request_id":"a"}`); !strings.Contains(text, `"success":true`) {
				t.Errorf("%s: %s", method, text)
			}
		}
		if l := rg.loads(t, ""); l.Loads[0].Requests != 1 || l.Loads[0].PrefillTokens != 0 {
			t.Errorf("after mark_prefill: %+v", l.Loads)
		}
		time.Sleep(11 * time.Second)
		rg.nothingLeft(t)
		if _, text := rg.post(t, "/router", `{"method":"renew","request_id":"a"}`); !strings.Contains(text, `"success":false`) {
			t.Errorf("renew after the end: %s", text)
		}
		rg.stop()
	})
}

// TestObjectsAreHashed: the same tokens with another image are another prompt.
func TestObjectsAreHashed(t *testing.T) {
	rg := newRig(t, rigConfig{sim: simserver.Config{BlockSize: 2}})
	const infos = `"block_mm_infos":[{"mm_objects":[{"mm_hash":18446744073709551615,"offsets":[[0,1]]}]},null]`
	rg.book(t, `"request_id":"a","tokens":[1,2,3,4,5],`+infos)
	for _, row := range []struct {
		infos  string
		blocks int
	}{
		{infos, 2},
		{strings.Replace(infos, ",null]", ",null,null]", 1), 2}, // the block that is not full may be there
		{`"block_mm_infos":[null,null]`, 4},
		{`"block_mm_infos":null`, 4},
		{strings.Replace(infos, "615", "614", 1), 4},
	} {
		if l := rg.loads(t, `{"tokens":[1,2,3,4,5],`+row.infos+`}`); l.Loads[0].DecodeBlocks != row.blocks {
			t.Errorf("%s: %d blocks, want %d", row.infos, l.Loads[0].DecodeBlocks, row.blocks)
		}
	}
}

// TestNamespacesAndAdapters: each has blocks of its own.
func TestNamespacesAndAdapters(t *testing.T) {
	rg := newRig(t, rigConfig{wrap: func(e engine.Engine) engine.Engine { return adapted{plainEngine{Engine: e, tokenizer: "bytes"}} }})
	const tokens = `"tokens":[1,2,3,4,5,6,7,8]`
	rg.book(t, `"request_id":"base",`+tokens)
	rg.book(t, `"request_id":"salted","cache_namespace":"acme",`+tokens)
	rg.book(t, `"request_id":"adapted","lora_name":"sql",`+tokens)
	for body, want := range map[string]int{
		`{` + tokens + `}`:                                       3, // three blocks, none of them new
		`{` + tokens + `,"cache_salt":"acme"}`:                   3,
		`{` + tokens + `,"lora_name":"sql"}`:                     3,
		`{` + tokens + `,"model":"sql"}`:                         3,
		`{` + tokens + `,"model":"m","cache_namespace":"other"}`: 4,
	} {
		if l := rg.loads(t, body); l.Loads[0].DecodeBlocks != want {
			t.Errorf("%s: %d blocks, want %d", body, l.Loads[0].DecodeBlocks, want)
		}
	}
	for _, id := range []string{"base", "salted", "adapted"} {
		rg.post(t, "/router", `{"method":"mark_free","model":"m","request_id":"`+id+`"}`)
	}
	// An adapter has two names, by both of which its bookings are found.
	rg.book(t, `"request_id":"two","model":"m:sql",`+tokens)
	for _, method := range []string{"mark_prefill", "renew", "mark_free"} {
		if _, text := rg.post(t, "/router", `{"method":"`+method+`","model":"m:sql","request_id":"two"}`); !strings.Contains(text, `"success":true`) {
			t.Errorf("%s: %s", method, text)
		}
	}
	rg.nothingLeft(t)
}

// adapted serves an adapter as well.
type adapted struct{ plainEngine }

func (a adapted) Identify(ctx context.Context) (*engine.Info, error) {
	info, err := a.plainEngine.Identify(ctx)
	sql := info.Models[0]
	sql.ID, sql.Parent = "sql", "m"
	info.Models = append(info.Models, sql)
	return info, err
}

// TestMillionTokens: the prompt of a booking may be as long as one to be answered.
func TestMillionTokens(t *testing.T) {
	rg := newRig(t, rigConfig{sim: simserver.Config{ContextLength: 2 << 20}})
	tokens := strings.Repeat("100000,", 1<<20)
	rg.book(t, `"request_id":"long","tokens":[`+tokens[:len(tokens)-1]+`]`)
	if n := rg.body.Load(); n != 0 {
		t.Errorf("%d bytes still held", n)
	}
	if l := rg.loads(t, ""); l.Loads[0].PrefillTokens != 1<<20 {
		t.Errorf("loads: %+v", l.Loads)
	}
	rg.post(t, "/router", `{"method":"mark_free","request_id":"long"}`)
	rg.nothingLeft(t)
}

// TestModelMustBeNamed where there are several.
func TestModelMustBeNamed(t *testing.T) {
	n := 0
	rg := newRig(t, rigConfig{engines: 2, wrap: func(e engine.Engine) engine.Engine {
		n++
		return named{plainEngine{Engine: e, tokenizer: "bytes"}, fmt.Sprintf("m%d", n)}
	}})
	resp, text := rg.post(t, "/router", `{"method":"new","tokens":[1]}`)
	if resp.StatusCode != 400 || !strings.Contains(text, "model: expected the name of a model, since 2 are served") {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if resp, text := rg.get(t, "/potential_loads"); resp.StatusCode != 400 {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
	rg.book(t, `"request_id":"a","model":"m2","tokens":[1]`)
	rg.book(t, `"request_id":"a","model":"m1","tokens":[1]`)
	if _, text := rg.post(t, "/router", `{"method":"mark_free","request_id":"a","model":"m2"}`); !strings.Contains(text, "true") || rg.booked() != 1 {
		t.Errorf("%s, then %d booked", text, rg.booked())
	}
	if resp, text := rg.get(t, "/potential_loads?model=m1"); resp.StatusCode != 200 || !strings.Contains(text, `"active_requests":1`) {
		t.Errorf("status %d: %s", resp.StatusCode, text)
	}
}

// named serves a model of another name.
type named struct {
	plainEngine
	model string
}

func (n named) Identify(ctx context.Context) (*engine.Info, error) {
	info, err := n.plainEngine.Identify(ctx)
	info.Models[0].ID = n.model
	return info, err
}

// TestQueueRefusalsAreCounted like other overload.
func TestQueueRefusalsAreCounted(t *testing.T) {
	class := busyAtOnce
	class.MaxRequests = new(0)
	rg := newRig(t, rigConfig{router: router.Config{Queue: queueOf(class, 0)}})
	rg.book(t, `"request_id":"busy","tokens":[1,2,3]`)
	if resp, text := rg.post(t, chatPath, hello); resp.StatusCode != statusQueueFull {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	if resp, text := rg.post(t, "/router", `{"method":"new","tokens":[1]}`); resp.StatusCode != statusQueueFull || !strings.Contains(text, "queue_rejected") {
		t.Fatalf("status %d: %s", resp.StatusCode, text)
	}
	_, text := rg.get(t, "/metrics")
	for _, want := range []string{
		`dynamo_frontend_model_rejection_total{endpoint="chat_completions",model="stator-sim"} 1`,
		`stator_shed_total{model="stator-sim",reason="queue_full"} 2`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// TestServiceLoadsTakeAnOverride, as the route for loads does.
func TestServiceLoadsTakeAnOverride(t *testing.T) {
	rg := newRig(t, rigConfig{})
	for _, path := range []string{"/router", "/potential_loads"} {
		for override, status := range map[string]int{`{"assume_kv_reuse":false}`: 200, `{"router_temperature":-1}`: 400, `7`: 400} {
			resp, text := rg.post(t, path, `{"method":"potential_loads","tokens":[1,2,3],"router_config_override":`+override+`}`)
			if resp.StatusCode != status || status == 400 && !strings.Contains(text, "router_config_override") {
				t.Errorf("%s with %s: status %d: %s", path, override, resp.StatusCode, text)
			}
		}
	}
}
